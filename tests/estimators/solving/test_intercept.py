"""fit_intercept: predictions are measured from the best constant, whatever y is measured from."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

import gyrfalcon
from gyrfalcon import ExactRegressor, FalkonClassifier, FalkonRegressor, NystromRegressor, RandomFeaturesRegressor
from gyrfalcon.kernels import Gaussian, Laplacian

KERNEL = Gaussian(1.5)
REGRESSORS = [
    FalkonRegressor(KERNEL, n_centers=40, penalty=1e-2, max_iter=100, random_state=0),
    FalkonRegressor(KERNEL, n_centers=40, penalty=1e-2, max_iter=100, random_state=0, early_stopping=True),
    FalkonRegressor(KERNEL, n_centers=40, penalty=1e-4, random_state=0, loss="huber"),
    FalkonRegressor(KERNEL, n_centers=40, penalty=1e-4, random_state=0, loss="quantile"),
    gyrfalcon.NystromRegressor(KERNEL, n_centers=40, penalty=1e-4, random_state=0),
    gyrfalcon.NystromRegressor(KERNEL, n_centers=40, penalties=[1e-5, 1e-3], random_state=0),
    gyrfalcon.NystromRegressor(KERNEL, n_centers=40, penalty=1e-2, solver="gd", max_iter=50, random_state=0),
    gyrfalcon.NytroRegressor(KERNEL, n_centers=40, random_state=0),
    gyrfalcon.ExactRegressor(KERNEL, penalty=1e-4),
    gyrfalcon.ExactRegressor(KERNEL, penalties=[1e-5, 1e-3]),
    gyrfalcon.ExactRegressor(Laplacian(1.0), method="least_squares"),
    gyrfalcon.ExactRegressor(KERNEL, method="early_stopping", random_state=0),
    gyrfalcon.HierarchicalRegressor(KERNEL, penalty=1e-4, leaf_size=50, random_state=0),
    gyrfalcon.EigenProRegressor(Laplacian(1.5), random_state=0),
    gyrfalcon.DivideAndConquerRegressor(KERNEL, n_partitions=2, penalty=1e-4, random_state=0),
    gyrfalcon.RandomFeaturesRegressor(KERNEL, n_components=60, penalty=1e-4, random_state=0),
    gyrfalcon.RandomFeaturesRegressor(KERNEL, n_components=60, penalty=1e-4, solver="sgd", random_state=0),
]
CLASSIFIERS = [
    FalkonClassifier(KERNEL, n_centers=40, penalty=1e-4, random_state=0),
    FalkonClassifier(KERNEL, n_centers=40, penalty=1e-4, random_state=0, loss="logistic"),
    FalkonClassifier(KERNEL, n_centers=40, penalty=1e-4, random_state=0, loss="logistic", multi_class="ovr"),
    gyrfalcon.RandomFeaturesClassifier(KERNEL, n_components=60, penalty=1e-4, random_state=0),
]

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def data(n=300, k=None, dtype=np.float64):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 3))
    y = np.sin(2 * X[:, 0]) + 0.1 * rng.standard_normal(n)
    return X.astype(dtype), y if k is None else np.column_stack([(j + 1) * y for j in range(k)])


@pytest.mark.parametrize("k", [None, 2])
@pytest.mark.parametrize("model", REGRESSORS, ids=repr)
def test_a_shift_of_y_shifts_predictions(model, k):
    X, y = data(k=k)
    y = np.round(y * 2.0**20) / 2.0**20  # exact beside the shift, so that what moves is the fit
    shift = 2.0**17
    here, there = (model.fit(X, y + c).predict(X) - c for c in (0.0, shift))
    assert_allclose(there, here, rtol=0, atol=1e-9 * np.ptp(y))


@pytest.mark.parametrize("model", REGRESSORS, ids=repr)
def test_a_shift_of_y_in_float32(model):
    X, y = data(dtype=np.float32)
    y = 100 * y  # float32 has predictions of 1e5 to 0.004
    if "quantile" in repr(model):  # with its mean y is fitted in float64, on another path of Newton steps
        model = clone(model).set_params(tol=1e-5, max_iter=60)
    here, there = (model.fit(X, y + c).predict(X).astype(np.float64) - c for c in (0.0, 1e5))
    assert np.sqrt(np.mean(np.square(there - here))) < 1e-3 * y.std()


@pytest.mark.parametrize("model", [model for model in REGRESSORS if "Random" not in repr(model)], ids=repr)
def test_far_from_the_rows_predictions_are_the_constant(model):
    X, y = data(k=2)
    model.fit(X, y + np.array([3.0, -7.0]))
    assert model.offset_.shape == (2,)
    assert_allclose(model.predict(X[:1] + 1e3), [model.offset_])


@pytest.mark.parametrize("k", [None, 3])
def test_the_offset_is_the_weighted_mean(k):
    X, y = data(k=k)
    w = np.random.default_rng(1).integers(0, 4, size=300)
    model = FalkonRegressor(KERNEL, n_centers=40, penalty=1e-4, random_state=0).fit(X, y, sample_weight=w)
    assert_allclose(model.offset_, np.atleast_1d(np.average(y, axis=0, weights=w)), rtol=1e-12)


@pytest.mark.parametrize("model", [*REGRESSORS[:2], *REGRESSORS[4:]], ids=repr)
def test_it_is_the_fit_without_intercept_to_what_the_mean_leaves(model):
    X, y = data()
    if model.get_params().get("early_stopping"):
        pytest.skip("the mean is that of the rows that are not held out")
    with_it = model.fit(X, y + 5).predict(X)
    without = clone(model).set_params(fit_intercept=False)
    mean = (y + 5).mean()
    assert_allclose(with_it, without.fit(X, y + 5 - mean).predict(X) + mean, rtol=1e-8)
    assert without.offset_ == 0.0


def test_rows_held_out_have_no_say():
    X, y = data()
    y[::2] += 10
    model = FalkonRegressor(KERNEL, n_centers=40, penalty=1e-4, random_state=0, early_stopping=True)
    assert model.fit(X, y).offset_ != pytest.approx(y.mean(), rel=1e-12)


def test_validation_errors_are_those_of_predictions():
    X, y = data()
    y = y + 20
    for model in REGRESSORS[4:]:
        if not model.get_params().get("early_stopping") and model.get_params().get("penalties") is None:
            model.fit(X[50:], y[50:], X_val=X[:50], y_val=y[:50])
            error = np.sqrt(np.mean(np.square(model.predict(X[:50]) - y[:50])))
            assert model.history_[-1]["validation_error"] == pytest.approx(error, rel=1e-9), model


@pytest.mark.parametrize("value", [0.0, 0.1, -3e5])
@pytest.mark.parametrize("model", REGRESSORS, ids=repr)
def test_constant_targets(model, value):
    X, _ = data(60)
    assert_allclose(model.fit(X, np.full(60, value)).predict(X), value, rtol=1e-12)


def test_the_largest_numbers():
    X, y = data(60)
    big = 1e308 * np.sign(y)
    model = FalkonRegressor(KERNEL, n_centers=20, penalty=1e-4, random_state=0)
    assert np.isfinite(model.fit(X, np.full(60, 1.7e308)).predict(X)).all()
    with pytest.raises(ValueError, match="y less its mean holds inf, too large for float64: rescale"):
        model.fit(X, np.where(np.arange(60) == 0, -1.0, 1.0) * np.abs(big) * 1.7)


# ---- classes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", CLASSIFIERS, ids=repr)
@pytest.mark.parametrize("cuts", [[0.9], [-0.5, 0.5]])
def test_classes_far_from_the_rows_have_their_shares(model, cuts):
    X, y = data()
    labels = np.digitize(y, cuts)
    w = np.random.default_rng(1).uniform(0.2, 3, size=300)
    model.fit(X, labels, sample_weight=w)
    share = np.bincount(labels, weights=w) / w.sum()
    share = share[1:] if len(share) == 2 else share
    if model.get_params().get("loss") != "logistic":
        expected = 2 * share - 1
    elif model.multi_class == "multinomial" and len(share) > 1:
        expected = np.log(share)
    else:
        expected = np.log(share / (1 - share))
    assert_allclose(model.offset_, expected, rtol=1e-9)
    if "Random" not in repr(model):
        assert_allclose(np.ravel(model.decision_function(X[:1] + 1e3)), expected, rtol=1e-9)
    if model.get_params().get("loss") == "logistic" and len(share) > 1 and model.multi_class == "multinomial":
        assert_allclose(model.predict_proba(X[:1] + 1e3)[0], share, rtol=1e-9)


@pytest.mark.parametrize("loss", ["squared", "logistic"])
def test_a_class_without_weight_has_a_finite_offset(loss):
    X, y = data()
    labels = np.digitize(y, [-0.5, 0.5])
    model = FalkonClassifier(KERNEL, n_centers=40, penalty=1e-3, loss=loss, random_state=0, class_weight={0: 0.0})
    assert np.isfinite(model.fit(X, labels).offset_).all()
    assert not (model.predict(X) == 0).any()


# ---- elsewhere -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", [REGRESSORS[0], REGRESSORS[2], *CLASSIFIERS], ids=repr)
def test_model_files_keep_it(model, tmp_path):
    X, y = data()
    y = y + 4 if "Regressor" in repr(model) else y > 0.3
    model.fit(X, y)
    model.save(tmp_path / "model.gyr")
    loaded = gyrfalcon.load(tmp_path / "model.gyr")
    assert_array_equal(loaded.predict(X), model.predict(X))
    assert_array_equal(loaded.offset_, model.offset_)


def test_a_warm_start_has_the_new_mean():
    X, y = data()
    model = FalkonRegressor(KERNEL, n_centers=40, penalty=1e-2, warm_start=True, max_iter=100, random_state=0).fit(X, y)
    before = model.predict(X)
    model.fit(X, y + 1e3)
    assert_allclose(model.predict(X) - 1e3, before, atol=1e-6)


def test_a_checkpointed_fit_resumes(tmp_path):
    X, y = data()

    def make(**options):
        return FalkonRegressor(KERNEL, n_centers=40, penalty=1e-7, tol=0, random_state=0, **options)

    whole = make(max_iter=8).fit(X, y + 30)
    make(max_iter=3, checkpoint=tmp_path).fit(X, y + 30)
    resumed = make(max_iter=8, checkpoint=tmp_path).fit(X, y + 30)
    assert_array_equal(resumed.dual_coef_, whole.dual_coef_)
    assert_array_equal(resumed.offset_, whole.offset_)


def test_dask_and_files(tmp_path):
    da = pytest.importorskip("dask.array")
    X, y = data()
    model = FalkonRegressor(KERNEL, n_centers=40, penalty=1e-4, max_iter=100, random_state=0)
    expected = model.fit(X, y + 50).predict(X)
    rows = da.from_array(X, chunks=(100, 3))
    found = model.fit(rows, da.from_array(y + 50, chunks=100)).predict(rows)
    assert_allclose(found.compute(), expected, rtol=1e-6)
    np.save(tmp_path / "rows.npy", np.column_stack([X, y + 50]))
    table = gyrfalcon.open(tmp_path / "rows.npy", target=-1)
    assert_allclose(model.fit(table.X, table.y).predict(table.X), expected, rtol=1e-6)


@pytest.mark.parametrize(
    "model",
    [
        FalkonRegressor(n_centers=10, uncertainty=True, random_state=0),
        NystromRegressor(n_centers=10, uncertainty=True, random_state=0),
        ExactRegressor(uncertainty=True),
        gyrfalcon.HierarchicalRegressor(leaf_size=10, uncertainty=True, random_state=0),
        RandomFeaturesRegressor(n_components=20, random_state=0),
    ],
    ids=lambda model: type(model).__name__,
)
def test_one_column_has_plain_numbers(model, tmp_path):
    """A float where y has no second axis, else one number for each column."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((40, 2))
    y = X[:, 0] + 3.0
    names = ["offset_", "noise_variance_"] if "uncertainty" in model.get_params() else ["offset_"]
    for name in names:
        value = getattr(model.fit(X, y), name)
        assert type(value) is float, name
        for columns in (y[:, None], np.column_stack([y, -y])):
            assert getattr(clone(model).fit(X, columns), name).shape == columns.shape[1:]
    model.fit(X, y).save(tmp_path / "model.gyr")
    again = gyrfalcon.load(tmp_path / "model.gyr")
    assert [getattr(again, name) for name in names] == [getattr(model, name) for name in names]
    assert_array_equal(again.predict(X), model.predict(X))
    model.offset_ = np.array([1.0])
    model.save(tmp_path / "wrong.gyr")
    with pytest.raises(gyrfalcon.ModelFileError, match="offset_"):
        gyrfalcon.load(tmp_path / "wrong.gyr")


def test_two_classes_have_one_number_as_offset():
    X = np.random.default_rng(0).standard_normal((60, 2))
    model = FalkonClassifier(n_centers=10, random_state=0)
    assert type(model.fit(X, X[:, 0] > 0).offset_) is float
    assert model.fit(X, np.digitize(X[:, 0], [-0.5, 0.5])).offset_.shape == (3,)
