"""Who may be a center."""

from __future__ import annotations

import numpy as np
import pytest

from gyrfalcon import FalkonRegressor
from gyrfalcon.centers import Given, Selection, Uniform, as_centers
from gyrfalcon.sources import ArrayRows

ROWS = ArrayRows(np.arange(200.0, dtype=np.float32).reshape(100, 2))


def choose(n_centers, candidates=None, seed=0, selector=None):
    return (selector or Uniform()).select(ROWS, n_centers, candidates, np.random.RandomState(seed))


def test_uniform_centers_are_rows_without_repetition():
    selection = choose(30)
    assert len(set(selection.indices)) == 30
    assert (np.diff(selection.indices) > 0).all()
    np.testing.assert_array_equal(selection.points, ROWS.X[selection.indices])
    assert selection.points.dtype == np.float32
    assert selection.D is None


def test_uniform_centers_depend_on_the_seed_alone():
    np.testing.assert_array_equal(choose(30).indices, choose(30).indices)
    assert (choose(30, seed=1).indices != choose(30).indices).any()


@pytest.mark.parametrize("n_centers", [100, 101, 10**6])
def test_all_rows_in_their_order_where_as_many_are_asked_for(n_centers):
    np.testing.assert_array_equal(choose(n_centers).indices, np.arange(100))


def test_uniform_centers_are_uniform():
    counts = sum(np.bincount(choose(10, seed=seed).indices, minlength=100) for seed in range(1000))
    # 100 each on average, with a standard deviation of sqrt(1000 * 0.1 * 0.9) = 9.5
    assert 55 < counts.min() <= counts.max() < 150


def test_candidates_alone_are_chosen():
    candidates = np.array([3, 50, 51, 99])
    np.testing.assert_array_equal(choose(10, candidates).indices, candidates)
    assert set(choose(2, candidates).indices) < set(candidates)
    np.testing.assert_array_equal(choose(10, candidates).points, ROWS.X[candidates])


def test_given_points_are_copied_in_the_dtype_of_the_rows():
    points = np.asfortranarray(np.random.default_rng(0).standard_normal((5, 2)))
    selection = choose(3, selector=Given(points))
    assert selection.points.dtype == np.float32
    assert selection.points.flags.c_contiguous
    assert selection.indices is None
    np.testing.assert_array_equal(selection.points, points.astype(np.float32))
    same = points.astype(np.float32)
    selection = choose(3, selector=Given(same))
    same[:] = 7
    assert (selection.points != 7).all()


@pytest.mark.parametrize(
    ("points", "message"),
    [
        (np.ones(3), r"2-D array of numbers with at least one row, not .*shape \(3,\)"),
        (np.ones((0, 2)), r"shape \(0, 2\)"),
        (np.ones((4, 3)), "centers have 3 features, X has 2"),
        (np.full((4, 2), np.nan), "centers contain NaN or infinity"),
        (np.full((4, 2), np.inf), "centers contain NaN or infinity"),
        (np.array([["a", "b"]]), "2-D array of numbers"),
        (np.array([[1, None]], dtype=object), "2-D array of numbers"),
    ],
)
def test_wrong_points(points, message):
    with pytest.raises(ValueError, match=message):
        choose(3, selector=Given(points))
    with pytest.raises(ValueError, match=message):
        FalkonRegressor(centers=points).fit(ROWS.X, ROWS.X[:, 0])


def test_what_is_meant():
    assert isinstance(as_centers("uniform"), Uniform)
    assert isinstance(as_centers([[1.0, 2.0]]), Given)
    selector = Uniform()
    assert as_centers(selector) is selector
    with pytest.raises(
        ValueError, match="centers='best' is not known: use \"uniform\", an array of points, or a selector"
    ):
        as_centers("best")


def test_a_selector_of_ones_own():
    class First:
        def select(self, rows, n_centers, candidates, random_state):
            indices = np.arange(n_centers)
            return Selection(rows.take(indices), indices)

    X = np.random.default_rng(0).standard_normal((300, 2))
    model = FalkonRegressor(n_centers=40, centers=First()).fit(X, X[:, 0])
    np.testing.assert_array_equal(model.centers_, X[:40])
