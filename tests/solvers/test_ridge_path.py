"""Direct solves against dense float64 formulas, and leave-one-out against as many refits as there are rows."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from gyrfalcon import KernelOperator
from gyrfalcon.kernels import Gaussian, Linear
from gyrfalcon.preconditioners import Preconditioner, Whitening
from gyrfalcon.solvers import conjugate_gradient, exact_path, exact_ridge, nystrom_path

PENALTIES = [1e-6, 1e-3, 1.0]


def make(n=150, m=25, columns=2, weighted=False, dtype=np.float64, length_scale=0.5, kernel=None):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 2)).astype(dtype)
    Y = np.stack([np.sin((j + 1) * X[:, 0]) + X[:, 1] for j in range(columns)], axis=1)
    Y = Y + 0.1 * rng.standard_normal(Y.shape)
    w = rng.uniform(0.0, 2.0, n) if weighted else None
    if weighted:
        w[4] = 0.0
    operator = KernelOperator(kernel or Gaussian(length_scale), X, X[:m], n_jobs=1)
    return operator, Y, w


def path_of(operator, Y, w):
    n = operator.shape[0]
    return nystrom_path(operator, Y, Whitening(operator.centers_gram(np.float64), n, tile_dtype=operator.dtype), w)


def dense(operator):
    wide = KernelOperator(operator.kernel, operator.centers.astype(float), operator.centers.astype(float))
    X = operator.rows.take(np.arange(operator.shape[0])).astype(float)
    return wide.on(X).matmat(np.eye(operator.shape[1])), wide.centers_gram()


def dense_solution(K, K_MM, Y, w, mu):
    w = np.ones(len(K)) if w is None else w
    return np.linalg.solve(K.T @ (w[:, None] * K) + mu * K_MM, K.T @ (w[:, None] * Y))


def relative(a, b):
    return np.linalg.norm(a - b) / np.linalg.norm(b)


@pytest.mark.parametrize("weighted", [False, True])
def test_every_penalty_is_the_dense_solution(weighted):
    operator, Y, w = make(weighted=weighted)
    path = path_of(operator, Y, w)
    assert operator.passes == 1
    coef = path.coefficients(PENALTIES)
    assert coef.shape == (25, 2, 3)
    K, K_MM = dense(operator)
    W = np.ones(150) if w is None else w
    for i, penalty in enumerate(PENALTIES):
        mu = 150 * penalty
        reference = dense_solution(K, K_MM, Y, w, mu)
        assert relative(coef[:, :, i], reference) < 1e-7
        assert np.array_equal(path.coefficients(penalty), path.coefficients([penalty])[:, :, 0])
        hat = K @ np.linalg.solve(K.T @ (W[:, None] * K) + mu * K_MM, K.T * W)
        df = np.trace(hat)
        assert_allclose(path.degrees_of_freedom(penalty), df, rtol=1e-8)
        squares = (W[:, None] * (Y - K @ reference) ** 2).mean(axis=0)
        assert_allclose(path.squared_errors(penalty)[0], squares, rtol=1e-8)
        assert_allclose(path.gcv(PENALTIES)[i], squares / (1 - df / 150) ** 2, rtol=1e-8)
    assert operator.passes == 1


@pytest.mark.parametrize("weighted", [False, True])
def test_leave_one_out_is_a_refit_without_the_row(weighted):
    operator, Y, w = make(n=40, m=12, weighted=weighted)
    path = path_of(operator, Y, w)
    K, K_MM = dense(operator)
    W = np.ones(40) if w is None else w
    errors = path.leave_one_out(PENALTIES)
    for i, penalty in enumerate(PENALTIES):
        refits = np.empty_like(Y)
        for row in range(40):
            rest = np.arange(40) != row
            coef = dense_solution(K[rest], K_MM, Y[rest], W[rest], 40 * penalty)
            refits[row] = Y[row] - K[row] @ coef
        weighted_refits = np.sqrt(W)[:, None] * refits
        assert_allclose(path.leave_one_out_residuals(penalty), weighted_refits, rtol=1e-6, atol=1e-8)
        assert_allclose(errors[i], (W[:, None] * refits**2).mean(axis=0), rtol=1e-7)


@pytest.mark.parametrize("weighted", [False, True])
def test_exact_leave_one_out_is_a_refit_without_the_row(weighted):
    operator, Y, w = make(n=40, m=40, weighted=weighted)
    K, _ = dense(operator)
    W = np.ones(40) if w is None else w
    path = exact_path(K.copy(order="F"), Y, w)
    for penalty in PENALTIES[1:]:
        refits = np.empty_like(Y)
        for row in range(40):
            rest = (np.arange(40) != row) & (W > 0)
            alpha = np.linalg.solve(K[np.ix_(rest, rest)] + 40 * penalty * np.diag(1 / W[rest]), Y[rest])
            refits[row] = np.sqrt(W[row]) * (Y[row] - K[row, rest] @ alpha)
        assert_allclose(path.leave_one_out_residuals(penalty), refits, rtol=1e-6, atol=1e-8)
        assert_allclose(path.leave_one_out(penalty)[0], (refits**2).mean(axis=0), rtol=1e-7)


def test_one_target_has_no_second_axis():
    operator, Y, _ = make(columns=1)
    path = path_of(operator, Y[:, 0], None)
    assert path.coefficients(0.1).shape == (25,)
    assert path.coefficients(PENALTIES).shape == (25, 3)
    assert path.leave_one_out_residuals(0.1).shape == (150,)
    assert isinstance(path.degrees_of_freedom(0.1), float)
    assert path.degrees_of_freedom(PENALTIES).shape == (3,)
    assert path.gcv(PENALTIES).shape == path.leave_one_out(PENALTIES).shape == (3, 1)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_is_what_falkon_converges_to_on_an_ill_conditioned_kernel(dtype):
    """K_MM of a wide Gaussian has eigenvalues below any precision: K'K would have their squares."""
    operator, Y, w = make(n=1000, m=100, length_scale=2.0, weighted=True, dtype=dtype)
    gram = operator.centers_gram(np.float64)
    K = operator.matmat(np.eye(100)).astype(float)
    # A larger penalty must not fit better, a smaller one not worse: rounding would break the order first.
    path = path_of(operator, Y, w)
    errors = np.array([(w[:, None] * (Y - K @ path.coefficients(p)) ** 2).mean() for p in np.logspace(-10, 0, 6)])
    assert np.all(np.diff(errors) > -1e-6)
    P = Preconditioner(gram, 1e-5, 1000, tile_dtype=dtype)
    *_, last = conjugate_gradient(operator, Y, P, 1e-5, max_iter=100, tol=1e-12, weight=w)
    tolerance = 1e-3 if dtype == np.float32 else 1e-6
    assert relative(K @ path.coefficients(1e-5), K @ last.coef()) < tolerance


def test_penalty_zero_is_least_squares():
    operator, Y, _ = make()
    K, _ = dense(operator)
    coef = path_of(operator, Y, None).coefficients(0.0)
    assert relative(K @ coef, K @ np.linalg.lstsq(K, Y, rcond=None)[0]) < 1e-8


@pytest.mark.parametrize("penalty", [0.0, 1e-3])
def test_dependent_centers(penalty):
    operator, Y, w = make(kernel=Linear(), weighted=True)
    path = path_of(operator, Y, w)
    assert path.eigenvalues.shape == (2,)
    X = operator.rows.X
    theta = np.linalg.solve(X.T @ (w[:, None] * X) + 150 * penalty * np.eye(2), X.T @ (w[:, None] * Y))
    assert_allclose(X @ X[:25].T @ path.coefficients(penalty), X @ theta, rtol=1e-8)


def test_more_centers_than_rows_interpolate():
    X = np.random.default_rng(0).standard_normal((10, 2))
    centers = np.concatenate([X, X + 0.3])
    operator = KernelOperator(Gaussian(0.5), X, centers)
    y = np.sin(X[:, 0])
    path = path_of(operator, y, None)
    assert_allclose(operator.matmat(path.coefficients(0.0)), y, atol=1e-8)
    assert_allclose(path.degrees_of_freedom(0.0), 10.0)
    assert np.isinf(path.gcv(0.0)).all()
    assert np.isinf(path.leave_one_out(0.0)).all()
    assert np.isfinite(path.leave_one_out(1e-2)).all()


def test_no_rank_at_all():
    operator = KernelOperator(Linear(), np.zeros((5, 2)), np.zeros((3, 2)))
    path = path_of(operator, np.ones(5), None)
    assert_allclose(path.coefficients([0.0, 1.0]), np.zeros((3, 2)))
    assert path.degrees_of_freedom(0.0) == 0.0
    assert_allclose(path.leave_one_out(1.0), [[1.0]])


def test_one_row():
    operator = KernelOperator(Gaussian(1.0), np.zeros((1, 1)), np.zeros((1, 1)))
    assert_allclose(path_of(operator, np.array([3.0]), None).coefficients(0.5), [2.0])


def test_refuses_what_does_not_fit():
    operator, Y, _ = make()
    with pytest.raises(ValueError, match="made for"):
        nystrom_path(operator, Y, Whitening(operator.centers_gram(), 7))
    with pytest.raises(ValueError, match="float64"):
        nystrom_path(operator, Y, Whitening(operator.centers_gram(np.float32), 150))
    path = path_of(operator, Y, None)
    for bad in (-1.0, [1.0, np.nan], np.inf):
        with pytest.raises(ValueError, match="penalties"):
            path.coefficients(bad)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("columns", [None, 2])
def test_exact_ridge(weighted, columns):
    operator, Y, w = make(m=150, weighted=weighted)
    K, _ = dense(operator)
    Y = Y[:, 0] if columns is None else Y
    before = K.copy()
    alpha = exact_ridge(K, Y, 1e-2, w)
    assert np.array_equal(K, before)
    assert alpha.shape == Y.shape
    W = np.ones(150) if w is None else w
    reference = np.linalg.solve(W[:, None] * K + 1.5 * np.eye(150), (W * Y.T).T)
    assert relative(alpha, reference) < 1e-9
    if weighted:
        assert not alpha[4].any()
        counts = w > 0
        inverse = np.linalg.solve(K[np.ix_(counts, counts)] + 1.5 * np.diag(1 / w[counts]), Y[counts])
        assert relative(alpha[counts], inverse) < 1e-9
    assert_allclose(exact_ridge(np.asfortranarray(K), Y, 1e-2, w, overwrite_gram=True), alpha)


def test_exact_ridge_refuses():
    K = np.eye(3)
    with pytest.raises(ValueError, match="not positive definite"):
        exact_ridge(np.ones((3, 3)), np.ones(3), 0.0)
    with pytest.raises(ValueError, match="not positive definite"):
        exact_ridge(-K, np.ones(3), 0.1)
    with pytest.raises(ValueError, match="penalty=-1"):
        exact_ridge(K, np.ones(3), -1)
    with pytest.raises(ValueError, match="n x n"):
        exact_ridge(K[:2], np.ones(3), 1.0)
    with pytest.raises(ValueError, match="NaN"):
        exact_ridge(K * np.nan, np.ones(3), 1.0)
    with pytest.raises(ValueError, match="weight must"), np.errstate(invalid="ignore"):
        exact_ridge(K, np.ones(3), 1.0, -np.ones(3))


def test_exact_least_squares():
    operator, Y, w = make(n=60, m=60, weighted=True, length_scale=0.2)
    K, _ = dense(operator)
    alpha = exact_path(K.copy(), Y).coefficients(0.0)
    assert_allclose(K @ alpha, Y, atol=1e-6)
    assert relative(alpha, np.linalg.pinv(K, rcond=60 * 2.2e-16, hermitian=True) @ Y) < 1e-6
    weighted = exact_path(K.copy(), Y, w).coefficients(0.0)
    assert not weighted[4].any()
    counts = w > 0
    assert_allclose((K @ weighted)[counts], Y[counts], atol=1e-6)
    # the limit of ridge regression
    assert relative(weighted, exact_ridge(K, Y, 1e-15, w)) < 1e-3


def test_exact_least_squares_of_a_singular_kernel():
    X = np.random.default_rng(0).standard_normal((50, 3))
    K, y = X @ X.T, X[:, 0] + 0.1 * np.random.default_rng(1).standard_normal(50)
    fitted = X @ np.linalg.lstsq(X, y, rcond=None)[0]
    assert_allclose(K @ exact_path(K.copy(), y).coefficients(0.0), fitted, atol=1e-10)
    assert_allclose(exact_path(np.zeros((4, 4)), np.ones(4)).coefficients(0.0), np.zeros(4))
    # a floor leaves out more
    large = exact_path(K.copy(), y, floor=0.99 * np.linalg.norm(K, 2)).coefficients(0.0)
    assert np.linalg.matrix_rank(np.outer(large, large)) == 1


@pytest.mark.parametrize("weighted", [False, True])
def test_standard_error_of_the_difference_of_leave_one_out_errors(weighted):
    operator, Y, w = make(weighted=weighted)
    path = path_of(operator, Y, w)
    unit = np.array([2.0, 0.5])
    found = path.paired_standard_errors(PENALTIES, 1, unit)
    losses = [np.mean(np.square(path.leave_one_out_residuals(penalty)) / unit, axis=1) for penalty in PENALTIES]
    expected = [np.std(one - losses[1]) / np.sqrt(150) for one in losses]
    assert_allclose(found, expected, rtol=1e-9, atol=1e-15)


def test_directions_that_are_kept_take_no_further_pass():
    operator, Y, w = make(weighted=True)
    whitening = Whitening(operator.centers_gram(np.float64), operator.shape[0])
    path, kept = (nystrom_path(operator, Y, whitening, w, keep=keep) for keep in (False, True))
    passes = operator.passes
    errors, blur = kept.leave_one_out(PENALTIES), kept.paired_standard_errors(PENALTIES, 1, np.ones(2))
    assert operator.passes == passes
    assert np.array_equal(errors, path.leave_one_out(PENALTIES))
    assert np.array_equal(blur, path.paired_standard_errors(PENALTIES, 1, np.ones(2)))
    assert operator.passes == passes + 2
