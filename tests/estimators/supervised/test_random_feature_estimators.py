"""Least squares on random features: the same as dense ridge regression on the same features, by whatever solver."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from plain import plain
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV
from sklearn.utils.estimator_checks import parametrize_with_checks
from variant_checks import parametrize_with_variant_checks

import gyrfalcon
from gyrfalcon import ModelFileError
from gyrfalcon.estimators import RandomFeaturesClassifier, RandomFeaturesRegressor
from gyrfalcon.kernels import ArcCosine, Gaussian, Laplacian, Linear, Matern, Polynomial

pytestmark = pytest.mark.filterwarnings("error")

KERNELS = {
    "gaussian": Gaussian(1.0),
    "laplacian": Laplacian(2.0),
    "matern": Matern(1.5, nu=2.5),
    "relu": ArcCosine(1),
    "linear": Linear(),
    "sum": Gaussian(1.0) + 0.5 * Linear() + 1.0,
}


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((400, 3))
    return X, np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * rng.standard_normal(400)


def dense(model, X, y, weight=None):
    """Ridge regression on the model's features, by the textbook's formula."""
    F = model.feature_map_.astype(np.float64)(X.astype(np.float64))
    w = np.ones(len(X)) if weight is None else weight / weight.mean()
    G = F.T @ (w[:, None] * F) + model.penalty * len(X) * np.eye(F.shape[1])
    coef = np.linalg.solve(G, F.T @ (y.T * w).T)
    return coef, F @ coef


@parametrize_with_checks([RandomFeaturesRegressor(n_components=50), RandomFeaturesClassifier(n_components=50)])
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@parametrize_with_variant_checks([RandomFeaturesRegressor(n_components=20, solver="sgd", max_iter=5)])
def test_scikit_learn_checks_of_variants(estimator, check):
    check(estimator)


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
@pytest.mark.parametrize("orthogonal", [False, True], ids=["plain", "orthogonal"])
def test_direct_is_ridge_regression_on_the_features(data, kernel, orthogonal):
    X, y = data
    model = plain(RandomFeaturesRegressor, kernel, n_components=60, penalty=1e-4, orthogonal=orthogonal, random_state=0)
    model.fit(X, y)
    coef, predictions = dense(model, X, y)
    assert_allclose(model.feature_coef_, coef, rtol=1e-6, atol=1e-8 * np.abs(coef).max())
    assert_allclose(model.predict(X), predictions, rtol=1e-8, atol=1e-8)
    assert model.n_iter_ == 1
    assert model.history_[0]["passes"] == 1


def test_float32(data):
    X, y = data
    model = plain(RandomFeaturesRegressor, Gaussian(1.0), n_components=60, penalty=1e-4, random_state=0)
    model.fit(X.astype(np.float32), y)
    assert model.predict(X.astype(np.float32)).dtype == np.float32
    assert model.feature_map_.weights.dtype == np.float32
    assert_allclose(model.predict(X), dense(model, X, y)[1], atol=3e-4)


def test_several_outputs(data):
    X, y = data
    Y = np.column_stack([y, 1e6 * y, np.zeros_like(y)])
    model = plain(RandomFeaturesRegressor, n_components=50, penalty=1e-4, random_state=0).fit(X, Y)
    assert model.feature_coef_.shape == (50, 3)
    assert_allclose(model.predict(X), dense(model, X, Y)[1], rtol=1e-7, atol=1e-7)
    assert_allclose(clone(model).fit(X, y).predict(X), model.predict(X)[:, 0], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("solver", ["direct", "sgd", "bcd"])
def test_sample_weight(data, solver):
    X, y = data
    rng = np.random.default_rng(1)
    weight = rng.integers(0, 4, len(X)).astype(float)
    model = plain(
        RandomFeaturesRegressor,
        n_components=20,
        penalty=1e-2,
        solver=solver,
        batch_size=400,
        max_iter=600,
        random_state=0,
    ).fit(X, y, weight)
    expected = dense(model, X, y, weight)[1]
    assert_allclose(model.predict(X), expected, atol=1e-8 if solver == "direct" else 1e-4)
    # the length scale too is that of rows repeated as often
    assert model.kernel_.length_scale == pytest.approx(
        clone(model)
        .set_params(solver="direct")
        .fit(np.repeat(X, weight.astype(int), axis=0), np.repeat(y, weight.astype(int)))
        .kernel_.length_scale
    )


def test_blocks_that_have_not_settled(data):
    common = {"n_components": 60, "penalty": 1e-6, "random_state": 0, "solver": "bcd"}
    with pytest.warns(ConvergenceWarning, match=r"off by about .* after 2 sweeps: raise max_iter=2, block_size"):
        plain(RandomFeaturesRegressor, block_size=5, max_iter=2, **common).fit(*data)
    plain(RandomFeaturesRegressor, max_iter=5, **common).fit(*data)  # one block: the module turns warnings to errors


@pytest.mark.parametrize("M", [1, 5, 700])
def test_more_features_than_rows_and_few(data, M):
    X, y = data[0][:30], data[1][:30]
    model = plain(RandomFeaturesRegressor, n_components=M, penalty=1e-6, random_state=0).fit(X, y)
    assert_allclose(model.predict(X), dense(model, X, y)[1], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("penalty", [0.0, 1e-300, 1e-18])
def test_no_penalty_with_more_features_than_rows_interpolates(data, penalty):
    X, y = data[0][:30], data[1][:30]
    model = plain(RandomFeaturesRegressor, n_components=120, penalty=penalty, random_state=0).fit(X, y)
    assert_allclose(model.predict(X), y, atol=1e-6)
    F = model.feature_map_(X)
    assert_allclose(model.feature_coef_, np.linalg.pinv(F) @ y, atol=1e-6 * np.abs(model.feature_coef_).max())


@pytest.mark.parametrize("solver", ["direct", "sgd", "bcd"])
def test_one_row(solver):
    model = plain(RandomFeaturesRegressor, n_components=40, penalty=1e-3, solver=solver, max_iter=200, random_state=0)
    model.fit([[1.0, 2.0]], [3.0])
    assert_allclose(model.predict([[1.0, 2.0]]), dense(model, np.array([[1.0, 2.0]]), np.array([3.0]))[1], rtol=1e-6)


def test_any_number_of_threads_gives_the_same_bits(data):
    X, y = data
    for solver in ("direct", "sgd", "bcd"):
        models = [
            plain(
                RandomFeaturesRegressor, n_components=80, solver=solver, max_iter=3, n_jobs=n_jobs, random_state=0
            ).fit(X, y)
            for n_jobs in (1, 3)
        ]
        assert_array_equal(models[0].feature_coef_, models[1].feature_coef_)
        assert_array_equal(models[0].predict(X), models[1].predict(X))


@pytest.mark.parametrize("orthogonal", [False, True], ids=["plain", "orthogonal"])
def test_approaches_kernel_ridge_regression_like_the_root_of_the_number(data, orthogonal):
    X, y = data
    K = Gaussian(1.0)(X, X)
    exact = K @ np.linalg.solve(K + 1e-2 * len(X) * np.eye(len(X)), y)

    def distance(M):
        models = (
            plain(
                RandomFeaturesRegressor,
                Gaussian(1.0),
                n_components=M,
                penalty=1e-2,
                orthogonal=orthogonal,
                random_state=s,
            )
            for s in range(8)
        )
        return np.sqrt(np.mean([np.square(model.fit(X, y).predict(X) - exact) for model in models]))

    assert 3.0 < distance(50) / distance(800) < 5.6  # sqrt(16) = 4; a bias would end the fall


# ---- mini-batches ----------------------------------------------------------------------------------------------------


def test_sgd_on_one_batch_converges_to_the_direct_solution(data):
    X, y = data
    common = {"n_components": 30, "penalty": 1e-2, "random_state": 0}
    direct = plain(RandomFeaturesRegressor, Gaussian(1.0), **common).fit(X, y)
    descent = plain(
        RandomFeaturesRegressor, Gaussian(1.0), solver="sgd", batch_size=len(X), max_iter=400, **common
    ).fit(X, y)
    assert_allclose(descent.feature_coef_, direct.feature_coef_, atol=1e-4 * np.abs(direct.feature_coef_).max())


def test_sgd_on_batches_comes_close_and_its_steps_are_the_textbooks(data):
    X, y = data
    common = {"n_components": 30, "penalty": 1e-2, "random_state": 0}
    direct = plain(RandomFeaturesRegressor, Gaussian(1.0), **common).fit(X, y).predict(X)
    model = plain(RandomFeaturesRegressor, Gaussian(1.0), solver="sgd", batch_size=50, step=0.1, **common)

    def distance(epochs):
        model.set_params(max_iter=epochs).fit(X, y)
        assert [record["iteration"] for record in model.history_] == list(range(1, epochs + 1))
        return np.sqrt(np.mean(np.square(model.predict(X) - direct))) / y.std()

    # a constant step goes on to a neighbourhood of the solution, and stays there
    assert distance(240) < min(0.03, 0.3 * distance(60))
    # one epoch, step by step: the features are drawn first, then the order of the rows
    once = clone(model).set_params(max_iter=1).fit(X, y)
    random_state = np.random.RandomState(0)
    F = Gaussian(1.0).random_features(30, 3, random_state)(X)
    coef = np.zeros(30)
    for batch in random_state.permutation(400).reshape(8, 50):
        coef = coef + 0.1 * (F[batch].T @ (y[batch] - F[batch] @ coef) / 50 - 1e-2 * coef)
    assert_allclose(once.feature_coef_, coef, rtol=1e-10)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sgd_learns_with_its_defaults(dtype):
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (4000, 2)).astype(dtype)
    y = np.sin(2 * X[:, 0]) * X[:, 1]
    model = plain(RandomFeaturesRegressor, n_components=200, solver="sgd", random_state=0).fit(X[:3000], y[:3000])
    assert model.score(X[3000:], y[3000:]) > 0.9


def test_a_step_that_diverges_is_told(data):
    X, y = data
    model = plain(RandomFeaturesRegressor, n_components=50, solver="sgd", step=100.0, max_iter=200, random_state=0)
    with pytest.raises(FloatingPointError, match=r"diverges with step=100.*largest stable step"):
        model.fit(X, y)
    assert not hasattr(model, "feature_coef_")


def test_early_stopping_and_callbacks(data):
    X, y = data
    model = plain(RandomFeaturesRegressor, n_components=50, solver="sgd", max_iter=50, random_state=0)
    model.fit(X[:300], y[:300], X_val=X[300:], y_val=y[300:])
    errors = [record["validation_error"] for record in model.history_]
    assert errors[-1] == pytest.approx(np.sqrt(np.mean(np.square(model.predict(X[300:]) - y[300:]))))
    stopped = clone(model).set_params(early_stopping=True, n_iter_no_change=2, max_iter=3000, step=1.0).fit(X, y)
    assert stopped.n_iter_ < 3000
    seen = []
    clone(model).set_params(callbacks=lambda record: seen.append(record) or len(seen) == 3).fit(X, y)
    assert len(seen) == 3


def test_direct_holds_nothing_out_and_records_the_validation_error(data):
    X, y = data
    model = plain(RandomFeaturesRegressor, n_components=50, early_stopping=True, random_state=0).fit(X, y)
    given = plain(RandomFeaturesRegressor, n_components=50, random_state=0).fit(X, y, X_val=X[:50], y_val=y[:50])
    assert_array_equal(model.feature_coef_, given.feature_coef_)
    expected = np.sqrt(np.mean(np.square(given.predict(X[:50]) - y[:50])))
    assert given.history_[0]["validation_error"] == pytest.approx(expected)


# ---- classes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", ["direct", "sgd"])
@pytest.mark.parametrize("labels", [["no", "yes"], [3, 5, 11]], ids=["two", "three"])
def test_classifier(data, labels, solver):
    X, y = data
    edges = [0.0] if len(labels) == 2 else [-0.5, 0.5]
    classes = np.array(labels)[np.digitize(y, edges)]
    model = plain(RandomFeaturesClassifier, n_components=100, penalty=1e-3, solver=solver, max_iter=100, random_state=0)
    model.fit(X, classes)
    assert_array_equal(model.classes_, labels)
    direct = clone(model).set_params(solver="direct").fit(X, classes)
    assert np.mean(model.predict(X) == direct.predict(X)) > 0.9
    assert model.score(X, classes) > 0.7
    if solver == "direct":
        columns = [1.0 * (classes == label) * 2 - 1 for label in (labels[1:] if len(labels) == 2 else labels)]
        expected = dense(model, X, np.column_stack(columns))[1]
        assert_allclose(model.decision_function(X).reshape(len(X), -1), expected, atol=1e-7)


def test_class_weight(data):
    X, y = data
    classes = (y > 1).astype(int)
    weight = np.where(classes == 1, 5.0, 1.0)
    one = plain(RandomFeaturesClassifier, Gaussian(1.0), n_components=50, class_weight={0: 1, 1: 5}, random_state=0)
    other = plain(RandomFeaturesClassifier, Gaussian(1.0), n_components=50, random_state=0)
    assert_allclose(
        one.fit(X, classes).decision_function(X), other.fit(X, classes, weight).decision_function(X), atol=1e-9
    )


# ---- bad input, files ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_components": 0}, "n_components=0 must be an integer of at least 1"),
        ({"solver": "cholesky"}, "solver='cholesky' must be one of 'direct', 'sgd', 'bcd'"),
        ({"step": -1.0}, 'step=-1.0 must be "auto" or a finite number greater than 0'),
        ({"step": "long"}, "step='long' must be"),
        ({"batch_size": 0}, "batch_size=0 must be an integer of at least 1"),
        ({"penalty": -1e-3}, 'penalty=-0.001 must be "auto" or a finite number, not negative'),
        ({"kernel": Polynomial()}, "Polynomial has no random features"),
        ({"kernel": lambda A, B: A @ B.T}, "CallableKernel has no random features"),
    ],
    ids=lambda value: str(value)[:30],
)
@pytest.mark.parametrize("model", [RandomFeaturesRegressor, RandomFeaturesClassifier])
def test_bad_parameters(data, model, parameters, message):
    X, y = data
    with pytest.raises(ValueError, match=message):
        model(**parameters).fit(X, (y > 0).astype(int))


def test_nan(data):
    X, y = data
    broken = X.copy()
    broken[7, 1] = np.nan
    model = plain(RandomFeaturesRegressor, n_components=20).fit(X, y)
    with pytest.raises(ValueError, match="NaN"):
        clone(model).fit(broken, y)
    with pytest.raises(ValueError, match="NaN"):
        model.predict(broken)


def test_too_little_memory_is_told(data, monkeypatch):
    X, y = data
    monkeypatch.setattr("gyrfalcon._utils.memory.available_memory", lambda: 8 * 50**2)
    plain(RandomFeaturesRegressor, n_components=50).fit(X, y)
    with pytest.raises(MemoryError, match='n_components=50 would fit, or solver="sgd"'):
        plain(RandomFeaturesRegressor, n_components=51).fit(X, y)
    plain(RandomFeaturesRegressor, n_components=51, solver="sgd").fit(X, y)


def test_a_fit_that_fails_leaves_the_last_one(data):
    X, y = data
    model = plain(RandomFeaturesRegressor, n_components=20, random_state=0).fit(X, y)
    before = model.predict(X)
    with pytest.raises(ValueError, match="has no random features"):
        model.set_params(kernel="sigmoid").fit(X, y)
    assert_array_equal(model.predict(X), before)


def test_parameters_can_be_searched(data):
    X, y = data
    search = GridSearchCV(
        plain(RandomFeaturesRegressor, Gaussian(1.0), n_components=60, random_state=0),
        {"kernel__length_scale": [0.1, 1.0], "penalty": [1e-5, 10.0]},
        cv=3,
    ).fit(X, y)
    assert search.best_params_ == {"kernel__length_scale": 1.0, "penalty": 1e-5}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
def test_saved_and_loaded(data, kernel, dtype, tmp_path):
    X, y = data[0].astype(dtype), data[1]
    for model, target in [(RandomFeaturesRegressor, y), (RandomFeaturesClassifier, y > 0)]:
        fitted = model(kernel, n_components=30, penalty=1e-3, random_state=0).fit(X, target)
        fitted.save(tmp_path / "model")
        loaded = gyrfalcon.load(tmp_path / "model")
        assert_array_equal(loaded.predict(X), fitted.predict(X))
        assert_array_equal(clone(loaded).fit(X, target).feature_coef_, fitted.feature_coef_)


@pytest.mark.parametrize(
    "edit",
    [
        lambda model: setattr(model, "feature_coef_", model.feature_coef_[:-1]),
        lambda model: setattr(model, "feature_coef_", model.feature_coef_ * np.nan),
        lambda model: setattr(model, "feature_coef_", model.feature_coef_.astype(int)),
        lambda model: setattr(model, "n_features_in_", 2),
        lambda model: setattr(model, "feature_map_", Gaussian()),
        lambda model: setattr(model, "kernel_", "gaussian"),
        lambda model: setattr(model.feature_map_, "scale", np.ones(7)),
    ],
)
def test_parts_that_disagree_are_not_loaded(data, edit, tmp_path):
    X, y = data
    model = plain(RandomFeaturesRegressor, n_components=30, random_state=0).fit(X, y)
    edit(model)
    model.save(tmp_path / "model")
    with pytest.raises(ModelFileError, match="inconsistent RandomFeaturesRegressor"):
        gyrfalcon.load(tmp_path / "model")


# ---- shorter steps and averages --------------------------------------------------------------------------------------


@pytest.mark.parametrize("average", [False, True])
@pytest.mark.parametrize("power_t", [0.0, 0.5])
@pytest.mark.parametrize("weighted", [False, True])
def test_steps_of_sgd_and_their_average_by_hand(weighted, power_t, average):
    rng = np.random.default_rng(0)
    X, y, w = rng.standard_normal((60, 2)), rng.standard_normal(60), rng.uniform(0.5, 2, size=60)
    options = {"n_components": 10, "penalty": 0.1, "solver": "sgd", "max_iter": 3, "step": 0.3, "batch_size": 60}
    model = plain(RandomFeaturesRegressor, Gaussian(1.0), power_t=power_t, average=average, random_state=0, **options)
    model.fit(X, y, sample_weight=w if weighted else None)
    F, w = model.feature_map_(X), w / w.mean() if weighted else np.ones(60)
    coef, path = np.zeros(10), []
    for t in range(1, 4):  # a batch of all rows, so that their order does not matter
        coef = coef + 0.3 * t**-power_t * (F.T @ (w * (y - F @ coef)) / 60 - 0.1 * coef)
        path.append(coef)
    assert_allclose(model.feature_coef_, np.mean(path, axis=0) if average else coef, atol=1e-10)


def test_averages_are_closer_to_the_solution():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((500, 2))
    y = np.sin(X[:, 0]) + rng.standard_normal(500)
    options = {"n_components": 20, "penalty": 0.05, "random_state": 0}
    solution = plain(RandomFeaturesRegressor, Gaussian(1.0), **options).fit(X, y).feature_coef_
    sgd = {"solver": "sgd", "batch_size": 2, "max_iter": 20, "step": 0.5}
    last, mean, decayed = (
        np.linalg.norm(
            plain(RandomFeaturesRegressor, Gaussian(1.0), **options, **sgd, **more).fit(X, y).feature_coef_ - solution
        )
        for more in ({}, {"average": True}, {"power_t": 0.5})
    )
    assert mean < 0.3 * last
    assert decayed < 0.5 * last


def test_bad_schedules():
    X, y = np.zeros((20, 1)), np.arange(20.0)
    with pytest.raises(ValueError, match=r"power_t=1\.5 must be between 0 and 1"):
        RandomFeaturesRegressor(power_t=1.5).fit(X, y)
    with pytest.raises(ValueError, match="average='yes'"):
        RandomFeaturesClassifier(average="yes").fit(X, y > 5)
