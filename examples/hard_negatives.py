"""Hard negatives
==============

Detect digits in pictures, with a few hundred windows that contain a digit, and
tens of thousands that do not.

Nearly all windows of a picture are background, and most of them are easy to
recognise: they are empty, or contain a thin part of a digit.
``mini_bootstrap`` (Maiettini et al. 2018) visits them in batches, keeps those
that the last model finds hard, and fits a detector for each class. It is
compared with a fit to the same number of negatives drawn at random ("random
background"), and with a fit to all negatives.

Run it with ``python examples/hard_negatives.py [pictures]``.
"""

import sys
import time

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.metrics import average_precision_score

from gyrfalcon import FalkonClassifier, mini_bootstrap
from gyrfalcon.kernels import Gaussian

pictures = int(sys.argv[1]) if len(sys.argv) > 1 else 60
random = np.random.default_rng(0)
images, labels = load_digits().images / 16, load_digits().target
CLASSES, BACKGROUND = (
    (0, 3, 8),
    -1,
)  # other digits are background that looks like them


def windows(digits, n):
    """Return the 8 x 8 windows of n pictures with nine digits, and classes.

    The class of a window is that of a digit if it is exactly at its place.
    """
    X, y = [], []
    for _ in range(n):
        picture, truth = (
            np.zeros((64, 64), np.float32),
            np.full((57, 57), BACKGROUND),
        )
        for cell in range(9):
            digit = random.choice(digits)
            i, j = 20 * np.array(divmod(cell, 3)) + random.integers(0, 12, 2)
            picture[i : i + 8, j : j + 8] = images[digit]
            if labels[digit] in CLASSES:
                truth[i, j] = labels[digit]
        picture += 0.05 * random.standard_normal(picture.shape).astype(
            np.float32
        )
        views = np.lib.stride_tricks.sliding_window_view(
            picture, (8, 8)
        ).reshape(57 * 57, 64)
        # every window with a digit, and some of the others, like the regions
        # that a network would propose
        keep = (truth.ravel() != BACKGROUND) | (random.random(57 * 57) < 0.15)
        X.append(views[keep])
        y.append(truth.ravel()[keep])
    return np.concatenate(X), np.concatenate(y)


X, y = windows(np.flatnonzero(np.arange(len(images)) % 4 != 0), pictures)
X_test, y_test = windows(
    np.flatnonzero(np.arange(len(images)) % 4 == 0), pictures // 2
)
print(f"{len(y)} windows, {np.mean(y == BACKGROUND):.1%} of them background")
detector = FalkonClassifier(
    Gaussian(1.5), n_centers=500, penalty=1e-6, random_state=0
)


def report(name, detectors, seconds):
    """Print the average precision on new pictures, a mean over classes."""
    scores = detectors.decision_function(X_test)
    parts = zip(detectors.classes, scores.T, strict=True)
    precision = np.mean(
        [
            average_precision_score(y_test == label, score)
            for label, score in parts
        ]
    )
    used = int(np.mean([len(rows) for rows in detectors.negatives]))
    print(
        f"{name}: {used} negatives a class, mean average precision "
        f"{precision:.3f}, {seconds:.1f} s"
    )


# %%
# The mini-bootstrap. Few of the negatives are hard for the model of the
# earlier batches.

start = time.perf_counter()
bootstrapped = mini_bootstrap(
    X, y, detector, background=BACKGROUND, n_batches=40, random_state=0
)
seconds = time.perf_counter() - start
later = [record for record in bootstrapped.history if record["round"] > 0]
hard, seen = (sum(record[key] for record in later) for key in ("hard", "seen"))
print(f"{hard} of {seen} negatives were hard ({hard / seen:.1%})")
report("mini-bootstrap", bootstrapped, seconds)

# %%
# The same number of negatives, drawn at random. They include windows of the
# other classes.
others = np.mean(
    [np.sum((y != BACKGROUND) & (y != label)) for label in CLASSES]
)
size = int(np.mean([len(rows) for rows in bootstrapped.negatives]) - others)
drawn = np.r_[
    np.flatnonzero(y != BACKGROUND),
    random.choice(np.flatnonzero(y == BACKGROUND), size, replace=False),
]
start = time.perf_counter()
some = mini_bootstrap(
    X[drawn],
    y[drawn],
    detector,
    background=BACKGROUND,
    n_batches=1,
    random_state=0,
)
report("random background", some, time.perf_counter() - start)

# %%
# All negatives. This gives the best detectors, and is the longest fit.

start = time.perf_counter()
everything = mini_bootstrap(
    X, y, detector, background=BACKGROUND, n_batches=1, random_state=0
)
report("all negatives", everything, time.perf_counter() - start)

# %%
# The hardest windows without a digit of the class "3", by the last model of
# the mini-bootstrap.

scores = bootstrapped.decision_function(X_test)[
    :, list(bootstrapped.classes).index(3)
]
hardest = np.flatnonzero(y_test != 3)[np.argsort(-scores[y_test != 3])[:8]]
figure, axes = plt.subplots(1, 8, figsize=(10, 1.7), layout="constrained")
for ax, at in zip(axes, hardest, strict=True):
    ax.imshow(X_test[at].reshape(8, 8), cmap="gray_r")
    ax.set_title(
        "background" if y_test[at] == BACKGROUND else f"a {y_test[at]}",
        fontsize=9,
    )
    ax.axis("off")
plt.show()
