"""Every estimator fits and predicts from a source as from the same rows in an array."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from plain import plain
from sklearn.preprocessing import StandardScaler

import gyrfalcon
from gyrfalcon import (
    BBKB,
    BKB,
    DPP,
    DivideAndConquerRegressor,
    ExactClassifier,
    ExactRegressor,
    FalkonClassifier,
    FalkonRegressor,
    NystromRegressor,
    NytroRegressor,
)
from gyrfalcon.centers import Given
from gyrfalcon.estimators import EigenProRegressor, RandomFeaturesClassifier, RandomFeaturesRegressor
from gyrfalcon.kernels import Gaussian
from gyrfalcon.sources import ArrayRows


class Stream:
    """A source with no more than the four members, which counts how often it is read."""

    def __init__(self, X, names=None):
        self.X, self.feature_names = X, names
        self.shape, self.dtype = X.shape, X.dtype
        self.reads = 0

    def blocks(self, size):
        self.reads += 1
        for start in range(0, len(self.X), size):
            yield self.X[start : start + size].copy()

    def take(self, indices):
        return self.X[indices]


def data(n=400, d=3, dtype=np.float64):
    rng = np.random.default_rng(0)
    X = (rng.standard_normal((n, d)) * [1, 20, 0.1][:d] + [0, 100, 0][:d]).astype(dtype)
    y = np.sin(X[:, 0]) + 0.1 * (X[:, 1] - 100)
    return X, y


ESTIMATORS = [
    plain(FalkonRegressor, n_centers=30, random_state=0),
    plain(FalkonRegressor, n_centers=30, random_state=0, loss="huber"),
    plain(FalkonRegressor, n_centers=30, random_state=0, centers="leverage", early_stopping=True),
    plain(FalkonClassifier, n_centers=30, random_state=0),
    plain(FalkonClassifier, n_centers=30, random_state=0, loss="logistic"),
    plain(FalkonClassifier, n_centers=30, random_state=0, loss="squared_hinge"),
    plain(NystromRegressor, n_centers=30, random_state=0, penalties=[1e-3, 1e-6], uncertainty=True),
    plain(NystromRegressor, n_centers=30, random_state=0, solver="sgd", max_iter=2),
    plain(NytroRegressor, n_centers=30, random_state=0, max_iter=20),
    plain(ExactRegressor, random_state=0),
    plain(ExactClassifier, random_state=0, penalty=1e-3),
    plain(DivideAndConquerRegressor, random_state=0, n_partitions=3),
    plain(EigenProRegressor, random_state=0, max_iter=1),
    plain(RandomFeaturesRegressor, n_components=30, random_state=0),
    plain(RandomFeaturesRegressor, n_components=30, random_state=0, solver="sgd", max_iter=2),
    plain(RandomFeaturesClassifier, n_components=30, random_state=0),
]


@pytest.mark.parametrize("model", ESTIMATORS, ids=repr)
@pytest.mark.parametrize("scale", [False, True])
def test_same_model_as_from_an_array(model, scale):
    X, y = data()
    if hasattr(model, "class_weight"):
        y = np.where(y > 0, "up", "down")
    model = model.set_params(scale=scale)
    names = ["a", "b", "c"]
    expected = model.fit(X, y).predict(X)
    name = "feature_coef_" if isinstance(model, RandomFeaturesRegressor | RandomFeaturesClassifier) else "dual_coef_"
    coef = vars(model)[name]
    rows = Stream(X, names)
    model.fit(rows, y)
    assert_array_equal(vars(model)[name], coef)
    assert model.n_features_in_ == 3
    assert_array_equal(model.feature_names_in_, names)
    assert_array_equal(model.predict(rows), expected)
    assert rows.reads > 0


@pytest.mark.parametrize("size", [{"size": 4}, {"expected_size": 4, "n_centers": 30}], ids=str)
def test_same_samples_as_from_an_array(size):
    X = data()[0] / [1, 20, 0.1]
    rows = Stream(X, ["a", "b", "c"])
    expected = DPP(Gaussian(1.0), random_state=0, **size).fit(X).sample(5)
    process = DPP(Gaussian(1.0), random_state=0, **size).fit(rows)
    assert list(map(list, process.sample(5))) == list(map(list, expected))
    assert_array_equal(process.feature_names_in_, ["a", "b", "c"])


@pytest.mark.parametrize("cls", [BKB, BBKB])
def test_same_arms_as_from_an_array(cls):
    X, y = data()
    arms = []
    for rows in (X, Stream(X, ["a", "b", "c"])):
        bandit = cls(Gaussian(10.0), random_state=0).fit(rows)
        for _ in range(5):
            chosen = bandit.ask()
            bandit.tell(chosen, y[chosen])
        arms.append((bandit.counts_, bandit.best_))
    assert_array_equal(arms[0][0], arms[1][0])
    assert arms[0][1] == arms[1][1]
    assert_array_equal(bandit.feature_names_in_, ["a", "b", "c"])
    with pytest.raises(ValueError, match="candidate 7 has NaN"):
        cls(Gaussian(10.0)).fit(Bad(X, 7))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_scale_is_a_standard_scaler(dtype):
    X, y = data()
    scaled = StandardScaler().fit_transform(X).astype(dtype)
    model = plain(
        FalkonRegressor,
        n_centers=50,
        penalty=1e-3,
        max_iter=60,
        random_state=0,
        scale=True,
        dtype=dtype,
    ).fit(X, y)
    expected = plain(FalkonRegressor, n_centers=50, penalty=1e-3, max_iter=60, random_state=0).fit(scaled, y)
    rtol = 1e-3 if dtype == "float32" else 1e-6
    assert_allclose(model.predict(X), expected.predict(scaled), rtol=rtol, atol=rtol)
    assert_allclose(model.mean_, X.mean(axis=0))
    assert_allclose(model.scale_, X.std(axis=0))
    model.set_params(scale=False).fit(X, y)
    assert model.scale_ is None


def test_scaling_and_saving(tmp_path):
    X, y = data()
    model = plain(FalkonRegressor, n_centers=20, scale=True).fit(X, y)
    model.save(tmp_path / "m.gyr")
    assert_array_equal(gyrfalcon.load(tmp_path / "m.gyr").predict(X), model.predict(X))


def test_given_centers_are_in_the_units_of_the_rows():
    X, y = data()
    drawn = plain(FalkonRegressor, n_centers=20, scale=True, random_state=0, preconditioner="falkon").fit(X, y)
    points = drawn.centers_ * drawn.scale_ + drawn.mean_
    for centers in (points, Given(points)):
        given = plain(FalkonRegressor, centers=centers, scale=True, preconditioner="falkon").fit(X, y)
        assert_allclose(given.centers_, drawn.centers_, atol=1e-12)
        assert_allclose(given.predict(X), drawn.predict(X), rtol=1e-6)


def test_held_out_rows_have_no_say_in_the_scale():
    X, y = data()
    model = plain(FalkonRegressor, n_centers=20, scale=True, early_stopping=True, random_state=0).fit(X, y)
    assert np.abs(model.mean_ - X.mean(axis=0)).max() > 1e-6


def test_sample_weights_and_validation_rows_from_a_source():
    X, y = data()
    weight = np.random.default_rng(1).random(400)
    model = plain(FalkonRegressor, n_centers=30, random_state=0, scale=True, max_iter=5)
    expected = model.fit(X, y, weight, X[:50], y[:50]).history_
    history = model.fit(Stream(X), y, weight, Stream(X[:50]), y[:50]).history_
    assert [record["validation_error"] for record in history] == [record["validation_error"] for record in expected]


def test_rows_in_another_precision():
    X, y = data(dtype=np.float32)
    model = plain(FalkonRegressor, n_centers=30, random_state=0, dtype="float64").fit(Stream(X), y)
    assert model.centers_.dtype == np.float64
    expected = plain(FalkonRegressor, n_centers=30, random_state=0).fit(X.astype(np.float64), y)
    assert_array_equal(model.dual_coef_, expected.dual_coef_)
    rough = plain(FalkonRegressor, "laplacian", n_centers=30, penalty=1e-3)
    assert rough.fit(Stream(X), y).centers_.dtype == np.float32


def test_a_memory_map(tmp_path):
    X, y = data()
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    model = plain(FalkonRegressor, n_centers=30, random_state=0)
    assert_array_equal(model.fit(mapped, y).predict(mapped), model.fit(X, y).predict(X))


class Bad(Stream):
    def __init__(self, X, at):
        super().__init__(X.copy())
        self.X[at, 1] = np.nan


def test_bad_sources():
    X, y = data()
    model = plain(FalkonRegressor, n_centers=30, random_state=0)
    with pytest.raises(ValueError, match=r"row 39[89] has nan in feature 1: remove"):
        model.fit(Bad(X, 399 if 399 not in model.fit(X, y).centers_ else 398), y)
    with pytest.raises(ValueError, match="feature 1 has NaN"):
        model.set_params(scale=True).fit(Bad(X, 7), y)
    model.set_params(scale=False)
    with pytest.raises(ValueError, match="X has 400 rows and y has 399"):
        model.fit(Stream(X), y[:-1])
    with pytest.raises(ValueError, match="requires y to be passed"):
        model.fit(Stream(X), None)
    with pytest.raises(ValueError, match="no rows"):
        model.fit(Stream(X[:0]), y[:0])
    with pytest.raises(ValueError, match="X_val has 10 rows and y_val has 9"):
        model.fit(Stream(X), y, X_val=Stream(X[:10]), y_val=y[:9])
    model.fit(Stream(X, ["a", "b", "c"]), y)
    with pytest.raises(ValueError, match="X has 2 features, but FalkonRegressor is expecting 3"):
        model.predict(Stream(X[:, :2].copy()))
    with pytest.raises(ValueError, match="feature 1 of X is 'c', but FalkonRegressor was fitted with 'b' there"):
        model.predict(Stream(X, ["a", "c", "b"]))


def test_a_source_that_shrinks_during_the_fit():
    X, y = data()
    rows = Stream(X)

    def shrink(record):
        rows.X = X[:200]

    with pytest.raises(ValueError, match="gave 200 rows where its shape says 400: did it change meanwhile"):
        plain(FalkonRegressor, n_centers=30, callbacks=shrink, memory_budget=0).fit(rows, y)


def test_rows_that_must_be_in_memory_but_do_not_fit():
    X, y = data()
    model = plain(EigenProRegressor, memory_budget="1kB")
    with pytest.raises(MemoryError, match=r"needs X in memory, 9\.6 kB, and memory_budget='1kB' allows 1 kB"):
        model.fit(Stream(X), y)


def test_an_array_is_not_read_as_a_source():
    X, y = data()
    model = plain(FalkonRegressor, n_centers=30, random_state=0)
    assert_array_equal(model.fit(ArrayRows(X), y).dual_coef_, model.fit(X, y).dual_coef_)


def test_a_warm_start_does_not_take_centers_in_other_units():
    X = 5 * np.random.default_rng(0).standard_normal((200, 2)) + 3
    y = np.sin(X[:, 0])
    cold = plain(FalkonRegressor, n_centers=10, scale=True, random_state=0).fit(X, y)
    warm = plain(FalkonRegressor, n_centers=10, warm_start=True, random_state=0).fit(X, y)
    assert_array_equal(warm.set_params(scale=True).fit(X, y).centers_, cold.centers_)


def test_a_table_whose_columns_are_named_like_the_members_of_a_source():
    pandas = pytest.importorskip("pandas")
    X = np.random.default_rng(0).standard_normal((60, 3))
    table = pandas.DataFrame(X, columns=["blocks", "take", "dtype"])
    expected = plain(FalkonRegressor, n_centers=10, random_state=0).fit(X, X[:, 0])
    assert_array_equal(
        plain(FalkonRegressor, n_centers=10, random_state=0).fit(table, X[:, 0]).dual_coef_, expected.dual_coef_
    )


def test_held_out_rows_are_read_once():
    """Readings: scaling, those that are held out, and one for each pass; the same bits as of an array."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((2_000, 3))
    y = np.sin(X[:, 0])
    rows = Stream(X)
    options = {"n_centers": 20, "penalty": 1e-4, "max_iter": 6, "tol": 0, "random_state": 0, "early_stopping": True}
    model = FalkonRegressor(memory_budget=0, **options).fit(rows, y)
    assert rows.reads == 1 + model.history_[-1]["passes"]  # of `blocks`; what is held out is taken
    assert_array_equal(model.dual_coef_, FalkonRegressor(memory_budget=0, **options).fit(X, y).dual_coef_)


def test_held_out_rows_that_do_not_fit_stay_in_the_file(monkeypatch):
    monkeypatch.setattr("gyrfalcon.fitting.data._SHARE_HELD", 10**12)
    X = np.random.default_rng(0).standard_normal((500, 3))
    options = {"n_centers": 20, "penalty": 1e-4, "max_iter": 6, "tol": 0, "random_state": 0, "early_stopping": True}
    rows = Stream(X)
    model = FalkonRegressor(memory_budget=0, **options).fit(rows, X[:, 0])
    assert rows.reads > 2 + model.history_[-1]["passes"]
    assert_array_equal(model.dual_coef_, FalkonRegressor(memory_budget=0, **options).fit(X, X[:, 0]).dual_coef_)
