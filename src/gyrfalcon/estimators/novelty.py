"""Novelty of rows by their leverage scores."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import eigh

from .._utils.checks import integer, number, optional, positive
from .._utils.registry import register
from .._utils.statistics import quantile_of
from .._utils.threads import effective_n_jobs, single_threaded_blas
from ..centers import Centers
from ..fitting.arguments import described
from ..fitting.data import unlabelled_data
from ..fitting.parameters import check_parameters
from ..fitting.plan import Needs
from ..fitting.subspace import CenterSettings, choose_subspace
from ..kernels import Kernel, KernelFunction
from ..operators import Operator
from ..operators.diagonal import kernel_diagonal
from ..preconditioners import Whitening
from ..solvers import feature_sums, row_squares
from ..solvers.nystrom_features import row_square_blocks
from ..sources import columns
from ..sources.row_matrix import row_matrix, row_parts
from ._base import KernelEstimator
from ._lazy import lazily
from ._sklearn import OutlierMixin

Array = NDArray[Any]

_FALSE_ALARMS = 0.01  # share of rows like the training rows that contamination="auto" calls outliers
_NEGLIGIBLE = 1e-10  # directions below this share of the penalty change a score by at most that share


@register
@described
class NoveltyDetector(OutlierMixin, KernelEstimator):
    """Detect outliers by leverage scores, which are large for rows that the training rows do not explain.

    The ridge leverage score of x is k(x, x) - k(x, X) (K + penalty n)^-1 k(X, x), over penalty n: the posterior
    variance of a Gaussian process at x given the training rows, which is large where none of them is similar. It is
    computed on Nyström centers, in one pass over the rows; the part of x that the centers cannot represent counts in
    full.

    Parameters
    ----------
    {kernel, n_centers}
    penalty : float, default=0.001
        The lambda of the papers, positive. With a small penalty, rows that have few similar rows get large leverage
        scores; with a large one, only rows outside the bulk of the rows do. Penalties that are smaller than rounding in
        float64 are raised to the smallest one that is not.
    contamination : float or "auto", default=0.1
        Fraction of the training rows that are outliers, at most 0.5, which determines `offset_`. Use "auto" if there
        are no outliers among the training rows: an outlier is then a row whose score is beyond those of 99% of the
        training rows, each of which is left out of the fit for its own score. About 1% of new rows that resemble the
        training rows are then classified as outliers.
    {centers, scale, memory_budget, n_jobs}
    random_state : int, RandomState or None, default=None
        Seed of the centers.

    Attributes
    ----------
    offset_ : float
        Threshold of `score_samples`: decision_function = score_samples - offset_.
    penalty_ : float
        The penalty that was used.
    effective_dimension_ : float
        Sum of the leverage scores of the training rows.
    {centers_}
    dual_coef_ : array of shape (M, rank)
        The leverage score of x is k(x, x) / (penalty_ n) - |k(x, centers) dual_coef_|^2.
    n_samples_fit_ : int
        Number of training rows n.
    {kernel_, mean_ scale_, n_features_in_, feature_names_in_}

    See Also
    --------
    gyrfalcon.leverage_scores : Scores of the training rows themselves, exact or from a sample.

    Notes
    -----
    Scores are differences of nearly equal numbers, so that everything is computed in float64. The score of a training
    row is at most 1, because it explains itself; that of a new row can be as large as k(x, x) / (penalty n). The fit
    takes n M^2 time and memory for about 5 M^2 numbers.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon import NoveltyDetector
    >>> X = np.random.default_rng(0).standard_normal((500, 2))
    >>> model = NoveltyDetector(contamination=0.05, random_state=0).fit(X)
    >>> model.predict([[0.0, 0.0], [6.0, 6.0]])
    array([ 1, -1])
    """

    takes_sparse = True
    dtype = "float64"  # scores are differences of nearly equal numbers

    offset_: float
    penalty_: float
    effective_dimension_: float
    n_samples_fit_: int

    def __init__(
        self,
        kernel: Kernel | str | KernelFunction = "gaussian",
        *,
        n_centers: int | None = None,
        penalty: float = 1e-3,
        contamination: float | str = 0.1,
        centers: str | ArrayLike | Centers = "uniform",
        scale: bool | str = "auto",
        memory_budget: int | float | str = "auto",
        n_jobs: int | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.kernel = kernel
        self.n_centers = n_centers
        self.penalty = penalty
        self.contamination = contamination
        self.centers = centers
        self.scale = scale
        self.memory_budget = memory_budget
        self.n_jobs = n_jobs
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn the distribution of the rows.

        Parameters
        ----------
        X : array, table, sparse matrix, source or Dask collection of shape (n, n_features)
            A source, such as ``gyrfalcon.open(path).X``, is read block by block.
        y : ignored

        Returns
        -------
        self
        """
        check_parameters(
            self.get_params(deep=False),
            penalty=positive(),
            contamination=optional(number(lambda x: 0 < x <= 0.5, "greater than 0 and at most 0.5"), "auto"),
        )
        with self._session() as session:
            data = unlabelled_data(self._reading, X, scratch=session.scratch)
            # the factor of K_MM, F'F, its eigenvectors and room to make them, and what becomes of them
            long = data.rows.shape[0] >= columns.LONG and not data.rows.in_memory
            needs = Needs(buffers=5, penalty=float(self.penalty), row_vectors=0 if long else Needs.row_vectors)
            settings = CenterSettings(self.kernel, self.n_centers, self.centers)
            space = choose_subspace(settings, needs, data, self._compute, session.random_state)
            operator, n = space.operator, space.operator.shape[0]
            whitening = Whitening(operator.centers_gram(np.float64), n, n_jobs=self.n_jobs)
            G, _ = feature_sums(operator, whitening, np.empty((n, 0)))
            penalty = max(float(self.penalty), whitening.least_penalty)
            mu = penalty * n
            s, V = _spectrum(G)
            P = _explaining(s, V, whitening, mu)
            n_threads = effective_n_jobs(self.n_jobs)
            # scores of the rows of a file are in a file
            scores = row_matrix(n, 1, np.float64, in_file=long)
            diagonal = kernel_diagonal(operator.kernel, operator.rows)
            total, parts = 0.0, row_parts(n, 1)
            for at, squares in row_square_blocks(operator, P, n_threads):
                scores[at] = _bounded(diagonal[at] / mu, squares)[:, None]
            for at in parts:
                total += float(scores[at].sum())
            level = _FALSE_ALARMS if self.contamination == "auto" else float(self.contamination)
            if self.contamination == "auto":
                for at, leverage in row_square_blocks(operator, _leverage(s, V, whitening, mu), n_threads):
                    scores[at] = _left_out(scores[at][:, 0], leverage)[:, None]
            offset = quantile_of(lambda: (scores[at][:, 0] for at in parts), n, level)
            self._set_scaling(data)
            self._set_centers(operator.kernel, operator.centers)
            self.dual_coef_, self.offset_, self.penalty_, self.n_samples_fit_ = P, offset, penalty, n
            self.effective_dimension_ = -total
        return self

    @lazily
    def score_samples(self, X: Any) -> Array:
        """Return minus the leverage scores: the lower, the less a row is like the training rows.

        Parameters
        ----------
        {rows.X}

        Returns
        -------
        array of shape (n,); a Dask array for a Dask collection
        """
        operator = self._operator(X)
        mu = self.penalty_ * self.n_samples_fit_
        return _scores(operator, self.dual_coef_, mu, effective_n_jobs(self.n_jobs))

    @lazily
    def decision_function(self, X: Any) -> Array:
        """Return `score_samples` less the threshold: negative for outliers.

        Parameters
        ----------
        X : as for `score_samples`

        Returns
        -------
        array of shape (n,); a Dask array for a Dask collection
        """
        scores: Array = self.score_samples(X)
        return scores - self.offset_

    @lazily
    def predict(self, X: Any) -> Array:
        """Return -1 for outliers and 1 for other rows.

        Parameters
        ----------
        X : as for `score_samples`

        Returns
        -------
        array of shape (n,); a Dask array for a Dask collection
        """
        return np.where(self.decision_function(X) < 0, -1, 1)

    def _check_loaded(self) -> None:
        super()._check_loaded()
        integer(1)("n_samples_fit_", self.n_samples_fit_)
        positive()("penalty_", self.penalty_)

    def _check_offset(self, coef: Array) -> None:
        number(np.isfinite, "a finite number")("offset_", self.offset_)
        if coef.ndim != 2:
            raise ValueError(f"dual_coef_ has shape {coef.shape}: it must be a matrix")


def _spectrum(G: Array) -> tuple[Array, Array]:
    """Return eigenvalues and eigenvectors of F'F, from its upper triangle."""
    if not G.size:
        return np.empty(0), np.empty((0, 0))
    with single_threaded_blas():
        s, V = eigh(G, lower=False, overwrite_a=True, check_finite=False, driver="evd")
    return np.maximum(s, 0.0), V


def _explaining(s: Array, V: Array, whitening: Whitening, mu: float) -> Array:
    """Return P with |k(x, centers) P|^2 = |f|^2 / mu - f'(F'F + mu I)^-1 f."""
    kept = s > _NEGLIGIBLE * mu
    if not kept.any():
        return np.zeros((whitening.M, 1))
    P: Array = whitening.apply(V[:, kept] * np.sqrt(s[kept] / (mu * (s[kept] + mu)))) * np.sqrt(whitening.n)
    return P


def _leverage(s: Array, V: Array, whitening: Whitening, mu: float) -> Array:
    """Return L with |k(x, centers) L|^2 = f'(F'F + mu I)^-1 f."""
    if not s.size:
        return np.zeros((whitening.M, 1))
    L: Array = whitening.apply(V / np.sqrt(s + mu)) * np.sqrt(whitening.n)
    return L


def _scores(operator: Operator, P: Array, mu: float, n_threads: int) -> Array:
    """Return minus the leverage scores of the rows of an operator, which rounding must not make negative."""
    most = kernel_diagonal(operator.kernel, operator.rows) / mu
    return _bounded(most, row_squares(operator, P, n_threads))


def _bounded(most: Array, squares: Array) -> Array:
    return -np.maximum(most - squares, 0.0)


def _left_out(scores: Array, leverage: Array) -> Array:
    """Return the scores of training rows when each is left out of the fit, while its center stays."""
    # without f f' in F'F, the part f'(F'F + mu I)^-1 f = l of a row's score becomes l / (1 - l) (Sherman-Morrison)
    share = np.clip(leverage, 0.0, 1.0 - np.finfo(np.float64).eps)
    return scores + share - share / (1.0 - share)
