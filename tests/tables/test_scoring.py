"""A metric of the user's choice decides the blend, and which class is predicted."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import log_softmax
from short_search import Brief
from sklearn.metrics import balanced_accuracy_score, get_scorer, make_scorer, mean_absolute_error

import gyrfalcon
from gyrfalcon import AutoClassifier, AutoRegressor
from gyrfalcon.tables.scoring import Metric

KERNELS = ("kernel", "linear")


def test_weights_maximise_the_score():
    rng = np.random.default_rng(0)
    y = rng.standard_normal(500)
    # outliers ruin the squared error of the first, not its absolute error
    first = y + 0.1 * rng.standard_normal(500)
    first[:5] += 30
    second = y + 1.0 * rng.standard_normal(500)
    for name, more in (("neg_mean_absolute_error", 0), ("neg_root_mean_squared_error", 1)):
        weights = Metric(get_scorer(name)).number_weights([first, second], y, None)
        assert weights.sum() == pytest.approx(1)
        assert np.argmax(weights) == more


def test_row_weights_reach_the_scorer():
    y = np.arange(10.0)
    good = np.where(y < 5, y, y + 9)
    other = np.where(y < 5, y + 9, y)
    metric = Metric(get_scorer("neg_mean_absolute_error"))
    assert metric.number_weights([good, other], y, (y < 5).astype(float))[0] == 1
    assert metric.number_weights([good, other], y, (y >= 5).astype(float))[1] == 1


@pytest.mark.parametrize("n_classes", [2, 3])
def test_offsets_of_classes(n_classes):
    rng = np.random.default_rng(0)
    labels = rng.choice(n_classes, 2000, p=[0.85, 0.15] if n_classes == 2 else [0.8, 0.15, 0.05])
    logs = log_softmax(
        1.2 * np.eye(n_classes)[labels] + rng.standard_normal((2000, n_classes)) + [2, 0, 0][:n_classes], 1
    )
    classes = np.array(["a", "b", "c"][:n_classes])
    metric = Metric(get_scorer("balanced_accuracy"))
    offsets = metric.class_offsets(logs, classes, labels, None)
    plain, moved = (balanced_accuracy_score(labels, (logs + o).argmax(1)) for o in (0, offsets))
    assert moved > plain + 0.05
    # ranks and probabilities do not depend on predicted classes
    name = "roc_auc" if n_classes == 2 else "neg_log_loss"
    assert not Metric(get_scorer(name)).class_offsets(logs, classes, labels, None).any()


def test_many_classes_have_no_offsets():
    k = 31
    offsets = Metric(get_scorer("accuracy")).class_offsets(np.zeros((k, k)), np.arange(k), np.arange(k), None)
    assert offsets.shape == (k,)
    assert not offsets.any()


def table(n=300):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 3))
    return X, X[:, 0] + np.sin(2 * X[:, 1]) + 0.3 * rng.standard_normal(n)


def test_an_estimator_with_a_metric(tmp_path):
    X, y = table()
    model = AutoRegressor(600, scoring="neg_mean_absolute_error", families=KERNELS, random_state=0, callbacks=Brief(2))
    model.fit(X, np.exp(y), sample_weight=np.ones(len(y)))
    gyrfalcon.save(model, tmp_path / "model.gyr")
    np.testing.assert_array_equal(gyrfalcon.load(tmp_path / "model.gyr").predict(X), model.predict(X))
    two = AutoRegressor(600, scoring="r2", families=KERNELS, random_state=0, callbacks=Brief(2)).fit(X, np.c_[y, -y])
    assert two.predict(X).shape == (300, 2)


def test_balanced_accuracy_finds_the_rare_class(tmp_path):
    X, y = table(600)
    labels = np.where(y > 1.8, "rare", "usual")
    found = []
    for scoring in (None, "balanced_accuracy"):
        model = AutoClassifier(600, scoring=scoring, families=KERNELS, random_state=0, callbacks=Brief(2))
        model.fit(X[:400], labels[:400])
        found.append(balanced_accuracy_score(labels[400:], model.predict(X[400:])))
        assert model.class_offsets_.any() == (scoring is not None)
    assert found[1] > found[0]
    gyrfalcon.save(model, tmp_path / "model.gyr")
    np.testing.assert_array_equal(gyrfalcon.load(tmp_path / "model.gyr").predict(X), model.predict(X))


def test_a_scorer_as_an_object():
    X, y = table(100)
    scorer = make_scorer(mean_absolute_error, greater_is_better=False)
    AutoRegressor(600, scoring=scorer, families=KERNELS, random_state=0, callbacks=Brief(1)).fit(X, y)


@pytest.mark.parametrize(("scoring", "error"), [("no such metric", ValueError), (3, TypeError), (["r2"], TypeError)])
def test_what_is_no_metric_is_refused(scoring, error):
    X, y = table(60)
    with pytest.raises(error, match=r"scoring|no such metric"):
        AutoRegressor(scoring=scoring).fit(X, y)


def test_a_score_that_is_no_number_is_refused():
    X, y = table(60)
    model = AutoRegressor(600, scoring=lambda model, X, y: np.nan, families=KERNELS, callbacks=Brief(1), random_state=0)
    with pytest.raises(ValueError, match="scoring gives nan"):
        model.fit(X, y)
