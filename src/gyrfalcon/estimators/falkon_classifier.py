"""Classification by FALKON."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import update_wrapper
from types import MethodType
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from .._utils.devices import check_precision
from .._utils.portable import in_float64, library, log_expit, special
from .._utils.registry import register
from .._utils.threads import single_threaded_blas
from ..callbacks import CallbackLike, NoImprovement
from ..centers import Centers
from ..fitting import falkon
from ..fitting.data import classification_data, indicators, signs
from ..fitting.lazy import lazily
from ..fitting.parameters import check_parameters
from ..fitting.precision import warn_if_iterates_rounded
from ..fitting.rows import follows_rows
from ..fitting.session import fit_session
from ..fitting.subspace import ChosenCenters
from ..kernels import Kernel, KernelFunction
from ..losses import Logistic, Loss, Softmax, as_loss, loss_name
from ..sources import to_host
from ..storage.checkpoints import Checkpoint
from ._base import KernelClassifier, warm_start_of

Array = NDArray[Any]


class _WithProbabilities:
    """A method that an estimator has where its loss gives probabilities; elsewhere the error says what to do.

    As scikit-learn's `available_if`, whose error has the reason as its cause only.
    """

    def __init__(self, method: Callable[..., Any]) -> None:
        self.method = method
        update_wrapper(self, method)  # type: ignore[arg-type]

    def __get__(self, model: Any, owner: type | None = None) -> Any:
        if model is None:
            return self.method
        model._check_probable()
        return MethodType(self.method, model)


@register
class FalkonClassifier(KernelClassifier):
    """Kernel classification on millions of rows, by FALKON.

    With the squared loss, regresses on targets +1 and -1 (one column for two classes, one for each class otherwise) and
    predicts the class with the largest value; see `FalkonRegressor` for the method. With the logistic loss, minimises
    mean(-log P(y | x)) + penalty / 2 |f|^2 by Newton's method, each step of which is a weighted problem of that kind
    [1]_; probabilities then are the model's own.

    Parameters
    ----------
    kernel : Kernel, str or callable, default="gaussian"
        A kernel of `gyrfalcon.kernels`, its name, or a function k(A, B) that returns the matrix of kernel values.
    n_centers : int or None, default=None
        Number of Nyström centers M, at most n. More centers are more accurate; a pass over the rows takes time
        proportional to M, and the factors take memory proportional to M^2. None is 2,000, or 2 sqrt(n) beyond a
        million rows, at most 10,000.
    penalty : float or "auto", default="auto"
        The papers' lambda, not negative: the factor of |f|^2 beside the mean squared error, and of |f|^2 / 2 beside the
        mean of another loss. A penalty that cannot be told from rounding, below 1.5e-8 in float32 or 3e-17 in float64
        times the mean of k(x, x), is raised to that. "auto" chooses one on a sample of the rows, in about a second, by
        leave-one-out errors for the squared loss and by held-out rows of the sample for others; `penalty_` is what it
        chose.
    loss : "squared", "logistic" or Loss, default="squared"
        What is minimised. "squared" is fastest: one linear system. "logistic" is the negative log-likelihood, which
        gives probabilities and takes several times longer. Also a loss of `gyrfalcon.losses`, which is given targets +1
        and -1. scikit-learn's names "squared_error" and "log_loss" are taken for "squared" and "logistic".
    multi_class : "multinomial" or "ovr", default="multinomial"
        What the logistic loss is with more than two classes: one model of all their probabilities (softmax), or one
        model of each class against the rest, whose probabilities are then made to sum to one.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes: a dict from class to number, or "balanced" for weights inversely proportional to their
        frequencies. Multiplied with `sample_weight`.
    centers : str, selector, or array of shape (M, n_features), default="uniform"
        How the centers are chosen: drawn from the rows by "uniform", "leverage", "bless", "rpcholesky", "kmeans++" or
        "dpp", by a selector of `gyrfalcon.centers`, or given.
    fit_intercept : bool, default=True
        Whether to measure f from the best constant, `offset_` (the mean of y for the squared loss), and not from 0. The
        constant is not penalised, and is what f is far from the rows.
    scale : bool or "auto", default="auto"
        Whether to bring every feature to mean 0 and standard deviation 1 as rows are read, in `fit` and in `predict`.
        It costs one pass over the rows and no memory. Sparse rows are divided by the deviation only, so that zeros stay
        zeros. "auto" does it where the library chooses the length scale of dense rows. A length scale that is given is
        in the units of X, and rows are then taken as they are, as are those that come from `LearnedMetric` or
        `TableEncoder`, and sparse ones: words and hashes that are rare would drown the others.
    preconditioner : "auto", "falkon", "sample" or "krill", default="auto"
        What makes conjugate gradient fast. "falkon" is computed from the centers alone, and assumes that they were
        drawn from the rows with known probabilities; "sample" solves the problem of a sample of the rows in each
        iteration on all of them, of which one to three are then enough; "krill" is computed from a sketch of all rows,
        for any centers, at the cost of one more pass and three more M x M matrices. "auto" uses "sample" where there
        are many rows for each center and a pass takes long; "krill", if memory allows, for centers that were given or
        not drawn in that way, and where four or eight iterations show that "falkon" does not suit the rows.
    max_iter : int, default=20
        Maximum number of iterations: of conjugate gradient for the squared loss, where ten to twenty are enough with a
        good preconditioner; of Newton steps for other losses, of which most problems need ten to fifteen.
    tol : float or None, default=None
        For the squared loss, stop when the norm of the preconditioned residual falls below `tol` times that of the
        right-hand side; for other losses, when a Newton step promises to lower the objective by at most `tol` times
        itself. A `ConvergenceWarning` says if that was not reached. None stops where further iterations would not show
        in predictions (1e-6 in float32 and 1e-10 in float64 for the squared loss, or with a sample of the rows when
        the squared error is known to a thousandth and predictions are known to a twentieth of their standard
        deviation; for other losses 5e-3, which leaves some 0.1% of the objective, and a step that moves fitted values
        by at most a twentieth of their standard deviation); 0 runs all `max_iter` iterations. Both warn only if
        predictions would still change by a twentieth of their standard deviation, or the objective of another loss by
        5e-3 of itself.
    penalty_path : list of float, or None, default=None
        For losses other than the squared one: penalties of the first Newton steps, one step each, before `penalty`.
        None chooses them: from a large one on, each a tenth of the last, as soon as Newton's method is near enough.
    cg_steps : int, list of int, or None, default=None
        For losses other than the squared one: number of conjugate gradient steps in each Newton step; the last number
        of a list holds for all steps that follow. None stops each when its residual has halved.
    warm_start : bool, default=False
        Whether to start from the last fit's solution, with its centers unless `n_centers` or `centers` has changed
        since.
    early_stopping : bool, default=False
        Whether to stop when the validation error has not fallen for `n_iter_no_change` iterations, and keep the best
        solution. The validation set is the one given to `fit`, or a random part of the rows, whose weights then count
        there too.
    validation_fraction : float, default=0.1
        Share of the rows that is held out where a validation set is needed and `fit` is given none.
    n_iter_no_change : int, default=5
        Number of iterations without improvement after which `early_stopping` stops.
    checkpoint : str, path-like, Checkpoint or None, default=None
        A folder for the state of the fit, written every 30 seconds or as a `gyrfalcon.Checkpoint` says. A fit that was
        killed and is started again continues from there, to the same solution bit for bit. Each fit needs a folder of
        its own; delete it to start afresh.
    dtype : "auto", "float32" or "float64", default="auto"
        Precision of the kernel; "auto" follows X, except that float64 is used where float32 would lose the penalty
        beside the values of the kernel, one term of the kernel beside another, or part of f, as with a smooth kernel
        and a small penalty. The factors are in float64 up to 1,500 centers, and beyond that in the precision of the
        kernel.
    memory_budget : "auto", int or str, default="auto"
        Memory that the fit may use beside X and y, in bytes or as "4GB": for factors, blocks at work, and buffers of
        files. If the n x M kernel matrix fits as well it is kept, and iterations run at memory speed. "auto" is what is
        available, half of it for the kernel matrix, and keeps one of more than 256 MB only where that pays, which takes
        many features or a costly kernel; 0 is the same, but the matrix is never kept.
    device : None, str, torch.device or list of these, default=None
        Where products with the kernel matrix are computed: None is here, in compiled code; "cuda", "cuda:1", "mps" or
        "cpu" is a device of PyTorch (``pip install "gyrfalcon[torch]"``), and a list several of them. Rows that fit
        stay there. Model files do not keep it.
    precision : {None, "tf32"}, default=None
        "tf32" lets a device that has it make the kernel matrix of float32 rows in TF32 during the fit: rows and centers
        are rounded to its 11 bits, so that nothing else loses any, the least penalty included. It is for dense rows of
        hundreds of features around 0 (`scale`). Model files do not keep it.
    n_jobs : int or None, default=None
        Number of threads; None uses every core.
    random_state : int, RandomState or None, default=None
        Seed of the centers and of the validation split.
    callbacks : callable, Callback, list of them, or None, default=None
        Called with the record of each iteration; one that returns True stops the fit. See `gyrfalcon.callbacks`.
    verbose : int, default=0
        1 shows a progress bar, 2 also logs a line for each iteration.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
        The classes, sorted.
    centers_ : array of shape (M, n_features_in_)
        The centers.
    dual_coef_ : array of shape (M,) for two classes, else (M, n_classes)
        Coefficients of the centers.
    kernel_ : Kernel
        The kernel, with parameters that depend on the data resolved.
    penalty_ : float
        The penalty that was used or chosen.
    loss_ : Loss
        The loss.
    n_iter_ : int
        Number of iterations.
    history_ : list of dict
        One record for each iteration, as for `FalkonRegressor`; the validation error is the share of wrong classes for
        the squared loss, and the mean loss for others.
    offset_ : float for two classes, else array of shape (n_classes,)
        Constants that f is measured from; 0 without `fit_intercept`.
    output_dtype_ : {"float32", "float64"}
        Precision of the values of f.
    mean_, scale_ : array of shape (n_features_in_,), or None
        Means and standard deviations by which features were scaled; None if rows were taken as they are.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : array of str
        Names of the features, if X has names that are all strings.

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
    _chosen: ChosenCenters | None = None

    def __init__(
        self,
        kernel: Kernel | str | KernelFunction = "gaussian",
        *,
        n_centers: int | None = None,
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
        self,
        X: Any,
        y: Any = None,
        sample_weight: ArrayLike | None = None,
        X_val: Any = None,
        y_val: Any = None,
    ) -> Self:
        """Learn from rows.

        Parameters
        ----------
        X : array, table, sparse matrix, source or Dask collection of shape (n, n_features)
            float32 is computed in float32, everything else in float64, unless `dtype` says otherwise. A source, such as
            ``gyrfalcon.open(path, target=name)``, is read block by block, once for each pass.
        y : array of shape (n,)
            Labels of any kind. By default those of X, if it was opened with a target.
        sample_weight : array of shape (n,), optional
            Not negative. Rows with weight 0 are ignored. Only ratios matter: the penalty goes with weights of mean 1.
        X_val, y_val : optional
            Rows on which the validation error is recorded (the share of wrong classes for the squared loss, the mean
            loss for others), and which decide what is decided by validation, such as when `early_stopping` stops.

        Returns
        -------
        self
        """
        check_parameters(self)
        check_precision(self.precision, self.device)
        patience = NoImprovement(self.n_iter_no_change) if self.early_stopping else None
        with fit_session(self, patience=patience, checkpoint=self.checkpoint) as session:
            data, classes = classification_data(
                self,
                X,
                y,
                sample_weight,
                X_val,
                y_val,
                random_state=session.random_state,
                scratch=session.scratch,
                class_weight=self.class_weight,
                hold_out=self.validation_fraction if self.early_stopping else None,
                make_loss=self._make_loss,
            )
            # coefficients mean something else to other classes or another loss, and centers to features in other units
            warm = self.warm_start and self._is_fitted and (data.scale is None) == (self.scale_ is None)
            warm = warm and np.array_equal(self.classes_, classes) and type(self.loss_) is type(data.loss)
            with single_threaded_blas():  # threads of its own would decide the last bits, and spin beside ours
                space, solution = falkon.solve(self, data, session, warm_start_of(self) if warm else None)
            data = space.data
            self._set_solution(data, session)
            self._set_expansion(space.operator, solution.coef, data)
            warn_if_iterates_rounded(
                space.operator,
                solution,
                space.penalty if data.is_least_squares else None,
                foreseen=not follows_rows(self.dtype),
            )
            self._chosen, self.penalty_ = space.remembered, space.penalty
            self.classes_, self.loss_ = classes, data.loss
        return self

    def _make_loss(self, n_classes: int) -> Loss:
        """Return the loss that the parameters ask for."""
        loss = as_loss(self.loss)
        if loss_name(self.loss) not in (None, "squared", "logistic"):
            raise ValueError(f'loss={self.loss!r} must be "squared", "logistic" or a loss of gyrfalcon.losses')
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
