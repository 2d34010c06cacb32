"""Targets and weights that stay in a file: the same fits as with arrays, and nothing of the length of the rows."""

from __future__ import annotations

import copy
import os
import pickle
from functools import partial

import numpy as np
import pyarrow as pa
import pytest
from numpy.testing import assert_array_equal
from pyarrow import parquet
from sklearn.base import clone
from sklearn.metrics import r2_score

import gyrfalcon
from gyrfalcon import (
    FalkonClassifier,
    FalkonRegressor,
    KernelKMeans,
    KernelPCA,
    NoveltyDetector,
    NystromRegressor,
    NytroRegressor,
    RandomFeaturesClassifier,
    RandomFeaturesRegressor,
)
from gyrfalcon._utils import sampling, statistics
from gyrfalcon.centers import Given
from gyrfalcon.fitting import data as fitting_data
from gyrfalcon.fitting import posterior, scores
from gyrfalcon.kernels import Gaussian, Linear
from gyrfalcon.losses import Huber, Quantile, SquaredHinge
from gyrfalcon.operators import KernelOperator, Shifted
from gyrfalcon.sources import ArrayRows, as_rows, columns, rereading, row_matrix
from gyrfalcon.sources.base import SubsetRows
from gyrfalcon.sources.columns import Column, Vector, WeightedColumn, stored_column
from gyrfalcon.sources.rereading import CheckedRows, GroupHashes, RowsChangedError
from gyrfalcon.sources.scratch import temporary_file
from gyrfalcon.storage.describe import describe

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

RNG = np.random.default_rng(0)
N = 3_000
X = RNG.standard_normal((N, 3)).astype(np.float32)
Y = (np.sin(2 * X[:, 0]) + X[:, 1] + 5).astype(np.float32)


@pytest.fixture
def long(monkeypatch):
    """Let a thousand rows be very many."""
    monkeypatch.setattr(columns, "LONG", 1_000)
    monkeypatch.setattr(rereading, "_MANY_ROWS", 1_000)


@pytest.mark.filterwarnings("error")
def test_a_file_is_closed_with_its_last_owner():
    file = temporary_file(8)
    owners = [file, file]
    descriptor = file.fileno()
    del file, owners[0]
    os.fstat(descriptor)
    owners.clear()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def column_of(values):
    return stored_column(as_rows(values))


def npy(folder, target):
    np.save(folder / "X.npy", X)
    np.save(folder / "y.npy", target)
    return gyrfalcon.open(folder / "X.npy", target=folder / "y.npy")


def table(folder, target):
    names = {f"y{j}": column for j, column in enumerate(np.atleast_2d(target.T))}
    parquet.write_table(pa.table({**dict(zip("abc", X.T, strict=True)), **names}), folder / "t.parquet")
    return gyrfalcon.open(folder / "t.parquet", target="y0" if target.ndim == 1 else list(names))


# ---- the column ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_column_has_the_numbers_of_an_array(dtype):
    Z = RNG.standard_normal((1_234, 2)).astype(dtype)
    column, shift, unit = column_of(Z), np.array([0.3, -7.0]), np.array([4.0, 0.5])
    less = np.subtract(Z, shift, out=np.empty_like(Z), casting="same_kind")
    indices = RNG.integers(0, len(Z), 300)
    for found, expected in (
        (column, Z),
        (column.minus(shift), less),
        (column.minus(shift).over(unit).astype(np.float32), (less / unit).astype(np.float32)),
    ):
        assert (found.shape, found.dtype, len(found)) == (expected.shape, expected.dtype, len(Z))
        assert_array_equal(found[:], expected)
        assert_array_equal(found[100:250], expected[100:250])
        assert_array_equal(found[1_200:5_000], expected[1_200:])
        assert_array_equal(found[indices], expected[indices])
        assert_array_equal(np.concatenate(list(found.parts())), expected)
        assert_array_equal(found.min(axis=0), expected.min(axis=0))
        assert_array_equal(found.max(axis=0), expected.max(axis=0))
        assert np.max(found, initial=0.0) == max(0.0, expected.max())
        assert describe(found) == describe(expected)


def test_taking_rows_reads_no_more_than_their_neighbours(monkeypatch):
    column, most = column_of(RNG.standard_normal((50_000, 1))), []
    read = Column._read
    monkeypatch.setattr(Column, "_read", lambda self, a, b: most.append(b - a) or read(self, a, b))
    column[np.array([49_999, 0, 20_000, 20_001])]
    assert sum(most) <= 5


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_a_number_that_is_not_finite_is_refused(wrong):
    values = np.zeros((100, 1))
    values[57] = wrong
    with pytest.raises(ValueError, match="NaN or infinity, first in row 57"):
        column_of(values)


def test_without_room_on_the_disk_there_is_no_column(monkeypatch):
    monkeypatch.setattr(columns, "temporary_file", lambda size: None)
    assert column_of(np.zeros((10, 1))) is None


def test_products_with_a_column_are_those_with_an_array():
    Z = RNG.standard_normal((N, 2)).astype(np.float32)
    K, column = KernelOperator(Gaussian(1.0), X, X[:50], memory_budget=0), column_of(Z)
    V = RNG.standard_normal((50, 2))
    assert_array_equal(K.rmatmat(column), K.rmatmat(Z))
    assert_array_equal(K.sandwich(V, Shifted(column)), K.sandwich(V, Shifted(Z)))
    kept = KernelOperator(Gaussian(1.0), X, X[:50], memory_budget="1GB")
    kept.fill()
    assert_array_equal(kept.rmatmat(column), kept.rmatmat(Z))


# ---- fits ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("opened", [npy, table])
@pytest.mark.parametrize("target", [Y, Y.astype(np.float64) * 1e9, np.round(Y * 10).astype(np.int64)])
@pytest.mark.parametrize("more", [{}, {"preconditioner": "krill"}, {"penalty": "auto"}, {"fit_intercept": False}])
def test_a_fit_has_the_bits_of_one_with_y_in_memory(tmp_path, long, opened, target, more):
    data = opened(tmp_path, target)
    settings = {"n_centers": 100, "max_iter": 4, "tol": 0.0, "random_state": 0, "penalty": 1e-6, **more}
    in_file = FalkonRegressor(**settings).fit(data)
    assert "y" not in data._kept  # which was not read into memory
    in_memory = FalkonRegressor(**settings).fit(data.X, data.y)
    assert_array_equal(in_file.dual_coef_, in_memory.dual_coef_)
    assert_array_equal(in_file.offset_, in_memory.offset_)
    assert in_file.predict(data.X).shape == (N,)


def test_data_can_be_copied_after_a_fit(tmp_path, long):
    data = npy(tmp_path, Y)
    model = FalkonRegressor(Gaussian(1.0), n_centers=20, penalty=1e-3, random_state=0)
    expected = model.fit(data).dual_coef_
    for other in (pickle.loads(pickle.dumps(data)), copy.deepcopy(data)):
        assert_array_equal(model.fit(other).dual_coef_, expected)


def test_several_targets_in_a_file(tmp_path, long):
    data = table(tmp_path, np.column_stack([Y, -2 * Y]))
    in_file = FalkonRegressor(n_centers=50, random_state=0).fit(data)
    assert "y" not in data._kept
    assert_array_equal(in_file.dual_coef_, FalkonRegressor(n_centers=50, random_state=0).fit(data.X, data.y).dual_coef_)
    assert in_file.predict(data.X).shape == (N, 2)


def test_a_sample_preconditions_a_fit_from_a_file(tmp_path, long):
    data = npy(tmp_path, Y)
    settings = {"n_centers": 60, "preconditioner": "sample", "random_state": 0}
    in_file = FalkonRegressor(**settings).fit(data)
    assert in_file.history_[-1]["preconditioner"] == "sample"
    assert_array_equal(in_file.dual_coef_, FalkonRegressor(**settings).fit(data.X, data.y).dual_coef_)


class OwnLoss(Huber):
    """A loss of a user, which may need all of y at once."""


class OwnHinge(SquaredHinge):
    """A loss of a user for labels."""


def assert_same_fit(make, data, *arrays):
    """Compare a fit from files with one with y in memory, and return the first."""
    in_file = make().fit(data)
    assert "y" not in data._kept
    in_memory = make().fit(*arrays)
    values = vars(in_memory)
    for name in ("dual_coef_", "feature_coef_", "offset_", "penalty_"):
        if name in values:
            assert_array_equal(getattr(in_file, name), values[name], err_msg=name)
    return in_file


LOSSES = ["huber", "poisson", "squared_epsilon_insensitive", Quantile(0.7)]


@pytest.mark.parametrize("part", [4096, 1 << 19])
@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_other_losses_have_the_bits_of_a_fit_in_memory(tmp_path, long, monkeypatch, loss, part):
    monkeypatch.setattr(row_matrix, "_PART", part)
    monkeypatch.setattr(row_matrix, "_SMALLEST_PART", 700)
    data = npy(tmp_path, np.abs(Y))
    settings = {"n_centers": 60, "max_iter": 5, "penalty": 1e-5, "random_state": 0, "loss": loss}
    assert_same_fit(lambda: FalkonRegressor(**settings), data, data.X, np.abs(Y))


@pytest.mark.devices
@pytest.mark.parametrize("device", ["cpu", ["cpu", "cpu"]], ids=["one", "two"])
@pytest.mark.parametrize("loss", ["squared", "huber", "logistic"])
def test_devices_read_y_from_its_file_too(tmp_path, long, monkeypatch, loss, device):
    pytest.importorskip("torch")
    monkeypatch.setattr(row_matrix, "_PART", 4096)
    monkeypatch.setattr(row_matrix, "_SMALLEST_PART", 700)
    make, target = (FalkonClassifier, (Y > 5).astype(np.int64)) if loss == "logistic" else (FalkonRegressor, Y)
    data = npy(tmp_path, target)
    settings = {"n_centers": 60, "max_iter": 5, "penalty": 1e-5, "random_state": 0, "loss": loss, "device": device}
    assert_same_fit(lambda: make(**settings), data, data.X, target)


def test_several_quantiles_of_a_target_in_a_file(tmp_path, long):
    data = npy(tmp_path, Y)
    settings = {"n_centers": 60, "max_iter": 5, "penalty": 1e-5, "random_state": 0}
    found = assert_same_fit(lambda: FalkonRegressor(loss="quantile", quantiles=[0.1, 0.9], **settings), data, data.X, Y)
    assert found.predict(X).shape == (N, 2)


@pytest.mark.parametrize("loss", ["logistic", "squared_hinge", "hinge"])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_losses_of_labels_have_the_bits_of_a_fit_in_memory(tmp_path, long, monkeypatch, loss, n_classes):
    monkeypatch.setattr(row_matrix, "_PART", 4096)
    monkeypatch.setattr(row_matrix, "_SMALLEST_PART", 700)
    labels = np.digitize(Y, [5.0, 6.0][: n_classes - 1])
    data = npy(tmp_path, labels)
    settings = {"n_centers": 60, "max_iter": 5, "penalty": 1e-5, "random_state": 0, "loss": loss}
    assert_same_fit(lambda: FalkonClassifier(**settings), data, data.X, labels)


@pytest.mark.parametrize(
    "make",
    [
        lambda: NystromRegressor(n_centers=50, penalty=1e-6, random_state=0),
        lambda: NystromRegressor(n_centers=50, penalties=[1e-6, 1e-3], choose_by="loo", random_state=0),
        lambda: NystromRegressor(n_centers=50, penalty=1e-4, solver="cg", max_iter=5, random_state=0),
        lambda: NytroRegressor(n_centers=50, solver="gd", max_iter=5, early_stopping=False, random_state=0),
        lambda: RandomFeaturesRegressor(n_components=50, penalty=1e-4, random_state=0),
    ],
)
def test_other_estimators_hold_no_target(tmp_path, long, make):
    data = npy(tmp_path, Y)
    assert_same_fit(make, data, data.X, Y)


@pytest.mark.parametrize("kernel", [Gaussian(1.0), Linear() + 1.0])  # k(x, x) that is the same, and that is not
@pytest.mark.parametrize("estimator", [FalkonRegressor, NystromRegressor])
def test_uncertainty_holds_no_target_and_no_weights(tmp_path, long, few, monkeypatch, estimator, kernel):
    monkeypatch.setattr(posterior, "_LISTED", 1_000)
    monkeypatch.setattr(posterior, "MOST_SCORES", 800)
    settings = {"n_centers": 50, "penalty": 1e-4, "random_state": 0, "uncertainty": True}
    make = lambda: estimator(kernel, **settings)  # noqa: E731
    found = assert_same_fit(make, npy(tmp_path, Y), X, Y), assert_same_weighted_fit(make, weighted(tmp_path, Y), Y)
    for model, expected in zip(found, (make().fit(X, Y), make().fit(X, Y, sample_weight=W)), strict=True):
        assert_array_equal(model.predict(X[:50], return_std=True)[1], expected.predict(X[:50], return_std=True)[1])
        assert_array_equal(model.predict_interval(X[:50])[0], expected.predict_interval(X[:50])[0])


def test_random_features_hold_no_labels(tmp_path, long):
    labels = np.digitize(Y, [5.0, 6.0])
    data = npy(tmp_path, labels)
    assert_same_fit(
        lambda: RandomFeaturesClassifier(n_components=50, penalty=1e-4, random_state=0), data, data.X, labels
    )


def test_scores_of_files_hold_no_predictions(tmp_path, long, monkeypatch):
    monkeypatch.setattr(scores, "_ROWS", 700)
    data = npy(tmp_path, Y)
    model = FalkonRegressor(n_centers=30, penalty=1e-4, random_state=0).fit(X, Y)
    exact = r2_score(Y.astype(np.float64), model.predict(X).astype(np.float64))  # in float32 it is rounded
    assert model.score(data) == pytest.approx(exact, rel=1e-9)
    assert "y" not in data._kept
    constant = npy(tmp_path, np.full(N, 2.0, np.float32))
    assert model.score(constant) == model.score(X, np.full(N, 2.0)) == 0.0
    (tmp_path / "table").mkdir()
    both = np.column_stack([Y, -2 * Y + X[:, 2]])
    several = table(tmp_path / "table", both)
    two = FalkonRegressor(n_centers=30, penalty=1e-4, random_state=0).fit(several)
    exact = r2_score(both.astype(np.float64), two.predict(several).astype(np.float64))
    assert two.score(several) == pytest.approx(exact, rel=1e-9)
    for labels in (np.digitize(Y, [5.0, 6.0]), Y > 5):
        labelled = npy(tmp_path, labels)
        classifier = FalkonClassifier(n_centers=30, penalty=1e-4, random_state=0).fit(X, labels)
        assert classifier.score(labelled) == classifier.score(X, labels)
        assert "y" not in labelled._kept


def test_numbers_of_the_rows_of_a_file_are_in_files(tmp_path, long, monkeypatch):
    monkeypatch.setattr(row_matrix, "_PART", 700)
    monkeypatch.setattr(row_matrix, "_SMALLEST_PART", 700)
    made = []
    init = row_matrix.FileMatrix.__init__
    monkeypatch.setattr(row_matrix.FileMatrix, "__init__", lambda self, *a: made.append(a[1]) or init(self, *a))
    data = npy(tmp_path, Y)
    for contamination in ("auto", 0.05):
        detector = NoveltyDetector(n_centers=50, contamination=contamination, random_state=0)
        found, expected = clone(detector).fit(data.X), clone(detector).fit(X)
        assert found.offset_ == pytest.approx(expected.offset_, rel=1e-9)
        assert found.effective_dimension_ == pytest.approx(expected.effective_dimension_, rel=1e-9)
    assert made == [(N, 1)] * 2
    clusters = KernelKMeans(3, n_centers=50, n_init=2, max_iter=5, random_state=0)
    found, expected = clone(clusters).fit(data.X), clone(clusters).fit(X)
    assert len(made) > 2
    assert_array_equal(found.labels_, expected.labels_)
    assert found.inertia_ == expected.inertia_
    assert_array_equal(pickle.loads(pickle.dumps(found)).labels_, expected.labels_)
    pca = KernelPCA(3, n_centers=50, random_state=0)
    assert_array_equal(clone(pca).fit(data.X).dual_coef_, clone(pca).fit(X).dual_coef_)


def test_a_matrix_in_a_file_is_like_an_array():
    rng = np.random.default_rng(0)
    values, found = (
        rng.standard_normal((5_000, 2)).astype(np.float32),
        row_matrix.row_matrix(5_000, 2, np.float32, in_file=True),
    )
    assert isinstance(found, row_matrix.FileMatrix)
    for at in row_matrix.row_parts(5_000, 2):
        found[at] = values[at]
    found[10:20] = np.float32(3)
    values[10:20] = 3
    assert_array_equal(found[:], values)
    assert_array_equal(found[np.array([4_999, 3, 15])], values[[4_999, 3, 15]])
    assert_array_equal(found.mapped(), values)


def test_what_needs_all_of_y_still_reads_it(tmp_path, long):
    data = npy(tmp_path, Y)
    FalkonRegressor(n_centers=30, random_state=0, penalty=1e-4, loss=OwnLoss()).fit(data)
    assert "y" in data._kept
    assert data.long_target() is None


def test_a_checkpoint_is_the_same_for_y_in_a_file_and_in_memory(tmp_path, long):
    data = npy(tmp_path, Y)
    settings = {"n_centers": 50, "random_state": 0, "checkpoint": tmp_path / "state"}
    first = FalkonRegressor(**settings).fit(data)
    again = FalkonRegressor(**settings).fit(data.X, data.y)
    assert_array_equal(first.dual_coef_, again.dual_coef_)
    assert again.history_[-1]["seconds"] == first.history_[-1]["seconds"]  # nothing was computed again


# ---- held-out rows ---------------------------------------------------------------------------------------------------

HOLDS_OUT = {
    "stopping": lambda: FalkonRegressor(n_centers=60, penalty=1e-6, early_stopping=True, random_state=0),
    "sample": lambda: FalkonRegressor(n_centers=60, preconditioner="sample", early_stopping=True, random_state=0),
    "growing": lambda: FalkonRegressor(n_centers="auto", penalty=1e-6, random_state=0),
    "huber": lambda: FalkonRegressor(n_centers=60, loss="huber", max_iter=4, early_stopping=True, random_state=0),
    "penalties": lambda: NystromRegressor(n_centers=50, penalties=[1e-6, 1e-3], choose_by="validation", random_state=0),
    "sizes": lambda: NystromRegressor(n_centers=[20, 50], penalties=[1e-6, 1e-3], random_state=0),
    "nystrom": lambda: NystromRegressor(n_centers=50, solver="cg", max_iter=9, early_stopping=True, random_state=0),
    "nytro": lambda: NytroRegressor(n_centers=50, solver="gd", max_iter=9, random_state=0),
}


@pytest.mark.parametrize("name", HOLDS_OUT)
def test_fits_that_hold_rows_out_hold_none_of_the_others(tmp_path, long, few, name):
    make = HOLDS_OUT[name]
    for opened in (npy, table):
        data = opened(tmp_path, Y)
        assert_same_fit(make, data, data.X, Y)
    assert_same_fit(make, npy(tmp_path, Y), X, Y)
    assert_same_weighted_fit(make, weighted(tmp_path, Y), Y)


def test_a_long_file_holds_out_at_most_so_many_rows(tmp_path, long, monkeypatch):
    monkeypatch.setattr(fitting_data, "MOST_HELD", 100)
    drawn = []
    monkeypatch.setattr(fitting_data, "draw", lambda *asked: drawn.append(sampling.draw(*asked)) or drawn[-1])
    settings = {"centers": Given(X[:60]), "penalty": 1e-6, "random_state": 0, "early_stopping": True}
    found = FalkonRegressor(**settings).fit(npy(tmp_path, Y))
    (held,) = drawn
    assert len(held) == 100
    rest = np.delete(np.arange(N), held)
    expected = FalkonRegressor(**settings).fit(X[rest], Y[rest], X_val=X[held], y_val=Y[held])
    assert_array_equal(found.dual_coef_, expected.dual_coef_)
    assert [record["validation_error"] for record in found.history_] == [
        record["validation_error"] for record in expected.history_
    ]


@pytest.mark.parametrize("others", [[], [0], [N - 1], [0, 1, 2], [5, 6, 900, 2999], range(0, N, 3)])
def test_the_rest_of_the_rows_are_those_of_an_array(others):
    others = np.array(list(others), dtype=np.intp)
    rest, expected = sampling.Rest(N, others), np.delete(np.arange(N), others)
    assert len(rest) == len(expected)
    assert_array_equal(rest, expected)
    for at in (slice(0, 0), slice(3, 1_700), slice(len(expected) - 1, None), RNG.integers(0, len(expected), 50)):
        assert_array_equal(rest[at], expected[at])
    values = np.arange(N + 1)
    assert_array_equal(np.searchsorted(rest, values), np.searchsorted(expected, values))
    column = column_of(Y[:, None])
    chosen = column.minus(np.array([5.0])).among(rest)
    assert_array_equal(chosen[:], column.minus(np.array([5.0]))[expected])
    assert_array_equal(chosen[17:900], chosen[:][17:900])
    assert_array_equal(chosen[np.array([9, 4, 9])], chosen[:][[9, 4, 9]])
    assert (chosen.min(), chosen.max()) == (chosen[:].min(), chosen[:].max())
    vector = Vector(column_of(W[:, None]), (2.0,)).among(rest)
    assert_array_equal(vector[:], W[expected].astype(np.float64) / 2)
    assert (vector.min(), vector.max()) == (vector[:].min(), vector[:].max())
    rows = as_rows(X)
    assert SubsetRows(rows, rest).fingerprint() == SubsetRows(rows, expected).fingerprint()
    for one, other in zip(SubsetRows(rows, rest).blocks(700), SubsetRows(rows, expected).blocks(700), strict=True):
        assert_array_equal(one, other)


@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_classifiers_that_hold_rows_out_hold_no_labels(tmp_path, long, few, loss):
    labels = np.digitize(Y, [5.0, 6.0])
    settings = {"n_centers": 60, "max_iter": 4, "penalty": 1e-5, "random_state": 0, "loss": loss}
    make = lambda: FalkonClassifier(early_stopping=True, **settings)  # noqa: E731
    data = npy(tmp_path, labels)
    assert_same_fit(make, data, data.X, labels)
    assert_same_weighted_fit(make, weighted(tmp_path, labels), labels)


# ---- weights ---------------------------------------------------------------------------------------------------------

W = (0.5 + np.abs(X[:, 2]) + 3 * (np.arange(N) % 97 == 0)).astype(np.float32)


@pytest.fixture
def few(monkeypatch):
    """Let a thousand rows be many for draws, quantiles and parts of sums, too."""
    monkeypatch.setattr(sampling, "_PERMUTED", 1_000)
    monkeypatch.setattr(sampling, "_MOST", 500)
    monkeypatch.setattr(sampling, "_PART", 700)
    monkeypatch.setattr(statistics, "_MANY", 1_000)
    monkeypatch.setattr(statistics, "_PART", 700)


def weighted(folder, target, weight=W):
    np.save(folder / "X.npy", X)
    np.save(folder / "y.npy", target)
    np.save(folder / "w.npy", weight)
    return gyrfalcon.open(folder / "X.npy", target=folder / "y.npy", weight=folder / "w.npy")


def weighted_table(folder, target, weight=W):
    columns_of_it = {**dict(zip("abc", X.T, strict=True)), "y": target, "w": weight}
    parquet.write_table(pa.table(columns_of_it), folder / "t.parquet")
    return gyrfalcon.open(folder / "t.parquet", target="y", weight="w")


def test_a_vector_has_the_numbers_of_an_array():
    found, wide = Vector(column_of(W[:, None])), W.astype(np.float64)
    divided, rounded = wide / 1.7 / 0.3, (wide / 1.7 / 0.3).astype(np.float32)
    indices = RNG.integers(0, N, 300)
    for vector, expected in (
        (found, wide),
        (found / 1.7 / 0.3, divided),
        ((found / 1.7 / 0.3).astype(np.float32), rounded),
    ):
        assert (vector.shape, vector.dtype, len(vector), vector.ndim) == ((N,), expected.dtype, N, 1)
        assert_array_equal(vector[:], expected)
        assert_array_equal(vector[100:250], expected[100:250])
        assert_array_equal(vector[indices], expected[indices])
        assert_array_equal(np.concatenate(list(vector.parts())), expected)
        assert (vector.min(), vector.max()) == (expected.min(), expected.max())
        assert describe(vector) == describe(expected)


def test_products_with_weights_in_a_file_are_those_with_an_array():
    Z = RNG.standard_normal((N, 2)).astype(np.float32)
    K, column = KernelOperator(Gaussian(1.0), X, X[:50], memory_budget=0), column_of(Z)
    vector, wide = Vector(column_of(W[:, None])) / 3.0, W.astype(np.float64) / 3.0
    V = RNG.standard_normal((50, 2))
    assert_array_equal(K.rmatmat(WeightedColumn(column, vector)), K.rmatmat(wide[:, None] * Z))
    for of_column in (column, Z):
        expected = K.sandwich(V, Shifted(Z, wide))
        assert_array_equal(K.sandwich(V, Shifted(of_column, vector)), expected)
    kept = KernelOperator(Gaussian(1.0), X, X[:50], memory_budget="1GB")
    for operator in (K, kept, kept):
        images = np.empty((N, 2), np.float32), np.empty((N, 2), np.float32)
        assert_array_equal(operator.sandwich(V, vector, KV=images[0]), operator.sandwich(V, wide, KV=images[1]))
        assert_array_equal(*images)
        assert_array_equal(K.sandwich(V, vector), K.sandwich(V, wide))
    with pytest.raises(ValueError, match="one number for each row, 2000"):
        KernelOperator(Gaussian(1.0), X[:2000], X[:50]).sandwich(V, vector)


def assert_same_weighted_fit(make, data, target, weight=W):
    in_file = make().fit(data)
    assert not data._kept  # neither y nor weights were read into memory
    in_memory = make().fit(data.X, target, sample_weight=weight)
    compared = [name for name in ("dual_coef_", "feature_coef_", "offset_", "penalty_") if name in vars(in_memory)]
    for name in compared:
        assert_array_equal(getattr(in_file, name), getattr(in_memory, name), err_msg=name)
    assert "dual_coef_" in compared or "feature_coef_" in compared
    return in_file


WEIGHTED = {
    "cg": lambda: FalkonRegressor(n_centers=60, penalty=1e-6, preconditioner="falkon", random_state=0),
    "sample": lambda: FalkonRegressor(n_centers=60, preconditioner="sample", random_state=0),
    "krill": lambda: FalkonRegressor(n_centers=60, preconditioner="krill", max_iter=4, random_state=0),
    "auto": lambda: FalkonRegressor(n_centers=60, penalty="auto", random_state=0),
    "descent": lambda: FalkonRegressor(n_centers=60, penalty=1e-6, solver="gd", max_iter=4, random_state=0),
    "unscaled": lambda: FalkonRegressor(n_centers=60, fit_intercept=False, scale=False, random_state=0),
    "huber": lambda: FalkonRegressor(n_centers=60, loss="huber", max_iter=4, random_state=0),
    "poisson": lambda: FalkonRegressor(n_centers=60, loss="poisson", max_iter=4, random_state=0),
    "quantiles": lambda: FalkonRegressor(
        n_centers=60, loss="quantile", quantiles=[0.1, 0.9], max_iter=4, random_state=0
    ),
    "direct": lambda: NystromRegressor(n_centers=50, penalty=1e-6, random_state=0),
    "loo": lambda: NystromRegressor(n_centers=50, penalties=[1e-6, 1e-3], choose_by="loo", random_state=0),
    "iterated": lambda: NystromRegressor(n_centers=50, penalty=1e-4, solver="cg", max_iter=5, random_state=0),
    "nytro": lambda: NytroRegressor(n_centers=50, solver="gd", max_iter=5, early_stopping=False, random_state=0),
    "features": lambda: RandomFeaturesRegressor(n_components=50, penalty=1e-4, random_state=0),
}


@pytest.mark.parametrize("name", WEIGHTED)
def test_fits_with_weights_hold_none_of_them(tmp_path, long, few, monkeypatch, name):
    monkeypatch.setattr(row_matrix, "_PART", 4096)
    monkeypatch.setattr(row_matrix, "_SMALLEST_PART", 700)
    for opened in (weighted, weighted_table):
        assert_same_weighted_fit(WEIGHTED[name], opened(tmp_path, np.abs(Y)), np.abs(Y))


@pytest.mark.parametrize("loss", ["squared", "logistic", "hinge"])
def test_classifiers_with_weights_hold_none_of_them(tmp_path, long, few, loss):
    labels = np.digitize(Y, [5.0, 6.0])
    settings = {"n_centers": 60, "max_iter": 4, "penalty": 1e-5, "random_state": 0, "loss": loss}
    found = assert_same_weighted_fit(lambda: FalkonClassifier(**settings), weighted(tmp_path, labels), labels)
    data = weighted(tmp_path, labels)
    assert found.score(data) == pytest.approx(found.score(X, labels, sample_weight=W), rel=1e-12)
    assert not data._kept
    make = lambda: RandomFeaturesClassifier(n_components=50, penalty=1e-4, random_state=0)  # noqa: E731
    assert_same_weighted_fit(make, weighted(tmp_path, labels), labels)


@pytest.mark.devices
@pytest.mark.parametrize("loss", ["squared", "huber", "logistic"])
@pytest.mark.parametrize("preconditioner", ["falkon", "auto"])
def test_devices_read_weights_from_their_file_too(tmp_path, long, few, loss, preconditioner):
    pytest.importorskip("torch")
    make, target = (FalkonClassifier, (Y > 5).astype(np.int64)) if loss == "logistic" else (FalkonRegressor, Y)
    settings = {"n_centers": 60, "max_iter": 4, "penalty": 1e-5, "random_state": 0, "loss": loss, "device": "cpu"}
    settings["preconditioner"] = preconditioner
    assert_same_weighted_fit(lambda: make(**settings), weighted(tmp_path, target), target)


def test_scores_with_weights_hold_none_of_them(tmp_path, long, monkeypatch):
    monkeypatch.setattr(scores, "_ROWS", 700)
    data, model = weighted(tmp_path, Y), FalkonRegressor(n_centers=30, penalty=1e-4, random_state=0).fit(X, Y)
    exact = r2_score(Y.astype(np.float64), model.predict(X).astype(np.float64), sample_weight=W)
    assert model.score(data) == pytest.approx(exact, rel=1e-9)
    assert not data._kept


def test_a_checkpoint_is_the_same_for_weights_in_a_file_and_in_memory(tmp_path, long):
    data = weighted(tmp_path, Y)
    settings = {"n_centers": 50, "random_state": 0, "checkpoint": tmp_path / "state"}
    first = FalkonRegressor(**settings).fit(data)
    again = FalkonRegressor(**settings).fit(data.X, data.y, sample_weight=data.weight)
    assert_array_equal(first.dual_coef_, again.dual_coef_)
    assert again.history_[-1]["seconds"] == first.history_[-1]["seconds"]  # nothing was computed again


def test_weights_that_are_all_equal_do_not_count(tmp_path, long):
    settings = {"n_centers": 30, "penalty": 1e-4, "random_state": 0}
    data = weighted(tmp_path, Y, np.full(N, 7.0))
    assert_array_equal(
        FalkonRegressor(**settings).fit(data).dual_coef_, FalkonRegressor(**settings).fit(data.X, Y).dual_coef_
    )


def test_weights_of_zero_are_read_into_memory(tmp_path, long):
    weight = W.copy()
    weight[::3] = 0
    data = weighted(tmp_path, Y, weight)
    settings = {"n_centers": 30, "penalty": 1e-4, "random_state": 0}
    found = FalkonRegressor(**settings).fit(data)
    assert {"y", "weight"} <= set(data._kept)
    assert_array_equal(found.dual_coef_, FalkonRegressor(**settings).fit(data.X, Y, sample_weight=weight).dual_coef_)
    exact = r2_score(Y.astype(np.float64), found.predict(X).astype(np.float64), sample_weight=weight)
    assert found.score(data) == pytest.approx(exact, rel=1e-6)


@pytest.mark.parametrize(("wrong", "message"), [(-1.0, "Negative values"), (np.nan, "sample_weight contains NaN")])
def test_wrong_weights_of_files_are_refused(tmp_path, long, wrong, message):
    weight = W.copy()
    weight[1_234] = wrong
    with pytest.raises(ValueError, match=message):
        FalkonRegressor(n_centers=10).fit(weighted(tmp_path, Y, weight))


# ---- hashes of groups ------------------------------------------------------------------------------------------------


class Rewritten(ArrayRows):
    """Rows of an array that a test changes between readings."""

    in_memory, exact = False, True


def checked(values):
    return CheckedRows(Rewritten(values), GroupHashes(len(values)))


def read(rows, size):
    return sum(len(block) for block in rows.blocks(size))


@pytest.mark.parametrize("sizes", [(1_000, 4_096), (4_096, 999), (10_000, 8_192), (20_000, 1)])
def test_groups_of_the_same_rows_agree_in_blocks_of_any_size(sizes):
    rows = checked(RNG.standard_normal((10_000, 2)))
    for size in sizes:
        assert read(rows, size) == 10_000


@pytest.mark.parametrize("row", [0, 4_095, 4_096, 9_999])
def test_a_changed_row_is_found_by_its_group(row):
    values = RNG.standard_normal((10_000, 2))
    rows = checked(values)
    read(rows, 3_000)
    values[row, 1] += 1e-9
    with pytest.raises(RowsChangedError, match="or one of the 4096 rows around it"):
        read(rows, 1_024)


def test_rows_in_another_order_are_found():
    values = RNG.standard_normal((10_000, 2))
    rows = checked(values)
    read(rows, 3_000)
    values[[17, 5_000]] = values[[5_000, 17]]
    with pytest.raises(RowsChangedError):
        read(rows, 3_000)
    values[[17, 5_000]] = values[[5_000, 17]]
    values[[18, 19]] = values[[19, 18]]  # in one group
    with pytest.raises(RowsChangedError):
        read(rows, 3_000)


def test_rows_that_were_taken_are_compared():
    values = RNG.standard_normal((10_000, 2))
    rows = checked(values)
    rows.take(np.array([77, 5, 77, 9_000]))
    rows.take(np.array([5, 6]))
    values[9_000] = 0
    with pytest.raises(RowsChangedError, match="row 9000"):
        rows.take(np.array([1, 9_000]))
    with pytest.raises(RowsChangedError, match="row 9000"):
        read(rows, 4_000)


def test_a_part_of_the_rows_is_compared_and_memory_is_small():
    values = RNG.standard_normal((10_000, 2))
    rows = checked(values)
    part = rows.subset(np.arange(0, 10_000, 3))
    assert read(part, 500) == 3_334
    values[1] = 0  # which is not one of them, and was read
    with pytest.raises(RowsChangedError):
        read(part, 500)
    assert GroupHashes(10**8).nbytes < 200_000


# ---- labels ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("opened", [npy, table])
@pytest.mark.parametrize(
    ("n_classes", "dtype", "more"),
    [
        (2, np.int64, {}),
        (2, np.bool_, {"penalty": "auto"}),
        (4, np.int8, {"fit_intercept": False}),
        (4, np.uint16, {"penalty": "auto"}),
    ],
)
def test_a_classifier_has_the_bits_of_one_with_labels_in_memory(tmp_path, long, opened, n_classes, dtype, more):
    codes = np.digitize(Y, np.quantile(Y, np.arange(1, n_classes) / n_classes))
    target = codes.astype(dtype) if dtype == np.bool_ else (3 * codes).astype(dtype) + dtype(1)
    data = opened(tmp_path, target)
    settings = {"n_centers": 60, "max_iter": 4, "tol": 0.0, "random_state": 0, "penalty": 1e-6, **more}
    found = FalkonClassifier(**settings).fit(data)
    assert "y" not in data._kept
    expected = FalkonClassifier(**settings).fit(data.X, target)
    assert_array_equal(found.dual_coef_, expected.dual_coef_)
    assert_array_equal(found.classes_, expected.classes_)
    assert found.classes_.dtype == expected.classes_.dtype
    assert_array_equal(found.predict(X), expected.predict(X))


def test_labels_that_are_read_into_memory(tmp_path, long):
    """Text, floats, very many classes, integers beyond 2^53, class weights and losses of one's own."""
    labels = (Y > 5).astype(np.int64)
    for target in (labels.astype(np.float64), np.where(labels, "a", "b"), np.arange(N) * 2 + 2**60):
        data = table(tmp_path, target)
        assert data.long_labels() is None
    for more in ({"class_weight": "balanced"}, {"loss": OwnHinge()}):
        data = npy(tmp_path, labels)
        found = FalkonClassifier(n_centers=30, penalty=1e-4, max_iter=3, random_state=0, **more).fit(data)
        assert "y" in data._kept
        assert_array_equal(found.classes_, [0, 1])


def test_one_class_in_a_file_is_refused(tmp_path, long):
    with pytest.raises(ValueError, match="y has one class, 7"):
        FalkonClassifier(n_centers=10).fit(npy(tmp_path, np.full(N, 7)))


def test_very_many_labels_are_read_into_memory(tmp_path, long, monkeypatch):
    monkeypatch.setattr(columns, "_MOST_CLASSES", 3)
    assert npy(tmp_path, np.arange(N) % 4).long_labels() is None
    assert_array_equal(npy(tmp_path, np.arange(N) % 3).long_labels().classes, [0, 1, 2])


@pytest.mark.parametrize(
    "make",
    [
        FalkonRegressor,
        partial(FalkonRegressor, loss="huber"),
        NystromRegressor,
        partial(NystromRegressor, n_centers=[2, 5]),
        partial(NystromRegressor, solver="cg"),
        NytroRegressor,
    ],
)
def test_the_memory_plan_has_no_vector_of_the_rows(tmp_path, long, make):
    """A budget that y itself would exceed."""
    settings = {"n_centers": 5, "penalty": 1e-4, "max_iter": 2, "random_state": 0, "memory_budget": 200_000}
    settings = {name: value for name, value in settings.items() if name in make().get_params()}
    settings = {**settings, **getattr(make, "keywords", {})}
    with pytest.raises(MemoryError, match="for vectors"):
        make(**settings).fit(np.zeros((40_000, 1), dtype=np.float32), np.zeros(40_000, dtype=np.float32))
    np.save(tmp_path / "X.npy", RNG.standard_normal((40_000, 1)).astype(np.float32))
    np.save(tmp_path / "y.npy", RNG.standard_normal(40_000).astype(np.float32))
    data = gyrfalcon.open(tmp_path / "X.npy", target=tmp_path / "y.npy")
    with pytest.raises(MemoryError) as error:
        make(**settings).fit(data)
    assert "for vectors" not in str(error.value)  # but those for reading
