"""Where the centers are among the rows."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import scipy.sparse
from sklearn.decomposition import PCA
from sklearn.utils import check_random_state

from .._utils.checks import integer
from .._utils.words import plural
from ._drawing import GREY, ORANGE, Array, Display
from ._fitted import ON_CENTERS, ON_CENTERS_WORDS, feature_names, find


class CentersDisplay(Display):
    """The centers over the rows, in two dimensions.

    Parameters
    ----------
    points : array of shape (n, 2)
        Rows.
    centers : array of shape (M, 2)
        Centers.
    names : tuple of two str
        Titles of the axes.

    Attributes
    ----------
    ax_, axes_, figure_ : Axes, array of Axes, Figure
        Where it was drawn.
    points_, centers_ : Line2D
        The rows and the centers.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon import FalkonRegressor
    >>> from gyrfalcon.plots import CentersDisplay
    >>> X = np.random.default_rng(0).standard_normal((500, 2))
    >>> model = FalkonRegressor(n_centers=20, random_state=0).fit(X, X[:, 0] ** 2)
    >>> CentersDisplay.from_estimator(model, X).centers.shape
    (20, 2)
    """

    points_: Any
    centers_: Any

    def __init__(self, *, points: Any, centers: Any, names: tuple[str, str] = ("feature 0", "feature 1")) -> None:
        self.points, self.centers = (np.asarray(given, dtype=np.float64) for given in (points, centers))
        for name, given in (("points", self.points), ("centers", self.centers)):
            if given.ndim != 2 or given.shape[1] != 2:
                raise ValueError(f"{name} must be of shape (n, 2), got {given.shape}")
        self.names = names

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: Any, *, max_rows: int = 3_000, random_state: Any = 0, ax: Any = None
    ) -> Self:
        """Draw the centers of an estimator over rows.

        Two features are drawn in their own units. With more features, the first two principal components of the rows
        are drawn, after scaling if the estimator scales the rows.

        Parameters
        ----------
        estimator : fitted estimator with Nyström centers
            Or a pipeline or a search that ends with one.
        X : array, table, sparse matrix, source or Dask collection of shape (n, n_features)
            The rows, as they were given to `fit`.
        max_rows : int, default=3000
            Maximum number of rows to draw, chosen at random.
        random_state : int, RandomState or None, default=0
            Seed of the rows that are drawn.
        ax : matplotlib.axes.Axes, optional
            Where to draw; by default in a new figure.

        Returns
        -------
        CentersDisplay
        """
        integer(2)("max_rows", max_rows)
        model, X = find(estimator, ON_CENTERS, cls, ON_CENTERS_WORDS, X)
        if model.n_features_in_ < 2:
            raise ValueError(f"{cls.__name__} needs at least two features, and the estimator was fitted to one")
        rows = model._scaled_rows(X, model.centers_.dtype)
        n = rows.shape[0]
        chosen = np.sort(check_random_state(random_state).permutation(n)[:max_rows])
        if n < 2 < model.n_features_in_:
            raise ValueError(
                f"X has {n} row, which has no principal components: of more than two features {cls.__name__} needs at "
                "least two rows, such as those given to fit"
            )
        points, centers, (first, second, *_) = rows.take(chosen), model.centers_, feature_names(model)
        if model.n_features_in_ > 2:
            points, centers, (first, second) = _principal(points, centers)
        else:
            points, centers = (_in_units(part, model) for part in (points, centers))
        return cls(points=points, centers=centers, names=(first, second)).plot(ax)

    def plot(self, ax: Any = None) -> Self:
        (axes,) = self._open(ax)
        count = plural(len(self.centers), "center")
        (self.points_,) = axes.plot(*self.points.T, ".", color=GREY, alpha=0.45, markersize=3, label="rows")
        (self.centers_,) = axes.plot(
            *self.centers.T, "o", color=ORANGE, markersize=5, markeredgecolor="white", markeredgewidth=0.6, label=count
        )
        axes.set(xlabel=self.names[0], ylabel=self.names[1])
        axes.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2, borderaxespad=0.2, frameon=False)
        return self


def _principal(points: Any, centers: Any) -> tuple[Array, Array, tuple[str, str]]:
    """Return the first two principal components of points and centers, and their names."""
    sparse = scipy.sparse.issparse(points)
    if sparse and points.shape[0] == 2:  # ARPACK finds fewer components than there are rows
        points, sparse = points.toarray(), False
    pca = PCA(2, svd_solver="arpack" if sparse else "auto", random_state=0)
    with np.errstate(invalid="ignore"):  # rows that are all the same have no variance to share
        drawn = pca.fit_transform(points)
    first, second = (f"{share:.0%} of the variance" for share in np.nan_to_num(pca.explained_variance_ratio_))
    return drawn, pca.transform(centers), (f"principal component 1: {first}", f"principal component 2: {second}")


def _in_units(values: Any, model: Any) -> Array:
    """Undo the scaling of features."""
    dense: Array = np.asarray(values.toarray() if scipy.sparse.issparse(values) else values, dtype=np.float64)
    if model.scale_ is not None:
        dense = dense * model.scale_
    return dense if model.mean_ is None else dense + model.mean_
