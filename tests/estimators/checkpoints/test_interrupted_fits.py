"""A fit that is interrupted or fails leaves the estimator as it was: a fitted one predicts with its earlier model."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from gyrfalcon import (
    BKB,
    DPP,
    AutoClassifier,
    AutoRegressor,
    ConformalClassifier,
    ConformalRegressor,
    DivideAndConquerRegressor,
    ExactClassifier,
    ExactRegressor,
    FalkonClassifier,
    FalkonRegressor,
    HierarchicalClassifier,
    HierarchicalRegressor,
    KernelKMeans,
    KernelPCA,
    LearnedMetric,
    NoveltyDetector,
    NystromRegressor,
    NytroRegressor,
    TableEncoder,
)
from gyrfalcon.callbacks import Callback
from gyrfalcon.estimators import EigenProRegressor, RandomFeatures, RandomFeaturesClassifier, RandomFeaturesRegressor

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

X = np.random.default_rng(0).standard_normal((120, 3))
Y = X[:, 0] + 0.1 * X[:, 1]
LABELS = Y > 0


def one_record(record):
    return True


ESTIMATORS = [
    FalkonRegressor(n_centers=20),
    FalkonClassifier(n_centers=20),
    NystromRegressor(n_centers=20),
    NytroRegressor(n_centers=20),
    ExactRegressor(),
    ExactClassifier(),
    HierarchicalRegressor(leaf_size=20, n_trees=2, uncertainty=True),
    HierarchicalClassifier(leaf_size=20, n_trees=2),
    DivideAndConquerRegressor(n_partitions=2),
    EigenProRegressor(max_iter=2),
    RandomFeaturesRegressor(n_components=20),
    RandomFeaturesClassifier(n_components=20),
    RandomFeatures(n_components=20),
    LearnedMetric(n_rounds=1),
    KernelPCA(n_components=2, n_centers=20),
    KernelKMeans(n_clusters=2, n_centers=20),
    NoveltyDetector(n_centers=20),
    ConformalRegressor(FalkonRegressor(n_centers=20)),
    ConformalClassifier(FalkonClassifier(n_centers=20, loss="logistic")),
    DPP(size=3),
    BKB(),
    TableEncoder(),
    AutoRegressor(time_budget=20, callbacks=one_record),
    AutoClassifier(time_budget=20, callbacks=one_record),
]
WATCHED = [model for model in ESTIMATORS if "callbacks" in model.get_params(deep=False)]
AUTOMATIC = (AutoRegressor, AutoClassifier)


def target_of(model):
    return LABELS if "Classifier" in type(model).__name__ else Y


def fitted(model):
    model = clone(model)
    if "random_state" in model.get_params(deep=False):
        model.set_params(random_state=0)
    return model.fit(X, target_of(model))


class Interrupted:
    """Rows that nobody can read: Ctrl-C comes while they are read, or while they are made an array."""

    dtype = np.dtype(np.float64)
    shape = (90, 2)

    def __len__(self):
        return self.shape[0]

    def __array__(self, dtype=None, copy=None):
        raise KeyboardInterrupt

    def blocks(self, size):
        raise KeyboardInterrupt
        yield

    def take(self, indices):
        if len(indices):
            raise KeyboardInterrupt
        return np.empty((0, 2))


def assert_as_before(model, before):
    assert vars(model).keys() == before.keys()
    assert all(vars(model)[name] is before[name] for name in before)


@pytest.mark.parametrize("model", ESTIMATORS, ids=lambda model: type(model).__name__)
def test_ctrl_c_while_the_rows_are_read(model):
    model = fitted(model)
    before = vars(model).copy()
    with pytest.raises(KeyboardInterrupt):
        model.fit(Interrupted(), target_of(model)[:90])
    assert_as_before(model, before)
    new = clone(model)
    with pytest.raises(KeyboardInterrupt):
        new.fit(Interrupted(), target_of(model)[:90])
    with pytest.raises(NotFittedError):
        check_is_fitted(new)


@pytest.mark.parametrize(
    "model",
    [model for model in ESTIMATORS if model.__sklearn_tags__().target_tags.required],
    ids=lambda model: type(model).__name__,
)
def test_a_wrong_y(model):
    model = fitted(model)
    before = vars(model).copy()
    for y in (None, target_of(model)[:89], np.full(90, np.nan)):
        with pytest.raises(ValueError):
            model.fit(X[:90, :2], y)
        assert_as_before(model, before)


class FailingAtTheEnd(Callback):
    """An error after the attributes have been set."""

    def on_fit_end(self, estimator):
        assert estimator.n_features_in_ == 2
        raise OSError("no room for the report")


@pytest.mark.parametrize(
    "model", [model for model in WATCHED if "Auto" not in type(model).__name__], ids=lambda model: type(model).__name__
)
def test_a_callback_that_fails_at_the_end(model):
    model = fitted(model)
    model.set_params(callbacks=FailingAtTheEnd())
    before = vars(model).copy()
    with pytest.raises(OSError, match="no room"):
        model.fit(X[:90, :2], target_of(model)[:90])
    assert_as_before(model, before)


class Interrupting(Callback):
    """Ctrl-C when the fit starts, or in an iteration."""

    def __init__(self, when):
        self.when = when

    def on_fit_start(self, estimator, info):
        if self.when == 0:
            raise KeyboardInterrupt

    def on_iteration(self, record):
        if self.when:
            raise KeyboardInterrupt


@pytest.mark.parametrize("model", WATCHED, ids=lambda model: type(model).__name__)
@pytest.mark.parametrize("when", [0, 1], ids=["start", "iteration"])
def test_ctrl_c_in_a_callback(model, when):
    model = fitted(model)
    model.set_params(callbacks=Interrupting(when))
    before = vars(model).copy()
    with pytest.raises(KeyboardInterrupt):
        model.fit(X[:90, :2], target_of(model)[:90])
    if when and isinstance(model, AUTOMATIC):  # the best that was found until then
        assert model.n_features_in_ == 2
        assert np.isfinite(model.predict(X[:, :2])).all()
    else:
        assert_as_before(model, before)


@pytest.mark.parametrize("kind", AUTOMATIC)
def test_ctrl_c_while_the_best_so_far_is_set(kind, monkeypatch):
    model = fitted(kind(time_budget=20, callbacks=one_record))
    model.set_params(callbacks=Interrupting(1))
    before = vars(model).copy()

    def interrupt(*given):
        raise KeyboardInterrupt

    monkeypatch.setattr(kind, "_set", interrupt)
    with pytest.raises(KeyboardInterrupt):
        model.fit(X[:90, :2], target_of(model)[:90])
    assert_as_before(model, before)
