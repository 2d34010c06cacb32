"""FALKON classification with the squared loss."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d, validate_data

from ..centers import Centers
from ..kernels import Kernel, KernelFunction
from ..persistence import register
from ._falkon import PARAMETERS, FalkonBase, documented

Array = NDArray[Any]


@register
@documented(PARAMETERS)
class FalkonClassifier(ClassifierMixin, FalkonBase):  # type: ignore[misc]
    """Kernel classification on millions of rows, by FALKON with the squared loss.

    Regresses on targets +1 and -1 (one column for two classes, one for each class otherwise) and predicts the class
    with the largest value. See `FalkonRegressor` for the method.

    {parameters}
    class_weight : dict, "balanced" or None
        Weights of the classes: a dict from class to number, or "balanced" for weights inversely proportional to their
        frequencies. Multiplied with `sample_weight`.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
        The classes, sorted.
    centers_ : array of shape (M, n_features_in_)
        The centers.
    coef_ : array of shape (M,) for two classes, else (M, n_classes)
        Coefficients of the centers.
    kernel_ : Kernel
        The kernel, with what depends on the data worked out.
    n_iter_ : int
        Iterations done.
    history_ : list of dict
        One record for each iteration, as for `FalkonRegressor`; the validation error is the share of wrong classes.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : array of str
        Their names, where X had names that are all strings.

    See Also
    --------
    FalkonRegressor : The same for regression.

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from gyrfalcon import FalkonClassifier
    >>> X, y = make_moons(1000, noise=0.1, random_state=0)
    >>> model = FalkonClassifier(n_centers=100, random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.99)
    True
    """

    def __init__(
        self,
        kernel: Kernel | str | KernelFunction = "gaussian",
        *,
        n_centers: int | None = None,
        penalty: float = 1e-6,
        centers: str | ArrayLike | Centers = "uniform",
        max_iter: int = 20,
        tol: float | None = None,
        class_weight: Any = None,
        dtype: Any = "auto",
        memory_budget: int | float | str = "auto",
        n_jobs: int | None = None,
        random_state: int | np.random.RandomState | None = None,
        warm_start: bool = False,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 5,
        callbacks: Any = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            kernel,
            n_centers=n_centers,
            penalty=penalty,
            centers=centers,
            max_iter=max_iter,
            tol=tol,
            dtype=dtype,
            memory_budget=memory_budget,
            n_jobs=n_jobs,
            random_state=random_state,
            warm_start=warm_start,
            early_stopping=early_stopping,
            validation_fraction=validation_fraction,
            n_iter_no_change=n_iter_no_change,
            callbacks=callbacks,
            verbose=verbose,
        )
        self.class_weight = class_weight

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: ArrayLike | None = None,
        X_val: Any = None,
        y_val: Any = None,
    ) -> FalkonClassifier:
        """Learn from rows.

        Parameters
        ----------
        X : array or table of shape (n, n_features)
            float32 is computed in float32, all else in float64, unless `dtype` says otherwise.
        y : array of shape (n,)
            Labels of any kind.
        sample_weight : array of shape (n,), optional
            Not negative. Only ratios matter: the penalty goes with weights of mean 1.
        X_val, y_val : optional
            Rows on which the share of wrong classes is recorded at every iteration, and which decide when
            `early_stopping` stops.

        Returns
        -------
        self
        """
        self._check_parameters()
        X, y = validate_data(self, X, y, dtype=[np.float64, np.float32])
        check_classification_targets(y)
        dtype = self._tile_dtype(X)
        weight = self._check_weight(sample_weight, X)
        labels = y if weight is None else y[weight > 0]
        classes, codes = np.unique(y, return_inverse=True)
        if len(np.unique(labels)) < 2:
            raise ValueError(f"y has one class, {np.unique(labels)[0]!r}, among the rows that count: at least two are needed")
        if self.class_weight is not None:
            each = compute_class_weight(self.class_weight, classes=classes, y=y)
            weight = each[codes] if weight is None else weight * each[codes]
            if (weight < 0).any() or not weight.sum() > 0:
                raise ValueError(f"class_weight={self.class_weight!r} must not be negative, nor zero for every row")
        random_state = check_random_state(self.random_state)
        held = self._check_validation(X_val, y_val)
        held_codes = None
        if held is not None:
            y_val = column_or_1d(y_val, warn=True)
            unseen = np.setdiff1d(y_val, classes)
            if len(unseen):
                raise ValueError(f"y_val has classes that y has not: {unseen.tolist()}")
            held_codes = np.searchsorted(classes, y_val)
        targets = _signs(codes, len(classes)).astype(dtype)
        held_targets = None if held_codes is None else _signs(held_codes, len(classes))
        problem = self._problem(X, targets, weight, held, held_targets, _share_wrong, codes, random_state)
        warm_start = self.warm_start and hasattr(self, "classes_") and np.array_equal(self.classes_, classes)
        self._fit(problem, random_state, warm_start=warm_start)
        self.classes_ = classes
        if len(classes) == 2:
            self.coef_ = self.coef_[:, 0]
        return self

    def decision_function(self, X: Any) -> Array:
        """The regression's values: positive for ``classes_[1]`` if there are two classes, else largest for the class.

        Parameters
        ----------
        X : array or table of shape (n, n_features)

        Returns
        -------
        array of shape (n,) for two classes, else (n, n_classes)
        """
        return self._predict(X)

    def predict(self, X: Any) -> Array:
        """Predict classes.

        Parameters
        ----------
        X : array or table of shape (n, n_features)

        Returns
        -------
        array of shape (n,)
        """
        chosen: Array = self.classes_[_codes(self.decision_function(X))] if hasattr(self, "classes_") else self._predict(X)
        return chosen


def _signs(codes: Array, n_classes: int) -> Array:
    """Targets +1 and -1: one column for two classes, else one for each."""
    if n_classes == 2:
        return 2.0 * codes[:, None] - 1.0
    return np.where(codes[:, None] == np.arange(n_classes), 1.0, -1.0)


def _codes(values: Array) -> Array:
    values = values.reshape(len(values), -1)
    return (values[:, 0] > 0).astype(np.intp) if values.shape[1] == 1 else values.argmax(axis=1)


def _share_wrong(targets: Array, values: Array) -> float:
    return float(np.mean(_codes(values) != _codes(targets)))
