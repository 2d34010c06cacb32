"""Linear models of encoded rows: ridge regression and logistic regression, fitted on each fold in turn."""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from sklearn.exceptions import ConvergenceWarning

from .._utils.registry import register
from .._utils.threads import single_threaded_blas
from .boosting import Fold
from .scored import ScoreClassifier, ScoreModel, ScoreRegressor
from .stored import check_floats

Array = NDArray[Any]

_RIDGES = np.logspace(-3, 5, 17)  # penalties of ridge regression times the number of rows
_STRENGTHS = (0.003, 0.05, 1.0)  # `C` of logistic regression
_MOST_COLUMNS = 1_000  # with more columns, normal equations take long
_OPERATIONS = 2e9  # floating-point operations per second of these fits, on one core
_LOGISTIC_PASSES = 200  # products with the rows of a logistic fit


class Linear(ScoreModel):
    """A linear function for each output.

    coef_ : coefficients of shape (n_features, n_outputs)
    offset_ : the prediction for a row of zeros
    """

    coef_: Array

    def _hold(self, coef: Array, offset: Array) -> Self:
        """Set what was learnt."""
        self.coef_, self.offset_ = np.asarray(coef, dtype=np.float64), np.asarray(offset, dtype=np.float64)
        self.n_features_in_ = len(self.coef_)
        return self

    def _scores_of(self, rows: Array) -> Array:
        return np.asarray(self.offset_ + rows @ self.coef_)

    def _check_loaded(self) -> None:
        super()._check_loaded()
        check_floats("coef_", self.coef_, (self.n_features_in_, len(self.offset_)))


@register
class LinearRegressor(ScoreRegressor, Linear):
    """Ridge regression, as plain arrays; `AutoRegressor` fits it on folds, and averages the coefficients.

    `fit` is that of `sklearn.linear_model.Ridge` with its defaults.

    Attributes
    ----------
    coef_ : array of shape (n_features, n_outputs)
        The coefficients.
    offset_ : array of shape (n_outputs,)
        The prediction for a row of zeros.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon.tables.linear import LinearRegressor
    >>> X = np.linspace(0, 1, 200)[:, None]
    >>> LinearRegressor().fit(X, 3 * X[:, 0]).predict([[0.5]]).round(2).tolist()
    [1.5]
    """

    def fit(self, X: Any, y: Any) -> Self:
        """Fit a linear function."""
        from sklearn.linear_model import Ridge

        fitted = Ridge().fit(X, y)
        return self._hold(np.atleast_2d(fitted.coef_).T, np.atleast_1d(fitted.intercept_))


@register
class LinearClassifier(ScoreClassifier, Linear):
    """Logistic regression, as plain arrays; see `LinearRegressor`.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
        The classes.
    coef_ : array of shape (n_features, n_outputs)
        The coefficients of the log-odds of the second of two classes, or of log P of each class up to a constant.
    offset_ : array of shape (n_outputs,)
        The scores of a row of zeros.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from gyrfalcon.tables.linear import LinearClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> bool(LinearClassifier().fit(X, y).score(X, y) > 0.95)
    True
    """

    def fit(self, X: Any, y: Any) -> Self:
        """Fit a linear function for the log-odds of each class."""
        fitted = _logistic(np.asarray(X), np.asarray(y), None, 1.0)
        self.classes_ = fitted.classes_
        return self._hold(fitted.coef_.T, fitted.intercept_)


@dataclass(frozen=True)
class LinearSettings:
    """The settings of linear models, of which there are no others.

    name : what tells them from settings of trees
    label : the name in records
    other_folds : as in the settings of trees
    """

    name: str = "linear"
    label: str = "linear"
    other_folds: bool = False


class LinearFunctions(NamedTuple):
    """What fits of folds learnt.

    coef, offset : the average of all folds
    scores : predictions of the held-out rows of each fold by the function of this fold
    """

    coef: Array
    offset: Array
    scores: list[Array]


@dataclass(frozen=True, eq=False)
class LinearFits:
    """Linear fits to encoded rows.

    y : class numbers, or targets as columns
    n_classes : number of classes; 0 for numbers
    """

    X: Array
    y: Array
    weight: Array | None
    n_classes: int

    def fit(self, folds: Sequence[Fold], seconds: float) -> LinearFunctions | None:
        """Fit all folds; None if there is no time for that."""
        n, d = self.X.shape
        passes = _LOGISTIC_PASSES * max(1, self.n_classes) * (1 + len(_STRENGTHS) / len(folds))
        operations = len(folds) * n * d * (passes if self.n_classes else float(d))
        if d > _MOST_COLUMNS or operations / _OPERATIONS > seconds:
            return None
        with single_threaded_blas():
            return self._classes(folds, time.perf_counter() + seconds) if self.n_classes else self._numbers(folds)

    def _numbers(self, folds: Sequence[Fold]) -> LinearFunctions:
        """Fit ridge regression with the penalty that predicts the held-out rows of all folds best."""
        paths = [_ridge_path(self.X[fold.train], self.y[fold.train], self._weight(fold.train)) for fold in folds]
        errors = np.zeros(len(_RIDGES))
        for (coefs, offsets), fold in zip(paths, folds, strict=True):
            weight = self._weight(fold.held)
            for i, (coef, offset) in enumerate(zip(coefs, offsets, strict=True)):
                squares = np.square(self.X[fold.held] @ coef + offset - self.y[fold.held]).sum(axis=1)
                errors[i] += float(squares.sum() if weight is None else squares @ weight)
        best = int(np.argmin(errors))
        return self._average([(coefs[best], offsets[best]) for coefs, offsets in paths], folds)

    def _classes(self, folds: Sequence[Fold], deadline: float) -> LinearFunctions | None:
        """Fit logistic regression; the first fold chooses the penalty. None if time is up before the last fold."""
        strength, parts = self._strength(folds[0]), []
        for fold in folds:
            if time.perf_counter() > deadline:
                return None
            fitted = _logistic(self.X[fold.train], self.y[fold.train], self._weight(fold.train), strength)
            parts.append((fitted.coef_.T, fitted.intercept_))
        return self._average(parts, folds)

    def _strength(self, fold: Fold) -> float:
        """Return the `C` with the least log-loss of the rows that a fold holds out."""
        from sklearn.metrics import log_loss

        losses = []
        for strength in _STRENGTHS:
            fitted = _logistic(self.X[fold.train], self.y[fold.train], self._weight(fold.train), strength)
            found = fitted.predict_proba(self.X[fold.held])
            weight = self._weight(fold.held)
            losses.append(log_loss(self.y[fold.held], found, sample_weight=weight, labels=fitted.classes_))
        return _STRENGTHS[int(np.argmin(losses))]

    def _average(self, parts: list[tuple[Array, Array]], folds: Sequence[Fold]) -> LinearFunctions:
        scores = [self.X[fold.held] @ coef + offset for (coef, offset), fold in zip(parts, folds, strict=True)]
        coefs, offsets = zip(*parts, strict=True)
        return LinearFunctions(np.mean(coefs, axis=0), np.mean(offsets, axis=0), scores)

    def _weight(self, rows: Array) -> Array | None:
        return None if self.weight is None else self.weight[rows]


def _ridge_path(X: Array, y: Array, weight: Array | None) -> tuple[list[Array], list[Array]]:
    """Return the coefficients and offsets of all penalties, from one eigendecomposition."""
    x_mean, y_mean = np.average(X, axis=0, weights=weight), np.average(y, axis=0, weights=weight)
    root = 1.0 if weight is None else np.sqrt(weight)[:, None]
    rows, targets = (X.astype(np.float64) - x_mean) * root, (y - y_mean) * root
    values, vectors = eigh(rows.T @ rows)
    products = vectors.T @ (rows.T @ targets)
    coefs = [vectors @ (products / (np.maximum(values, 0.0) + ridge)[:, None]) for ridge in _RIDGES]
    return coefs, [y_mean - x_mean @ coef for coef in coefs]


def _logistic(X: Array, y: Array, weight: Array | None, strength: float) -> Any:
    from sklearn.linear_model import LogisticRegression

    with warnings.catch_warnings():  # held-out rows tell how good the model is
        warnings.simplefilter("ignore", ConvergenceWarning)
        return LogisticRegression(C=strength).fit(X.astype(np.float64, copy=False), y, weight)
