"""The preconditioner of two scales is the inverse that it says it is, for all rows and without each fold."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from gyrfalcon.hierarchy import HierarchicalPreconditioner, shared_shifts
from gyrfalcon.kernels import Gaussian, Laplacian, Linear

N, PIVOTS, LEAF = 130, 25, 20


def rows(d=3):
    return np.random.default_rng(0).standard_normal((N, d))


def make(kernel, X, shifts, **parameters):
    return HierarchicalPreconditioner(
        kernel, X, np.asarray(shifts), **{"n_pivots": PIVOTS, "leaf_size": LEAF, "seed": 0, **parameters}
    )


def two_scales(P, kernel, X, root):
    """F F' outside of the leaves, and the kernel matrix in them, without the shift."""
    hierarchy = P.hierarchy
    pivots = X[hierarchy.pivots[0]]
    gram = kernel(pivots, pivots)
    gram[np.diag_indices(len(gram))] += 1e-8 * gram.diagonal().mean()
    matrix, near = kernel(X, pivots) @ np.linalg.solve(gram, kernel(pivots, X)), kernel(X, X)
    for leaf in range(hierarchy.tree.n_leaves):
        at = np.ix_(*2 * [hierarchy.order[hierarchy.tree.leaf(leaf)]])
        matrix[at] = near[at]
    return root[:, None] * matrix * root


@pytest.mark.parametrize("kernel", [Gaussian(1.0), Laplacian(1.0), Linear()], ids=repr)
@pytest.mark.parametrize("weighted", [False, True])
def test_it_is_the_inverse(kernel, weighted):
    X, rng = rows(), np.random.default_rng(1)
    weight = rng.uniform(0.5, 2.0, size=N) if weighted else None
    root = np.ones(N) if weight is None else np.sqrt(weight)
    fold = rng.integers(0, 3, size=N)
    P = make(kernel, X, [0.5, 3.0], weight=weight, fold=fold)
    left_out, s = np.array([-1, 0, 2, 0]), np.array([0.5, 0.5, 3.0, 3.0])
    V = rng.standard_normal((N, 4))
    V[fold[:, None] == left_out] = 0
    matrix = two_scales(P, kernel, X, root)
    U = P.apply(V, s, left_out)
    assert P.hierarchy.tree.n_leaves > 4
    for c, f in enumerate(left_out):
        T = np.flatnonzero(fold != f)
        expected = np.linalg.solve(matrix[np.ix_(T, T)] + s[c] * np.eye(len(T)), V[T, c])
        assert_allclose(U[T, c], expected, atol=1e-8)
        assert_allclose(U[fold == f, c], 0.0, atol=1e-8)


@pytest.mark.parametrize("kernel", [Gaussian(5.0), Laplacian(1.0), Linear()], ids=repr)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_it_is_positive_for_every_shift(kernel, dtype):
    X, fold = rows().astype(dtype), np.arange(N) % 4
    P = make(kernel, X, [1e-9, 1e-3], fold=fold, dtype=dtype)
    for s in P.shifts:
        for f in (-1, 0, 3):
            T = fold != f
            A = P.apply(np.eye(N)[:, T], np.full(T.sum(), s), np.full(T.sum(), f))[T]
            assert np.linalg.eigvalsh((A + A.T) / 2).min() > -1e-6 * np.abs(A).max()


def test_factors_in_float32_are_those_of_a_matrix_nearby():
    X, V, s = rows(), np.random.default_rng(2).standard_normal((N, 1)), np.array([0.1])
    found = [make(Laplacian(1.0), X, s, dtype=t).apply(V, s, np.array([-1])) for t in (np.float32, np.float64)]
    # the condition number is at most that of K / 0.1, below 1000
    assert_allclose(found[0], found[1], atol=1e-3 * np.abs(found[1]).max())


def test_shifts_that_are_near_share_a_factor():
    shifts = shared_shifts(np.array([1e-3, 3e-3, 1e-2, 1.0]))
    assert_allclose(shifts, [np.sqrt(3) * 1e-3, 1e-2, 1.0])
    assert_array_equal(shared_shifts(np.array([2.0, 2.0])), [2.0])
    P = make(Laplacian(1.0), rows(), shifts)
    V = np.ones((N, 2))
    found = P.apply(V, np.array([1e-3, 3e-3]), np.full(2, -1))
    assert_array_equal(found[:, 0], found[:, 1])


@pytest.mark.parametrize(("n_pivots", "leaf_size"), [(1, 7), (N, 10), (30, N)])
def test_sizes(n_pivots, leaf_size):
    X, s = rows(), np.array([0.1])
    P = make(Laplacian(1.0), X, s, n_pivots=n_pivots, leaf_size=leaf_size)
    V = np.random.default_rng(2).standard_normal((N, 1))
    expected = np.linalg.solve(two_scales(P, Laplacian(1.0), X, np.ones(N)) + 0.1 * np.eye(N), V)
    assert_allclose(P.apply(V, s, np.array([-1])), expected, atol=1e-8)


def test_rows_that_are_all_equal():
    X, s = np.ones((N, 2)), np.array([0.1])
    V = np.random.default_rng(2).standard_normal((N, 1))
    found = make(Laplacian(1.0), X, s).apply(V, s, np.array([-1]))
    assert_allclose(found, np.linalg.solve(np.ones((N, N)) + 0.1 * np.eye(N), V), atol=1e-5)


def test_the_same_bits_for_any_number_of_threads():
    X = rows()
    V = np.random.default_rng(2).standard_normal((N, 2))
    found = [
        make(Laplacian(1.0), X, [0.1], fold=np.arange(N) % 2, n_jobs=n_jobs).apply(
            V, np.full(2, 0.1), np.array([-1, 1])
        )
        for n_jobs in (1, 3)
    ]
    assert_array_equal(found[0], found[1])
