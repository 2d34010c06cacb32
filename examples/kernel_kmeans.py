"""Clusters, outliers, and a two-sample test
=========================================

Find clusters and outliers in rows without targets, and test whether two
samples have the same distribution.

Run it with ``python examples/kernel_kmeans.py [rows]``.
"""

import sys

import matplotlib.pyplot as plt
import numpy as np
from sklearn.cluster import KMeans
from sklearn.datasets import make_circles
from sklearn.metrics import adjusted_rand_score

from gyrfalcon import KernelKMeans, NoveltyDetector, mmd_test
from gyrfalcon.kernels import Gaussian

rows = int(sys.argv[1]) if len(sys.argv) > 1 else 50_000
X, y = make_circles(rows, factor=0.3, noise=0.05, random_state=0)
X = X.astype(np.float32)

for name, model in {
    "KMeans": KMeans(2, n_init=3),
    "KernelKMeans": KernelKMeans(2, n_centers=300, n_init=10),
}.items():
    labels = model.set_params(random_state=0).fit_predict(X)
    print(
        f"{name}: agreement with the circles "
        f"{adjusted_rand_score(y, labels):.3f} (1 is perfect)"
    )
print(
    f"{model.n_iter_} passes over all rows, inertia "
    f"{model.inertia_ / rows:.4f} a row"
)

detector = NoveltyDetector(
    Gaussian(0.15), n_centers=300, contamination=0.01, random_state=0
).fit(X)
new = np.array([[0.0, 1.0], [0.0, 0.3], [0.0, 0.65], [2.0, 2.0]])
for row, decision in zip(new, detector.decision_function(new), strict=True):
    print(f"{row}: {'an outlier' if decision < 0 else 'like the others'}")

# Compare one half of the rows with the other half, and with wider circles.
first, second = X[::2], X[1::2]
for name, other in {
    "the other half": second,
    "circles that are 5% wider": 1.05 * second,
}.items():
    test = mmd_test(first, other, n_centers=300, random_state=0)
    print(f"{name}: MMD^2 {test.statistic:.2e}, p = {test.pvalue:.3f}")

# %%
# The clusters, and the region of the outliers.

figure, panels = plt.subplots(
    1, 2, figsize=(8, 4), layout="constrained", sharex=True, sharey=True
)
panels[0].scatter(*X[:2000].T, c=labels[:2000], s=5, cmap="coolwarm")
panels[0].set_title("KernelKMeans")
axis = np.linspace(-1.6, 1.6, 80)
grid = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
values = detector.decision_function(grid.astype(np.float32)).reshape(80, 80)
panels[1].contourf(
    axis,
    axis,
    values,
    levels=[values.min(), 0, values.max()],
    colors=["#f3c9a5", "#ffffff"],
)
panels[1].scatter(*X[:2000].T, s=2, color="grey")
panels[1].scatter(*new[:3].T, marker="x", color="black")
panels[1].set_title("NoveltyDetector: outliers are in the shade")
plt.show()
