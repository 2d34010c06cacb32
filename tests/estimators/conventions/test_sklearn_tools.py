"""scikit-learn's own tools, given these estimators: displays, thresholds, stacks, searches."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV, CalibrationDisplay, calibration_curve
from sklearn.compose import TransformedTargetRegressor
from sklearn.datasets import make_blobs, make_moons
from sklearn.ensemble import StackingClassifier, StackingRegressor
from sklearn.experimental import enable_halving_search_cv  # noqa: F401
from sklearn.feature_selection import RFE, SelectFromModel
from sklearn.inspection import DecisionBoundaryDisplay, PartialDependenceDisplay, permutation_importance
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import (
    DetCurveDisplay,
    PrecisionRecallDisplay,
    RocCurveDisplay,
    accuracy_score,
    average_precision_score,
    balanced_accuracy_score,
    brier_score_loss,
    det_curve,
    get_scorer,
    log_loss,
    make_scorer,
    r2_score,
    roc_auc_score,
    roc_curve,
)
from sklearn.model_selection import (
    FixedThresholdClassifier,
    GridSearchCV,
    HalvingGridSearchCV,
    KFold,
    LearningCurveDisplay,
    TunedThresholdClassifierCV,
    cross_val_predict,
    cross_val_score,
    learning_curve,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from gyrfalcon import (
    ExactRegressor,
    FalkonClassifier,
    FalkonRegressor,
    HierarchicalRegressor,
    RandomFeaturesClassifier,
)
from gyrfalcon.losses import Logistic

OPTIONS = {"n_centers": 40, "penalty": 1e-3, "random_state": 0}
LABELS = np.array(["no", "yes"])  # neither 0 nor 1, so that which class is meant is never a guess


@pytest.fixture(scope="module")
def two():
    X, y = make_moons(300, noise=0.4, random_state=0)
    return X, LABELS[y]


@pytest.fixture(scope="module")
def three():
    X, y = make_blobs(300, centers=3, cluster_std=3.0, random_state=0)
    return X, np.array(["a", "b", "c"])[y]


@pytest.fixture(scope="module")
def logistic(two):
    return FalkonClassifier(loss="logistic", **OPTIONS).fit(*two)


@pytest.fixture(scope="module")
def softmax(three):
    return FalkonClassifier(loss="logistic", **OPTIONS).fit(*three)


@pytest.fixture
def ax():
    figure = pytest.importorskip("matplotlib.figure")
    return figure.Figure().subplots()


# ---- probabilities ---------------------------------------------------------------------------------------------------


def test_methods_have_their_own_names(logistic, two):
    for name in ("predict_proba", "predict_log_proba"):
        assert getattr(logistic, name).__name__ == name
        again = pickle.loads(pickle.dumps(getattr(logistic, name)))
        assert_array_equal(again(two[0]), getattr(logistic, name)(two[0]))
        assert_array_equal(getattr(FalkonClassifier, name)(logistic, two[0]), again(two[0]))
        assert "array of shape (n, n_classes)" in getattr(FalkonClassifier, name).__doc__


@pytest.mark.parametrize("positive", LABELS)
def test_roc_curve(logistic, two, ax, positive):
    X, y = two
    p = logistic.predict_proba(X)[:, list(LABELS).index(positive)]
    display = RocCurveDisplay.from_estimator(logistic, X, y, ax=ax, pos_label=positive, response_method="predict_proba")
    assert display.roc_auc == pytest.approx(roc_auc_score(y == positive, p), rel=1e-12)
    assert_allclose(display.tpr, roc_curve(y == positive, p)[1])


@pytest.mark.parametrize("positive", LABELS)
def test_precision_and_recall(logistic, two, ax, positive):
    X, y = two
    p = logistic.predict_proba(X)[:, list(LABELS).index(positive)]
    display = PrecisionRecallDisplay.from_estimator(logistic, X, y, ax=ax, pos_label=positive)
    assert display.average_precision == pytest.approx(average_precision_score(y == positive, p), rel=1e-12)


def test_detection_error_tradeoff(logistic, two, ax):
    X, y = two
    display = DetCurveDisplay.from_estimator(logistic, X, y, ax=ax, response_method="predict_proba")
    fpr, fnr, _ = det_curve(y == "yes", logistic.predict_proba(X)[:, 1])
    # the display may leave out points between others, and moves those at 0 a little, but has none of another curve
    curve = set(zip(fpr.round(12), fnr.round(12), strict=True))
    shown = set(zip(display.fpr.round(12), display.fnr.round(12), strict=True))
    assert len(shown) > 10
    assert shown <= curve


def test_calibration_curve(logistic, two, ax):
    X, y = two
    display = CalibrationDisplay.from_estimator(logistic, X, y, n_bins=5, ax=ax)
    share, predicted = calibration_curve(y, logistic.predict_proba(X)[:, 1], n_bins=5, pos_label="yes")
    assert_allclose(display.prob_true, share)
    assert_allclose(display.prob_pred, predicted)


@pytest.mark.parametrize("method", ["predict_proba", "decision_function"])
def test_decision_boundary(logistic, two, ax, method):
    display = DecisionBoundaryDisplay.from_estimator(logistic, two[0], response_method=method, grid_resolution=8, ax=ax)
    grid = np.column_stack([display.xx0.ravel(), display.xx1.ravel()])
    wanted = logistic.decision_function(grid) if method == "decision_function" else logistic.predict_proba(grid)[:, 1]
    assert_allclose(display.response.ravel(), wanted)


def test_decision_boundary_of_one_of_several_classes(softmax, three, ax):
    display = DecisionBoundaryDisplay.from_estimator(
        softmax, three[0], response_method="predict_proba", class_of_interest="b", grid_resolution=8, ax=ax
    )
    grid = np.column_stack([display.xx0.ravel(), display.xx1.ravel()])
    assert_allclose(display.response.ravel(), softmax.predict_proba(grid)[:, 1])


def test_fixed_threshold(logistic, two):
    X, y = two
    model = FixedThresholdClassifier(logistic, threshold=0.8, response_method="predict_proba").fit(X, y)
    wanted = LABELS[(model.estimator_.predict_proba(X)[:, 1] >= 0.8).astype(int)]
    assert_array_equal(model.predict(X), wanted)
    assert 0 < np.mean(wanted == "yes") < np.mean(model.estimator_.predict(X) == "yes")


def test_tuned_threshold():
    X, y = make_moons((270, 30), noise=0.5, random_state=0)
    model = TunedThresholdClassifierCV(
        FalkonClassifier(loss="logistic", **OPTIONS), response_method="predict_proba", cv=3, random_state=0
    ).fit(X, y)
    assert_array_equal(model.predict(X), model.estimator_.predict_proba(X)[:, 1] >= model.best_threshold_)
    # 0.5 is far too much for a class of a tenth of the rows
    assert 0 < model.best_threshold_ < 0.5
    assert balanced_accuracy_score(y, model.predict(X)) > balanced_accuracy_score(y, model.estimator_.predict(X))


@pytest.mark.parametrize("data", ["two", "three"])
def test_stack_of_classifiers(data, request):
    X, y = request.getfixturevalue(data)
    folds = KFold(3)
    final = LogisticRegression()
    stack = StackingClassifier(
        [("falkon", FalkonClassifier(loss="logistic", **OPTIONS))], final, cv=folds, stack_method="predict_proba"
    ).fit(X, y)
    columns = slice(1, None) if data == "two" else slice(None)  # of two that sum to one scikit-learn leaves out one
    p = FalkonClassifier(loss="logistic", **OPTIONS).fit(X, y).predict_proba(X)[:, columns]
    assert_array_equal(stack.transform(X), p)
    held_out = cross_val_predict(FalkonClassifier(loss="logistic", **OPTIONS), X, y, cv=folds, method="predict_proba")[
        :, columns
    ]
    assert_allclose(stack.predict_proba(X), clone(final).fit(held_out, y).predict_proba(p))
    assert StackingClassifier([("f", FalkonClassifier(loss="logistic", **OPTIONS))]).fit(X, y).stack_method_ == [
        "predict_proba"
    ]


def test_scorers_of_two_classes(logistic, two):
    X, y = two
    p = logistic.predict_proba(X)[:, 1]
    brier = make_scorer(brier_score_loss, response_method="predict_proba", greater_is_better=False, pos_label="yes")
    assert brier(logistic, X, y) == pytest.approx(-brier_score_loss(y, p, pos_label="yes"), rel=1e-12)
    area = make_scorer(roc_auc_score, response_method=("predict_log_proba", "predict_proba"))
    assert area(logistic, X, y) == pytest.approx(roc_auc_score(y, p), rel=1e-12)
    assert get_scorer("neg_log_loss")(logistic, X, y) == pytest.approx(-log_loss(y, p), rel=1e-12)


def test_scorers_of_three_classes(softmax, three):
    X, y = three
    p = softmax.predict_proba(X)
    area = make_scorer(roc_auc_score, response_method="predict_proba", multi_class="ovr")
    assert area(softmax, X, y) == pytest.approx(roc_auc_score(y, p, multi_class="ovr"), rel=1e-12)
    assert get_scorer("neg_log_loss")(softmax, X, y) == pytest.approx(-log_loss(y, p), rel=1e-12)


def test_probabilities_through_a_pipeline_and_a_search(two):
    X, y = two
    pipe = make_pipeline(StandardScaler(), FalkonClassifier(loss="logistic", **OPTIONS))
    search = GridSearchCV(pipe, {"falkonclassifier__penalty": [1e-4, 1e2]}, scoring="neg_log_loss", cv=3).fit(X, y)
    assert search.best_params_ == {"falkonclassifier__penalty": 1e-4}
    assert_array_equal(search.predict_proba(X), search.best_estimator_.predict_proba(X))
    each = cross_val_score(search.best_estimator_, X, y, scoring="neg_log_loss", cv=3)
    assert search.best_score_ == pytest.approx(each.mean(), rel=1e-12)


def squared():
    return FalkonClassifier(**OPTIONS)


def random_features():
    return RandomFeaturesClassifier(n_components=100, random_state=0)


@pytest.mark.parametrize("make", [squared, random_features])
def test_tools_fall_back_to_decisions_where_there_are_no_probabilities(make, two, ax):
    X, y = two
    model = make()
    for state in (model, model.fit(X, y)):
        assert not hasattr(state, "predict_proba")
        assert not hasattr(state, "predict_log_proba")
    display = RocCurveDisplay.from_estimator(model, X, y, ax=ax)
    assert display.roc_auc == pytest.approx(roc_auc_score(y, model.decision_function(X)), rel=1e-12)
    stack = StackingClassifier([("model", make())]).fit(X, y)
    assert stack.stack_method_ == ["decision_function"]
    fixed = FixedThresholdClassifier(model, threshold=0.5).fit(X, y)
    assert_array_equal(fixed.predict(X), LABELS[(model.decision_function(X) >= 0.5).astype(int)])
    with pytest.raises(AttributeError, match="predict_proba"):
        make_scorer(roc_auc_score, response_method="predict_proba")(model, X, y)
    calibrated = CalibratedClassifierCV(make(), cv=3).fit(X, y)
    assert accuracy_score(y, calibrated.predict(X)) > 0.8


@pytest.mark.parametrize("method", ["predict_proba", "predict_log_proba"])
def test_the_error_for_missing_probabilities_names_the_remedies(method):
    for state in (squared(), squared().fit([[0.0], [1.0]], [0, 1])):
        with pytest.raises(AttributeError, match=r'Squared gives no .*loss="logistic".*CalibratedClassifierCV'):
            getattr(state, method)


def test_a_loss_that_is_none_has_no_probabilities():
    assert not hasattr(FalkonClassifier(loss="logistics"), "predict_proba")
    with pytest.raises(AttributeError) as caught:
        FalkonClassifier(loss="logistics").predict_proba([[0.0]])
    assert "loss='logistics' must be one of" in str(caught.value.__cause__)
    assert hasattr(FalkonClassifier(loss=Logistic()), "predict_proba")


# ---- numbers ---------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def numbers():
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, size=(300, 2))
    return X, np.sin(2 * X[:, 0]) + 0.05 * rng.standard_normal(300)  # the second column says nothing


def regressor():
    return FalkonRegressor(**{**OPTIONS, "penalty": 1e-5})


def test_stack_of_regressors(numbers):
    X, y = numbers
    folds = KFold(3)
    stack = StackingRegressor([("falkon", regressor())], LinearRegression(), cv=folds).fit(X, y)
    held_out = cross_val_predict(regressor(), X, y, cv=folds)
    final = LinearRegression().fit(held_out[:, None], y)
    assert_allclose(stack.predict(X), final.predict(regressor().fit(X, y).predict(X)[:, None]))


def test_transformed_target(numbers):
    X, y = numbers
    model = TransformedTargetRegressor(regressor(), func=np.log, inverse_func=np.exp).fit(X, np.exp(y))
    assert_allclose(model.predict(X), np.exp(regressor().fit(X, np.log(np.exp(y))).predict(X)))
    # there is no intercept, which standardised targets do without
    shifted = TransformedTargetRegressor(regressor(), transformer=StandardScaler()).fit(X, y + 100.0)
    far = np.full((1, 2), 50.0)
    assert shifted.predict(far)[0] == pytest.approx(np.mean(y + 100.0), rel=1e-9)


def test_permutation_importance(numbers):
    X, y = numbers
    model = regressor().fit(X, y)
    found = permutation_importance(model, X, y, n_repeats=10, random_state=0)
    # a column that says everything, shuffled, predicts what is independent of y: twice the variance is the error
    assert found.importances_mean[0] == pytest.approx(2.0, abs=0.3)
    assert found.importances_mean[1] == pytest.approx(0.0, abs=0.02)


def test_partial_dependence(numbers, ax):
    X, y = numbers
    model = regressor().fit(X, y)
    display = PartialDependenceDisplay.from_estimator(model, X, [0], grid_resolution=7, ax=ax)
    result = display.pd_results[0]
    for value, average in zip(result["grid_values"][0], result["average"][0], strict=True):
        fixed = X.copy()
        fixed[:, 0] = value
        assert average == pytest.approx(model.predict(fixed).mean(), rel=1e-9, abs=1e-12)


def test_learning_curve(numbers, ax):
    X, y = numbers
    options = {"train_sizes": [40, 150], "cv": KFold(3)}
    display = LearningCurveDisplay.from_estimator(regressor(), X, y, ax=ax, **options)
    sizes, _, scores = learning_curve(regressor(), X, y, **options)
    assert_array_equal(display.train_sizes, sizes)
    assert_allclose(display.test_scores, scores)
    first = next(KFold(3).split(X))
    model = regressor().fit(X[first[0][:150]], y[first[0][:150]])
    assert display.test_scores[1, 0] == pytest.approx(r2_score(y[first[1]], model.predict(X[first[1]])), rel=1e-9)


def test_halving_search(numbers):
    X, y = numbers
    grid = {"penalty": [1e-6, 1e-1, 1e3]}
    search = HalvingGridSearchCV(regressor(), grid, cv=3, min_resources=30, random_state=0).fit(X, y)
    assert search.best_params_ == {"penalty": 1e-6}
    assert search.n_resources_[0] == 30
    assert_array_equal(search.predict(X), regressor().set_params(penalty=1e-6).fit(X, y).predict(X))


@pytest.mark.parametrize(
    "model",
    [
        FalkonRegressor(**OPTIONS),
        ExactRegressor(),
        HierarchicalRegressor(),
        RandomFeaturesClassifier(n_components=20, random_state=0),
    ],
)
@pytest.mark.parametrize("Selector", [RFE, SelectFromModel])
def test_coefficients_are_not_taken_for_importances_of_features(Selector, model, numbers):
    X, y = numbers
    y = y > np.median(y) if isinstance(model, RandomFeaturesClassifier) else y
    selector = Selector(model)
    with pytest.raises((ValueError, AttributeError), match=r"`coef_` or `feature_importances_`"):
        selector.fit(X, y).get_support()
