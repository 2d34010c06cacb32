"""Support vector machines: FalkonClassifier with hinge losses, and regression that ignores small errors."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.sparse
from numpy.testing import assert_allclose, assert_array_equal
from plain import plain
from scipy.optimize import minimize
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_digits, make_classification, make_moons
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import SVC, LinearSVC, LinearSVR
from variant_checks import parametrize_with_variant_checks

from gyrfalcon import FalkonClassifier, FalkonRegressor, load
from gyrfalcon.kernels import Gaussian, Linear
from gyrfalcon.losses import Hinge, SquaredEpsilonInsensitive, SquaredHinge

HINGES = ["squared_hinge", "hinge"]


# tol: a check compares two ways to the same solution
@parametrize_with_variant_checks(
    [
        *(FalkonClassifier(loss=loss, tol=1e-15, max_iter=200) for loss in HINGES),
        FalkonRegressor(loss="squared_epsilon_insensitive", tol=1e-15, max_iter=100),
    ]
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def tight(**params):
    """A classifier without an intercept, solved to the end."""
    return plain(
        FalkonClassifier,
        **{"loss": "squared_hinge", "penalty": 1e-3, "random_state": 0, "tol": 1e-14, "max_iter": 100, **params},
    )


def blobs(n_classes=3, n=400):
    X, y = make_classification(
        n, n_features=5, n_informative=4, n_redundant=0, n_classes=n_classes, class_sep=0.7, random_state=0
    )
    return X, np.array(["ant", "bee", "cow"])[y]


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_linear_kernel_is_linear_svc(n_classes):
    X, y = blobs(n_classes)
    weight = np.random.default_rng(0).uniform(0.5, 2, len(y))
    weight /= weight.mean()
    C = 1 / (1e-3 * len(y))
    model = tight(kernel=Linear(), n_centers=20).fit(X, y, sample_weight=weight)
    peer = LinearSVC(C=C, fit_intercept=False, dual=False, tol=1e-12, max_iter=100_000).fit(X, y, sample_weight=weight)
    assert_allclose(model.decision_function(X), peer.decision_function(X), atol=1e-6)
    assert_array_equal(model.predict(X), peer.predict(X))


@pytest.mark.parametrize("penalty", [1e-2, 1e-5])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_squared_hinge_beside_a_dense_solution(penalty):
    """SciPy minimises the exact objective over orthonormal functions of the centers."""
    X, y = make_moons(300, noise=0.3, random_state=0)
    signs, centers = 2.0 * y - 1, X[:40]
    values, vectors = np.linalg.eigh(Gaussian(0.7)(centers, centers))
    kept = values > 1e-12 * values[-1]
    F = Gaussian(0.7)(X, centers) @ vectors[:, kept] / np.sqrt(values[kept])

    def objective(u):
        slack = np.maximum(1 - signs * (F @ u), 0)
        return np.mean(slack**2) + penalty / 2 * u @ u, -2 * F.T @ (signs * slack) / len(X) + penalty * u

    def hessian(u):
        inside = signs * (F @ u) < 1
        return 2 * F[inside].T @ F[inside] / len(X) + penalty * np.eye(len(u))

    start = np.zeros(F.shape[1])
    found = minimize(objective, start, jac=True, hess=hessian, method="trust-exact", options={"gtol": 1e-11})
    assert np.linalg.norm(found.jac) < 1e-9
    model = tight(kernel=Gaussian(0.7), centers=centers, penalty=penalty).fit(X, y)
    assert model.history_[-1]["objective"] == pytest.approx(found.fun, rel=1e-9)
    assert_allclose(model.decision_function(X), F @ found.x, atol=1e-6)


@pytest.mark.parametrize("smoothing", [0.1, 0.02, 0.004])
def test_hinge_is_svc_up_to_its_smoothing(smoothing):
    """Rows and their mirror images with opposite labels: the bias of SVC is then 0."""
    rng = np.random.default_rng(0)
    half = rng.standard_normal((100, 2)) + 0.5
    X, y = np.vstack([half, -half]), np.repeat([1, -1], 100)
    penalty, kernel = 1e-3, Gaussian(1.0)
    peer = SVC(C=1 / (penalty * len(X)), gamma=0.5, tol=1e-10).fit(X, y)
    assert abs(peer.intercept_[0]) < 1e-6
    model = tight(kernel=kernel, loss=Hinge(smoothing), centers=X, penalty=penalty, tol=1e-10).fit(X, y)

    def objective(alpha, f):
        return np.maximum(1 - y * f, 0).mean() + penalty / 2 * alpha @ kernel(X, X) @ alpha

    dual = np.zeros(len(X))
    dual[peer.support_] = peer.dual_coef_[0]
    least = objective(dual, peer.decision_function(X))
    excess = objective(model.dual_coef_, model.decision_function(X)) - least
    assert -1e-6 < excess < smoothing * np.log(2)
    # by strong convexity
    apart = model.dual_coef_ - dual
    assert penalty / 2 * apart @ kernel(X, X) @ apart <= excess + 1e-6


@pytest.mark.parametrize("loss", HINGES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_shapes_and_signs_are_those_of_svc(loss, dtype, n_classes):
    X, y = blobs(n_classes)
    X = X.astype(dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # ordinary fits do not warn
        model = FalkonClassifier(loss=loss, n_centers=60, random_state=0).fit(X, y)
    peer = SVC(decision_function_shape="ovr").fit(X, y)
    assert model.history_[-1]["converged"]
    f, expected = model.decision_function(X), peer.decision_function(X)
    assert (f.shape, f.dtype) == (expected.shape, dtype)
    assert np.mean(model.predict(X) == peer.predict(X)) > 0.85
    if n_classes == 2:
        assert np.corrcoef(f, expected)[0, 1] > 0.8
    chosen = (f > 0).astype(int) if n_classes == 2 else f.argmax(axis=1)
    assert_array_equal(model.predict(X), model.classes_[chosen])


@pytest.mark.parametrize("loss", HINGES)
def test_each_class_is_a_machine_of_its_own(loss):
    X, y = blobs()
    both = tight(loss=loss, kernel=Gaussian(2.0), centers=X[:60], tol=1e-10).fit(X, y)
    for j, label in enumerate(both.classes_):
        alone = tight(loss=loss, kernel=Gaussian(2.0), centers=X[:60], tol=1e-10).fit(X, y == label)
        assert_allclose(both.decision_function(X)[:, j], alone.decision_function(X), atol=1e-3)


@pytest.mark.parametrize("loss", HINGES)
def test_weights(loss):
    X, y = blobs()
    given = {"loss": loss, "kernel": Gaussian(2.0), "centers": X[:60], "tol": 1e-10}
    by_class = tight(class_weight={"ant": 3.0, "bee": 1.0, "cow": 0.5}, **given).fit(X, y)
    by_row = tight(**given).fit(X, y, sample_weight=np.select([y == "ant", y == "bee"], [3.0, 1.0], 0.5))
    assert_allclose(by_class.decision_function(X), by_row.decision_function(X), atol=1e-5)
    count = np.arange(len(y)) % 3
    repeated = tight(**given).fit(np.repeat(X, count, axis=0), np.repeat(y, count))
    weighted = tight(**given).fit(X, y, sample_weight=count)
    assert_allclose(weighted.decision_function(X), repeated.decision_function(X), atol=1e-3)


@pytest.mark.parametrize("loss", HINGES)
def test_sparse_rows_are_as_dense_ones(loss):
    X, y = load_digits(return_X_y=True)
    X, y = X[:300] / 16, y[:300]
    model = tight(loss=loss, kernel=Gaussian(2.0), n_centers=40, tol=1e-8)
    expected = model.fit(X, y).decision_function(X)
    sparse = scipy.sparse.csr_array(X)
    assert_allclose(model.fit(sparse, y).decision_function(sparse), expected, atol=1e-4)


@pytest.mark.parametrize("loss", HINGES)
def test_a_margin_has_no_probabilities(loss):
    X, y = blobs(2)
    model = FalkonClassifier(loss=loss, n_centers=30, random_state=0)
    for state in (model, model.fit(X, y)):
        assert not hasattr(state, "predict_proba")
        assert not hasattr(state, "predict_log_proba")
        with pytest.raises(AttributeError, match=r'Hinge gives no probabilities. Use loss="logistic"'):
            state.predict_proba(X)
    p = CalibratedClassifierCV(model, cv=3).fit(X, y).predict_proba(X)
    assert_allclose(p.sum(axis=1), 1)


@pytest.mark.parametrize("loss", [*HINGES, Hinge(0.1)], ids=str)
def test_saved_and_loaded(loss, tmp_path):
    X, y = blobs()
    model = FalkonClassifier(loss=loss, n_centers=30, random_state=0).fit(X, y)
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    assert repr(again.loss_) == repr(model.loss_)
    assert_array_equal(again.decision_function(X), model.decision_function(X))


def test_a_fit_that_has_not_converged_says_so():
    X, y = make_moons(400, noise=0.3, random_state=0)
    for loss in HINGES:
        given = {"loss": loss, "kernel": Gaussian(0.3), "n_centers": 100, "penalty": 1e-6, "random_state": 0}
        with pytest.warns(ConvergenceWarning, match="raise max_iter=5"):
            model = FalkonClassifier(max_iter=5, **given).fit(X, y)
        assert not model.history_[-1]["converged"]
        with pytest.warns(ConvergenceWarning, match="would still lower the objective"):
            FalkonClassifier(max_iter=12, tol=1e-10, **given).fit(X, y)
    with pytest.warns(ConvergenceWarning, match=r"from penalty=0.01 and a smoother loss down to the ones asked for"):
        FalkonClassifier(Gaussian(0.3), loss="hinge", n_centers=100, penalty=1e-2, max_iter=3).fit(X, y)


@pytest.mark.parametrize("penalty", [1e-2, 1e-4, 1e-6])
@pytest.mark.parametrize("loss", HINGES)
def test_what_is_called_converged_is_near_the_least(loss, penalty):
    """The objective falls at every step: active sets do not cycle, and `converged` is within `tol` of the least."""
    X, y = make_moons(500, noise=0.3, random_state=1)
    given = {"loss": loss, "kernel": Gaussian(0.5), "centers": X[:60], "penalty": penalty, "fit_intercept": True}
    model = plain(FalkonClassifier, **given, max_iter=60).fit(X, y)
    last = [record for record in model.history_ if record["penalty"] == penalty]
    if loss == "squared_hinge":  # one loss throughout
        objectives = [record["objective"] for record in last]
        assert (np.diff(objectives) <= 1e-12).all()
    assert model.history_[-1]["converged"]
    least = plain(FalkonClassifier, **given, max_iter=400, tol=1e-12).fit(X, y).history_[-1]["objective"]
    assert model.history_[-1]["objective"] <= 1.01 * least


@pytest.mark.parametrize("loss", HINGES)
def test_separable_rows_and_no_penalty(loss):
    rng = np.random.default_rng(0)
    X = np.vstack([rng.normal(c, 0.1, size=(50, 2)) for c in (-20, 0, 20)])
    y = np.repeat([0, 1, 2], 50)
    for labels in (y, y == 1):
        for penalty in (1e-3, 1e-9, 0.0):
            model = plain(FalkonClassifier, Gaussian(5.0), n_centers=60, penalty=penalty, loss=loss, random_state=0)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)  # a small penalty takes many steps
                model.fit(X, labels)
            assert np.isfinite(model.decision_function(X)).all()
            assert model.score(X, labels) == 1


@pytest.mark.parametrize("loss", HINGES)
def test_bad_input(loss):
    X, y = blobs(2)
    model = FalkonClassifier(loss=loss, n_centers=20)
    with pytest.raises(ValueError, match="class"):
        model.fit(X, np.ones(len(X)))
    with pytest.raises(ValueError, match="continuous"):
        model.fit(X, X[:, 0])
    with pytest.raises(ValueError, match="weight"):
        model.fit(X, y, sample_weight=np.zeros(len(X)))
    with pytest.raises(ValueError, match="penalty=-1"):
        FalkonClassifier(loss=loss, penalty=-1.0).fit(X, y)
    with pytest.raises(ValueError, match=r"smoothing=0.0 must be a positive"):
        FalkonClassifier(loss=Hinge(0.0)).fit(X, y)
    with pytest.raises(ValueError, match="is for labels: use FalkonClassifier"):
        FalkonRegressor(loss=loss).fit(X, X[:, 0])
    with pytest.raises(ValueError, match="needs targets of -1 and \\+1"):
        FalkonRegressor(loss=SquaredHinge()).fit(X, X[:, 0])


def test_small_errors_cost_nothing_in_regression():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 4))
    y = X @ [1.0, -2.0, 0.0, 0.5] + 0.3 * rng.standard_normal(300)
    penalty = 1e-3
    loss = SquaredEpsilonInsensitive(0.2)
    model = plain(FalkonRegressor, Linear(), loss=loss, penalty=penalty, n_centers=20, tol=1e-14, max_iter=100)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # above tol by rounding
        model.fit(X, y)
    peer = LinearSVR(
        loss="squared_epsilon_insensitive",
        epsilon=0.2,
        C=1 / (penalty * len(X)),
        fit_intercept=False,
        dual=False,
        tol=1e-12,
        max_iter=100_000,
    )
    assert_allclose(model.predict(X), peer.fit(X, y).predict(X), atol=1e-6)
    by_name = FalkonRegressor(loss="squared_epsilon_insensitive", n_centers=30, random_state=0).fit(X, y)
    assert by_name.loss_.epsilon == pytest.approx(0.1 * np.std(y), rel=0.2)
    assert by_name.score(X, y) > 0.9
