"""What regression and classification do differently in a search and in the last fits."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..estimators import ExactClassifier, ExactRegressor, FalkonClassifier, FalkonRegressor
from ..fitting.calibration import Calibration, fit_calibration, with_absent_classes
from ..fitting.data import indicators, signs
from ..kernels import Kernel
from .blending import greedy_log_weights, greedy_weights
from .forms import NumberForm
from .stored import check_model
from .transforms import LogTarget, Target, moments, targets_of

Array = NDArray[Any]

REGRESSORS = (ExactRegressor, FalkonRegressor)
CLASSIFIERS = (ExactClassifier, FalkonClassifier)

# The penalty of the logistic loss relative to that of the squared error of codes 1 and 0, whose second derivative is
# some ten times larger; 0.1 was too little for one table
_LOGISTIC = 0.3
_EQUAL = 1e-14  # a deviation so much smaller than the mean is rounding
_FAR = 1e3  # numbers that are so many deviations from zero lose digits in float32
_LARGEST = 1e15  # whose squares float32 can hold
_MOST_ENCODED = 30  # classes that each have a column for a category of many levels: more have random combinations
_MOST_COLUMNS = 8  # of the targets of a sample: more are replaced by so many random combinations


@dataclass(frozen=True)
class Blend:
    """An average of members.

    Attributes
    ----------
    weights : array of shape (n_members,)
    values : array of shape (m, k)
        Of the average: in deviations of y from its mean, or logarithms of probabilities, up to a constant for each row.
    calibrations : list of Calibration
        Of each member; none for numbers.
    """

    weights: Array
    values: Array
    calibrations: list[Calibration]


class Problem(ABC):
    """What is learnt: targets as columns of numbers, and the estimators that learn them.

    Attributes
    ----------
    y : array of shape (n,) or (n, k)
        Numbers or labels, those of validation rows last.
    codes : array of shape (n, k)
        What blends are compared with: y in deviations from its mean, or class codes +1 and -1.
    transforms : list of Target
        Ways to learn the targets.
    target_type : what `TableEncoder` calls the targets
    form : how y was written if it was text of numbers, or None
    stratify : array of shape (n,), classes of which folds have equal shares, or None
    has_likelihood : whether fits with few centers have a loss of their own, and so add something to exact ones
    falkon_cost : passes and factorisations that a fit with few centers takes, as a rule
    """

    y: Array
    codes: Array
    transforms: list[Target]
    target_type: str
    form: NumberForm | None = None
    stratify: Array | None = None
    has_likelihood: bool = False
    falkon_cost: tuple[int, int] = (30, 1)

    def encoded(self, rows: Array) -> tuple[Array, str]:
        """Return the targets of rows that encodings are made by, and what `TableEncoder` calls them."""
        return self.learnt(self.transforms[0])[rows], self.target_type

    @abstractmethod
    def screened(self, indices: Array, random_state: np.random.RandomState) -> Array:
        """Return the targets of a sample, of mean 0 and total variance 1."""

    @abstractmethod
    def exact(self, kernel: Kernel, **parameters: Any) -> Any:
        """Return the estimator with every row as a center."""

    @abstractmethod
    def falkon(self, kernel: Kernel, penalty: float, **parameters: Any) -> Any:
        """Return the estimator with few centers; `penalty` is that of the squared error."""

    @abstractmethod
    def learnt(self, target: Target) -> Array:
        """Return the y that an estimator is given."""

    @abstractmethod
    def is_whole(self, rows: Array) -> bool:
        """Return whether all there is to learn can be learnt from rows: whether every class is among them."""

    @abstractmethod
    def completed(self, rows: Array, others: Array) -> Array:
        """Return rows with as few of the others as it takes to learn all there is: one of each class they lack."""

    @abstractmethod
    def values(self, model: Any, target: Target, X: Any) -> Array:
        """Return predictions as columns like `codes`."""

    @abstractmethod
    def blend(self, values: list[Array], judged: Array, weight: Array | None) -> Blend:
        """Average members.

        Parameters
        ----------
        values : list of arrays of shape (m, k)
            What each member says of rows that it has not seen, like `codes`.
        judged : array of shape (m,)
            The positions of these rows.
        weight : array of shape (m,), or None
        """

    @abstractmethod
    def check_model(self, model: Any, n_features: int) -> None:
        """Raise ValueError if a model from a file is not one of this problem, for rows with a number of features."""

    @abstractmethod
    def held_out(self, model: Any, target: Target) -> Array:
        """Return the predictions of cross-validation of a fitted model, as columns like `codes`."""


@dataclass
class Regression(Problem):
    """Numbers.

    Attributes
    ----------
    y : array of shape (n,) or (n, k)
    mean, deviation : arrays of shape (k,)
    shift, unit : arrays of shape (k,)
        Models learn (y - shift) / unit: y itself, unless float32 could not tell its numbers apart.
    """

    y: Array
    mean: Array
    deviation: Array
    shift: Array
    unit: Array
    form: NumberForm | None = None
    target_type: str = "continuous"

    @classmethod
    def of(cls, y: Array, form: NumberForm | None = None) -> Regression:
        """Return the problem of learning y, which was written in a form if it was text."""
        columns = y.reshape(len(y), -1).astype(np.float64)
        mean, deviation = moments(columns)
        deviation = np.where(deviation > _EQUAL * np.abs(mean), deviation, 1.0)
        plain = (np.abs(mean) <= _FAR * deviation) & (deviation > 1 / _LARGEST) & (deviation < _LARGEST)
        problem = cls(y, mean, deviation, np.where(plain, 0.0, mean), np.where(plain, 1.0, deviation), form)
        problem.codes = (columns - mean) / deviation
        problem.transforms = targets_of(y) if y.ndim == 1 else [Target()]
        return problem

    def screened(self, indices: Array, random_state: np.random.RandomState) -> Array:
        return sketched(self.codes[indices] / np.sqrt(self.codes.shape[1]), random_state)

    def exact(self, kernel: Kernel, **parameters: Any) -> ExactRegressor:
        return ExactRegressor(kernel, method="pcg", scale=False, **parameters)

    def falkon(self, kernel: Kernel, penalty: float, **parameters: Any) -> FalkonRegressor:
        return FalkonRegressor(kernel, scale=False, penalty=penalty, **parameters)

    def learnt(self, target: Target) -> Array:
        if isinstance(target, LogTarget):
            return np.log(self.y)
        columns = (self.y.reshape(len(self.y), -1) - self.shift) / self.unit
        return columns.reshape(self.y.shape)

    def is_whole(self, rows: Array) -> bool:
        return len(rows) > 0

    def completed(self, rows: Array, others: Array) -> Array:
        return rows

    def values(self, model: Any, target: Target, X: Any) -> Array:
        return self._restored(model.predict(X), target)

    def check_model(self, model: Any, n_features: int) -> None:
        check_model(model, REGRESSORS, n_features, self.codes.shape[1])

    def held_out(self, model: Any, target: Target) -> Array:
        return self._restored(model.cv_predictions_, target)

    def blend(self, values: list[Array], judged: Array, weight: Array | None) -> Blend:
        weights = greedy_weights(values, self.codes[judged], weight)
        return Blend(weights, np.tensordot(weights, np.stack(values), 1), [])

    def _restored(self, predictions: Array, target: Target) -> Array:
        predictions = np.asarray(predictions, dtype=np.float64)
        columns = target.from_learnt(predictions).reshape(len(predictions), -1)
        if not isinstance(target, LogTarget):
            columns = columns * self.unit + self.shift
        return (columns - self.mean) / self.deviation


@dataclass
class Classification(Problem):
    """Classes.

    Attributes
    ----------
    y : array of shape (n,)
        Labels.
    labels : array of shape (n,)
        Numbers of the classes.
    n_classes : int
    class_weight : dict, or None
        Classes of weight 0, which an estimator is to know without learning from their rows.
    """

    y: Array
    labels: Array
    n_classes: int
    target_type: str
    class_weight: dict[Any, float] | None = None

    @classmethod
    def of(cls, y: Array, labels: Array, n_classes: int, weight: Array | None = None) -> Classification:
        """Return the problem of learning labels; weights of 0 are those of whole classes."""
        ignored = [] if weight is None else np.unique(y[weight == 0]).tolist()
        class_weight = dict.fromkeys(ignored, 0.0) or None
        problem = cls(y, labels, n_classes, "binary" if n_classes == 2 else "multiclass", class_weight)
        problem.codes = signs(labels, n_classes)
        problem.transforms = [Target()]
        problem.stratify = labels
        problem.has_likelihood = True
        problem.falkon_cost = (60, 6)
        return problem

    def screened(self, indices: Array, random_state: np.random.RandomState) -> Array:
        columns = indicators(self.labels[indices], self.n_classes)
        columns = columns[:, 1:] if self.n_classes == 2 else columns
        columns = sketched(columns - columns.mean(axis=0), random_state)
        size = float(np.sqrt(np.square(columns).sum(axis=1).mean()))
        return columns / (size or 1.0)

    def encoded(self, rows: Array) -> tuple[Array, str]:
        if self.n_classes <= _MOST_ENCODED:
            return super().encoded(rows)
        columns = indicators(self.labels[rows], self.n_classes)
        return sketched(columns - columns.mean(axis=0), np.random.RandomState(0)), "continuous"

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

    def learnt(self, target: Target) -> Array:
        return self.y

    def is_whole(self, rows: Array) -> bool:
        return len(np.unique(self.labels[rows])) == self.n_classes

    def completed(self, rows: Array, others: Array) -> Array:
        classes, first = np.unique(self.labels[others], return_index=True)
        return np.union1d(rows, others[first[~np.isin(classes, self.labels[rows])]])

    def values(self, model: Any, target: Target, X: Any) -> Array:
        return class_values(model, X)

    def check_model(self, model: Any, n_features: int) -> None:
        check_model(model, CLASSIFIERS, n_features, self.codes.shape[1])
        if not np.array_equal(model.classes_, np.unique(self.y)):
            raise ValueError(f"a model knows the classes {model.classes_!r} and not those of y")

    def held_out(self, model: Any, target: Target) -> Array:
        values = np.asarray(model.cv_predictions_, dtype=np.float64)
        return values.reshape(len(values), -1)

    def blend(self, values: list[Array], judged: Array, weight: Array | None) -> Blend:
        whole = [with_absent_classes(member, self.labels[judged], self.n_classes, weight) for member in values]
        values, (_, labels, weight) = [member for member, _, _ in whole], whole[0]
        calibrations = [fit_calibration(member, labels, self.n_classes, weight) for member in values]
        logs = [one.log_probabilities(member) for one, member in zip(calibrations, values, strict=True)]
        weights = greedy_log_weights(logs, labels, weight)
        return Blend(weights, np.tensordot(weights, np.stack(logs), 1)[: len(judged)], calibrations)


def class_values(model: Any, X: Any) -> Array:
    """Return a fitted classifier's values for targets +1 and -1, as columns."""
    if isinstance(model, ExactClassifier):
        values = np.asarray(model.uncalibrated(X), dtype=np.float64)
        return values.reshape(len(values), -1)
    probabilities = np.asarray(model.predict_proba(X), dtype=np.float64)
    return 2.0 * (probabilities[:, 1:] if probabilities.shape[1] == 2 else probabilities) - 1.0


def sketched(columns: Array, random_state: np.random.RandomState) -> Array:
    """Return few random combinations of many columns, whose squared lengths are right on average."""
    if columns.shape[1] <= _MOST_COLUMNS:
        return columns
    mixing = random_state.standard_normal((columns.shape[1], _MOST_COLUMNS)) / np.sqrt(_MOST_COLUMNS)
    return np.asarray(columns @ mixing)
