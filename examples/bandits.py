"""Which settings to try next
==========================

Choose hyper-parameters by a kernel bandit, which decides after each batch of
trials which settings to try next.

A candidate is a setting of scikit-learn's SVC, and its reward is the accuracy
on one small random split, which is cheap to compute and noisy. BBKB proposes
batches of settings, which can be fitted in parallel.

Run it with ``python examples/bandits.py [rows]``.
"""

import sys
import time

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.svm import SVC

from gyrfalcon import BBKB
from gyrfalcon.kernels import Gaussian

plays = 60 if len(sys.argv) > 1 else 120
X, y = load_digits(return_X_y=True)
X_search, X_test, y_search, y_test = train_test_split(X, y, random_state=0)

# %%
# There are 900 settings. The features of a candidate are the logarithms of C
# and gamma.

grid = np.array(
    [(c, g) for c in np.linspace(-2, 3, 30) for g in np.linspace(-6, 1, 30)]
)
rng = np.random.default_rng(0)


def trial(setting):
    """Return the accuracy on a random split of 400 rows."""
    rows = rng.choice(len(X_search), 400, replace=False)
    model = SVC(C=10 ** setting[0], gamma=10 ** setting[1]).fit(
        X_search[rows[:300]], y_search[rows[:300]]
    )
    return model.score(X_search[rows[300:]], y_search[rows[300:]])


# %%
# In each round, the bandit proposes up to 20 settings, and is told their
# accuracies.

began = time.perf_counter()
bandit = BBKB(Gaussian(1.0), noise=0.05, exploration=0.2, random_state=0).fit(
    grid
)
sizes = []
while bandit.counts_.sum() < plays:
    arms = bandit.ask(n=20)
    bandit.tell(
        arms, [trial(grid[arm]) - 0.5 for arm in arms]
    )  # rewards around 0
    sizes.append(len(arms))
seconds = time.perf_counter() - began

# %%
# The best setting is then fitted to all rows that are not used for testing.

C, gamma = 10 ** grid[bandit.best_]
mean, std = bandit.posterior()
print(
    f"{sum(sizes)} trials of {len(grid)} settings in {len(sizes)} batches, "
    f"the last of {sizes[-1]}, {seconds:.1f} s"
)
print(
    f"best: C={C:.2g}, gamma={gamma:.2g}, expected accuracy "
    f"{mean[bandit.best_] + 0.5:.3f} +- {std[bandit.best_]:.3f}"
)
accuracy = SVC(C=C, gamma=gamma).fit(X_search, y_search).score(X_test, y_test)
print(
    f"accuracy on test rows, fitted to all others: {accuracy:.3f}; with C=1, "
    "gamma='scale': ",
    end="",
)
print(f"{SVC().fit(X_search, y_search).score(X_test, y_test):.3f}")

# %%
# The accuracies that the bandit expects, and the settings that it tried: most
# trials are near the best settings.

figure, panel = plt.subplots(figsize=(6, 4.3), layout="constrained")
shown = panel.contourf(
    np.linspace(-2, 3, 30),
    np.linspace(-6, 1, 30),
    mean.reshape(30, 30).T + 0.5,
    levels=15,
)
tried = bandit.counts_ > 0
panel.scatter(
    *grid[tried].T,
    s=12 * bandit.counts_[tried],
    facecolor="none",
    edgecolor="white",
    label="tried",
)
panel.plot(*grid[bandit.best_], "r*", markersize=14, label="best")
panel.set(xlabel="logarithm of C", ylabel="logarithm of gamma")
panel.legend()
figure.colorbar(shown, label="expected accuracy")
plt.show()
