"""Classifiers with probabilities, and regressors with other losses than the squared one."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from plain import plain
from scipy.optimize import minimize
from scipy.special import expit, log_expit
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_digits, make_classification
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import d2_pinball_score, log_loss, mean_pinball_loss, r2_score
from sklearn.model_selection import GridSearchCV
from variant_checks import parametrize_with_variant_checks

from gyrfalcon import FalkonClassifier, FalkonRegressor, load
from gyrfalcon.kernels import Gaussian, Linear, Matern
from gyrfalcon.losses import Huber, Logistic, Loss, Poisson, Quantile, Softmax, Squared


def expected_failures(estimator):
    if estimator.loss == "poisson":
        return {"check_regressor_multioutput": "its targets are negative, in spite of the tag positive_only"}
    if estimator.loss == "logistic":
        reason = "equal to the tolerance, not to 7 digits"
        return {f"check_sample_weight_equivalence_on_{kind}_data": reason for kind in ("dense", "sparse")}
    return {}


# tol: a check compares two ways to the same solution
@parametrize_with_variant_checks(
    [
        FalkonClassifier(loss="logistic"),
        FalkonClassifier(loss="logistic", multi_class="ovr"),
        FalkonRegressor(loss="huber", tol=1e-15, max_iter=100),
        FalkonRegressor(loss="quantile", quantiles=0.3, tol=1e-15, max_iter=100),
        FalkonRegressor(loss="poisson", tol=1e-15, max_iter=100),
    ],
    expected_failed_checks=expected_failures,
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def measured(*arguments, **params):
    """A regressor whose f is measured from the best constant."""
    return plain(FalkonRegressor, *arguments, **{"fit_intercept": True, **params})


def classifier(**params):
    return plain(
        FalkonClassifier, **{"loss": "logistic", "n_centers": 60, "random_state": 0, "penalty": 1e-4, **params}
    )


def regressor(**params):
    return measured(**{"n_centers": 60, "random_state": 0, "penalty": 1e-5, **params})


@pytest.fixture(scope="module")
def three():
    X, y = make_classification(
        600, n_features=5, n_informative=4, n_redundant=0, n_classes=3, class_sep=0.7, random_state=0
    )
    return X, np.array(["ant", "bee", "cow"])[y]


@pytest.fixture(scope="module")
def two(three):
    X, y = three
    return X, y == "ant"


@pytest.fixture(scope="module")
def waves():
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, size=(1500, 1))
    return X, np.sin(2 * X[:, 0]), rng


# ---- probabilities ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("multi_class", ["multinomial", "ovr"])
@pytest.mark.parametrize("data", ["two", "three"])
def test_probabilities(request, data, multi_class, dtype):
    X, y = request.getfixturevalue(data)
    X = X.astype(dtype)
    model = classifier(multi_class=multi_class).fit(X, y)
    p = model.predict_proba(X)
    assert p.shape == (len(X), len(model.classes_))
    np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-12)
    assert (p >= 0).all()
    np.testing.assert_allclose(np.log(p), model.predict_log_proba(X), atol=1e-10)
    np.testing.assert_array_equal(model.classes_[p.argmax(axis=1)], model.predict(X))
    assert log_loss(y, p) < 0.75 * log_loss(
        y, np.tile(np.bincount(np.unique(y, return_inverse=True)[1]) / len(y), (len(X), 1))
    )
    assert model.dual_coef_.shape == ((60,) if data == "two" else (60, 3))


@pytest.mark.parametrize("data", ["two", "three"])
def test_linear_kernel_is_logistic_regression(request, data):
    X, y = request.getfixturevalue(data)
    penalty = 1e-3
    model = classifier(kernel=Linear(), penalty=penalty, tol=1e-12, max_iter=60).fit(X, y)
    peer = LogisticRegression(C=1 / (penalty * len(X)), fit_intercept=False, tol=1e-10, max_iter=1000).fit(X, y)
    np.testing.assert_allclose(model.predict_proba(X), peer.predict_proba(X), atol=1e-5)


def test_one_against_the_rest_is_that(three):
    X, y = three
    model = classifier(multi_class="ovr", tol=1e-10, centers=X[:60], max_iter=60).fit(X, y)
    for j, label in enumerate(model.classes_):
        alone = classifier(tol=1e-10, centers=X[:60], max_iter=60).fit(X, y == label)
        np.testing.assert_allclose(model.decision_function(X)[:, j], alone.decision_function(X), atol=1e-3)
    p = 1 / (1 + np.exp(-model.decision_function(X)))
    np.testing.assert_allclose(model.predict_proba(X), p / p.sum(axis=1, keepdims=True), atol=1e-10)


def test_softmax_beats_least_squares_on_log_loss_of_digits():
    X, y = load_digits(return_X_y=True)
    train, test = np.arange(0, 1797, 2), np.arange(1, 1797, 2)
    model = classifier(kernel=Gaussian(20.0), n_centers=300, penalty=1e-6).fit(X[train], y[train])
    assert model.score(X[test], y[test]) > 0.97
    assert log_loss(y[test], model.predict_proba(X[test])) < 0.12
    assert isinstance(model.loss_, Softmax)


def test_squared_loss_points_to_calibration(two):
    X, y = two
    model = plain(FalkonClassifier, n_centers=50, random_state=0).fit(X, y)
    assert not hasattr(model, "predict_proba")
    assert not hasattr(model, "predict_log_proba")
    with pytest.raises(AttributeError) as caught:
        model.predict_proba(X)
    assert "CalibratedClassifierCV" in str(caught.value)  # the error that is seen, not one behind it
    p = CalibratedClassifierCV(model, cv=3).fit(X, y).predict_proba(X)
    np.testing.assert_allclose(p.sum(axis=1), 1)


def test_separable_data_has_finite_probabilities():
    rng = np.random.default_rng(0)
    X = np.vstack([rng.normal(c, 0.1, size=(50, 2)) for c in (-20, 0, 20)])
    y = np.repeat([0, 1, 2], 50)
    for labels in (y, y == 1):
        for penalty in (1e-3, 1e-9, 0.0):
            model = classifier(penalty=penalty, kernel=Gaussian(5.0)).fit(X, labels)
            assert np.isfinite(model.predict_log_proba(X)).all()
            assert np.isfinite(model.predict_proba(100 * X)).all()
            assert model.score(X, labels) == 1


# ---- edge cases ------------------------------------------------------------------------------------------------------


def test_one_example_in_a_class(three):
    X, y = three
    y = y.copy()
    y[0] = "dog"
    for early_stopping in (False, True):
        model = classifier(early_stopping=early_stopping).fit(X, y)
        p = model.predict_proba(X)
        assert p.shape == (600, 4)
        assert np.isfinite(model.predict_log_proba(X)).all()
        assert p[1:, 3].max() < 0.6


def test_unseen_class_in_validation(three):
    X, y = three
    with pytest.raises(ValueError, match="y_val contains classes that y does not contain: \\['dog'\\]"):
        classifier().fit(X, y, X_val=X[:2], y_val=["ant", "dog"])
    model = classifier().fit(X, y, X_val=X[:2], y_val=["ant", "ant"])
    assert np.isfinite(model.history_[-1]["validation_error"])


@pytest.mark.parametrize("labels", [[False, True], [0, 1], ["no", "yes"], [-1.0, 7.0]], ids=str)
def test_labels_of_any_kind(two, labels):
    X, y = two
    model = classifier().fit(X, np.array(labels)[y.astype(int)])
    assert model.classes_.tolist() == labels
    assert model.predict(X).dtype == model.classes_.dtype
    reference = classifier().fit(X, y)
    np.testing.assert_array_equal(model.predict_proba(X), reference.predict_proba(X))


def test_rows_of_weight_zero_do_not_count(three):
    X, y = three
    weight = np.ones(len(X))
    weight[::3] = 0
    wrong = np.where(weight == 0, "ant", y)
    centers = X[1::3][:60]
    model = classifier(centers=centers, tol=1e-10, max_iter=60).fit(X, wrong, sample_weight=weight)
    without = classifier(centers=centers, tol=1e-10, max_iter=60).fit(X[weight > 0], y[weight > 0])
    np.testing.assert_allclose(model.predict_proba(X), without.predict_proba(X), atol=1e-4)


def test_class_weight_is_sample_weight(three):
    X, y = three
    by_class = classifier(class_weight={"ant": 3.0, "bee": 1.0, "cow": 0.5}).fit(X, y)
    by_row = classifier().fit(X, y, sample_weight=np.select([y == "ant", y == "bee"], [3.0, 1.0], 0.5))
    np.testing.assert_allclose(by_class.predict_proba(X), by_row.predict_proba(X), atol=1e-6)
    assert (by_class.predict(X) == "ant").sum() > (classifier().fit(X, y).predict(X) == "ant").sum()


def test_targets_out_of_the_domain(waves):
    X, y, _ = waves
    with pytest.raises(ValueError, match="counts, which are not negative"):
        regressor(loss="poisson").fit(X, y)
    with pytest.raises(ValueError, match="y_val holds -1"):
        regressor(loss="poisson").fit(X, np.abs(y), X_val=X[:1], y_val=[-1.0])


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"loss": "hing"}, "loss='hing' must be one of"),
        ({"loss": "squared_hinge"}, "is for labels: use FalkonClassifier"),
        ({"loss": "logistic"}, "use FalkonClassifier"),
        ({"quantiles": 0.5}, 'are for loss="quantile"'),
        ({"loss": "quantile", "quantiles": [0.5, 1.0]}, "between 0 and 1"),
        ({"loss": "quantile", "quantiles": []}, "between 0 and 1"),
        ({"loss": "quantile", "quantiles": "all"}, "between 0 and 1"),
        ({"loss": Huber(-1.0)}, "delta=-1.0 must be"),
        ({"loss": "huber", "penalty_path": [1.0, -1.0]}, "none negative"),
        ({"loss": "huber", "penalty_path": "auto"}, "none negative"),
        ({"loss": "huber", "cg_steps": 0}, "at least 1"),
        ({"loss": "huber", "cg_steps": []}, "at least 1"),
        ({"loss": "huber", "cg_steps": [2, 1.5]}, "at least 1"),
    ],
    ids=str,
)
def test_bad_parameters_of_the_regressor(waves, params, words):
    X, y, _ = waves
    with pytest.raises(ValueError, match=words):
        regressor(**params).fit(X, y)


@pytest.mark.parametrize("params", [{"loss": "huber"}, {"loss": Poisson()}, {"multi_class": "auto"}], ids=str)
def test_bad_parameters_of_the_classifier(two, params):
    with pytest.raises(ValueError, match=r"must be|not negative"):
        classifier(**params).fit(*two)


# ---- what a fit does -------------------------------------------------------------------------------------------------


def test_history(three):
    X, y = three
    seen = []
    model = classifier(callbacks=seen.append, penalty=1e-6).fit(X, y, X_val=X, y_val=y)
    assert model.n_iter_ == len(model.history_) == len(seen)
    for record in seen:
        assert {"penalty", "decrement", "cg_steps", "objective", "step", "passes", "residual"} <= record.keys()
    last = model.history_[-1]
    assert last["converged"]
    assert last["penalty"] == 1e-6
    assert last["passes"] == sum(record["cg_steps"] + 1 for record in model.history_)
    assert last["validation_error"] == pytest.approx(log_loss(y, model.predict_proba(X)), rel=1e-6)


def test_early_stopping_is_on_the_log_loss(three):
    X, y = three
    model = classifier(early_stopping=True, n_iter_no_change=2, penalty=1e-10, kernel=Gaussian(1.0), n_centers=300)
    train, held = np.arange(0, 600, 2), np.arange(1, 600, 2)
    model.fit(X[train], y[train], X_val=X[held], y_val=y[held])
    errors = [record["validation_error"] for record in model.history_]
    assert np.argmin(errors) == len(errors) - 3
    assert log_loss(y[held], model.predict_proba(X[held])) == pytest.approx(min(errors), rel=1e-6)
    to_the_end = clone(model).set_params(early_stopping=False).fit(X[train], y[train])
    assert log_loss(y[held], to_the_end.predict_proba(X[held])) > 1.5 * min(errors)


def test_warm_start(three):
    X, y = three
    model = classifier(warm_start=True, tol=1e-6, max_iter=50).fit(X, y)
    cold, p = model.history_[-1]["passes"], model.predict_proba(X)
    model.fit(X, y)
    assert model.history_[-1]["passes"] < cold / 3
    np.testing.assert_allclose(model.predict_proba(X), p, atol=1e-2)
    y = y.copy()
    y[:20] = "cow"
    model.fit(X, y)
    fresh = classifier(tol=1e-6, max_iter=50).fit(X, y)
    assert model.history_[-1]["objective"] == pytest.approx(fresh.history_[-1]["objective"], rel=1e-4)


def test_tolerance_and_its_warning(three):
    X, y = three
    with pytest.warns(ConvergenceWarning, match="would still lower"):
        classifier(tol=1e-8, max_iter=8).fit(X, y)
    model = classifier(tol=1e-8, max_iter=50).fit(X, y)
    assert model.history_[-1]["residual"] <= 1e-8


def test_given_path_and_steps(three):
    X, y = three
    model = classifier(penalty_path=[1e-1, 1e-2, 1e-3], cg_steps=[1, 2, 3, 4], max_iter=5, tol=0.0).fit(X, y)
    assert [record["penalty"] for record in model.history_] == [1e-1, 1e-2, 1e-3, 1e-4, 1e-4]
    assert [record["cg_steps"] for record in model.history_] == [1, 2, 3, 4, 4]


def test_same_bits_for_any_number_of_threads(three):
    X, y = three
    one, two = (classifier(n_jobs=n).fit(X, y) for n in (1, 2))
    np.testing.assert_array_equal(one.dual_coef_, two.dual_coef_)


@pytest.mark.parametrize("centers", ["leverage", "rpcholesky", "given"])
def test_other_centers(three, centers):
    X, y = three
    model = classifier(centers=X[:60] + 0.01 if centers == "given" else centers).fit(X, y)
    assert model.score(X, y) > 0.7
    assert model.history_[-1]["converged"]


# ---- losses of numbers -----------------------------------------------------------------------------------------------


def test_huber_is_not_bent_by_outliers(waves):
    X, signal, rng = waves
    y = 50 + signal + 0.1 * rng.standard_normal(len(X))
    y[::10] += 100
    robust = regressor(loss="huber").fit(X, y)
    assert np.sqrt(np.mean((robust.predict(X) - 50 - signal) ** 2)) < 0.2
    squared = regressor().fit(X, y - np.median(y))
    assert np.sqrt(np.mean((squared.predict(X) + np.median(y) - 50 - signal) ** 2)) > 5


def test_huber_far_out_is_least_squares(waves):
    X, signal, rng = waves
    y = signal + 0.1 * rng.standard_normal(len(X))
    y -= np.median(y)
    huber = regressor(loss=Huber(1e3), tol=1e-12).fit(X, y)
    np.testing.assert_allclose(huber.predict(X), regressor().fit(X, y).predict(X), atol=1e-4)


def test_quantiles(waves):
    X, signal, rng = waves
    spread = 0.2 + 0.2 * np.abs(X[:, 0])
    y = 10 + signal + spread * rng.standard_normal(len(X))
    levels = [0.95, 0.05, 0.5]
    model = regressor(loss="quantile", quantiles=levels, penalty=1e-4).fit(X, y)
    p = model.predict(X)
    assert p.shape == (1500, 3)
    np.testing.assert_allclose((y[:, None] <= p).mean(axis=0), levels, atol=0.01)
    assert (p[:, 1] <= p[:, 2]).all()
    assert (p[:, 2] <= p[:, 0]).all()
    truth = 10 + signal[:, None] + spread[:, None] * np.array([1.645, -1.645, 0])
    assert np.abs(p - truth).mean() < 0.12
    one = regressor(loss="quantile", quantiles=0.95, penalty=1e-4).fit(X, y).predict(X)
    assert one.shape == (1500,)
    assert mean_pinball_loss(y, one, alpha=0.95) == pytest.approx(mean_pinball_loss(y, p[:, 0], alpha=0.95), rel=0.01)
    assert regressor(loss="quantile", quantiles=[0.5]).fit(X, y).predict(X).shape == (1500, 1)


def noisy_waves(waves, n=600):
    X, signal, rng = waves
    return X[:n], 10 + (signal + 0.5 * rng.standard_normal(len(X)))[:n]


@pytest.mark.parametrize("levels", [0.9, [0.9], [0.95, 0.05, 0.5]])
@pytest.mark.parametrize("weighted", [False, True])
def test_score_of_quantiles_is_their_mean_d2(waves, levels, weighted):
    X, y = noisy_waves(waves)
    weight = np.random.default_rng(1).uniform(0, 3, len(y)) if weighted else None
    model = regressor(loss="quantile", quantiles=levels, penalty=1e-4).fit(X, y)
    p = model.predict(X).reshape(len(y), -1)
    each = [
        d2_pinball_score(y, p[:, i], sample_weight=weight, alpha=level) for i, level in enumerate(np.atleast_1d(levels))
    ]
    assert model.score(X, y, sample_weight=weight) == pytest.approx(np.mean(each), rel=1e-12)
    assert model.score(X, y.reshape(-1, 1), weight) == model.score(X, list(y), weight)
    assert 0.2 < np.mean(each) < 1


def test_score_of_quantiles_counts_a_weight_as_so_many_rows(waves):
    X, y = noisy_waves(waves, 200)
    times = np.random.default_rng(1).integers(0, 4, len(y))
    model = regressor(loss="quantile", quantiles=[0.2, 0.7]).fit(X, y)
    repeated = model.score(np.repeat(X, times, axis=0), np.repeat(y, times))
    # where several constants are best, whichever is taken has the same loss
    assert model.score(X, y, times) == pytest.approx(repeated, rel=1e-9)


def test_score_of_constant_quantiles_is_nothing(waves):
    X, y = noisy_waves(waves)
    model = regressor(loss="quantile", quantiles=[0.1, 0.5], penalty=1e6).fit(X, y)
    assert model.score(X, y) == pytest.approx(0.0, abs=0.02)


def test_score_of_the_median_and_of_several_targets(waves):
    X, y = noisy_waves(waves)
    median = regressor(loss="quantile").fit(X, y)
    assert median.score(X, y) == pytest.approx(d2_pinball_score(y, median.predict(X), alpha=0.5), rel=1e-12)
    Y = np.column_stack([y, -3 * y])
    both = regressor(loss=Quantile([0.2, 0.6])).fit(X, Y)
    p = both.predict(X)
    wanted = d2_pinball_score(Y[:, 0], p[:, 0], alpha=0.2) + d2_pinball_score(Y[:, 1], p[:, 1], alpha=0.6)
    assert both.score(X, Y) == pytest.approx(wanted / 2, rel=1e-12)
    # they are not quantiles of one y
    with pytest.raises(ValueError, match=r"y has shape \(600,\), but predictions for X have shape \(600, 2\)"):
        both.score(X, y)
    with pytest.raises(ValueError, match=r"y has shape \(599,\)"):
        median.score(X, y[1:])
    with pytest.raises(NotFittedError):
        regressor(loss="quantile").score(X, y)


def test_searches_by_the_score_of_quantiles(waves):
    X, y = noisy_waves(waves)
    search = GridSearchCV(regressor(loss="quantile", quantiles=[0.1, 0.9]), {"penalty": [1e-4, 1e4]}, cv=3).fit(X, y)
    assert search.best_params_ == {"penalty": 1e-4}
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()


def test_score_of_other_losses_is_r2(waves):
    X, y = noisy_waves(waves)
    for loss in ("squared", "huber", "poisson"):
        model = regressor(loss=loss).fit(X, y)
        assert model.score(X, y) == pytest.approx(r2_score(y, model.predict(X)), rel=1e-12)


def test_quantiles_never_cross():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(80, 1))
    y = rng.standard_normal(80)
    model = regressor(loss="quantile", quantiles=np.linspace(0.1, 0.9, 9), penalty=1e-8, kernel=Matern(0.05, nu=0.5))
    p = model.fit(X, y).predict(np.linspace(-1.2, 1.2, 500)[:, None])
    assert (np.diff(p, axis=1) >= 0).all()


def test_several_quantiles_of_several_columns_are_refused(waves):
    X, y, _ = waves
    with pytest.raises(
        ValueError, match=r"y has 2 columns: several quantiles .* one column, so fit one model for each"
    ):
        regressor(loss="quantile", quantiles=[0.1, 0.9]).fit(X, np.stack([y, y], axis=1))
    p = regressor(loss="quantile").fit(X, np.stack([y, -y], axis=1)).predict(X)
    assert p.shape == (1500, 2)


def test_counts(waves):
    X, signal, rng = waves
    y = rng.poisson(np.exp(1 + signal))
    model = regressor(loss="poisson", penalty=1e-4).fit(X, y)
    np.testing.assert_allclose(np.log(model.predict(X)), 1 + signal, atol=0.35)
    # far away from all rows it is the mean
    np.testing.assert_allclose(model.predict([[1e3]]), y.mean(), rtol=1e-6)
    assert regressor(loss="poisson").fit(X, np.zeros(len(X))).predict(X).max() < 0.1


def test_validation_error_is_the_loss(waves):
    X, signal, rng = waves
    y = 5 + signal + rng.standard_normal(len(X))
    model = regressor(loss=Quantile(0.9, 0.1)).fit(X, y, X_val=X, y_val=y)
    value = model.loss_.value(y[:, None], model.predict(X)[:, None]).mean()
    assert model.history_[-1]["validation_error"] == pytest.approx(value, rel=1e-9)


def test_squared_loss_as_an_object_is_falkon(waves):
    X, y, _ = waves
    np.testing.assert_array_equal(regressor(loss=Squared()).fit(X, y).dual_coef_, regressor().fit(X, y).dual_coef_)


class Asymmetric(Loss):
    """Too small costs three times as much as too large."""

    def __init__(self, ratio=3.0):
        self.ratio = ratio

    def _factor(self, y, f):
        return np.where(f < y, self.ratio, 1.0).astype(f.dtype)

    def value(self, y, f):
        return 0.5 * self._factor(y, f) * np.square(f - y)

    def gradient(self, y, f):
        return self._factor(y, f) * (f - y)

    def hessian(self, y, f):
        return self._factor(y, f)


def test_a_loss_of_your_own(waves):
    X, signal, rng = waves
    y = signal + rng.standard_normal(len(X))
    model = regressor(loss=Asymmetric()).fit(X, y)
    below = y - model.predict(X)
    # where the weighted residuals cancel
    assert 3 * below[below > 0].sum() == pytest.approx(-below[below < 0].sum(), rel=0.05)
    with pytest.raises(TypeError, match="loss"):
        model.save("never.safetensors")


# ---- model files -----------------------------------------------------------------------------------------------------


def test_classifiers_are_saved_with_their_loss(three, two, tmp_path):
    for X, y in (three, two):
        model = classifier().fit(X, y)
        model.save(tmp_path / "model")
        again = load(tmp_path / "model")
        np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
        assert type(again.loss_) is type(model.loss_)


@pytest.mark.parametrize(
    "params", [{"loss": "huber"}, {"loss": "quantile", "quantiles": [0.1, 0.9]}, {"loss": Poisson()}]
)
def test_regressors_are_saved_with_their_loss(waves, params, tmp_path):
    X, y, _ = waves
    model = regressor(**params).fit(X, 2 + y)
    model.save(tmp_path / "model")
    again = load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    np.testing.assert_array_equal(again.offset_, model.offset_)
    again.fit(X, 2 + y)
    np.testing.assert_array_equal(again.predict(X), model.predict(X))


def test_files_that_contradict_themselves_are_refused(waves, tmp_path):
    X, y, _ = waves
    for name, value in {"offset_": np.zeros(2), "loss_": "huber"}.items():
        model = regressor(loss="huber").fit(X, y)
        setattr(model, name, value)
        model.save(tmp_path / "model")
        with pytest.raises(ValueError, match=name):
            load(tmp_path / "model")


def test_another_loss_in_the_next_fit(two, waves):
    X, y = two
    model = classifier().fit(X, y).set_params(loss="squared").fit(X, y)
    assert isinstance(model.loss_, Squared)
    assert isinstance(model.set_params(loss="logistic").fit(X, y).loss_, Logistic)
    X, y, _ = waves
    model = regressor(loss="huber").fit(X, 9 + y).set_params(loss="squared").fit(X, y)
    np.testing.assert_array_equal(model.predict(X), regressor().fit(X, y).predict(X))


# ---- what goes together -------------------------------------------------------------------------------------------


def wave(n=300):
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (n, 1))
    return X, np.sin(2 * X[:, 0]), rng


def test_a_warm_start_does_not_carry_coefficients_to_another_loss():
    X, s, rng = wave()
    y = rng.poisson(np.exp(4 + 2 * s)).astype(float)
    model = measured(warm_start=True, n_centers=40, random_state=0).fit(X, y)
    warm = model.set_params(loss="poisson").fit(X, y).predict(X)
    cold = measured(loss="poisson", n_centers=40, random_state=0).fit(X, y).predict(X)
    assert_allclose(warm, cold, rtol=1e-6)


def test_levels_of_different_outputs_are_not_put_in_order():
    X, s, _ = wave()
    Y = np.column_stack([100 + s, s])
    model = measured(loss=Quantile([0.1, 0.9]), n_centers=40, penalty=1e-8, random_state=0).fit(X, Y)
    assert_allclose(model.predict(X).mean(axis=0), Y.mean(axis=0), atol=1.0)


@pytest.mark.parametrize("loss", [Quantile(0.9), Huber()], ids=repr)
def test_outputs_of_different_units_are_learnt_as_if_alone(loss):
    X, s, rng = wave()
    Y = np.column_stack([1000 * rng.standard_normal(300), s + 0.1 * rng.standard_normal(300)])
    options = {"loss": loss, "n_centers": 40, "penalty": 1e-6, "random_state": 0, "tol": 1e-10, "max_iter": 60}
    both = measured(**options).fit(X, Y)
    assert np.ndim(getattr(both.loss_, "delta", getattr(both.loss_, "smoothing", 0))) == 1
    alone = measured(**options).fit(X, Y[:, 1])
    # the penalty is one for all outputs, so quantiles are not quite the same
    assert_allclose(both.predict(X)[:, 1], alone.predict(X), atol=0.15)


@pytest.mark.parametrize("unit", [1e-6, 1e6])
def test_the_unit_of_y_does_not_matter_to_quantiles(unit):
    X, s, rng = wave()
    y = s + 0.1 * rng.standard_normal(300)
    options = {"loss": "quantile", "quantiles": [0.1, 0.9], "n_centers": 40, "random_state": 0}
    one, other = (measured(**options).fit(X, c * y).predict(X) / c for c in (1.0, unit))
    assert_allclose(other, one, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("value", [0.0, 1e-6, -5e4])
def test_constant_targets_of_any_size(value):
    X, _, _ = wave()
    y = np.full(300, value)
    predictions = measured(loss="quantile", quantiles=[0.1, 0.9], n_centers=40, random_state=0).fit(X, y).predict(X)
    assert_allclose(predictions, value, atol=1e-3 * max(abs(value), 1.0 if value == 0 else 0.0))


def test_probabilities_are_those_of_the_fitted_loss():
    X, s, _ = wave()
    model = plain(FalkonClassifier, n_centers=40, random_state=0).fit(X, s > 0)
    model.set_params(loss="logistic")
    assert not hasattr(model, "predict_proba")
    assert hasattr(model.fit(X, s > 0), "predict_proba")
    model.set_params(loss="squared")
    assert_allclose(model.predict_proba(X).sum(axis=1), 1.0)


def test_a_subclass_of_the_squared_loss_is_itself():
    class Cosh(Squared):
        def value(self, y, f):
            return np.cosh(f - y) - 1

        def gradient(self, y, f):
            return np.sinh(f - y)

        def hessian(self, y, f):
            return np.cosh(f - y)

    X, s, _ = wave()
    assert "objective" in measured(loss=Cosh(), n_centers=40, random_state=0).fit(X, s).history_[0]


def test_numbers_of_steps_from_numpy():
    X, s, _ = wave()
    model = measured(loss="huber", cg_steps=np.int64(3), n_centers=40, random_state=0).fit(X, s)
    assert {record["cg_steps"] for record in model.history_} == {3}


def test_a_path_that_leaves_no_step_for_the_penalty():
    X, s, _ = wave()
    with pytest.raises(ValueError, match="penalty_path has 20 penalties"):
        measured(loss="huber", penalty_path=[1.0] * 20, n_centers=40).fit(X, s)
    with pytest.warns(ConvergenceWarning, match="not enough to come from penalty"):
        measured(loss="huber", max_iter=2, n_centers=40, random_state=0).fit(X, s)


def test_rows_that_are_held_out_do_not_decide_where_f_starts():
    X, _, _ = wave()
    y = np.arange(300.0)
    model = measured(loss="poisson", early_stopping=True, n_centers=40, random_state=0, validation_fraction=0.5)
    model.fit(X, y)
    assert model.offset_ != pytest.approx(np.log(y.mean()), rel=1e-12)


@pytest.mark.parametrize("unit", [1e-12, 1e6, 1e12])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_quantiles_do_not_depend_on_the_unit_of_y(dtype, unit):
    """In float32 the penalty over y's deviation was rounding from y of 1e4 on, and predictions were off by half."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, (500, 2)).astype(dtype)
    y = np.sin(X[:, 0]) + 0.3 * rng.standard_normal(500)
    tight = {"tol": 1e-5, "max_iter": 60, "penalty": 1e-4}
    model = measured(Gaussian(1.0), loss="quantile", quantiles=[0.1, 0.9], n_centers=50, random_state=0, **tight)
    expected = model.fit(X, y).predict(X)
    history = model.history_
    again = model.fit(X, unit * y)
    np.testing.assert_allclose(again.predict(X) / unit, expected, atol=2e-2 * np.std(y))
    assert again.history_[-1]["objective"] == pytest.approx(unit * history[-1]["objective"], rel=1e-2)
    assert again.history_[-1]["penalty"] == pytest.approx(history[-1]["penalty"] / unit, rel=1e-2)


def test_the_name_that_scikit_learn_has_for_the_logistic_loss():
    X = np.random.default_rng(0).standard_normal((80, 2))
    y = X[:, 0] > 0
    expected = FalkonClassifier(loss="logistic", n_centers=10, random_state=0).fit(X, y).predict_proba(X)
    assert np.array_equal(
        FalkonClassifier(loss="log_loss", n_centers=10, random_state=0).fit(X, y).predict_proba(X), expected
    )
    with pytest.raises(ValueError, match='loss="log_loss" is for labels: use FalkonClassifier'):
        FalkonRegressor(loss="log_loss").fit(X, X[:, 0])


@pytest.mark.parametrize("spread", [0, 6, 12])
def test_quantiles_with_weights_of_any_spread(spread):
    """The objective is within the half percent that `tol` promises of that of a dense float64 solve."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 2))
    y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.3 * rng.standard_normal(300)
    weight = 10.0 ** (spread * (rng.uniform(size=300) - 0.5))
    weight /= weight.mean()
    model = FalkonRegressor(Gaussian(1.0), loss="quantile", centers=X[:60], penalty=1e-4, scale=False)
    model.fit(X, y, sample_weight=weight)
    s, penalty = model.loss_.smoothing, 1e-4 * model.loss_.penalty_unit(y[:, None], weight)
    values, vectors = np.linalg.eigh(Gaussian(1.0)(X[:60], X[:60]))
    kept = values > 1e-13 * values[-1]
    B = vectors[:, kept] / np.sqrt(values[kept])
    A = Gaussian(1.0)(X, X[:60]) @ B  # f = offset + A u, and the penalty is that of |u|^2

    def objective(u):
        r = y - model.offset_ - A @ u
        return np.mean(weight * (0.5 * r - s * log_expit(r / s))) + penalty / 2 * u @ u

    def gradient(u):
        return A.T @ (weight * (expit(-(y - model.offset_ - A @ u) / s) - 0.5)) / 300 + penalty * u

    def hessian(u):
        p = expit(-(y - model.offset_ - A @ u) / s)
        return A.T @ ((weight * p * (1 - p) / s / 300)[:, None] * A) + penalty * np.eye(len(u))

    found = minimize(objective, np.zeros(A.shape[1]), jac=gradient, hess=hessian, method="trust-exact")
    assert np.square(gradient(found.x)).sum() / (2 * penalty) < 1e-3 * found.fun  # by strong convexity, from the least
    # the model's own objective, as its function of the rows
    f = model.predict(X)
    r = y - f
    norm = model.dual_coef_ @ Gaussian(1.0)(X[:60], X[:60]) @ model.dual_coef_
    own = np.mean(weight * (0.5 * r - s * log_expit(r / s))) + penalty / 2 * norm
    assert own < (1 + 5e-3) * found.fun


@pytest.mark.parametrize(("theirs", "ours"), [("squared_error", "squared"), ("absolute_error", "quantile")])
def test_names_of_losses_in_scikit_learn(theirs, ours):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 2))
    y = X[:, 0] + rng.standard_cauchy(60)
    options = {"n_centers": 10, "penalty": 1e-3, "random_state": 0}
    first, second = (FalkonRegressor(loss=loss, **options).fit(X, y) for loss in (theirs, ours))
    np.testing.assert_array_equal(first.predict(X), second.predict(X))
    if ours == "squared":
        labels = y > 0
        first, second = (FalkonClassifier(loss=loss, **options).fit(X, labels) for loss in (theirs, ours))
        np.testing.assert_array_equal(first.decision_function(X), second.decision_function(X))
    else:
        with pytest.raises(ValueError, match=r"loss=.absolute_error. must be one of .squared., .logistic."):
            FalkonClassifier(loss=theirs).fit(X, y > 0)


def test_intervals_of_quantiles():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, size=(400, 1))
    y = X[:, 0] + (0.2 + 0.2 * (X[:, 0] > 0)) * rng.standard_normal(400)
    options = {"loss": "quantile", "n_centers": 10, "penalty": 1e-4, "random_state": 0}
    model = FalkonRegressor(quantiles=[0.5, 0.9, 0.1, 0.95, 0.05], **options).fit(X, y)
    np.testing.assert_array_equal(model.predict_interval(X), model.predict(X)[:, [4, 3]])
    np.testing.assert_array_equal(model.predict_interval(X, coverage=0.8), model.predict(X)[:, [2, 1]])
    with pytest.raises(ValueError, match=r"coverage=0\.5 needs the quantiles 0\.25, 0\.75, and the fit has 0\.5, 0\.9"):
        model.predict_interval(X, coverage=0.5)
    with pytest.raises(ValueError, match="coverage"):
        model.predict_interval(X, coverage=1.0)
    two = FalkonRegressor(quantiles=[0.1, 0.9], **options).fit(X, y)
    low, high = two.predict_interval(X).T
    assert np.mean((low <= y) & (y <= high)) == pytest.approx(0.8, abs=0.06)
    with pytest.raises(ValueError, match=r"one quantile of y is not an interval: fit with quantiles=\[0\.05, 0\.95\]"):
        FalkonRegressor(quantiles=[0.1], **options).fit(X, y).predict_interval(X)
    huber = FalkonRegressor(loss="huber", n_centers=10, penalty=1e-4, random_state=0).fit(X, y)
    for ask in (huber.predict_interval, lambda rows: huber.predict(rows, return_std=True)):
        with pytest.raises(ValueError, match=r'no standard deviations: .* use loss="quantile".*ConformalRegressor'):
            ask(X)
