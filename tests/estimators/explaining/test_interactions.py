"""Interactions of columns against the sum over all subsets; what they add up to."""

from __future__ import annotations

from itertools import combinations
from math import factorial

import numpy as np
import pytest

from gyrfalcon import AutoRegressor, FalkonRegressor, NystromRegressor, shapley_interactions, shapley_values
from gyrfalcon.kernels import Gaussian, Laplacian, Matern
from gyrfalcon.operators.shapley import Expansion, expansion_interactions
from tables.short_search import Brief

KERNELS = [Gaussian(1.3), (Gaussian([0.7, 1.5, 0.9, 2.0, 1.1]) + 1.0) * Laplacian(3.0, norm=1)]


def enumerated(value, d):
    """Shapley interaction indices of a game: value(subset) has shape (n, k)."""
    found = {}
    for i, j in combinations(range(d), 2):
        others = [h for h in range(d) if h not in (i, j)]
        total = 0.0
        for size in range(d - 1):
            weight = factorial(size) * factorial(d - size - 2) / factorial(d - 1)
            for S in combinations(others, size):
                total = total + weight * (value([*S, i, j]) - value([*S, i]) - value([*S, j]) + value([*S]))
        found[i, j] = total
    return found


@pytest.mark.parametrize("backend", ["native", "reference"])
@pytest.mark.parametrize("kernel", KERNELS, ids=["gaussian", "product"])
@pytest.mark.parametrize("with_background", [True, False])
def test_interactions_are_those_of_enumeration(kernel, with_background, backend, monkeypatch):
    monkeypatch.setenv("GYRFALCON_BACKEND", backend)
    rng = np.random.default_rng(0)
    X, background, centers, coef = (rng.standard_normal(shape) for shape in [(4, 5), (3, 5), (30, 5), (30, 2)])

    def value(subset):
        if not with_background:  # absent columns are equal to those of each center
            return (
                np.stack([np.diag(kernel(np.where(np.isin(range(5), subset), x, centers), centers)) for x in X]) @ coef
            )
        known = np.isin(range(5), subset)
        return np.mean([kernel(np.where(known, X, row), centers) @ coef for row in background], axis=0)

    given = background if with_background else None
    found, values, _ = expansion_interactions(Expansion(kernel, centers, coef), X, given, np.arange(5))
    for (i, j), expected in enumerated(value, 5).items():
        np.testing.assert_allclose(found[:, i, j], expected, rtol=0, atol=1e-10)
        np.testing.assert_allclose(found[:, j, i], expected, rtol=0, atol=1e-10)
    assert (found[:, range(5), range(5)] == 0).all()
    assert values.shape == (4, 5, 2)


def test_rows_of_the_matrix_add_up_to_shapley_values():
    rng = np.random.default_rng(1)
    X = rng.standard_normal((150, 4))
    y = X[:, 0] * X[:, 1] + X[:, 2]
    model = FalkonRegressor("gaussian", dtype="float64", random_state=0).fit(X, y)
    pairs, why = shapley_interactions(model, X[:40], X[50:90]), shapley_values(model, X[:40], X[50:90])
    np.testing.assert_allclose(pairs.values.sum(axis=2), why.values, rtol=0, atol=1e-9)
    np.testing.assert_array_equal(pairs.base_values, why.base_values)
    np.testing.assert_allclose(pairs.values, np.swapaxes(pairs.values, 1, 2), rtol=0, atol=1e-12)
    sizes = np.abs(pairs.values).mean(axis=0)
    assert sizes[0, 1] > 3 * max(sizes[0, 2], sizes[1, 3], sizes[2, 3])
    grouped = shapley_interactions(model, X[:3], groups={"a": [0, 1]})
    assert grouped.values.shape == (3, 3, 3)
    two = NystromRegressor("gaussian", n_centers=40, random_state=0).fit(X, np.c_[y, -y])
    found = shapley_interactions(two, X[:3], X[:5]).values
    assert found.shape == (3, 4, 4, 2)
    np.testing.assert_allclose(found[..., 0], -found[..., 1], rtol=0, atol=1e-4)
    alone = FalkonRegressor("gaussian", random_state=0).fit(X[:, :1], y)
    assert shapley_interactions(alone, X[:3, :1]).values.shape == (3, 1, 1)


def test_tables_have_interactions_of_their_own_columns():
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    table = pandas.DataFrame({"a": rng.standard_normal(200), "kind": rng.choice(["x", "y"], 200)})
    y = table["a"].to_numpy() * np.where(table["kind"] == "x", 1.0, -1.0)
    model = AutoRegressor(time_budget=30, families=("kernel",), callbacks=Brief(), random_state=0).fit(table, y)
    why = shapley_values(model, table[:4], table[50:60], random_state=0)
    if why.exact:  # the search chooses the kernel
        found = shapley_interactions(model, table[:4], table[50:60])
        np.testing.assert_allclose(found.values.sum(axis=2), why.values, rtol=0, atol=1e-6)
    else:
        with pytest.raises(ValueError, match="exact Shapley values only"):
            shapley_interactions(model, table[:4], table[50:60])


def test_other_models_are_refused():
    X = np.random.default_rng(0).standard_normal((60, 2))
    model = FalkonRegressor(Matern(), random_state=0).fit(X, X[:, 0])
    with pytest.raises(ValueError, match="exact Shapley values only"):
        shapley_interactions(model, X)
    with pytest.raises(ValueError, match="no rows"):
        shapley_interactions(FalkonRegressor("gaussian", random_state=0).fit(X, X[:, 0]), X[:0])
    with pytest.raises(TypeError, match="gyrfalcon"):
        shapley_interactions("model", X)
