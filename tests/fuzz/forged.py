"""Forged model files and checkpoints: altered, given the checksum that belongs to that, read, and used."""

from __future__ import annotations

import contextlib
import io
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from numpy.random import Generator
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline, make_pipeline, make_union
from sklearn.preprocessing import (
    MinMaxScaler,
    OneHotEncoder,
    PolynomialFeatures,
    QuantileTransformer,
    StandardScaler,
)

import gyrfalcon
from gyrfalcon import kernels
from gyrfalcon.cli.main import main
from gyrfalcon.storage.checkpoints import Checkpoint
from gyrfalcon.storage.checkpoints.journal import FORMAT as CHECKPOINT
from gyrfalcon.storage.models import _MODEL as MODEL
from gyrfalcon.tables.resuming import _FORMAT as SEARCH

from .damage import INTERNAL, Finding, damaged, one, resealed, say

X = np.random.default_rng(0).standard_normal((60, 3))
Y = np.sin(X[:, 0])
WORDS = np.where(Y > 0, "yes", "no")
TABLE = X.astype(object)
TABLE[:, 2] = np.where(X[:, 2] > 0, "left", "right")
MODELS: list[Callable[[], Any]] = [
    lambda: gyrfalcon.FalkonRegressor(n_centers=10, random_state=0, scale=True).fit(X, Y),
    lambda: gyrfalcon.FalkonRegressor(n_centers=10, random_state=0, loss="quantile", max_iter=3).fit(X, Y),
    lambda: gyrfalcon.FalkonClassifier(n_centers=10, random_state=0).fit(X, WORDS),
    lambda: gyrfalcon.FalkonClassifier(n_centers=10, random_state=0, loss="logistic", max_iter=3).fit(X, Y > 0),
    lambda: gyrfalcon.ExactClassifier(random_state=0).fit(X, Y > 0),
    lambda: gyrfalcon.FalkonRegressor(kernels.Linear(), n_centers=9, random_state=0).fit(scipy.sparse.csr_array(X), Y),
    lambda: gyrfalcon.NystromRegressor(kernels.Matern(nu=0.5) + kernels.Linear(), n_centers=9, random_state=0).fit(
        X, Y
    ),
    lambda: gyrfalcon.NystromRegressor(n_centers=9, random_state=0, uncertainty=True).fit(X, Y),
    lambda: gyrfalcon.HierarchicalRegressor(leaf_size=9, n_trees=2, uncertainty=True, random_state=0).fit(X, Y),
    lambda: gyrfalcon.HierarchicalClassifier(leaf_size=9, n_trees=2, random_state=0).fit(X, WORDS),
    lambda: gyrfalcon.DivideAndConquerRegressor(random_state=0, n_partitions=2).fit(X, Y),
    lambda: gyrfalcon.RandomFeaturesRegressor(n_components=20, random_state=0).fit(X, Y),
    lambda: gyrfalcon.RandomFeaturesClassifier(n_components=20, random_state=0).fit(X, WORDS),
    lambda: gyrfalcon.EigenProRegressor(random_state=0, max_iter=2).fit(X, Y),
    lambda: gyrfalcon.baselines.SvrgRegressor(n_components=20, random_state=0).fit(X, Y),
    lambda: gyrfalcon.baselines.SketchedRegressor(sketch_size=9, random_state=0).fit(X, Y),
    lambda: gyrfalcon.baselines.EigenProClassifier(random_state=0, max_iter=2).fit(X, WORDS),
    lambda: gyrfalcon.baselines.DivideAndConquerClassifier(random_state=0, n_partitions=2).fit(X, WORDS),
    lambda: gyrfalcon.NytroRegressor(n_centers=9, random_state=0, max_iter=5).fit(X, Y),
    lambda: gyrfalcon.KernelPCA(n_components=2, n_centers=9, random_state=0, fit_inverse_transform=True).fit(X),
    lambda: gyrfalcon.KernelKMeans(3, n_centers=9, random_state=0).fit(X),
    lambda: gyrfalcon.NoveltyDetector(n_centers=9, random_state=0).fit(X),
    lambda: gyrfalcon.LearnedMetric(random_state=0, n_rounds=1).fit(X, Y),
    lambda: gyrfalcon.RandomFeatures(n_components=20, random_state=0).fit(X),
    lambda: gyrfalcon.ConformalRegressor(gyrfalcon.NystromRegressor(n_centers=9, random_state=0)).fit(X, Y),
    lambda: gyrfalcon.ConformalClassifier(gyrfalcon.ExactClassifier(random_state=0)).fit(X, WORDS),
    lambda: gyrfalcon.tables.TableEncoder().fit(TABLE, Y),
    lambda: _played(gyrfalcon.BKB(random_state=0)),
    lambda: _played(gyrfalcon.BBKB(random_state=0)),
    lambda: gyrfalcon.AutoRegressor(random_state=0, callbacks=_brief).fit(TABLE, Y),
    lambda: gyrfalcon.AutoClassifier(random_state=0, callbacks=_brief).fit(TABLE, WORDS),
    lambda: _piped(StandardScaler(), PCA(2)),
    lambda: _piped(make_union(MinMaxScaler(), QuantileTransformer(n_quantiles=9)), PolynomialFeatures(2)),
    lambda: _piped(ColumnTransformer([("a", OneHotEncoder(), [0, 1]), ("b", SimpleImputer(), [2])])),
]
# Errors of a forged model that is used. Each says what is wrong; that of `load` is a ModelFileError and no other.
CLEAR = (ValueError, TypeError, MemoryError, FloatingPointError, NotImplementedError)


def _piped(*steps: Any) -> Any:
    return make_pipeline(*steps, gyrfalcon.FalkonRegressor(n_centers=9, random_state=0)).fit(np.round(X), Y)


def _played(bandit: Any) -> Any:
    bandit.fit(X)
    for _ in range(3):
        arms = bandit.ask(2)
        bandit.tell(arms, Y[arms])
    return bandit


def _brief(record: Any) -> bool:
    """End a search after three candidates, wherever the clock is."""
    return bool(record["iteration"] >= 3)


@contextlib.contextmanager
def silent() -> Iterator[None]:
    with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
        warnings.simplefilter("ignore")
        yield


@cache
def saved(number: int) -> bytes:
    """The file of a model, made once in a process."""
    with silent(), tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model"
        gyrfalcon.save(MODELS[number](), path)
        return path.read_bytes()


def model(rng: Generator, folder: Path) -> None:
    """Load an altered model file, and do with it what can be done with a model."""
    path = folder / "model"
    number = int(rng.integers(len(MODELS)))
    forged = rng.random() < 0.85
    path.write_bytes(saved(number))
    how = resealed(rng, path, MODEL) if forged else "damaged"
    say(f"model {number}, {how}")
    if not forged:
        path.write_bytes(damaged(rng, path.read_bytes()))
    try:
        loaded = gyrfalcon.load(path)
    except gyrfalcon.ModelFileError as error:
        if str(path) not in str(error):
            raise Finding(f"the error does not name the file: {error}") from error
        return
    except Exception as error:
        raise Finding(f"load raises {type(error).__name__} and not ModelFileError: {error}") from error
    if isinstance(loaded, Pipeline):
        used_pipeline(loaded, path)
    else:
        used(loaded, path)


def used_pipeline(loaded: Pipeline, path: Path) -> None:
    """Use a pipeline, whose errors are those of scikit-learn: any of them will do, and a crash will not."""
    for what in (repr, lambda one: one.predict(np.round(X)), lambda one: one[:-1].transform(np.round(X))):
        with silent(), contextlib.suppress(Exception):
            what(loaded)
    with silent(), contextlib.suppress(Exception):
        gyrfalcon.save(loaded, path.with_name("again"))
    before = sorted(found.name for found in path.parent.iterdir())
    with silent(), contextlib.suppress(Exception):
        loaded.set_params(falkonregressor__callbacks=_brief).fit(np.round(X), Y)
    if sorted(found.name for found in path.parent.iterdir()) != before:
        raise Finding("a fit writes where the file says")


def used(loaded: Any, path: Path) -> None:
    """Use a model in each way that it has, the last of which is another fit."""
    table = type(loaded).__name__ in ("AutoRegressor", "AutoClassifier", "TableEncoder")
    rows = TABLE if table else X
    targets = WORDS if "Classifier" in type(loaded).__name__ else Y
    allowed(lambda: repr(loaded), "repr")
    for name in ("predict", "predict_proba", "decision_function", "transform", "score_samples", "predict_interval"):
        if hasattr(loaded, name):
            answers = allowed(lambda name=name: getattr(loaded, name)(rows), name)
            if answers is not None and len(answers) != len(rows):
                raise Finding(f"{name} has {len(answers)} answers")
    if isinstance(loaded, gyrfalcon.BKB):
        allowed(lambda: loaded.ask(), "ask")
        allowed(lambda: loaded.tell([0, 1], [0.5, 0.2]).ask(3), "tell")
        allowed(lambda: loaded.posterior(), "posterior")
        targets = None
    if isinstance(loaded, gyrfalcon.KernelPCA):
        allowed(lambda: loaded.inverse_transform(loaded.transform(rows)), "inverse_transform")
    if hasattr(type(loaded), "sample_y"):
        allowed(lambda: (loaded.sample_y(rows), loaded.predict(rows, return_std=True)), "sample_y")
    if isinstance(loaded, gyrfalcon.HierarchicalRegressor):
        allowed(lambda: (loaded.predict_interval(rows), loaded.predict(rows, return_std=True)), "predict_interval")
    if table and hasattr(loaded, "best_estimator_"):
        allowed(lambda: loaded.best_estimator_.predict(rows), "best_estimator_")
    allowed(lambda: gyrfalcon.save(loaded, path.with_name("again")), "save")
    commanded("inspect", str(path))
    commanded("inspect", str(path), "--json")
    commanded("export", str(path), "-o", str(path.with_name("graph.onnx")))
    before = sorted(found.name for found in path.parent.iterdir())
    if "callbacks" in loaded.get_params(deep=False):  # a file may ask for any number of iterations, as a user may
        loaded.set_params(callbacks=_brief)
    allowed(lambda: loaded.fit(rows, targets), "fit")
    if sorted(found.name for found in path.parent.iterdir()) != before:
        raise Finding("a fit writes where the file says")


def allowed(what: Callable[[], Any], name: str) -> Any:
    """Do something that may end with a clear error, and return its result, or None."""
    try:
        with silent():
            return what()
    except CLEAR as error:
        if not str(error).strip() or INTERNAL.search(str(error)):
            raise
    return None


def commanded(*words: str) -> None:
    """Run a command, which may refuse the model but not fail."""
    with silent(), contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as told:
        try:
            main(list(words))
        except SystemExit:
            return
    if INTERNAL.search(told.getvalue()):
        raise Finding(f"gyrfalcon {' '.join(words)} says {told.getvalue()[-300:]}")


# ---- checkpoints -----------------------------------------------------------------------------------------------------


class Stop(Exception):  # noqa: N818 (it is no error)
    """Ends a fit, as if it had been killed."""


def _fits(number: int) -> tuple[Any, Any]:
    """The estimator and the rows of a fit with a checkpoint."""
    options: dict[str, Any] = {
        "kernel": kernels.Gaussian(1.0),
        "loss": ["squared", "huber"][number % 2],
        "early_stopping": number // 2 % 2 == 1,
        "tol": 0.0,
        "n_centers": 10,
        "random_state": 0,
        "max_iter": 6,
    }
    if number // 4 == 1:
        options |= {"centers": X[:8], "early_stopping": False}
    rows = scipy.sparse.csr_array(X) if number // 4 == 2 else X
    return gyrfalcon.FalkonRegressor(**options), rows


@cache
def halted(number: int, at: int | None) -> bytes:
    """The checkpoint of a fit that was stopped at an iteration, or that has ended."""

    def stop(record: Any) -> None:
        if record["iteration"] == at:
            raise Stop

    made, rows = _fits(number)
    with silent(), tempfile.TemporaryDirectory() as folder:
        with contextlib.suppress(Stop):
            made.set_params(checkpoint=Checkpoint(folder, 0), callbacks=stop).fit(rows, Y)
        return (Path(folder) / "checkpoint.safetensors").read_bytes()


def checkpoint(rng: Generator, folder: Path) -> None:
    """Go on from an altered checkpoint."""
    number, at = int(rng.integers(12)), one(rng, [None, 1, 2, 3, 4])
    path = folder / "checkpoint.safetensors"
    path.write_bytes(halted(number, at))
    how = _altered(rng, path, CHECKPOINT)
    say(f"checkpoint of fit {number} at iteration {at}, {how}")
    made, rows = _fits(number)
    made.set_params(checkpoint=Checkpoint(folder, 0))
    _resumed(lambda: made.fit(rows, Y).predict(rows))


def _altered(rng: Generator, path: Path, kind: Any) -> str:
    if rng.random() < 0.85:
        return resealed(rng, path, kind)
    path.write_bytes(damaged(rng, path.read_bytes()))
    return "damaged"


def _resumed(fit: Callable[[], Any]) -> None:
    """Go on with a fit: only a CheckpointError may end it, or numbers that are not finite."""
    try:
        with silent():
            fit()
    except (gyrfalcon.CheckpointError, FloatingPointError) as error:
        if INTERNAL.search(str(error)):
            raise Finding(f"an error that tells a user nothing: {error}") from error


@cache
def searched(classes: bool, at: str | None) -> bytes:
    """The checkpoint of a search that was stopped at a stage, or that has ended."""

    def stop(record: Any) -> bool:
        if record["stage"] == at:
            raise Stop
        return _brief(record)

    with silent(), tempfile.TemporaryDirectory() as folder:
        with contextlib.suppress(Stop):
            _auto(classes, folder).set_params(callbacks=stop).fit(TABLE, WORDS if classes else Y)
        return (Path(folder) / "checkpoint.safetensors").read_bytes()


def _auto(classes: bool, folder: Any) -> Any:
    kind = gyrfalcon.AutoClassifier if classes else gyrfalcon.AutoRegressor
    return kind(random_state=0, checkpoint=folder, callbacks=_brief)


def search(rng: Generator, folder: Path) -> None:
    """Go on from an altered checkpoint of a search."""
    classes, at = bool(rng.random() < 0.5), one(rng, [None, None, "all rows"])
    path = folder / "checkpoint.safetensors"
    path.write_bytes(searched(classes, at))
    how = _altered(rng, path, SEARCH)
    say(f"checkpoint of a search for {'classes' if classes else 'numbers'}, {at or 'ended'}, {how}")
    made = _auto(classes, folder)
    _resumed(lambda: made.fit(TABLE, WORDS if classes else Y).predict(TABLE))
    shutil.rmtree(folder)
