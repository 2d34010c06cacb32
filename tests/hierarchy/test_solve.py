"""The solve, predictions, deviations and log-determinants against a dense K_hc written out from its definition."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from numpy.typing import NDArray

from gyrfalcon.hierarchy import (
    Hierarchy,
    LocalExpansion,
    LocalPosterior,
    factorise,
    make_hierarchy,
)
from gyrfalcon.hierarchy.blocks import JITTER
from gyrfalcon.kernels import Gaussian, Kernel, Laplacian, Matern
from gyrfalcon.sources.rows_file import RowsFile

Vectors = NDArray[np.float64]


def paths(hierarchy: Hierarchy) -> list[list[int]]:
    """The inner nodes above each leaf, from the leaf's parent to the root."""
    tree = hierarchy.tree
    found = []
    for node in tree.parents:
        path = []
        while node >= 0:
            path.append(int(node))
            node = tree.node_parents[node]
        found.append(path)
    return found


def dense(hierarchy: Hierarchy, A: Vectors, in_A: Vectors, B: Vectors, in_B: Vectors) -> Vectors:
    """k_hc(A, B), entry by entry as the definition has it; `in_A` and `in_B` are the leaves of the rows."""
    k, above = hierarchy.kernel, paths(hierarchy)

    def S(node: int) -> Vectors:
        P = hierarchy.pivot_points(node)
        gram = np.asarray(k(P, P), dtype=np.float64)
        return gram + JITTER * gram.diagonal().mean() * np.eye(len(gram))

    def psi(x: Vectors, leaf: int, until: int) -> Vectors:
        path = above[leaf]
        value = np.linalg.solve(S(path[0]), k(hierarchy.pivot_points(path[0]), x[None]))
        for low, high in itertools.pairwise(path):
            if low == until:
                break
            P, Q = hierarchy.pivot_points(low), hierarchy.pivot_points(high)
            value = np.linalg.solve(S(high), k(Q, P) @ value)
        return value

    out = np.empty((len(A), len(B)))
    for i, x in enumerate(A):
        for j, z in enumerate(B):
            a, b = int(in_A[i]), int(in_B[j])
            if a == b:
                out[i, j] = np.asarray(k(x[None], z[None]))[0, 0]
                continue
            joint = next(node for node in above[a] if node in above[b])
            out[i, j] = (psi(x, a, joint).T @ S(joint) @ psi(z, b, joint))[0, 0]
    return out


KERNELS: list[Kernel] = [Laplacian(1.5), Gaussian(1.0), Matern(2.0, nu=1.5)]


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: type(kernel).__name__)
@pytest.mark.parametrize("split", ["random", "principal", "axis"])
def test_equals_the_dense_solution(kernel: Kernel, split: str) -> None:
    rng = np.random.default_rng(0)
    X, new = rng.standard_normal((70, 3)), rng.standard_normal((9, 3))
    Y, noise = rng.standard_normal((70, 2)), rng.uniform(0.05, 0.2, 70)
    hierarchy = make_hierarchy(kernel, X, leaf_size=11, rank=5, split=split, seed=1)
    tree, order = hierarchy.tree, hierarchy.order
    inside = np.empty(70, dtype=np.int64)
    inside[order] = np.repeat(np.arange(tree.n_leaves), np.diff(tree.starts))
    K = dense(hierarchy, X, inside, X, inside)
    assert np.linalg.eigvalsh(K).min() > -1e-10
    A = K + np.diag(noise)
    found = factorise(hierarchy, Y, noise, with_diagonal=True, with_covariances=True, n_threads=2)
    wanted = np.linalg.solve(A, Y)
    assert np.abs(found.coef - wanted[order]).max() < 1e-8 * np.abs(wanted).max()
    assert found.log_det == pytest.approx(np.linalg.slogdet(A)[1], rel=1e-8)
    assert found.inverse_diagonal is not None
    assert found.covariances is not None
    np.testing.assert_allclose(found.inverse_diagonal, np.diag(np.linalg.inv(A))[order], rtol=1e-8)

    k_new = dense(hierarchy, new, tree.route(new), X, inside)
    expansion = LocalExpansion(tree, order, hierarchy.pivots[tree.parents], found.coef, found.pivot_coef)
    values = expansion.predict(kernel, X, new, n_threads=2)
    assert np.abs(values - k_new @ wanted).max() < 1e-8
    variances = LocalPosterior(found.covariances).variances(hierarchy, noise, new, np.ones(9))
    np.testing.assert_allclose(variances, 1 - np.einsum("ij,ji->i", k_new, np.linalg.solve(A, k_new.T)), atol=1e-8)


def test_has_the_same_bits_for_any_number_of_threads() -> None:
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((500, 3)), rng.standard_normal((500, 1))
    hierarchy = make_hierarchy(Laplacian(2.0), X, leaf_size=20, rank=10, split="principal", seed=0)
    one, three = (factorise(hierarchy, Y, np.full(500, 0.1), n_threads=count) for count in (1, 3))
    np.testing.assert_array_equal(one.coef, three.coef)
    np.testing.assert_array_equal(one.pivot_coef, three.pivot_coef)
    assert one.log_det == three.log_det


def test_every_row_a_pivot_is_the_exact_kernel() -> None:
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((40, 2)), rng.standard_normal((40, 1))
    kernel = Laplacian(1.0)
    hierarchy = make_hierarchy(kernel, X, leaf_size=20, rank=20, split="random", seed=0)
    pivots = np.tile(np.arange(40), (len(hierarchy.tree.children), 1))
    everything = Hierarchy(kernel, X, hierarchy.tree, hierarchy.order, pivots)
    found = factorise(everything, Y, np.full(40, 0.1))
    wanted = np.linalg.solve(np.asarray(kernel(X, X)) + 0.1 * np.eye(40), Y)
    np.testing.assert_allclose(found.coef, wanted[hierarchy.order], atol=1e-6)  # the ridge of pivots


def test_factors_in_a_file_have_the_same_bits() -> None:
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((300, 3)), rng.standard_normal((300, 2))
    hierarchy = make_hierarchy(Laplacian(2.0), X, leaf_size=20, rank=10, split="axis", seed=0)
    made: list[tuple[int, int]] = []

    def in_file(shape: tuple[int, int]) -> RowsFile:
        made.append(shape)
        return RowsFile(shape)

    noise = np.full(300, 0.1)
    on_disk = factorise(hierarchy, Y, noise, allocate=in_file)
    np.testing.assert_array_equal(on_disk.coef, factorise(hierarchy, Y, noise).coef)
    assert made == [(300, 10), (2 * len(hierarchy.tree.children), 100)]
