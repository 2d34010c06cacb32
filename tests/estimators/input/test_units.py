"""A number that the user gives is in the user's units; features are standardised where the library chooses it."""

from __future__ import annotations

import inspect
import pickle
import re
import warnings

import numpy as np
import pytest
import scipy.sparse
from sklearn.base import BaseEstimator, is_classifier
from sklearn.datasets import make_friedman1
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

import gyrfalcon
from gyrfalcon import (
    ExactRegressor,
    FalkonClassifier,
    FalkonRegressor,
    KernelKMeans,
    LearnedMetric,
    NystromRegressor,
    TableEncoder,
    mmd_test,
)
from gyrfalcon.cli.main import main
from gyrfalcon.kernels import (
    ArcCosine,
    Constant,
    Gaussian,
    Kernel,
    Laplacian,
    Linear,
    Matern,
    Polynomial,
    RationalQuadratic,
    Sigmoid,
    Stationary,
)
from gyrfalcon.sources.memory import MetricArray

N, D = 80, 3
X = np.random.default_rng(0).standard_normal((N, D)) * [1.0, 5.0, 0.2] + [0.0, 3.0, 1.0]
Y = np.sin(X[:, 0]) + X[:, 1] / 5
LABELS = np.where(np.median(Y) < Y, "up", "down")

ESTIMATORS = [
    estimator
    for estimator in (getattr(gyrfalcon, name) for name in gyrfalcon.__all__)
    if inspect.isclass(estimator)
    and issubclass(estimator, BaseEstimator)
    and {"kernel", "scale"} <= set(inspect.signature(estimator).parameters)
]


class Cauchy(Kernel):
    """A formula of one's own."""

    def profile(self, s):
        return 1.0 / (1.0 + s)


class OwnStationary(Stationary):
    """A kernel of one's own whose length scale may be left to the library."""

    def __init__(self, length_scale="scale"):
        self.length_scale = length_scale

    def profile(self, s):
        return 1.0 / (1.0 + s)


def overlap(A, B):
    return np.exp(-np.abs(A[:, None] - B[None]).sum(axis=2))


GIVEN = [
    Gaussian(2.0),
    Gaussian(1.0),
    Gaussian([1.0, 5.0, 0.5]),
    Laplacian(2.0),
    Laplacian(length_scale=3, norm=1),
    Matern(np.float32(2.0), nu=2.5),
    RationalQuadratic(2.0),
    Gaussian(2.0) + Laplacian(),
    0.5 * Gaussian() + (Linear() + 1.0) * Laplacian(2.0),
    Polynomial(2, gamma=0.1),
    Cauchy(),
    OwnStationary(2.0),
    Gaussian() + overlap,
    overlap,
]
CHOSEN = [
    "gaussian",
    "linear",
    Gaussian(),
    Gaussian("scale"),
    Laplacian(norm=1),
    Matern(nu=2.5),
    RationalQuadratic(alpha=0.5),
    Gaussian() + 0.1 * Linear() + 1.0,
    2.0 * Gaussian(),
    Polynomial(2, coef0=2.0),
    ArcCosine(0),
    OwnStationary(),
]


def name_of(kernel):
    return re.sub(r"<function (\w+) at 0x\w+>", r"\1", str(kernel))


def target(model):
    return LABELS if is_classifier(model) else Y


# ---- the rule --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", GIVEN, ids=name_of)
def test_rows_are_taken_as_they_are_where_a_number_is_given(kernel):
    model = FalkonRegressor(kernel, n_centers=20, penalty=1e-3, random_state=0).fit(X, Y)
    assert model.scale_ is None
    assert model.mean_ is None
    assert np.isin(model.centers_, X).all()
    same = FalkonRegressor(kernel, scale=False, n_centers=20, penalty=1e-3, random_state=0).fit(X, Y)
    np.testing.assert_array_equal(model.predict(X), same.predict(X))


@pytest.mark.parametrize("kernel", CHOSEN, ids=name_of)
def test_features_are_standardised_where_the_library_chooses(kernel):
    model = FalkonRegressor(kernel, n_centers=20, penalty=1e-3, random_state=0).fit(X, Y)
    np.testing.assert_allclose(model.scale_, X.std(axis=0))
    np.testing.assert_allclose(model.mean_, X.mean(axis=0))


def test_kernels_answer_by_their_parts():
    assert [k.has_given_scale for k in (Linear(), Constant(2.0), ArcCosine(), Sigmoid(), Sigmoid(0.1))] == [
        False
    ] * 4 + [True]
    assert (Linear() * Gaussian(1.0) + Constant()).has_given_scale
    assert not (Linear() * Gaussian() + Constant()).has_given_scale
    assert Gaussian(1.0).has_common_scale
    assert not Gaussian([1.0, 2.0]).has_common_scale
    assert not Linear().has_common_scale
    assert (Linear() + Gaussian(1.0)).has_common_scale


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda estimator: estimator.__name__)
def test_every_estimator_follows_the_rule(estimator):
    def fitted(**parameters):
        model = estimator(random_state=0).set_params(**parameters)
        small = {"n_centers": 20, "n_components": 4 if "KernelPCA" in estimator.__name__ else 30, "max_iter": 5}
        model.set_params(**{name: value for name, value in small.items() if name in model.get_params()})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # so few iterations
            return model.fit(X, target(model))

    assert fitted().scale_ is not None
    assert fitted(kernel=Gaussian(2.0)).scale_ is None
    assert fitted(kernel=Gaussian(2.0), scale=True).scale_ is not None
    assert fitted(kernel=Gaussian(), scale=False).scale_ is None
    assert fitted(kernel=Gaussian()).scale_ is not None
    assert fitted(kernel__length_scale=2.0).scale_ is None


def test_the_two_sample_test_follows_the_rule():
    options = {"n_permutations": 5, "random_state": 0}
    assert mmd_test(X, X + 1, **options).scale is not None
    assert mmd_test(X, X + 1, Gaussian(2.0), **options).scale is None
    marked = X.view(MetricArray)
    assert mmd_test(marked[:40], marked[40:], **options).scale is None
    assert mmd_test(marked[:40], X[40:], **options).scale is not None


# ---- the formula -----------------------------------------------------------------------------------------------------


def dense_solution(kernel, C, penalty):
    """(K'K + penalty n K_MM) alpha = K'(y - mean(y)), by its definition."""
    K, gram = kernel(X, C), kernel(C, C)
    alpha = np.linalg.solve(K.T @ K + penalty * N * gram, K.T @ (Y - Y.mean()))
    return lambda rows: Y.mean() + kernel(rows, C) @ alpha


@pytest.mark.parametrize("kernel", [Gaussian(2.0), Gaussian(2.0) + 0.1 * Linear(), Laplacian(3.0)], ids=name_of)
def test_the_fit_is_that_of_the_documented_formula(kernel):
    C, penalty, new = X[:15].copy(), 1e-3, X[::-1] + 0.1
    expected = dense_solution(kernel, C, penalty)(new)
    tight = {"penalty": penalty, "centers": C}
    nystrom = NystromRegressor(kernel, **tight).fit(X, Y)
    falkon = FalkonRegressor(kernel, tol=1e-12, max_iter=200, **tight).fit(X, Y)
    np.testing.assert_allclose(nystrom.predict(new), expected, atol=1e-6)
    np.testing.assert_allclose(falkon.predict(new), expected, atol=1e-6)
    exact = ExactRegressor(kernel, penalty=penalty).fit(X, Y)
    np.testing.assert_allclose(exact.predict(new), dense_solution(kernel, X, penalty)(new), atol=1e-6)


def test_a_function_is_called_with_rows_as_they_are():
    seen = []

    def kernel(A, B):
        seen.append(np.asarray(A))
        return np.exp(-np.abs(A[:, None] - B[None]).sum(axis=2))

    FalkonRegressor(kernel, n_centers=10, penalty=1e-3, n_jobs=1, random_state=0).fit(X, Y)
    assert all(np.isin(block, X).all() for block in seen)


def test_wild_scales_need_no_parameters():
    rows, y = make_friedman1(600, n_features=5, random_state=0)
    rows *= 10.0 ** np.array([-9, 6, 0, 3, -3])
    assert FalkonRegressor(random_state=0).fit(rows[:400], y[:400]).score(rows[400:], y[400:]) > 0.9


# ---- searches, warm starts, files ------------------------------------------------------------------------------------


def test_a_search_over_length_scales_is_in_the_units_of_the_rows():
    unit = np.random.default_rng(1).uniform(-1, 1, (150, 2))
    y = np.sin(3 * unit[:, 0])
    grid = {"kernel__length_scale": [0.01, 1.0, 1000.0]}
    for size in (1.0, 1000.0):
        for kernel in ("gaussian", Gaussian(), Gaussian(7.0)):
            search = GridSearchCV(FalkonRegressor(kernel, penalty=1e-6, random_state=0), grid, cv=2).fit(size * unit, y)
            assert search.best_params_["kernel__length_scale"] == size
            assert search.best_estimator_.scale_ is None
    search = GridSearchCV(FalkonRegressor(scale=True, penalty=1e-6, random_state=0), grid, cv=2).fit(1000 * unit, y)
    assert search.best_params_["kernel__length_scale"] == 1.0  # in deviations


def test_a_warm_start_does_not_mix_units():
    model = FalkonRegressor(Gaussian(), n_centers=20, penalty=1e-3, warm_start=True, random_state=0).fit(X, Y)
    model.set_params(kernel__length_scale=2.0).fit(X, Y)
    assert model.scale_ is None
    cold = FalkonRegressor(Gaussian(2.0), n_centers=20, penalty=1e-3, random_state=0).fit(X, Y)
    np.testing.assert_array_equal(model.centers_, cold.centers_)
    model.set_params(kernel=Gaussian()).fit(X, Y)
    assert model.scale_ is not None


def test_saved_models_predict_in_the_same_units(tmp_path):
    for kernel in (Gaussian(2.0), Gaussian()):
        model = FalkonRegressor(kernel, n_centers=20, penalty=1e-3, random_state=0).fit(X, Y)
        model.save(tmp_path / "model.gyr")
        loaded = gyrfalcon.load(tmp_path / "model.gyr")
        assert (loaded.scale_ is None) == kernel.has_given_scale
        np.testing.assert_array_equal(loaded.predict(X), model.predict(X))
        np.testing.assert_array_equal(loaded.fit(X, Y).predict(X), model.predict(X))


def test_sparse_rows_files_and_dask_collections(tmp_path):
    np.save(tmp_path / "rows.npy", np.column_stack([X, Y]))
    data = gyrfalcon.open(tmp_path / "rows.npy", target=-1)
    expected = FalkonRegressor(Gaussian(2.0), n_centers=20, penalty=1e-3, random_state=0).fit(X, Y).predict(X)
    for kernel in (Gaussian(2.0), Gaussian()):
        options = {"n_centers": 20, "penalty": 1e-3, "random_state": 0}
        sparse = FalkonRegressor(kernel, **options).fit(scipy.sparse.csr_array(X), Y)
        assert sparse.scale_ is None
        file = FalkonRegressor(kernel, **options).fit(data.X, data.y)
        assert (file.scale_ is None) == kernel.has_given_scale
        dask = pytest.importorskip("dask.array")
        lazy = FalkonRegressor(kernel, **options).fit(dask.from_array(X, chunks=(30, D)), Y)
        assert (lazy.scale_ is None) == kernel.has_given_scale
        if kernel.has_given_scale:
            for model in (sparse, file, lazy):
                np.testing.assert_allclose(model.predict(X), expected, atol=1e-6)


def test_the_command_line_follows_the_rule(tmp_path, capsys):
    path, model = tmp_path / "rows.csv", str(tmp_path / "model.gyr")
    np.savetxt(path, np.column_stack([X, Y]), delimiter=",", header="a,b,c,y", comments="")
    fit = ["fit", str(path), "--target", "y", "--method", "falkon", "--n-centers", "20", "--quiet", "-o", model]
    for more, standardised in (
        ([], True),
        (["--length-scale", "2"], False),
        (["--kernel", "gaussian(length_scale=2) + linear"], False),
        (["--length-scale", "2", "--scale"], True),
    ):
        assert main([*fit, *more]) == 0
        assert (gyrfalcon.load(model).scale_ is not None) == standardised
        capsys.readouterr()
        assert main(["inspect", model]) == 0
        assert ("scaled to mean 0" in capsys.readouterr().out) == standardised


# ---- rows whose distances have a meaning -----------------------------------------------------------------------------


def test_a_learned_metric_is_not_undone():
    rows, y = make_friedman1(1000, n_features=15, random_state=0)
    falkon = FalkonRegressor(n_centers=200, random_state=0)
    model = make_pipeline(LearnedMetric(falkon, random_state=0), falkon).fit(rows[:600], y[:600])
    assert model[-1].scale_ is None
    assert model.score(rows[600:], y[600:]) > 0.97
    clusters = make_pipeline(model[0], KernelKMeans(2, n_centers=20, random_state=0)).fit(rows[:600], y[:600])
    assert clusters[-1].scale_ is None


def test_columns_of_an_encoder_are_left_as_they_are():
    table = [[value, "ab"[i % 2], "xyz"[i % 3]] for i, value in enumerate(Y)]
    model = make_pipeline(TableEncoder(), FalkonClassifier(n_centers=20, random_state=0)).fit(table, LABELS)
    assert model[-1].scale_ is None
    metric = make_pipeline(TableEncoder(), LearnedMetric(n_rounds=1, random_state=0)).fit(table, Y)
    assert metric[-1].scale_ is None


def test_a_metric_is_learnt_in_given_units():
    def learnt(kernel):
        return LearnedMetric(FalkonRegressor(kernel, n_centers=20), n_rounds=1, random_state=0).fit(X, Y)

    assert learnt(Gaussian()).scale_ is not None
    assert learnt(Gaussian(2.0)).scale_ is None


def test_the_mark_of_an_array_survives_selections_alone():
    marked = np.eye(4).view(MetricArray)
    for kept in (
        marked[1:],
        marked[[2, 0]],
        marked[marked[:, 0] < 1],
        pickle.loads(pickle.dumps(marked)),
        marked.copy(),
    ):
        assert type(kept) is MetricArray
    for computed in (
        marked * 2,
        marked - marked.mean(axis=0),
        np.hstack([marked, marked]),
        marked @ marked,
        np.exp(marked),
    ):
        assert type(computed) is np.ndarray
    assert type(marked.sum()) is np.float64
    assert type(StandardScaler().fit_transform(marked)) is np.ndarray
    assert type(FunctionTransformer().fit_transform(marked)) is MetricArray


def test_dask_arrays_of_a_metric_are_known():
    dask = pytest.importorskip("dask.array")
    rows = dask.from_array(X, chunks=(30, D))
    model = make_pipeline(LearnedMetric(n_rounds=1, random_state=0), FalkonRegressor(n_centers=20, random_state=0))
    assert model.fit(rows, Y)[-1].scale_ is None
    np.testing.assert_allclose(model[0].transform(rows).compute(), model[0].transform(X))
    assert FalkonRegressor(n_centers=20).fit(rows, Y).scale_ is not None


# ---- the warning -----------------------------------------------------------------------------------------------------

UNLIKE = X * [1.0, 1e4, 1.0]
REGRESSORS = [estimator for estimator in ESTIMATORS if "Regressor" in estimator.__name__]


@pytest.mark.parametrize("estimator", REGRESSORS, ids=lambda estimator: estimator.__name__)
def test_unlike_scales_warn_where_a_length_scale_is_given(estimator):
    for kernel in (Gaussian(2.0), Gaussian(2.0) + Linear()):
        with pytest.warns(UserWarning, match=r"column number 1 varies by .* use scale=True, after which length"):
            estimator(kernel, random_state=0).fit(UNLIKE, Y)


def test_unlike_scales_that_are_no_mistake():
    with pytest.warns(UserWarning, match="orders of magnitude"):
        mmd_test(UNLIKE, UNLIKE, Gaussian(2.0), n_permutations=5)
    pixels = np.random.default_rng(0).standard_normal((N, 60))
    pixels[:, 7] *= 1e-4
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "features differ in size")
        FalkonRegressor(Gaussian(5.0), penalty=1e-3).fit(pixels, Y)  # one of many
        FalkonRegressor(Gaussian([2.0, 2e4, 2.0]), penalty=1e-3).fit(UNLIKE, Y)
        FalkonRegressor(penalty=1e-3).fit(UNLIKE.view(MetricArray), Y)
        FalkonRegressor(Gaussian(2.0), scale=True, penalty=1e-3).fit(UNLIKE, Y)
