"""Whether two versions of Gyrfalcon find the same coefficients, bit for bit.

A list of small fits: every estimator and solver on every kind of rows it takes, with weights, validation, scaling, warm
starts and checkpoints, every loss, selector of centers and preconditioner; the default settings; and what is not fitted
to y, intervals, tables and the automatic estimators, whose search is stopped after a few candidates. Run
`write` with each version's Python on the same machine, then compare the files:

    python benchmarks/same_bits.py write before.npz
    python benchmarks/same_bits.py write after.npz
    python benchmarks/same_bits.py compare before.npz after.npz

Fits are without an intercept and with a given penalty, which older versions knew nothing else than. Where the loss is
not the squared one these had an offset, though: `predict` and the coefficients of "huber", "quantile" and "poisson"
differ from theirs.

Public names alone, so that it runs as it is on older and newer versions.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse

import gyrfalcon
from gyrfalcon.kernels import Gaussian, Laplacian, Linear, Matern

N, N_VAL, N_NEW, D = 600, 100, 50, 4
KINDS = ["float64", "float32", "csr", "parquet", "dask"]  # of rows
SPARSE, WEIGHT = "csr", "weight"  # what not every estimator takes

Options = dict[str, Any]


def plain(make: Any) -> Options:
    """What versions that choose more by themselves are told, so that they do what those before did."""
    known = make().get_params()
    return {name: value for name, value in {"fit_intercept": False, "scale": False}.items() if name in known}


def estimators() -> Iterator[tuple[str, Any, Options, set[str]]]:
    """Names, classes, parameters, and which of `SPARSE` and `WEIGHT` each takes."""
    both = {SPARSE, WEIGHT}
    few = {"n_centers": 40, "penalty": 1e-5, "random_state": 0}
    yield "falkon", gyrfalcon.FalkonRegressor, few, both
    yield "falkon classes", gyrfalcon.FalkonClassifier, few, both
    yield "nystrom direct", gyrfalcon.NystromRegressor, few, both
    path = few | {"penalties": [1e-8, 1e-5, 1e-2]}
    for choose_by in ("loo", "gcv", "validation"):
        yield f"nystrom {choose_by}", gyrfalcon.NystromRegressor, path | {"choose_by": choose_by}, both
    for solver in ("gd", "cg", "sgd"):
        iterations = {"solver": solver, "max_iter": 8, "batch_size": 64}
        yield f"nystrom {solver}", gyrfalcon.NystromRegressor, few | iterations, both
        nytro = {"n_centers": 40, "random_state": 0} | iterations
        yield f"nytro {solver}", gyrfalcon.NytroRegressor, nytro, both
    exact = {"random_state": 0, "max_iter": 8}
    yield "exact ridge", gyrfalcon.ExactRegressor, exact | {"penalty": 1e-4}, {WEIGHT}
    yield "exact path", gyrfalcon.ExactRegressor, exact | {"penalties": [1e-6, 1e-3]}, {WEIGHT}
    yield "exact least squares", gyrfalcon.ExactRegressor, exact | {"method": "least_squares"}, {WEIGHT}
    yield "exact early stopping", gyrfalcon.ExactRegressor, exact | {"method": "early_stopping"}, {WEIGHT}
    parts = {"n_partitions": 4, "penalty": 1e-4, "random_state": 0}
    yield "divide and conquer", gyrfalcon.DivideAndConquerRegressor, parts, {WEIGHT}
    yield "eigenpro", gyrfalcon.EigenProRegressor, {"max_iter": 3, "random_state": 0}, set()
    for solver in ("direct", "sgd"):
        features = {"n_components": 50, "penalty": 1e-4, "solver": solver, "max_iter": 3, "random_state": 0}
        yield f"features {solver}", gyrfalcon.RandomFeaturesRegressor, features, {WEIGHT}
        yield f"feature classes {solver}", gyrfalcon.RandomFeaturesClassifier, features, {WEIGHT}


class Data:
    """Rows of every kind, targets of every kind."""

    def __init__(self, folder: Path) -> None:
        rng = np.random.default_rng(0)
        X = rng.standard_normal((N + N_VAL + N_NEW, D))
        X[rng.random(X.shape) < 0.3] = 0.0  # so that sparse rows are sparse
        f = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.2 * rng.standard_normal(len(X))
        self.X, self.X_val, self.X_new = X[:N], X[N : N + N_VAL], X[N + N_VAL :]
        self.targets = {
            "number": f,
            "numbers": np.column_stack([f, np.cos(X[:, 3])]),
            "count": rng.poisson(np.exp(f / 2)).astype(np.float64),
            "two": np.where(f > 0, "yes", "no"),
            "three": np.digitize(f, [-0.5, 0.5]),
        }
        self.weight = rng.uniform(0.1, 3.0, N)
        self.weight[::7] = 0.0
        self.folder = folder
        self._files = 0

    def rows(self, X: Any, kind: str) -> Any:
        if kind == "float32":
            return X.astype(np.float32)
        if kind == "csr":
            return scipy.sparse.csr_matrix(X)
        if kind == "parquet":
            import pyarrow as pa
            from pyarrow import parquet

            self._files += 1
            name = self.folder / f"{self._files}.parquet"
            parquet.write_table(pa.table({f"x{j}": X[:, j] for j in range(D)}), name, row_group_size=170)
            return gyrfalcon.open(str(name)).X
        if kind == "dask":
            import dask.array

            return dask.array.from_array(X, chunks=(200, D))
        return X

    def training(self, kind: str, target: str) -> tuple[Any, Any]:
        y = self.targets[target][:N]
        if kind == "dask":
            import dask.array

            y = dask.array.from_array(y, chunks=200)
        return self.rows(self.X, kind), y

    def validation(self, kind: str, target: str) -> tuple[Any, Any]:
        return self.rows(self.X_val, kind), self.targets[target][N : N + N_VAL]


def fits(data: Data) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Names of fits, and functions that do them."""

    def fit(
        make: Any,
        options: Options,
        kind: str = "float64",
        target: str | None = None,
        weight: bool = False,
        validation: bool = False,
    ) -> Callable[[], Any]:
        if target is None:
            target = "three" if make.__name__.endswith("Classifier") else "number"

        def run() -> Any:
            more: Options = {"sample_weight": data.weight} if weight else {}
            if validation:
                more["X_val"], more["y_val"] = data.validation(kind, target)
            return make(**plain(make) | {"kernel": Gaussian(1.5)} | options).fit(*data.training(kind, target), **more)

        return run

    for name, make, options, takes in estimators():
        for kind in KINDS:
            if kind != "csr" or SPARSE in takes:
                yield f"{name}, {kind}", fit(make, options, kind)
        if not make.__name__.endswith("Classifier"):
            yield f"{name}, two outputs", fit(make, options, target="numbers")
        if WEIGHT in takes:
            for kind in ("float32", "csr", "parquet") if SPARSE in takes else ("float32", "parquet"):
                yield f"{name}, {kind}, weights", fit(make, options, kind, weight=True)
        yield f"{name}, scaled", fit(make, options | {"scale": True})
        yield f"{name}, scaled, parquet", fit(make, options | {"scale": True}, "parquet")
        yield f"{name}, validation rows", fit(make, options, validation=True)
        yield f"{name}, validation rows, parquet", fit(make, options, "parquet", validation=True)
        if "early_stopping" in make().get_params():
            stopping = options | {"early_stopping": True, "n_iter_no_change": 2}
            yield f"{name}, early stopping", fit(make, stopping)
            if SPARSE in takes:
                yield f"{name}, early stopping, csr", fit(make, stopping, "csr")

    regressor, classifier = gyrfalcon.FalkonRegressor, gyrfalcon.FalkonClassifier
    few = {"n_centers": 40, "penalty": 1e-5, "random_state": 0}
    losses: list[tuple[str, Any, Options, str]] = [
        ("squared", regressor, {"loss": "squared"}, "number"),
        ("huber", regressor, {"loss": "huber"}, "number"),
        ("quantile", regressor, {"loss": "quantile", "quantiles": 0.3}, "number"),
        ("quantiles", regressor, {"loss": "quantile", "quantiles": [0.1, 0.5, 0.9]}, "number"),
        ("poisson", regressor, {"loss": "poisson"}, "count"),
        ("squared classes", classifier, {"loss": "squared"}, "two"),
        ("logistic", classifier, {"loss": "logistic"}, "two"),
        ("multinomial", classifier, {"loss": "logistic"}, "three"),
        ("one against the rest", classifier, {"loss": "logistic", "multi_class": "ovr"}, "three"),
    ]
    for name, make, own, target in losses:
        options = few | own
        for kind in KINDS:
            yield f"{name}, {kind}", fit(make, options, kind, target)
            yield f"{name}, {kind}, weights", fit(make, options, kind, target, weight=True)
        yield f"{name}, scaled", fit(make, options | {"scale": True}, target=target)
        yield f"{name}, early stopping", fit(make, options | {"early_stopping": True}, target=target)
        yield f"{name}, validation rows", fit(make, options, target=target, validation=True)
        yield f"{name}, warm start", warm(fit(make, options | {"warm_start": True, "max_iter": 2}, target=target), data)
        for kind in ("float64", "csr", "parquet", "dask"):
            for resumed in (False, True):
                words = "interrupted and resumed" if resumed else "checkpointed"

                def run(
                    make: Any = make,
                    options: Options = options,
                    kind: str = kind,
                    target: str = target,
                    at: int = resumed,
                ) -> Any:
                    return checkpointed(
                        make, plain(make) | options | {"kernel": Gaussian(1.5)}, data.training(kind, target), at
                    )

                yield f"{name}, {kind}, {words}", run
    yield "path of penalties", fit(classifier, few | {"loss": "logistic", "penalty_path": [1e-1, 1e-3]}, target="two")
    yield "steps of CG", fit(classifier, few | {"loss": "logistic", "cg_steps": 3}, target="two")
    yield "class weights", fit(classifier, few | {"class_weight": "balanced"})

    for selector in ("uniform", "leverage", "bless", "rpcholesky", "kmeans++"):
        for kind in KINDS:
            yield f"centers {selector}, {kind}", fit(regressor, few | {"centers": selector}, kind)
        yield f"centers {selector}, weights", fit(regressor, few | {"centers": selector}, weight=True)
    for kind in ("float64", "float32", "parquet", "dask"):
        given = data.rows(data.X[::20], "float32" if kind == "float32" else "float64")
        yield f"centers given, {kind}", fit(regressor, few | {"centers": given, "n_centers": None}, kind)
    yield (
        "centers given, csr",
        fit(regressor, few | {"centers": data.rows(data.X[::20], "csr"), "n_centers": None}, "csr"),
    )

    for preconditioner in ("falkon", "krill", "auto"):
        for make in (regressor, classifier):
            for kind in ("float64", "float32", "csr"):
                words = f"{preconditioner} for {'numbers' if make is regressor else 'classes'}, {kind}"
                yield words, fit(make, few | {"preconditioner": preconditioner}, kind)
    kernels = {
        "laplacian": Laplacian(2.0),
        "matern": Matern(1.5, nu=1.5),
        "linear": Linear(),
        "sum": Gaussian(1.0) + 0.5 * Linear(),
        "length scales": Gaussian([1.0, 2.0, 1.5, 1.0]),
        "unresolved": Gaussian(),
        "name": "gaussian",
    }
    for name, kernel in kernels.items():
        for kind in ("float64", "float32", "csr"):
            if name != "sum" or kind != "csr":
                yield f"kernel {name}, {kind}", fit(regressor, few | {"kernel": kernel}, kind)
    for budget in ("1MB", "4GB"):
        yield f"budget {budget}", fit(regressor, few | {"memory_budget": budget})
    for threads in (1, 2):
        yield f"{threads} threads", fit(regressor, few | {"n_jobs": threads})


def others(data: Data) -> Iterator[tuple[str, Callable[[], dict[str, Any]]]]:
    """Names of what else is computed, and functions that compute it: arrays by name."""
    X, X_new, y, classes = data.X, data.X_new, data.targets["number"][:N], data.targets["three"][:N]

    for make, target in ((gyrfalcon.FalkonRegressor, y), (gyrfalcon.FalkonClassifier, classes)):
        for kind in ("float64", "float32"):

            def default(make: Any = make, target: Any = target, kind: str = kind) -> dict[str, Any]:
                model = make(random_state=0).fit(data.rows(X, kind), target)
                return {"coefficients": model.dual_coef_, "predict": model.predict(X_new), "penalty": model.penalty_}

            yield f"default {make.__name__}, {kind}", default

    def uncertain() -> dict[str, Any]:
        model = gyrfalcon.FalkonRegressor(n_centers=40, penalty=1e-3, uncertainty=True, random_state=0).fit(X, y)
        mean, deviation = model.predict(X_new, return_std=True)
        return {"mean": mean, "deviation": deviation, "interval": model.predict_interval(X_new)}

    def exact_classes() -> dict[str, Any]:
        model = gyrfalcon.ExactClassifier(penalty=1e-3, random_state=0).fit(X, classes)
        return {"probabilities": model.predict_proba(X_new)}

    def conformal() -> dict[str, Any]:
        model = gyrfalcon.ConformalRegressor(random_state=0).fit(X, y)
        sets = gyrfalcon.ConformalClassifier(random_state=0).fit(X, classes)
        return {"interval": model.predict_interval(X_new), "sets": sets.predict_set(X_new)}

    def components() -> dict[str, Any]:
        model = gyrfalcon.KernelPCA(3, n_centers=40, fit_inverse_transform=True, random_state=0).fit(X)
        image = model.transform(X_new)
        return {"transform": image, "inverse": model.inverse_transform(image)}

    def clusters() -> dict[str, Any]:
        model = gyrfalcon.KernelKMeans(4, n_centers=40, random_state=0).fit(X)
        return {"labels": model.labels_, "predict": model.predict(X_new), "inertia": model.inertia_}

    def novel() -> dict[str, Any]:
        return {"scores": gyrfalcon.NoveltyDetector(n_centers=40, random_state=0).fit(X).score_samples(X_new)}

    def metric() -> dict[str, Any]:
        model = gyrfalcon.LearnedMetric(n_rounds=2, random_state=0).fit(X, y)
        return {"transform": model.transform(X_new)}

    def two_samples() -> dict[str, Any]:
        found = gyrfalcon.mmd_test(X[:300], X[300:] + 0.2, n_permutations=50, random_state=0)
        return {"statistic": found.statistic, "permutations": found.permutations}

    def bandits() -> dict[str, Any]:
        found = {}
        for make in (gyrfalcon.BKB, gyrfalcon.BBKB):
            model, asked = make(Gaussian(1.5), random_state=0).fit(X[:100]), []
            for _ in range(12):
                arms = model.ask()
                asked.extend(arms)
                model.tell(arms, y[arms])
            found[make.__name__] = np.array(asked)
        return found

    def diverse() -> dict[str, Any]:
        return {"rows": np.asarray(gyrfalcon.sample_dpp(X, Gaussian(1.5), size=10, random_state=0))}

    def leverage() -> dict[str, Any]:
        scores = gyrfalcon.leverage_scores(X, Gaussian(1.5), 1e-3, method="bless", random_state=0)
        return {"scores": scores, "dimension": gyrfalcon.effective_dimension(X, Gaussian(1.5), 1e-3, random_state=0)}

    def features() -> dict[str, Any]:
        return {"features": gyrfalcon.RandomFeatures(Gaussian(1.5), 50, random_state=0).fit(X).transform(X_new)}

    several = [uncertain, exact_classes, conformal, components, clusters, novel, metric, two_samples, bandits, diverse]
    for function in [*several, leverage, features]:
        yield function.__name__.replace("_", " "), function

    table = mixed_table(data)
    for numbers in ("robust", "quantile"):

        def encoded(numbers: str = numbers) -> dict[str, Any]:
            encoder = gyrfalcon.TableEncoder(numbers, random_state=0)
            return {"fit": encoder.fit_transform(table, y), "transform": encoder.transform(table[::7])}

        yield f"table encoder, {numbers}", encoded
    for words, rows in (("numbers", X), ("mixed", table)):
        for make, target in ((gyrfalcon.AutoRegressor, np.exp(y)), (gyrfalcon.AutoClassifier, classes)):
            for weight in (None, data.weight):

                def automatic(
                    make: Any = make, rows: Any = rows, target: Any = target, weight: Any = weight
                ) -> dict[str, Any]:
                    model = make(600, cv=3, random_state=0, callbacks=brief(4), n_jobs=1)
                    model.fit(rows, target, sample_weight=weight)
                    verb = "predict" if make is gyrfalcon.AutoRegressor else "predict_proba"
                    return {"predictions": getattr(model, verb)(rows[::7])}

                yield f"{make.__name__}, {words}{'' if weight is None else ', weights'}", automatic


def mixed_table(data: Data) -> Any:
    """Return a table with numbers, gaps, text and dates that goes with the targets."""
    import pandas as pd

    X = data.X
    numbers = X[:, 0].copy()
    numbers[::11] = np.nan
    days = pd.Timestamp("2024-01-01") + pd.to_timedelta((X[:, 3] * 40).astype(int), unit="D")
    places = np.array(["north", "south", "west", None], dtype=object)[np.digitize(X[:, 2], [-0.5, 0.0, 0.5])]
    codes = np.char.add("id ", (np.abs(X[:, 1]) * 30).astype(int).astype(str))
    return pd.DataFrame({"number": numbers, "other": X[:, 1], "place": places, "code": codes, "day": days})


def brief(candidates: int) -> Callable[[dict[str, Any]], bool]:
    """Return a callback that ends a search after some candidates: the clock has no say in what it finds."""
    return lambda record: record["iteration"] >= candidates


def warm(run: Callable[[], Any], data: Data) -> Callable[[], Any]:
    """A fit that goes on from the coefficients of one before."""

    def again() -> Any:
        model = run()
        target = "number"
        if hasattr(model, "classes_"):
            target = "two" if len(model.classes_) == 2 else "three"
        elif model.loss == "poisson":
            target = "count"
        return model.set_params(max_iter=3).fit(*data.training("float64", target))

    return again


class InterruptError(Exception):
    """What ends a fit in the middle."""


def checkpointed(make: Any, options: Options, training: tuple[Any, Any], interrupted: bool) -> Any:
    """A fit with a checkpoint after every iteration, in one go or in two."""
    with tempfile.TemporaryDirectory() as folder:
        options = options | {"checkpoint": gyrfalcon.Checkpoint(folder, 0)}

        def stop(record: dict[str, Any]) -> None:
            if record["iteration"] == 2:
                raise InterruptError

        if interrupted:
            try:
                make(**options, callbacks=stop).fit(*training)
            except InterruptError:
                pass
            else:
                raise RuntimeError("the fit was over before it was interrupted")
        return make(**options).fit(*training)


def coefficients(model: Any) -> Any:
    """Return the coefficients of the centers or of the random features."""
    return vars(model).get("dual_coef_", vars(model).get("feature_coef_"))


def write(name: str) -> int:
    """Do all fits and write what they found."""
    start, found, failed = time.perf_counter(), {}, 0
    count = 0
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        data = Data(Path(folder))
        for fit, run in fits(data):
            count += 1
            if fit + ": coefficients" in found:
                raise RuntimeError(f"two fits are named {fit!r}")
            try:
                model = run()
            except Exception as error:
                failed += 1
                found[fit + ": coefficients"] = np.array("failed")
                print(f"{fit}: {type(error).__name__}: {error}")
                continue
            X_new = data.X_new.astype(np.float32) if ", float32" in fit else data.X_new
            if ", csr" in fit:
                X_new = scipy.sparse.csr_matrix(X_new)
            found[fit + ": coefficients"] = np.asarray(coefficients(model))
            for verb in ("predict", "predict_proba", "decision_function"):
                if hasattr(model, verb):
                    found[fit + ": " + verb] = np.asarray(getattr(model, verb)(X_new))
        for other, compute in others(data):
            count += 1
            try:
                found |= {f"{other}: {part}": np.asarray(values) for part, values in compute().items()}
            except Exception as error:
                failed += 1
                print(f"{other}: {type(error).__name__}: {error}")
    np.savez(name, **found)
    print(f"{count} fits, {failed} failed, {time.perf_counter() - start:.0f} s: {name}")
    return int(failed > 0)


def compare(one: str, other: str) -> int:
    """Print what two files do not have in common, and give 1 if there is something."""
    with np.load(one) as file:
        before = dict(file)
    with np.load(other) as file:
        after = dict(file)
    rows = []
    for name in sorted(before | after):
        if name not in before or name not in after:
            rows.append((name, f"only in {one if name in before else other}"))
            continue
        a, b = before[name], after[name]
        if a.dtype != b.dtype or a.shape != b.shape:
            rows.append((name, f"{a.dtype}{list(a.shape)} and {b.dtype}{list(b.shape)}"))
        elif a.tobytes() != b.tobytes():  # bits, so that NaN is NaN and -0 is not 0
            difference = "not the same"
            if a.dtype.kind == "f":
                scale = np.nanmax(np.abs(a)) or 1.0
                share = np.mean((a != b) & ~(np.isnan(a) & np.isnan(b)))
                difference = f"off by {np.nanmax(np.abs(a - b)) / scale:.1e} of the largest, {share:.0%} of the numbers"
            rows.append((name, difference))
    width = max((len(name) for name, _ in rows), default=0)
    for name, difference in rows:
        print(f"{name:{width}}  {difference}")
    print(f"{len(before | after)} arrays, {len(rows)} differ")
    return int(bool(rows))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("write", help="do the fits").add_argument("file")
    comparison = verbs.add_parser("compare", help="compare two files")
    comparison.add_argument("one")
    comparison.add_argument("other")
    given = parser.parse_args()
    return write(given.file) if given.verb == "write" else compare(given.one, given.other)


if __name__ == "__main__":
    sys.exit(main())
