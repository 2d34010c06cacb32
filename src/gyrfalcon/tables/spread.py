"""How large errors are from row to row, so that prediction intervals follow the noise.

A Nyström model of log|error| is learnt from predictions for held-out rows. Intervals are a quantile of |error| / scale
times the scale of a row, as in conformal prediction with normalised scores (Lei et al. 2018). The scores are
cross-fitted: the scale of a row comes from a model of other rows. Where the scale does not make intervals narrower on
average, they have the same width everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .._utils.checks import array
from .._utils.registry import register
from .._utils.threads import single_threaded_blas
from ..estimators import NystromRegressor
from ..kernels import Laplacian
from ..sources.memory import MetricArray

Array = NDArray[Any]

_FEWEST = 200  # held-out rows from which on a scale is learnt
_MOST = 10_000  # rows that it is learnt from
_FOLDS = 5
_CENTERS = 300
_FLOOR = 0.1  # added to each error, in units of their median, so that an error of 0 has a logarithm
_JUDGED = 0.9  # coverage at which widths are compared
_NARROWER = 0.98  # mean width, relative to that of a constant one, from which on the scale is used


@register
@dataclass(frozen=True, eq=False)
class Spread:
    """The scale of the errors of one output as a function of the row, and the scores of held-out rows.

    model : predicts the logarithm of the scale
    scores : sorted |error| / scale of held-out rows
    limits : the least and the largest logarithm of the scale among them, which new rows do not exceed
    """

    model: NystromRegressor
    scores: Array
    limits: Array

    def __post_init__(self) -> None:
        if not isinstance(self.model, NystromRegressor):
            raise ValueError("model is not a NystromRegressor")
        array((None,))("scores", self.scores)
        array((2,))("limits", self.limits)
        if not len(self.scores) or (np.diff(self.scores) < 0).any() or self.scores[0] < 0:
            raise ValueError("scores are not sorted, or negative")

    def get_params(self, deep: bool = False) -> dict[str, Any]:
        """Return what a model file holds."""
        return dict(vars(self))

    def width(self, features: Array, coverage: float) -> Array:
        """Return half the width of the interval of each row, of shape (n,)."""
        m = len(self.scores)
        score = self.scores[min(m - 1, int(np.ceil((m + 1) * coverage)) - 1)]
        return np.asarray(score * np.exp(np.clip(self.model.predict(features), *self.limits)))


def learn_spread(features: Array, errors: Array, ratio: Array) -> Spread | None:
    """Learn the scale of errors; None if there are too few rows, or a constant width is as good.

    Parameters
    ----------
    features : array of shape (m, p)
        Of held-out rows, in comparable units.
    errors : array of shape (m,)
        Their absolute errors.
    ratio : array of shape (q,)
        By which the quantiles of the scores are multiplied, at q levels from 0 to 1.
    """
    m = len(errors)
    middle = float(np.median(errors)) if m else 0.0
    if m < _FEWEST or not middle > 0:
        return None
    order = np.random.RandomState(0).permutation(m)[:_MOST]
    features, errors = np.ascontiguousarray(features[order], dtype=np.float64).view(MetricArray), errors[order]
    target, fold = np.log(errors + _FLOOR * middle), np.arange(len(errors)) % _FOLDS
    scale = np.empty(len(errors))
    for k in range(_FOLDS):
        scale[fold == k] = _fit(features[fold != k], target[fold != k]).predict(features[fold == k])
    limits = np.array([scale.min(), scale.max()])
    scores = np.sort(errors / np.exp(scale))
    width = np.quantile(scores, _JUDGED) * np.exp(scale).mean()
    if width > _NARROWER * np.quantile(errors, _JUDGED):
        return None
    shares = np.linspace(0, 1, len(scores))
    scores = np.maximum.accumulate(scores * np.interp(shares, np.linspace(0, 1, len(ratio)), ratio))
    return Spread(_fit(features, target), scores, limits)


def _fit(features: Array, target: Array) -> NystromRegressor:
    penalties = np.logspace(-5, 0, 11)
    model = NystromRegressor(Laplacian(), n_centers=_CENTERS, penalties=penalties, choose_by="gcv", random_state=0)
    with single_threaded_blas():  # threads of BLAS would wait for each other longer than such a fit takes
        return model.fit(features, target)
