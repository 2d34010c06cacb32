"""Eigenvalues of the kernel, and the effective dimension."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import eigvalsh

from .._utils.checks import numbers
from .._utils.threads import single_threaded_blas
from .._utils.words import plural
from ..preconditioners import Whitening
from ..solvers.nystrom_features import feature_sums
from ._drawing import BLUE, GREEN, GREY, Array, Display, column, mark
from ._fitted import ON_CENTERS, ON_CENTERS_WORDS, find


class SpectrumDisplay(Display):
    """Eigenvalues of the kernel matrix of the rows, and the effective dimension as a function of the penalty.

    The effective dimension is the sum of s / (s + penalty) over the eigenvalues s of K / n. If it is close to
    the number of centers, there are too few of them for the penalty.

    Parameters
    ----------
    eigenvalues : array of shape (r,)
        Eigenvalues of K / n, in any order, not negative.
    penalties : array of shape (P,), optional
        Where the effective dimension is drawn; by default from the least to the largest positive eigenvalue.
    penalty : float, optional
        The penalty to mark.
    n_centers : int, optional
        A line to compare the effective dimension with.

    Attributes
    ----------
    effective_dimensions : array of shape (P,)
        Of the penalties.
    axes_, ax_, figure_ : array of Axes, Axes, Figure
        The two panels, the first of them, and the figure.
    eigenvalue_line_, dimension_line_, penalty_line_, centers_line_ : Line2D or None
        The curves and the marks.

    Examples
    --------
    >>> from gyrfalcon.plots import SpectrumDisplay
    >>> display = SpectrumDisplay(eigenvalues=[1.0, 0.5, 0.25], penalties=[0.5])
    >>> display.effective_dimensions.round(2)
    array([1.5])
    """

    eigenvalue_line_: Any
    dimension_line_: Any
    penalty_line_: Any
    centers_line_: Any

    def __init__(
        self,
        *,
        eigenvalues: ArrayLike,
        penalties: ArrayLike | None = None,
        penalty: float | None = None,
        n_centers: int | None = None,
    ) -> None:
        given = np.sort(column("eigenvalues", eigenvalues))[::-1]
        self.eigenvalues = given[given > 0]  # what is left has a place on a logarithmic axis
        if not len(self.eigenvalues) or not np.isfinite(given).all():
            raise ValueError("eigenvalues must be finite, and at least one of them greater than 0")
        if penalties is not None:
            numbers(lambda x: 0 < x < np.inf, "a list of finite numbers greater than 0")("penalties", penalties)
        self.penalty = None if penalty is None or penalty <= 0 else float(penalty)
        self.penalties = self._range() if penalties is None else np.sort(column("penalties", penalties))
        self.n_centers = n_centers
        s = self.eigenvalues
        self.effective_dimensions = np.array([float((s / (s + value)).sum()) for value in self.penalties])

    def _range(self) -> Array:
        least, most = float(self.eigenvalues[-1]), float(self.eigenvalues[0])
        if self.penalty is not None:
            least, most = min(least, self.penalty / 10), max(most, self.penalty)
        return np.geomspace(min(least, most / 10), most, 100)

    @classmethod
    def from_estimator(cls, estimator: Any, X: Any, *, penalties: ArrayLike | None = None, ax: Any = None) -> Self:
        """Draw the spectrum of an estimator's kernel on rows, restricted to its centers.

        It takes one pass over the rows, n M^2 time and 3 M^2 numbers of memory. The part of the rows that the M centers
        do not represent is missing: eigenvalues are at most those of the whole kernel matrix.

        Parameters
        ----------
        estimator : fitted estimator with Nyström centers
            Or a pipeline or a search that ends with one.
        X : array, table, sparse matrix or source of shape (n, n_features)
            Rows.
        penalties : array of shape (P,), optional
            Where the effective dimension is drawn.
        ax : list of two matplotlib.axes.Axes, or one, optional
            Where to draw; see `plot`.

        Returns
        -------
        SpectrumDisplay
        """
        model, X = find(estimator, ON_CENTERS, cls, ON_CENTERS_WORDS, X)
        operator = model._operator(X)
        n, M = operator.shape
        gram = operator.centers_gram(np.float64)
        diagonal = float(np.diag(gram).mean())
        whitening = Whitening(gram, n, tile_dtype=operator.dtype, n_jobs=model.n_jobs)
        G, _ = feature_sums(operator, whitening, np.zeros((n, 0)))
        with single_threaded_blas():
            s = eigvalsh(G / n, lower=False, check_finite=False) if whitening.rank else np.zeros(1)
        # rounding of tiles moves eigenvalues by about this much: what is smaller means nothing
        rounding = float(np.finfo(operator.dtype).eps) * np.sqrt(M) * diagonal
        kept, penalty = np.where(s > rounding, s, 0.0), vars(model).get("penalty_")
        return cls(eigenvalues=kept, penalties=penalties, penalty=penalty, n_centers=M).plot(ax)

    def plot(self, ax: Any = None) -> Self:
        left, right = self._open(ax, 2)
        number = np.arange(1, len(self.eigenvalues) + 1)
        (self.eigenvalue_line_,) = left.plot(number, self.eigenvalues, ".-", color=BLUE, markersize=4)
        left.set(xscale="log", yscale="log", xlabel="number of the eigenvalue", ylabel="eigenvalue of K / n")
        (self.dimension_line_,) = right.plot(self.penalties, self.effective_dimensions, color=GREEN)
        right.set(xscale="log", yscale="log", xlabel="penalty", ylabel="effective dimension")
        self.penalty_line_ = self.centers_line_ = None
        if self.n_centers is not None:
            self.centers_line_ = right.axhline(
                self.n_centers, color=GREY, linestyle=":", label=plural(self.n_centers, "center")
            )
        if self.penalty is not None:
            s = self.eigenvalues
            dimension = float((s / (s + self.penalty)).sum())
            self.penalty_line_ = mark(right, self.penalty, f"penalty {self.penalty:.2g}: dimension {dimension:.3g}")
        right.set_ylim(top=2 * max(float(self.effective_dimensions.max()), float(self.n_centers or 1)))
        if right.get_legend_handles_labels()[0]:
            right.legend(loc="lower left")
        return self
