"""Stopping where the validation error is least, and what is recorded on the way there."""

from __future__ import annotations

import numpy as np
import pytest
import sklearn.model_selection
from numpy.testing import assert_array_equal
from plain import plain
from sklearn.datasets import make_moons

from gyrfalcon import FalkonClassifier, FalkonRegressor
from gyrfalcon.kernels import Laplacian

pytestmark = [
    pytest.mark.filterwarnings("error"),
    pytest.mark.filterwarnings("ignore:predictions are still off"),  # of fits that are cut short on purpose
]


@pytest.fixture(scope="module")
def noisy():
    """Noise as large as the signal, so that without a penalty every iteration after the first few makes it worse."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((600, 3))
    return X, np.sin(X[:, 0]) + rng.standard_normal(600)


@pytest.fixture(scope="module")
def overlapping():
    X, y = make_moons(400, noise=0.6, random_state=0)
    return X, np.array(["no", "yes"])[y]


def regressor(**params):
    # centers that are not rows, so that one step of the preconditioned iteration is not yet the solution
    centers = np.random.default_rng(1).standard_normal((150, 3))
    defaults = {"kernel": Laplacian(1.0), "penalty": 0.0, "centers": centers, "max_iter": 60, "random_state": 0}
    return plain(FalkonRegressor, **{**defaults, "preconditioner": "falkon", **params})


def classifier(**params):
    defaults = {"kernel": Laplacian(0.3), "penalty": 0.0, "n_centers": 100, "max_iter": 60, "random_state": 0}
    return plain(FalkonClassifier, **{**defaults, **params})


def errors(model):
    return [record["validation_error"] for record in model.history_]


def root_mean_square(model, X, y, weight=None):
    return np.sqrt(np.average((model.predict(X) - y) ** 2, weights=weight))


@pytest.fixture
def splits(monkeypatch):
    """The splits that fits make, in order."""
    made = []
    split = sklearn.model_selection.train_test_split

    def recorded(*args, **options):
        train, held = split(*args, **options)
        made.append((np.sort(train), np.sort(held)))
        return train, held

    monkeypatch.setattr(sklearn.model_selection, "train_test_split", recorded)
    return made


def test_stops_early_and_keeps_the_best(noisy, splits):
    X, y = noisy
    model = regressor(early_stopping=True).fit(X, y)
    ((train, held),) = splits
    assert model.n_iter_ == len(model.history_) < 60
    best = int(np.argmin(errors(model)))
    assert best < model.n_iter_ - 1
    assert model.n_iter_ - (best + 1) <= 5 + 4
    assert root_mean_square(model, X[held], y[held]) == pytest.approx(min(errors(model)), rel=1e-9)
    # the same as stopping there by hand, on the same rows
    by_hand = regressor(max_iter=best + 1, tol=0.0).fit(X[train], y[train])
    np.testing.assert_allclose(model.predict(X), by_hand.predict(X), rtol=1e-9, atol=1e-9)
    assert root_mean_square(regressor().fit(X[train], y[train]), X[held], y[held]) > min(errors(model))


@pytest.mark.parametrize("patience", [1, 3, 8])
def test_patience(noisy, patience):
    X, y = noisy
    model = regressor(early_stopping=True, n_iter_no_change=patience).fit(X, y)
    values = errors(model)
    assert all(values[-patience - 1] * (1 - 1e-4) <= value for value in values[-patience:])


@pytest.mark.parametrize("fraction", [0.05, 0.1, 0.5])
def test_how_much_is_held_out(noisy, splits, fraction):
    X, y = noisy
    regressor(early_stopping=True, validation_fraction=fraction).fit(X, y)
    ((train, held),) = splits
    assert len(held) == round(600 * fraction)
    assert_array_equal(np.sort(np.hstack([train, held])), np.arange(600))


def test_the_split_has_a_seed(noisy, splits):
    X, y = noisy
    models = [regressor(early_stopping=True, random_state=seed).fit(X, y) for seed in (3, 3, 4)]
    assert_array_equal(splits[0][1], splits[1][1])
    assert not np.array_equal(splits[0][1], splits[2][1])
    assert_array_equal(models[0].dual_coef_, models[1].dual_coef_)


def test_held_out_rows_are_no_centers(noisy, splits):
    X, y = noisy
    model = regressor(early_stopping=True, centers="uniform", n_centers=10**6).fit(X, y)
    assert_array_equal(model.centers_, X[splits[0][0]])


def test_a_given_validation_set(noisy, splits):
    X, y = noisy
    model = regressor(early_stopping=True).fit(X[:400], y[:400], X_val=X[400:], y_val=y[400:])
    assert splits == []
    assert model.n_iter_ < 60
    assert root_mean_square(model, X[400:], y[400:]) == pytest.approx(min(errors(model)), rel=1e-9)


@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("budget", [0, "auto", "700kB"])
def test_a_validation_set_without_early_stopping_is_only_watched(noisy, outputs, budget):
    X, y = noisy
    y = y if outputs == 1 else np.column_stack([y, -y, X[:, 0]])
    params = {"max_iter": 12, "tol": 0.0, "memory_budget": budget}
    model = regressor(**params).fit(X[:400], y[:400], X_val=X[400:], y_val=y[400:])
    assert len(errors(model)) == model.n_iter_ == 12
    assert errors(model)[-1] == pytest.approx(root_mean_square(model, X[400:], y[400:]), rel=1e-9)
    assert errors(model)[-1] > min(errors(model)) or outputs > 1
    plain = regressor(**params).fit(X[:400], y[:400])
    assert_array_equal(model.dual_coef_, plain.dual_coef_)
    assert "validation_error" not in plain.history_[0]
    # watching costs no pass over the training rows
    assert [record["passes"] for record in model.history_] == list(range(2, 14))


def test_weights_count_in_the_held_out_rows(noisy, splits):
    X, y = noisy
    weight = np.random.default_rng(2).uniform(0, 2, 600)
    model = regressor(early_stopping=True).fit(X, y, weight)
    held = splits[0][1]
    assert root_mean_square(model, X[held], y[held], weight[held]) == pytest.approx(min(errors(model)), rel=1e-9)


def test_rows_of_weight_zero_take_no_part(noisy, splits):
    X, y = noisy
    weight = (np.arange(600) % 5 == 0).astype(float)
    regressor(early_stopping=True, validation_fraction=0.3).fit(X, y, weight)
    train, held = splits[0]
    assert_array_equal(np.sort(np.hstack([train, held])), np.arange(120))  # positions among the rows that count
    assert len(held) == 36
    regressor(early_stopping=True).fit(X, y, (np.arange(600) < 2).astype(float))
    assert [len(part) for part in splits[1]] == [1, 1]


def test_classification_stops_on_the_share_of_wrong_classes(overlapping, splits):
    X, y = overlapping
    model = classifier(early_stopping=True, validation_fraction=0.25).fit(X, y)
    held = splits[0][1]
    assert model.n_iter_ < 60
    assert 1 - model.score(X[held], y[held]) == pytest.approx(min(errors(model)))
    assert min(errors(model)) < 0.35


@pytest.mark.parametrize("n_classes", [2, 5])
def test_the_split_is_stratified(splits, n_classes):
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(n_classes), [20, *[100] * (n_classes - 1)])
    X = rng.standard_normal((len(y), 2)) + y[:, None]
    classifier(early_stopping=True, validation_fraction=0.1, max_iter=3).fit(X, y)
    counts = np.bincount(y[splits[0][1]])
    assert_array_equal(counts, [2, *[10] * (n_classes - 1)])


def test_a_class_of_one_row_is_no_obstacle(splits):
    X = np.random.default_rng(0).standard_normal((50, 2))
    y = np.array(["rare"] + ["a", "b"] * 25)[:50]
    model = classifier(early_stopping=True, max_iter=3).fit(X, y)
    assert_array_equal(model.classes_, ["a", "b", "rare"])
    assert model.decision_function(X).shape == (50, 3)


def test_classification_with_a_given_validation_set(overlapping):
    X, y = overlapping
    model = classifier(early_stopping=True).fit(X[:300], y[:300], X_val=X[300:], y_val=y[300:].tolist())
    assert 1 - model.score(X[300:], y[300:]) == pytest.approx(min(errors(model)))
    # one class is enough there
    some = y[300:] == "yes"
    model = classifier(max_iter=5).fit(X[:300], y[:300], X_val=X[300:][some], y_val=y[300:][some])
    assert errors(model)[-1] == pytest.approx(np.mean(model.predict(X[300:][some]) != "yes"))


def test_two_rows():
    model = plain(FalkonRegressor, early_stopping=True, random_state=0).fit([[0.0], [1.0]], [1.0, 1.0])
    assert len(model.centers_) == 1
    assert np.isfinite(model.predict([[0.0]])).all()


def test_float32(noisy):
    X, y = noisy[0].astype(np.float32), noisy[1].astype(np.float32)
    model = regressor(early_stopping=True).fit(X[:400], y[:400], X_val=X[400:], y_val=y[400:])
    assert model.n_iter_ < 60
    assert root_mean_square(model, X[400:], y[400:]) == pytest.approx(min(errors(model)), rel=1e-5)
