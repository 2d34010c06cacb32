"""Random cases, each made from a seed and its number alone: a fit, a model file, a checkpoint or a data file.

A case runs what a user would run, and ends in one of three ways: it returns, it raises one of the errors that its kind
may end with, or it is a finding. `Finding` is raised by a case itself for results that are wrong.
"""

from __future__ import annotations

import json
import os
import shutil
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from numpy.random import Generator

import gyrfalcon
from gyrfalcon import kernels

from . import forged
from .damage import INTERNAL, Finding, altered, damaged, one, said, say


@dataclass(frozen=True)
class Kind:
    """A kind of case: how one is run in a folder of its own, and which errors it may end with."""

    run: Callable[[Generator, Path], None]
    errors: tuple[type[Exception], ...]


# ---- fits ------------------------------------------------------------------------------------------------------------

SCALES = [1.0] * 8 + [1e-3, 1e3, 1e-30, 1e30, 1e-100, 1e100, 1e-155, 1e155, 1e-300, 1e300, 0.0]
EVERYWHERE = {"scale": [True, False], "dtype": ["auto", "float32", "float64"], "n_jobs": [None, 1, 2]}
ENDING = {"early_stopping": [True, False], "n_iter_no_change": [1, 5], "validation_fraction": [0.1, 0.5]}
CENTERS = {
    "n_centers": [None, 1, 2, 5, 30, 1000],
    "centers": ["uniform", "leverage", "bless", "rpcholesky", "kmeans++", "dpp"],
}
PENALTY = {"penalty": [1e-6, 1e-12, 1e-2, 1.0, 1e6, 1e-300, 1e300]}
STEPS = {"step": [None, 1.0, 1e-3, 1e9], "batch_size": [1, 7, 256], "max_iter": [0, 1, 10, 50]}
FALKON = {
    **CENTERS,
    **PENALTY,
    **ENDING,
    "preconditioner": ["auto", "falkon", "krill"],
    "max_iter": [0, 1, 2, 20],
    "tol": [None, 0.0, 1e-3, 1e-12],
}
FEATURES = {
    **PENALTY,
    **ENDING,
    "n_components": [1, 2, 50],
    "orthogonal": [True, False],
    "solver": ["direct", "sgd", "bcd"],
    "step": ["auto", 1.0, 1e9],
    "power_t": [0.0, 0.5, 1.0],
    "average": [False, True],
    "batch_size": [None, 1, 7],
    "max_iter": [1, 5],
}
DRAWN = {"n_components": [1, 2, 50]}
EIGENPRO = {
    **ENDING,
    "n_subsamples": [None, 1, 5, 1000],
    "n_components": [None, 0, 1, 3, 50],
    "batch_size": [None, 1, 7],
    "step": ["auto", 1.0],
    "max_iter": [0, 1, 5],
}
CERTAIN = {"uncertainty": [False, True]}
TREES = {
    **PENALTY,
    "leaf_size": [None, 1, 2, 7, 1000],
    "rank": [None, 1, 5, 1000],
    "n_trees": [1, 3],
    "split": ["principal", "random"],
    "choose_by": [None, "validation", "loo", "evidence"],
}
ESTIMATORS: dict[str, dict[str, Any]] = {
    "FalkonRegressor": {
        **FALKON,
        **CERTAIN,
        "loss": ["squared"] * 3 + ["huber", "quantile", "poisson", "squared_epsilon_insensitive"],
    },
    "FalkonClassifier": {
        **FALKON,
        "loss": ["squared", "logistic", "squared_hinge", "hinge"],
        "class_weight": [None, "balanced"],
    },
    "NystromRegressor": {**CENTERS, **PENALTY, **STEPS, **CERTAIN, "solver": ["direct", "gd", "sgd", "cg", "bcd"]},
    "ExactRegressor": {
        **PENALTY,
        **ENDING,
        **CERTAIN,
        "max_iter": [1, 20],
        "method": ["ridge", "pcg", "gd", "landweber", "nu"],
    },
    "ExactClassifier": {**PENALTY, "max_iter": [1, 20], "cv": [2, 5], "class_weight": [None, "balanced"]},
    "HierarchicalRegressor": {**TREES, **CERTAIN, "n_neighbors": [0, 0, 1, 7]},
    "HierarchicalClassifier": {**TREES, "class_weight": [None, "balanced"]},
    "NytroRegressor": {**CENTERS, **ENDING, **STEPS, "solver": ["gd", "sgd"]},
    "DivideAndConquerRegressor": {**PENALTY, "n_partitions": [None, 1, 2, 7]},
    "DivideAndConquerClassifier": {**PENALTY, "n_partitions": [None, 1, 2, 7], "class_weight": [None, "balanced"]},
    "SketchedRegressor": {**PENALTY, "sketch_size": [1, 5, 1000], "sketch": ["gaussian", "orthogonal"]},
    "SvrgRegressor": {**PENALTY, **DRAWN, "sketch_size": [1, 5, 1000], "batch_size": [None, 1, 7], "max_iter": [1, 5]},
    "AdmmRegressor": {**PENALTY, **DRAWN, "n_partitions": [None, 1, 2], "rho": [1.0, 1e-6, 1e6], "max_iter": [1, 5]},
    "DoublyStochasticRegressor": {**PENALTY, **DRAWN, "batch_size": [None, 1, 7], "block_size": [None, 1, 9]},
    "FeatureSelectionRegressor": {**PENALTY, **DRAWN, "n_rounds": [1, 2, 6]},
    "EnsembleRegressor": {**PENALTY, **DRAWN, "n_estimators": [1, 3]},
    "FeatureSelectionClassifier": {**PENALTY, **DRAWN, "n_rounds": [1, 2, 6], "class_weight": [None, "balanced"]},
    "EnsembleClassifier": {**PENALTY, **DRAWN, "n_estimators": [1, 3], "class_weight": [None, "balanced"]},
    "PegasosClassifier": {
        **CENTERS,
        "penalty": [1e-3, 1.0, 1e-300],
        "projection": [True, False],
        "average": [False, True],
        "batch_size": [1, 7, 32],
        "max_iter": [1, 5],
        "class_weight": [None, "balanced"],
    },
    "EigenProRegressor": EIGENPRO,
    "EigenProClassifier": EIGENPRO,
    "RandomFeaturesRegressor": FEATURES,
    "RandomFeaturesClassifier": {**FEATURES, "class_weight": [None, "balanced"]},
    "KernelPCA": {
        **CENTERS,
        "n_components": [None, 1, 2, 5, 0.5, 0.99],
        "solver": ["auto", "direct", "iterative"],
        "fit_inverse_transform": [True, False],
    },
    "KernelKMeans": {**CENTERS, "n_clusters": [1, 2, 5, 30], "init": ["k-means++", "random"], "n_init": [1, 3]},
    "NoveltyDetector": {**CENTERS, **PENALTY, "contamination": [0.01, 0.1, 0.5]},
}
UNLABELLED = ("KernelPCA", "KernelKMeans", "NoveltyDetector")
WITHOUT_WEIGHTS = ("EigenProRegressor", "EigenProClassifier", "KernelPCA", "NoveltyDetector")
KERNELS: list[Callable[[], Any]] = [
    lambda: "gaussian",
    lambda: kernels.Gaussian(1.0),
    lambda: kernels.Gaussian(1e-200),
    lambda: kernels.Gaussian(1e200),
    lambda: kernels.Laplacian(),
    lambda: kernels.Laplacian(norm=1),
    lambda: kernels.Matern(nu=0.5),
    lambda: kernels.Matern(2.0, nu=2.5),
    lambda: kernels.RationalQuadratic(1.0, alpha=0.3),
    lambda: kernels.Linear(),
    lambda: kernels.Polynomial(degree=3),
    lambda: kernels.Polynomial(degree=7, gamma=1.0, coef0=0.0),
    lambda: kernels.Sigmoid(),
    lambda: kernels.ArcCosine(0),
    lambda: kernels.ArcCosine(1),
    lambda: kernels.Constant(0.0) + kernels.Linear(),
    lambda: kernels.Gaussian(2.0) + kernels.Linear(),
    lambda: kernels.Gaussian(2.0) * kernels.Polynomial(2),
    lambda: kernels.RandomLayer("tanh"),
    lambda: kernels.RandomLayer("relu", 1.0, 0.0),
    lambda: kernels.CallableKernel(dot),
]


def dot(A: Any, B: Any) -> Any:
    return A @ B.T


def rows(rng: Generator) -> Any:
    """X of some shape, type and size, and possibly of one value or with rows that are the same."""
    n, d = one(rng, [1, 2, 3, 5, 10, 40, 150]), one(rng, [1, 1, 2, 5, 20])
    X = rng.standard_normal((n, d))
    shape = one(rng, ["plain"] * 6 + ["constant", "zero", "twice", "few", "outlier", "fortran", "strided"])
    if shape == "constant":
        X[:] = X[0]
    elif shape == "zero":
        X[:] = 0
    elif shape == "twice":
        X[n // 2 :] = X[: n - n // 2]
    elif shape == "few":
        X = np.round(X)
    elif shape == "outlier":
        X[0] *= 1e12
    elif shape == "fortran":
        X = np.asfortranarray(X)
    elif shape == "strided":
        X = np.repeat(X, 2, axis=0)[::2]
    with np.errstate(all="ignore"):
        X = (X * one(rng, SCALES)).astype(one(rng, ["f8"] * 5 + ["f4", "f4", "f2", "i4", "u1", "?"]))
    if rng.random() < 0.05 and X.dtype.kind == "f":
        X[rng.integers(n), rng.integers(d)] = one(rng, [np.nan, np.inf, -np.inf])
    if rng.random() < 0.15 and X.dtype in (np.float32, np.float64):
        return scipy.sparse.csr_array(X * (rng.random(X.shape) < 0.5) if np.isfinite(X).all() else X)
    return X


def targets(rng: Generator, X: Any, classifier: bool) -> Any:
    n = X.shape[0]
    if classifier:
        labels = one(rng, [np.array(["no", "yes", "maybe"]), np.arange(3), np.array([True, False]), np.array([7.0])])
        return labels[rng.integers(len(labels), size=n)]
    y = rng.standard_normal((n, 3) if rng.random() < 0.15 else n)
    y = one(rng, [lambda y: y, np.abs, np.zeros_like, np.round, lambda y: rng.poisson(3, y.shape)])(y)
    with np.errstate(all="ignore"):
        y = (y * one(rng, SCALES)).astype(one(rng, ["f8", "f8", "f4", "i8"]))
    if rng.random() < 0.03 and y.dtype.kind == "f":
        y[0] = np.nan
    return y


def weights(rng: Generator, n: int) -> Any:
    if rng.random() < 0.75:
        return None
    w = one(rng, [np.ones(n), rng.random(n), rng.random(n).round(), np.zeros(n), np.full(n, 1e-300), np.full(n, 1e300)])
    if rng.random() < 0.1:
        w[-1] = one(rng, [np.nan, -1.0, np.inf])
    return w


def fit(rng: Generator, folder: Path) -> None:
    """Fit any estimator to anything, and predict."""
    name = one(rng, list(ESTIMATORS))
    options = {**EVERYWHERE, **ESTIMATORS[name]}
    if name == "NoveltyDetector":
        del options["dtype"]
    chosen = {key: one(rng, values) for key, values in options.items() if rng.random() < 0.5}
    if rng.random() < 0.03 and chosen:
        chosen[one(rng, sorted(chosen))] = one(rng, [-1, "nonsense", None, np.nan, [], 1e9])
    kernel = one(rng, KERNELS)()
    X = rows(rng)
    y = targets(rng, X, name.endswith("Classifier"))
    w = None if name in WITHOUT_WEIGHTS else weights(rng, X.shape[0])
    words = ", ".join(f"{key}={value!r}" for key, value in chosen.items())
    w_words = "" if w is None else f", sample_weight=[{w.min():g}..{w.max():g}]"
    say(f"{name}({kernel!r}, random_state=0, {words}).fit(X {X.dtype} {X.shape}, y {y.dtype} {y.shape}{w_words})")
    room = gyrfalcon if hasattr(gyrfalcon, name) else gyrfalcon.baselines
    model = getattr(room, name)(kernel=kernel, random_state=0, **chosen)
    model.fit(X, y, **({} if w is None else {"sample_weight": w}))
    values = X.data if scipy.sparse.issparse(X) else X
    if not np.isfinite(values).all():
        raise Finding("fitted to features that are not finite")
    if name not in UNLABELLED and y.dtype.kind == "f" and not np.isfinite(y).all():
        raise Finding("fitted to targets that are not finite")
    predicted = np.asarray(answers(model, X))
    if len(predicted) != X.shape[0]:
        raise Finding(f"{len(predicted)} predictions for {X.shape[0]} rows")
    if predicted.dtype.kind == "f" and np.isnan(predicted).any():
        raise Finding("predictions are NaN")
    if chosen.get("uncertainty") is True:
        std = model.predict(X, return_std=True)[1]
        if np.isnan(std).any() or (std < 0).any():
            raise Finding("deviations are NaN or negative")
        if np.isnan(model.predict_interval(X, 0.5)).any():
            raise Finding("intervals are NaN")
        if hasattr(model, "sample_y") and np.isnan(model.sample_y(X)).any():
            raise Finding("samples are NaN")


def answers(model: Any, X: Any) -> Any:
    return model.transform(X) if isinstance(model, gyrfalcon.KernelPCA) else model.predict(X)


# ---- diverse rows, and bandits ---------------------------------------------------------------------------------------

SIZES = {
    "size": [None, None, 1, 2, 5, 1000],
    "expected_size": [None, None, 1e-3, 0.5, 2, 5.5, 1e6],
    "n_centers": [None, 1, 2, 10, 1000],
    "n_jobs": [None, 1, 2],
}
BANDITS = {
    "noise": [0.1, 1e-3, 10.0, 1e-150, 1e150],
    "norm": [1.0, 1e-6, 1e6],
    "delta": [0.5, 1.0, 1e-300],
    "exploration": [1.0, 0.1, 1e-9, 1e9],
    "oversampling": [5.0, 1e-3, 1e9],
    "n_jobs": [None, 1, 2],
}


def some_of(rng: Generator, options: dict[str, Any]) -> dict[str, Any]:
    chosen = {key: one(rng, values) for key, values in options.items() if rng.random() < 0.5}
    if rng.random() < 0.03 and chosen:
        chosen[one(rng, sorted(chosen))] = one(rng, [-1, "nonsense", None, np.nan, [], 1e9])
    return chosen


def sample(rng: Generator, folder: Path) -> None:
    """Draw from a determinantal point process on anything."""
    chosen, kernel, X = some_of(rng, SIZES), one(rng, KERNELS)(), rows(rng)
    say(f"DPP({kernel!r}, random_state=0, {chosen}).fit(X {X.dtype} {X.shape}).sample(3)")
    drawn = gyrfalcon.DPP(kernel, random_state=0, **chosen).fit(X).sample(3)
    if not np.isfinite(X.data if scipy.sparse.issparse(X) else X).all():
        raise Finding("fitted to features that are not finite")
    for items in drawn:
        if len(items) and not (items[0] >= 0 and items[-1] < X.shape[0] and (np.diff(items) > 0).all()):
            raise Finding(f"{items} are no distinct rows of {X.shape[0]}")
        if chosen.get("size") is not None and len(items) != chosen["size"]:
            raise Finding(f"{len(items)} rows in the place of {chosen['size']}")


def play(rng: Generator, folder: Path) -> None:
    """Play some rounds of a bandit, with rewards of any size; then go on from a file."""
    name = one(rng, ["BKB", "BBKB"])
    options = {**BANDITS, "threshold": [2.0, 1.0001, 1e9]} if name == "BBKB" else BANDITS
    chosen, kernel, X = some_of(rng, options), one(rng, KERNELS)(), rows(rng)
    size, most = one(rng, SCALES), one(rng, [None, 1, 3, 20])
    say(f"{name}({kernel!r}, random_state=0, {chosen}).fit(X {X.dtype} {X.shape}), ask({most}), rewards of {size:g}")
    bandit = getattr(gyrfalcon, name)(kernel, random_state=0, **chosen).fit(X)
    for _ in range(4):
        arms = bandit.ask(most)
        if not len(arms) or arms.min() < 0 or arms.max() >= X.shape[0]:
            raise Finding(f"{arms} are no arms of {X.shape[0]}")
        bandit.tell(arms, size * rng.standard_normal(len(arms)))
    mean, std = bandit.posterior()
    if np.isnan(mean).any() or np.isnan(std).any() or (std < 0).any():
        raise Finding("means or deviations are NaN, or negative")
    if isinstance(kernel, kernels.CallableKernel):
        return
    bandit.save(folder / "bandit.gyr")
    if (gyrfalcon.load(folder / "bandit.gyr").ask(most) != bandit.ask(most)).any():
        raise Finding("a bandit from a file asks for other arms")


# ---- data files ------------------------------------------------------------------------------------------------------

ROWS = np.random.default_rng(1).standard_normal((300, 3))
LABELS = np.array(["no", "yes", "maybe"])[np.arange(300) % 3]


def _table() -> Any:
    import pyarrow as pa

    columns = {name: ROWS[:, j] for j, name in enumerate("abc")}
    return pa.table({**columns, "y": LABELS, "z": pa.array(LABELS).dictionary_encode(), "i": np.arange(300)})


def _parquet(path: Path, rng: Generator) -> None:
    from pyarrow import parquet

    options = {"compression": one(rng, ["none", "snappy", "zstd"]), "use_dictionary": bool(rng.random() < 0.5)}
    parquet.write_table(_table(), path, row_group_size=100, **options)


def _feather(path: Path, rng: Generator) -> None:
    from pyarrow import feather

    feather.write_feather(_table(), path, compression=one(rng, ["uncompressed", "lz4", "zstd"]), chunksize=150)


def _stream(path: Path, rng: Generator) -> None:
    import pyarrow as pa
    from pyarrow import ipc

    table = _table()
    with pa.OSFile(str(path), "wb") as file, ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=150)


def _csv(path: Path, rng: Generator) -> None:
    import pyarrow as pa
    from pyarrow import csv

    out = pa.CompressedOutputStream(str(path), "gzip") if path.suffix == ".gz" else pa.OSFile(str(path), "wb")
    with out as file:
        table = _table()
        csv.write_csv(table.set_column(4, "z", table["z"].cast("string")), file)


def _hdf5(path: Path, rng: Generator) -> None:
    import h5py

    with h5py.File(path, "w", libver=one(rng, ["earliest", "latest"])) as file:
        options = one(rng, [{}, {"chunks": (50, 3)}, {"chunks": (50, 3), "compression": "gzip", "shuffle": True}])
        file.create_dataset("X", data=ROWS, **options)
        file["y"], file["words"], file["fixed"] = ROWS[:, 0], LABELS.astype(object), LABELS.astype("S5")


def _zarr(path: Path, rng: Generator) -> None:
    import zarr

    group = zarr.open_group(str(path), mode="w", zarr_format=one(rng, [2, 3]))
    group.create_array("X", shape=ROWS.shape, chunks=(50, 3), dtype="f8")[:] = ROWS
    group["y"] = ROWS[:, 0]


def _npy(path: Path, rng: Generator) -> None:
    np.save(path, np.asfortranarray(ROWS) if rng.random() < 0.5 else ROWS)


TABLE = [{"features": ["a", "b", "c"], "target": target} for target in ("y", "z", "i")]
FILES: dict[str, tuple[Callable[[Path, Generator], None], list[dict[str, Any]]]] = {
    "rows.parquet": (_parquet, TABLE),
    "rows.feather": (_feather, TABLE),
    "rows.arrow": (_stream, TABLE),
    "rows.csv": (_csv, TABLE),
    "rows.csv.gz": (_csv, TABLE),
    "rows.h5": (_hdf5, [{"features": "X", "target": target} for target in ("y", "words", "fixed")]),
    "rows.zarr": (_zarr, [{"features": "X", "target": "y"}]),
    "rows.npy": (_npy, [{"target": 1}, {"features": [0, 2]}]),
}


def file(rng: Generator, folder: Path) -> None:
    """Read all of a damaged file."""
    name = one(rng, list(FILES))
    write, options = FILES[name]
    chosen = one(rng, options)
    path = folder / name
    write(path, rng)
    inside = sorted(found for found in path.rglob("*") if found.is_file()) if path.is_dir() else [path]
    for victim in {one(rng, inside) for _ in range(2)} if rng.random() < 0.9 else inside:
        if victim.suffix in (".json", ".zarray") and rng.random() < 0.7:
            victim.write_text(json.dumps(altered(rng, json.loads(victim.read_text()))))
        else:
            victim.write_bytes(damaged(rng, victim.read_bytes()))
    say(f"gyrfalcon.open({name!r}, **{chosen})")
    try:
        data = gyrfalcon.open(path, **chosen)
        read = sum(len(block) for block in data.X.blocks(64))
        if read != data.n_rows:
            raise Finding(f"{read} rows where there should be {data.n_rows}")
        data.X.take(np.array([data.n_rows - 1, 0]))
        if data.y is not None and len(data.y) != data.n_rows:
            raise Finding(f"{len(data.y)} targets for {data.n_rows} rows")
    except (ValueError, OSError, MemoryError) as error:
        if name not in str(error):
            raise Finding(f"the error does not name the file: {type(error).__name__}: {error}") from error


KINDS = {
    "fit": Kind(fit, (ValueError, TypeError, MemoryError, FloatingPointError)),
    "model": Kind(forged.model, ()),
    "checkpoint": Kind(forged.checkpoint, ()),
    "search": Kind(forged.search, ()),
    "file": Kind(file, ()),
    # proposals that are never accepted end with a RuntimeError that says so
    "sample": Kind(sample, (ValueError, TypeError, MemoryError, FloatingPointError, RuntimeError)),
    "play": Kind(play, (ValueError, TypeError, MemoryError, FloatingPointError)),
}


def run(kind: str, seed: int, number: int, folder: Path, most_warnings: int = 5) -> str | None:
    """Run a case in an empty folder; what is wrong, if something is."""
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    said.clear()
    rng = np.random.default_rng([seed, sorted(KINDS).index(kind), number])
    found = None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            KINDS[kind].run(rng, folder)
        except Finding as finding:
            found = str(finding)
        except KINDS[kind].errors as error:
            if not str(error).strip() or INTERNAL.search(str(error)):
                found = f"an error that tells a user nothing: {_described(error)}"
        except Exception as error:
            found = _described(error)
    if found is None and len(caught) > most_warnings:
        found = f"{len(caught)} warnings, such as {caught[0].category.__name__}: {caught[0].message}"
    return None if found is None else f"{' '.join(said)}: {found}"


def _described(error: BaseException) -> str:
    where, trace = "", error.__traceback__
    while trace is not None:
        name = trace.tb_frame.f_code.co_filename
        if f"{os.sep}gyrfalcon{os.sep}" in name:
            where = f" in {os.path.basename(name)}, line {trace.tb_lineno}"
        trace = trace.tb_next
    return f"{type(error).__name__}{where}: {str(error)[:500]}"
