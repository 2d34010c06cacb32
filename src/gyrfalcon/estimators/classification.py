"""Classification: what y means to every classifier, and the FALKON one."""

from __future__ import annotations

from functools import partial
from numbers import Number
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import log_expit, log_softmax
from sklearn.utils import check_random_state
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from .._utils.checks import one_of
from .._utils.registry import register
from ..losses import Logistic, Loss, Softmax, Squared, as_loss
from ._base import Estimator
from ._falkon import FalkonBase
from ._input import check_lengths, gathered, in_memory, lazily
from ._newton import NEWTON_WORDS, mean_loss
from ._parameters import documented, parameters
from ._sklearn import ClassifierMixin

Array = NDArray[Any]


@parameters
class HasClassWeight:
    """How much each class counts."""

    class_weight: Any = None


class Classification(HasClassWeight, ClassifierMixin, Estimator):
    """What y means to a classifier: labels, as columns of +1 and -1 (or 1 and 0, where a loss couples the columns)."""

    classes_: Array

    def _make_loss(self, n_classes: int) -> Loss | None:
        """The loss to be minimised, None where that is no choice."""
        return None

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: ArrayLike | None = None,
        X_val: Any = None,
        y_val: Any = None,
    ) -> Self:
        """Learn from rows.

        Parameters
        ----------
        X : array, table, sparse matrix, source or Dask collection of shape (n, n_features)
            float32 is computed in float32, all else in float64, unless `dtype` says otherwise. A source, such as
            ``gyrfalcon.open(path).X``, is read block by block, once for each pass.
        y : array of shape (n,)
            Labels of any kind.
        sample_weight : array of shape (n,), optional
            Not negative. Only ratios matter: the penalty goes with weights of mean 1.
        X_val, y_val : optional
            Rows on which the validation error is recorded (the share of wrong classes for the squared loss, the mean
            loss for others), and which decide what is decided by validation, such as when `early_stopping` stops.

        Returns
        -------
        self
        """
        with self._all_or_nothing():
            self._check_parameters()
            rows, y = self._training_rows(X, y)
            y = _labels(y, "y")
            check_classification_targets(y)
            classes, codes = np.unique(y, return_inverse=True)
            weight = self._check_weight(sample_weight, rows)
            present = np.unique(codes if weight is None else codes[weight > 0])
            if len(present) < 2:
                raise ValueError(
                    f"y has one class, {classes[present[0]]!r}, among the rows that count: at least two are needed"
                )
            weight = self._with_class_weight(weight, classes, codes)
            loss = self._make_loss(len(classes))
            as_columns = _indicators if loss is not None and loss.coupled else _signs
            error = _share_wrong if loss is None or type(loss) is Squared else partial(mean_loss, loss)
            held = self._check_validation(X_val, y_val)
            held_targets = None
            if held is not None:
                y_val = _labels(column_or_1d(gathered(y_val, held), warn=True), "y_val")
                check_lengths(held, y_val)
                unseen = sorted(set(y_val.tolist()) - set(classes.tolist()), key=str)
                if unseen:
                    raise ValueError(f"y_val has classes that y has not: {unseen}")
                held_targets = as_columns(np.searchsorted(classes, y_val), len(classes))
            random_state = check_random_state(self.random_state)
            targets = as_columns(codes, len(classes)).astype(self._tile_dtype(rows))
            problem = self._problem(rows, targets, weight, held, held_targets, error, codes, random_state)
            problem.flat = len(classes) == 2
            problem.attributes = {"classes_": classes} | ({} if loss is None else {"loss_": loss})
            warm = getattr(self, "warm_start", False) and hasattr(self, "coef_")
            same = warm and np.array_equal(self.classes_, classes) and type(getattr(self, "loss_", None)) is type(loss)
            self._solve(problem, random_state, same)
        return self

    def _with_class_weight(self, weight: Array | None, classes: Array, codes: Array) -> Array | None:
        if self.class_weight is None:
            return weight
        rows = np.ones(len(codes)) if weight is None else weight
        if isinstance(self.class_weight, str) and self.class_weight == "balanced":
            # a row of weight 2 is two rows, here too
            totals = np.bincount(codes, weights=rows)
            each = totals.sum() / np.where(totals > 0, totals, np.inf) / len(classes)
        else:
            each = compute_class_weight(self.class_weight, classes=classes, y=classes[codes])
        if not (np.isfinite(each).all() and (each >= 0).all() and (rows * each[codes]).any()):
            raise ValueError(
                f"class_weight={self.class_weight!r} must be finite, not negative, and not zero for every row"
            )
        weight = rows * each[codes]
        return weight

    def _check_loaded(self) -> None:
        super()._check_loaded()
        columns = 1 if self.coef_.ndim == 1 else self.coef_.shape[1]
        if self.classes_.ndim != 1 or columns != (1 if len(self.classes_) == 2 else len(self.classes_)):
            raise ValueError(f"coef_ of shape {self.coef_.shape} does not fit classes_ of shape {self.classes_.shape}")

    @lazily
    def decision_function(self, X: Any) -> Array:
        """The regression's values: positive for ``classes_[1]`` if there are two classes, else largest for the class.

        Parameters
        ----------
        X : array, table, sparse matrix, source or Dask collection of shape (n, n_features)

        Returns
        -------
        array of shape (n,) for two classes, else (n, n_classes)
        """
        return self._predict(X)

    @lazily
    def predict(self, X: Any) -> Array:
        """Predict classes.

        Parameters
        ----------
        X : array, table, sparse matrix, source or Dask collection of shape (n, n_features)

        Returns
        -------
        array of shape (n,); a Dask array for a Dask collection
        """
        values = self.decision_function(X)
        predictions: Array = self.classes_[_codes(values)]
        return predictions

    def score(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> float:
        """The share of rows whose class is predicted.

        Parameters
        ----------
        X : as for `predict`
        y : array of shape (n,)
        sample_weight : array of shape (n,), optional

        Returns
        -------
        float
        """
        return float(super().score(*in_memory(X, y, sample_weight)))


def _gives_probabilities(model: FalkonClassifier) -> bool:
    """Whether `predict_proba` is there; an AttributeError that says what to do if it is not."""
    model._check_probable()
    return True


@register
@documented(
    loss=""""squared", "logistic" or Loss
        What is minimised. "squared" is the fastest, one linear system. "logistic" is the negative log-likelihood, for
        probabilities; it takes several times longer. Or a loss of `gyrfalcon.losses`, which is given +1 and -1.""",
    multi_class=""""multinomial" or "ovr"
        What the logistic loss is with more than two classes: one model of all their probabilities (softmax), or one
        model of each class against the rest, whose probabilities are then made to sum to one.""",
    **NEWTON_WORDS,
)
@parameters
class FalkonClassifier(Classification, FalkonBase):
    """Kernel classification on millions of rows, by FALKON.

    With the squared loss, regresses on targets +1 and -1 (one column for two classes, one for each class otherwise) and
    predicts the class with the largest value; see `FalkonRegressor` for the method. With the logistic loss, minimises
    mean(-log P(y | x)) + penalty / 2 |f|^2 by Newton's method, each step of which is a weighted problem of that kind
    [1]_; probabilities then are the model's own.

    {parameters}

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
    loss_ : Loss
        The loss.
    n_iter_ : int
        Iterations done.
    history_ : list of dict
        One record for each iteration, as for `FalkonRegressor`; the validation error is the share of wrong classes for
        the squared loss, and the mean loss for others.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : array of str
        Their names, where X had names that are all strings.

    See Also
    --------
    FalkonRegressor : The same for regression.

    References
    ----------
    .. [1] Marteau-Ferey, Bach, Rudi, "Globally Convergent Newton Methods for Ill-conditioned Generalized
       Self-concordant Losses", NeurIPS 2019.

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from gyrfalcon import FalkonClassifier
    >>> X, y = make_moons(1000, noise=0.1, random_state=0)
    >>> model = FalkonClassifier(n_centers=100, random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.99)
    True
    >>> model = FalkonClassifier(loss="logistic", n_centers=100, random_state=0).fit(X, y)
    >>> model.predict_proba(X[:1]).round(2)
    array([[0., 1.]])
    """

    loss: str | Loss = "squared"
    multi_class: str = "multinomial"

    own_rules: ClassVar = {**FalkonBase.own_rules, "multi_class": one_of("multinomial", "ovr")}
    loss_: ClassVar[Loss]

    def _make_loss(self, n_classes: int) -> Loss:
        loss = as_loss(self.loss)
        if isinstance(self.loss, str) and self.loss not in ("squared", "logistic"):
            raise ValueError(f'loss={self.loss!r} must be "squared", "logistic" or a loss of gyrfalcon.losses')
        if isinstance(loss, Logistic | Softmax):  # for two classes they are the same model
            return Softmax() if n_classes > 2 and self.multi_class == "multinomial" else Logistic()
        signs = _indicators if loss.coupled else _signs
        targets = signs(np.arange(n_classes), n_classes)
        loss.check(targets)
        return loss.resolve(targets)

    def _check_probable(self) -> None:
        """Raise AttributeError if the loss gives no probabilities."""
        try:
            loss = getattr(self, "loss_", None) or as_loss(self.loss)
        except ValueError as error:  # of a loss that is none, which hasattr must survive
            raise AttributeError(f"there are no probabilities: {error}") from error
        if not loss.probabilities:
            raise AttributeError(
                f'{type(loss).__name__} gives no probabilities: use loss="logistic", or fit '
                "sklearn.calibration.CalibratedClassifierCV with this classifier, which calibrates decision_function"
            )

    @available_if(_gives_probabilities)  # type: ignore[untyped-decorator]
    @lazily
    def predict_proba(self, X: Any) -> Array:
        """Predict the probabilities of the classes; only where the loss gives any, else there is no such method.

        Parameters
        ----------
        X : array, table, sparse matrix, source or Dask collection of shape (n, n_features)

        Returns
        -------
        array of shape (n, n_classes), whose rows sum to one; a Dask array for a Dask collection
        """
        f = self._columns(X)
        if isinstance(self.loss_, Logistic | Softmax):
            return np.exp(_log_probabilities(self.loss_, f))
        p = self.loss_.inverse_link(f)
        if p.shape[1] == 1:
            return np.hstack([1 - p, p])
        return p / p.sum(axis=1, keepdims=True)

    @available_if(_gives_probabilities)  # type: ignore[untyped-decorator]
    @lazily
    def predict_log_proba(self, X: Any) -> Array:
        """Predict the logarithms of `predict_proba`, finite even where a probability rounds to zero.

        Parameters
        ----------
        X : array, table, sparse matrix, source or Dask collection of shape (n, n_features)

        Returns
        -------
        array of shape (n, n_classes); a Dask array for a Dask collection
        """
        f = self._columns(X)
        if isinstance(self.loss_, Logistic | Softmax):
            return _log_probabilities(self.loss_, f)
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))

    def _columns(self, X: Any) -> Array:
        f = self.decision_function(X)
        return f.reshape(len(f), -1).astype(np.float64)  # so that float32 rows sum to one, too

    def _check_loaded(self) -> None:
        super()._check_loaded()
        if not isinstance(self.loss_, Loss):
            raise ValueError("loss_ is not a loss")


def _log_probabilities(loss: Loss, f: Array) -> Array:
    if f.shape[1] == 1:
        return log_expit(np.hstack([-f, f]))
    out: Array = log_softmax(log_expit(f) if isinstance(loss, Logistic) else f, axis=1)
    return out


def _labels(y: Array, name: str) -> Array:
    """Labels that can be sorted: those that are Python objects must be all strings or all numbers."""
    if y.dtype != object or all(isinstance(label, str) for label in y):
        return y
    if all(isinstance(label, Number | np.bool_) for label in y):
        return np.asarray(y.tolist())
    kinds = sorted({type(label).__name__ for label in y})
    raise ValueError(f"{name} has labels of types {', '.join(kinds)}: they must be all strings or all numbers")


def _signs(codes: Array, n_classes: int) -> Array:
    """Targets +1 and -1: one column for two classes, else one for each."""
    if n_classes == 2:
        return 2.0 * codes[:, None] - 1.0
    return np.where(codes[:, None] == np.arange(n_classes), 1.0, -1.0)


def _indicators(codes: Array, n_classes: int) -> Array:
    """Targets 1 and 0: one column for each class."""
    return np.where(codes[:, None] == np.arange(n_classes), 1.0, 0.0)


def _codes(values: Array) -> Array:
    values = values.reshape(len(values), -1)
    return (values[:, 0] > 0).astype(np.intp) if values.shape[1] == 1 else values.argmax(axis=1)


def _share_wrong(targets: Array, weight: Array | None, values: Array) -> float:
    return float(np.average(_codes(values) != _codes(targets), weights=weight))
