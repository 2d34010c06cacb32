"""Sets of classes around the probabilities of any classifier, by rows that are held out."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import _check_y, check_is_fitted

from .._utils.registry import register
from ..fitting.conformal import COVERAGE, Conformity, Part
from ..fitting.rows import at_once, computed, for_score, labelled
from ..fitting.targets import mixed_labels, require_one_label
from ..sources import as_source
from ._conformal import ConformalEstimator, described
from ._lazy import in_kind
from ._sklearn import ClassifierMixin
from .falkon_classifier import FalkonClassifier

Array = NDArray[Any]

_LARGEST = 1.0  # of all scores: where it is the threshold, sets hold every class


@register
@described
class ConformalClassifier(ClassifierMixin, ConformalEstimator):
    """Sets of classes that contain the right one with a given probability, around any classifier with probabilities.

    Some rows are held out of the fit, and determine how probable a class has to be to belong to a set. If new rows come
    from the same distribution, sets contain the right class with at least the given probability, for any model.

    Parameters
    ----------
    estimator : classifier or None, default=None
        The model, of Gyrfalcon or of scikit-learn, with `predict_proba`. None is `FalkonClassifier(loss="logistic")`.
    method : {"lac", "aps"}, default="lac"
        How sets are formed. "lac" takes the classes whose probability is above a threshold, which gives the smallest
        sets [1]_; they can be empty for unusual rows. "aps" takes the most probable classes until their sum is above a
        threshold [2]_: its sets are larger, contain the right class about as often for difficult rows as for easy ones,
        and are never empty.
    validation_fraction : float, default=0.2
        Fraction of the rows to hold out if `fit` is given no validation rows. If all rows of a class are drawn, one of
        them is also used for training, so that `classes_` contains all classes of y, and counts as the least expected
        of the held-out rows.
    {conformal.random_state}

    Attributes
    ----------
    estimator_ : classifier
        The fitted model.
    method_ : str
        The method of the fit, by which sets are made; a method set later by `set_params` needs a new fit.
    classes_ : array of shape (n_classes,)
        The classes, in the order of the columns of `predict_set`.
    {conformal.conformity_, n_features_in_, feature_names_in_}

    See Also
    --------
    ConformalRegressor : Intervals.

    References
    ----------
    .. [1] Sadinle, Lei, Wasserman, "Least Ambiguous Set-Valued Classifiers with Bounded Error Levels", JASA 2019.
    .. [2] Romano, Sesia, Candès, "Classification with Valid and Adaptive Coverage", NeurIPS 2020.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from gyrfalcon import ConformalClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = ConformalClassifier(random_state=0).fit(X, y)
    >>> model.predict_set(X[:2], coverage=0.9)
    array([[ True, False, False],
           [ True, False, False]])
    """

    _methods = ("lac", "aps")
    _every_class = True

    classes_: Array

    def __init__(
        self,
        estimator: Any = None,
        *,
        method: str = "lac",
        validation_fraction: float = 0.2,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        self.estimator = estimator
        self.method = method
        self.validation_fraction = validation_fraction
        self.random_state = random_state

    def fit(
        self, X: Any, y: Any = None, sample_weight: ArrayLike | None = None, X_val: Any = None, y_val: Any = None
    ) -> Self:
        """Fit the model to some rows, and calibrate sets on the others.

        Parameters
        ----------
        {conformal.X}
        y : array of shape (n,)
            Labels. By default those of X, if X was opened with a target.
        {conformal.sample_weight, conformal.X_val y_val}

        Returns
        -------
        self
        """
        X, y, sample_weight = labelled(X, y, sample_weight)
        X_val, y_val, _ = labelled(X_val, y_val)
        self._check(y)
        if self.estimator is not None:
            _require_probabilities("estimator", self.estimator)
        require_one_label(y, type(self).__name__)
        y = _check_y(mixed_labels(computed(y, as_source(X))), estimator=self)
        if y_val is not None:
            y_val = _check_y(mixed_labels(computed(y_val, as_source(X_val))), estimator=self)
        self._learn(X, y, sample_weight, X_val, y_val)
        return self

    def _default(self, seed: int) -> FalkonClassifier:
        return FalkonClassifier(loss="logistic", random_state=seed)

    def _judged(self, model: Any, part: Part) -> dict[str, Any]:
        unseen = sorted(set(part.y.tolist()) - set(model.classes_.tolist()), key=str)
        if unseen:
            raise ValueError(
                f"the held-out rows have classes that the model has not learned: {unseen}; leave these rows out of "
                "X_val, or give X rows of these classes too"
            )
        codes = np.searchsorted(model.classes_, part.y)
        scores = _scores(model.predict_proba(part.X), self.method)[np.arange(len(codes)), codes]
        if part.biased is not None:
            scores[part.biased] = _LARGEST
        return {"classes_": model.classes_, "conformity_": Conformity.of(scores[:, None], part.weight)}

    @in_kind
    def predict(self, X: Any) -> Array:
        """Predict classes, as the model does.

        Parameters
        ----------
        {conformal.X}

        Returns
        -------
        array of shape (n,)
        """
        check_is_fitted(self)
        predictions: Array = self.estimator_.predict(X)
        return predictions

    @in_kind
    def predict_proba(self, X: Any) -> Array:
        """Predict the probabilities of the classes, as the model does.

        Parameters
        ----------
        {conformal.X}

        Returns
        -------
        array of shape (n, n_classes)
        """
        check_is_fitted(self)
        probabilities: Array = self.estimator_.predict_proba(X)
        return probabilities

    @in_kind
    def predict_set(self, X: Any, coverage: float = 0.9) -> Array:
        """Predict sets of classes that contain the right one with the given probability.

        Parameters
        ----------
        {interval.X, coverage}

        Returns
        -------
        array of bool of shape (n, n_classes)
            Which of `classes_` belong to the set of each row.
        """
        COVERAGE("coverage", coverage)
        check_is_fitted(self)
        scores = _scores(self.estimator_.predict_proba(at_once(X)), self.method_)
        return self.conformity_.accepted(scores, coverage)

    def _check_loaded(self) -> None:
        super()._check_loaded()
        _require_probabilities("estimator_", self.estimator_)
        if not np.array_equal(self.classes_, self.estimator_.classes_):
            raise ValueError("classes_ are not those of estimator_")
        if self.conformity_.scores.shape[1] != 1:
            raise ValueError(f"conformity_ has {self.conformity_.scores.shape[1]} columns and not one")

    def score(self, X: Any, y: Any = None, sample_weight: ArrayLike | None = None) -> float:
        """Return the accuracy: the share of rows whose class is predicted correctly.

        Parameters
        ----------
        {score.X, classes.y, score.sample_weight}

        Returns
        -------
        float
        """
        return float(super().score(*for_score(X, y, sample_weight)))


def _scores(probabilities: Any, method: str) -> Array:
    """Return the score of each class, from 0 (expected) to 1 (unexpected), of shape (n, n_classes)."""
    p = np.asarray(probabilities, dtype=np.float64)
    if method == "lac":
        return 1.0 - p
    # the probability of the classes that are more probable, and so 0 for the most probable one
    order = np.argsort(-p, axis=1, kind="stable")
    sorted_p = np.take_along_axis(p, order, axis=1)
    before = np.cumsum(sorted_p, axis=1) - sorted_p
    scores = np.empty_like(p)
    np.put_along_axis(scores, order, np.clip(before, 0.0, _LARGEST), axis=1)
    return scores


def _require_probabilities(name: str, model: Any) -> None:
    """Require a model with probabilities, by its class or parameters."""
    if not hasattr(model, "predict_proba"):
        kind = type(model).__name__
        raise ValueError(
            f"{name}={kind}(...) has no predict_proba, and sets of classes are made of probabilities: use one "
            f'that has it, such as FalkonClassifier(loss="logistic"), or CalibratedClassifierCV({kind}(...))'
        )
