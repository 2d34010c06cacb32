"""The mini-bootstrap of detection: classes among a vast background, learnt from the negatives that matter."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils import check_random_state, check_X_y

from .._utils.checks import integer, number, optional
from .._utils.words import shown
from .falkon_classifier import FalkonClassifier

__all__ = ["Detectors", "mini_bootstrap"]

Array = NDArray[Any]

_BATCHES = integer(1)
_SCORE = number(lambda x: bool(np.isfinite(x)), "a finite number")
_EASY = optional(_SCORE)


@dataclass(frozen=True)
class Detectors:
    """The outcome of `mini_bootstrap`: a classifier for each class, against everything else.

    Attributes
    ----------
    classes : array of shape (n_classes,)
        The labels, without that of the background.
    background : object
        The label of rows that belong to no class.
    models : list of n_classes classifiers
        The model of each class, whose `decision_function` gives the scores.
    negatives : list of n_classes arrays of int
        Rows that were the negatives of the last fit of each class.
    history : list of dict
        For each class and round: "class", "round", and the numbers of negatives that the last model scored ("seen"),
        that were added ("hard"), that were used in the fit ("negatives") and that were dropped after it ("pruned").

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from gyrfalcon import mini_bootstrap
    >>> X, y = load_digits(return_X_y=True)
    >>> mini_bootstrap(X / 16, y, background=0, random_state=0).classes
    array([1, 2, 3, 4, 5, 6, 7, 8, 9])
    """

    classes: Array
    background: Any
    models: list[Any] = field(repr=False)
    negatives: list[Array] = field(repr=False)
    history: list[dict[str, Any]] = field(repr=False)

    def decision_function(self, X: Any) -> Array:
        """Return the score of every class.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, n_features)

        Returns
        -------
        array of shape (n, n_classes)
        """
        return np.column_stack([model.decision_function(X) for model in self.models])

    def predict(self, X: Any) -> Array:
        """Return the class of the highest score, or the background if no score is above 0.

        Parameters
        ----------
        X : array or sparse matrix of shape (n, n_features)

        Returns
        -------
        array of shape (n,)
        """
        scores = self.decision_function(X)
        return np.where(scores.max(axis=1) > 0, self.classes[scores.argmax(axis=1)], self.background)


def mini_bootstrap(
    X: Any,
    y: Any,
    estimator: Any = None,
    *,
    background: Any = -1,
    n_batches: int = 10,
    hard: float = -0.7,
    easy: float | None = None,
    random_state: int | np.random.RandomState | None = None,
) -> Detectors:
    """Fit a detector for each class to its positives and to hard negatives, which are selected from many.

    In detection nearly all regions of a picture are background, and most of them are easy. The mini-bootstrap [1]_
    shuffles the negatives of a class (the background and the other classes) and divides them into batches. The first
    batch and the positives make the first model. From every further batch only those negatives are added that the
    last model finds hard, that is, gives a score above `hard`. With `easy`, negatives with a score below it are dropped
    after each fit. Thus the fits remain small, and no negative has to be scored twice.

    Parameters
    ----------
    X : array or sparse matrix of shape (n, n_features)
        For example features of proposed regions.
    y : array of shape (n,)
        Labels of classes, and `background`.
    estimator : classifier, optional
        Any classifier with a `decision_function`, which is cloned for each class. The default is
        `FalkonClassifier()`, whose scores estimate the targets +1 and -1. It is fitted once in every round:
        with ``warm_start=True`` and ``centers`` that are an array, it continues from the last solution.
    background : object, default -1
        The label of rows that belong to no class.
    n_batches : int, default 10
        Batches of negatives; 1 takes all negatives at once.
    hard : float, default -0.7
        Negatives with scores above this are added. The default is the papers', for scores that estimate +1 and -1; for
        logarithms of odds (``loss="logistic"``) -4.6 is a probability of 0.01.
    easy : float or None, default None
        After a fit, its negatives with scores below this are dropped; None keeps them. The papers take -0.9, which
        presumes a penalty: a model that interpolates finds all rows easy to which it was fitted.
    random_state : int, RandomState or None
        Order of the negatives. Pass an int for reproducible results; the estimator has its own.

    Returns
    -------
    Detectors

    References
    ----------
    .. [1] Maiettini, Pasquale, Rosasco, Natale, "Speeding-up Object Detection Training for Robotics with FALKON",
       IROS 2018; "On-line Object Detection: a Robotics Challenge", Autonomous Robots 2020.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from gyrfalcon import mini_bootstrap
    >>> X, y = load_digits(return_X_y=True)
    >>> detectors = mini_bootstrap(X[:1000] / 16, y[:1000], background=0, random_state=0)
    >>> bool((detectors.predict(X[1000:] / 16) == y[1000:]).mean() > 0.9)
    True
    >>> [record["hard"] < 0.5 * record["seen"] for record in detectors.history if record["round"] == 9]
    [True, True, True, True, True, True, True, True, True]
    """
    _BATCHES("n_batches", n_batches)
    _SCORE("hard", hard)
    _EASY("easy", easy)
    if easy is not None and easy > hard:
        raise ValueError(f"easy={easy} must not be greater than hard={hard}: rows that are added would be dropped")
    X, y = check_X_y(X, y, accept_sparse="csr", dtype=[np.float64, np.float32])
    classes = np.unique(y)
    classes = classes[classes != background]
    if len(classes) == 0 or not np.any(y != classes[0]):
        raise ValueError(
            f"y has {shown(list(np.unique(y)))} alone, with background={shown(background)}: detectors need rows of a "
            "class and other rows"
        )
    random = check_random_state(random_state)
    models: list[Any] = []
    negatives: list[Array] = []
    history: list[dict[str, Any]] = []
    for label in classes:
        model = FalkonClassifier(random_state=0) if estimator is None else clone(estimator)
        batches = np.array_split(random.permutation(np.flatnonzero(y != label)), n_batches)
        kept, records = _bootstrap(model, X, y == label, [batch for batch in batches if len(batch)], hard, easy)
        models.append(model)
        negatives.append(kept)
        history.extend({"class": label, **record} for record in records)
    return Detectors(classes, background, models, negatives, history)


def _bootstrap(
    model: Any, X: Any, positive: Array, batches: list[Array], hard: float, easy: float | None
) -> tuple[Array, list[dict[str, Any]]]:
    """Fit one detector; return the negatives of its last fit, and a record of every round."""
    positives, records = np.flatnonzero(positive), []
    chosen = fitted = batches[0]
    for i, batch in enumerate(batches):
        added = batch if i == 0 else batch[model.decision_function(X[batch]) > hard]
        if i > 0 and len(added) > 0:
            chosen = np.concatenate([chosen, added])
        record = {"round": i, "seen": len(batch), "hard": len(added), "negatives": len(chosen), "pruned": 0}
        if i == 0 or len(added) > 0:
            fitted, rows = chosen, np.concatenate([positives, chosen])
            model.fit(X[rows], positive[rows])
            if easy is not None:
                still = model.decision_function(X[chosen]) >= easy
                # a fit needs negatives, however easy they are
                chosen = chosen[still] if np.any(still) else chosen
                record["pruned"] = record["negatives"] - len(chosen)
        records.append(record)
    return fitted, records
