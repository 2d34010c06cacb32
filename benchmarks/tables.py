"""Real tables, default settings, beside boosted trees: python benchmarks/tables.py --data DIR

Every table of DIR/tables and DIR/tables_more, a random 80/20 split for each seed, at most 40,000 training rows, two
threads. Each contender gets the same training rows as a DataFrame with its types, and makes its own validation share of
them where it needs one. RMSE is in units of the target's standard deviation; for classes log-loss and AUC (one against
the rest).

One line of JSON for each cell is added to --results as it is done, and cells that are there already are not run again;
`--only report` prints the tables of what is there. Needs `pip install lightgbm catboost xrfm torch pyarrow pandas`; a
contender whose package is missing is named and left out. A peer that needs other versions can have an environment of
its own: run the script there with `--methods autogluon` and the same file of results.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from _common import table

Cell = dict[str, Any]
MOST_ROWS = 40_000
THREADS = 2


# ---- the tables ------------------------------------------------------------------------------------------------------


def tables_of(data: Path) -> dict[str, Path]:
    """Return the folder of each table."""
    files = [data / folder / "tables.json" for folder in ("tables", "tables_more")]
    return {name: file.parent for file in files if file.exists() for name in json.loads(file.read_text())}


def split(folder: Path, name: str, seed: int) -> tuple[Any, Any, Any, Any, str]:
    """Read a table: training rows and targets, test rows and targets, task."""
    import pandas as pd
    from sklearn.model_selection import train_test_split

    facts = json.loads((folder / "tables.json").read_text())[name]
    frame = pd.read_parquet(folder / f"{name}.parquet")
    y = frame.pop(facts["target"])
    classes = facts["task"] == "classification"
    y = y.astype(str).to_numpy() if classes else y.to_numpy(dtype=np.float64)
    train, test = train_test_split(np.arange(len(y)), test_size=0.2, random_state=seed, stratify=y if classes else None)
    train = train[:MOST_ROWS]
    return frame.iloc[train], y[train], frame.iloc[test], y[test], facts["task"]


def held_out(X: Any, y: Any, task: str, seed: int) -> tuple[Any, Any, Any, Any]:
    """A validation tenth, for contenders that do not make their own."""
    from sklearn.model_selection import train_test_split

    return train_test_split(X, y, test_size=0.1, random_state=seed, stratify=y if task == "classification" else None)


def as_codes(X: Any, like: Any) -> Any:
    """Categories and strings as pandas categories of the training rows, dates as days: what boosting takes."""
    import pandas as pd

    out = X.copy()
    for column in X:
        known = like[column]
        if isinstance(known.dtype, pd.CategoricalDtype) or known.dtype == object or pd.api.types.is_string_dtype(known):
            levels = pd.unique(known.dropna().astype(str))
            out[column] = pd.Categorical(X[column].astype(str).where(X[column].notna(), None), categories=levels)
        elif pd.api.types.is_datetime64_any_dtype(known):
            out[column] = (X[column] - known.min()).dt.total_seconds() / 86_400
        elif known.dtype == bool:
            out[column] = X[column].astype(int)
    return out


# ---- the contenders: a function of training rows, test rows, task and seed gives predictions or probabilities --------


def lightgbm(X: Any, y: Any, T: Any, task: str, seed: int) -> np.ndarray:
    from lightgbm import LGBMClassifier, LGBMRegressor, early_stopping

    X, T = as_codes(X, X), as_codes(T, X)
    kind = LGBMClassifier if task == "classification" else LGBMRegressor
    fit_X, val_X, fit_y, val_y = held_out(X, y, task, seed)
    model = kind(n_estimators=5000, learning_rate=0.05, n_jobs=THREADS, random_state=seed, verbose=-1)
    model.fit(fit_X, fit_y, eval_set=[(val_X, val_y)], callbacks=[early_stopping(100, verbose=False)])
    return predicted(model, T, task)


def hist_gradient_boosting(X: Any, y: Any, T: Any, task: str, seed: int) -> np.ndarray:
    import pandas as pd
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

    X, T = as_codes(X, X), as_codes(T, X)
    for column in X:  # at most 255 categories are allowed: of more, numbers in the order of first appearance
        if isinstance(X[column].dtype, pd.CategoricalDtype) and len(X[column].cat.categories) > 255:
            X[column], T[column] = X[column].cat.codes, T[column].cat.codes
    kind = HistGradientBoostingClassifier if task == "classification" else HistGradientBoostingRegressor
    model = kind(early_stopping=True, max_iter=5000, learning_rate=0.05, random_state=seed)
    return predicted(model.fit(X, y), T, task)


def catboost(X: Any, y: Any, T: Any, task: str, seed: int) -> np.ndarray:
    import pandas as pd
    from catboost import CatBoostClassifier, CatBoostRegressor

    X, T = as_codes(X, X), as_codes(T, X)
    named = [column for column in X if isinstance(X[column].dtype, pd.CategoricalDtype)]
    for column in named:
        for rows in (X, T):
            rows[column] = rows[column].astype(object).where(rows[column].notna(), "missing").astype(str)
    kind = CatBoostClassifier if task == "classification" else CatBoostRegressor
    model = kind(random_seed=seed, verbose=False, thread_count=THREADS, allow_writing_files=False)
    fit_X, val_X, fit_y, val_y = held_out(X, y, task, seed)
    model.fit(fit_X, fit_y, cat_features=named, eval_set=(val_X, val_y), use_best_model=True)
    return predicted(model, T, task)


def as_numbers(X: Any) -> Any:
    """One-hot categories and standardised numbers: what methods without types need."""
    import pandas as pd
    from sklearn.compose import make_column_selector, make_column_transformer
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    coded = as_codes(X, X)
    names = [column for column in coded if isinstance(coded[column].dtype, pd.CategoricalDtype)]
    return make_column_transformer(
        (OneHotEncoder(handle_unknown="ignore", sparse_output=False), names),
        (make_pipeline(SimpleImputer(), StandardScaler()), make_column_selector(dtype_include="number")),
    ).fit(coded)


def xrfm(X: Any, y: Any, T: Any, task: str, seed: int) -> np.ndarray:
    import torch
    from sklearn.preprocessing import LabelEncoder
    from xrfm import xRFM

    torch.set_num_threads(THREADS)
    codes = task == "classification"
    fit_X, val_X, fit_y, val_y = held_out(X, y, task, seed)
    columns = as_numbers(fit_X)
    arrays = [columns.transform(as_codes(rows, fit_X)).astype(np.float32) for rows in (fit_X, val_X, T)]
    width = sum(step[1].n_features_in_ for step in columns.transformers_ if step[0] == "pipeline")
    onehot = [len(levels) for levels in getattr(columns.transformers_[0][1], "categories_", [])]
    starts = np.cumsum([0, *onehot])
    info = None
    if onehot:
        info = {
            "numerical_indices": torch.arange(starts[-1], starts[-1] + width),
            "categorical_indices": [torch.arange(a, b) for a, b in itertools.pairwise(starts)],
            "categorical_vectors": [torch.eye(size) for size in onehot],
        }
    model = xRFM(
        device="cpu", random_state=seed, verbose=False, tuning_metric="logloss" if codes else "mse",
        n_threads=THREADS, categorical_info=info,
    )  # fmt: skip
    if codes:
        labels = LabelEncoder().fit(y)
        model.fit(arrays[0], labels.transform(fit_y), arrays[1], labels.transform(val_y))
        return np.asarray(model.predict_proba(arrays[2]), dtype=np.float64)
    mean, deviation = fit_y.mean(), fit_y.std()
    standard = [((part - mean) / deviation).astype(np.float32)[:, None] for part in (fit_y, val_y)]
    model.fit(arrays[0], standard[0], arrays[1], standard[1])
    return np.asarray(model.predict(arrays[2]), dtype=np.float64).ravel() * deviation + mean


def nystroem(X: Any, y: Any, T: Any, task: str, seed: int) -> np.ndarray:
    from sklearn.kernel_approximation import Nystroem
    from sklearn.linear_model import LogisticRegression, RidgeCV
    from sklearn.pipeline import make_pipeline

    columns = as_numbers(X)
    linear = LogisticRegression() if task == "classification" else RidgeCV(np.logspace(-6, 3, 10))
    model = make_pipeline(Nystroem(n_components=1000, random_state=seed), linear)
    model.fit(columns.transform(as_codes(X, X)), y)
    return predicted(model, columns.transform(as_codes(T, X)), task)


def gyrfalcon(X: Any, y: Any, T: Any, task: str, seed: int, **parameters: Any) -> np.ndarray:
    from gyrfalcon import AutoClassifier, AutoRegressor

    kind = AutoClassifier if task == "classification" else AutoRegressor
    return predicted(kind(random_state=seed, n_jobs=THREADS, **parameters).fit(X, y), T, task)


def gyrfalcon_kernels(X: Any, y: Any, T: Any, task: str, seed: int) -> np.ndarray:
    return gyrfalcon(X, y, T, task, seed, families=("kernel",))


def autogluon(X: Any, y: Any, T: Any, task: str, seed: int) -> np.ndarray:
    """AutoGluon's default preset, with the seconds that AutoRegressor has by default."""
    import tempfile

    from autogluon.tabular import TabularPredictor

    label = "the target"
    kind = "regression" if task == "regression" else ("binary" if len(np.unique(y)) == 2 else "multiclass")
    metric = "root_mean_squared_error" if task == "regression" else "log_loss"
    with tempfile.TemporaryDirectory() as folder:
        model = TabularPredictor(label, kind, metric, path=folder, verbosity=0)
        model.fit(X.assign(**{label: y}), time_limit=60, presets="medium_quality", num_cpus=THREADS, num_gpus=0)
        if task == "regression":
            return model.predict(T).to_numpy(dtype=np.float64)
        found = model.predict_proba(T)
        return found[sorted(found.columns, key=str)].to_numpy(dtype=np.float64)


def gyrfalcon_10s(X: Any, y: Any, T: Any, task: str, seed: int) -> np.ndarray:
    return gyrfalcon(X, y, T, task, seed, time_budget=10)


def predicted(model: Any, T: Any, task: str) -> np.ndarray:
    if task == "regression":
        return np.asarray(model.predict(T), dtype=np.float64)
    order = np.argsort(np.asarray(model.classes_).astype(str))  # CatBoost has "10" after "9"
    return np.asarray(model.predict_proba(T), dtype=np.float64)[:, order]


CONTENDERS: dict[str, Callable[..., np.ndarray]] = {
    "gyrfalcon": gyrfalcon,
    "gyrfalcon_10s": gyrfalcon_10s,
    "gyrfalcon_kernels": gyrfalcon_kernels,
    "autogluon": autogluon,
    "lightgbm": lightgbm,
    "hist_gradient_boosting": hist_gradient_boosting,
    "catboost": catboost,
    "xrfm": xrfm,
    "nystroem": nystroem,
}
PACKAGES = {"autogluon": "autogluon", "lightgbm": "lightgbm", "catboost": "catboost", "xrfm": "xrfm"}


# ---- one cell, in a process of its own -------------------------------------------------------------------------------


def run_cell(folder: Path, name: str, seed: int, method: str) -> Cell:
    from sklearn.metrics import log_loss, roc_auc_score

    X, y, T, truth, task = split(folder, name, seed)
    warnings.simplefilter("ignore")
    start, cpu = time.perf_counter(), time.process_time()
    out = CONTENDERS[method](X, y, T, task, seed)
    cell: Cell = {"table": name, "seed": seed, "method": method, "task": task, "rows": len(y)}
    cell.update(seconds=time.perf_counter() - start, cpu_seconds=time.process_time() - cpu)
    if task == "regression":
        cell["rmse"] = float(np.sqrt(np.mean((out - truth) ** 2)) / y.std())
        return cell
    classes = np.unique(y)
    cell["log_loss"] = float(log_loss(truth, out, labels=classes))
    scores = out[:, 1] if len(classes) == 2 else out / out.sum(axis=1, keepdims=True)
    cell["auc"] = float(roc_auc_score(truth, scores, multi_class="ovr", labels=classes))
    return cell


def run_all(options: argparse.Namespace, names: Sequence[str]) -> None:
    done = {(cell["table"], cell["seed"], cell["method"]) for cell in read(options.results)}
    environment = {**os.environ, **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(THREADS))}
    for seed in range(options.seeds):
        for method in options.methods:
            for name in names:
                if (name, seed, method) in done:
                    continue
                cell = [sys.executable, __file__, "--data", options.data, "--cell", name, str(seed), method]
                ran = subprocess.run(cell, capture_output=True, text=True, env=environment, check=False)
                if ran.returncode:
                    print(f"{name} {seed} {method} failed: {ran.stderr[-2000:]}", flush=True)
                    continue
                line = ran.stdout.strip().splitlines()[-1]
                with options.results.open("a") as file:
                    file.write(line + "\n")
                print(line, flush=True)


def read(path: Path) -> list[Cell]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


# ---- the report ------------------------------------------------------------------------------------------------------


def report(cells: Sequence[Cell], names: Sequence[str], methods: Sequence[str]) -> None:
    tasks = {cell["table"]: cell["task"] for cell in cells}
    for task, measure in (("regression", "rmse"), ("classification", "log_loss"), ("classification", "auc")):
        there = [name for name in names if tasks.get(name) == task]
        if not there:
            continue
        means = {(name, method): mean(cells, name, method, measure) for name in there for method in methods}
        rows = [[name, *(means[name, method] for method in methods)] for name in there]
        table(f"{task}: {measure}, mean over seeds", ["table", *methods], rows)
        for ours in (method for method in methods if method.startswith("gyrfalcon")):
            compare(means, there, methods, ours, measure)
    rows = [[name, *(mean(cells, name, method, "seconds") for method in methods)] for name in names if name in tasks]
    table("seconds, mean over seeds", ["table", *methods], rows)
    for ours, peer in itertools.permutations(methods, 2):
        if ours.startswith("gyrfalcon") and not peer.startswith("gyrfalcon"):
            rows = [
                [name, a, b, f"{ratio:.3f}", f"{spread:.3f}", splits]
                for name, a, b, ratio, spread, splits in over_splits(cells, names, ours, peer)
            ]
            table(f"{ours} beside {peer}", ["table", ours, peer, "ratio", "+-", "splits"], rows)


def compare(means: dict[Any, float], names: Sequence[str], methods: Sequence[str], ours: str, measure: str) -> None:
    rows = []
    for peer in methods:
        pairs = [(means[name, ours], means[name, peer]) for name in names]
        if measure == "auc":
            pairs = [(1 - a, 1 - b) for a, b in pairs]
        both = [(a / b, name) for (a, b), name in zip(pairs, names, strict=True) if np.isfinite(a) and np.isfinite(b)]
        if peer != ours and both:
            geometric = float(np.exp(np.mean(np.log([ratio for ratio, _ in both]))))
            worst = max(both)
            better = sum(ratio < 1 for ratio, _ in both)
            rows.append([peer, f"{better} of {len(both)}", geometric, f"{worst[0]:.3f} ({worst[1]})"])
    of = "1 - auc" if measure == "auc" else measure
    table(f"{ours} beside each: {of}", ["peer", "better on", "geometric mean of ratios", "worst ratio"], rows)


def over_splits(cells: Sequence[Cell], names: Sequence[str], ours: str, peer: str) -> list[list[Any]]:
    """Errors of two methods, means over the splits, and the ratio of each split: its mean and standard deviation."""
    error = {
        (cell["table"], cell["seed"], cell["method"]): cell.get("rmse", cell.get("log_loss"))
        for cell in cells
        if cell["method"] in (ours, peer)
    }
    rows = []
    for name in names:
        seeds = sorted(seed for table, seed, method in error if (table, method) == (name, ours))
        pairs = [(error[name, seed, ours], error[name, seed, peer]) for seed in seeds if (name, seed, peer) in error]
        if pairs:
            ratios = [a / b for a, b in pairs]
            spread = float(np.std(ratios, ddof=1)) if len(ratios) > 1 else float("nan")
            means = [float(np.mean(column)) for column in zip(*pairs, strict=True)]
            rows.append([name, *(f"{value:.4g}" for value in means), float(np.mean(ratios)), spread, len(pairs)])
    return sorted(rows, key=lambda row: row[3])


def mean(cells: Sequence[Cell], name: str, method: str, measure: str) -> float:
    values = [cell[measure] for cell in cells if cell["table"] == name and cell["method"] == method]
    return float(np.mean(values)) if values else float("nan")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default=str(Path(__file__).resolve().parents[2] / "shared" / "data"))
    parser.add_argument("--results", type=Path, default=Path("tables_results.jsonl"))
    parser.add_argument("--tables", nargs="*", help="names; all by default")
    parser.add_argument("--methods", nargs="*", default=list(CONTENDERS), choices=list(CONTENDERS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", choices=["report"])
    parser.add_argument("--cell", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    folders = tables_of(Path(options.data))
    if not folders:
        sys.exit(f"{Path(options.data) / 'tables' / 'tables.json'} is missing: give the folder with --data DIR")
    if options.cell:
        name, seed, method = options.cell
        print(json.dumps(run_cell(folders[name], name, int(seed), method)))
        return
    names = options.tables or list(folders)
    for method in [method for method in options.methods if find_spec(PACKAGES.get(method, "numpy")) is None]:
        print(f"{method} is left out: its package is not installed")
        options.methods.remove(method)
    if options.only is None:
        run_all(options, names)
    cells = read(options.results)
    report(cells, names, [method for method in options.methods if any(cell["method"] == method for cell in cells)])


if __name__ == "__main__":
    main()
