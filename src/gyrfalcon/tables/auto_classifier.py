"""Classification of a table as it is."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_softmax
from sklearn.utils.validation import _num_samples, check_is_fitted

from .._utils.checks import not_negative, positive
from .._utils.registry import register
from ..callbacks import CallbackLike
from ..estimators._lazy import in_kind, lazily
from ..estimators._sklearn import ClassifierMixin
from ..fitting.calibration import Calibration, with_absent_classes
from ..fitting.conformal import COVERAGE, MOST_SCORES, Conformity
from ..fitting.explained import ExpansionPart
from ..fitting.rows import computed, labelled
from ..fitting.targets import with_class_weight
from ..fitting.weights import count
from ..sources import as_table
from ..storage.checkpoints import Checkpoint
from ._auto import AutoEstimator, described
from .blending import best_temperature
from .inputs import as_table_or_files
from .learning import Learnt
from .problems import CLASSIFIERS, Classification, class_values
from .scoring import metric_of
from .stored import check_floats, check_list, check_model
from .targets import classification_targets, row_weights

Array = NDArray[Any]


@register
@described
class AutoClassifier(ClassifierMixin, AutoEstimator):
    """Classification of a table as it is, with nothing to choose.

    This is `AutoRegressor` for classes: kernel models learn a function for each class by the squared error, and one
    also by the logistic loss. Predictions for held-out rows calibrate their values to probabilities, and the logarithms
    of these are averaged.

    Parameters
    ----------
    {auto.time_budget}
        With more than 100 classes, `fit` may take twice the budget, and a budget that is too small raises an error.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes, which are multiplied with `sample_weight`. "balanced" gives every class the same total
        weight.
    {auto.scoring}
        If the metric depends on predicted classes, like accuracy and balanced accuracy, `class_offsets_` are chosen by
        it as well.
    {auto.families, auto.cv, auto.checkpoint, auto.memory_budget, auto.device, n_jobs, auto.random_state,
    auto.callbacks, auto.verbose}

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
        The classes.
    cv_scores_ : dict
        `accuracy` and `log_loss` of predictions for rows that were held out in cross-validation, or of `X_val`.
    class_offsets_ : array of shape (n_classes,)
        Added to the logarithms of the probabilities before `predict` takes the largest; zeros without `scoring`.
    candidates_ : list of dict
        The candidates that were tried, as for `AutoRegressor`; `error` is that of the class codes, relative to the
        error of predicting their means.
    {auto.feature_importances_, auto.feature_slopes_, auto.best_estimator_, auto.weights_}
    encoders_, mixings_, models_ : list
        The parts: a fitted `TableEncoder`, a `Mixing` if the metric is a matrix (else None), and a fitted
        `ExactClassifier`, `FalkonClassifier`, `HierarchicalClassifier`, `BoostedClassifier` or `LinearClassifier`, for
        each model.
    calibrations_ : list of Calibration
        Maps from the values of each model to probabilities, whose logarithms are averaged.
    temperature_ : float
        The number by which the average is divided before it becomes probabilities again.
    conformity_ : Conformity
        How unexpected the classes of held-out rows were, from which sets of classes follow.
    {auto.n_features_in_, auto.feature_names_in_}

    See Also
    --------
    AutoRegressor : Regression, in the same way.
    FalkonClassifier : A single model, with parameters that you choose.

    Notes
    -----
    After Ctrl-C in `fit`, the estimator holds the best models found so far, and can predict. If there are none yet, it
    is as it was before: a fitted estimator keeps its earlier model, and any other is not fitted.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from gyrfalcon import AutoClassifier
    >>> X, y = load_iris(return_X_y=True, as_frame=True)
    >>> model = AutoClassifier(time_budget=2, random_state=0).fit(X[::2], y[::2])
    >>> bool(model.score(X[1::2], y[1::2]) > 0.9)
    True
    >>> model.predict_proba(X[:1]).round(1).tolist()
    [[1.0, 0.0, 0.0]]
    """

    classes_: Array
    calibrations_: list[Calibration]
    temperature_: float
    class_offsets_: Array
    cv_scores_: dict[str, float]
    conformity_: Conformity

    def __init__(
        self,
        time_budget: float = 60,
        *,
        class_weight: Any = None,
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
        self.class_weight = class_weight
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
        y : array of shape (n,)
            Labels: numbers or strings; by default those of X, if X is a `Dataset`. More than ten classes need two rows
            each on average.
        sample_weight : array of shape (n,), optional
            Not negative. Rows with weight 0 are ignored, and so is a class that occurs only in such rows.
        {auto.groups, auto.X_val y_val}

        Returns
        -------
        self
        """
        X, y, sample_weight = labelled(X, y, sample_weight)
        X_val, y_val, _ = labelled(X_val, y_val)
        X, X_val = as_table_or_files(X, self.memory_budget), as_table(X_val)
        counted = count(computed(sample_weight), int(_num_samples(X)))
        labels, classes, codes = classification_targets(X, y, X_val, y_val, counted, type(self).__name__)
        weight = with_class_weight(self.class_weight, row_weights(counted, len(labels)), classes, codes)
        problem = Classification.of(labels, codes, len(classes), weight, metric_of(self.scoring, self))
        self._learn(X, problem, weight, groups, X_val, counted)
        return self

    def _outcome(self, learnt: Learnt) -> dict[str, Any]:
        problem, judged, weight = learnt.data.problem, learnt.judged, learnt.data.weight
        assert isinstance(problem, Classification)
        labels = problem.labels[judged]
        weight = None if weight is None else weight[judged]
        temperature = best_temperature(*with_absent_classes(learnt.values, labels, problem.n_classes, weight))
        logs = log_softmax(learnt.values / temperature, axis=1)
        offsets = np.zeros(problem.n_classes)
        if problem.metric is not None:
            offsets = problem.metric.class_offsets(logs, np.unique(problem.y), labels, weight)
        scores = {
            "accuracy": float(np.mean((logs + offsets).argmax(axis=1) == labels)),
            "log_loss": -float(np.mean(logs[np.arange(len(labels)), labels])),
        }
        return {
            "classes_": np.unique(problem.y),
            "class_offsets_": offsets,
            "calibrations_": learnt.calibrations,
            "temperature_": temperature,
            "cv_scores_": scores,
            "conformity_": _conformity(logs, labels, weight),
        }

    def _check_model(self, fitted: Any, n_features: int) -> None:
        n_classes = len(self.classes_)
        check_model(fitted, CLASSIFIERS, n_features, 1 if n_classes == 2 else n_classes)

    def _check_loaded(self) -> None:
        super()._check_loaded()
        if not isinstance(self.classes_, np.ndarray) or self.classes_.ndim != 1 or len(self.classes_) < 2:
            raise ValueError("classes_ is not an array of at least two classes")
        positive()("temperature_", self.temperature_)
        check_floats("class_offsets_", self.class_offsets_, (len(self.classes_),))
        if not isinstance(self.cv_scores_, dict) or self.cv_scores_.keys() != {"accuracy", "log_loss"}:
            raise ValueError("cv_scores_ is not a dict of accuracy and log_loss")
        for name, score in self.cv_scores_.items():
            not_negative()(name, score)
        if not isinstance(self.conformity_, Conformity) or self.conformity_.scores.shape[1] != 1:
            raise ValueError("conformity_ is not a Conformity of one column")
        check_list("calibrations_", self.calibrations_, len(self.models_))
        for one in self.calibrations_:
            if not isinstance(one, Calibration) or len(one.bias) != len(self.classes_):
                raise ValueError(f"calibrations_ holds one that is not of {len(self.classes_)} classes")

    @property
    def _has_one_column(self) -> bool:
        return len(self.classes_) == 2

    def _explained_blend(self) -> tuple[Callable[[Any], Array], Array, tuple[ExpansionPart, ...] | None]:
        return self.decision_function, np.zeros(1), None  # a softmax of the members is no sum of them

    @lazily
    def decision_function(self, X: Any) -> Array:
        """Return the logarithm of the probability of each class; for two classes, that of the second minus the first.

        Parameters
        ----------
        {columns.X}

        Returns
        -------
        array of shape (n,) for two classes, else (n, n_classes); a Dask array for a Dask collection
        """
        logs = self.predict_log_proba(X)
        return logs[:, 1] - logs[:, 0] if len(self.classes_) == 2 else logs

    @lazily
    def predict_proba(self, X: Any) -> Array:
        """Predict the probability of each class.

        Parameters
        ----------
        X : as for `decision_function`

        Returns
        -------
        array of shape (n, n_classes)
        """
        return np.exp(self.predict_log_proba(X))

    @lazily
    def predict_log_proba(self, X: Any) -> Array:
        """Predict the logarithm of the probability of each class, finite even where a probability rounds to zero.

        Parameters
        ----------
        X : as for `decision_function`

        Returns
        -------
        array of shape (n, n_classes)
        """
        total: Any = 0.0
        for rows, model, calibration, weight in zip(
            self._encoded(X), self.models_, self.calibrations_, self.weights_, strict=True
        ):
            total = total + weight * calibration.log_probabilities(class_values(model, rows))
        return np.asarray(log_softmax(total / self.temperature_, axis=1))

    @lazily
    def predict(self, X: Any) -> Array:
        """Predict the most probable class, after `class_offsets_` are added to the logarithms of the probabilities.

        Parameters
        ----------
        X : as for `decision_function`

        Returns
        -------
        array of shape (n,)
        """
        logs = self.predict_log_proba(X)
        return np.asarray(self.classes_[(logs + self.class_offsets_).argmax(axis=1)])

    @in_kind
    def predict_set(self, X: Any, coverage: float = 0.9) -> Array:
        """Predict sets of classes that contain the right one with about the given probability.

        A set contains the classes whose probability is above a threshold, which is chosen by predictions for rows that
        were held out in cross-validation. If new rows are like the training rows, sets contain the right class with
        about the given probability: the models fitted to all rows differ a little from those of the folds. The set of
        a row that is unlike all others may be empty.

        Parameters
        ----------
        {score.X, coverage}

        Returns
        -------
        array of bool of shape (n, n_classes)
            Which of `classes_` belong to the set of each row.
        """
        COVERAGE("coverage", coverage)
        check_is_fitted(self)
        return self.conformity_.accepted(1.0 - np.asarray(self.predict_proba(X)), coverage)

    def score(self, X: Any, y: Any = None, sample_weight: ArrayLike | None = None) -> float:
        """Return the accuracy: the share of rows whose class is predicted correctly.

        Parameters
        ----------
        {score.X, classes.y, score.sample_weight}

        Returns
        -------
        float
        """
        return float(super().score(*self._for_score(X, y, sample_weight)))


def _conformity(logs: Array, labels: Array, weight: Array | None) -> Conformity:
    """Return how unexpected the labels of held-out rows were: 1 - probability, of at most some thousand rows."""
    some = np.sort(np.random.RandomState(0).permutation(len(labels))[:MOST_SCORES])
    scores = 1.0 - np.exp(logs[some, labels[some]])
    return Conformity.of(scores[:, None], None if weight is None else weight[some])
