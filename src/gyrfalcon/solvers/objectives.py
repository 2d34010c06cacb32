"""Smooth objectives by which length scales, the penalty and centers are tuned, and their gradients.

With L L' = K_MM, V = L^-1 K_Mn, mu = lambda n, B = I + V V' / mu, the Nyström approximation of the kernel matrix is
Q = V'V, A = Q + mu I, and a = A^-1 y:

    evidence     the bound of Titsias (2009) on -log p(y), for the best amplitude tau^2 = y'a / n of the kernel:
                 n/2 log(y'a / n) + 1/2 log det A + (tr K - tr Q) / (2 mu) + n/2 (1 + log 2 pi)
    complexity   tr(Q A^-1) + mu y'a + (tr K - tr Q) y'a / n   (Meanti, Carratino, De Vito, Rosasco 2022)

For both, the derivative is tr(G dQ) + g dmu + h tr dK, where G V' = V'C - U (V a)' with an M x M matrix C of B and
columns U of a. So it takes a product of K_nM with an M x M matrix, and sums over the derivatives of the kernel's
entries. One evaluation with all derivatives takes 1.5 n M^2 multiplications if V V' may be computed as L^-1 (K'K) L^-T,
which is so unless K_MM is close to singular, and otherwise 2.5 n M^2. Two thirds of them, the products of K_nM
for the derivatives, can be made in float32: derivatives with respect to centers then have errors of 1e-5 (kin40k, with
length scales of 2) to 1e-2 (of 4), and the others below 1e-5. All else is made in float64: with factors of K_MM
in float32, the derivatives with respect to centers have errors of 10 to 30%.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import solve_triangular

from .._utils.threads import effective_n_jobs, ordered_map, share, single_threaded_blas
from ..kernels import Kernel
from ..operators import KernelOperator
from ..operators.derivatives import center_gradient

Vectors = NDArray[np.float64]
Array = NDArray[Any]  # float32 or float64
Evaluate = Callable[[Kernel, Any, Any], Vectors]

_BLOCK = 2048  # most rows, which one thread works on
_JITTER = 1e-10  # of the mean of k(z, z)
_ROUNDED = 1e-3  # share of mu that rounding errors of V V' may reach if it is made of K'K
_FEW = (
    2_000  # centers up to which BLAS has one thread throughout: its others keep a core busy for 60 ms after their work
)
_PRODUCT_ROWS = 256  # of a product of two M x M matrices that one thread makes
_SMALL = 64  # order of triangular matrices that are inverted as any others
_POWERS = 10  # steps of the power iteration that estimates the norm of an inverse
_TRIED = 64  # rows on which products in float32 are compared with those in float64
_FLOAT32_ERROR = 1e-3  # largest relative error of these products for which float32 is used


@dataclass(frozen=True)
class TuningProblem:
    """Rows and targets by which parameters are tuned.

    X : of shape (n, d), float64
    Y : of shape (n, k), measured from the mean
    weight : of shape (n,), of mean 1, or None
    n_jobs : threads; None is every core
    """

    X: Vectors
    Y: Vectors
    weight: Vectors | None = None
    n_jobs: int | None = None

    def subset(self, at: NDArray[np.int64]) -> TuningProblem:
        """Return some of the rows."""
        weight = None if self.weight is None else self.weight[at] / self.weight[at].mean()
        return TuningProblem(self.X[at], self.Y[at], weight, self.n_jobs)


@dataclass(frozen=True)
class Slopes:
    """The value of an objective, and its derivatives by the logarithms of parameters and of mu, and by the centers."""

    value: float
    theta: Vectors
    log_mu: float
    centers: Vectors | None


@dataclass(frozen=True)
class _Known:
    """What an objective is a function of.

    quad : y'a for each output;  squares : |a|^2 for each output;  missed : tr K - tr Q
    inverse : B^-1;  log_det : log det B
    """

    n: int
    mu: float
    quad: Vectors
    squares: Vectors
    missed: float
    inverse: Vectors
    log_det: float


@dataclass(frozen=True)
class _Parts:
    """value; C and the factors of a a' for each output, which make up G; derivatives by mu and by tr K."""

    value: float
    C: Vectors
    factors: Vectors
    of_mu: float
    of_trace: float


def evidence(known: _Known) -> _Parts:
    """Return the parts of minus the evidence's bound, summed over outputs."""
    n, mu, k, identity = known.n, known.mu, len(known.quad), np.eye(len(known.inverse))
    log_det = n * np.log(mu) + known.log_det
    fit = float(n * (np.log(known.quad / n) + 1 + np.log(2 * np.pi)).sum())
    value = 0.5 * (fit + k * (log_det + known.missed / mu))
    trace_inverse = (n - len(identity) + np.trace(known.inverse)) / mu
    factors = 0.5 * n / known.quad
    of_mu = 0.5 * k * (trace_inverse - known.missed / mu**2) - float(factors @ known.squares)
    return _Parts(value, 0.5 * k * (known.inverse - identity) / mu, factors, of_mu, 0.5 * k / mu)


def complexity(known: _Known) -> _Parts:
    """Return the parts of the complexity-regularised objective, summed over outputs."""
    n, mu, k, identity = known.n, known.mu, len(known.quad), np.eye(len(known.inverse))
    quad, squares, M = float(known.quad.sum()), float(known.squares.sum()), len(identity)
    trace = float(np.trace(known.inverse))
    square = known.inverse @ known.inverse
    value = k * (M - trace) + (mu + known.missed / n) * quad
    of_mu = k * (float(np.trace(square)) - trace) / mu + quad - (mu + known.missed / n) * squares
    factors = np.full(len(known.quad), mu + known.missed / n)
    return _Parts(value, k * square / mu - quad / n * identity, factors, of_mu, quad / n)


OBJECTIVES: dict[str, Callable[[_Known], _Parts]] = {"evidence": evidence, "complexity": complexity}


def slopes_of(
    objective: str,
    kernel: Kernel,
    Z: Vectors,
    mu: float,
    problem: TuningProblem,
    *,
    of_centers: bool = False,
    fast: bool = False,
) -> Slopes:
    """Evaluate an objective with its derivatives.

    Parameters
    ----------
    objective : {"evidence", "complexity"}
    kernel : Kernel
        Resolved.
    Z : ndarray of shape (M, d)
        The centers.
    mu : float
        penalty * n.
    problem : TuningProblem
    of_centers : bool
        Whether to compute the derivatives with respect to the centers.
    fast : bool
        Whether to make the products of the derivatives in float32 if their errors on some rows are below 1e-3. The
        value is in float64.
    """
    with _blas(len(Z)):
        return _slopes_of(objective, kernel, Z, mu, problem, of_centers=of_centers, fast=fast)


def _slopes_of(
    objective: str, kernel: Kernel, Z: Vectors, mu: float, problem: TuningProblem, *, of_centers: bool, fast: bool
) -> Slopes:
    """Evaluate an objective with its derivatives, as `slopes_of` says."""
    n, evaluate, product = len(problem.X), _evaluator(problem.n_jobs), _products(problem.n_jobs)
    root = None if problem.weight is None else np.sqrt(problem.weight)
    Y = problem.Y if root is None else problem.Y * root[:, None]
    Li = _whitening(kernel, Z, evaluate)[1]
    kept, G, Vy = _whitened_sums(kernel, Z, problem, root, Y, Li, mu)
    factor = np.linalg.cholesky(np.eye(len(Z)) + G / mu)
    half = _inverse(factor)
    inverse = product(half.T, half)
    beta = inverse @ Vy / mu
    a = (Y - np.concatenate([K @ (Li.T @ beta) for K in kept])) / mu
    diagonal = kernel.diag(problem.X) * (1.0 if problem.weight is None else problem.weight)
    known = _Known(
        n,
        mu,
        np.einsum("ij,ij->j", Y, a),
        np.square(a).sum(axis=0),
        max(float(diagonal.sum() - np.trace(G)), 0.0),
        inverse,
        2 * float(np.log(factor.diagonal()).sum()),
    )
    parts = OBJECTIVES[objective](known)
    Va = (Vy - G @ beta) / mu
    U = a * parts.factors
    E, h = 2 * product(product(Li.T, parts.C), Li), 2 * (Li.T @ Va)
    terms = _Terms(E, U, h, root, of_centers)
    if fast and terms.is_exact_enough(kept[0][:_TRIED]):
        terms = terms.in_float32()
    theta, centers = terms.sums(kernel, Z, problem, kept)
    P = -product(product(Li.T, product(G, parts.C) - (Va * parts.factors) @ Va.T), Li)
    P = 0.5 * (P + P.T)
    theta += kernel.parameter_gradient(Z, Z, P, evaluate)
    if centers is not None:  # each entry of K_MM depends on two centers
        centers += 2 * center_gradient(kernel, Z, Z, P, evaluate)
    weights = np.full(n, parts.of_trace) if problem.weight is None else parts.of_trace * problem.weight
    theta += kernel.parameter_gradient_of_diag(problem.X, weights)
    return Slopes(parts.value, theta, mu * parts.of_mu, centers)


@dataclass(frozen=True)
class _Terms:
    """The derivatives by the entries of K_nM: the rows of K E - U h', times the roots of their weights."""

    E: Array
    U: Array
    h: Array
    root: Array | None
    of_centers: bool

    def is_exact_enough(self, K: Vectors) -> bool:
        """Whether K E, of some rows, has small errors in float32."""
        exact = K @ self.E
        error = K.astype(np.float32) @ self.E.astype(np.float32) - exact
        return bool(np.linalg.norm(error) < _FLOAT32_ERROR * np.linalg.norm(exact))

    def in_float32(self) -> _Terms:
        root = None if self.root is None else self.root.astype(np.float32)
        E, U, h = (one.astype(np.float32) for one in (self.E, self.U, self.h))
        return _Terms(E, U, h, root, self.of_centers)

    def sums(self, kernel: Kernel, Z: Vectors, problem: TuningProblem, kept: list[Vectors]) -> tuple[Vectors, Any]:
        """Return the derivatives by parameters and, if asked for, by centers; `kept` are the blocks of K_nM."""
        n, dtype, of_centers = len(problem.X), self.E.dtype, self.of_centers
        theta, centers = np.zeros(len(kernel.log_parameters(Z.shape[1]))), np.zeros_like(Z) if of_centers else None
        origin = Z.mean(axis=0)  # so that float32 loses few digits
        points = (Z - origin).astype(dtype)

        def derivatives(block: tuple[slice, Vectors]) -> tuple[Any, Any]:
            at, K = block[0], block[1].astype(dtype, copy=False)
            P = K @ self.E - self.U[at] @ self.h.T
            if self.root is not None:
                P *= self.root[at, None]
            again = _evaluator(1, None if self.root is not None else (kernel, K))
            X = (problem.X[at] - origin).astype(dtype)
            moved = center_gradient(kernel, X, points, P, again) if of_centers else None
            return kernel.parameter_gradient(X, points, P, again), moved

        with single_threaded_blas():
            pairs = zip(_blocks(n), kept, strict=True)
            for of_theta, moved in ordered_map(derivatives, pairs, effective_n_jobs(problem.n_jobs)):
                theta += of_theta
                if centers is not None:
                    centers += moved
        return theta, centers


def validation_slopes(
    kernel: Kernel, Z: Vectors, mu: float, problem: TuningProblem, held: TuningProblem, *, of_centers: bool = False
) -> Slopes:
    """Evaluate the mean squared error on held-out rows, with its derivatives.

    Parameters are those of `slopes_of`; `held` has the held-out rows, and targets measured from the same mean.
    """
    evaluate = _evaluator(problem.n_jobs)
    root = np.ones(len(problem.X)) if problem.weight is None else np.sqrt(problem.weight)
    Y = problem.Y * root[:, None]
    gram, Li = _whitening(kernel, Z, evaluate)
    G, Vy, kept = np.zeros((len(Z), len(Z))), np.zeros((len(Z), Y.shape[1])), []
    for at in _blocks(len(Y)):
        kept.append(evaluate(kernel, problem.X[at], Z) * root[at, None])
        V = kept[-1] @ Li.T
        G += V.T @ V
        Vy += V.T @ Y[at]
    half = solve_triangular(np.linalg.cholesky(G + mu * np.eye(len(Z))), Li, lower=True)  # half'half = H^-1
    alpha = half.T @ (half @ (np.linalg.solve(Li, Vy)))
    K_held = evaluate(kernel, held.X, Z)
    weight = np.ones(len(held.Y)) if held.weight is None else held.weight
    errors = K_held @ alpha - held.Y
    value = float((weight @ np.square(errors)).sum() / weight.sum() / errors.shape[1])
    e = 2 * errors * weight[:, None] / (weight.sum() * errors.shape[1])
    adjoint = half.T @ (half @ (K_held.T @ e))

    theta, centers = np.zeros(len(kernel.log_parameters(Z.shape[1]))), np.zeros_like(Z) if of_centers else None

    def add(A: Vectors, P: Vectors, times: float = 1.0) -> None:
        nonlocal theta, centers
        theta = theta + kernel.parameter_gradient(A, Z, P, evaluate)
        if centers is not None:
            centers = centers + times * center_gradient(kernel, A, Z, P, evaluate)

    add(held.X, e @ alpha.T)
    for at, K in zip(_blocks(len(Y)), kept, strict=True):
        residual = Y[at] - K @ alpha
        add(problem.X[at], root[at, None] * (residual @ adjoint.T - (K @ adjoint) @ alpha.T))
    P = -mu * adjoint @ alpha.T
    add(Z, 0.5 * (P + P.T), times=2.0)
    of_mu = -float(np.einsum("ij,ij->", adjoint, gram @ alpha))
    return Slopes(value, theta, mu * of_mu, centers)


def _blocks(n: int) -> Iterator[slice]:
    """Yield blocks of nearly the same size, an even number of them, so that two threads are done at the same time."""
    size = max(1, -(-n // (2 * -(-n // (2 * _BLOCK)))))
    return (slice(start, min(start + size, n)) for start in range(0, n, size))


def _blas(M: int) -> AbstractContextManager[None]:
    """Return the context in which an objective with M centers is evaluated."""
    return single_threaded_blas() if M <= _FEW else nullcontext()


def _products(n_jobs: int | None) -> Callable[[Vectors, Vectors], Vectors]:
    """Return the function that multiplies two matrices, by threads that take some rows each."""

    def product(A: Vectors, B: Vectors) -> Vectors:
        out = np.empty((len(A), B.shape[1]))

        def rows(start: int) -> None:
            at = slice(start, start + _PRODUCT_ROWS)
            np.matmul(A[at], B, out=out[at])

        share(rows, range(0, len(A), _PRODUCT_ROWS), effective_n_jobs(n_jobs))
        return out

    return product


def _inverse(factor: Any) -> Vectors:
    """Return the inverse of a lower triangular matrix, by products of its blocks, which are fast."""
    M = len(factor)
    if M <= _SMALL:
        return np.tril(np.linalg.inv(factor))  # NumPy's: SciPy has BLAS threads of its own, which wait for NumPy's
    half, out = M // 2, np.zeros((M, M))
    out[:half, :half] = first = _inverse(factor[:half, :half])
    out[half:, half:] = last = _inverse(factor[half:, half:])
    out[half:, :half] = -(last @ (factor[half:, :half] @ first))
    return out


def _whitening(kernel: Kernel, Z: Vectors, evaluate: Evaluate) -> tuple[Vectors, Vectors]:
    """Return K_MM and the inverse of its Cholesky factor L."""
    gram = evaluate(kernel, Z, Z)
    gram.flat[:: len(Z) + 1] += _JITTER * float(np.mean(gram.diagonal()))
    return gram, _inverse(np.linalg.cholesky(gram))


def _whitened_sums(
    kernel: Kernel, Z: Vectors, problem: TuningProblem, root: Vectors | None, Y: Vectors, Li: Vectors, mu: float
) -> tuple[list[Vectors], Vectors, Vectors]:
    """Return the blocks of K_nM, whose rows are multiplied by the roots of their weights, V V' and V y."""
    M, evaluate, n_threads = len(Z), _evaluator(1), effective_n_jobs(problem.n_jobs)

    def sums(at: slice) -> tuple[Vectors, Vectors, Vectors]:
        K = evaluate(kernel, problem.X[at], Z)
        if root is not None:
            K *= root[at, None]
        return K, K.T @ K, K.T @ Y[at]

    def whitened(K: Vectors) -> Vectors:
        V = K @ Li.T
        product: Vectors = V.T @ V
        return product

    kept, G, Ky = [], np.zeros((M, M)), np.zeros((M, Y.shape[1]))
    with single_threaded_blas():
        for K, KK, y in ordered_map(sums, _blocks(len(Y)), n_threads):
            kept.append(K)
            G += KK
            Ky += y
    # rounding errors of K'K, a matrix of M x M independent numbers, are multiplied by the inverse of K_MM
    rounding = np.finfo(np.float64).eps * float(G.diagonal().max()) * np.sqrt(M)
    if rounding * _inverse_norm(Li) < _ROUNDED * mu:
        product = _products(problem.n_jobs)
        G = product(product(Li, G), Li.T)
        return kept, 0.5 * (G + G.T), Li @ Ky
    G = np.zeros((M, M))
    with single_threaded_blas():
        for part in ordered_map(whitened, kept, n_threads):
            G += part
    return kept, G, Li @ Ky


def _inverse_norm(Li: Vectors) -> float:
    """Estimate the norm of the inverse of L L' by power iteration."""
    x, size = np.ones(len(Li)), 1.0
    for _ in range(_POWERS):
        x = Li.T @ (Li @ (x / np.linalg.norm(x)))
        size = float(np.linalg.norm(x))
    return size


def _evaluator(n_jobs: int | None, known: tuple[Kernel, Vectors] | None = None) -> Evaluate:
    """Return a function that makes kernel matrices by the compiled tiles, in the precision of the centers.

    `known` is a kernel and its matrix, of the rows and centers that the function will be called with.
    """

    def evaluate(kernel: Kernel, A: Any, B: Any) -> Vectors:
        if known is not None and kernel is known[0]:
            return known[1]
        out = np.empty((len(A), len(B)), dtype=B.dtype)
        for at, K in KernelOperator(kernel, A, B, n_jobs=n_jobs, memory_budget=0).blocks():
            out[at] = K
        return out

    return evaluate
