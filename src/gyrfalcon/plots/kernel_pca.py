"""Scores of kernel PCA."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from .._utils.checks import integer
from .._utils.words import shown
from ..estimators import KernelPCA
from ..fitting.rows import computed
from ._drawing import BLUE, COLORS, GREEN, MAP, Display, column, count_steps
from ._fitted import find


class KernelPCADisplay(Display):
    """Two scores of each row, coloured by y if it is given, and the variance that components explain.

    Parameters
    ----------
    scores : array of shape (n, 2)
        Scores of two components.
    explained_variance_ratio : array of shape (q,), optional
        Shares of the variance, of all components.
    y : array of shape (n,), optional
        Classes or numbers that colour the rows: up to five values that differ, or text, are classes.
    components : tuple of two int, default=(0, 1)
        Which components the scores are of, counted from 0.

    Attributes
    ----------
    axes_, ax_, figure_ : array of Axes, Axes, Figure
        The panels, the first of them, and the figure.
    points_ : list of PathCollection
        The rows of each class, or all of them.
    share_line_ : Line2D or None
        Shares of the variance that the first components explain together.

    Examples
    --------
    >>> from sklearn.datasets import make_circles
    >>> from gyrfalcon import KernelPCA
    >>> from gyrfalcon.plots import KernelPCADisplay
    >>> X, y = make_circles(300, factor=0.3, noise=0.05, random_state=0)
    >>> display = KernelPCADisplay.from_estimator(KernelPCA(n_components=5, random_state=0).fit(X), X, y)
    >>> len(display.points_)  # one for each circle
    2
    """

    points_: list[Any]
    share_line_: Any

    def __init__(
        self,
        *,
        scores: ArrayLike,
        explained_variance_ratio: ArrayLike | None = None,
        y: ArrayLike | None = None,
        components: tuple[int, int] = (0, 1),
    ) -> None:
        self.scores = np.asarray(scores, dtype=np.float64)
        if self.scores.ndim != 2 or self.scores.shape[1] != 2:
            raise ValueError(f"scores must be of shape (n, 2), got {self.scores.shape}")
        self.explained_variance_ratio = (
            None if explained_variance_ratio is None else column("explained_variance_ratio", explained_variance_ratio)
        )
        self.y = None if y is None else np.asarray(y)
        if self.y is not None and self.y.shape != (len(self.scores),):
            raise ValueError(f"y must be of shape ({len(self.scores)},), got {self.y.shape}")
        self.components = components

    @classmethod
    def from_estimator(
        cls, estimator: Any, X: Any, y: Any = None, *, components: tuple[int, int] = (0, 1), ax: Any = None
    ) -> Self:
        """Draw the scores of rows.

        Parameters
        ----------
        estimator : fitted KernelPCA
            Or a pipeline or a search that ends with one.
        X : array, table, sparse matrix, source or Dask collection of shape (n, n_features)
            Rows; a sample is enough.
        y : array of shape (n,), optional
            Classes or numbers that colour them.
        components : tuple of two int, default=(0, 1)
            Which components to draw, counted from 0.
        ax : matplotlib.axes.Axes or list of two, optional
            Where to draw; see `plot`.

        Returns
        -------
        KernelPCADisplay
        """
        model, X = find(estimator, (KernelPCA,), cls, "a KernelPCA", X)
        q = model.n_components_
        if q < 2:
            raise ValueError(f"{cls.__name__} needs two components, and n_components_={q}: fit with n_components=2")
        pair = list(components)
        if len(pair) != 2:
            raise ValueError(f"components={shown(components)} must be two numbers")
        for one in pair:
            integer(0, q - 1)("components", one)
        return cls(
            scores=np.asarray(model.transform(X))[:, pair],
            explained_variance_ratio=model.explained_variance_ratio_,
            y=None if y is None else computed(y, X),
            components=(pair[0], pair[1]),
        ).plot(ax)

    def plot(self, ax: Any = None) -> Self:
        axes = self._open(ax, 1 if self.explained_variance_ratio is None else 2)
        self._points(axes[0])
        first, second = self.components
        axes[0].set(xlabel=f"component {first + 1}", ylabel=f"component {second + 1}")
        self.share_line_ = None
        if self.explained_variance_ratio is not None:
            together = np.cumsum(self.explained_variance_ratio)
            (self.share_line_,) = axes[1].plot(np.arange(1, len(together) + 1), together, ".-", color=GREEN)
            axes[1].set(xlabel="components", ylabel="explained share of the variance", ylim=(0.0, 1.02))
            count_steps(axes[1])
        return self

    def _points(self, ax: Any) -> None:
        """Draw the rows: a colour for each class, or a scale of colours for numbers."""
        if self.y is None:
            self.points_ = [ax.scatter(*self.scores.T, s=9, color=BLUE)]
            return
        classes = np.unique(self.y)
        if self.y.dtype.kind not in "OUSb" and len(classes) > len(COLORS):
            self.points_ = [ax.scatter(*self.scores.T, s=9, c=self.y, cmap=MAP)]
            self.figure_.colorbar(self.points_[0], ax=ax, label="y")
            return
        self.points_ = []
        for i, one in enumerate(classes):
            these = self.scores[self.y == one]
            color, marker = COLORS[i % len(COLORS)], "o^sDv"[i // len(COLORS) % 5]
            self.points_.append(ax.scatter(*these.T, s=12, color=color, marker=marker, label=str(one)))
        ax.legend(title="y", markerscale=1.5)
