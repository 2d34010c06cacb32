"""On deep features
================

Train a kernel classifier on the features of a neural network that was trained
for another task.

A network learns to distinguish the digits 0 to 4. Then its last hidden layer
is computed for the digits 5 to 9, which it has never seen, and stored in a
file. FALKON and logistic regression learn from these features. The network is
a small one of scikit-learn, so that nothing else has to be installed;
benchmarks/deep_features.py does the same with sentence embeddings and with an
image network.

Run it with ``python examples/deep_features.py [rows]``.
"""

import sys
import tempfile
import time
import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import gyrfalcon
from gyrfalcon import FalkonClassifier

rows = int(sys.argv[1]) if len(sys.argv) > 1 else 8_000

# %%
# The bundled 8 x 8 digits, each also shifted by one pixel in eight directions.
# A quarter of them is kept for testing.

images, labels = load_digits().images / 16, load_digits().target
shifted = [
    np.roll(images, (i, j), axis=(1, 2))
    for i in (-1, 0, 1)
    for j in (-1, 0, 1)
]
X = np.concatenate(shifted).reshape(-1, 64).astype(np.float32)
y, held = np.tile(labels, 9), np.tile(np.arange(len(labels)) % 4 == 0, 9)

# %%
# The network learns the digits 0 to 4.

known = y < 5
network = MLPClassifier((96, 48), max_iter=15, random_state=0)
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it need not converge
    network.fit(X[known & ~held], y[known & ~held])
print(
    "the network knows "
    f"{network.score(X[known & held], y[known & held]):.1%} of the digits 0 "
    "to 4"
)


def features(X):
    """Return the last hidden layer of the network."""
    for W, b in zip(
        network.coefs_[:-1], network.intercepts_[:-1], strict=True
    ):
        X = np.maximum(X @ W + b, 0)
    return X.astype(np.float32)


# %%
# Both classifiers learn the digits 5 to 9 from the features.

train = np.random.default_rng(0).permutation(np.flatnonzero(~known & ~held))[
    :rows
]
test = ~known & held
with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "features.npy"
    np.save(path, features(X[train]))  # the file may be larger than memory
    data = gyrfalcon.open(path)
    print(
        f"features of the digits 5 to 9: {data.n_rows} x {data.X.shape[1]}, "
        f"{path.stat().st_size / 1e6:.1f} MB"
    )
    for name, model in {
        "logistic regression": make_pipeline(
            StandardScaler(), LogisticRegression(max_iter=1_000)
        ),
        "FALKON": FalkonClassifier(
            loss="logistic", n_centers=500, random_state=0
        ),
    }.items():
        start = time.perf_counter()
        model.fit(data.X if name == "FALKON" else np.load(path), y[train])
        seconds = time.perf_counter() - start
        probabilities = model.predict_proba(features(X[test]))
        accuracy, loss = (
            model.score(features(X[test]), y[test]),
            log_loss(y[test], probabilities),
        )
        print(
            f"{name:20s} accuracy {accuracy:.1%}, log-loss {loss:.3f}, "
            f"{seconds:.1f} s"
        )

# %%
# Some of the digits that FALKON mistakes.

predicted = model.predict(features(X[test]))
wrong = np.flatnonzero(predicted != y[test])[:10]
figure, axes = plt.subplots(1, 10, figsize=(10, 1.6), layout="constrained")
for ax in axes:
    ax.axis("off")
for ax, at in zip(axes, wrong, strict=False):
    ax.imshow(X[test][at].reshape(8, 8), cmap="gray_r")
    ax.set_title(f"{y[test][at]} as {predicted[at]}", fontsize=9)
plt.show()
