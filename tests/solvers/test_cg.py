"""Conjugate gradient against float64 dense solves of (K'WK + lambda n K_MM) alpha = K'W y."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from gyrfalcon.preconditioners import Identity, Preconditioner
from gyrfalcon.solvers import conjugate_gradient
from gyrfalcon.solvers.lanczos import condition_number, lanczos, ritz_values


class DenseOperator:
    """K in memory, with the contract of KernelOperator."""

    def __init__(self, K):
        self.K, self.shape, self.dtype, self.passes, self.columns = K, K.shape, K.dtype, 0, []

    def rmatmat(self, U):
        self.passes += 1
        return self._times_transpose(U)

    def sandwich(self, V, weight=None):
        self.passes += 1
        self.columns.append(V.shape[1])
        T = self.K @ V.astype(self.dtype)
        if callable(weight):
            T = weight(slice(0, self.shape[0]), T)
        elif weight is not None:
            T = weight[:, None] * T
        return self._times_transpose(T)

    def _times_transpose(self, U):
        blocks = range(0, self.shape[0], 1000)
        return sum((self.K[i : i + 1000].T @ U[i : i + 1000].astype(self.dtype)).astype(np.float64) for i in blocks)


class Problem:
    def __init__(self, K, K_MM, Y, penalty, weight=None):
        self.K, self.K_MM, self.Y, self.penalty, self.weight = K, K_MM, Y, penalty, weight
        self.n, self.M = K.shape

    def dense(self):
        WK = self.K if self.weight is None else self.weight[:, None] * self.K
        H = self.K.T @ WK + self.penalty * self.n * self.K_MM
        return np.linalg.lstsq(H, WK.T @ self.Y, rcond=1e-13)[0]

    def preconditioner(self, dtype=np.float64, **options):
        gram = np.array(self.K_MM, dtype=dtype, order="F")
        return Preconditioner(gram, self.penalty, self.n, **options)

    def operator(self, dtype=np.float64):
        return DenseOperator(self.K.astype(dtype))

    def solve(self, dtype=np.float64, *, max_iter=200, tol=1e-13, start=None, **options):
        P, K = self.preconditioner(dtype, **options), self.operator(dtype)
        return list(
            conjugate_gradient(K, self.Y, P, self.penalty, max_iter=max_iter, tol=tol, weight=self.weight, start=start)
        )


def gaussian(X, Z, length_scale=1.0):
    distance = np.square(X).sum(1)[:, None] + np.square(Z).sum(1) - 2 * X @ Z.T
    return np.exp(-np.maximum(distance, 0) / (2 * length_scale**2))


def make_problem(n=2000, M=60, penalty=1e-4, length_scale=1.0, columns=2, weighted=False):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 3))
    Z = X[:M]
    Y = np.stack([np.sin((j + 1) * X[:, 0]) + X[:, j % 3] for j in range(columns)], axis=1)
    weight = rng.uniform(0.0, 2.0, n) if weighted else None
    return Problem(gaussian(X, Z, length_scale), gaussian(Z, Z, length_scale), Y, penalty, weight)


def relative(a, b):
    return np.linalg.norm(a - b) / np.linalg.norm(b)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("sampled", [False, True])
@pytest.mark.parametrize("penalty", [1e-2, 1e-5, 0.0])
def test_float64_is_the_dense_solution(weighted, sampled, penalty):
    problem = make_problem(penalty=penalty, weighted=weighted)
    options = {"D": np.random.default_rng(1).uniform(0.5, 2.0, 60)} if sampled else {}
    if weighted:
        options["center_weight"] = problem.weight[:60]
    last = problem.solve(**options)[-1]
    reference = problem.dense()
    assert last.converged
    assert relative(last.coef(), reference) < 1e-7
    assert relative(problem.K @ last.coef(), problem.K @ reference) < 1e-8


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("penalty", [1e-2, 1e-5, 0.0])
@pytest.mark.parametrize("factors", [np.float32, np.float64])
def test_float32_is_close_to_the_dense_solution(weighted, penalty, factors):
    problem = make_problem(penalty=penalty, weighted=weighted)
    P = problem.preconditioner(factors, tile_dtype=np.float32)
    K = problem.operator(np.float32)
    options = {"max_iter": 100, "tol": 1e-6, "weight": problem.weight}
    *_, last = conjugate_gradient(K, problem.Y, P, penalty, **options)
    assert relative(problem.K @ last.coef(), problem.K @ problem.dense()) < 2e-5


def test_jitter_leaves_no_trace_in_the_solution():
    problem = make_problem(M=40)
    smallest = np.linalg.eigvalsh(problem.K_MM)[0]
    last = problem.solve(jitter=smallest / 2)[-1]
    assert relative(last.coef(), problem.dense()) < 1e-8


def test_preconditioner_of_another_penalty_solves_the_same_problem():
    problem = make_problem(penalty=1e-4)
    P = Preconditioner(np.asfortranarray(problem.K_MM), 1e-1, problem.n)
    *_, last = conjugate_gradient(problem.operator(), problem.Y, P, 1e-4, max_iter=200, tol=1e-13)
    assert relative(last.coef(), problem.dense()) < 1e-7


def test_ill_conditioned_problem_needs_few_passes():
    """lambda far below what 300 centers resolve: the paper's own choice of A takes more than twice as many."""
    problem = make_problem(n=4000, M=300, penalty=1e-9, length_scale=1.0, columns=1)
    problem.Y += 0.01 * np.random.default_rng(1).standard_normal(problem.Y.shape)

    def passes(preconditioner):
        for iterate in conjugate_gradient(problem.operator(), problem.Y, preconditioner, 1e-9, max_iter=150, tol=0):
            if relative(problem.K @ iterate.coef(), problem.Y) < 0.05:
                return iterate.passes
        return 200

    ours, plain = problem.preconditioner(), problem.preconditioner()
    plain._least_ridge = 0.0
    plain.update(1e-9)
    assert passes(ours) <= 20
    assert passes(plain) > 2 * passes(ours)


def test_t_iterations_cost_t_plus_one_passes():
    problem = make_problem()
    K, P = problem.operator(), problem.preconditioner()
    for start in (None, np.ones((60, 2))):
        before = K.passes
        for t, iterate in enumerate(
            conjugate_gradient(K, problem.Y, P, 1e-4, max_iter=40, tol=0, start=start), start=1
        ):
            assert iterate.iteration == t
            assert iterate.passes == K.passes - before == t + 1


def test_is_lazy():
    problem = make_problem()
    K, P = problem.operator(), problem.preconditioner()
    iterates = conjugate_gradient(K, problem.Y, P, 1e-4, max_iter=40, tol=0)
    assert K.passes == 0
    next(iterates)
    assert K.passes == 2
    iterates.close()


def test_an_iterate_keeps_its_coefficients():
    problem = make_problem()
    iterates = problem.solve(max_iter=10, tol=0)
    for t in (1, 4):
        assert_allclose(iterates[t - 1].coef(), problem.solve(max_iter=t, tol=0)[-1].coef(), rtol=1e-12)


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-8), (np.float32, 1e-4)])
def test_residual_is_true(dtype, tolerance):
    """What is reported, after many steps, is the residual of the coefficients that are returned."""
    problem = make_problem(penalty=1e-3)
    last = problem.solve(dtype, tol=1e-5)[-1]
    P = problem.preconditioner(dtype)
    b = P.apply_transpose(problem.K.T @ problem.Y)
    H = problem.K.T @ problem.K + 1e-3 * problem.n * problem.K_MM
    r = b - P.apply_transpose(H @ last.coef())
    true = np.linalg.norm(r, axis=0) / np.linalg.norm(b, axis=0)
    assert last.converged
    assert_allclose(last.residuals, true, atol=tolerance)
    assert last.residual == last.residuals.max() <= 1e-5


def test_residual_is_computed_anew_within_a_pass():
    problem = make_problem()
    K, P = problem.operator(np.float32), problem.preconditioner(np.float32)
    *_, last = conjugate_gradient(K, problem.Y, P, 1e-4, max_iter=60, tol=1e-6)
    assert set(K.columns) == {1, 2, 4} or set(K.columns) == {2, 4}
    assert K.passes == last.iteration + 1


def test_many_columns_are_the_columns_one_by_one():
    problem = make_problem(columns=5)
    together = problem.solve()[-1].coef()
    for j in range(5):
        alone = Problem(problem.K, problem.K_MM, problem.Y[:, j], 1e-4).solve()[-1].coef()
        assert alone.shape == (60,)
        assert_allclose(together[:, j], alone, rtol=1e-7, atol=1e-9 * np.abs(alone).max())


def test_finished_columns_rest():
    """The second target is the first column of the system's solution path: it is done at once and costs no more."""
    problem = make_problem(columns=1)
    target = problem.Y[:, 0]
    problem.Y = np.stack([target, np.zeros_like(target)], axis=1)
    K, P = problem.operator(), problem.preconditioner()
    iterates = list(conjugate_gradient(K, problem.Y, P, 1e-4, max_iter=60, tol=1e-10))
    assert set(K.columns) <= {1, 2}  # two columns only when the residual of one is computed anew
    assert K.columns[0] == 1
    assert_allclose(iterates[-1].coef()[:, 1], 0.0)
    assert iterates[-1].residuals[1] == 0.0
    assert iterates[0].step[1] == 0.0


def test_zero_right_hand_side():
    problem = make_problem()
    problem.Y = np.zeros((problem.n, 2))
    (only,) = problem.solve()
    assert (only.iteration, only.passes, only.residual, only.converged) == (0, 1, 0.0, True)
    assert_allclose(only.coef(), np.zeros((60, 2)))


def test_max_iter_zero_gives_the_start():
    problem = make_problem()
    start = np.random.default_rng(0).standard_normal((60, 2))
    (only,) = problem.solve(max_iter=0, start=start)
    assert not only.converged
    assert_allclose(only.coef(), start, rtol=1e-8)


@pytest.mark.parametrize("center_count", [1, 2])
def test_exact_convergence_ends_without_nan(center_count):
    problem = make_problem(M=center_count, columns=1)
    iterates = problem.solve(max_iter=500, tol=0)
    assert all(np.isfinite(i.residual) and np.isfinite(i.coef()).all() for i in iterates)
    assert relative(iterates[-1].coef(), problem.dense()) < 1e-12


def test_warm_start():
    problem = make_problem()
    reference = problem.dense()
    near = reference * (1 + 1e-6)
    cold, warm = problem.solve(tol=1e-8), problem.solve(tol=1e-8, start=near)
    assert warm[-1].iteration < cold[-1].iteration
    assert warm[0].residual < 1e-5
    assert relative(warm[-1].coef(), reference) < 1e-5
    (done,) = problem.solve(tol=1e-6, start=reference)
    assert done.converged
    assert done.passes == 1
    assert relative(done.coef(), reference) < 1e-9


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("penalty", [1e-4, 0.0])
@pytest.mark.parametrize("kind", ["duplicates", "one duplicate", "linear", "constant", "zero"])
def test_dependent_centers(kind, penalty, dtype):
    problem = make_problem(M=60, penalty=penalty, columns=1)
    n = problem.n
    X = np.random.default_rng(0).standard_normal((n, 3))
    if kind == "duplicates":
        Z = np.tile(X[:20], (3, 1))
        K, K_MM = gaussian(X, Z), gaussian(Z, Z)
    elif kind == "one duplicate":
        Z = np.concatenate([X[:40], X[:1]])
        K, K_MM = gaussian(X, Z), gaussian(Z, Z)
    elif kind == "linear":
        K, K_MM = X @ X[:60].T, X[:60] @ X[:60].T
    else:
        value = 1.0 if kind == "constant" else 0.0
        K, K_MM = np.full((n, 60), value), np.full((60, 60), value)
    problem = Problem(K, K_MM, problem.Y + 1.0, penalty)
    last = problem.solve(dtype, max_iter=100, tol=1e-9 if dtype == np.float64 else 1e-6)[-1]
    predictions = K @ last.coef()
    assert np.isfinite(predictions).all()
    scale = np.linalg.norm(problem.Y)
    assert np.linalg.norm(predictions - K @ problem.dense()) < (1e-6 if dtype == np.float64 else 1e-3) * scale


def test_indefinite_kernel_gives_a_useful_fit():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((2000, 4))
    Z = X[:200]
    Y = np.tanh(X[:, :1] - X[:, 1:2])
    problem = Problem(np.tanh(0.3 * X @ Z.T + 0.1), np.tanh(0.3 * Z @ Z.T + 0.1), Y, 1e-6)
    iterates = problem.solve(max_iter=50, tol=1e-8)
    assert all(np.isfinite(i.residual) for i in iterates)
    assert relative(problem.K @ iterates[-1].coef(), Y) < 0.1


def test_steps_and_ratios_are_the_lanczos_matrix():
    """CG's numbers tell the extreme eigenvalues of the preconditioned system."""
    problem = make_problem(M=30, columns=1)
    iterates = problem.solve(max_iter=30, tol=1e-7)
    steps = np.array([i.step[0] for i in iterates])
    ratios = np.array([i.ratio[0] for i in iterates])
    diagonal = 1 / steps + np.concatenate([[0.0], ratios[:-1] / steps[:-1]])
    beside = np.sqrt(ratios[:-1]) / steps[:-1]
    ritz = np.linalg.eigvalsh(np.diag(diagonal) + np.diag(beside, 1) + np.diag(beside, -1))
    B = problem.preconditioner().apply(np.eye(30))
    eigenvalues = np.linalg.eigvalsh(B.T @ (problem.K.T @ problem.K + 1e-4 * problem.n * problem.K_MM) @ B)
    assert_allclose(ritz[-1], eigenvalues[-1], rtol=1e-3)
    assert_allclose(ritz[0], eigenvalues[0], rtol=0.1)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("columns", [1, 4])
@pytest.mark.parametrize("penalty", [1e-2, 1e-4, 1e-7])
def test_condition_number_is_that_of_the_dense_preconditioned_matrix(penalty, columns, dtype):
    problem = make_problem(M=30, columns=columns, penalty=penalty)
    iterates = problem.solve(dtype, max_iter=40, tol=1e-9 if dtype == np.float64 else 1e-6)
    B = problem.preconditioner(dtype).apply(np.eye(30))
    eigenvalues = np.linalg.eigvalsh(B.T @ (problem.K.T @ problem.K + penalty * problem.n * problem.K_MM) @ B)
    true = eigenvalues[-1] / eigenvalues[0]
    estimates = [i.condition_number for i in iterates]
    assert_allclose(estimates[-1], true, rtol=0.1)
    assert estimates[0] == 1.0
    assert np.all(np.diff(estimates) >= -1e-6 * true)
    # a column counts until the residual that CG follows is off by 1%, and so is the Lanczos matrix then
    assert max(estimates) < (1.001 if dtype == np.float64 else 1.02) * true


class NoisyOperator(DenseOperator):
    """A DenseOperator whose products are off by 1e-4, as by rounding."""

    noise = 1e-4

    def _times_transpose(self, U):
        product = super()._times_transpose(U)
        return product * (1 + self.noise * np.random.default_rng(self.passes).standard_normal(product.shape))


@pytest.mark.parametrize("penalty", [1e-2, 1e-5])
def test_condition_number_after_the_residual_has_drifted(penalty):
    """Past the point where the residual is rounding, CG's numbers make up no Lanczos matrix."""
    problem = make_problem(M=30, penalty=penalty)
    P, K = problem.preconditioner(np.float32), NoisyOperator(problem.K.astype(np.float32))
    estimates = [i.condition_number for i in conjugate_gradient(K, problem.Y, P, penalty, max_iter=60, tol=1e-7)]
    B = P.apply(np.eye(30))
    eigenvalues = np.linalg.eigvalsh(B.T @ (problem.K.T @ problem.K + penalty * problem.n * problem.K_MM) @ B)
    true = eigenvalues[-1] / eigenvalues[0]
    assert 0.5 * true < estimates[-1] < 1.05 * true


def test_condition_number_where_there_is_none():
    problem = make_problem()
    problem.Y = np.zeros((problem.n, 2))
    (only,) = problem.solve()
    assert only.condition_number == 1.0
    # a column that rests from the start says nothing, one that came to rest says what it had seen
    one = [np.array([0.5]), np.array([0.25])], [np.array([0.5]), np.array([0.1])]
    two = [np.array([0.5, 0.0]), np.array([0.25, 0.0])], [np.array([0.5, 0.0]), np.array([0.1, 0.0])]
    rested = [*one[0], np.zeros(1)], [*one[1], np.zeros(1)]
    T = np.array([[2.0, np.sqrt(0.5) / 0.5], [np.sqrt(0.5) / 0.5, 4.0 + 0.5 / 0.5]])
    assert_allclose(ritz_values(*one), np.linalg.eigvalsh(T)[:, None])
    assert_allclose(condition_number(*ritz_values(*one)), np.linalg.cond(T))
    assert len({condition_number(*ritz_values(*those)) for those in (one, two, rested)}) == 1
    assert condition_number(np.array([-1e-9, 1.0]), np.ones(2)) == np.inf


@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("mean", [0.0, 100.0])
@pytest.mark.parametrize("penalty", [1e-3, 1e-6])
def test_error_of_the_fitted_values_is_known(penalty, mean, plain):
    """Not much below the distance to the solution, from the second iteration on, and mostly not much above it."""
    problem = make_problem(M=100, penalty=penalty, columns=2)
    problem.Y += mean
    fitted = problem.K @ problem.dense()
    ratios = []
    B = Identity(problem.K_MM, problem.n) if plain else problem.preconditioner()
    iterates = conjugate_gradient(problem.operator(), problem.Y, B, penalty, max_iter=60, tol=1e-5)
    for iterate in list(iterates)[1:]:
        true = np.sqrt(np.square(problem.K @ iterate.coef() - fitted).mean(axis=0))
        ratios.append(iterate.error / true)
    assert len(ratios) > 5
    assert np.min(ratios) > 0.1
    assert np.median(ratios) > 0.25
    assert np.median(ratios) < 4


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("plain", [False, True])
def test_signal_is_the_size_of_the_fitted_values(weighted, plain):
    """It follows from the residual without a pass; a mean that y has does not count."""
    problem = make_problem(penalty=1e-2, weighted=weighted)
    problem.Y[:, 1] += 100
    w = np.ones(problem.n) if problem.weight is None else problem.weight
    B = Identity(problem.K_MM, problem.n) if plain else problem.preconditioner()
    start = np.zeros((problem.M, 2))
    spread = np.sqrt(np.average((problem.Y - np.average(problem.Y, weights=w, axis=0)) ** 2, weights=w, axis=0))
    for begin in (None, start + 0.1):
        for iterate in conjugate_gradient(
            problem.operator(), problem.Y, B, problem.penalty, max_iter=6, tol=0, weight=problem.weight, start=begin
        ):
            fitted = np.sqrt((w[:, None] * np.square(problem.K @ iterate.coef())).mean(axis=0))
            assert_allclose(iterate.signal, np.minimum(np.hypot(fitted, iterate.error), spread), rtol=1e-6)


def test_lanczos_finds_extreme_eigenvalues():
    matrix = np.diag(np.arange(1.0, 31.0))
    assert_allclose(lanczos(lambda v: matrix @ v, 30, 30), (1.0, 30.0))
    assert_allclose(lanczos(lambda v: 3 * v, 30, 10), (3.0, 3.0))
    assert lanczos(lambda v: v, 0, 10) == (0.0, 0.0)
    low, high = lanczos(lambda v: matrix @ v, 30, 8)
    assert 1.0 <= low < 3.0
    assert 28.0 < high <= 30.0


def test_refuses_a_right_hand_side_that_is_not_finite():
    problem = make_problem()
    problem.Y[3, 0] = np.inf
    with np.errstate(invalid="ignore"), pytest.raises(ValueError, match="not finite"):
        problem.solve()


def test_refuses_a_preconditioner_of_another_shape():
    problem = make_problem()
    P = Preconditioner(np.asfortranarray(problem.K_MM), 1e-4, 7)
    with pytest.raises(ValueError, match="made for"):
        next(conjugate_gradient(problem.operator(), problem.Y, P, 1e-4, max_iter=3, tol=0))
