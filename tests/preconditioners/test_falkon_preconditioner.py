"""The preconditioner against Definition 3 written out with dense float64 matrices."""

import tracemalloc

import numpy as np
import pytest
from numpy.testing import assert_allclose

from gyrfalcon.preconditioners import Coordinates, FeatureCoordinates, Identity, Preconditioner, Whitening

N = 500


def gaussian(X, Z, length_scale=1.0):
    distance = np.square(X[:, None, :] - Z[None, :, :]).sum(axis=2)
    return np.exp(-distance / (2 * length_scale**2))


def fortran(matrix, dtype=np.float64):
    return np.array(matrix, dtype=dtype, order="F")


def dense_B(preconditioner):
    return preconditioner.apply(np.eye(preconditioner.rank))


@pytest.fixture
def centers():
    return np.random.default_rng(0).standard_normal((300, 4))


@pytest.fixture
def gram(centers):
    return gaussian(centers, centers, 0.5)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("sampled", [False, True])
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-9), (np.float32, 2e-3)])
def test_whitens_the_system_it_approximates(gram, weighted, sampled, dtype, tolerance):
    """B'((n/M) K D W D K + ridge n (K + jitter D^-2))B = I is what Definition 3 asks of T and A together."""
    rng = np.random.default_rng(1)
    D = rng.uniform(0.5, 2.0, 300) if sampled else np.ones(300)
    w = rng.uniform(0.0, 2.0, 300) if weighted else np.ones(300)
    draws = 450 if sampled else 300
    P = Preconditioner(
        fortran(gram, dtype),
        1e-3,
        N,
        D=D if sampled else None,
        center_weight=w if weighted else None,
        n_draws=draws if sampled else None,
    )
    # With the jitter, D K_MM D + jitter I stands for D K_MM D.
    jittered = gram + np.diag(P.whitening.jitter / D**2)
    H = N / draws * jittered @ np.diag(D**2 * w) @ jittered + P.ridge * N * jittered
    B = dense_B(P)
    assert P.rank == 300
    assert P.whitening.method == "cholesky"
    assert_allclose(B.T @ H @ B, np.eye(300), atol=tolerance)


def test_penalty_identity(gram):
    """B'(n K_MM)B = A^-T (I - jitter T^-T T^-1) A^-1, on which the solver relies."""
    D = np.random.default_rng(1).uniform(0.5, 2.0, 300)
    P = Preconditioner(fortran(gram), 1e-4, N, D=D)
    B, identity = dense_B(P), np.eye(300)
    Ti, Ai = P.whitening.solve_T(identity), P.A.solve(identity)
    assert_allclose(B.T @ (N * gram) @ B, Ai.T @ (identity - P.whitening.jitter * Ti.T @ Ti) @ Ai, atol=1e-9 / P.ridge)
    assert_allclose(P.whitening.solve_Tt(identity), Ti.T, atol=1e-7)
    assert_allclose(P.A.solve_transposed(identity), Ai.T, atol=1e-7)


COORDINATES = {
    "identity": lambda gram, D: Identity(gram, N),
    "whitening": lambda gram, D: Whitening(gram, N, D=D),
    "falkon": lambda gram, D: Preconditioner(gram, 1e-4, N, D=D),
}


def test_every_kind_keeps_the_contract(gram):
    for make in COORDINATES.values():
        assert isinstance(make(fortran(gram), None), Coordinates)
    assert isinstance(FeatureCoordinates(N, 300), Coordinates)


@pytest.mark.parametrize("kind", COORDINATES)
@pytest.mark.parametrize("shape", [(), (1,), (3,)])
def test_coordinates(gram, kind, shape):
    """Every implementation keeps the contract that solvers rely on: forward, backward, apply, transpose, inverse."""
    rng = np.random.default_rng(2)
    C = COORDINATES[kind](fortran(gram), rng.uniform(0.5, 2.0, 300))
    assert (C.n, C.M, C.rank) == (N, 300, 300)
    B = dense_B(C)
    beta, s = rng.standard_normal((300, *shape)), rng.standard_normal((300, *shape))
    alpha, halfway = C.forward(beta)
    assert_allclose(alpha, B @ beta, rtol=1e-9, atol=1e-9 * np.abs(alpha).max())
    assert np.array_equal(alpha, C.apply(beta))
    assert_allclose(C.apply_transpose(s), B.T @ s, rtol=1e-9, atol=1e-9)
    assert_allclose(C.invert(alpha), beta, atol=1e-9)
    for penalty in (0.0, 1e-3, -1e-3):
        expected = B.T @ s + penalty * N * B.T @ gram @ (B @ beta)
        scale = np.abs(expected).max()
        assert_allclose(C.backward(s, halfway, penalty), expected, atol=1e-8 * scale)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("sampled", [False, True])
def test_whitening_makes_the_functions_orthonormal(gram, dtype, sampled):
    D = np.random.default_rng(1).uniform(0.5, 2.0, 300) if sampled else None
    W = Whitening(fortran(gram, dtype), N, D=D)
    B = dense_B(W)
    jittered = gram + np.diag(W.jitter / (np.ones(300) if D is None else D) ** 2)
    assert_allclose(N * B.T @ jittered @ B, np.eye(300), atol=1e-9 if dtype == np.float64 else 1e-2)
    # A, below T in the same buffer, leaves T alone
    assert np.array_equal(dense_B(W), dense_B(Preconditioner(fortran(gram, dtype), 1e-3, N, D=D).whitening))


def test_whitening_of_low_rank():
    X = np.random.default_rng(0).standard_normal((200, 5))
    W = Whitening(fortran(X @ X.T), N)
    assert (W.rank, W.method) == (5, "pivoted_cholesky")
    B = dense_B(W)
    assert_allclose(N * B.T @ (X @ X.T) @ B, np.eye(5), atol=1e-9)
    assert Whitening(np.zeros((4, 4), order="F"), N).rank == 0


def test_identity_leaves_the_gram_alone(gram):
    before = gram.copy()
    C = Identity(gram, N)
    C.backward(*C.forward(np.ones(300)), 1.0)
    assert np.array_equal(gram, before)
    with pytest.raises(ValueError, match="n=0"):
        Identity(gram, 0)
    with pytest.raises(ValueError, match="square"):
        Identity(gram[:2], N)
    with pytest.raises(ValueError, match="NaN"):
        Identity(np.full((2, 2), np.nan), N)
    with pytest.raises(ValueError, match="n=0"):
        Whitening(fortran(gram), 0)


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-9), (np.float32, 1e-3)])
@pytest.mark.parametrize("shape", [(), (1,), (3,)])
def test_inverse_and_transpose(gram, dtype, tolerance, shape):
    rng = np.random.default_rng(2)
    P = Preconditioner(fortran(gram, dtype), 1e-4, N, D=rng.uniform(0.5, 2.0, 300))
    beta, s = rng.standard_normal((300, *shape)), rng.standard_normal((300, *shape))
    alpha = P.apply(beta)
    assert alpha.dtype == np.float64
    assert alpha.shape == beta.shape
    assert_allclose(P.invert(alpha), beta, atol=tolerance * np.abs(beta).max())
    assert_allclose((s * alpha).sum(), (P.apply_transpose(s) * beta).sum(), rtol=10 * tolerance)


def test_gram_is_the_only_buffer(gram):
    buffer = fortran(gram)
    P = Preconditioner(buffer, 1e-3, N)
    T = np.triu(buffer)
    assert_allclose(T.T @ T, gram + P.whitening.jitter * np.eye(300), atol=1e-12)
    assert np.shares_memory(P.whitening.T, buffer)


@pytest.mark.parametrize("rank_deficient", [False, True])
def test_needs_little_memory_beside_the_buffer(rank_deficient):
    X = np.random.default_rng(0).standard_normal((1500, 3))
    gram = fortran(X @ X.T if rank_deficient else np.exp(-np.abs(X[:, :1] - X[:, 0])), np.float32)
    w = np.ones(1500)
    tracemalloc.start()
    try:
        P = Preconditioner(gram, 1e-6, N, D=w, center_weight=w)
        P.update(1e-7)
        P.invert(P.apply(np.ones(P.rank)))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert P.rank == (3 if rank_deficient else 1500)
    assert peak < 0.25 * gram.nbytes


def test_update_is_the_same_as_starting_again(gram):
    w = np.random.default_rng(3).uniform(0.0, 1.0, 300)
    P = Preconditioner(fortran(gram), 1e-2, N)
    P.update(1e-6, w)
    fresh = Preconditioner(fortran(gram), 1e-6, N, center_weight=w)
    assert P.ridge == fresh.ridge
    assert_allclose(dense_B(P), dense_B(fresh), rtol=1e-9, atol=1e-9)


def test_ridge_is_near_what_the_centers_resolve(gram):
    P = Preconditioner(fortran(gram), 0.0, 100_000)
    eigenvalues = np.linalg.eigvalsh(gram) / 300
    effective_dimension = (eigenvalues / (eigenvalues + P.ridge)).sum()
    assert 0.3 * 300 < effective_dimension < 0.9 * 300
    assert Preconditioner(fortran(gram), 10.0, N).ridge == 10.0
    # With all rows as centers T T'/M is K'K/n itself.
    assert Preconditioner(fortran(gram), 1e-6, 300).ridge == 1e-6


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("center_weight", [None, np.linspace(0.0, 2.0, 200)])
def test_low_rank_kernel(dtype, center_weight):
    """A linear kernel of 5 features has rank 5 whatever the number of centers, and needs 5 of them."""
    X = np.random.default_rng(0).standard_normal((200, 5))
    gram = X @ X.T
    P = Preconditioner(fortran(gram, dtype), 0.0, N, center_weight=center_weight)
    assert P.whitening.method == "pivoted_cholesky"
    assert P.rank == len(set(P.whitening.selected)) == 5
    B, w = dense_B(P), np.ones(200) if center_weight is None else center_weight
    assert np.count_nonzero(B.any(axis=1)) == 5
    H = N / 200 * gram @ np.diag(w) @ gram + P.ridge * N * gram
    assert_allclose(B.T @ H @ B, np.eye(5), atol=1e-3 if dtype == np.float32 else 1e-9)
    # invert finds the same function, not the same coefficients
    alpha = np.random.default_rng(1).standard_normal(200)
    assert_allclose(gram @ P.apply(P.invert(alpha)), gram @ alpha, rtol=1e-2 if dtype == np.float32 else 1e-9)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_all_ones(dtype):
    P = Preconditioner(np.ones((50, 50), dtype=dtype, order="F"), 0.0, N)
    assert P.rank == 1
    assert_allclose(np.abs(dense_B(P)).sum() ** 2 * (N + P.ridge * N), 1.0, rtol=1e-3)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_zero_gram_has_rank_zero(dtype):
    P = Preconditioner(np.zeros((4, 4), dtype=dtype, order="F"), 1e-3, N)
    assert P.rank == 0
    assert_allclose(P.apply(np.zeros((0, 2))), np.zeros((4, 2)))
    assert P.apply_transpose(np.ones((4, 2))).shape == (0, 2)
    assert P.invert(np.ones(4)).shape == (0,)


@pytest.mark.parametrize("M", [1, 2, 255, 256, 257, 513])
def test_sizes_around_the_block(M):
    X = np.random.default_rng(0).standard_normal((M, 3))
    gram = gaussian(X, X, 0.3)
    P = Preconditioner(fortran(gram), 1e-3, N)
    jittered = gram + P.whitening.jitter * np.eye(M)
    B = dense_B(P)
    assert_allclose(B.T @ (N / M * jittered @ jittered + P.ridge * N * jittered) @ B, np.eye(M), atol=1e-9)


def test_indefinite_kernel_gets_a_jitter_that_makes_it_positive(centers):
    gram = np.tanh(0.5 * centers @ centers.T + 0.1)
    smallest = np.linalg.eigvalsh(gram)[0]
    assert smallest < -0.1
    P = Preconditioner(fortran(gram), 1e-4, N)
    assert -smallest < P.whitening.jitter < -20 * smallest
    jittered = gram + P.whitening.jitter * np.eye(300)
    B = dense_B(P)
    assert_allclose(B.T @ (N / 300 * jittered @ jittered + P.ridge * N * jittered) @ B, np.eye(300), atol=1e-9)


def test_negative_kernel_is_refused(gram):
    with pytest.raises(ValueError, match="not positive"):
        Preconditioner(fortran(-gram), 1e-4, N)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_refuses_what_is_not_finite(gram, bad):
    gram[3, 7] = bad
    with pytest.raises(ValueError, match="NaN or infinity"):
        Preconditioner(fortran(gram), 1e-4, N)


def test_refuses_what_cannot_be_factored_in_place(gram):
    with pytest.raises(ValueError, match="Fortran"):
        Preconditioner(np.ascontiguousarray(gram), 1e-4, N)
    with pytest.raises(ValueError, match="Fortran"):
        Preconditioner(fortran(gram, np.int64), 1e-4, N)
    with pytest.raises(ValueError, match="square"):
        Preconditioner(fortran(gram[:, :3]), 1e-4, N)


@pytest.mark.parametrize("penalty", [-1.0, np.nan, np.inf])
def test_refuses_a_bad_penalty(gram, penalty):
    with pytest.raises(ValueError, match="penalty"):
        Preconditioner(fortran(gram), penalty, N)


def test_refuses_bad_weights_and_jitter(gram):
    with pytest.raises(ValueError, match="D must"):
        Preconditioner(fortran(gram), 1e-3, N, D=np.zeros(300))
    with pytest.raises(ValueError, match="center_weight must"):
        Preconditioner(fortran(gram), 1e-3, N, center_weight=-np.ones(300))
    with pytest.raises(ValueError, match="jitter"):
        Preconditioner(fortran(gram), 1e-3, N, jitter=-1.0)
