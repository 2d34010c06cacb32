"""What a person waits for at a keyboard or behind a request, printed by one command: python benchmarks/everyday.py

The start of a process, and predictions of one row and of a million, beside LightGBM if it is installed. `--only` runs
some of the sections.
"""

from __future__ import annotations

import argparse
import pickle
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from _common import best_of, table

from gyrfalcon import FalkonClassifier, FalkonRegressor, RandomFeaturesRegressor

CALLS = 200
ROWS, FEATURES, CENTERS = 20_000, 20, 2_000


def example(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of normal numbers and a smooth function of them."""
    X = np.random.default_rng(0).standard_normal((n, FEATURES))
    return X, np.sin(X[:, 0]) + X[:, 1] * X[:, 2]


def repeated(run: Callable[[], Any]) -> Callable[[], None]:
    def calls() -> None:
        for _ in range(CALLS):
            run()

    return calls


def one_row() -> None:
    """Milliseconds for one row, again and again, and what a model is stored in."""
    X, y = example(ROWS)
    settings: dict[str, Any] = {"n_centers": CENTERS, "penalty": 1e-5, "max_iter": 8, "tol": 0, "random_state": 0}
    regressor = FalkonRegressor(**settings).fit(X, y)
    classifier = FalkonClassifier(loss="logistic", **{**settings, "tol": None}).fit(X, y > 0)
    features = RandomFeaturesRegressor(n_components=CENTERS, penalty=1e-5, random_state=0).fit(X, y)
    row = X[:1]
    contenders: dict[str, Callable[[], Any]] = {
        "FalkonRegressor.predict": partial(regressor.predict, row),
        "FalkonClassifier.decision_function": partial(classifier.decision_function, row),
        "FalkonClassifier.predict_proba": partial(classifier.predict_proba, row),
        "RandomFeaturesRegressor.predict": partial(features.predict, row),
    }
    try:
        from lightgbm import LGBMRegressor
    except ImportError:
        print("LightGBM is not installed: it is left out")
    else:
        trees = LGBMRegressor(n_estimators=500, num_leaves=31, verbose=-1).fit(X, y)
        contenders["LightGBM, 500 trees"] = partial(trees.predict, row)
        contenders["LightGBM, 500 trees, one thread"] = partial(trees.predict, row, num_threads=1)
    best = best_of({name: repeated(run) for name, run in contenders.items()}, rounds=7)
    reference = best["FalkonRegressor.predict"]
    table(
        f"One row: M = {CENTERS:,}, d = {FEATURES}, float64",
        ["", "ms", "ratio to FalkonRegressor"],
        [[name, 1e3 * seconds / CALLS, seconds / reference] for name, seconds in best.items()],
    )
    print(f"\na pickle of the regressor takes {len(pickle.dumps(regressor)) / 1e6:.2f} MB after these predictions")


def many_rows() -> None:
    """Rows a second of large and middling batches."""
    X, y = example(ROWS)
    model = FalkonRegressor(n_centers=CENTERS, penalty=1e-5, max_iter=8, tol=0, random_state=0).fit(X, y)
    rows = []
    for n, calls in ((100, 50), (1_000, 20), (10_000, 5), (1_000_000, 1)):
        batch = np.random.default_rng(1).standard_normal((n, FEATURES))

        def run(batch: np.ndarray = batch, calls: int = calls) -> None:
            for _ in range(calls):
                model.predict(batch)

        seconds = best_of({"": run}, rounds=2 if n > 10_000 else 5)[""] / calls
        rows.append([f"{n:,}", 1e3 * seconds, n / seconds])
    table(f"Batches: M = {CENTERS:,}, d = {FEATURES}, float64", ["rows", "ms", "rows a second"], rows)


def start() -> None:
    """Seconds until a process can begin, beside Python itself and scikit-learn."""
    commands = {
        "python -c pass": ["-c", "pass"],
        "import gyrfalcon": ["-c", "import gyrfalcon"],
        "gyrfalcon --help": ["-m", "gyrfalcon", "--help"],
        "import sklearn.base": ["-c", "import sklearn.base"],
        "from gyrfalcon import FalkonRegressor": ["-c", "from gyrfalcon import FalkonRegressor"],
    }
    contenders = {
        name: partial(subprocess.run, [sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
        for name, arguments in commands.items()
    }
    best = best_of(contenders, rounds=5)
    rows = [[name, 1e3 * seconds, seconds / best["import sklearn.base"]] for name, seconds in best.items()]
    table("Start", ["", "ms", "of import sklearn.base"], rows)


SECTIONS: dict[str, Callable[[], None]] = {"start": start, "one_row": one_row, "many_rows": many_rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=list(SECTIONS), default=list(SECTIONS))
    for name in parser.parse_args().only:
        SECTIONS[name]()


if __name__ == "__main__":
    main()
