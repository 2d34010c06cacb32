"""Kernel PCA
==========

Separate two circles, which no straight line can, and remove noise from images.

Run it with ``python examples/kernel_pca.py [rows]``.
"""

import sys

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits, make_circles
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from gyrfalcon import KernelPCA
from gyrfalcon.kernels import Gaussian

rows = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
X, y = make_circles(rows, factor=0.4, noise=0.1, random_state=0)
X = X.astype(np.float32)

for name, transformer in {
    "PCA": PCA(2),
    "KernelPCA": KernelPCA(n_components=3, n_centers=300, random_state=0),
}.items():
    model = make_pipeline(transformer, LogisticRegression()).fit(
        X[::2], y[::2]
    )
    print(
        f"{name}: {model.score(X[1::2], y[1::2]):.3f} of new rows are on the "
        "right circle"
    )
print("shares of the variance:", model[0].explained_variance_ratio_.round(3))

# Components that were learned from clean images do not represent noise, so
# that the images that are reconstructed from their scores contain little.
images = load_digits().data / 16
known, new = images[:1500], images[1500:]
noisy = new + np.random.default_rng(0).normal(scale=0.25, size=new.shape)
pca = KernelPCA(
    40, kernel=Gaussian(3.0), fit_inverse_transform=True, random_state=0
).fit(known)
clean = pca.inverse_transform(pca.transform(noisy))
before, after = (
    np.sqrt(np.mean((found - new) ** 2)) for found in (noisy, clean)
)
print(
    f"digits with noise are off by {before:.3f} a pixel, after kernel PCA by "
    f"{after:.3f}"
)

# %%
# Two circles, and their principal components.

figure, panels = plt.subplots(1, 2, figsize=(8, 4), layout="constrained")
scores = model[0].transform(X[:2000])
for panel, points, title in zip(
    panels, (X[:2000], scores), ("rows", "components 1 and 3"), strict=True
):
    panel.scatter(
        points[:, 0], points[:, -1], c=y[:2000], s=5, cmap="coolwarm"
    )
    panel.set_title(title)
plt.show()

# %%
# Digits: the originals, with noise, and after the noise was removed.

figure, panels = plt.subplots(3, 8, figsize=(8, 3.2), layout="constrained")
for row, pictures in zip(panels, (new, noisy, clean), strict=True):
    for panel, picture in zip(row, pictures, strict=False):
        panel.imshow(picture.reshape(8, 8), cmap="gray_r", vmin=0, vmax=1)
        panel.set_axis_off()
plt.show()
