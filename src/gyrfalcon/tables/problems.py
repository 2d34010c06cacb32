"""Regression and classification: what the search and the final fits do differently for numbers and for classes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..estimators import (
    ExactClassifier,
    ExactRegressor,
    FalkonClassifier,
    FalkonRegressor,
    HierarchicalClassifier,
    HierarchicalRegressor,
)
from ..estimators._calibrated import CalibratedClassifier
from ..fitting.calibration import EPS, Calibration, fit_calibration, with_absent_classes
from ..fitting.targets import indicators, signs
from ..kernels import Kernel
from ..losses import Squared
from .blending import greedy_log_weights, greedy_weights
from .boosted import Boosted, BoostedClassifier, BoostedRegressor
from .boosting import boosted_classifier, boosted_regressor
from .forms import NumberForm
from .linear import Linear, LinearClassifier, LinearRegressor
from .scored import ScoreClassifier, ScoreModel, probabilities_of
from .scoring import Metric
from .stored import check_model
from .transforms import Target, moments, targets_of
from .tree_arrays import TreeArrays

Array = NDArray[Any]

EXACT = (ExactRegressor, ExactClassifier)
HIERARCHICAL = (HierarchicalRegressor, HierarchicalClassifier)
REGRESSORS = (ExactRegressor, FalkonRegressor, HierarchicalRegressor, BoostedRegressor, LinearRegressor)
CLASSIFIERS = (ExactClassifier, FalkonClassifier, HierarchicalClassifier, BoostedClassifier, LinearClassifier)

# The penalty of the logistic loss relative to that of the squared error of codes 1 and 0, whose second derivative is
# about ten times larger; 0.1 underfitted one of the benchmark tables
_LOGISTIC = 0.3
_FINER_EPS = (1e-3, 1e-4)  # smallest probabilities of models that predict probabilities, beside those of least squares
_MOST_ENCODED = 30  # most classes with a column each for a category of many levels; more are combined at random
_MOST_COLUMNS = 8  # most target columns of a search; more are replaced by this many random combinations


@dataclass(frozen=True)
class Blend:
    """A weighted average of the predictions of models.

    values : the average, of shape (m, k): standardised y, or logarithms of probabilities up to a constant for each row
    calibrations : one for each model; empty for numbers
    """

    weights: Array
    values: Array
    calibrations: list[Calibration]


@dataclass(frozen=True, eq=False)
class Problem(ABC):
    """The targets as columns of numbers, and the estimators that learn them.

    y : numbers or labels of shape (n,) or (n, k); those of validation rows come last
    codes : values that predictions are compared with: y in standard deviations from its mean, or +1 and -1 for classes
    targets : the ways to learn y; the first is y itself
    target_type : the `target_type` of `TableEncoder`
    form : form in which y was written, if it was text of numbers
    stratify : classes, whose shares are the same in every fold
    has_likelihood : whether fits with few centers minimise another loss than exact fits, so that a blend uses both
    falkon_cost : typical numbers of passes over the rows and of factorisations of a fit with few centers
    newton_cost : the same of one that minimises another loss than the squared one; None if there is no such fit
    chooses_penalties : whether held-out rows choose the penalty of a fit with every row as a center
    metric : what the blend is chosen by; None for the squared error of numbers, and the log-loss of classes
    """

    y: Array
    codes: Array
    targets: list[Target]
    target_type: str
    form: NumberForm | None = None
    stratify: Array | None = None
    has_likelihood: bool = False
    falkon_cost: tuple[int, int] = (30, 1)
    newton_cost: tuple[int, int] | None = None
    chooses_penalties: bool = True
    metric: Metric | None = None

    @property
    def n_outputs(self) -> int:
        """Number of columns of `codes`."""
        return int(self.codes.shape[1])

    @abstractmethod
    def encoder_targets(self, rows: Array) -> tuple[Array, str]:
        """Return the targets of rows by which categories are encoded, and what `TableEncoder` calls them."""

    @abstractmethod
    def sample_targets(self, rows: Array, random_state: np.random.RandomState) -> Array:
        """Return the targets of a sample of rows for the search, with mean 0 and total variance 1."""

    @abstractmethod
    def model_targets(self, target: Target) -> Array:
        """Return the y of all rows that estimators are given."""

    @abstractmethod
    def exact(self, kernel: Kernel, **parameters: Any) -> Any:
        """Return an estimator with every row as a center."""

    @abstractmethod
    def falkon(self, kernel: Kernel, penalty: float, **parameters: Any) -> Any:
        """Return an estimator with few centers; `penalty` is that of the squared error."""

    @abstractmethod
    def falkon_squares(self, kernel: Kernel, penalty: float, **parameters: Any) -> Any:
        """Return an estimator with many centers, which minimises the squared error."""

    @abstractmethod
    def hierarchical(self, kernel: Kernel, **parameters: Any) -> Any:
        """Return an estimator by trees of cells."""

    @abstractmethod
    def score_targets(self, target: Target) -> tuple[Array, int]:
        """Return what models without a kernel learn of all rows, and the number of classes; 0 for numbers."""

    @abstractmethod
    def score_codes(self, scores: Array, target: Target) -> Array:
        """Return scores of such models as columns like `codes`."""

    @abstractmethod
    def tree_model(self, trees: TreeArrays, offset: Array, target: Target, n_features: int) -> Boosted:
        """Return a fitted estimator whose raw predictions are those of trees."""

    @abstractmethod
    def linear_model(self, coef: Array, offset: Array, target: Target) -> Linear:
        """Return a fitted estimator whose raw predictions are a linear function."""

    @property
    def learns_all_rows(self) -> bool:
        """Whether no class has a weight of 0."""
        return True

    @abstractmethod
    def raw_predictions(self, fitted: Any, X: Any) -> Array:
        """Return the predictions of a fitted estimator that `as_codes` understands."""

    @abstractmethod
    def as_codes(self, raw: Array, target: Target) -> Array:
        """Return raw predictions, or those of cross-validation, as columns like `codes`."""

    @abstractmethod
    def has_all_classes(self, rows: Array) -> bool:
        """Return whether every class is among rows; for numbers, whether there are any."""

    @abstractmethod
    def with_all_classes(self, rows: Array, others: Array) -> Array:
        """Return rows, and one of the others for each class that they lack."""

    @abstractmethod
    def blend(self, values: list[Array], judged: Array, weight: Array | None) -> Blend:
        """Average the models' predictions for rows that they were not fitted to, at the positions `judged`."""

    @abstractmethod
    def check_fitted(self, fitted: Any, n_features: int) -> None:
        """Raise ValueError if an estimator from a file is not one of this problem with that number of features."""


@dataclass(frozen=True, eq=False)
class Regression(Problem):
    """Numbers; `mean` and `deviation` are those of y."""

    mean: Any = 0.0
    deviation: Any = 1.0

    @classmethod
    def of(cls, y: Array, form: NumberForm | None = None, metric: Metric | None = None) -> Regression:
        """Return the problem of learning y, which was written in a form if it was text."""
        columns = y.reshape(len(y), -1).astype(np.float64)
        mean, deviation = moments(columns)
        codes = (columns - mean) / deviation
        return cls(y, codes, targets_of(y), "continuous", form, metric=metric, mean=mean, deviation=deviation)

    def encoder_targets(self, rows: Array) -> tuple[Array, str]:
        return self.model_targets(self.targets[0])[rows], self.target_type

    def sample_targets(self, rows: Array, random_state: np.random.RandomState) -> Array:
        return sketched(self.codes[rows] / np.sqrt(self.n_outputs), random_state)

    def model_targets(self, target: Target) -> Array:
        return target.forward(self.y)

    def exact(self, kernel: Kernel, **parameters: Any) -> ExactRegressor:
        return ExactRegressor(kernel, method="pcg", scale=False, **parameters)

    def falkon(self, kernel: Kernel, penalty: float, **parameters: Any) -> FalkonRegressor:
        return FalkonRegressor(kernel, scale=False, penalty=penalty, **parameters)

    def falkon_squares(self, kernel: Kernel, penalty: float, **parameters: Any) -> FalkonRegressor:
        return self.falkon(kernel, penalty, **parameters)

    def hierarchical(self, kernel: Kernel, **parameters: Any) -> HierarchicalRegressor:
        return HierarchicalRegressor(kernel, scale=False, **parameters)

    def score_targets(self, target: Target) -> tuple[Array, int]:
        columns, mean, deviation = self._standard(target)
        return (columns - mean) / deviation, 0

    def score_codes(self, scores: Array, target: Target) -> Array:
        _, mean, deviation = self._standard(target)
        return self.as_codes(scores * deviation + mean, target)

    def tree_model(self, trees: TreeArrays, offset: Array, target: Target, n_features: int) -> BoostedRegressor:
        _, mean, deviation = self._standard(target)
        return boosted_regressor(trees, offset, mean, deviation, n_features)

    def linear_model(self, coef: Array, offset: Array, target: Target) -> LinearRegressor:
        _, mean, deviation = self._standard(target)
        return LinearRegressor()._hold(coef * deviation, offset * deviation + mean)

    def _standard(self, target: Target) -> tuple[Array, Array, Array]:
        """Return what models learn as columns, and their means and standard deviations."""
        y = self.model_targets(target)
        columns = y.reshape(len(y), -1).astype(np.float64)
        return columns, *moments(columns)

    def raw_predictions(self, fitted: Any, X: Any) -> Array:
        return np.asarray(fitted.predict(X))

    def as_codes(self, raw: Array, target: Target) -> Array:
        return np.asarray((target.inverse(raw.astype(np.float64)) - self.mean) / self.deviation)

    def has_all_classes(self, rows: Array) -> bool:
        return len(rows) > 0

    def with_all_classes(self, rows: Array, others: Array) -> Array:
        return rows

    def blend(self, values: list[Array], judged: Array, weight: Array | None) -> Blend:
        if self.metric is None:
            weights = greedy_weights(values, self.codes[judged], weight)
        else:
            weights = self.metric.number_weights([self._numbers(one) for one in values], self.y[judged], weight)
        return Blend(weights, np.tensordot(weights, np.stack(values), 1), [])

    def _numbers(self, codes: Array) -> Array:
        """Return predictions in the units of y, and in its shape."""
        y = self.y.reshape(len(self.y), -1)
        found = np.clip(codes * self.deviation + self.mean, y.min(axis=0), y.max(axis=0))
        return found if self.y.ndim > 1 else found[:, 0]

    def check_fitted(self, fitted: Any, n_features: int) -> None:
        check_model(fitted, REGRESSORS, n_features, self.n_outputs)


@dataclass(frozen=True, eq=False)
class Classification(Problem):
    """Classes.

    labels : the index of each row's class
    class_weight : classes of weight 0, which estimators know without learning from their rows
    """

    has_likelihood: bool = True
    falkon_cost: tuple[int, int] = (60, 6)
    newton_cost: tuple[int, int] | None = (30, 8)
    chooses_penalties: bool = False  # the share of wrong classes would choose, which says little about probabilities
    labels: Any = None
    n_classes: int = 2
    class_weight: dict[Any, float] | None = None

    @classmethod
    def of(
        cls, y: Array, labels: Array, n_classes: int, weight: Array | None = None, metric: Metric | None = None
    ) -> Classification:
        """Return the problem of learning labels; only whole classes have a weight of 0."""
        ignored = [] if weight is None else np.unique(y[weight == 0]).tolist()
        return cls(
            y,
            signs(labels, n_classes),
            [Target()],
            "binary" if n_classes == 2 else "multiclass",
            stratify=labels,
            metric=metric,
            labels=labels,
            n_classes=n_classes,
            class_weight=dict.fromkeys(ignored, 0.0) or None,
        )

    def encoder_targets(self, rows: Array) -> tuple[Array, str]:
        if self.n_classes <= _MOST_ENCODED:
            return self.y[rows], self.target_type
        columns = indicators(self.labels[rows], self.n_classes)
        return sketched(columns - columns.mean(axis=0), np.random.RandomState(0)), "continuous"

    def sample_targets(self, rows: Array, random_state: np.random.RandomState) -> Array:
        columns = indicators(self.labels[rows], self.n_classes)
        columns = columns[:, 1:] if self.n_classes == 2 else columns
        columns = sketched(columns - columns.mean(axis=0), random_state)
        size = float(np.sqrt(np.square(columns).sum(axis=1).mean()))
        return columns / (size or 1.0)

    def model_targets(self, target: Target) -> Array:
        return self.y

    def exact(self, kernel: Kernel, **parameters: Any) -> ExactClassifier:
        return ExactClassifier(kernel, scale=False, class_weight=self.class_weight, **parameters)

    def falkon(self, kernel: Kernel, penalty: float, **parameters: Any) -> FalkonClassifier:
        return FalkonClassifier(
            kernel,
            loss="logistic",
            scale=False,
            class_weight=self.class_weight,
            penalty=_LOGISTIC * penalty,
            **parameters,
        )

    def falkon_squares(self, kernel: Kernel, penalty: float, **parameters: Any) -> FalkonClassifier:
        return FalkonClassifier(kernel, scale=False, class_weight=self.class_weight, penalty=penalty, **parameters)

    def hierarchical(self, kernel: Kernel, **parameters: Any) -> HierarchicalClassifier:
        return HierarchicalClassifier(kernel, scale=False, class_weight=self.class_weight, **parameters)

    def score_targets(self, target: Target) -> tuple[Array, int]:
        return self.labels, self.n_classes

    def score_codes(self, scores: Array, target: Target) -> Array:
        return _signs_of(probabilities_of(scores))

    def tree_model(self, trees: TreeArrays, offset: Array, target: Target, n_features: int) -> BoostedClassifier:
        return boosted_classifier(trees, offset, np.unique(self.y), n_features)

    def linear_model(self, coef: Array, offset: Array, target: Target) -> LinearClassifier:
        model = LinearClassifier()
        model.classes_ = np.unique(self.y)
        return model._hold(coef, offset)

    @property
    def learns_all_rows(self) -> bool:
        return self.class_weight is None

    def raw_predictions(self, fitted: Any, X: Any) -> Array:
        return class_values(fitted, X)

    def as_codes(self, raw: Array, target: Target) -> Array:
        return np.asarray(raw, dtype=np.float64).reshape(len(raw), -1)

    def has_all_classes(self, rows: Array) -> bool:
        return len(np.unique(self.labels[rows])) == self.n_classes

    def with_all_classes(self, rows: Array, others: Array) -> Array:
        classes, first = np.unique(self.labels[others], return_index=True)
        return np.union1d(rows, others[first[~np.isin(classes, self.labels[rows])]])

    def blend(self, values: list[Array], judged: Array, weight: Array | None) -> Blend:
        whole = [with_absent_classes(one, self.labels[judged], self.n_classes, weight) for one in values]
        values, (_, labels, weight) = [one for one, _, _ in whole], whole[0]
        calibrations = [fit_calibration(one, labels, self.n_classes, weight, _smallest(one)) for one in values]
        logs = [calibrated.log_probabilities(one) for calibrated, one in zip(calibrations, values, strict=True)]
        if self.metric is None:
            weights = greedy_log_weights(logs, labels, weight)
        else:
            weights = self.metric.class_weights(logs, np.unique(self.y), labels, weight)
        return Blend(weights, np.tensordot(weights, np.stack(logs), 1)[: len(judged)], calibrations)

    def check_fitted(self, fitted: Any, n_features: int) -> None:
        check_model(fitted, CLASSIFIERS, n_features, self.n_outputs)
        if not np.array_equal(fitted.classes_, np.unique(self.y)):
            raise ValueError(f"a model knows the classes {fitted.classes_!r} and not those of y")


def class_values(fitted: CalibratedClassifier | FalkonClassifier | ScoreClassifier, X: Any) -> Array:
    """Return a fitted classifier's values for targets +1 and -1, as columns."""
    if isinstance(fitted, ScoreClassifier):
        return _signs_of(fitted.predict_proba(X))
    if isinstance(fitted, CalibratedClassifier) or isinstance(fitted.loss_, Squared):
        of = fitted.uncalibrated if isinstance(fitted, CalibratedClassifier) else fitted.decision_function
        values = np.asarray(of(X), dtype=np.float64)
        return values.reshape(len(values), -1)
    return _signs_of(np.asarray(fitted.predict_proba(X), dtype=np.float64))


def _signs_of(probabilities: Array) -> Array:
    """Return probabilities of classes as values for targets +1 and -1."""
    return 2.0 * (probabilities[:, 1:] if probabilities.shape[1] == 2 else probabilities) - 1.0


def expansion_of(fitted: Any) -> tuple[Array, Array] | None:
    """Return the centers and coefficients of a model, those of its global part if it has cells; None without one."""
    if isinstance(fitted, ScoreModel):
        return None
    if not isinstance(fitted, HIERARCHICAL):
        return fitted.centers_, fitted.dual_coef_
    if fitted.global_centers_ is None or fitted.global_coef_ is None:
        return None
    return fitted.global_centers_, fitted.global_coef_


def _smallest(values: Array) -> tuple[float, ...]:
    """Return where logarithms of values may be clipped: further down if the values are those of probabilities."""
    return (*EPS, *_FINER_EPS) if np.abs(values).max() <= 1.0 else EPS


def sketched(columns: Array, random_state: np.random.RandomState) -> Array:
    """Replace many columns by a few random combinations of them, which preserve squared lengths on average."""
    if columns.shape[1] <= _MOST_COLUMNS:
        return columns
    combinations = random_state.standard_normal((columns.shape[1], _MOST_COLUMNS)) / np.sqrt(_MOST_COLUMNS)
    return np.asarray(columns @ combinations)
