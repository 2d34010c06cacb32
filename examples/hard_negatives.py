"""Hard negatives
=================

A detector from few positives and many negatives: train on the negatives that the model gets wrong.

One digit is to be told from all others, where others are 90% of the rows and most of them easy. Instead of a random
part of the negatives, each round adds those of the next batch that the last model was not sure about, and goes on from
its solution (``warm_start=True``): a few Newton steps, since most rows are the same.

Run it with ``python examples/hard_negatives.py [rows]``.
"""

import sys
import time

import numpy as np
from sklearn.datasets import load_digits
from sklearn.metrics import average_precision_score

from gyrfalcon import FalkonClassifier
from gyrfalcon.kernels import Gaussian

rows = int(sys.argv[1]) if len(sys.argv) > 1 else 12_000
random = np.random.default_rng(0)

# the bundled 8 x 8 digits, each also shifted by one pixel in eight directions; tested on digits never seen
images, labels = load_digits().images / 16, load_digits().target
shifted = [np.roll(images, (i, j), axis=(1, 2)) for i in (-1, 0, 1) for j in (-1, 0, 1)]
train, test = np.arange(len(images)) % 4 != 0, np.arange(len(images)) % 4 == 0
X = np.concatenate([s[train] for s in shifted]).reshape(-1, 64).astype(np.float32)
y = np.tile(labels[train], 9) == 8
X_test = np.concatenate([s[test] for s in shifted]).reshape(-1, 64).astype(np.float32)
y_test = np.tile(labels[test], 9) == 8
chosen = random.permutation(len(X))[:rows]
X, y = X[chosen], y[chosen]
positives, negatives = np.flatnonzero(y), np.flatnonzero(~y)
print(f"{len(positives)} positives, {len(negatives)} negatives")


def fit(model, chosen):
    rows = np.r_[positives, chosen]
    return model.fit(X[rows], y[rows])


def detector(chosen):
    some = np.r_[random.choice(positives, min(200, len(positives)), replace=False), chosen[:200]]
    return FalkonClassifier(Gaussian(1.5), loss="logistic", centers=X[some], penalty=1e-6, tol=1e-3, warm_start=True)


def report(name, model, n_negatives, seconds):
    precision = average_precision_score(y_test, model.decision_function(X_test))
    print(f"{name}: {n_negatives} negatives, average precision {precision:.4f}, {seconds:.1f} s")


start = time.perf_counter()
shuffled = random.permutation(negatives)
hard, others = shuffled[: len(positives)], shuffled[len(positives) :]
model = fit(detector(hard), hard)
report("to begin with", model, len(hard), time.perf_counter() - start)
for batch in np.array_split(others, 3):
    unsure = batch[model.predict_proba(X[batch])[:, 1] > 0.01]
    hard = np.r_[hard, unsure]
    fit(model, hard)
    print(f"  {len(unsure)} of {len(batch)} are hard; {model.history_[-1]['passes']} passes over the rows")
report("with hard negatives", model, len(hard), time.perf_counter() - start)

start = time.perf_counter()
uniform = random.permutation(negatives)[: len(hard)]
report("as many, drawn uniformly", fit(detector(uniform), uniform), len(uniform), time.perf_counter() - start)
