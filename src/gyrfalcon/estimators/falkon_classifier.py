"""Classification by FALKON."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import update_wrapper
from types import MethodType
from typing import Any, Self, overload

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from .._utils.portable import in_float64, library, log_expit, special
from .._utils.registry import register
from .._utils.threads import single_threaded_blas
from .._utils.words import listed
from ..callbacks import CallbackLike, NoImprovement
from ..centers import Centers
from ..fitting import falkon, newton
from ..fitting.arguments import described
from ..fitting.growth import Method, fit_centers
from ..fitting.parameters import CENTERS_OR_AUTO, check_parameters
from ..fitting.precision import warn_if_iterates_rounded
from ..fitting.subspace import AUTO, CenterSettings, ChosenCenters, WarmStart
from ..fitting.targets import indicators, signs
from ..kernels import Kernel, KernelFunction
from ..losses import Logistic, Loss, Softmax, as_loss
from ..losses.named import NAMES, OF_LABELS, OF_NUMBERS, loss_name
from ..sources import to_host
from ..storage.checkpoints import Checkpoint
from ._base import KernelClassifier
from ._lazy import lazily

Array = NDArray[Any]


class _WithProbabilities:
    """A method that exists if the loss gives probabilities: `available_if` with the reason in the error itself."""

    def __init__(self, method: Callable[[Any, Any], Array]) -> None:
        self.method = method
        update_wrapper(self, method)  # type: ignore[arg-type]

    @overload
    def __get__(self, model: None, owner: type) -> Callable[[Any, Any], Array]: ...
    @overload
    def __get__(self, model: FalkonClassifier, owner: type | None = None) -> Callable[[Any], Array]: ...
    def __get__(self, model: FalkonClassifier | None, owner: type | None = None) -> Callable[..., Array]:
        if model is None:
            return self.method
        model._check_probable()
        return MethodType(self.method, model)


@register
@described
class FalkonClassifier(KernelClassifier):
    """Kernel classification on millions of rows, by FALKON.

    With the squared loss, it regresses on targets +1 and -1 (one column for two classes, one for each class otherwise)
    and predicts the class with the largest value; see `FalkonRegressor` for the method. With the logistic loss, it
    minimises mean(-log P(y | x)) + penalty / 2 |f|^2 by Newton's method, where each step is a weighted problem of that
    kind [1]_; probabilities are then those of the model itself. With the hinge losses it is a support vector machine:
    it minimises mean(max(0, 1 - y f)^2) + penalty / 2 |f|^2, or the same without the square, for one class against the
    rest. That is scikit-learn's `LinearSVC` or `SVC` with C = 1 / (n penalty), for functions of the centers.

    Parameters
    ----------
    {kernel, falkon.n_centers}
    {falkon.penalty}
    loss : "squared", "logistic", "squared_hinge", "hinge" or Loss, default="squared"
        The loss to minimise. "squared" is the fastest, because it is one linear system. Use "logistic", the negative
        log-likelihood, for probabilities; it takes several times longer. Use "squared_hinge", a support vector machine
        that ignores rows beyond the margin, if errors count most: it often makes fewer of them, and takes longer still.
        "hinge" is the loss of `SVC`, smoothed by `gyrfalcon.losses.Hinge`, and the slowest. A loss of
        `gyrfalcon.losses` is also accepted; its targets are +1 and -1. The names "squared_error" and "log_loss" of
        scikit-learn stand for "squared" and "logistic".
    {multi_class, class_weight, centers, fit_intercept, scale, preconditioner, falkon.max_iter, tol, penalty_path,
    cg_steps, warm_start, early_stopping, validation_fraction, n_iter_no_change, checkpoint, dtype, memory_budget,
    device, precision, n_jobs, random_state, callbacks, verbose}

    Attributes
    ----------
    {classes_, centers_}
    dual_coef_ : array of shape (M,) for two classes, else (M, n_classes)
        Coefficients of the centers.
    {kernel_, penalty_}
    loss_ : Loss
        The loss.
    {n_iter_}
    history_ : list of dict
        One record for each iteration, as for `FalkonRegressor`; the validation error is the share of wrong classes for
        the squared loss, and the mean loss for others.
    {growth_, classes.offset_, classes.output_dtype_, mean_ scale_, n_features_in_, feature_names_in_}

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

    takes_sparse = True

    loss_: Loss
    penalty_: float
    growth_: list[dict[str, Any]]
    _chosen: ChosenCenters | None = None

    def __init__(
        self,
        kernel: Kernel | str | KernelFunction = "gaussian",
        *,
        n_centers: int | str | None = None,
        penalty: float | str = "auto",
        loss: str | Loss = "squared",
        multi_class: str = "multinomial",
        class_weight: Mapping[Any, float] | str | None = None,
        centers: str | ArrayLike | Centers = "uniform",
        fit_intercept: bool = True,
        scale: bool | str = "auto",
        preconditioner: str = "auto",
        max_iter: int = 20,
        tol: float | None = None,
        penalty_path: Sequence[float] | None = None,
        cg_steps: int | Sequence[int] | None = None,
        warm_start: bool = False,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 5,
        checkpoint: str | os.PathLike[str] | Checkpoint | None = None,
        dtype: DTypeLike = "auto",
        memory_budget: int | float | str = "auto",
        device: Any = None,
        precision: str | None = None,
        n_jobs: int | None = None,
        random_state: int | np.random.RandomState | None = None,
        callbacks: CallbackLike | Iterable[CallbackLike] | None = None,
        verbose: int = 0,
    ) -> None:
        self.kernel = kernel
        self.n_centers = n_centers
        self.penalty = penalty
        self.loss = loss
        self.multi_class = multi_class
        self.class_weight = class_weight
        self.centers = centers
        self.fit_intercept = fit_intercept
        self.scale = scale
        self.preconditioner = preconditioner
        self.max_iter = max_iter
        self.tol = tol
        self.penalty_path = penalty_path
        self.cg_steps = cg_steps
        self.warm_start = warm_start
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.checkpoint = checkpoint
        self.dtype = dtype
        self.memory_budget = memory_budget
        self.device = device
        self.precision = precision
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.callbacks = callbacks
        self.verbose = verbose

    def fit(
        self, X: Any, y: Any = None, sample_weight: ArrayLike | None = None, X_val: Any = None, y_val: Any = None
    ) -> Self:
        """Learn from rows.

        Parameters
        ----------
        {fit.X, labels.y, fit.sample_weight}
        {validation.X_val y_val}
            The error is the share of wrong classes for the squared loss, and the mean loss for others.

        Returns
        -------
        self
        """
        check_parameters(self.get_params(deep=False), n_centers=CENTERS_OR_AUTO)
        compute = self._compute
        patience = NoImprovement(self.n_iter_no_change) if self.early_stopping else None
        with self._session(patience=patience, checkpoint=self.checkpoint) as session:
            validates = self.early_stopping or self.n_centers == AUTO
            hold_out = self.validation_fraction if validates else None
            in_file = loss_name(self.loss) in NAMES and self.class_weight is None
            options: dict[str, Any] = {"hold_out": hold_out, "make_loss": self._make_loss}
            data, classes = self._data(session, X, y, sample_weight, X_val, y_val, **options, in_file=in_file)
            settings, warm = self._settings, None
            # coefficients mean something else to other classes or another loss, and centers to features in other units
            warm_start = self.warm_start and self._is_fitted and type(self.loss_) is type(data.loss)
            if warm_start and (data.scale is None) == (self.scale_ is None) and np.array_equal(self.classes_, classes):
                warm = WarmStart.of(self._chosen, self.centers_, self.dual_coef_, settings.centers)
            with single_threaded_blas():  # threads of its own would decide the last bits, and spin beside ours
                solver = falkon if data.is_least_squares else newton
                fitted = fit_centers(Method(solver.solve, solver.warn), settings, data, compute, session, warm)
            space, solution, data = fitted.space, fitted.solution, fitted.space.data
            self._set_solution(data, session)
            self._set_expansion(space.operator, solution.coef, data)
            penalty = space.penalty if data.is_least_squares else None
            warn_if_iterates_rounded(space.operator, solution, penalty, foreseen=data.dtype_given)
            self._chosen, self.penalty_, self.loss_ = space.remembered, space.penalty, data.loss
            vars(self).pop("growth_", None)  # of an earlier fit
            if fitted.growth is not None:
                self.growth_ = fitted.growth
            self.classes_ = classes
        return self

    @property
    def _settings(self) -> falkon.FalkonSettings:
        return falkon.FalkonSettings(
            CenterSettings(self.kernel, self.n_centers, self.centers),
            penalty=self.penalty,
            preconditioner=self.preconditioner,
            max_iter=self.max_iter,
            tol=self.tol,
            penalty_path=self.penalty_path,
            cg_steps=self.cg_steps,
        )

    def _make_loss(self, n_classes: int) -> Loss:
        """Return the loss that the parameters ask for."""
        loss = as_loss(self.loss)
        if loss_name(self.loss) in OF_NUMBERS:
            names = listed(["squared", *OF_LABELS], None)
            raise ValueError(f"loss={self.loss!r} must be one of {names}, or a loss of gyrfalcon.losses")
        if isinstance(loss, Logistic | Softmax):  # for two classes they are the same model
            return Softmax() if n_classes > 2 and self.multi_class == "multinomial" else Logistic()
        as_columns = indicators if loss.coupled else signs
        targets = as_columns(np.arange(n_classes), n_classes)
        loss.check(targets)
        return loss.resolve(targets)

    def _check_probable(self) -> None:
        """Raise AttributeError if the loss gives no probabilities."""
        try:
            loss = self.loss_ if self._is_fitted else as_loss(self.loss)
        except ValueError as error:  # of a loss that is none, which hasattr must survive
            raise AttributeError(f"there are no probabilities: {error}") from error
        if not loss.probabilities:
            raise AttributeError(
                f'there is no predict_proba: {type(loss).__name__} gives no probabilities. Use loss="logistic", or fit '
                "sklearn.calibration.CalibratedClassifierCV with this classifier, which calibrates decision_function"
            )

    @_WithProbabilities
    @lazily
    def predict_proba(self, X: Any) -> Array:
        """Predict the probabilities of the classes; the method exists only if the loss gives probabilities.

        Parameters
        ----------
        {rows.X}

        Returns
        -------
        array of shape (n, n_classes), whose rows sum to one; a Dask array for a Dask collection
        """
        f = self._columns(X)
        if isinstance(self.loss_, Logistic | Softmax):
            return library(f).exp(_log_probabilities(self.loss_, f))
        p = self.loss_.inverse_link(f)
        if p.shape[1] == 1:
            return np.hstack([1 - p, p])
        return p / p.sum(axis=1, keepdims=True)

    @_WithProbabilities
    @lazily
    def predict_log_proba(self, X: Any) -> Array:
        """Predict the logarithms of `predict_proba`, finite even where a probability rounds to zero.

        Parameters
        ----------
        {rows.X}

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
        f = f if isinstance(self.loss_, Logistic | Softmax) else to_host(f)
        return in_float64(f.reshape(len(f), -1))  # so that float32 rows sum to one, too

    def _check_loaded(self) -> None:
        super()._check_loaded()
        if not isinstance(self.loss_, Loss):
            raise ValueError("loss_ is not a loss")


def _log_probabilities(loss: Loss, f: Array) -> Array:
    if f.shape[1] == 1:
        return log_expit(library(f).hstack([-f, f]))
    out: Array = special(f).log_softmax(log_expit(f) if isinstance(loss, Logistic) else f, 1)
    return out
