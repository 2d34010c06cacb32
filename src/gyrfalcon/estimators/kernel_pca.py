"""Kernel principal component analysis with Nyström centers, from all rows."""

from __future__ import annotations

from numbers import Integral
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_array, check_is_fitted

from .._utils.checks import boolean, integer, number, one_of
from .._utils.registry import register
from .._utils.sampling import sample_rows
from ..centers import Centers
from ..fitting.arguments import described
from ..fitting.convergence import warn_if_components_unsettled, warn_of_missed_share, warn_of_rounded_components
from ..fitting.data import FitData, unlabelled_data
from ..fitting.parameters import check_parameters
from ..fitting.plan import Needs
from ..fitting.session import Session
from ..fitting.subspace import CenterSettings, Subspace, choose_subspace, default_n_centers
from ..kernels import Gaussian, Kernel, KernelFunction
from ..operators import Operator
from ..operators.diagonal import mean_diagonal
from ..preconditioners import Whitening
from ..solvers import Components, largest_components, principal_components
from ..solvers.principal import krylov_block
from ._base import KernelEstimator, with_offset
from ._lazy import in_kind, lazily
from ._sklearn import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from .nystrom import NystromRegressor

Array = NDArray[Any]

_TOLERANCES = {np.dtype(np.float32): 1e-4, np.dtype(np.float64): 1e-8}
_FEW = 12  # centers per component from which "iterative" is faster than "direct"
_SMALL = 400  # largest number of centers for which "direct" is always fast
_BLOCKS_HELD = 10  # blocks of the Krylov space for which memory is required
_FACTORS = 5  # M x M matrices in float64 of "direct": the factor of K_MM, F'F, its eigenvectors and their workspace
_INVERSE_CENTERS = 500  # twice as many take twice the time, and pre-images of MNIST are 7% nearer


def _components(name: str, value: Any) -> None:
    """Require None, a positive integer, or a share of the variance."""
    if value is None:
        return
    words = "None, an integer of at least 1, or a share of the variance between 0 and 1, both excluded"
    if isinstance(value, Kernel | str):
        raise ValueError(f"{name}={value!r} must be {words}: a kernel is given by name, KernelPCA(kernel=...)")
    if isinstance(value, Integral):
        integer(1, words=words)(name, value)
    else:
        number(lambda x: 0 < x < 1, words)(name, value)


class _Kept(NamedTuple):
    """The components that are kept: coefficients of the centers, offsets, variances, and their shares of the whole."""

    coef: Array
    offset: Array
    variance: Array
    ratio: Array


@register
@described
class KernelPCA(ClassNamePrefixFeaturesOutMixin, TransformerMixin, KernelEstimator):
    """Kernel principal component analysis on Nyström centers: a few non-linear columns that describe the rows.

    It computes principal components of the rows in the kernel's feature space, restricted to the span of M centers but
    measured on all n rows [1]_. With every row as a center it is scikit-learn's `KernelPCA`; with fewer it takes memory
    for M x M numbers instead of n x n, and reads rows from any source.

    Parameters
    ----------
    n_components : int, float or None, default=None
        Number of components, at most M; or the fraction of the variance that they explain, between 0 and 1. None keeps
        all components whose variance exceeds rounding errors. A `ConvergenceWarning` is given if there are fewer
        components than requested, or if the centers explain a smaller fraction.
    {kernel, n_centers, centers}
    fit_inverse_transform : bool, default=False
        Whether `inverse_transform` is available. It is learned by kernel ridge regression from the scores to the rows,
        on at most 10,000 of them. Sparse rows are not supported.
    {scale}
    solver : {"auto", "direct", "iterative"}, default="auto"
        How components are computed. "direct" computes all components in one pass and n M^2 time, "iterative" the first
        `n_components` in several passes of n M time each. "auto" is "iterative" if `n_components` is at most a twelfth
        of the number of centers.
    tol : float or None, default=None
        Tolerance at which "iterative" stops: the residual of the components, relative to the largest eigenvalue. The
        error of the eigenvalues is then of the order of its square. A `ConvergenceWarning` is given if that was not
        reached. None is 1e-4 in float32 and 1e-8 in float64.
    dtype : "auto", "float32" or "float64", default="auto"
        Precision of the kernel. "auto" is the precision of X. "direct" factors in float64.
    {memory_budget, device, n_jobs}
    random_state : int, RandomState or None, default=None
        Seed of the centers and of the first block of "iterative".

    Attributes
    ----------
    eigenvalues_ : array of shape (n_components_,)
        Eigenvalues of the centered kernel matrix of all rows, in decreasing order.
    explained_variance_ : array of shape (n_components_,)
        Mean squares of the scores of the training rows, `eigenvalues_` / n.
    explained_variance_ratio_ : array of shape (n_components_,)
        The same as shares of the variance of the rows in feature space, including the variance that the centers do not
        span.
    n_components_ : int
        Number of components.
    {centers_}
    dual_coef_ : array of shape (M, n_components_)
        Coefficients of the centers: scores are k(x, centers) dual_coef_ + offset_.
    offset_ : array of shape (n_components_,)
        Constants that center the scores.
    {kernel_}
    inverse_ : NystromRegressor or None
        The regression from scores to rows, with `fit_inverse_transform=True`.
    {mean_ scale_, n_features_in_, feature_names_in_}

    See Also
    --------
    KernelKMeans : Clusters in the same feature space.
    RandomFeatures : Columns whose inner products are the kernel, without looking at the rows.

    Notes
    -----
    The sign of a component is chosen such that the center with the largest absolute score has a positive one. "direct"
    takes memory for about 5 M^2 numbers.

    References
    ----------
    .. [1] Sterge, Sriperumbudur, Rosasco, Rudi, "Gain with no Pain: Efficiency of Kernel-PCA by Nyström Sampling",
       AISTATS 2020.

    Examples
    --------
    >>> from sklearn.datasets import make_circles
    >>> from gyrfalcon import KernelPCA
    >>> from gyrfalcon.kernels import Gaussian
    >>> X, y = make_circles(500, factor=0.3, noise=0.05, random_state=0)
    >>> pca = KernelPCA(2, kernel=Gaussian(1.0), n_centers=100, scale=False, random_state=0)
    >>> scores = pca.fit_transform(X)
    >>> scores.shape
    (500, 2)
    >>> bool(pca.explained_variance_ratio_.sum() > 0.6)
    True
    """

    takes_sparse = True

    eigenvalues_: Array
    explained_variance_: Array
    explained_variance_ratio_: Array
    n_components_: int
    inverse_: NystromRegressor | None

    def __init__(
        self,
        n_components: int | float | None = None,
        *,
        kernel: Kernel | str | KernelFunction = "gaussian",
        n_centers: int | None = None,
        centers: str | ArrayLike | Centers = "uniform",
        fit_inverse_transform: bool = False,
        scale: bool | str = "auto",
        solver: str = "auto",
        tol: float | None = None,
        dtype: DTypeLike = "auto",
        memory_budget: int | float | str = "auto",
        device: Any = None,
        n_jobs: int | None = None,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.n_components = n_components
        self.kernel = kernel
        self.n_centers = n_centers
        self.centers = centers
        self.fit_inverse_transform = fit_inverse_transform
        self.scale = scale
        self.solver = solver
        self.tol = tol
        self.dtype = dtype
        self.memory_budget = memory_budget
        self.device = device
        self.n_jobs = n_jobs
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> Self:
        """Find the components.

        Parameters
        ----------
        {unlabelled.X}
        y : ignored

        Returns
        -------
        self
        """
        check_parameters(
            self.get_params(deep=False),
            n_components=_components,
            solver=one_of("auto", "direct", "iterative"),
            fit_inverse_transform=boolean,
        )
        if self.solver == "iterative" and not isinstance(self.n_components, Integral):
            raise ValueError(
                f'solver="iterative" needs a number of components: n_components={self.n_components!r} is none; '
                'use solver="direct"'
            )
        with self._session() as session:
            data = unlabelled_data(self._reading, X, scratch=session.scratch)
            if self.fit_inverse_transform and data.rows.is_sparse:
                raise ValueError("fit_inverse_transform=True needs dense rows, and X is sparse: set it to False")
            space = self._subspace(data, session)
            found, whitening = self._solve(space, session)
            kept = self._kept(found, whitening, space)
            inverse = self._learn_inverse(space, kept, session) if self.fit_inverse_transform else None
            self._set_scaling(data)
            self._set_centers(space.operator.kernel, space.operator.centers)
            self.dual_coef_, self.offset_, self.n_components_ = kept.coef, kept.offset, len(kept.variance)
            self.explained_variance_, self.eigenvalues_ = kept.variance, kept.variance * data.rows.shape[0]
            self.explained_variance_ratio_, self.inverse_ = kept.ratio, inverse
        return self

    def _subspace(self, data: FitData, session: Session) -> Subspace:
        """Choose the centers and make the operator, if what the solver needs fits in memory beside it."""
        n, itemsize = data.rows.shape[0], data.rows.dtype.itemsize
        M = min(n, default_n_centers(n) if self.n_centers is None else int(self.n_centers))
        if isinstance(self.n_components, Integral) and self._iterates(M):
            columns = krylov_block(int(self.n_components))

            def held(M: int) -> int:
                """Blocks of the Krylov space and their images, for as many passes as are usual."""
                # fewer centers may be solved for directly, and the error says how many would fit
                return 2 * _BLOCKS_HELD * 8 * columns * M if self._iterates(M) else (_FACTORS - 1) * 8 * M * M

            needs = Needs(buffers=8 // itemsize, row_vectors=0, columns=columns, held=held)
        else:
            needs = Needs(buffers=_FACTORS * 8 // itemsize)
        settings = CenterSettings(self.kernel, self.n_centers, self.centers)
        return choose_subspace(settings, needs, data, self._compute, session.random_state)

    def _iterates(self, M: int) -> bool:
        """Whether to iterate for a few components instead of solving for all of them."""
        if self.solver != "auto" or not isinstance(self.n_components, Integral):
            return self.solver == "iterative"
        return M > _SMALL and _FEW * int(self.n_components) <= M

    def _solve(self, space: Subspace, session: Session) -> tuple[Components, Whitening]:
        operator, (n, M) = space.operator, space.operator.shape
        q = self.n_components
        if isinstance(q, Integral) and q > M:
            raise ValueError(f"n_components={q} must be at most the number of centers, {M}: raise n_centers")
        whitening = Whitening(
            operator.centers_gram(np.float64),
            n,
            tile_dtype=operator.dtype,
            n_jobs=self.n_jobs,
            devices=space.compute.devices,
        )
        if not self._iterates(M) or whitening.rank <= int(q or 0):
            return principal_components(operator, whitening), whitening
        tol = _TOLERANCES[operator.dtype] if self.tol is None else float(self.tol)
        found = largest_components(operator, whitening, int(q or 0), tol=tol, random_state=session.random_state)
        warn_if_components_unsettled(found.residual, tol, found.passes)
        return found, whitening

    def _kept(self, found: Components, whitening: Whitening, space: Subspace) -> _Kept:
        """Return the components that are asked for, as expansions of the centers."""
        operator, n = space.operator, space.operator.shape[0]
        diagonal = mean_diagonal(operator.kernel, operator.rows)
        total = max(0.0, diagonal - float(found.mean @ found.mean))
        # Rounding errors of tiles, of about eps k(x, x) in each of M x M numbers and of either sign, move eigenvalues
        # by about sqrt(M) of them. The bound of M of them would discard good components of float32.
        rounding = float(np.finfo(operator.dtype).eps) * np.sqrt(operator.shape[1]) * diagonal
        real = int((found.eigenvalues > rounding).sum())
        share = None
        if self.n_components is None:
            q = max(1, real)
        elif isinstance(self.n_components, Integral):
            q = int(self.n_components)
        else:
            share = float(self.n_components)
            q = max(1, min(real, 1 + int((found.eigenvalues.cumsum() < share * total).sum())))
        kept = min(q, real)
        if kept < q and n > 1:  # one row has none, and zeros are right
            warn_of_rounded_components(kept, q, operator.dtype)
        elif share is not None and found.eigenvalues.sum() < share * total - rounding * len(found.eigenvalues):
            warn_of_missed_share(float(found.eigenvalues.sum()) / total, share)
        variance, coef = np.zeros(q), np.zeros((operator.shape[1], q))
        variance[:kept] = found.eigenvalues[:kept]
        V = found.vectors[:, :kept]
        coef[:, :kept] = whitening.apply(V) * np.sqrt(whitening.n)
        offset = np.zeros(q)
        offset[:kept] = -(found.mean @ V)
        sign = _signs(operator, coef, offset)
        return _Kept(coef * sign, offset * sign, variance, variance / total if total > 0 else np.zeros(q))

    def _learn_inverse(self, space: Subspace, kept: _Kept, session: Session) -> NystromRegressor:
        """Learn the rows from their scores."""
        rows = space.operator.rows
        sample = rows.take(sample_rows(rows.shape[0], session.random_state))
        scores = with_offset(space.operator.on(sample).matmat(kept.coef), kept.offset).astype(np.float64)
        # half the typical distance of scores; a list of one value says that components may differ in size
        length = np.sqrt(float(scores.var(axis=0).sum()) / 2) or 1.0
        model = NystromRegressor(
            Gaussian(np.full(len(kept.variance), length)),
            n_centers=min(_INVERSE_CENTERS, len(scores)),
            penalties=np.logspace(-8, 0, 9),
            choose_by="loo",
            scale=False,
            n_jobs=self.n_jobs,
            random_state=session.random_state.randint(np.iinfo(np.int32).max),
        )
        return model.fit(scores, sample.astype(np.float64).reshape(len(sample), -1))

    @lazily
    def transform(self, X: Any) -> Array:
        """Return the scores of rows.

        Parameters
        ----------
        {rows.X}

        Returns
        -------
        array of shape (n, n_components_); a Dask array for a Dask collection
        """
        return self._values(X)

    @in_kind
    def inverse_transform(self, X: ArrayLike) -> Array:
        """Return rows whose scores are about those given: pre-images, which are not unique.

        Parameters
        ----------
        X : array of shape (n, n_components_)
            Scores.

        Returns
        -------
        array of shape (n, n_features_in_)
        """
        check_is_fitted(self)
        if self.inverse_ is None:
            raise NotFittedError("inverse_transform was not learnt: set fit_inverse_transform=True and fit again")
        scores = check_array(X, dtype=[np.float64, np.float32], ensure_min_features=0)
        if scores.shape[1] != self.n_components_:
            raise ValueError(f"X has {scores.shape[1]} columns: there are {self.n_components_} components")
        rows = self.inverse_.predict(scores.astype(np.float64)).reshape(len(scores), -1)
        if self.scale_ is not None:
            rows = rows * self.scale_ + (0.0 if self.mean_ is None else self.mean_)
        return np.asarray(rows, dtype=self.centers_.dtype)

    @property
    def _n_features_out(self) -> int:
        return self.n_components_

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def _check_loaded(self) -> None:
        super()._check_loaded()
        q = self.n_components_
        if self.dual_coef_.shape[1:] != (q,):
            raise ValueError(f"dual_coef_ has shape {self.dual_coef_.shape}, and there are {q} components")
        if not (self.inverse_ is None or isinstance(self.inverse_, NystromRegressor)):
            raise ValueError("inverse_ is no NystromRegressor")
        if self.inverse_ is not None and self.inverse_.n_features_in_ != q:
            raise ValueError(f"inverse_ takes {self.inverse_.n_features_in_} scores, and there are {q} components")


def _signs(operator: Operator, coef: Array, offset: Array) -> Array:
    """Return for each component 1, or -1 if the center with the largest score has a negative one."""
    scores = operator.on(operator.centers).matmat(coef).astype(np.float64) + offset
    largest = scores[np.abs(scores).argmax(axis=0), np.arange(scores.shape[1])]
    return np.where(largest < 0, -1.0, 1.0)
