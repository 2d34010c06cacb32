"""Float32 rows: predictions keep what varies in y, and fits that float32 would spoil are made in float64 or warn."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

import gyrfalcon
from gyrfalcon import ExactClassifier, ExactRegressor, FalkonClassifier, FalkonRegressor, NystromRegressor
from gyrfalcon.fitting import precision
from gyrfalcon.fitting.data import FitData
from gyrfalcon.kernels import Gaussian, Matern, Polynomial, Sigmoid
from gyrfalcon.sources import as_rows

KERNEL = Gaussian(1.5)
REGRESSORS = [
    FalkonRegressor(KERNEL, n_centers=40, penalty=1e-3, random_state=0),
    FalkonRegressor(KERNEL, n_centers=40, penalty=1e-3, random_state=0, early_stopping=True),
    NystromRegressor(KERNEL, n_centers=40, penalty=1e-3, random_state=0),
    gyrfalcon.NytroRegressor(KERNEL, n_centers=40, random_state=0),
    ExactRegressor(KERNEL, penalty=1e-3),
    ExactRegressor(KERNEL, penalty=1e-3, method="pcg", random_state=0),
    gyrfalcon.EigenProRegressor(KERNEL, max_iter=5, random_state=0),
    gyrfalcon.HierarchicalRegressor(KERNEL, leaf_size=50, penalty=1e-3, random_state=0),
    gyrfalcon.DivideAndConquerRegressor(KERNEL, n_partitions=2, penalty=1e-3, random_state=0),
    gyrfalcon.RandomFeaturesRegressor(KERNEL, n_components=60, penalty=1e-3, random_state=0),
    gyrfalcon.ConformalRegressor(FalkonRegressor(KERNEL, n_centers=40, penalty=1e-3, random_state=0), random_state=0),
]
MEANS = pytest.mark.parametrize("mean", [1e7, -1e8])


def data(n=300, k=None):
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, size=(n, 2)).astype(np.float32)
    y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * rng.standard_normal(n)
    return X, y - y.mean() if k is None else np.stack([y] * k, axis=1)


# ---- a large mean of y -----------------------------------------------------------------------------------------------


@MEANS
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("model", REGRESSORS, ids=repr)
def test_predictions_keep_what_varies_beside_a_large_mean(model, mean):
    """R2 was 0.83 with a mean of 1e7, and 0 with 1e8, where predictions were rounded to float32."""
    X, y = data()
    base = clone(model).fit(X, y)
    assert base.predict(X).dtype == np.float32
    moved = clone(model).fit(X, y + mean)
    predictions = moved.predict(X)
    assert predictions.dtype == np.float64
    # early stopping may take another of two iterates that are as good
    assert_allclose(predictions - mean, base.predict(X), atol=1e-2)
    assert moved.score(X, y + mean) == pytest.approx(base.score(X, y), abs=1e-3)


@MEANS
@pytest.mark.parametrize(
    "model",
    [
        FalkonRegressor(KERNEL, n_centers=40, penalty=1e-3, random_state=0, uncertainty=True),
        NystromRegressor(KERNEL, n_centers=40, penalty=1e-3, random_state=0, uncertainty=True),
        ExactRegressor(KERNEL, penalty=1e-3, uncertainty=True),
        gyrfalcon.HierarchicalRegressor(KERNEL, leaf_size=50, penalty=1e-3, uncertainty=True, random_state=0),
    ],
    ids=repr,
)
def test_intervals_do_not_collapse_beside_a_large_mean(model, mean):
    X, y = data()
    base, moved = clone(model).fit(X, y), clone(model).fit(X, y + mean)
    assert_allclose(moved.predict_interval(X) - mean, base.predict_interval(X), atol=1e-2)
    found, std = moved.predict(X, return_std=True)
    assert_allclose(found - mean, base.predict(X), atol=1e-3)
    assert_allclose(std, base.predict(X, return_std=True)[1], rtol=1e-3)
    assert_allclose(moved.noise_variance_, base.noise_variance_, rtol=1e-3)


@pytest.mark.parametrize("column", [0, 1])
def test_one_column_with_a_large_mean_is_enough(column):
    X, y = data(k=2)
    y[:, column] += 1e7
    predictions = FalkonRegressor(KERNEL, n_centers=40, penalty=1e-3, random_state=0).fit(X, y).predict(X)
    assert predictions.dtype == np.float64
    assert predictions.shape == y.shape
    assert_allclose(predictions, y, atol=1.0)


def test_a_constant_y_is_predicted_in_float32():
    X, _ = data()
    model = FalkonRegressor(KERNEL, n_centers=10, penalty=1e-3, random_state=0).fit(X, np.full(len(X), 1e8))
    predictions = model.predict(X)
    assert predictions.dtype == np.float32
    assert_array_equal(predictions, np.float32(1e8))


def test_predictions_of_cross_validation_keep_what_varies():
    X, y = data()
    model = ExactRegressor(KERNEL, penalty=1e-3, method="pcg", choose_by="cv", random_state=0)
    moved = clone(model).fit(X, y + 1e8).cv_predictions_
    assert_allclose(moved - 1e8, clone(model).fit(X, y).cv_predictions_, atol=1e-3)


@pytest.fixture(scope="module")
def moved():
    X, y = data()
    return FalkonRegressor(KERNEL, n_centers=40, penalty=1e-3, random_state=0).fit(X, y + 1e8), X


def test_a_saved_model_keeps_the_precision_of_predictions(moved, tmp_path):
    model, X = moved
    model.save(tmp_path / "model.gyr")
    again = gyrfalcon.load(tmp_path / "model.gyr")
    assert again.output_dtype_ == "float64"
    assert_array_equal(again.predict(X), model.predict(X), strict=True)


def test_predictions_in_files_keep_what_varies(moved, tmp_path):
    model, X = moved
    gyrfalcon.write_predictions(model, X, tmp_path / "found.npy")
    assert_array_equal(np.load(tmp_path / "found.npy"), model.predict(X), strict=True)


def test_lazy_predictions_keep_what_varies(moved):
    da = pytest.importorskip("dask.array")
    model, X = moved
    found = model.predict(da.from_array(X, chunks=(100, 2)))
    assert found.dtype == np.float64
    assert_allclose(found.compute(), model.predict(X), atol=1e-4)


@pytest.mark.parametrize("Estimator", [FalkonRegressor, gyrfalcon.RandomFeaturesRegressor])
def test_onnx_adds_a_large_mean_in_float64(Estimator):
    onnxruntime = pytest.importorskip("onnxruntime")
    X, y = data()
    model = Estimator(KERNEL, penalty=1e-3, random_state=0).fit(X, y + 1e8)
    graph = gyrfalcon.to_onnx(model)
    (found,) = onnxruntime.InferenceSession(graph.SerializeToString()).run(["predict"], {"X": X})
    assert found.dtype == np.float64
    assert_allclose(found, model.predict(X), atol=1e-3)


@pytest.mark.parametrize("loss", ["huber", "quantile"])
def test_other_losses_hold_a_large_mean_in_float64(loss):
    X, y = data()
    model = FalkonRegressor(KERNEL, n_centers=40, penalty=1e-3, loss=loss, random_state=0)
    base, moved = clone(model).fit(X, y), clone(model).fit(X, y + 1e8)
    assert (base.centers_.dtype, moved.centers_.dtype) == (np.float32, np.float64)
    assert_allclose(moved.predict(X) - 1e8, base.predict(X), atol=0.05)
    with pytest.warns(ConvergenceWarning, match="the mean of y is so large, compared with its standard deviation"):
        clone(model).set_params(dtype="float32").fit(X, y + 1e8)


# ---- kernels that are smooth for their penalty -----------------------------------------------------------------------


def smooth(n=2000):
    """Rows, a kernel of many times their distances, and what exact arithmetic makes of them and of these centers."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 4)).astype(np.float32)
    y = np.sin(X[:, 0]) + X[:, 1] * X[:, 2] / 3 + X[:, 3] + 0.1 * rng.standard_normal(n)
    return X, y, Gaussian(14.0)


def dense(kernel, X, y, Z, penalty, least=1e-13):
    """Ridge regression on orthonormal functions of the centers, in float64."""
    X, Z = X.astype(np.float64), Z.astype(np.float64)
    values, vectors = np.linalg.eigh(kernel(Z, Z))
    kept = values > least * values[-1]
    F = kernel(X, Z) @ (vectors[:, kept] / np.sqrt(values[kept]))
    A = np.vstack([F, np.sqrt(penalty * len(X)) * np.eye(F.shape[1])])
    return F @ np.linalg.lstsq(A, np.append(y, np.zeros(F.shape[1])), rcond=None)[0]


@pytest.mark.parametrize("Estimator", [FalkonRegressor, NystromRegressor])
def test_a_smooth_kernel_is_computed_in_float64(Estimator):
    """In float32 predictions were off by 9% of their deviation, without a word."""
    X, y, kernel = smooth()
    parameters = {"n_centers": 100, "penalty": 1e-7, "scale": False, "random_state": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = Estimator(kernel, **parameters).fit(X, y)
    assert model.centers_.dtype == np.float64
    expected = y.mean() + dense(kernel, X, y - y.mean(), model.centers_, 1e-7)
    assert np.std(model.predict(X) - expected) < 0.01 * np.std(expected)
    with pytest.warns(ConvergenceWarning, match=r"rounding in float32 may move.*dtype=\"float64\""):
        Estimator(kernel, dtype="float32", **parameters).fit(X, y)


@pytest.mark.parametrize(
    "make",
    [
        lambda **more: FalkonRegressor(n_centers=100, loss="huber", **more),
        lambda **more: FalkonClassifier(n_centers=100, **more),
        lambda **more: FalkonClassifier(n_centers=100, loss="logistic", **more),
        lambda **more: NystromRegressor(n_centers=100, solver="cg", **more),
        ExactRegressor,
        lambda **more: ExactRegressor(method="pcg", **more),
        ExactClassifier,
        lambda **more: gyrfalcon.DivideAndConquerRegressor(n_partitions=2, **more),
    ],
)
@pytest.mark.filterwarnings("ignore:predictions are still off")
def test_every_method_with_a_penalty_has_the_same_guard(make):
    X, y, kernel = smooth(600)
    y = y > 0 if "Classifier" in type(make()).__name__ else y
    for penalty, dtype in ((1e-7, np.float64), (1e-2, np.float32)):
        model = make(kernel=kernel, penalty=penalty, scale=False, random_state=0).fit(X, y)
        assert model.centers_.dtype == dtype


def test_ordinary_fits_stay_in_float32():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((3000, 18)).astype(np.float32)
    y = np.sin(X[:, 0] + X[:, 1]) + X[:, 2] * X[:, 3] / 2 + 0.1 * rng.standard_normal(3000)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = FalkonRegressor(Gaussian(np.sqrt(18)), n_centers=400, penalty=1e-7, scale=False, random_state=0)
        assert model.fit(X, y).centers_.dtype == np.float32


def test_rows_that_are_read_become_float64_too(tmp_path):
    X, y, kernel = smooth(600)
    np.save(tmp_path / "X.npy", X)
    parameters = {"n_centers": 50, "penalty": 1e-7, "scale": False, "random_state": 0}
    here = FalkonRegressor(kernel, **parameters).fit(X, y)
    read = FalkonRegressor(kernel, **parameters).fit(gyrfalcon.open(tmp_path / "X.npy").X, y)
    assert read.centers_.dtype == np.float64
    assert_allclose(read.predict(X), here.predict(X), atol=1e-6)


@pytest.mark.parametrize(
    ("length_scale", "penalty"), [(4.0, 1e-6), (14.0, 1e-7), (4.0, 1e-4), (14.0, 1e-3), (8.0, 1e-2)]
)
@pytest.mark.parametrize("noise", [0.1, 3.0])
@pytest.mark.parametrize("Estimator", [FalkonRegressor, NystromRegressor])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_loss_is_foreseen(Estimator, length_scale, penalty, noise):
    """The sample's estimate is near what fits to all rows lose, by rounding as by the jitter of K_MM's factors."""
    X, y, _ = smooth(8000)
    y = y + noise * np.random.default_rng(1).standard_normal(len(y))
    kernel, Z = Gaussian(length_scale), X[:200]
    foreseen = precision._foreseen(kernel, Z, learnt(X, y), penalty, np.float64)
    options = {"max_iter": 100} if Estimator is FalkonRegressor else {}
    found, wanted = (
        Estimator(kernel, centers=Z.astype(dtype), penalty=penalty, scale=False, dtype=dtype, **options)
        .fit(X, y)
        .predict(X)
        for dtype in (np.float32, np.float64)
    )
    lost = np.std(found - wanted) / np.std(wanted)
    assert lost / 3 < foreseen < 8 * lost  # of which a factor of 4 is for rows farther out


def learnt(X, y):
    return FitData(as_rows(X), (y - y.mean())[:, None], offset=np.array([y.mean()]))


def few_centers(seed, n=3000):
    """Rows in two dimensions, of which some are far from all 40 centers."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 2)).astype(np.float32)
    y = np.sin(2 * X[:, 0]) + X[:, 0] * X[:, 1] + 0.1 * rng.standard_normal(n)
    return X, y, {"kernel": Gaussian(1.0), "n_centers": 40, "scale": False, "random_state": seed}


@pytest.mark.parametrize("penalty", [1e-3, 1e-4, 1e-5])
@pytest.mark.parametrize("seed", [0, 1, 3])
@pytest.mark.parametrize("Estimator", [FalkonRegressor, NystromRegressor])
def test_functions_that_the_centers_hardly_know(Estimator, seed, penalty):
    """In float32 the jitter of K_MM moved predictions by 2 to 7% of their deviation, without a word."""
    X, y, options = few_centers(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = Estimator(penalty=penalty, **options).fit(X, y)
    assert model.centers_.dtype == np.float64
    expected = y.mean() + dense(model.kernel_, X, y - y.mean(), model.centers_, penalty, 1e-15)
    assert np.std(model.predict(X) - expected) < 0.01 * np.std(expected)
    with pytest.warns(ConvergenceWarning, match=r"float32 may move predictions.*dtype=\"float64\""):
        Estimator(penalty=penalty, dtype="float32", **options).fit(X, y)


@pytest.mark.parametrize("Estimator", [FalkonRegressor, NystromRegressor])
def test_centers_that_know_all_rows_stay_in_float32(Estimator):
    """With a rough kernel K_MM has no small eigenvalues, and nothing is lost."""
    X, y, options = few_centers(0)
    options["kernel"] = Matern(1.0, nu=1.5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = Estimator(penalty=1e-4, **options).fit(X, y)
        Estimator(penalty=1e-4, dtype="float32", **options).fit(X, y)
    assert model.centers_.dtype == np.float32
    expected = y.mean() + dense(model.kernel_, X, y - y.mean(), model.centers_, 1e-4)
    assert np.std(model.predict(X) - expected) < 1e-3 * np.std(expected)


@pytest.mark.parametrize("penalty", [1e-3, 1e-5])
@pytest.mark.parametrize("Estimator", [FalkonRegressor, NystromRegressor])
def test_a_kernel_that_is_not_positive_needs_its_jitter_in_float64_too(Estimator, penalty):
    """It outweighs the negative eigenvalues of K_MM: a loss of 14% was foreseen that float64 has as well."""
    rng = np.random.default_rng(0)
    X, new = (rng.standard_normal((n, 3)).astype(np.float32) for n in (1000, 3000))
    y = np.sin(X[:, 0]) + X[:, 1]
    model = Estimator(Sigmoid(0.1), n_centers=30, penalty=penalty, scale=False, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        single, double = (clone(model).set_params(dtype=dtype).fit(X, y) for dtype in ("float32", "float64"))
        assert clone(model).fit(X, y).centers_.dtype == np.float32
    found, wanted = single.predict(new), double.predict(new)
    assert np.std(found - wanted) < 0.02 * np.std(wanted)


def test_predictions_of_an_exact_solution():
    """Its coefficients are residuals over penalty n: 22% of f was lost, without a word."""
    rng = np.random.default_rng(33)
    X = rng.standard_normal((1200, 1)).astype(np.float32)
    y = np.sin(2 * X[:, 0]) + X[:, 0] ** 2 + 0.01 * rng.standard_normal(1200)
    model = ExactRegressor(Polynomial(degree=3), penalty=1e-7, scale=False)
    wanted = clone(model).set_params(dtype="float64").fit(X, y).predict(X)
    assert np.std(model.fit(X, y).predict(X) - wanted) < 1e-6 * np.std(wanted)
    with pytest.warns(ConvergenceWarning, match="rounding in float32 may move predictions"):
        rounded = clone(model).set_params(dtype="float32").fit(X, y).predict(X)
    assert np.std(rounded - wanted) > 0.02 * np.std(wanted)


@pytest.mark.parametrize("choose_by", ["loo", "gcv"])
def test_a_penalty_from_a_list(choose_by):
    """What the jitter costs is known once the penalty is chosen; before, only rounding was looked at."""
    X, y, options = few_centers(0)
    model = NystromRegressor(penalties=[1e-4, 1e-3], choose_by=choose_by, **options)
    with pytest.warns(ConvergenceWarning, match="rounding in float32 may move predictions"):
        model.fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        clone(model).set_params(kernel=Matern(1.0, nu=1.5)).fit(X, y)
        wide = clone(model).set_params(dtype="float64").fit(X, y)
    assert model.penalty_ == wide.penalty_
    exact = ExactRegressor(Polynomial(degree=3), penalties=[1e-8, 1e-7], choose_by=choose_by, scale=False)
    x = np.random.default_rng(33).standard_normal((800, 1)).astype(np.float32)
    with pytest.warns(ConvergenceWarning, match="rounding in float32 may move predictions"):
        exact.fit(x, np.sin(2 * x[:, 0]) + 0.01 * np.cos(70 * x[:, 0]))


@pytest.mark.parametrize("preconditioner", ["falkon", "sample"])
@pytest.mark.filterwarnings("ignore:predictions are still off")
def test_a_penalty_that_float64_loses(preconditioner):
    """A preconditioner from a sample of the rows raised it without a word."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((2000, 3)) + 1e3
    model = FalkonRegressor(Polynomial(degree=2), n_centers=20, penalty=1e-7, scale=False, random_state=0)
    with pytest.warns(ConvergenceWarning, match="penalty=1e-07 is below the rounding errors of float64"):
        model.set_params(preconditioner=preconditioner, max_iter=2).fit(X, X[:, 0])
    with pytest.warns(ConvergenceWarning, match="penalty=1e-07 is below the rounding errors of float64"):
        NystromRegressor(Polynomial(degree=2), n_centers=20, penalty=1e-7, scale=False, random_state=0).fit(X, X[:, 0])


def test_what_float64_cannot_resolve_gets_a_warning():
    """Where outliers among the rows are seen through the smallest eigenvalues of K_MM, the jitter decides."""
    rng = np.random.default_rng(0)
    X = rng.standard_t(1.2, (4000, 6))
    y = np.sin(2 * np.arcsinh(X[:, 0])) + np.arcsinh(X[:, 1]) * np.arcsinh(X[:, 2])
    model = NystromRegressor(Gaussian(80.0), n_centers=300, penalty=1e-7, scale=False, random_state=0)
    with pytest.warns(ConvergenceWarning, match="rounding in float64 may move predictions"):
        model.fit(X, y)
