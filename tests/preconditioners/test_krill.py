"""KRILL's preconditioner against its definition in dense float64, and where FALKON's is weak."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from gyrfalcon import KernelOperator
from gyrfalcon.kernels import Gaussian, Linear
from gyrfalcon.preconditioners import Krill, Preconditioner
from gyrfalcon.preconditioners.krill import sketch
from gyrfalcon.solvers import conjugate_gradient

N, M = 1500, 60


def make(centers="uniform", dtype=np.float64, length_scale=1.0, weighted=False):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, 3)).astype(dtype)
    Z = {
        "uniform": X[:M],
        "tails": X[np.argsort(-np.abs(X[:, 0]))[:M]],
        "box": rng.uniform(-3, 3, (M, 3)),
        "duplicates": np.tile(X[: M // 3], (3, 1)),
    }[centers]
    w = rng.uniform(0.0, 2.0, N) if weighted else None
    return KernelOperator(Gaussian(length_scale), X, Z, n_jobs=1), np.sin(2 * X[:, :1]) + X[:, 1:], w


def dense(operator):
    return operator.matmat(np.eye(operator.shape[1])).astype(float), operator.centers_gram(np.float64)


def condition(operator, B, penalty, w=None):
    K, K_MM = dense(operator)
    w = np.ones(len(K)) if w is None else w
    B = B.apply(np.eye(B.rank))
    return np.linalg.cond(B.T @ (K.T @ (w[:, None] * K) + penalty * len(K) * K_MM) @ B)


class Identity:
    """An operator whose K is the identity, so that Phi K is Phi."""

    shape = (1000, 1000)

    def blocks(self):
        for i in range(0, 1000, 300):
            at = slice(i, min(i + 300, 1000))
            yield at, np.eye(1000)[at]


@pytest.mark.parametrize("size", [50, 2000])
def test_sketch_has_eight_signs_a_column(size):
    Phi = sketch(Identity(), size, np.float64, random_state=0)
    assert np.all((Phi != 0).sum(axis=0) == 8)
    assert_allclose(np.unique(np.round(np.abs(Phi[Phi != 0]), 12)), 8**-0.5)
    assert abs(np.sign(Phi).sum()) < 5 * np.sqrt(8000)
    # every row of Phi is used about equally
    counts = (Phi != 0).sum(axis=1)
    assert abs(counts.mean() - 8000 / size) < 1e-9
    assert counts.max() < 8000 / size + 6 * np.sqrt(8000 / size) + 3
    w = np.random.default_rng(1).uniform(0, 2, 1000)
    assert_allclose(sketch(Identity(), size, np.float64, weight=w, random_state=0), Phi * np.sqrt(w))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_whitens_the_sketched_system(weighted, dtype):
    """B'((Phi K)'(Phi K) + ridge n K_MM)B = I, with K_MM as factored."""
    operator, _, w = make(weighted=weighted, length_scale=0.5)
    B = Krill(operator, operator.centers_gram(dtype), 1e-3, weight=w, random_state=0)
    S = sketch(operator, 2 * M, dtype, weight=w, random_state=0).astype(float)
    H = S.T @ S + B.ridge * N * (operator.centers_gram() + B.whitening.jitter * np.eye(M))
    inner = B.apply(np.eye(M))
    assert B.ridge == 1e-3
    assert_allclose(inner.T @ H @ inner, np.eye(M), atol=1e-9 if dtype == np.float64 else 1e-2)


@pytest.mark.parametrize("centers", ["uniform", "tails", "box", "duplicates"])
@pytest.mark.parametrize("penalty", [1e-3, 1e-8])
@pytest.mark.parametrize("weighted", [False, True])
def test_condition_number_is_small_for_any_centers(centers, penalty, weighted):
    """A sketch with twice as many rows as columns distorts by (1 +- 2^-1/2)^2, so 34 but for chance."""
    operator, _, w = make(centers, weighted=weighted)
    krill = Krill(operator, operator.centers_gram(), penalty, weight=w, random_state=0)
    assert condition(operator, krill, penalty, w) < 60
    wider = Krill(operator, operator.centers_gram(), penalty, weight=w, oversampling=8, random_state=0)
    assert condition(operator, wider, penalty, w) < 10


@pytest.mark.parametrize("centers", ["tails", "box"])
def test_better_than_falkon_where_centers_were_not_drawn_from_the_rows(centers):
    operator, _, _ = make(centers)
    falkon = Preconditioner(operator.centers_gram(), 1e-6, N)
    krill = Krill(operator, operator.centers_gram(), 1e-6, random_state=0)
    assert condition(operator, falkon, 1e-6) > 10 * condition(operator, krill, 1e-6)


@pytest.mark.parametrize("centers", ["uniform", "box", "duplicates"])
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-7), (np.float32, 1e-3)])
@pytest.mark.parametrize("weighted", [False, True])
def test_conjugate_gradient_finds_the_dense_solution(centers, dtype, tolerance, weighted):
    operator, Y, w = make(centers, dtype, weighted=weighted)
    before = operator.passes
    krill = Krill(operator, operator.centers_gram(np.float64), 1e-4, weight=w, random_state=0)
    assert operator.passes - before == 1
    tol = 1e-10 if dtype == np.float64 else 1e-5
    *_, last = conjugate_gradient(operator, Y, krill, 1e-4, max_iter=100, tol=tol, weight=w)
    K, K_MM = dense(operator)
    w = np.ones(N) if w is None else w
    reference = np.linalg.lstsq(K.T @ (w[:, None] * K) + 1e-4 * N * K_MM, K.T @ (w[:, None] * Y), rcond=1e-13)[0]
    assert last.converged
    assert np.linalg.norm(K @ (last.coef() - reference)) < tolerance * np.linalg.norm(K @ reference)


def test_is_seeded():
    operator, _, _ = make()

    def B(seed):
        return Krill(operator, operator.centers_gram(), 1e-3, random_state=seed).apply(np.eye(M))

    assert np.array_equal(B(0), B(0))
    assert np.array_equal(B(np.random.RandomState(0)), B(np.random.RandomState(0)))
    assert not np.array_equal(B(0), B(1))


@pytest.mark.parametrize(("n", "m"), [(1, 1), (1, 3), (5, 20), (300, 2)])
def test_tiny_problems(n, m):
    rng = np.random.default_rng(0)
    X, Z = rng.standard_normal((n, 2)), rng.standard_normal((m, 2))
    operator, y = KernelOperator(Gaussian(1.0), X, Z), rng.standard_normal(n)
    krill = Krill(operator, operator.centers_gram(), 1e-3, random_state=0)
    *_, last = conjugate_gradient(operator, y, krill, 1e-3, max_iter=200, tol=1e-12)
    K, K_MM = dense(operator)
    reference = np.linalg.lstsq(K.T @ K + 1e-3 * n * K_MM, K.T @ y, rcond=1e-14)[0]
    assert_allclose(K @ last.coef(), K @ reference, atol=1e-7)


def test_low_rank_and_zero_kernels():
    X = np.random.default_rng(0).standard_normal((500, 4))
    operator, y = KernelOperator(Linear(), X, X[:40]), X[:, 0] + 0.1
    krill = Krill(operator, operator.centers_gram(), 0.0, random_state=0)
    assert krill.rank == 4
    *_, last = conjugate_gradient(operator, y, krill, 0.0, max_iter=50, tol=1e-12)
    assert_allclose(operator.matmat(last.coef()), X @ np.linalg.lstsq(X, y, rcond=None)[0], atol=1e-8)
    nothing = KernelOperator(Linear(), X, np.zeros((3, 4)))
    assert Krill(nothing, nothing.centers_gram(), 0.0).rank == 0


def test_zero_weights_everywhere_but_one():
    operator, _, _ = make()
    w = np.zeros(N)
    w[7] = 1.0
    krill = Krill(operator, operator.centers_gram(), 1e-6, weight=w, random_state=0)
    assert condition(operator, krill, 1e-6, w) < 60


def test_refuses():
    operator, _, _ = make()
    with pytest.raises(ValueError, match="60 centers"):
        Krill(operator, np.eye(3, order="F"), 1e-3)
    with pytest.raises(ValueError, match=r"oversampling=0\.5"):
        Krill(operator, operator.centers_gram(), 1e-3, oversampling=0.5)
    with pytest.raises(ValueError, match="penalty=-1"):
        Krill(operator, operator.centers_gram(), -1)
