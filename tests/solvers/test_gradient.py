"""Gradient descent, its stochastic form and kernel descent against the textbook recursions in dense float64."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from gyrfalcon import KernelOperator
from gyrfalcon.kernels import Gaussian
from gyrfalcon.preconditioners import Identity, Preconditioner, Whitening
from gyrfalcon.solvers import (
    conjugate_gradient,
    gradient_descent,
    kernel_descent,
    largest_eigenvalue,
    stochastic_gradient,
)

N, M = 400, 20


def make(n=N, m=M, columns=2, dtype=np.float64, length_scale=0.7):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 2)).astype(dtype)
    Y = np.stack([np.sin((j + 1) * X[:, 0]) + X[:, 1] for j in range(columns)], axis=1)
    return KernelOperator(Gaussian(length_scale), X, X[:m], n_jobs=1), Y, rng.uniform(0.0, 2.0, n)


def dense(operator):
    return operator.matmat(np.eye(operator.shape[1])), operator.centers_gram()


def coordinates_of(kind, operator):
    n, gram = operator.shape[0], operator.centers_gram(np.float64)
    return {
        "identity": lambda: Identity(gram, n),
        "whitening": lambda: Whitening(gram, n),
        "falkon": lambda: Preconditioner(gram, 1e-3, n),
    }[kind]()


def relative(a, b):
    return np.linalg.norm(a - b) / np.linalg.norm(b)


KINDS = ["identity", "whitening", "falkon"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("penalty", [0.0, 1e-2])
@pytest.mark.parametrize("started", [False, True])
def test_gradient_descent_is_the_textbook_recursion(kind, weighted, penalty, started):
    operator, Y, w = make()
    coordinates = coordinates_of(kind, operator)
    K, K_MM = dense(operator)
    w = w if weighted else np.ones(N)
    B = coordinates.apply(np.eye(M))
    H = B.T @ (K.T @ (w[:, None] * K) + penalty * N * K_MM) @ B
    b = B.T @ K.T @ (w[:, None] * Y)
    start = np.random.default_rng(1).standard_normal((M, 2)) if started else None
    beta = np.linalg.solve(B, start) if started else np.zeros((M, 2))
    step = 1 / np.linalg.eigvalsh(H)[-1]
    iterates = list(
        gradient_descent(
            operator, Y, coordinates, penalty, step=step, max_iter=30, weight=w if weighted else None, start=start
        )
    )
    assert len(iterates) == 30
    for t, iterate in enumerate(iterates, start=1):
        residual = np.linalg.norm(b - H @ beta, axis=0) / np.linalg.norm(b, axis=0)
        assert_allclose(iterate.residuals, residual, rtol=1e-6)
        beta = beta - step * (H @ beta - b)
        assert iterate.iteration == iterate.passes == t
        assert relative(iterate.coef(), B @ beta) < 1e-8
        assert np.isnan(iterate.condition_number)


def test_nytro():
    """beta_t = beta_{t-1} - (gamma/n) R'K'(K R beta_{t-1} - y), R R' = K_MM^-1, gamma = 1/max k(x, x)."""
    operator, Y, _ = make(columns=1)
    y = Y[:, 0]
    K, K_MM = dense(operator)
    R = np.linalg.inv(np.linalg.cholesky(K_MM)).T
    beta = np.zeros(M)
    for iterate in gradient_descent(operator, y, coordinates_of("whitening", operator), 0.0, step=1.0, max_iter=40):
        beta = beta - R.T @ K.T @ (K @ R @ beta - y) / N
        assert iterate.coef().shape == (M,)
        assert relative(K @ iterate.coef(), K @ R @ beta) < 1e-9


@pytest.mark.parametrize("kind", KINDS)
def test_automatic_step_converges(kind):
    operator, Y, w = make(m=8, length_scale=0.3)
    K, K_MM = dense(operator)
    H = K.T @ (w[:, None] * K) + 0.1 * N * K_MM
    *_, last = gradient_descent(
        operator, Y, coordinates_of(kind, operator), 0.1, step="auto", max_iter=3000, tol=1e-10, weight=w
    )
    assert last.converged
    assert relative(last.coef(), np.linalg.solve(H, K.T @ (w[:, None] * Y))) < 1e-8


@pytest.mark.parametrize("kind", KINDS)
def test_largest_eigenvalue(kind):
    operator, _, w = make()
    coordinates = coordinates_of(kind, operator)
    K, K_MM = dense(operator)
    B = coordinates.apply(np.eye(M))
    true = np.linalg.eigvalsh(B.T @ (K.T @ (w[:, None] * K) + 0.01 * N * K_MM) @ B)[-1]
    before = operator.passes
    estimate = largest_eigenvalue(operator, coordinates, 0.01, w)
    assert 0.97 * true < estimate < 1.000001 * true
    assert operator.passes - before <= 10


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("factor", [2.5, 1e3, 1e30])
@pytest.mark.parametrize("kind", ["identity", "whitening"])
def test_a_step_too_long_is_an_error_that_names_a_good_one(kind, factor, dtype):
    operator, Y, _ = make(dtype=dtype)
    coordinates = coordinates_of(kind, operator)
    largest = largest_eigenvalue(operator, coordinates, 0.0)
    with pytest.raises(FloatingPointError, match=r"diverges with step=.*largest stable step is about") as caught:
        list(gradient_descent(operator, Y, coordinates, 0.0, step=factor / largest, max_iter=500))
    named = float(str(caught.value).split("about ")[1].split(":")[0])
    assert_allclose(named, 2 / largest, rtol=0.05)
    *_, last = gradient_descent(operator, Y, coordinates, 0.0, step=0.95 * named, max_iter=300)
    assert last.residual < 0.1


@pytest.mark.parametrize("step", [0.0, -1.0, np.nan, np.inf, "long"])
def test_bad_steps(step):
    operator, Y, _ = make()
    coordinates = coordinates_of("identity", operator)
    with pytest.raises(ValueError, match="step="):
        next(gradient_descent(operator, Y, coordinates, 0.0, step=step, max_iter=5))


def test_nothing_to_do():
    operator, Y, _ = make()
    coordinates = coordinates_of("whitening", operator)
    (only,) = gradient_descent(operator, 0 * Y, coordinates, 0.0, step=1.0, max_iter=5)
    assert (only.iteration, only.residual, only.converged) == (0, 0.0, True)
    (only,) = gradient_descent(operator, Y, coordinates, 0.0, step=1.0, max_iter=0)
    assert (only.iteration, only.converged) == (0, False)
    assert_allclose(only.coef(), np.zeros((M, 2)))


def test_one_row_and_one_center():
    operator = KernelOperator(Gaussian(1.0), np.zeros((1, 1)), np.zeros((1, 1)))
    coordinates = Whitening(operator.centers_gram(), 1)
    *_, last = gradient_descent(operator, np.array([3.0]), coordinates, 0.0, step=0.5, max_iter=60, tol=1e-12)
    assert_allclose(last.coef(), [3.0])


@pytest.mark.parametrize("kind", ["identity", "whitening"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("batch_size", [37, 400, 1000])
def test_stochastic_gradient_is_the_naive_loop(kind, weighted, batch_size):
    operator, Y, w = make()
    coordinates = coordinates_of(kind, operator)
    K, K_MM = dense(operator)
    w = w if weighted else np.ones(N)
    B = coordinates.apply(np.eye(M))
    beta, rng, penalty, step = np.zeros((M, 2)), np.random.RandomState(7), 1e-2, 0.05
    options = {"step": step, "batch_size": batch_size, "max_iter": 4, "random_state": 7}
    iterates = list(stochastic_gradient(operator, Y, coordinates, penalty, weight=w if weighted else None, **options))
    assert [i.iteration for i in iterates] == [i.passes for i in iterates] == [1, 2, 3, 4]
    b = B.T @ K.T @ (w[:, None] * Y)
    for iterate in iterates:
        order, gradients = rng.permutation(N), []
        for i in range(0, N, batch_size):
            at = order[i : i + batch_size]
            r = w[at, None] * (K[at] @ B @ beta - Y[at])
            gradients.append(N / len(at) * B.T @ K[at].T @ r + penalty * N * B.T @ K_MM @ B @ beta)
            beta = beta - step * gradients[-1]
        assert relative(iterate.coef(), B @ beta) < 1e-9
        mean = np.linalg.norm(np.mean(gradients, axis=0), axis=0) / np.linalg.norm(b, axis=0)
        assert_allclose(iterate.residuals, mean, rtol=1e-6)


def test_stochastic_gradient_nears_the_solution_and_is_seeded():
    operator, Y, _ = make()
    coordinates = coordinates_of("whitening", operator)
    K, K_MM = dense(operator)
    reference = np.linalg.solve(K.T @ K + 0.01 * N * K_MM, K.T @ Y)
    options = {"step": "auto", "batch_size": 50, "max_iter": 60}
    runs = [
        list(stochastic_gradient(operator, Y, coordinates, 0.01, random_state=seed, **options))[-1].coef()
        for seed in (0, np.random.RandomState(0), np.random.default_rng(0))
    ]
    assert np.array_equal(runs[0], runs[1])
    assert not np.array_equal(runs[0], runs[2])
    for coef in runs:
        assert relative(K @ coef, K @ reference) < 0.05


@pytest.mark.parametrize("step", [50.0, 1e20])
def test_stochastic_gradient_that_diverges(step):
    operator, Y, _ = make(dtype=np.float32)
    coordinates = coordinates_of("whitening", operator)
    with pytest.raises(FloatingPointError, match="largest stable step is about"):
        list(stochastic_gradient(operator, Y, coordinates, 0.0, step=step, batch_size=50, max_iter=30))
    with pytest.raises(ValueError, match="batch_size=0"):
        next(stochastic_gradient(operator, Y, coordinates, 0.0, step=1.0, batch_size=0, max_iter=30))


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("started", [False, True])
def test_kernel_descent_is_the_textbook_recursion(weighted, started):
    operator, Y, w = make(n=100, m=100)
    K, _ = dense(operator)
    w = w[:100] if weighted else np.ones(100)
    w[3] = 0.0
    start = np.random.default_rng(1).standard_normal((100, 2)) if started else None
    alpha = start if started else np.zeros((100, 2))
    before = operator.passes
    for iterate in kernel_descent(operator, Y, step=0.8, max_iter=25, weight=w, start=start):
        alpha = alpha - 0.8 / 100 * w[:, None] * (K @ alpha - Y)
        assert relative(iterate.coef(), alpha) < 1e-12
        assert iterate.passes == operator.passes - before == iterate.iteration - (not started)
    with pytest.raises(FloatingPointError, match="diverges with step=99"):
        list(kernel_descent(operator, Y, step=99.0, max_iter=500))


def test_kernel_descent_goes_to_the_interpolant():
    operator, Y, _ = make(n=30, m=30, length_scale=0.1)
    *_, last = kernel_descent(operator, Y[:, 0], step="auto", max_iter=5000, tol=1e-9)
    assert last.converged
    assert_allclose(dense(operator)[0] @ last.coef(), Y[:, 0], atol=1e-7)
    oblong, Y, _ = make()
    with pytest.raises(ValueError, match="every row as a center"):
        next(kernel_descent(oblong, Y, step=1.0, max_iter=5))


def test_conjugate_gradient_takes_any_coordinates():
    operator, Y, w = make()
    K, K_MM = dense(operator)
    reference = np.linalg.solve(K.T @ (w[:, None] * K) + 1e-3 * N * K_MM, K.T @ (w[:, None] * Y))
    for kind in KINDS:
        *_, last = conjugate_gradient(
            operator, Y, coordinates_of(kind, operator), 1e-3, max_iter=200, tol=1e-12, weight=w
        )
        assert last.converged
        assert relative(last.coef(), reference) < 1e-7
