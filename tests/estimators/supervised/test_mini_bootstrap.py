"""The mini-bootstrap: which negatives it keeps, against the algorithm written out; several classes; its errors."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
from sklearn.base import clone
from sklearn.linear_model import RidgeClassifier
from sklearn.svm import SVC

from gyrfalcon import FalkonClassifier, ModelFileError, mini_bootstrap, save
from gyrfalcon.kernels import Gaussian


def blobs(n: int = 600, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Two small classes beside a background that is mostly far from them."""
    rng = np.random.default_rng(seed)
    X = 3 * rng.standard_normal((n, 2))
    y = np.full(n, -1)
    X[:40], y[:40] = [4.0, 0.0] + 0.3 * rng.standard_normal((40, 2)), 1
    X[40:80], y[40:80] = [-4.0, 0.0] + 0.3 * rng.standard_normal((40, 2)), 2
    order = rng.permutation(n)
    return X[order], y[order]


DETECTOR = FalkonClassifier(Gaussian(1.0), n_centers=100, penalty=1e-4, scale=False, random_state=0)


@pytest.mark.parametrize("easy", [None, -0.9])
def test_the_algorithm_written_out(easy):
    X, y = blobs()
    found = mini_bootstrap(X, y, DETECTOR, n_batches=4, easy=easy, random_state=3)
    random = np.random.RandomState(3)
    for label, model, negatives in zip(found.classes, found.models, found.negatives, strict=True):
        batches = np.array_split(random.permutation(np.flatnonzero(y != label)), 4)
        chosen, reference = batches[0], None
        for i, batch in enumerate(batches):
            if i:
                hard = batch[reference.decision_function(X[batch]) > -0.7]
                chosen = np.r_[chosen, hard]
                if not len(hard):
                    continue
            rows, last = np.r_[np.flatnonzero(y == label), chosen], chosen
            reference = clone(DETECTOR).fit(X[rows], y[rows] == label)
            if easy is not None:
                chosen = chosen[reference.decision_function(X[chosen]) >= easy]
        np.testing.assert_array_equal(negatives, last)
        np.testing.assert_array_equal(model.decision_function(X), reference.decision_function(X))


def test_most_negatives_are_easy_and_classes_are_told_apart():
    X, y = blobs(2_000)
    found = mini_bootstrap(X, y, DETECTOR, n_batches=20, random_state=0)
    np.testing.assert_array_equal(found.classes, [1, 2])
    later = [record for record in found.history if record["round"] > 0]
    assert sum(record["hard"] for record in later) < 0.2 * sum(record["seen"] for record in later)
    X_new, y_new = blobs(2_000, seed=1)
    assert np.mean(found.predict(X_new) == y_new) > 0.93
    assert found.decision_function(X_new).shape == (2_000, 2)
    # a class is a negative of the other
    assert np.isin(y[np.concatenate(found.negatives)], [-1, 1, 2]).all()
    assert not np.any(y[found.negatives[0]] == 1)


def test_one_batch_is_a_fit_with_all_negatives():
    X, y = blobs()
    found = mini_bootstrap(X, y, DETECTOR, n_batches=1)
    assert [len(rows) for rows in found.negatives] == [560, 560]
    assert len(found.history) == 2


@pytest.mark.parametrize("estimator", [RidgeClassifier(), SVC(), DETECTOR.set_params(loss="squared")])
def test_any_classifier_with_scores(estimator):
    X, y = blobs(200)
    assert len(mini_bootstrap(X, y, estimator, n_batches=3, random_state=0).models) == 2


def test_sparse_rows_names_of_classes_and_the_default():
    X, y = blobs(200)
    names = np.array(["cup", "pen", "nothing"])[np.where(y == -1, 2, y - 1)]
    found = mini_bootstrap(scipy.sparse.csr_array(X), names, background="nothing", n_batches=3, random_state=0)
    np.testing.assert_array_equal(found.classes, ["cup", "pen"])
    dense = mini_bootstrap(X, names, background="nothing", n_batches=3, random_state=0)
    assert np.mean(dense.predict(X) == names) > 0.9


def test_a_warm_start_goes_on_from_the_last_round():
    X, y = blobs()
    centers = X[np.r_[np.flatnonzero(y != -1), np.flatnonzero(y == -1)[:40]]]
    warm = FalkonClassifier(Gaussian(1.0), centers=centers, penalty=1e-4, scale=False, warm_start=True, random_state=0)
    found = mini_bootstrap(X, y, warm, n_batches=4, random_state=0)
    assert np.mean(found.predict(X) == y) > 0.9


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_batches": 0}, "n_batches=0"),
        ({"hard": np.nan}, "hard=nan"),
        ({"easy": "never"}, "easy='never'"),
        ({"hard": -0.9, "easy": -0.7}, "easy=-0.7 must not be greater than hard=-0.9"),
    ],
)
def test_bad_parameters(options, message):
    X, y = blobs(100)
    with pytest.raises((ValueError, TypeError), match=message):
        mini_bootstrap(X, y, DETECTOR, **options)


def test_rows_of_one_kind():
    X, y = blobs(100)
    with pytest.raises(ValueError, match="alone, with background=-1: detectors need rows of a class and other rows"):
        mini_bootstrap(X[y == -1], y[y == -1])
    with pytest.raises(ValueError, match="detectors need"):
        mini_bootstrap(X[y == 1], y[y == 1])


def test_the_models_are_saved_one_by_one(tmp_path):
    X, y = blobs(200)
    found = mini_bootstrap(X, y, DETECTOR, n_batches=2)
    save(found.models[0], tmp_path / "one.gyr")
    with pytest.raises((TypeError, ModelFileError), match="Detectors"):
        save(found, tmp_path / "all.gyr")
