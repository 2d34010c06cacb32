"""EigenPro against its textbook recursion and against the interpolant, in dense float64."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from gyrfalcon import KernelOperator
from gyrfalcon.kernels import Gaussian, Laplacian, Linear
from gyrfalcon.solvers.eigenpro import eigenpro, top_eigensystem


def make(n=300, kernel=None, columns=2, dtype=np.float64, d=3):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d)).astype(dtype)
    Y = np.stack([np.sin((j + 1) * X[:, 0]) + 0.1 * rng.standard_normal(n) for j in range(columns)], axis=1)
    return KernelOperator(kernel or Laplacian(2.0), X, X, memory_budget=0), Y


def preconditioner(K, indices, q):
    """V of the module's text, and k_P's matrix, straight from the definitions."""
    sigma, U = np.linalg.eigh(K[np.ix_(indices, indices)])
    sigma, U = sigma[::-1], U[:, ::-1]
    E = K[:, indices] @ U[:, :q] / np.sqrt(sigma[:q])  # e_i at all rows
    K_P = K - E @ np.diag(1 - sigma[q] / sigma[:q]) @ E.T
    return U[:, :q] @ np.diag((1 - sigma[q] / sigma[:q]) / sigma[:q]) @ U[:, :q].T, K_P


def naive(K, Y, V, indices, step, m, orders):
    """The recursion, as the paper has it; yields the coefficients and the residual an epoch."""
    alpha = np.zeros_like(Y)
    for order in orders:
        met = 0.0
        for i in range(0, len(Y), m):
            batch = order[i : i + m]
            r = Y[batch] - K[batch] @ alpha
            met = met + np.square(r).sum(axis=0)
            alpha[batch] += step / m * r
            alpha[indices] -= step / m * V @ K[np.ix_(indices, batch)] @ r
        yield alpha.copy(), np.sqrt(met) / np.linalg.norm(Y, axis=0)


@pytest.mark.parametrize(("s", "q", "m"), [(300, 12, 32), (120, 12, 32), (120, 12, 300), (120, 0, 7), (60, 59, 50)])
def test_every_epoch_is_the_textbook_recursion(s, q, m):
    operator, Y = make()
    K = operator.centers_gram()
    system = top_eigensystem(operator, n_subsamples=s, n_components=q, random_state=1)
    assert (system.n_components, len(system.indices)) == (q, s)
    V, _ = preconditioner(K, system.indices, q)
    step = system.step(m)
    rng = np.random.RandomState(5)
    orders = [rng.permutation(len(Y)) for _ in range(6)]
    iterates = list(eigenpro(operator, Y, system, batch_size=m, max_iter=6, random_state=5))
    for t, (iterate, (alpha, residuals)) in enumerate(
        zip(iterates, naive(K, Y, V, system.indices, step, m, orders), strict=True), start=1
    ):
        assert iterate.iteration == iterate.passes == t
        assert_allclose(iterate.coef(), alpha, rtol=1e-9, atol=1e-9 * np.abs(alpha).max())
        assert_allclose(iterate.residuals, residuals, rtol=1e-9)
        assert_array_equal(iterate.step, [step, step])


@pytest.mark.parametrize("columns", [1, 3])
@pytest.mark.parametrize("kernel", [Laplacian(0.7), Gaussian(0.25)], ids=["laplacian", "gaussian"])
def test_converges_to_the_interpolant(kernel, columns):
    operator, Y = make(80, kernel, columns)
    system = top_eigensystem(operator, n_subsamples=40, random_state=0)
    *_, last = eigenpro(operator, Y, system, max_iter=1_000, tol=1e-10, random_state=0)
    assert last.converged
    exact = np.linalg.solve(operator.centers_gram(), Y)
    assert_allclose(last.coef(), exact, rtol=1e-7, atol=1e-7 * np.abs(exact).max())


@pytest.mark.parametrize("m", [1, 5, 40, 119, 120])
@pytest.mark.parametrize("q", [0, 5, 20])
def test_steps_are_safe_for_every_batch_size(q, m):
    """What the automatic step promises: the error falls, whatever the batch, the eigenvectors and the subsample."""
    operator, Y = make(120, Gaussian(1.0), columns=1)
    system = top_eigensystem(operator, n_subsamples=40, n_components=q, random_state=3)
    iterates = list(eigenpro(operator, Y, system, batch_size=m, max_iter=6, random_state=0))
    residuals = [iterate.residual for iterate in iterates]
    assert residuals[-1] < 0.9 * residuals[0]
    assert max(residuals) < 1.5


def test_beta_and_largest_are_those_of_the_kernel_that_p_leaves():
    operator, _ = make(400, Gaussian(1.0))
    K = operator.centers_gram()
    for s, tolerance in [(400, 1e-9), (200, 0.35)]:
        system = top_eigensystem(operator, n_subsamples=s, n_components=20, random_state=0)
        _, K_P = preconditioner(K, system.indices, 20)
        assert_allclose(system.beta, K_P.diagonal().max(), rtol=1e-9)
        largest = np.linalg.eigvalsh(K_P)[-1] / 400
        assert_allclose(system.largest, largest, rtol=tolerance)
        # not below it by more than what a step of half the stable length forgives
        assert system.largest > 0.8 * largest
        m = system.batch_size
        assert m == int(system.beta / system.largest)
        # the paper's step, but for what drawing without replacement gains
        assert m / (system.beta + (m - 1) * system.largest) <= system.step(m) <= 1 / system.largest


def test_more_eigenvectors_allow_larger_batches():
    operator, _ = make(500, Gaussian(1.5))
    sizes = [
        top_eigensystem(operator, n_subsamples=500, n_components=q, random_state=0).batch_size for q in (0, 5, 20, 60)
    ]
    assert sizes == sorted(sizes)
    assert sizes[0] <= 5
    assert sizes[-1] >= 50


def test_as_many_eigenvectors_as_the_batch_needs():
    operator, _ = make(500, Gaussian(1.5))
    few = top_eigensystem(operator, n_subsamples=500, batch_size=10, random_state=0)
    more = top_eigensystem(operator, n_subsamples=500, batch_size=100, random_state=0)
    assert 0 < few.n_components < more.n_components
    assert few.batch_size >= 10
    assert more.batch_size >= 100
    one_less = top_eigensystem(operator, n_subsamples=500, n_components=more.n_components - 1, random_state=0)
    assert one_less.batch_size < 100
    # as asked for, the default is a tenth of the rows
    assert top_eigensystem(operator, n_subsamples=500, random_state=0).batch_size >= 50


def test_float32_comes_as_close_as_it_can():
    operator, Y = make(80, Laplacian(0.7), dtype=np.float32)
    system = top_eigensystem(operator, n_subsamples=40, random_state=0)
    *_, last = eigenpro(operator, Y, system, max_iter=150, random_state=0)
    exact = np.linalg.solve(operator.centers_gram(np.float64), Y)
    assert_allclose(last.coef(), exact, atol=1e-4 * np.abs(exact).max())


def test_low_rank_kernels_use_fewer_eigenvectors():
    operator, _ = make(200, Linear(), d=3)
    Y = operator.centers @ np.array([[1.0], [2.0], [-1.0]])
    system = top_eigensystem(operator, n_subsamples=100, n_components=50, random_state=0)
    assert system.n_components == 2  # the third eigenvalue is what the others are cut down to
    *_, last = eigenpro(operator, Y, system, batch_size=50, max_iter=40, random_state=0)
    assert_allclose(operator.matmat(last.coef()), Y, atol=1e-8)


def test_one_row():
    operator = KernelOperator(Linear(), [[2.0]], [[2.0]])
    system = top_eigensystem(operator, n_subsamples=10)
    assert (system.n_components, system.batch_size) == (0, 1)
    (iterate, _) = eigenpro(operator, np.array([3.0]), system, max_iter=2)
    assert_allclose(iterate.coef(), [0.75])


def test_nothing_to_do():
    operator, Y = make(50)
    system = top_eigensystem(operator, n_subsamples=50)
    (iterate,) = eigenpro(operator, Y[:, 0], system, max_iter=0)
    assert (iterate.iteration, iterate.converged, iterate.residual) == (0, False, 1.0)
    assert_array_equal(iterate.coef(), np.zeros(50))
    (iterate,) = eigenpro(operator, np.zeros(50), system, max_iter=5)
    assert (iterate.iteration, iterate.converged) == (0, True)


def test_kernel_of_zeros():
    operator = KernelOperator(Linear(), np.zeros((20, 2)), np.zeros((20, 2)))
    system = top_eigensystem(operator, n_subsamples=10)
    assert system.step(5) == 0
    *_, last = eigenpro(operator, np.ones(20), system, max_iter=3)
    assert_array_equal(last.coef(), np.zeros(20))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("factor", [3.0, 1e3, 1e12])
def test_a_step_that_is_too_long_is_told(factor, dtype):
    operator, Y = make(300, Gaussian(2.0), dtype=dtype)
    system = top_eigensystem(operator, n_subsamples=300, n_components=10, random_state=0)
    with pytest.raises(FloatingPointError, match=r"diverges with step=.* choose a shorter one, or 'auto'"):
        list(eigenpro(operator, Y, system, step=factor / system.largest, batch_size=300, max_iter=500))


def test_a_kernel_that_is_not_positive_is_told():
    def negative(A, B):
        return -np.exp(-np.square(A[:, None] - B[None]).sum(axis=2))

    X = np.random.default_rng(0).standard_normal((40, 2))
    with pytest.raises(ValueError, match="choose a positive semidefinite kernel"):
        top_eigensystem(KernelOperator(negative, X, X), n_subsamples=40)

    def indefinite(A, B):
        return A @ (np.diag([1.0, -0.9]) @ B.T)

    operator = KernelOperator(indefinite, X, X)
    system = top_eigensystem(operator, n_subsamples=40)
    with pytest.raises(FloatingPointError, match="may not be positive semidefinite"):
        list(eigenpro(operator, X[:, 1], system, max_iter=5_000))


def test_bad_arguments():
    operator, Y = make(30)
    system = top_eigensystem(operator, n_subsamples=30)
    with pytest.raises(ValueError, match="step='long' must be \"auto\" or"):
        list(eigenpro(operator, Y, system, max_iter=1, step="long"))
    with pytest.raises(ValueError, match='step=nan must be "auto" or'):
        list(eigenpro(operator, Y, system, max_iter=1, step=np.nan))
    with pytest.raises(ValueError, match="batch_size=0 must be an integer of at least 1"):
        list(eigenpro(operator, Y, system, max_iter=1, batch_size=0))
    tall = KernelOperator(Gaussian(1.0), operator.centers, operator.centers[:10])
    with pytest.raises(ValueError, match=r"\(30, 10\), but EigenPro needs every row as a center"):
        top_eigensystem(tall, n_subsamples=5)
    with pytest.raises(ValueError, match=r"\(30, 10\), but EigenPro needs every row as a center"):
        list(eigenpro(tall, Y, system, max_iter=1))


@pytest.mark.parametrize("n_components", [1, 2, 5, 120, None])
@pytest.mark.parametrize("n_subsamples", [300, 120])
@pytest.mark.parametrize("n_pairs", [0, 4])
def test_rows_far_apart_leave_nothing_to_precondition(n_components, n_subsamples, n_pairs):
    """K is the identity up to rounding, or nearly: where rows come in pairs, 2 and 0 are eigenvalues as well."""
    X = np.random.default_rng(0).standard_normal((300, 200))
    X[:n_pairs] = X[n_pairs : 2 * n_pairs]
    y = np.sin(X @ np.ones(200))
    operator = KernelOperator(Gaussian(0.5), X, X, memory_budget=0)
    assert np.abs(operator.centers_gram()[2 * n_pairs :, 2 * n_pairs :] - np.eye(300 - 2 * n_pairs)).max() < 1e-100
    system = top_eigensystem(operator, n_subsamples=n_subsamples, n_components=n_components, random_state=0)
    assert np.isfinite(system.damping).all()
    assert (system.damping >= 0).all()
    assert system.beta == pytest.approx(1.0, rel=1e-9)  # of the rows that are alone, which P leaves as they are
    *_, last = eigenpro(operator, y, system, max_iter=60, tol=1e-10, random_state=0)
    assert_allclose(operator.matmat(last.coef()), y, atol=1e-8)
