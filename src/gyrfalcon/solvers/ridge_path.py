"""Ridge regression for a whole list of penalties after one factorisation: the direct Nyström solve (NKRLS), and exact.

Nyström: with R from `Whitening`, R'K_MM R = I, the problem in beta = R^-1 alpha is ridge regression on the n x r
features F = K R (`nystrom_features`). With mu = lambda n,

    F'WF = V diag(s) V',     alpha = R V (c / (s + mu)),     c = D'W y,     D = F V.

Exact: every row is a center. With S = W^(1/2),

    S K S = U diag(s) U',    alpha = S U (c / (s + mu)),     c = D'S y,     D = U.

A penalty then costs a product with the eigenvectors; degrees of freedom, generalised cross-validation and the evidence
are nearly free, and leave-one-out residuals for all penalties take one further pass over the rows of D.

In terms of a Gaussian process with prior covariance tau^2 F F' (exact: tau^2 K) of the rows' values and noise of
variance tau^2 mu / w_i, the solution is the posterior mean, and tau^2 is known from the targets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import eigh, solve_triangular

from .._utils.checks import numbers
from .._utils.statistics import sums, total
from ..operators import Operator
from ..preconditioners import Whitening
from .exact import weighted_gram
from .nystrom_features import feature_sums, nystrom_features

Vectors = NDArray[np.float64]
Blocks = Iterator[tuple[slice, Vectors]]

_BLOCK = 1 << 22  # entries of the squared eigenvectors that are held at a time
_PENALTIES = numbers(lambda x: 0 <= x < np.inf, "finite numbers, at least 0", empty=True, scalar=True)
_POSITIVE = numbers(lambda x: 0 < x < np.inf, "finite numbers greater than 0", empty=True, scalar=True)


class RidgePath:
    """The solutions of kernel ridge regression for every penalty; made by `nystrom_path` or `exact_path`.

    Parameters
    ----------
    eigenvalues : ndarray of shape (r,)
        s, not negative.
    y : ndarray of shape (n,) or (n, k), float64
        Targets.
    weight : ndarray of shape (n,), float64, optional
        Sample weights W, if targets and directions do not have their roots as factors already.
    c : ndarray of shape (r, k)
        Coordinates of the targets, D'W y.
    directions : function that returns an iterator of pairs (slice, ndarray of shape (b, r))
        The rows of D, a block at a time.
    orthonormal : bool
        Whether D'WD is the identity; if not, it is diag(s).
    lift : function of an ndarray of shape (r, m)
        Returns the coefficients, of shape (M, m), of the solutions c / (s + mu).
    floor : float
        Directions in which s + mu is below this, or below r times the precision of float64 times the largest
        eigenvalue, are left out as rounding. So with lambda = 0 the solution is that of the pseudo-inverse.
    sample_weight : ndarray of shape (n,), optional
        Sample weights, wherever they are factors already. Rows of weight 0 do not count as rows to the evidence.

    Attributes
    ----------
    eigenvalues : ndarray of shape (r,)
        s.
    n, n_counted : int
        Number of rows, and of rows with a positive weight.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon.solvers import exact_path
    >>> path = exact_path(np.eye(2), np.array([3.0, 6.0]))
    >>> path.n, path.eigenvalues
    (2, array([1., 1.]))
    >>> float(path.degrees_of_freedom(0.5))  # two directions, each by 1 / (1 + 2 * 0.5)
    1.0
    """

    def __init__(
        self,
        eigenvalues: Vectors,
        y: Vectors,
        weight: Vectors | None,
        c: Vectors,
        directions: Callable[[], Blocks],
        *,
        orthonormal: bool,
        lift: Callable[[Vectors], Vectors],
        floor: float = 0.0,
        sample_weight: Vectors | None = None,
    ) -> None:
        self.eigenvalues, self.n = eigenvalues, len(y)
        self.n_counted, self._log_weight = self.n, 0.0
        if sample_weight is not None:
            self.n_counted = round(total(sample_weight, lambda part: part > 0))
            self._log_weight = total(sample_weight, lambda part: np.log(part[part > 0]))
        self._trailing = y.shape[1:]
        self._Y = y.reshape(self.n, -1)
        self._weight, self._c = weight, c
        self._directions, self._orthonormal, self._lift = directions, orthonormal, lift
        largest = float(eigenvalues.max(initial=0.0))
        self._cutoff = max(len(eigenvalues) * np.finfo(np.float64).eps * largest, floor)
        self._squares = sums(self._Y, weight, np.square)

    def _inverse(self, penalties: ArrayLike) -> Vectors:
        """Return 1 / (s + mu), of shape (r, P), and 0 where there is nothing but rounding."""
        _PENALTIES("penalties", penalties)
        penalty = np.atleast_1d(np.asarray(penalties, dtype=np.float64))
        shifted = self.eigenvalues[:, None] + penalty * self.n
        kept = (shifted > self._cutoff) & (shifted > 0)
        return np.divide(1.0, shifted, out=np.zeros_like(shifted), where=kept)

    def _times_c(self, factors: Vectors) -> Vectors:
        """Return c times each of P columns of factors, of shape (r, k P)."""
        (r, k), P = self._c.shape, factors.shape[1]
        return (self._c[:, :, None] * factors[:, None, :]).reshape(r, k * P)

    def coefficients(self, penalties: ArrayLike) -> Vectors:
        """Return alpha, of shape (M,) or (M, k); for a list of P penalties, of shape (M, P) or (M, k, P)."""
        inverse = self._inverse(penalties)
        alpha = self._lift(self._times_c(inverse))
        return alpha.reshape(len(alpha), *self._trailing, *(inverse.shape[1:] if np.ndim(penalties) else ()))

    def degrees_of_freedom(self, penalties: ArrayLike) -> Any:
        """Return sum s / (s + mu), the trace of the matrix that makes fitted values of targets; (P,) for a list."""
        df = (self.eigenvalues[:, None] * self._inverse(penalties)).sum(axis=0)
        return df if np.ndim(penalties) else float(df[0])

    def squared_errors(self, penalties: ArrayLike) -> Vectors:
        """Return the mean of W r^2 on the training rows, of shape (P, k), without a further pass."""
        inverse = self._inverse(penalties)[:, None, :]
        c = np.sqrt(self.eigenvalues)[:, None] * self._c if self._orthonormal else self._c
        c2, s = np.square(c)[:, :, None], self.eigenvalues[:, None, None]
        explained = (c2 * inverse * (2 - s * inverse)).sum(axis=0).T
        return np.maximum(self._squares - explained, 0.0) / self.n

    def prior_variance(self, penalties: ArrayLike) -> Vectors:
        """Return tau^2, of shape (P, k): the factor of the kernel under which the targets are the most probable.

        It is (|y|^2 - sum c^2 / (s + mu)) / (n mu), as |r|^2 + mu |f|^2 so that no rounding makes it negative.
        """
        inverse = self._inverse(penalties)[:, None, :]
        c = np.sqrt(self.eigenvalues)[:, None] * self._c if self._orthonormal else self._c
        norms = np.square(c[:, :, None] * inverse).sum(axis=0).T
        mu = self.n * np.atleast_1d(np.asarray(penalties, dtype=np.float64))[:, None]
        return (self.n * self.squared_errors(penalties) / mu + norms) / self.n_counted

    def log_evidence(self, penalties: ArrayLike) -> Vectors:
        """Return the logarithm of the targets' probability density with the best tau^2, of shape (P, k).

        Penalties must be positive. Infinite if all targets are 0.
        """
        _POSITIVE("penalties", penalties)
        n, r = self.n_counted, len(self.eigenvalues)
        mu = self.n * np.atleast_1d(np.asarray(penalties, dtype=np.float64))
        log_det = np.log(self.eigenvalues[:, None] + mu).sum(axis=0) + (n - r) * np.log(mu) - self._log_weight
        with np.errstate(divide="ignore"):
            log_tau2 = np.log(self.prior_variance(penalties))
        out: Vectors = -0.5 * (n * (np.log(2 * np.pi) + 1 + log_tau2) + log_det[:, None])
        return out

    def features(self) -> Vectors:
        """Return B, of shape (M, r): rows of K B are features of rows x that the kernel's Nyström form is made of.

        With d(x) = B'k_M(x), the kernel's part that the centers see is d(x)'d(x'), and D'WD = diag(s) on the rows of
        the problem. Directions without any part in the rows are 0.
        """
        if not self._orthonormal:
            return self._lift(np.eye(len(self.eigenvalues)))
        roots = np.sqrt(self.eigenvalues)
        return self._lift(np.diag(np.divide(1.0, roots, out=np.zeros_like(roots), where=roots**2 > self._cutoff)))

    def feature_coefficients(self, penalty: float) -> Vectors:
        """Return the solution's coefficients of `features`, of shape (r, k)."""
        c = np.sqrt(self.eigenvalues)[:, None] * self._c if self._orthonormal else self._c
        return c * self._inverse(penalty)

    def gcv(self, penalties: ArrayLike) -> Vectors:
        """Return generalised cross-validation's error, mean(W r^2) / (1 - df/n)^2, of shape (P, k); no further pass.

        Infinite where there are as many degrees of freedom as rows.
        """
        left = 1 - np.atleast_1d(self.degrees_of_freedom(np.atleast_1d(penalties)))[:, None] / self.n
        error = self.squared_errors(penalties)
        return np.divide(error, np.square(left), out=np.full_like(error, np.inf), where=left > 1e-10)

    def leave_one_out(self, penalties: ArrayLike) -> Vectors:
        """Return the mean of W e^2, of shape (P, k), where e_i is row i's residual of the fit without it; one pass.

        Centers, the kernel and mu = lambda n stay as they are. Infinite where a row is fitted exactly whatever its y.
        """
        total = np.zeros((np.atleast_1d(penalties).shape[0], self._Y.shape[1]))
        for at, e in self._left_out(penalties):
            squares = np.square(e)
            total += (squares if self._weight is None else self._weight[at][:, None, None] * squares).sum(axis=0).T
        return total / self.n

    def paired_standard_errors(self, penalties: ArrayLike, reference: int, unit: ArrayLike) -> Vectors:
        """Return the standard error of each penalty's leave-one-out error beyond the reference's, of shape (P,).

        The same rows have both errors, so that the difference is known much better than either of them.

        Parameters
        ----------
        penalties : array-like of shape (P,)
        reference : int
            Number of a penalty.
        unit : array-like of shape (k,)
            By which the errors of each output are divided before they are averaged.
        """
        P = np.atleast_1d(penalties).shape[0]
        total, squares = np.zeros(P), np.zeros(P)
        for at, e in self._left_out(penalties):
            losses = np.mean(np.square(e) / np.reshape(unit, (-1, 1)), axis=1)
            beyond = losses - losses[:, [reference]]
            beyond = beyond if self._weight is None else self._weight[at][:, None] * beyond
            total += beyond.sum(axis=0)
            squares += np.square(beyond).sum(axis=0)
        found: Vectors = np.sqrt(np.maximum(squares - np.square(total) / self.n, 0.0)) / self.n
        return found

    def leave_one_out_residuals(self, penalty: float) -> Vectors:
        """Return W^(1/2) e, where e_i is row i's residual of the fit without it, in the shape of y; one pass."""
        out = np.empty_like(self._Y)
        for at, e in self._left_out(penalty):
            out[at] = e[:, :, 0] if self._weight is None else np.sqrt(self._weight[at])[:, None] * e[:, :, 0]
        return out.reshape(self.n, *self._trailing)

    def _left_out(self, penalties: ArrayLike) -> Blocks:
        """Yield the leave-one-out residuals r_i / (1 - w_i h_ii) of blocks of rows, of shape (b, k, P)."""
        shrinkage = self._inverse(penalties)
        if self._orthonormal:
            shrinkage = self.eigenvalues[:, None] * shrinkage
        k, P = self._Y.shape[1], shrinkage.shape[1]
        weights = self._times_c(shrinkage)
        for at, D in self._directions():
            r = self._Y[at][:, :, None] - (D @ weights).reshape(len(D), k, P)
            h = np.square(D) @ shrinkage
            if self._weight is not None:
                h *= self._weight[at][:, None]
            left = (1 - h)[:, None, :]
            # A row of weight 0 is left out anyway, and its h is 0.
            yield at, np.divide(r, left, out=np.full_like(r, np.inf), where=left > 1e-12)


def nystrom_path(
    operator: Operator, y: NDArray[Any], whitening: Whitening, weight: NDArray[Any] | None = None, *, keep: bool = False
) -> RidgePath:
    """Solve ``(K'WK + lambda n K_MM) alpha = K'W y`` for every lambda, in one pass over the rows.

    Parameters
    ----------
    operator, whitening
        As for `nystrom_features`.
    y : ndarray of shape (n,) or (n, k)
        Targets.
    weight : ndarray of shape (n,), optional
        Sample weights, the diagonal of W.
    keep : bool
        Whether to keep D in memory, of shape (n, r), so that `leave_one_out` and the like take no further pass.

    Notes
    -----
    Time O(n M^2 + M^3), memory O(M^2) and a block of rows; nothing of size n x M unless K or D is kept.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon import KernelOperator
    >>> from gyrfalcon.preconditioners import Whitening
    >>> from gyrfalcon.solvers import nystrom_path
    >>> X = np.random.default_rng(0).standard_normal((200, 2))
    >>> K = KernelOperator("gaussian", X, X[:20])
    >>> path = nystrom_path(K, np.sin(X[:, 0]), Whitening(K.centers_gram(), 200))
    >>> penalties = np.logspace(-8, 0, 9)
    >>> path.coefficients(penalties).shape
    (20, 9)
    >>> bool(path.degrees_of_freedom(1e-8) > path.degrees_of_freedom(1.0))
    True
    """
    n, made_for = operator.shape[0], (whitening.n, whitening.M)
    if operator.shape != made_for:
        raise ValueError(f"the operator has shape {operator.shape}, but the whitening was made for {made_for}")
    root_n = np.sqrt(n)
    Y = y.astype(np.float64, copy=False).reshape(n, -1)
    weight = None if weight is None else weight.astype(np.float64, copy=False)

    G, rhs = feature_sums(operator, whitening, Y, weight)
    s, V = _eigensystem(G, whitening)

    def made() -> Blocks:
        for at, F in nystrom_features(operator, whitening):
            yield at, F.T @ V

    kept = list(made()) if keep else None

    def directions() -> Blocks:
        return made() if kept is None else iter(kept)

    def lift(x: Vectors) -> Vectors:
        return whitening.apply(V @ x) * root_n

    return RidgePath(
        s, Y.reshape(*y.shape), weight, V.T @ rhs, directions, orthonormal=False, lift=lift, sample_weight=weight
    )


def jitter_factor(whitening: Whitening) -> Vectors | None:
    """Return L, lower triangular, with R'K_MM R = L L', which is I up to the jitter; None if there is no jitter.

    The jitter is removed as far as that is safe: L L' is at least I/2.
    """
    if whitening.correction <= 0 or whitening.rank == 0:
        return None
    identity = np.eye(whitening.rank)
    correction = whitening.correction * whitening.solve_Tt(whitening.solve_T(identity))
    return np.linalg.cholesky(identity - correction).astype(np.float64, copy=False)


def _eigensystem(G: Vectors, whitening: Whitening) -> tuple[Vectors, Vectors]:
    """Return s and V with ``G = V diag(s) V'``, in coordinates in which the penalty is the identity."""
    rank = whitening.rank
    if rank == 0:
        return np.zeros(0), np.zeros((0, 0))
    L = jitter_factor(whitening)
    if L is not None:
        G = np.triu(G) + np.triu(G, 1).T
        G = solve_triangular(L, solve_triangular(L, G, lower=True).T, lower=True)
    s, V = eigh(G, lower=False, overwrite_a=True, check_finite=False, driver="evd")
    np.maximum(s, 0.0, out=s)
    if L is not None:
        V = solve_triangular(L, V, lower=True, trans="T", overwrite_b=True)
    return s, V


def exact_path(
    gram: NDArray[Any], y: NDArray[Any], weight: NDArray[Any] | None = None, floor: float = 0.0
) -> RidgePath:
    """Solve ``(K + lambda n W^-1) alpha = y`` for every lambda, with every row as a center.

    Parameters
    ----------
    gram : ndarray of shape (n, n), float64
        K. Overwritten.
    y : ndarray of shape (n,) or (n, k)
    weight : ndarray of shape (n,), optional
        Sample weights, the diagonal of W; zero is allowed.
    floor : float
        Directions in which s + mu is below this are left out; see `RidgePath`.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon.solvers import exact_path
    >>> path = exact_path(np.eye(2), np.array([3.0, 6.0]))
    >>> path.coefficients([0.0, 1.0])
    array([[3., 1.],
           [6., 2.]])
    """
    K, root, z = weighted_gram(gram, y, weight, True)
    s, U = eigh(K, lower=True, overwrite_a=True, check_finite=False)
    if s[0] < -1e-6 * max(float(s[-1]), 0.0):
        raise ValueError(
            f"the kernel is not positive: its matrix of these rows has eigenvalues from {s[0]:.3g} to "
            f"{s[-1]:.3g}; choose a positive semidefinite kernel"
        )

    def lift(x: Vectors) -> Vectors:
        alpha: Vectors = U @ x
        if root is not None:
            alpha *= root[:, None]
        return alpha

    return RidgePath(
        np.maximum(s, 0.0),
        z.reshape(y.shape),
        None,
        U.T @ z,
        partial(_row_blocks, U),
        orthonormal=True,
        lift=lift,
        floor=floor,
        sample_weight=None if root is None else np.square(root),
    )


def _row_blocks(U: Vectors) -> Blocks:
    n = len(U)
    size = max(1, _BLOCK // n)
    for start in range(0, n, size):
        at = slice(start, start + size)
        yield at, U[at]
