"""Which features matter, and the metric that was learnt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from .._utils.checks import integer
from ..estimators import LearnedMetric
from ..tables import AutoClassifier, AutoRegressor
from ._drawing import BLUE, GREEN, Display, column
from ._fitted import feature_names, find


class ImportanceDisplay(Display):
    """Importances of features as bars, the largest on top, and beside them the metric that was learnt, if any.

    Parameters
    ----------
    importances : array of shape (d,)
        Shares of importance.
    names : list of str, optional
        Names of the features.
    metric : array of shape (d,) or (d, d), optional
        What features are multiplied with, or the matrix that rows are multiplied with.
    max_features : int, default=20
        Maximum number of features to draw; those with the largest importances.

    Attributes
    ----------
    order : array of int
        The features that are drawn, the most important first.
    axes_, ax_, figure_ : array of Axes, Axes, Figure
        The panels, the first of them, and the figure.
    bars_ : BarContainer
        The importances.
    metric_ : BarContainer, AxesImage or None
        The scales as bars, or the matrix as an image.

    Examples
    --------
    >>> from gyrfalcon.plots import ImportanceDisplay
    >>> display = ImportanceDisplay(importances=[0.2, 0.7, 0.1], names=["age", "height", "day"])
    >>> [display.names[i] for i in display.order]
    ['height', 'age', 'day']
    """

    bars_: Any
    metric_: Any

    def __init__(
        self,
        *,
        importances: ArrayLike,
        names: Sequence[str] | None = None,
        metric: ArrayLike | None = None,
        max_features: int = 20,
    ) -> None:
        integer(1)("max_features", max_features)
        self.importances = column("importances", importances)
        d = len(self.importances)
        self.names = [f"feature {i}" for i in range(d)] if names is None else [str(name) for name in names]
        if len(self.names) != d:
            raise ValueError(f"names has {len(self.names)} entries, and there are {d} importances")
        self.metric = None if metric is None else np.asarray(metric, dtype=np.float64)
        if self.metric is not None and self.metric.shape not in ((d,), (d, d)):
            raise ValueError(f"metric must be of shape ({d},) or ({d}, {d}), got {self.metric.shape}")
        self.max_features = max_features
        self.order = np.argsort(-self.importances, kind="stable")[:max_features]

    @classmethod
    def from_estimator(cls, estimator: Any, *, max_features: int = 20, ax: Any = None) -> Self:
        """Draw the importances of an estimator, and its metric.

        Parameters
        ----------
        estimator : fitted LearnedMetric, AutoRegressor or AutoClassifier
            Or a pipeline with one of them, or a search of one.
        max_features : int, default=20
            Maximum number of features to draw.
        ax : matplotlib.axes.Axes or list of them, optional
            Where to draw; see `plot`.

        Returns
        -------
        ImportanceDisplay
        """
        kinds = (LearnedMetric, AutoRegressor, AutoClassifier)
        model, _ = find(estimator, kinds, cls, "a LearnedMetric, an AutoRegressor or an AutoClassifier")
        metric = None
        if isinstance(model, LearnedMetric):
            metric = model.scales_ if model.matrix_ is None else model.matrix_
        return cls(
            importances=model.feature_importances_, names=feature_names(model), metric=metric, max_features=max_features
        ).plot(ax)

    def plot(self, ax: Any = None) -> Self:
        axes = self._open(ax, 1 if self.metric is None else 2)
        if ax is None:
            self.figure_.set_figheight(max(self.figure_.get_figheight(), 0.27 * len(self.order) + 1.0))
        names, places = [self.names[i] for i in self.order], np.arange(len(self.order))
        self.bars_ = axes[0].barh(places, self.importances[self.order], color=BLUE)
        self.metric_ = None
        axes[0].set(xlabel="share of importance")
        if self.metric is not None and self.metric.ndim == 1:
            self.metric_ = axes[1].barh(places, self.metric[self.order], color=GREEN)
            axes[1].set(xlabel="scale in the learnt metric")
        elif self.metric is not None:
            part = self.metric[np.ix_(self.order, self.order)]
            most = float(np.abs(part).max()) or 1.0
            self.metric_ = axes[1].imshow(part, cmap="PuOr", vmin=-most, vmax=most, aspect="auto")
            self.figure_.colorbar(self.metric_, ax=axes[1], label="entry of the learnt matrix")
            axes[1].set_xticks(places, labels=names, rotation=90)
        for one in axes:
            one.set_yticks(places, labels=names)
            one.grid(visible=False, axis="y")
            one.set_ylim(len(places) - 0.5, -0.5)
        if self.metric is not None and self.metric.ndim == 2:
            axes[1].grid(visible=False)
        return self
