"""The direct Nyström solve (NKRLS): one factorisation serves a whole list of penalties.

With R from `Whitening`, R'K_MM R = I, the problem in beta = R^-1 alpha is ridge regression on the
n x r features F = K R. F is made block by block with triangular solves; forming K'K first would square the condition
number. Then

    F'WF = V S V',     alpha = R V (S + mu)^-1 V'F'W y,     mu = lambda n,

so that a penalty costs no more than a product with V, degrees of freedom and generalised cross-validation nothing, and
one further pass gives leave-one-out residuals for all penalties at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import eigh, solve_triangular
from scipy.linalg.blas import dsyrk

from ..operators import KernelOperator
from ..preconditioners import Whitening

Vectors = NDArray[np.float64]


class NystromPath:
    """The solutions of ``(K'WK + lambda n K_MM) alpha = K'W y`` for every lambda, after one pass over the rows.

    Parameters
    ----------
    operator : KernelOperator
        K, of shape (n, M).
    y : ndarray of shape (n,) or (n, k)
        Targets.
    whitening : Whitening
        T of the same centers, in float64.
    weight : ndarray of shape (n,), optional
        Sample weights, the diagonal of W.

    Attributes
    ----------
    eigenvalues : ndarray of shape (rank,)
        S, ascending, of F'WF.

    Notes
    -----
    Time n M^2 + some M^3, memory some M^2 and a block of rows; nothing of size n x M unless the operator keeps K.
    Eigenvalues below ``rank * eps`` times the largest are rounding, and count as infinitely penalised: with lambda = 0
    the solution is that of the pseudo-inverse.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon import KernelOperator
    >>> from gyrfalcon.preconditioners import Whitening
    >>> from gyrfalcon.solvers import NystromPath
    >>> X = np.random.default_rng(0).standard_normal((200, 2))
    >>> K = KernelOperator("gaussian", X, X[:20])
    >>> path = NystromPath(K, np.sin(X[:, 0]), Whitening(K.centers_gram(), 200))
    >>> penalties = np.logspace(-8, 0, 9)
    >>> path.coefficients(penalties).shape
    (20, 9)
    >>> bool(path.degrees_of_freedom(1e-8) > path.degrees_of_freedom(1.0))
    True
    """

    def __init__(
        self,
        operator: KernelOperator,
        y: NDArray[Any],
        whitening: Whitening,
        weight: NDArray[Any] | None = None,
    ) -> None:
        made_for = (whitening.n, whitening.M)
        if operator.shape != made_for:
            raise ValueError(f"the operator has shape {operator.shape}, but the whitening was made for {made_for}")
        if whitening.dtype != np.float64:
            raise ValueError(f"the whitening is {whitening.dtype}: make it from centers_gram(np.float64)")
        self.operator, self.whitening, self.n = operator, whitening, operator.shape[0]
        self._trailing = y.shape[1:]
        self._Y = np.asarray(y, dtype=np.float64).reshape(self.n, -1)
        self._weight = None if weight is None else np.asarray(weight, dtype=np.float64)
        rank = whitening.rank
        G, rhs = np.zeros((rank, rank), order="F"), np.zeros((rank, self._Y.shape[1]))
        for at, F in self._features():
            y_block = self._Y[at]
            if self._weight is not None:
                root = np.sqrt(self._weight[at])
                F, y_block = F * root, root[:, None] * y_block
            if rank:
                G = dsyrk(1.0, F, beta=1.0, c=G, overwrite_c=True)  # the upper triangle
            rhs += F @ y_block
        self._factor(G)
        self._projected = self._V.T @ rhs
        self._cutoff = rank * np.finfo(np.float64).eps * float(self.eigenvalues.max(initial=0.0))
        w_y = self._Y if self._weight is None else self._weight[:, None] * self._Y
        self._squares = (self._Y * w_y).sum(axis=0)

    def _features(self) -> Iterator[tuple[slice, Vectors]]:
        """The columns of F' = R'K', a block of rows at a time."""
        for at, K in self.operator.blocks():
            yield at, self.whitening.apply_transpose(K.T) * np.sqrt(self.n)

    def _factor(self, G: Vectors) -> None:
        """Put ``G = F'WF`` into the form V S V', in coordinates in which the penalty is the identity."""
        B = self.whitening
        if B.rank == 0:
            self.eigenvalues, self._V = np.zeros(0), np.zeros((0, 0))
            return
        L: NDArray[Any] | None = None
        if B.correction > 0:
            # R'K_MM R is I but for the jitter, as much of which as is safe is taken out again (L L' is at least I/2).
            L = np.linalg.cholesky(np.eye(B.rank) - B.correction * B.solve_Tt(B.solve_T(np.eye(B.rank))))
            G = np.triu(G) + np.triu(G, 1).T
            G = solve_triangular(L, solve_triangular(L, G, lower=True).T, lower=True)
        self.eigenvalues, self._V = eigh(G, lower=False, overwrite_a=True, check_finite=False, driver="evd")
        np.maximum(self.eigenvalues, 0.0, out=self.eigenvalues)
        if L is not None:
            self._V = solve_triangular(L, self._V, lower=True, trans="T", overwrite_b=True)

    def _inverse(self, penalties: ArrayLike) -> Vectors:
        """1 / (s + mu), of shape (rank, P), and 0 where there is nothing but rounding."""
        penalty = np.atleast_1d(np.asarray(penalties, dtype=np.float64))
        if penalty.ndim != 1 or not (np.isfinite(penalty).all() and (penalty >= 0).all()):
            raise ValueError(f"penalties={penalties!r} must be finite numbers, at least 0")
        shifted = self.eigenvalues[:, None] + penalty * self.n
        kept = (shifted > self._cutoff) & (shifted > 0)
        return np.divide(1.0, shifted, out=np.zeros_like(shifted), where=kept)

    def coefficients(self, penalties: ArrayLike) -> Vectors:
        """Return alpha, of shape (M,) or (M, k); for a list of P penalties, of shape (M, P) or (M, k, P)."""
        inverse = self._inverse(penalties)
        P, k = inverse.shape[1], self._Y.shape[1]
        beta = self._V @ (self._projected[:, :, None] * inverse[:, None, :]).reshape(-1, k * P)
        alpha = self.whitening.apply(beta) * np.sqrt(self.n)
        return alpha.reshape(self.whitening.M, *self._trailing, *([P] if np.ndim(penalties) else []))

    def degrees_of_freedom(self, penalties: ArrayLike) -> Any:
        """Return sum s / (s + mu), the trace of the matrix that makes fitted values of targets; (P,) for a list."""
        df = (self.eigenvalues[:, None] * self._inverse(penalties)).sum(axis=0)
        return df if np.ndim(penalties) else float(df[0])

    def squared_errors(self, penalties: ArrayLike) -> Vectors:
        """Return the mean of W r^2 on the training rows, of shape (P, k), without a further pass."""
        inverse = self._inverse(penalties)[:, None, :]
        c2, s = np.square(self._projected)[:, :, None], self.eigenvalues[:, None, None]
        explained = (c2 * inverse * (2 - s * inverse)).sum(axis=0).T
        return np.maximum(self._squares - explained, 0.0) / self.n

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
            total += (squares if self._weight is None else self._weight[at, None, None] * squares).sum(axis=0).T
        return total / self.n

    def leave_one_out_residuals(self, penalty: float) -> Vectors:
        """Return the residual of each row by the fit without it, in the shape of y; one pass."""
        out = np.empty_like(self._Y)
        for at, e in self._left_out(penalty):
            out[at] = e[:, :, 0]
        return out.reshape(self.n, *self._trailing)

    def _left_out(self, penalties: ArrayLike) -> Iterator[tuple[slice, Vectors]]:
        """The leave-one-out residuals r_i / (1 - w_i h_ii) of a block of rows, of shape (b, k, P)."""
        inverse = self._inverse(penalties)
        k = self._Y.shape[1]
        weights = (self._projected[:, :, None] * inverse[:, None, :]).reshape(len(inverse), k * inverse.shape[1])
        for at, F in self._features():
            FV = F.T @ self._V
            r = self._Y[at][:, :, None] - (FV @ weights).reshape(len(FV), k, inverse.shape[1])
            h = np.square(FV) @ inverse
            if self._weight is not None:
                h *= self._weight[at, None]
            left = (1 - h)[:, None, :]
            # A row of weight 0 is left out anyway, and its h is 0.
            yield at, np.divide(r, left, out=np.full_like(r, np.inf), where=left > 1e-12)
