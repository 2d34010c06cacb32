"""Regression on a table as it is."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.compose import TransformedTargetRegressor
from sklearn.preprocessing import FunctionTransformer, StandardScaler
from sklearn.utils.validation import _num_samples, check_is_fitted

from .._utils.checks import boolean, number
from .._utils.registry import register
from ..callbacks import CallbackLike
from ..estimators._estimator import Estimator
from ..estimators._lazy import in_kind, lazily
from ..estimators._sklearn import MultiOutputMixin, RegressorMixin
from ..fitting.explained import ExpansionPart
from ..fitting.rows import computed, labelled
from ..fitting.weights import count
from ..sources import as_table
from ..storage.checkpoints import Checkpoint
from ._auto import AutoEstimator, described
from .encoder import TableEncoder
from .forms import NumberForm
from .inputs import as_inputs, as_table_or_files, text_columns
from .learning import Learnt
from .problems import REGRESSORS, Regression
from .reach import Reach, reach_rows
from .scoring import metric_of
from .spread import Spread, learn_spread
from .stored import check_floats, check_model
from .targets import in_form, regression_targets, row_weights
from .training import TrainingData
from .transforms import LogTarget, Target

Array = NDArray[Any]

_KEPT_RESIDUALS = 10_000  # most residuals that a model keeps
_BLOCK = 65_536  # rows for which intervals are widened at once


@register
@described
class AutoRegressor(MultiOutputMixin, RegressorMixin, AutoEstimator):
    """Regression on a table as it is, with nothing to choose.

    It accepts tables of pandas, polars and pyarrow, opened files (`gyrfalcon.open`), Dask dataframes and arrays, with
    categories, strings, dates and missing values. It encodes the columns (`TableEncoder`), learns from the gradient of
    a fit which of them matter [1]_, chooses kernels, length scales and penalties on held-out rows of samples, fits the
    best candidates to all rows (with every row as a center if there is time, otherwise by FALKON [2]_), and averages
    them with gradient-boosted trees and a linear model.

    Parameters
    ----------
    {auto.time_budget, auto.scoring, auto.families, auto.cv, auto.checkpoint, auto.memory_budget, auto.device, n_jobs,
    auto.random_state, auto.callbacks, auto.verbose}

    Attributes
    ----------
    candidates_ : list of dict
        The candidates that were tried: `stage` ("search", "larger sample", "all rows", "all rows, few centers", "all
        rows, trees" or "all rows, linear"), `encoding`, `kernel` (of trees: "trees" and their leaves, of linear
        models: "linear", both with a length scale and a penalty of 0), `target` (y or log y), `round` of the metric,
        `metric` ("scales" of the columns or "matrix"), `length_scale` in units of half the typical distance,
        `penalty`, `error` (root mean squared error on held-out rows, in standard deviations of y) and `seconds`.
        ``pandas.DataFrame(model.candidates_)`` is a table.
    {auto.feature_importances_, auto.feature_slopes_, auto.best_estimator_, auto.weights_}
    encoders_, mixings_, models_ : list
        The parts: a fitted `TableEncoder`, a `Mixing` if the metric is a matrix (else None), and a fitted
        `ExactRegressor`, `FalkonRegressor`, `HierarchicalRegressor`, `BoostedRegressor` or `LinearRegressor`, for each
        model.
    shift_, unit_ : arrays of shape (n_outputs,)
        Models learn (y - shift_) / unit_. These are 0 and 1, unless y is too large, too small or too far from zero for
        float32 to distinguish its values.
    residuals_ : array of shape (m, n_outputs)
        Sorted absolute errors of predictions for held-out rows, or of fitted rows if these are larger. They are used by
        `predict_interval`.
    target_form_ : NumberForm or None
        How y was written, if it was given as text such as "1,234.50 €"; predictions are numbers. See `TableEncoder`.
    range_ : array of shape (2, n_outputs)
        The smallest and the largest y of the training rows. Predictions are clipped to this range, also for rows
        outside the range of the training rows.
    spreads_ : list of Spread or None
        For each output, the scale of errors as a function of the row; None for a constant width.
    reach_ : Reach
        How far rows are from the training rows, for `predict_interval`.
    {auto.n_features_in_, auto.feature_names_in_}

    See Also
    --------
    AutoClassifier : The same for classes.
    FalkonRegressor : A single model, with parameters that you choose.
    LearnedMetric : The scales of features alone.

    Notes
    -----
    After Ctrl-C in `fit`, the estimator holds the best models found so far, and can predict. If there are none yet, it
    is as it was before: a fitted estimator keeps its earlier model, and any other is not fitted.

    References
    ----------
    .. [1] Radhakrishnan, Beaglehole, Pandit, Belkin, "Mechanism for feature learning in neural networks and
       backpropagation-free machine learning models", Science 2024.
    .. [2] Rudi, Carratino, Rosasco, "FALKON: An Optimal Large Scale Kernel Method", NeurIPS 2017.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from gyrfalcon import AutoRegressor
    >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
    >>> model = AutoRegressor(time_budget=2, random_state=0).fit(X[:350], y[:350])
    >>> bool(model.score(X[350:], y[350:]) > 0.4)
    True
    >>> low, high = model.predict_interval(X[350:], coverage=0.9).T
    >>> bool(0.8 < ((low <= y[350:]) & (y[350:] <= high)).mean())
    True
    """

    residuals_: Array
    range_: Array
    reach_: Reach
    spreads_: list[Spread | None]
    one_column_: bool
    target_form_: NumberForm | None
    shift_: Array
    unit_: Array

    def __init__(
        self,
        time_budget: float = 60,
        *,
        scoring: Any = None,
        families: tuple[str, ...] = ("kernel", "trees", "linear"),
        cv: Any = 5,
        checkpoint: str | os.PathLike[str] | Checkpoint | None = None,
        memory_budget: int | float | str = "auto",
        device: Any = None,
        n_jobs: int | None = None,
        random_state: int | np.random.RandomState | None = None,
        callbacks: CallbackLike | Iterable[CallbackLike] | None = None,
        verbose: int = 0,
    ) -> None:
        self.time_budget = time_budget
        self.scoring = scoring
        self.families = families
        self.cv = cv
        self.checkpoint = checkpoint
        self.memory_budget = memory_budget
        self.device = device
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.callbacks = callbacks
        self.verbose = verbose

    def fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        X_val: Any = None,
        y_val: Any = None,
    ) -> Self:
        """Learn from a table.

        Parameters
        ----------
        {auto.X}
        y : array of shape (n,) or (n, n_outputs)
            Targets; by default those of X, if X is a `Dataset`. Text is read in the same way as a column of numbers.
        sample_weight : array of shape (n,), optional
            Not negative. Rows with weight 0 are ignored, so that their y may be placeholders.
        {auto.groups, auto.X_val y_val}

        Returns
        -------
        self
        """
        X, y, sample_weight = labelled(X, y, sample_weight)
        X_val, y_val, _ = labelled(X_val, y_val)
        X, X_val = as_table_or_files(X, self.memory_budget), as_table(X_val)
        counted = count(computed(sample_weight), int(_num_samples(X)))
        targets, form = regression_targets(X, y, X_val, y_val, counted, type(self).__name__)
        problem = Regression.of(targets, form, metric_of(self.scoring, self))
        self._learn(X, problem, row_weights(counted, len(targets)), groups, X_val, counted)
        return self

    def _outcome(self, learnt: Learnt) -> dict[str, Any]:
        data, encoding = learnt.data, learnt.encoding
        problem = data.problem
        assert isinstance(problem, Regression)
        columns = problem.y.reshape(len(problem.y), -1)
        limits = np.stack([columns.min(axis=0), columns.max(axis=0)])
        some = data.folds.train[reach_rows(len(data.folds.train), encoding.X.shape[1])]
        held, fitted = (
            np.clip(codes * problem.deviation + problem.mean, *limits)
            for codes in (learnt.values, learnt.predict_codes(some))
        )
        errors = np.abs(columns[learnt.judged] - held)
        residuals = _honest(errors, np.abs(columns[some] - fitted))
        reach = Reach().fit(data.inputs.take(some), encoding.encoder, learnt.slopes, fitted)
        return {
            "one_column_": problem.y.ndim == 1,
            "target_form_": problem.form,
            "shift_": problem.targets[0].shift,
            "unit_": problem.targets[0].unit,
            "range_": limits,
            "residuals_": residuals,
            "reach_": reach,
            "spreads_": _spreads(reach, data, learnt.judged, held, errors, residuals),
        }

    def _check_model(self, fitted: Any, n_features: int) -> None:
        check_model(fitted, REGRESSORS, n_features, len(self.shift_))

    def _check_loaded(self) -> None:
        k = len(self.shift_)
        for name, shape in {"shift_": (k,), "unit_": (k,), "range_": (2, k)}.items():
            check_floats(name, vars(self)[name], shape)
        check_floats("residuals_", self.residuals_, (max(1, len(self.residuals_)), k))
        boolean("one_column_", self.one_column_)
        if k != 1 and (k == 0 or self.one_column_):
            raise ValueError(f"one_column_={self.one_column_} does not fit {k} outputs")
        super()._check_loaded()
        if not isinstance(self.reach_, Reach):
            raise ValueError("reach_ is not an object of the class Reach")
        if self.reach_.encoder_.n_features_in_ != self.n_features_in_ or len(self.reach_.slopes_) != k:
            raise ValueError(f"reach_ is not of {self.n_features_in_} columns and {k} outputs")
        p = len(self.reach_.encoder_.feature_origin_) + k
        fits = [s is None or (isinstance(s, Spread) and s.model.n_features_in_ == p) for s in self.spreads_]
        if len(fits) != k or not all(fits):
            raise ValueError(f"spreads_ does not fit {p} features and {k} outputs")
        if not isinstance(self.target_form_, NumberForm | None):
            raise ValueError(f"target_form_={self.target_form_!r} is not a form of numbers")

    @lazily
    def predict(self, X: Any) -> Array:
        """Predict y.

        Predictions stay between the smallest and the largest y of the training rows (`range_`): a trend does not
        continue outside of them. `predict_interval` says how little is known there.

        Parameters
        ----------
        {columns.X}

        Returns
        -------
        array of shape (n,) or (n, n_outputs); a Dask array for a Dask collection
        """
        total: Any = 0.0
        for rows, model, target, weight in zip(
            self._encoded(X), self.models_, self.targets_, self.weights_, strict=True
        ):
            predictions = np.asarray(model.predict(rows), dtype=np.float64)
            total = total + weight * self._target(target).inverse(predictions)
        predictions = np.clip(total, *self.range_)
        return predictions[:, 0] if self.one_column_ else predictions

    @property
    def _has_one_column(self) -> bool:
        return self.one_column_

    def _explained_blend(self) -> tuple[Callable[[Any], Array], Array, tuple[ExpansionPart, ...] | None]:
        parts: list[ExpansionPart] = []
        offset = np.zeros(len(self.shift_))
        members = zip(self.encoders_, self.mixings_, self.models_, self.targets_, self.weights_, strict=True)
        for encoder, mixing, model, target, weight in members:
            member = model._explained().parts if isinstance(model, Estimator) else None
            if member is None or mixing is not None or target == LogTarget.name or encoder.pairs_:
                return self.predict, offset, None
            offset += weight * (model._explained().offset * self.unit_ + self.shift_)
            for part in member:
                origin = np.asarray(encoder.feature_origin_)[part.origin]
                rows = partial(_rows_of_part, encoder, part.rows)
                parts.append(ExpansionPart(part.expansion.times(weight * self.unit_), rows, origin))
        return self.predict, offset, tuple(parts)

    def _target(self, name: str) -> Target:
        """Return the target of a model by its name in `targets_`."""
        if name != LogTarget.name:
            return Target(self.shift_, self.unit_)
        least, most = LogTarget().forward(self.range_[:, 0])
        return LogTarget(least=least, most=most)

    def score(self, X: Any, y: Any = None, sample_weight: ArrayLike | None = None) -> float:
        """Return the coefficient of determination R^2 of the predictions; 1 is perfect, 0 is as good as the mean of y.

        Parameters
        ----------
        {score.X, score.y, score.sample_weight}

        Returns
        -------
        float
        """
        rows, truth, weight = self._for_score(X, y, sample_weight)
        return float(super().score(rows, in_form(truth, self.target_form_), weight))

    @in_kind
    def predict_interval(self, X: Any, coverage: float = 0.9) -> Array:
        """Predict intervals that contain y with the given probability.

        Widths follow the size of the errors of predictions for held-out rows, which is learnt as a function of the row:
        a quantile of these errors over their scale, times the scale of the row. Where that does not make intervals
        narrower, they have the same width everywhere, a quantile of the errors. They widen with the distance of a row
        from the training table: numbers and dates outside its range, categories that it does not have, and combinations
        unlike any of its rows. This widening is a precaution without a guarantee, because nothing is known of y there.
        Intervals end at 0 where all y of the training table are on one side of it: lower ends are not negative if no y
        is negative, and upper ends are not positive if no y is positive.

        Parameters
        ----------
        {score.X, coverage}

        Returns
        -------
        array of shape (n, 2) or (n, 2, n_outputs): lower and upper ends
        """
        check_is_fitted(self)
        number(lambda x: 0 < x < 1, "between 0 and 1, both excluded")("coverage", coverage)
        X = as_table(X, text_columns(self.encoders_[0]))
        predictions = self.predict(X)
        centers = predictions.reshape(len(predictions), -1)
        width = self._widths(X, centers, coverage)
        least, most = np.where(self.range_[0] >= 0, 0.0, -np.inf), np.where(self.range_[1] <= 0, 0.0, np.inf)
        ends = np.stack([np.maximum(centers - width, least), np.minimum(centers + width, most)], axis=1)
        return ends[:, :, 0] if self.one_column_ else ends

    @in_kind
    def predict_quantiles(self, X: Any, quantiles: ArrayLike = (0.05, 0.5, 0.95)) -> Array:
        """Predict quantiles of y, as ends of the intervals that `predict_interval` gives around predictions.

        Parameters
        ----------
        {score.X}
        quantiles : array of shape (q,), default=(0.05, 0.5, 0.95)
            Between 0 and 1, both excluded. 0.5 is the prediction itself.

        Returns
        -------
        array of shape (n, q) or (n, q, n_outputs)
        """
        levels = np.asarray(quantiles, dtype=np.float64)
        if levels.ndim != 1 or not len(levels) or not ((levels > 0) & (levels < 1)).all():
            raise ValueError(f"quantiles={quantiles!r} must be a list of numbers between 0 and 1, both excluded")
        rows = as_table(X, text_columns(self.encoders_[0]) if "encoders_" in vars(self) else ())
        found: list[Array] = []
        for level in levels:
            if level == 0.5:
                found.append(np.asarray(self.predict(rows)))
            else:
                found.append(np.asarray(self.predict_interval(rows, abs(2 * level - 1)))[:, int(level > 0.5)])
        return np.stack(found, axis=1)

    def _widths(self, X: Any, centers: Array, coverage: float) -> Array:
        """Return half the widths of intervals around predictions, block by block."""
        m = len(self.residuals_)
        constant = self.residuals_[min(m - 1, int(np.ceil((m + 1) * coverage)) - 1)]
        inputs = as_inputs(X)
        parts = [np.empty((0, centers.shape[1]))]
        for start in range(0, inputs.n_rows, _BLOCK):
            rows = np.arange(start, min(start + _BLOCK, inputs.n_rows))
            table = inputs.take(rows)
            width = np.broadcast_to(constant, centers[rows].shape).copy()
            if any(spread is not None for spread in self.spreads_):
                features = self.reach_.features(table, centers[rows])
                for j, spread in enumerate(self.spreads_):
                    width[:, j] = width[:, j] if spread is None else spread.width(features, coverage)
            parts.append(width + self.reach_.widening(table, centers[rows]))
        return np.concatenate(parts)

    def _pipeline(self, number: int) -> Any:
        pipeline = super()._pipeline(number)
        if self.targets_[number] == LogTarget.name:
            forward, inverse = LogTarget.functions
            transformer = FunctionTransformer(forward, inverse).fit(np.ones((1, 1)))
            whole = TransformedTargetRegressor(pipeline, func=forward, inverse_func=inverse)
        elif self.shift_.any() or (self.unit_ != 1).any():
            transformer = StandardScaler().fit(np.stack([self.shift_ - self.unit_, self.shift_ + self.unit_]))
            whole = TransformedTargetRegressor(pipeline, transformer=StandardScaler())
        else:
            return pipeline
        whole.regressor_, whole.transformer_ = pipeline, transformer
        whole._training_dim = 1 if self.one_column_ else 2
        return whole


def _rows_of_part(encoder: TableEncoder, rows: Callable[[Any], Array], X: Any) -> Array:
    """Return the rows of a table as an expansion of encoded rows sees them."""
    return rows(as_inputs(X, as_text=text_columns(encoder)).encoded(encoder))


def _spreads(
    reach: Reach, data: TrainingData, judged: Array, held: Array, errors: Array, residuals: Array
) -> list[Spread | None]:
    """Return the scales of the errors of each output, learnt from held-out rows and predictions for them.

    There are none where the user says which rows belong together: columns may then tell which group a row is of, and
    errors of groups that were never seen would be taken for those of known ones. There are none with `X_val` either.
    """
    if data.folds.from_user or judged.max(initial=0) >= data.inputs.n_rows:
        return [None] * errors.shape[1]
    some = np.sort(np.random.RandomState(0).permutation(len(judged))[:_KEPT_RESIDUALS])
    features = reach.features(data.inputs.take(judged[some]), held[some])
    usual = np.quantile(errors, np.linspace(0, 1, len(residuals)), axis=0)
    ratio = np.divide(residuals, usual, out=np.ones_like(residuals), where=usual > 0)
    return [learn_spread(features, errors[some, j], np.maximum(ratio[:, j], 1.0)) for j in range(errors.shape[1])]


def _honest(held: Array, fitted: Array) -> Array:
    """Return the sorted absolute errors of held-out rows, no quantile of which is below that of the fitted rows.

    Errors of fitted rows can exceed those of held-out rows if y has no noise, since the solver of the last fit may stop
    earlier than the solvers of the folds. The larger error is used then.
    """
    step = max(1, len(held) // _KEPT_RESIDUALS)
    kept = np.sort(held, axis=0)[step // 2 :: step]
    shares = (np.arange(len(kept)) + 0.5) / len(kept)
    return np.maximum(kept, np.quantile(fitted, shares, axis=0))
