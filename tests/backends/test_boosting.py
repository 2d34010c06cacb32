"""Native gradient boosting beside the same in NumPy and beside scikit-learn's."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.datasets import make_classification, make_friedman1
from sklearn.ensemble import HistGradientBoostingRegressor
from threadpoolctl import threadpool_limits

from gyrfalcon.backends.boosting import BoostTask, Growth, bin_rows, boost, reference_boost

GROWTH = Growth(rate=0.2, l2=1.0, share=1.0, max_leaves=9, min_leaf=7, iterations=12, patience=50)
SYMMETRIC = replace(GROWTH, max_leaves=8, symmetric=True)
ROUGH = replace(GROWTH, max_leaves=40, min_leaf=1, l2=0.5, symmetric=True)  # 32 leaves


def task_of(n_classes, weighted, dtype=np.float32):
    if n_classes:
        X, y = make_classification(240, 6, n_informative=5, n_redundant=0, n_classes=n_classes, random_state=1)
        offset = np.zeros(1 if n_classes == 2 else n_classes)
    else:
        X, y = make_friedman1(240, n_features=6, random_state=1)
        y, offset = (y - y.mean()) / y.std(), np.zeros(1)
    X[:, 5] = np.round(X[:, 5])  # few values
    weight = np.random.RandomState(2).uniform(0.5, 2.0, len(X)) if weighted else None
    rows = np.random.RandomState(3).permutation(len(X))
    binned = bin_rows(X.astype(dtype), 40, 1, seed=0)
    return X, BoostTask(binned, rows[:180], rows[180:], y.astype(np.float64), weight, n_classes, offset, GROWTH, 5)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("n_classes", [0, 2, 3])
@pytest.mark.parametrize("growth", [GROWTH, SYMMETRIC, ROUGH], ids=["leaves", "levels", "levels of single rows"])
def test_trees_are_those_of_the_reference(n_classes, weighted, growth):
    _, task = task_of(n_classes, weighted)
    task = replace(task, growth=growth)
    ours, slow = boost(task, np.inf), reference_boost(task, np.inf)
    for name in ("feature", "bin", "left", "right", "root"):
        np.testing.assert_array_equal(getattr(ours, name), getattr(slow, name), err_msg=name)
    inner = slow.left >= 0
    np.testing.assert_allclose(np.where(inner, 0.0, ours.value), np.where(inner, 0.0, slow.value), atol=1e-12)
    np.testing.assert_allclose(ours.curve, slow.curve, rtol=1e-11)
    assert len(ours.root) == 12 * max(1, n_classes * (n_classes > 2))
    leaves = np.bincount(np.searchsorted(ours.root, np.flatnonzero(~inner), "right"))  # of each tree
    assert leaves.max() <= growth.max_leaves
    assert leaves.max() > growth.max_leaves // 2


def test_a_symmetric_tree_has_one_split_for_each_level():
    _, task = task_of(0, False)
    grown = boost(replace(task, growth=SYMMETRIC), np.inf)
    inner = np.flatnonzero(grown.left >= 0)
    trees = np.searchsorted(grown.root, inner, "right")
    splits = {(t, f, b) for t, f, b in zip(trees, grown.feature[inner], grown.bin[inner], strict=True)}
    assert len(splits) == 3 * len(grown.root)  # of at most eight leaves
    assert len(inner) > 5 * len(grown.root)


def test_a_fit_ends_when_the_loss_of_held_out_rows_falls_no_more():
    _, task = task_of(0, False)
    task = replace(task, growth=replace(GROWTH, rate=0.9, iterations=500, patience=4))
    curve = boost(task, np.inf).curve
    assert len(curve) < 100
    assert np.argmin(curve) == len(curve) - 5


def test_one_iteration_is_made_even_without_time():
    _, task = task_of(3, False)
    assert len(boost(task, 0.0).root) == len(reference_boost(task, 0.0).root) == 3


def test_features_are_drawn_anew_for_each_tree():
    _, task = task_of(0, False)
    few = replace(task, growth=replace(GROWTH, share=0.34))
    for grown in (boost(few, np.inf), reference_boost(few, np.inf)):
        ends = [*grown.root[1:], len(grown.feature)]
        used = [
            set(grown.feature[start:end][grown.left[start:end] >= 0].tolist())
            for start, end in zip(grown.root, ends, strict=True)
        ]
        assert max(len(one) for one in used) == 2
        assert len(set().union(*used)) > 2
    other = boost(replace(few, seed=6), np.inf)
    assert len(other.feature) != len(boost(few, np.inf).feature) or (other.feature != boost(few, np.inf).feature).any()


def test_errors_are_those_of_scikit_learn():
    """With few values in each column the bins are the same, and so are the trees, up to the order of equal splits."""
    X, y = make_friedman1(1_500, random_state=0)
    X = np.round(100 * X)
    rows = np.arange(1_500)
    growth = Growth(0.1, 0.0, 1.0, 31, 20, iterations=100, patience=100)
    binned = bin_rows(X, 255, 2, seed=0)
    task = BoostTask(binned, rows[:1_000], rows[1_000:], y, None, 0, np.array([y[:1_000].mean()]), growth, 0)
    with threadpool_limits(limits=1, user_api="openmp"):  # threads of few rows wait for each other
        theirs = HistGradientBoostingRegressor(early_stopping=False).fit(X[:1_000], y[:1_000])
    error = 0.5 * np.mean((theirs.predict(X[1_000:]) - y[1_000:]) ** 2)
    assert boost(task, np.inf).curve[-1] == pytest.approx(error, rel=0.01)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_bins_agree_with_edges(dtype):
    rng = np.random.RandomState(0)
    X = np.column_stack(
        [
            rng.standard_normal(500),
            rng.randint(3, size=500),
            np.ones(500),
            1e8 + 8 * rng.randint(400, size=500),
            rng.choice([0.0, 1.0, np.nextafter(dtype(1.0), dtype(2.0))], size=500),
            rng.exponential(size=500) ** 4,
        ]
    ).astype(dtype)
    binned = bin_rows(X, 100, 2, seed=0)
    assert binned.n_bins.tolist()[1:3] == [3, 1]
    assert binned.n_bins[4] == 3  # neighbours in floating point are told apart
    assert binned.n_bins.max() <= 100
    for feature, edges in enumerate(binned.edges):
        assert edges.dtype == dtype
        values = X[:, feature].astype(np.float64)
        np.testing.assert_array_equal(binned.bins[feature], [(edges.astype(np.float64) < x).sum() for x in values])
    counts = np.bincount(binned.bins[0])
    assert counts.max() <= 2 * counts.min() + 2


def test_values_of_many_rows_leave_bins_to_the_others():
    """Quantiles of repeated values lie within a value, where no bin can end: bins end at the next value."""
    rng = np.random.RandomState(0)
    repeated = np.repeat(np.arange(400.0), 30)
    mostly_zero = np.where(np.arange(12_000) < 9_000, 0.0, rng.standard_normal(12_000))
    binned = bin_rows(rng.permutation(np.column_stack([repeated, mostly_zero])), 255, 1, seed=0)
    assert (binned.n_bins > 240).all()
    assert np.bincount(binned.bins[0]).max() <= 60  # 12,000 rows in 255 bins of whole values: at most two values each
    assert np.sort(np.bincount(binned.bins[1]))[-2] <= 40  # of the 3,000 rows that are not 0


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"train": np.array([1000])}, "row does not exist"),
        ({"held": np.array([], dtype=np.int64)}, "rows that judge"),
        # values of trees were added to the scores of such a row twice
        ({"train": np.arange(200), "held": np.arange(190, 240)}, "row 190 is listed twice"),
        ({"train": np.array([3, 8, 8, 9])}, "row 8 is listed twice"),
        ({"y": np.zeros(3)}, "y and weights"),
        ({"offset": np.zeros(2)}, "offset"),
        ({"n_classes": 2, "y": np.full(240, 2.0)}, "numbers of classes"),
    ],
)
def test_impossible_tasks_are_refused(changed, words):
    _, task = task_of(0, False)
    with pytest.raises(ValueError, match=words):
        boost(replace(task, **changed), np.inf)
