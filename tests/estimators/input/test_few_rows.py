"""Predictions for a few rows at a time: quick ways give the bits, the errors and the warnings of the others."""

from __future__ import annotations

import copy
import gc
import pickle
import threading
import tracemalloc
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import gyrfalcon
from gyrfalcon import (
    EigenProRegressor,
    ExactClassifier,
    ExactRegressor,
    FalkonClassifier,
    FalkonRegressor,
    NystromRegressor,
)
from gyrfalcon.operators import KernelOperator
from gyrfalcon.operators.choose import PreparedCenters
from gyrfalcon.sources import as_rows

N, D = 300, 4
X = np.random.default_rng(0).standard_normal((N, D))
Y = np.sin(X[:, 0]) + X[:, 1]
LABELS = np.digitize(X[:, 0], [-0.5, 0.5])


def regressor(**params) -> FalkonRegressor:
    return FalkonRegressor(**{"n_centers": 50, "penalty": 1e-4, "random_state": 0, **params}).fit(X, Y)


MODELS = {
    "FalkonRegressor": regressor,
    "float32": lambda: regressor(dtype="float32"),
    "unscaled": lambda: regressor(scale=False),
    "laplacian": lambda: regressor(kernel="laplacian"),
    "NystromRegressor": lambda: NystromRegressor(n_centers=50, random_state=0).fit(X, np.c_[Y, -Y, 2 * Y, Y, Y + 1]),
    "ExactRegressor": lambda: ExactRegressor(penalty=1e-3).fit(X, Y),
    "EigenProRegressor": lambda: EigenProRegressor(max_iter=2, random_state=0).fit(X, Y),
    "FalkonClassifier": lambda: FalkonClassifier(n_centers=50, penalty=1e-3, random_state=0).fit(X, LABELS),
    "ExactClassifier": lambda: ExactClassifier(penalty=1e-3, random_state=0).fit(X, LABELS),
}


def plainly(model, rows):
    """Compute offset + k(rows, centers) coef with an operator of its own."""
    scaled = rows if model.scale_ is None else (rows - model.mean_) / model.scale_
    scaled = scaled.astype(model.centers_.dtype)
    f = KernelOperator(model.kernel_, scaled, model.centers_, memory_budget=0).matmat(model.dual_coef_)
    return (f.astype(np.float64) + model.offset_).astype(f.dtype)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_a_row_alone_is_what_it_is_by_an_operator_of_its_own(make):
    model = make()
    values = model._values if isinstance(model, ExactClassifier | FalkonClassifier) else model.predict
    for i in range(3):
        np.testing.assert_array_equal(values(X[i : i + 1]), plainly(model, X[i : i + 1]))
    # what goes through scikit-learn's checks
    np.testing.assert_array_equal(values(X[:3]), values(X[:3].tolist()))
    np.testing.assert_array_equal(values(np.asfortranarray(X[:3])), values(X[:3]))


def test_probabilities_of_a_row_are_those_among_others():
    model = FalkonClassifier(n_centers=50, penalty=1e-3, loss="logistic", random_state=0).fit(X, LABELS)
    assert model.predict_proba(X[:1]).shape == (1, 3)
    np.testing.assert_allclose(model.predict_proba(X)[:1], model.predict_proba(X[:1]), rtol=1e-12)
    np.testing.assert_array_equal(model.predict(X[:1]), model.predict(X)[:1])


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (np.where(np.arange(D) == 2, np.nan, X[:1]), "Input X contains NaN"),
        (np.where(np.arange(D) == 2, np.inf, X[:1]), "Input X contains infinity"),
        (X[:1, :3], "X has 3 features, but FalkonRegressor is expecting 4 features"),
        (X[0], "Expected 2D array, got 1D array instead"),
        (X[None, :1], "Found array with dim 3"),
        (X[:0], "Found array with 0 sample"),
        (X[:1] + 1j, "Complex data not supported"),
    ],
)
def test_what_cannot_be_predicted_is_refused_as_ever(rows, message):
    model = regressor()
    model.predict(X[:1])
    with pytest.raises(ValueError, match=message):
        model.predict(rows)


def test_numbers_too_large_for_the_precision_are_refused():
    model = regressor(dtype="float32", scale=False)
    with pytest.raises(ValueError, match="too large"):
        model.predict(np.full((1, D), 1e300))


def test_an_estimator_without_a_fit_says_so():
    with pytest.raises(NotFittedError):
        FalkonRegressor().predict(X[:1])


def test_missing_feature_names_are_still_warned_of():
    model = FalkonRegressor(n_centers=50, random_state=0).fit(pd.DataFrame(X, columns=list("abcd")), Y)
    with pytest.warns(UserWarning, match="X does not have valid feature names"):
        model.predict(X[:1])


@pytest.mark.parametrize("trained", [X, sp.csr_array(X)], ids=["dense", "sparse"])
def test_rows_may_be_sparse_where_the_centers_are_not_and_the_other_way_round(trained):
    model = FalkonRegressor(n_centers=50, penalty=1e-4, random_state=0, scale=False).fit(trained, Y)
    expected = plainly(model, X[:2]) if trained is X else model.predict(sp.csr_array(X[:2]))
    for rows in X[:2], sp.csr_array(X[:2]), X[:2]:
        np.testing.assert_allclose(model.predict(rows), expected, rtol=1e-12)


def test_copies_and_files_do_not_hold_prepared_centers(tmp_path: Path):
    model = regressor()
    before = len(pickle.dumps(model))
    model.save(tmp_path / "before")
    expected = model.predict(X[:1])
    assert model._prepared._last is not None
    assert len(pickle.dumps(model)) == before
    model.save(tmp_path / "after")
    assert (tmp_path / "before").stat().st_size == (tmp_path / "after").stat().st_size
    for other in pickle.loads(pickle.dumps(model)), copy.deepcopy(model), gyrfalcon.load(tmp_path / "after"):
        kept = vars(other).get("_prepared")
        assert kept is None or kept._last is None
        np.testing.assert_array_equal(other.predict(X[:1]), expected)
        assert other._prepared._last is not None
    assert "_prepared" not in vars(clone(model))


def test_another_fit_and_other_threads_are_noticed():
    model = regressor()
    model.predict(X[:1])
    model.fit(X[:200], -Y[:200])
    np.testing.assert_array_equal(model.predict(X[:1]), plainly(model, X[:1]))
    first = model._prepared._last
    model.set_params(n_jobs=1).predict(X[:1])
    assert model._prepared._last.n_threads == 1
    model.set_params(n_jobs=3).predict(X[:1])
    assert model._prepared._last.n_threads == 3
    assert model._prepared._last is not first
    model.centers_, model.dual_coef_ = model.centers_[:10].copy(), model.dual_coef_[:10].copy()
    np.testing.assert_array_equal(model.predict(X[:1]), plainly(model, X[:1]))


def test_centers_are_prepared_once_and_no_thread_is_started(monkeypatch):
    model = regressor(n_jobs=4)
    model.predict(X[:1])
    prepared = model._prepared._last
    monkeypatch.setattr(threading.Thread, "start", None)
    for i in range(5):
        model.predict(X[i : i + 1])
    assert model._prepared._last is prepared


def test_many_calls_leave_nothing_behind():
    model = regressor()
    row = X[:1].copy()
    model.predict(row)
    held = weakref.ref(row)
    del row
    gc.collect()
    assert held() is None
    tracemalloc.start()
    try:
        model.predict(X[:1])
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(1000):
            model.predict(X[:1])
        assert tracemalloc.get_traced_memory()[0] - before < 50_000
    finally:
        tracemalloc.stop()


def test_threads_may_share_a_model():
    model, expected = regressor(), regressor().predict(X)
    together = threading.Barrier(4)

    def predict(start: int) -> list[float]:
        together.wait()
        return [model.predict(X[i : i + 1])[0] for i in range(start, N, 4)]

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(predict, range(4)))
    for start in range(4):
        np.testing.assert_allclose(found[start], expected[start::4], rtol=1e-12)


def test_large_centers_are_not_held_twice(monkeypatch):
    monkeypatch.setattr("gyrfalcon.operators.choose._LARGEST_PREPARED", 100)
    prepared, rows = PreparedCenters(), as_rows(X[:2])
    operator = prepared.operator(regressor().kernel_, rows, X[:10])
    assert prepared._last is None
    assert operator.matmat(np.ones(10)).shape == (2,)
