"""ExactClassifier against dense least squares on +1 and -1, and its probabilities against known ones."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.metrics import log_loss
from sklearn.model_selection import StratifiedKFold
from sklearn.utils.estimator_checks import parametrize_with_checks
from variant_checks import parametrize_with_variant_checks

import gyrfalcon
from gyrfalcon import ExactClassifier, ExactRegressor, ModelFileError
from gyrfalcon.fitting.calibration import fit_calibration
from gyrfalcon.fitting.folds import fold_numbers
from gyrfalcon.kernels import Laplacian

pytestmark = pytest.mark.filterwarnings("error")

KERNEL = Laplacian(2.0)
PENALTIES = [1e-4, 1e-2, 1.0]
FOLDS = {"check_sample_weight_equivalence_on_dense_data": "a repeated row may land in several folds"}


@parametrize_with_checks([ExactClassifier()], expected_failed_checks=lambda _: FOLDS)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@parametrize_with_variant_checks(
    [
        ExactClassifier(penalties=[1e-3, 1e-1], cv=2, tol=1e-8, dtype="float64"),
        ExactClassifier(choose_by="validation", validation_fraction=0.3),
    ],
    expected_failed_checks=lambda _: FOLDS,  # a repeated row may be held out once, too
)
def test_scikit_learn_checks_of_variants(estimator, check):
    check(estimator)


def data(n=200, k=2, seed=0):
    """Rows, classes "a", "b", ... drawn with known probabilities, and these."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, size=(n, 2))
    scores = np.stack([1.5 * np.sin(2 * X[:, 0] + j) + X[:, 1] * (j == 1) for j in range(k)], axis=1)
    p = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    codes = (rng.uniform(size=(n, 1)) > p.cumsum(axis=1)[:, :-1]).sum(axis=1)
    return X, np.array(list("abcdefgh"))[codes], p


def signs(y):
    return 2.0 * (y == "b") - 1 if len(np.unique(y)) == 2 else 2.0 * (y[:, None] == np.unique(y)) - 1


def exact(**parameters):
    return ExactClassifier(KERNEL, **{"n_centers": 40, "tol": 1e-10, "random_state": 0, **parameters})


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("weighted", [False, True])
def test_it_is_least_squares_on_signs(k, weighted):
    X, y, _ = data(k=k)
    fold = np.arange(len(X)) % 4
    w = np.random.default_rng(5).integers(0, 4, size=len(X)) if weighted else None
    model = exact(penalties=PENALTIES, cv=fold).fit(X, y, sample_weight=w)
    regressor = ExactRegressor(
        KERNEL, method="pcg", penalties=PENALTIES, cv=fold, n_centers=40, tol=1e-10, random_state=0
    ).fit(X, signs(y), sample_weight=w)
    assert model.penalty_ == regressor.penalty_
    assert_allclose(model.uncalibrated(X), regressor.predict(X), atol=1e-7)
    assert_allclose(model.cv_predictions_, regressor.cv_predictions_, atol=1e-7)
    counted = slice(None) if w is None else w > 0
    codes = np.searchsorted(model.classes_, y)[counted]
    expected = fit_calibration(model.cv_predictions_[counted], codes, k, None if w is None else w[w > 0])
    assert_allclose(model.calibration_.bias, expected.bias, atol=1e-6)
    assert_array_equal(model.predict_proba(X), model.calibration_.probabilities(model.uncalibrated(X)))
    assert_allclose(model.predict_log_proba(X), np.log(model.predict_proba(X)))
    assert_array_equal(model.predict(X), model.classes_[model.predict_proba(X).argmax(axis=1)])
    if k == 2:
        p = model.predict_proba(X)
        assert_allclose(model.decision_function(X), np.log(p[:, 1] / p[:, 0]))
    else:
        assert_array_equal(model.decision_function(X), model.predict_log_proba(X))


@pytest.mark.parametrize("k", [2, 4])
def test_probabilities_are_near_the_truth(k):
    X, y, _ = data(2000, k)
    X_new, y_new, p = data(2000, k, seed=1)
    model = exact(penalties=[1e-3, 1e-2, 1e-1], tol=1e-3).fit(X.astype(np.float32), y)
    found = model.predict_proba(X_new.astype(np.float32))
    assert_allclose(found.sum(axis=1), 1.0)
    truth = log_loss(y_new, p, labels=model.classes_)
    prior = log_loss(y_new, np.tile(p.mean(axis=0), (len(p), 1)), labels=model.classes_)
    assert log_loss(y_new, found, labels=model.classes_) < truth + 0.1 * (prior - truth)


@pytest.mark.parametrize("given", [False, True])
def test_validation_rows_choose_and_calibrate(given):
    X, y, _ = data()
    X_val, y_val, _ = data(seed=1)
    model = exact(penalties=PENALTIES, choose_by=None if given else "validation")
    model.fit(X, y, **({"X_val": X_val, "y_val": y_val} if given else {}))
    assert len(model.centers_) == (200 if given else 180)
    assert model.penalty_ == PENALTIES[np.argmin(model.history_[-1]["validation_errors"])]
    assert not hasattr(model, "cv_predictions_")
    if given:
        expected = fit_calibration(model.uncalibrated(X_val), (y_val == "b").astype(int), 2)
        assert_allclose(model.predict_proba(X), expected.probabilities(model.uncalibrated(X)), atol=1e-6)
        model.set_params(choose_by="cv").fit(X, y, X_val=X_val, y_val=y_val)
        assert model.cv_predictions_.shape == (200,)


def test_class_weights():
    X, y, _ = data()
    fold = np.arange(len(X)) % 3
    by_class = exact(penalty=1e-2, cv=fold, class_weight={"a": 1.0, "b": 5.0}).fit(X, y)
    by_row = exact(penalty=1e-2, cv=fold).fit(X, y, sample_weight=np.where(y == "b", 5.0, 1.0))
    assert_allclose(by_class.predict_proba(X), by_row.predict_proba(X), atol=1e-6)
    plain = exact(penalty=1e-2, cv=fold).fit(X, y)
    assert (by_class.predict(X) == "b").sum() > (plain.predict(X) == "b").sum()


@pytest.mark.parametrize("cv", [3, StratifiedKFold(3)], ids=str)
def test_folds_have_their_share_of_a_rare_class(cv):
    X, y, _ = data(90)
    y[:] = "a"
    y[:6], y[6:9] = "b", "c"
    codes = np.unique(y, return_inverse=True)[1]
    fold = fold_numbers(cv, codes, np.random.RandomState(0), stratified=True)
    assert_array_equal(np.bincount(fold[:6]), [2, 2, 2])
    assert_array_equal(np.bincount(fold[6:9]), [1, 1, 1])
    assert np.isfinite(exact(penalty=1e-2, cv=cv).fit(X, y).predict_proba(X)).all()


def test_a_class_that_a_fold_lacks():
    X, y, _ = data(30, 3)
    y[:] = "a"
    y[:10], y[10] = "b", "c"
    model = exact(penalty=1e-2).fit(X, y)
    p = model.predict_proba(X)
    assert np.isfinite(p).all()
    assert_allclose(p.sum(axis=1), 1.0)


def test_few_rows():
    X, y, _ = data(5)
    y[:] = list("aabba")
    p = exact(penalty=1e-2).fit(X, y).predict_proba(X)
    assert ((p > 0) & (p < 1)).all()
    with pytest.raises(ValueError, match="cv=5 folds are more than there are rows, n_samples=4"):
        exact().fit(X[:4], y[:4])


@pytest.mark.parametrize("choose_by", ["gcv", "loo", "fold"])
def test_criteria_that_it_does_not_have(choose_by):
    X, y, _ = data()
    with pytest.raises(ValueError, match="choose_by="):
        exact(choose_by=choose_by).fit(X, y)


@pytest.mark.parametrize("k", [2, 3])
def test_saved_and_loaded(tmp_path, k):
    X, y, _ = data(k=k)
    model = exact(penalties=PENALTIES, cv=3).fit(X, y)
    model.save(tmp_path / "model.gyr")
    loaded = gyrfalcon.load(tmp_path / "model.gyr")
    assert loaded.calibration_ == model.calibration_
    assert_array_equal(loaded.predict_proba(X), model.predict_proba(X))
    assert_array_equal(loaded.cv_predictions_, model.cv_predictions_)
    model.calibration_ = fit_calibration(np.zeros((5, 4)), np.arange(5) % 4, 4)
    model.save(tmp_path / "other.gyr")
    with pytest.raises(ModelFileError, match=f"calibration_ is not one of {k} classes"):
        gyrfalcon.load(tmp_path / "other.gyr")


def test_the_same_bits_for_any_number_of_threads():
    X, y, _ = data(300, 3)
    found = [exact(penalties=PENALTIES, n_jobs=n_jobs).fit(X, y) for n_jobs in (1, 3)]
    assert_array_equal(found[0].predict_proba(X), found[1].predict_proba(X))
