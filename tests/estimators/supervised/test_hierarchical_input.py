"""Odd rows, sizes and surroundings of the hierarchical estimators: right answers, or errors that say what to do."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import scipy.sparse
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.calibration import CalibrationDisplay
from sklearn.ensemble import StackingRegressor
from sklearn.inspection import DecisionBoundaryDisplay
from sklearn.linear_model import LinearRegression
from sklearn.metrics import PredictionErrorDisplay
from sklearn.model_selection import GridSearchCV

from gyrfalcon import ExactRegressor, HierarchicalClassifier, HierarchicalRegressor
from gyrfalcon.kernels import Gaussian, Laplacian

KERNEL = Laplacian(1.5)


def data(n: int = 200) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, size=(n, 2))
    return X, np.sin(2 * X[:, 0]) * np.cos(X[:, 1]) + 0.1 * rng.standard_normal(n)


def regressor(**parameters: object) -> HierarchicalRegressor:
    return HierarchicalRegressor(**{"kernel": KERNEL, "penalty": 1e-3, "leaf_size": 20, "random_state": 0} | parameters)


def classifier(**parameters: object) -> HierarchicalClassifier:
    return HierarchicalClassifier(KERNEL, **{"penalty": 1e-3, "leaf_size": 20, "random_state": 0} | parameters)


# ---- rows ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("split", ["axis", "principal", "random"])
def test_constant_columns_change_nothing_but_directions(split: str) -> None:
    X, y = data()
    more = np.c_[X, np.full(len(X), 7.0), np.zeros(len(X))]
    model = regressor(split=split).fit(more, y)
    assert model.score(more, y) > 0.8
    one_leaf = regressor(leaf_size=len(X))
    assert_allclose(one_leaf.fit(more, y).predict(more), one_leaf.fit(X, y).predict(X), atol=1e-10)


@pytest.mark.parametrize("split", ["axis", "principal", "random"])
@pytest.mark.parametrize("repeated", [2, 50])
def test_duplicate_rows_are_split_too(split: str, repeated: int) -> None:
    X, y = data(8)
    X, y = np.repeat(X, repeated, axis=0), np.repeat(y, repeated)
    model = regressor(split=split, leaf_size=5, penalty=1e-4).fit(X, y)
    assert max(np.diff(model.trees_[0].tree.starts)) <= 5
    assert model.score(X, y) > 0.8


def test_outliers_at_a_million_deviations() -> None:
    X, y = data()
    X[:3] = [[1e6, 0], [0, -1e6], [1e6, 1e6]]
    y[:3] = [1e6, -1e6, 0]
    for model in (regressor(), regressor(kernel=Gaussian(1.0), split="principal"), regressor(uncertainty=True)):
        assert np.isfinite(model.fit(X, y).predict(X)).all()
        assert max(np.diff(model.trees_[0].tree.starts)) <= 20
    y[:3] = 0
    assert regressor().fit(X, y).score(X[3:], y[3:]) > 0.8


def test_a_row_far_outside_of_every_cell() -> None:
    X, y = data()
    far = np.array([[1e6, -1e6], [1e300, 0.0]])
    model = regressor(uncertainty=True).fit(X, y)
    mean, std = model.predict(far, return_std=True)
    assert_allclose(mean, model.offset_)
    assert_allclose(std, model.prior_deviation_[0])  # nothing is known there
    labels = classifier().fit(X, y > 0)
    assert np.isfinite(labels.predict_log_proba(far)).all()


@pytest.mark.parametrize("model", [regressor(), classifier()], ids=lambda model: type(model).__name__)
def test_sparse_rows_are_refused(model: HierarchicalRegressor) -> None:
    X, y = data()
    with pytest.raises(TypeError, match="dense"):
        model.fit(scipy.sparse.csr_array(X), y > 0)
    with pytest.raises(TypeError, match="dense"):
        clone(model).fit(X, y > 0).predict(scipy.sparse.csr_array(X))


class Blocks:
    """A source whose row 150 has a NaN."""

    shape, dtype, feature_names = (200, 2), np.dtype(np.float64), ["a", "b"]

    def __init__(self) -> None:
        self.X = data()[0]
        self.X[150, 1] = np.nan

    def blocks(self, size: int):  # type: ignore[no-untyped-def]
        for start in range(0, 200, 64):
            yield self.X[start : start + 64]

    def take(self, indices: np.ndarray) -> np.ndarray:
        return self.X[indices]


def test_nan_in_a_block_of_a_source() -> None:
    X, y = data()
    for n_centers in (0, 10):
        with pytest.raises(ValueError, match="150"):
            regressor(scale=False, n_centers=n_centers).fit(Blocks(), y)
    model = regressor(scale=False).fit(X, y)
    with pytest.raises(ValueError, match="row 150 has nan in feature 'b': remove or impute"):
        model.predict(Blocks())


# ---- sizes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 3, 20])
def test_few_rows_are_an_exact_fit(n: int) -> None:
    X, y = data(n)
    model = regressor(uncertainty=n > 2).fit(X, y)
    assert [tree.tree.n_leaves for tree in model.trees_] == [1] * len(model.trees_)
    assert_allclose(model.predict(X), ExactRegressor(KERNEL, penalty=1e-3).fit(X, y).predict(X), atol=1e-9)


def test_leaves_of_one_row() -> None:
    X, y = data(60)
    model = regressor(leaf_size=1, n_trees=2, penalties=[1e-3, 1e-2], uncertainty=True).fit(X, y)
    assert model.trees_[0].tree.n_leaves == 60
    assert np.isfinite(model.predict_interval(X)).all()
    assert (model.leaf_size_, model.rank_) == (1, 1)


def test_more_pivots_than_rows_of_a_leaf_are_clipped() -> None:
    X, y = data()
    model = regressor(rank=1000).fit(X, y)
    assert model.rank_ == model.leaf_size_ == 20
    assert_array_equal(model.predict(X), regressor(rank=20).fit(X, y).predict(X))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"leaf_size": 0}, "leaf_size=0"),
        ({"rank": 0}, "rank=0"),
        ({"n_trees": 0}, "n_trees=0"),
        ({"split": "kd"}, "split='kd'"),
        ({"choose_by": "gcv"}, "choose_by='gcv'"),
        ({"penalty": 0, "uncertainty": True}, "penalty"),
        ({"n_centers": 5, "uncertainty": True}, "n_centers=5 .*use n_centers=0"),
    ],
)
def test_wrong_parameters(parameters: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        regressor(**parameters).fit(*data())


def test_too_little_memory_for_any_size() -> None:
    with pytest.raises(MemoryError, match="memory_budget"):
        regressor(memory_budget=1000, leaf_size=100).fit(*data())


def test_a_penalty_of_zero_interpolates() -> None:
    X, y = data()
    for parameters in ({"penalty": 0}, {"penalties": [0, 1e-3]}):
        model = regressor(n_trees=1, n_centers=0, **parameters).fit(X, y)
        assert np.isfinite(model.predict(X)).all()
    assert_allclose(regressor(penalty=0, n_trees=1, n_centers=0).fit(X, y).predict(X), y, atol=1e-5)


# ---- targets ---------------------------------------------------------------------------------------------------------


def test_several_outputs_are_fitted_as_one_by_one() -> None:
    X, y = data()
    Y = np.c_[y, 10 * y + 3, y**2]
    model = regressor().fit(X, Y)
    for j, column in enumerate(Y.T):
        assert_allclose(model.predict(X)[:, j], clone(model).fit(X, column).predict(X), rtol=1e-7, atol=1e-7)
    certain = regressor(uncertainty=True).fit(X, Y)
    assert certain.predict_interval(X).shape == (200, 2, 3)
    assert_allclose(certain.predict(X, return_std=True)[1][:, 1], 10 * certain.predict(X, return_std=True)[1][:, 0])


def test_strings_with_one_class_in_a_leaf() -> None:
    X, _ = data()
    labels = np.array(["left", "middle", "right"])[np.digitize(X[:, 0], [-1, 1])]
    model = classifier().fit(X, labels)
    assert list(model.classes_) == ["left", "middle", "right"]
    assert model.score(X, labels) > 0.95
    assert_allclose(model.predict_proba(X).sum(axis=1), 1)
    with pytest.raises(ValueError, match="class"):
        classifier().fit(X, np.full(200, "left"))


# ---- scikit-learn ----------------------------------------------------------------------------------------------------


def test_searches_and_stacks() -> None:
    X, y = data()
    grid = {"leaf_size": [20, 100], "kernel__length_scale": [0.01, 1.5]}
    search = GridSearchCV(regressor(n_trees=1), grid, cv=2).fit(X, y)
    assert search.best_params_["kernel__length_scale"] == 1.5
    stack = StackingRegressor([("trees", regressor()), ("line", LinearRegression())], cv=2).fit(X, y)
    assert stack.score(X, y) > 0.8


def test_displays() -> None:
    plt = pytest.importorskip("matplotlib.pyplot")
    X, y = data()
    labels, numbers = classifier().fit(X, y > 0), regressor().fit(X, y)
    display = DecisionBoundaryDisplay.from_estimator(labels, X, grid_resolution=9, response_method="predict_proba")
    assert display.response.shape == (9, 9)
    assert_array_equal(PredictionErrorDisplay.from_estimator(numbers, X, y, subsample=None).y_pred, numbers.predict(X))
    assert_array_equal(CalibrationDisplay.from_estimator(labels, X, y > 0).y_prob, labels.predict_proba(X)[:, 1])
    plt.close("all")


@pytest.mark.parametrize("model", [regressor(uncertainty=True), classifier()], ids=lambda model: type(model).__name__)
def test_copies(model: HierarchicalRegressor) -> None:
    X, y = data()
    fitted = clone(model).fit(X, y > 0)
    assert_array_equal(pickle.loads(pickle.dumps(fitted)).predict(X), fitted.predict(X))
    assert_array_equal(clone(fitted).fit(X, y > 0).predict(X), fitted.predict(X))
    assert "trees_" not in vars(clone(fitted))


@pytest.mark.parametrize("model", [regressor(uncertainty=True), classifier()], ids=lambda model: type(model).__name__)
def test_ctrl_c_leaves_the_estimator_as_it_was(model: HierarchicalRegressor) -> None:
    X, y = data()
    fitted = clone(model).fit(X, y > 0)
    before = fitted.predict(X)

    def interrupt(record: object) -> bool:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fitted.set_params(callbacks=interrupt).fit(X[:50] + 1, y[:50] > 0)
    assert_array_equal(fitted.predict(X), before)
