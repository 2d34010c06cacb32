"""The posterior and the evidence against dense formulas of Gaussian processes, in float64."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose

from gyrfalcon import KernelOperator
from gyrfalcon.kernels import Gaussian, Linear
from gyrfalcon.preconditioners import Whitening
from gyrfalcon.solvers import Posterior, exact_path, leave_one_out_scores, missed_by, nystrom_path, posterior_of

KERNEL = Gaussian(1.2)
PENALTY = 1e-3


def problem(n=60, M=15, k=2, seed=0, weighted=False):
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, 2))
    y = np.stack([np.sin((j + 1) * X[:, 0]) + 0.3 * rng.standard_normal(n) for j in range(k)], axis=1)
    w = None
    if weighted:
        w = rng.integers(0, 4, size=n).astype(float)
        w /= w.mean()
    return X, X[:M], y, w, rng.standard_normal((25, 2)) * 1.5


def path_of(X, Z, y, w, kernel=KERNEL):
    operator = KernelOperator(kernel, X, Z)
    return operator, nystrom_path(operator, y, Whitening(operator.centers_gram(), len(X)), w)


def features(A, Z, kernel=KERNEL):
    """Nyström features by an eigendecomposition."""
    s, V = np.linalg.eigh(kernel(Z, Z))
    kept = s > 1e-12 * s.max()
    return kernel(A, Z) @ V[:, kept] / np.sqrt(s[kept])


def marginal(F, w, n_counted, mu):
    """The covariance of the targets for tau = 1, of rows with a weight."""
    rows = np.ones(len(F), dtype=bool) if w is None else w > 0
    noise = np.ones(rows.sum()) if w is None else 1 / w[rows]
    return rows, F[rows] @ F[rows].T + mu * np.diag(noise)


@pytest.mark.parametrize("weighted", [False, True])
def test_evidence_and_prior_variance(weighted):
    X, Z, y, w, _ = problem(weighted=weighted)
    _, path = path_of(X, Z, y, w)
    penalties = [1e-5, 1e-2]
    for i, penalty in enumerate(penalties):
        rows, C = marginal(features(X, Z), w, None, penalty * len(X))
        n = rows.sum()
        tau2 = np.einsum("ij,ij->j", y[rows], np.linalg.solve(C, y[rows])) / n
        assert_allclose(path.prior_variance(penalties)[i], tau2, rtol=1e-8)
        log_det = np.linalg.slogdet(C)[1]
        expected = -0.5 * (n * np.log(2 * np.pi * tau2) + log_det + n)
        assert_allclose(path.log_evidence(penalties)[i], expected, rtol=1e-8)
    assert path.n_counted == n


@pytest.mark.parametrize("weighted", [False, True])
def test_exact_path_has_the_evidence_of_every_center(weighted):
    X, _, y, w, _ = problem(weighted=weighted)
    kept = np.arange(len(X)) if w is None else np.flatnonzero(w)
    w = None if w is None else w[kept] / w[kept].mean()
    exact = exact_path(KERNEL(X[kept], X[kept]), y[kept], w)
    _, nystrom = path_of(X[kept], X[kept], y[kept], w)
    assert_allclose(exact.log_evidence(PENALTY), nystrom.log_evidence(PENALTY), rtol=1e-6)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kernel", [KERNEL, Linear() + 1.0], ids=["gaussian", "low rank"])
def test_covariance(kernel, weighted):
    X, Z, y, w, new = problem(weighted=weighted)
    _, path = path_of(X, Z, y, w, kernel)
    posterior = posterior_of(path.features(), path, PENALTY)
    mu, F, G = PENALTY * len(X), features(X, Z, kernel), features(new, Z, kernel)
    W = np.eye(len(X)) if w is None else np.diag(w)
    A = F.T @ W @ F + mu * np.eye(F.shape[1])
    expected = kernel(new, new) - G @ G.T + mu * G @ np.linalg.solve(A, G.T)
    operator = KernelOperator(kernel, new, Z)
    assert_allclose(posterior.covariance(operator), expected, atol=1e-8)
    assert_allclose(posterior.variances(operator), expected.diagonal(), atol=1e-8)
    counted = len(X) if w is None else (w > 0).sum()
    assert_allclose(posterior.noise_deviation, posterior.prior_deviation * np.sqrt(PENALTY * counted))


def test_a_singular_gram_matrix_does_not_make_the_projection_large():
    X, Z, y, _, new = problem(n=400, M=100)
    wide, mu = Gaussian(20.0), 1e-6 * 400
    operator = KernelOperator(wide, X, Z)
    whitening = Whitening(operator.centers_gram(), len(X))
    path, S = nystrom_path(operator, y, whitening), Z[whitening.selected]
    B = path.features()
    large = np.linalg.norm(B, 2)
    Q = posterior_of(B, path, 1e-6).projection
    # the weights with which the selected centers represent rows
    P = np.linalg.lstsq(wide(S, S), wide(S, X), rcond=1e-15)[0]
    assert np.linalg.norm(Q, 2) <= 1.01 * np.linalg.norm(P, 2) / np.sqrt(mu) < large / 10
    # all rows as centers, which for so wide a kernel is no other model
    expected = 1 - np.einsum("ij,ij->i", wide(new, X), np.linalg.solve(wide(X, X) + mu * np.eye(400), wide(X, new)).T)
    found = Posterior(Q, np.ones(1), np.ones(1)).variances(KernelOperator(wide, new, Z))
    assert_allclose(found, expected, atol=1e-9)


@pytest.mark.parametrize("weighted", [False, True])
def test_leave_one_out_scores_are_those_of_fits_without_the_row(weighted):
    X, Z, y, w, _ = problem(n=40, M=10, weighted=weighted)
    operator, path = path_of(X, Z, y, w)
    missed = missed_by(path, operator.kernel, operator.rows, w)
    off = np.random.default_rng(3).standard_normal(y.shape)  # of a solver that stopped early
    fitted = operator.matmat(path.coefficients(PENALTY)) - off
    scores, excess = leave_one_out_scores(path.features(), path, PENALTY, operator, y, w, None, missed, fitted)
    assert_allclose(excess, np.average(np.square(off), axis=0, weights=w))
    posterior = posterior_of(path.features(), path, PENALTY, missed)
    F, mu = features(X, Z), PENALTY * len(X)
    weights = np.ones(len(X)) if w is None else w
    nu = mu + len(X) * missed / (weights > 0).sum()
    for i in (0, 12, 33):
        others = np.arange(len(X)) != i
        FW = F[others].T * weights[others]
        G, one = FW @ F[others], np.eye(F.shape[1])
        error = y[i] - F[i] @ np.linalg.solve(G + mu * one, FW @ y[others])
        leverage = weights[i] * F[i] @ np.linalg.solve((F.T * weights) @ F + mu * one, F[i])
        error += off[i] / np.sqrt(1 - leverage)
        # what the other rows leave open, what no center sees, the noise of an average row, and the solver's error
        variance = nu * F[i] @ np.linalg.solve(G + nu * one, F[i]) + 1 - F[i] @ F[i]
        deviation = np.sqrt(variance * posterior.prior_deviation**2 + posterior.noise_deviation**2 + excess)
        assert_allclose(scores[i], np.abs(error) / deviation, rtol=1e-6)


@pytest.mark.parametrize("weighted", [False, True])
def test_what_centers_miss_counts_beside_the_noise(weighted):
    X, Z, y, w, new = problem(weighted=weighted)
    operator, path = path_of(X, Z, y, w)
    F, G, weights = features(X, Z), features(new, Z), np.ones(len(X)) if w is None else w
    missed = missed_by(path, operator.kernel, operator.rows, w)
    assert_allclose(missed, np.mean(weights * (1 - np.square(F).sum(axis=1))), rtol=1e-8)
    found = posterior_of(path.features(), path, PENALTY, missed)
    counted = (weights > 0).sum()
    nu = PENALTY * len(X) + missed * len(X) / counted
    rows, C = marginal(F, w, None, nu)
    tau2 = np.einsum("ij,ij->j", y[rows], np.linalg.solve(C, y[rows])) / counted
    assert_allclose(found.prior_deviation**2, tau2, rtol=1e-8)
    assert_allclose(found.noise_deviation**2, tau2 * PENALTY * counted, rtol=1e-8)
    A = (F.T * weights) @ F + nu * np.eye(F.shape[1])
    expected = KERNEL(new, new) - G @ G.T + nu * G @ np.linalg.solve(A, G.T)
    assert_allclose(found.covariance(KernelOperator(KERNEL, new, Z)), expected, atol=1e-8)


def test_nothing_is_missed_with_every_row_as_a_center():
    X, _, y, _, _ = problem()
    for kernel in (KERNEL, Linear() + 1.0):
        operator, path = path_of(X, X, y, None, kernel)
        assert missed_by(path, operator.kernel, operator.rows, None) < 1e-12


@pytest.mark.parametrize("weighted", [False, True])
def test_leave_one_out_scores_leave_the_row_out_of_the_mean(weighted):
    X, Z, y, w, _ = problem(n=12, M=6, weighted=weighted)
    weights = np.ones(len(X)) if w is None else w
    operator, path = path_of(X, Z, y - np.average(y, axis=0, weights=weights), w)
    B = path.features()
    constant = B.T @ operator.rmatmat(weights)
    from_mean = y - np.average(y, axis=0, weights=weights)
    scores, _ = leave_one_out_scores(B, path, PENALTY, operator, from_mean, w, constant)
    F, mu = features(X, Z), PENALTY * len(X)
    noise = PENALTY * (weights > 0).sum()
    for i in range(len(X)):
        others = np.arange(len(X)) != i
        FW = F[others].T * weights[others]
        A = FW @ F[others] + mu * np.eye(F.shape[1])
        mean = np.average(y[others], axis=0, weights=weights[others])
        error = y[i] - mean - F[i] @ np.linalg.solve(A, FW @ (y[others] - mean))
        variance = noise + mu * F[i] @ np.linalg.solve(A, F[i]) + 1 - F[i] @ F[i]
        assert_allclose(scores[i], np.abs(error) / np.sqrt(variance * path.prior_variance(PENALTY)[0]), rtol=1e-6)


def test_a_row_that_is_fitted_whatever_its_y_has_an_infinite_score():
    X, y = np.array([[0.0], [9.0]]), np.array([[1.0], [2.0]])
    operator, path = path_of(X, X, y, None)
    scores, _ = leave_one_out_scores(path.features(), path, 1e-17, operator, y, None)
    assert np.isinf(scores).all()


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ((np.ones((2, 3), dtype=np.float32), np.ones(1), np.ones(1)), "projection"),
        ((np.full((2, 3), np.nan), np.ones(1), np.ones(1)), "projection"),
        ((np.ones((2, 3)), np.ones((1, 1)), np.ones(1)), "prior_deviation"),
        ((np.ones((2, 3)), np.ones(2), np.ones(1)), "noise_deviation"),
        ((np.ones((2, 3)), -np.ones(1), np.ones(1)), "negative"),
    ],
)
def test_wrong_fields(fields, words):
    with pytest.raises(ValueError, match=words):
        Posterior(*fields)
