"""One row of the papers' tables, run again with the published settings, beside the published number.

    python benchmarks/papers/published.py NAME --data DIR [--rows N] [--centers M] [--method FALKON] [--seed S]
    python benchmarks/papers/published.py --list

NAME is a data set of the papers (MillionSongs, TIMIT, YELP, SUSY, HIGGS, IMAGENET, TAXI, AIRLINE, AIRLINE-CLS, MSD,
MNIST, CIFAR-10, SVHN, InsuranceCompany, Adult, Ijcnn, YearPrediction, Covertype) and DIR a folder with its files, as
they are published, or with NAME.npz: arrays X, y and, where the set has a split, X_test, y_test. `--list` prints every
configuration: files, preparation, kernel, penalty, centers, and where they come from. Most of the published runs have
more centers than a small machine has memory for (8 M^2 bytes): `--centers` takes fewer, `--rows` fewer training rows,
and the output says so. Without `--method`, the methods of the papers' authors are run, and the published numbers of all
others are printed; `--method` runs one of either kind, the others with the settings of FALKON's row. Settings and
numbers are in _configurations.py and _rivals.py, files in _readers.py.
"""

from __future__ import annotations

import argparse
import time
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from _configurations import ROWS, SETS, DataSet, Row
from _data import ROOT, Data, Scale, rmse, split, standardise, table
from _readers import npz
from _rivals import OTHERS, RIVALS, Rival, rival_of
from sklearn.metrics import roc_auc_score

from gyrfalcon import FalkonClassifier, FalkonRegressor, NystromRegressor, NytroRegressor
from gyrfalcon.kernels import Gaussian, Kernel

MINUTES_OF_HHMM = (6, 7)  # columns DepTime and ArrTime of flights
AIR_TIME = 5
METHODS = sorted({row.method for row in ROWS} | {rival.method for rival in RIVALS} - OTHERS)
STATES = 3  # TIMIT: each phone has three states, which are what is learnt


def read(name: str, folder: Path, rows: int | None) -> dict[str, Any] | None:
    """The arrays of a data set, or None if its files are not in the folder."""
    candidates = (reader(folder, rows) for reader in (*SETS[name].readers, npz(name.lower()), npz(name)))
    return next((arrays for arrays in candidates if arrays is not None), None)


def flights(arrays: dict[str, Any], filtered: bool) -> dict[str, Any]:
    """Times of day in minutes; for the regression without early arrivals beyond an hour and flights beyond 700 min."""
    X, y = arrays["X"].copy(), arrays["y"]
    for column in MINUTES_OF_HHMM:
        X[:, column] = 60 * (X[:, column] // 100) + X[:, column] % 100
    keep = (y > -60) & (X[:, AIR_TIME] < 700) if filtered else slice(None)
    return {"X": X[keep], "y": y[keep]}


def prepare(name: str, arrays: dict[str, Any], rows: int | None, seed: int) -> tuple[Data, Scale]:
    """Split and scale as published; the scale of y is what predictions are multiplied with."""
    spec = SETS[name]
    if spec.features == "flights":
        arrays = flights(arrays, filtered=spec.targets.startswith("standardised"))
    n = len(arrays["y"])
    share = spec.test if spec.test < 1 else min(spec.test, n // 2) / n
    data = split(arrays, test=share, seed=seed, n_rows=rows)
    data = scale_features(data, spec.features)
    return scale_targets(data, spec.targets)


def scale_features(data: Data, rule: str) -> Data:
    X, X_test = data.X, data.X_test
    if rule in ("z-score", "flights"):
        return standardise(data)
    if rule == "by variance":  # the z-score divided by the deviation once more
        deviation = X.std(axis=0, dtype=np.float64).astype(X.dtype)
        z = standardise(data)
        return Data(z.X / deviation, data.y, z.X_test / deviation, data.y_test)
    if rule == "z-score of all pixels":
        mean, deviation = X.mean(dtype=np.float64), X.std(dtype=np.float64)
        X, X_test = ((part - np.float32(mean)) / np.float32(deviation) for part in (X, X_test))
    elif rule == "pixels / 255":
        X, X_test = X / np.float32(255), X_test / np.float32(255)
    elif rule == "range":  # [-1, 1] over training and test rows together
        X, X_test = (part.toarray() if hasattr(part, "toarray") else part for part in (X, X_test))
        low, high = np.minimum(X.min(axis=0), X_test.min(axis=0)), np.maximum(X.max(axis=0), X_test.max(axis=0))
        width = np.where(high > low, high - low, 1)
        X, X_test = (2 * (part - low) / width - 1 for part in (X, X_test))
    return Data(X, data.y, X_test, data.y_test)


def scale_targets(data: Data, rule: str) -> tuple[Data, Scale]:
    y, y_test, scale = data.y, data.y_test, Scale()
    if rule.startswith("standardised"):
        found = Scale(float(y.mean(dtype=np.float64)), float(y.std(dtype=np.float64)))
        y, y_test = found.to_units(y), found.to_units(y_test)
        scale = scale if rule.endswith("left so") else found
    elif rule == "in [0, 1]":
        low, high = min(y.min(), y_test.min()), max(y.max(), y_test.max())
        y, y_test = (y - low) / (high - low), (y_test - low) / (high - low)
    elif rule == "signs":
        one = y.max()
        y, y_test = (np.where(part == one, 1, -1).astype(np.float32) for part in (y, y_test))
    elif rule == "late or not":
        y, y_test = (part > 0 for part in (y, y_test))
    elif rule in ("classes", "states of phones"):
        y, y_test = (part.astype(np.int64) for part in (y, y_test))
    return Data(data.X, y, data.X_test, y_test), scale


def model_of(row: Row, M: int, classes: bool, seed: int) -> Any:
    """The method as its paper has it, with everything that a default could change."""
    shared: dict[str, Any] = {
        "kernel": row.kernel, "n_centers": M, "scale": False, "fit_intercept": False, "random_state": seed,
    }  # fmt: skip
    if row.method == "NKRLS":
        return NystromRegressor(penalty=row.penalty, **shared)
    if row.method == "NYTRO":
        # the decrease of one iteration that makes the authors' decrease over ten
        stop = {"max_iter": row.iterations, "min_decrease": row.threshold / 9, "validation_fraction": 0.2}
        return NytroRegressor(step="auto", **stop, **shared)
    if row.method == "LogFALKON":
        return FalkonClassifier(loss="logistic", penalty=row.penalty, **shared)
    estimator = FalkonClassifier if classes else FalkonRegressor
    return estimator(penalty=row.penalty, preconditioner="paper", max_iter=row.iterations, tol=0.0, **shared)


def measure(model: Any, data: Data, spec: DataSet, scale: Scale) -> dict[str, float]:
    """The metrics of a data set, in the units of the paper: errors of classes in percent."""
    if not hasattr(model, "decision_function"):
        found, y = scale.from_units(model.predict(data.X_test)), scale.from_units(data.y_test)
        error = rmse(found, y)
        every = {"RMSE": error, "MSE": error**2, "relative error": rmse(found / y, np.ones_like(y))}
        return {name: every[name] for name in spec.metrics}
    scores = model.decision_function(data.X_test)
    if spec.targets == "states of phones":
        # the test labels are phones, counted from 1, and a phone's score is the sum of its states'
        chosen = scores.reshape(len(scores), -1, STATES).sum(axis=2).argmax(axis=1) + 1
    else:
        chosen = model.classes_[scores.argmax(axis=1) if scores.ndim > 1 else (scores > 0).astype(int)]
    out = {"c-err": 100 * float(np.mean(chosen != data.y_test))}
    if "AUC" in spec.metrics:
        out["AUC"] = float(roc_auc_score(data.y_test, scores))
    return {name: out[name] for name in spec.metrics}


def settings_of(rival: Rival) -> Row:
    """The row whose kernel, penalty and centers a rival has: the first of the same paper and data set that fits."""
    methods = {"NYTRO (2016)": "NYTRO" if rival.method == "Early Stopping" else "NKRLS"}
    wanted = (rival.data, rival.paper, methods.get(rival.paper, "FALKON"))
    return next(row for row in ROWS if (row.data, row.paper, row.method) == wanted)


def run(row: Row, data: Data, scale: Scale, M: int | None, seed: int, rival: Rival | None = None) -> list[Any]:
    """One line of the table: published and measured, of a row of the authors or of a rival with its settings."""
    spec, centers = SETS[row.data], min(M or row.M, len(data.y))
    classes = spec.metrics[0] in ("c-err", "AUC")
    if rival is None:
        model = model_of(row, centers, classes, seed)
    else:
        model = rival_of(rival.method, row, centers, classes, seed)
        row = replace(row, method=rival.method, published=rival.published, time=rival.time)
    start = time.perf_counter()
    model.fit(data.X, data.y)
    seconds = time.perf_counter() - start
    found = measure(model, data, spec, scale)
    used = f"{centers:,}" + ("" if centers == row.M else "*")
    return [
        row.paper, row.method, words(row.kernel), f"{row.penalty:g}", used,
        numbers(row.published), numbers(found), row.time, f"{seconds:.1f} s",
    ]  # fmt: skip


def numbers(found: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.4g}{'%' if name == 'c-err' else ''}" for name, value in found.items()) or "-"


def words(kernel: Kernel) -> str:
    learnt = isinstance(kernel, Gaussian) and np.ndim(kernel.length_scale) > 0
    return "Gaussian, 28 learnt widths" if learnt else repr(kernel)


def show() -> None:
    rows = []
    for row in ROWS:
        spec, settings = SETS[row.data], [words(row.kernel), f"{row.penalty:g}", f"{row.M:,}"]
        prepared = [spec.features, spec.targets]
        published = numbers(row.published)
        rows.append([row.data, row.paper, row.method, *settings, *prepared, published, row.settings, spec.files])
    settings = ["data", "paper", "method", "kernel", "lambda", "M", "features", "targets"]
    table("The papers' configurations", [*settings, "published", "settings from", "files"], rows)
    show_rivals(RIVALS)


def show_rivals(rivals: list[Rival]) -> None:
    rows = []
    for rival in rivals:
        command = "another program" if rival.method in OTHERS else f'{rival.data} --method "{rival.method}"'
        rows.append([rival.data, rival.paper, rival.method, numbers(rival.published), rival.time, command])
    if rows:
        table("Other rows of the papers' tables", ["data", "paper", "method", "published", "time", "here"], rows)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", nargs="?", choices=list(SETS), metavar="NAME", help="data set")
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data", help="folder of the files")
    parser.add_argument("--rows", type=int, help="training rows, drawn at random; all of them if it is left out")
    parser.add_argument("--centers", type=int, help="centers in place of the published number")
    parser.add_argument("--method", choices=METHODS, help="this method alone")
    parser.add_argument("--seed", type=int, default=0, help="of the split and of the centers")
    parser.add_argument("--list", action="store_true", help="print the configurations")
    given = parser.parse_args(arguments)
    if given.list or given.name is None:
        show()
        return
    arrays = read(given.name, given.data, given.rows)
    if arrays is None:
        print(f"{given.name} was not run: {given.data} has no {SETS[given.name].files}")
        return
    warnings.filterwarnings("ignore", category=UserWarning)
    data, scale = prepare(given.name, arrays, given.rows, given.seed)
    chosen = [row for row in ROWS if row.data == given.name and given.method in (None, row.method)]
    rivals = [rival for rival in RIVALS if rival.data == given.name and given.method in (None, rival.method)]
    rows = [run(row, data, scale, given.centers, given.seed) for row in chosen]
    if given.method is not None:
        rows += [run(settings_of(rival), data, scale, given.centers, given.seed, rival) for rival in rivals]
    if not rows:
        print(f"the papers have no {given.method} on {given.name}")
        return
    header = ["paper", "method", "kernel", "lambda", "M", "published", "measured", "published time", "time here"]
    table(f"{given.name}: n = {len(data.y):,}, {len(data.y_test):,} test rows, d = {data.X.shape[1]:,}", header, rows)
    if given.method is None:
        show_rivals(rivals)
    if any("*" in line[4] for line in rows):
        print("\n* not the published number of centers")
    for note in sorted({row.note for row in chosen if row.note}):
        print(f"\n{note}")


if __name__ == "__main__":
    main()
