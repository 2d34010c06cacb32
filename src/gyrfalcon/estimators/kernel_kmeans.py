"""k-means in the kernel's feature space, with Nyström centers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Self

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike, DTypeLike, NDArray
from sklearn.utils.validation import check_is_fitted

from .._utils.checks import integer, not_negative
from .._utils.registry import register
from .._utils.sampling import draw
from .._utils.words import shown
from ..callbacks import CallbackLike
from ..centers import Centers, KMeansPlusPlus
from ..fitting.arguments import described
from ..fitting.convergence import warn_if_clusters_unsettled
from ..fitting.data import FitData, unlabelled_data
from ..fitting.parameters import check_parameters
from ..fitting.plan import Needs
from ..fitting.rows import at_once, computed, more_rows, scaled
from ..fitting.session import Session
from ..fitting.subspace import CenterSettings, Subspace, choose_subspace
from ..fitting.weights import Counted, count
from ..kernels import Kernel, KernelFunction
from ..operators import Operator, make_operator
from ..operators.diagonal import kernel_diagonal
from ..preconditioners import Whitening
from ..solvers import Clustering, Lloyd, approach, approach_bytes, features_of
from ..sources import Rows, as_rows, columns
from ._base import KernelEstimator, with_offset
from ._lazy import lazily
from ._sklearn import ClusterMixin, TransformerMixin

Array = NDArray[Any]

_SAMPLE = 10_000  # least number of rows of the sample that decides between the starts
_SAMPLE_PER_CLUSTER = 100


def _init(name: str, value: Any) -> None:
    """Require "k-means++", "random" or points."""
    if isinstance(value, str) and value not in ("k-means++", "random"):
        raise ValueError(f'{name}={shown(value)} must be "k-means++", "random" or an array of n_clusters points')


@register
@described
class KernelKMeans(ClusterMixin, TransformerMixin, KernelEstimator):
    """k-means in the kernel's feature space, on Nyström centers, for clusters whose borders need not be straight.

    This is Lloyd's algorithm on the projections of the rows onto the span of M centers [1]_, which are never stored: an
    iteration is one pass over the rows. With every row as a center it is exact kernel k-means.

    Parameters
    ----------
    n_clusters : int, default=8
        Number of clusters k.
    {kernel, n_centers, centers}
    init : {"k-means++", "random"} or array of shape (n_clusters, n_features), default="k-means++"
        Initial centroids. "k-means++" draws rows of a sample in proportion to squared distances in feature space, and
        "random" draws rows uniformly. They can also be given as an array, in the units of X.
    n_init : int, default=3
        Number of initialisations, of which the best result is kept. More of them make a poor local optimum less likely.
        They share the passes over the rows. With many rows, they are compared on a sample of 10,000 rows (or of 100 for
        each cluster), and the best one continues with all rows. Given centroids are a single initialisation, with all
        rows.
    {scale}
    max_iter : int, default=300
        Maximum number of iterations, each of them a pass over the rows.
    tol : float, default=0.0001
        Tolerance at which the fit stops: when the sum of the squared moves of the centroids is less than this fraction
        of the variance of the rows in feature space. With 0 it stops when no label changes.
    dtype : "auto", "float32" or "float64", default="auto"
        Precision of the kernel. "auto" is the precision of X.
    {memory_budget, device, n_jobs}
    random_state : int, RandomState or None, default=None
        Seed of the centers and of the rows to start from.
    {callbacks, verbose}

    Attributes
    ----------
    labels_ : array of shape (n,)
        The cluster of each row. Rows with weight 0 take no part in the fit, and get the nearest cluster.
    inertia_ : float
        Sum of the squared distances of rows to their centroids in feature space; sample weights count as weights of
        mean 1 over the rows whose weight is positive.
    n_iter_ : int
        Number of iterations of the best start.
    history_ : list of dict
        For each iteration: `iteration`, `inertia` of the best start, `moved` (squared moves of centroids as a share of
        the variance), `running` (starts that have not converged) and `seconds`.
    centers_ : array of shape (M, n_features_in_)
        The Nyström centers. Centroids are not rows: they are combinations of these centers in feature space.
    dual_coef_ : array of shape (M, n_clusters)
        Coefficients of the centroids.
    offset_ : array of shape (n_clusters,)
        Minus half the squared norms of the centroids: the nearest has the largest k(x, centers) dual_coef_ + offset_.
    {kernel_, mean_ scale_, n_features_in_, feature_names_in_}

    See Also
    --------
    KernelPCA : Columns that describe the rows in the same feature space.

    Notes
    -----
    Distances include the part of a row that the centers cannot represent, which is the same for all centroids. A
    cluster that becomes empty takes the row whose projection is farthest from its centroid; it stays empty, with a
    warning, if the centers do not distinguish any such row.

    References
    ----------
    .. [1] Calandriello, Rosasco, "Statistical and Computational Trade-Offs in Kernel K-Means", NeurIPS 2018.

    Examples
    --------
    >>> from sklearn.datasets import make_circles
    >>> from sklearn.metrics import adjusted_rand_score
    >>> from gyrfalcon import KernelKMeans
    >>> X, y = make_circles(500, factor=0.3, noise=0.05, random_state=0)
    >>> model = KernelKMeans(2, n_centers=100, random_state=0).fit(X)
    >>> adjusted_rand_score(y, model.labels_)
    1.0
    """

    takes_sparse = True

    labels_: Array
    inertia_: float

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        kernel: Kernel | str | KernelFunction = "gaussian",
        n_centers: int | None = None,
        centers: str | ArrayLike | Centers = "uniform",
        init: str | ArrayLike = "k-means++",
        n_init: int = 3,
        scale: bool | str = "auto",
        max_iter: int = 300,
        tol: float = 1e-4,
        dtype: DTypeLike = "auto",
        memory_budget: int | float | str = "auto",
        device: Any = None,
        n_jobs: int | None = None,
        random_state: int | np.random.RandomState | None = None,
        callbacks: CallbackLike | Iterable[CallbackLike] | None = None,
        verbose: int = 0,
    ) -> None:
        self.n_clusters = n_clusters
        self.kernel = kernel
        self.n_centers = n_centers
        self.centers = centers
        self.init = init
        self.n_init = n_init
        self.scale = scale
        self.max_iter = max_iter
        self.tol = tol
        self.dtype = dtype
        self.memory_budget = memory_budget
        self.device = device
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.callbacks = callbacks
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None, sample_weight: ArrayLike | None = None) -> Self:
        """Find the clusters.

        Parameters
        ----------
        {unlabelled.X}
        y : ignored
        {unlabelled.sample_weight}

        Returns
        -------
        self
        """
        check_parameters(
            self.get_params(deep=False), n_clusters=integer(1), init=_init, n_init=integer(1), tol=not_negative()
        )
        with self._session() as session:
            data = unlabelled_data(self._reading, X, sample_weight, scratch=session.scratch)
            n, k = data.rows.shape[0], int(self.n_clusters)
            if k > n:
                raise ValueError(f"n_clusters={k} must be at most the number of rows with positive weight, {n}")
            starts = int(self.n_init) if isinstance(self.init, str) else 1
            # labels of two iterations and the nearest values, two vectors of distances and weights, and the sample
            width = 0 if data.rows.is_sparse else data.rows.shape[1]
            long = n >= columns.LONG and not (data.rows.in_memory or data.rows.runs_elsewhere)  # these are in files
            held = (0 if long else n * (16 * starts + 24)) + 2 * 8 * min(n, _sample_size(k)) * width
            needs = Needs(buffers=8 // data.rows.dtype.itemsize, row_vectors=0, columns=starts * k, held=lambda M: held)
            settings = CenterSettings(self.kernel, self.n_centers, self.centers)
            space = choose_subspace(settings, needs, data, self._compute, session.random_state)
            operator = space.operator
            whitening = Whitening(
                operator.centers_gram(np.float64),
                n,
                tile_dtype=operator.dtype,
                n_jobs=self.n_jobs,
                devices=space.compute.devices,
            )
            diagonal = kernel_diagonal(operator.kernel, operator.rows)
            centroids = self._starts(space, whitening, starts, diagonal, session.random_state)
            session.start(data, max_iter=self.max_iter, n_centers=operator.shape[1])
            weight, tol = space.data.weight, float(self.tol)
            lloyd = Lloyd(operator, whitening, centroids, k, diagonal, weight, tol=tol, in_file=long)
            found = _run(lloyd, self.max_iter, session)
            warn_if_clusters_unsettled(found, k, self.max_iter, few_centers=operator.shape[1] < n)
            offset = -found.squares / 2
            labels = found.labels.copy() if isinstance(found.labels, np.ndarray) else found.labels.mapped()[:, 0]
            if data.counted is not None and data.counted.positions is not None:
                others = operator.on(self._left_out(X, data, data.counted))
                labels = data.counted.spread(labels, _nearest(others, found.coef, offset))
            self._set_scaling(data)
            self._set_centers(operator.kernel, operator.centers)
            self.dual_coef_, self.offset_, self.labels_ = found.coef, offset, labels
            self.inertia_, self.n_iter_ = found.inertia, found.iteration
            self.history_ = session.history
        return self

    def _left_out(self, X: Any, data: FitData, counted: Counted) -> Rows:
        """Return the rows of weight 0, as the kernel sees them."""
        rows = more_rows(self._reading, data.features, X, standardised=data.scale is not None)
        return scaled(rows.subset(counted.left_out), data.mean, data.scale, data.rows.dtype)

    def _starts(
        self, space: Subspace, whitening: Whitening, starts: int, diagonal: Array, random_state: np.random.RandomState
    ) -> Array:
        """Return the centroids to start from, of shape (rank, starts * k), or those of the best start on a sample."""
        operator, weight, k = space.operator, space.data.weight, int(self.n_clusters)
        n = operator.shape[0]
        if not isinstance(self.init, str):
            return features_of(operator, whitening, self._given(space))
        size = _sample_size(k)
        if n <= 2 * size:
            return self._drawn(operator, whitening, starts, random_state)
        chosen = draw(n, size, random_state)
        rows, budget = as_rows(operator.rows.take(chosen)), max(0, space.budget - operator.kept_bytes)
        sample = make_operator(
            operator.kernel, rows, operator.centers, n_jobs=self.n_jobs, memory_budget=budget, device=self.device
        )
        first = self._drawn(sample, whitening, starts, random_state)
        some = None if weight is None else weight[chosen]
        lloyd = Lloyd(sample, whitening, first, k, diagonal[chosen], some, tol=float(self.tol))
        found = _run(lloyd, self.max_iter).centroids
        if approach_bytes(operator, k) > space.spare:
            return found
        return approach(operator, whitening, found, diagonal, weight, float(self.tol), self.max_iter, random_state)

    def _drawn(
        self, operator: Operator, whitening: Whitening, starts: int, random_state: np.random.RandomState
    ) -> Array:
        """Draw rows to start from, and return their features."""
        k, parts = int(self.n_clusters), []
        for _ in range(starts):
            if self.init == "random":
                points = operator.rows.take(draw(operator.shape[0], k, random_state))
            else:
                chosen = KMeansPlusPlus().select(
                    operator.rows, k, kernel=operator.kernel, penalty=0.0, random_state=random_state, n_jobs=self.n_jobs
                )
                points = chosen.points
            F = features_of(operator, whitening, points)
            parts.append(F[:, np.arange(k) % F.shape[1]])  # there may be fewer distinct rows than clusters
        return np.hstack(parts)

    def _given(self, space: Subspace) -> Any:
        """Return the points to start from as the kernel sees them."""
        data = space.data
        rows = more_rows(self._reading, data.features, self.init, "init", standardised=data.scale is not None)
        if rows.shape[0] != self.n_clusters:
            raise ValueError(f"init has {rows.shape[0]} points, and n_clusters={self.n_clusters}: give one for each")
        points = scaled(rows, data.mean, data.scale, space.operator.dtype).take(np.arange(rows.shape[0]))
        sparse = scipy.sparse.issparse(space.operator.centers)
        if sparse == scipy.sparse.issparse(points):
            return points
        return scipy.sparse.csr_array(points) if sparse else points.toarray()

    @lazily
    def predict(self, X: Any) -> Array:
        """Return the nearest cluster of each row.

        Parameters
        ----------
        {rows.X}

        Returns
        -------
        array of shape (n,); a Dask array for a Dask collection
        """
        return _nearest(self._operator(X), self.dual_coef_, self.offset_)

    @lazily
    def transform(self, X: Any) -> Array:
        """Return the distances of rows to the centroids, in feature space.

        Parameters
        ----------
        {rows.X}

        Returns
        -------
        array of shape (n, n_clusters); a Dask array for a Dask collection
        """
        return np.sqrt(self._squared_distances(self._operator(X)))

    def score(self, X: Any, y: Any = None, sample_weight: ArrayLike | None = None) -> float:
        """Return minus the sum of the squared distances of rows to their nearest centroids, in feature space.

        Parameters
        ----------
        {score.X}
        y : ignored
        sample_weight : array of shape (n,), optional
            Counted as weights of mean 1, as in `inertia_`.

        Returns
        -------
        float
        """
        operator = self._operator(at_once(X))
        nearest = self._squared_distances(operator).min(axis=1).astype(np.float64)
        counted = count(computed(sample_weight, operator.rows), len(nearest))
        nearest, weight = counted.among(nearest), counted.weight
        return -float(nearest.sum() if weight is None else nearest @ (weight / weight.mean()))

    def _squared_distances(self, operator: Operator) -> Array:
        """Return squared distances to the centroids, of shape (n, k); rounding can make no negative ones."""
        values = self._from_offset(operator.matmat(self.dual_coef_))
        diagonal = kernel_diagonal(operator.kernel, operator.rows)[:, None]
        return np.maximum(diagonal - 2.0 * values, 0.0).astype(values.dtype)

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """Return the names of the columns that `transform` gives.

        Parameters
        ----------
        input_features : ignored

        Returns
        -------
        array of str
        """
        check_is_fitted(self)
        return np.asarray([f"kernelkmeans{j}" for j in range(self.dual_coef_.shape[1])], dtype=object)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def _check_loaded(self) -> None:
        super()._check_loaded()
        if self.dual_coef_.ndim != 2:
            raise ValueError(f"dual_coef_ has shape {self.dual_coef_.shape}: it needs a column for each cluster")


def _nearest(operator: Operator, coef: Array, offset: Array) -> Array:
    """Return the number of the nearest cluster of each row."""
    labels: Array = with_offset(operator.image(coef), offset).argmax(axis=1).astype(np.int32)
    return labels


def _sample_size(n_clusters: int) -> int:
    """Return how many rows decide between the starts."""
    return max(_SAMPLE, _SAMPLE_PER_CLUSTER * n_clusters)


def _run(lloyd: Lloyd, max_iter: int, session: Session | None = None) -> Clustering:
    """Run Lloyd's algorithm to its end, or until a callback stops it."""
    stop = False
    while lloyd.running and lloyd.iteration < max_iter and not stop:
        lloyd.step()
        assert lloyd.best is not None
        if session is not None:
            record = {"inertia": lloyd.best.inertia, "moved": lloyd.moved, "running": lloyd.running}
            stop = session.record({"iteration": lloyd.iteration, **record})
    assert lloyd.best is not None
    return lloyd.best
