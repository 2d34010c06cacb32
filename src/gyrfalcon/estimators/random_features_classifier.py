"""Classification on random features."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray
from sklearn.utils.validation import check_is_fitted

from .._utils.registry import register
from ..callbacks import CallbackLike, NoImprovement
from ..fitting import random_features
from ..fitting.auto_penalty import as_penalty
from ..fitting.data import classification_data
from ..fitting.parameters import check_parameters
from ..fitting.random_features import check_loaded_features
from ..fitting.session import fit_session
from ..kernels import Kernel, KernelFunction
from ..kernels.features import FeatureMap
from ..operators import feature_operator
from ._base import KernelClassifier

Array = NDArray[Any]


@register
class RandomFeaturesClassifier(KernelClassifier):
    """Classification by least squares on random features of a kernel.

    Regresses on targets +1 and -1 (one column for two classes, one for each class otherwise) and predicts the class
    with the largest value. See `RandomFeaturesRegressor` for the method.

    Parameters
    ----------
    kernel : Kernel or str, default="gaussian"
        A kernel of `gyrfalcon.kernels` that has random features, or its name: `Gaussian`, `Laplacian`, `Matern`,
        `RationalQuadratic`, `ArcCosine`, `Linear`, sums of these, and their products with a number.
    n_components : int, default=1000
        Number of features M. More is more accurate; the direct solver takes time n M^2 and memory M^2.
    penalty : float or "auto", default="auto"
        lambda, on the mean squared error; not negative. "auto" chooses one for the kernel by leave-one-out errors on a
        sample of the rows, in about a second; `penalty_` is what it chose.
    orthogonal : bool, default=False
        Orthogonal weights, which meet the kernel with less variance at the same cost; see `RandomFeatures`.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes: a dict from class to number, or "balanced" for weights inversely proportional to their
        frequencies. Multiplied with `sample_weight`.
    fit_intercept : bool, default=True
        Whether to measure f from the best constant, `offset_` (the mean of y for the squared loss), and not from 0. The
        constant is not penalised, and is what f is far from the rows.
    scale : bool or "auto", default="auto"
        Whether to bring every feature to mean 0 and standard deviation 1 as rows are read, in `fit` and in `predict`.
        It costs one pass over the rows and no memory. "auto" does it where the library chooses the length scale. A
        length scale that is given is in the units of X, and rows are then taken as they are, as are those that come
        from `LearnedMetric` or `TableEncoder`.
    solver : {"direct", "sgd", "bcd"}, default="direct"
        "direct" adds up the normal equations in one pass over the rows and factorises them. "sgd" passes over the rows
        in mini-batches, in O(M) memory. "bcd", block coordinate descent, solves for blocks of coefficients in turn.
    max_iter : int, default=20
        Epochs of "sgd", sweeps of "bcd". With a small penalty they regularise: stop early by validation.
    step : float or "auto", default="auto"
        Length of the steps of "sgd", with the mean squared error halved. "auto" is 1 over the largest curvature that a
        few batches have. It is constant, so the solution is reached up to a neighbourhood that shrinks with the step.
        Longer steps than twice "auto" diverge, and an error says so.
    batch_size : int or None, default=None
        Rows of a mini-batch of "sgd"; None is sqrt(n), at least 256.
    block_size : int or None, default=None
        Coefficients of a block of `solver="bcd"`; None is a tenth of them, at least 100. An iteration solves for every
        block once, in two passes over the rows and memory of `block_size` numbers for each coefficient.
    early_stopping : bool, default=False
        Stop "sgd" or "bcd" when the validation error has not fallen for `n_iter_no_change` epochs, and keep the best
        solution. The validation set is the one given to `fit`, or a random part of the rows.
    validation_fraction : float, default=0.1
        Share of the rows that is held out where a validation set is needed and `fit` is given none.
    n_iter_no_change : int, default=5
        Number of iterations without improvement after which `early_stopping` stops.
    dtype : "auto", "float32" or "float64", default="auto"
        Precision of the features; "auto" follows X. The normal equations are in float64.
    memory_budget : "auto", int or str, default="auto"
        Memory for the M x M normal equations of "direct", which must fit, for X if it comes from a file and "sgd" is
        used, and for the features of the validation rows, which are kept if they fit. Bytes, a string such as "4GB", or
        "auto" for what is available, half of it for features. Features of the training rows are never kept.
    n_jobs : int or None, default=None
        Number of threads; None uses every core.
    random_state : int, RandomState or None, default=None
        Seed of the features, the validation split and the order of mini-batches.
    callbacks : callable, Callback, list of them, or None, default=None
        Called with the record of each iteration; one that returns True stops the fit. See `gyrfalcon.callbacks`.
    verbose : int, default=0
        1 shows a progress bar, 2 also logs a line for each iteration.

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
        The classes, sorted.
    feature_coef_ : array of shape (M,) for two classes, else (M, n_classes)
        Coefficients of the features.
    penalty_ : float
        The penalty that was used or chosen.
    feature_map_ : FeatureMap
        The weights of the features.
    kernel_ : Kernel
        The kernel, with parameters that depend on the data resolved.
    n_iter_ : int
        Number of epochs; 1 for "direct".
    history_ : list of dict
        As for `RandomFeaturesRegressor`; the validation error is the share of wrong classes.
    offset_ : float for two classes, else array of shape (n_classes,)
        Constants that f is measured from; 0 without `fit_intercept`.
    output_dtype_ : {"float32", "float64"}
        Precision of the values of f.
    mean_, scale_ : array of shape (n_features_in_,), or None
        Means and standard deviations by which features were scaled; None if rows were taken as they are.
    n_features_in_ : int
        Number of features of X.
    feature_names_in_ : array of str
        Names of the features, if X has names that are all strings.

    See Also
    --------
    RandomFeaturesRegressor : The same for regression.

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from gyrfalcon import RandomFeaturesClassifier
    >>> X, y = make_moons(1000, noise=0.1, random_state=0)
    >>> model = RandomFeaturesClassifier(n_components=200, random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.99)
    True
    """

    penalty_: float
    feature_map_: FeatureMap
    feature_coef_: Array

    def __init__(
        self,
        kernel: Kernel | str | KernelFunction = "gaussian",
        *,
        n_components: int = 1000,
        penalty: float | str = "auto",
        orthogonal: bool = False,
        class_weight: Mapping[Any, float] | str | None = None,
        fit_intercept: bool = True,
        scale: bool | str = "auto",
        solver: str = "direct",
        max_iter: int = 20,
        step: float | str = "auto",
        batch_size: int | None = None,
        block_size: int | None = None,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 5,
        dtype: DTypeLike = "auto",
        memory_budget: int | float | str = "auto",
        n_jobs: int | None = None,
        random_state: int | np.random.RandomState | None = None,
        callbacks: CallbackLike | Iterable[CallbackLike] | None = None,
        verbose: int = 0,
    ) -> None:
        self.kernel = kernel
        self.n_components = n_components
        self.penalty = penalty
        self.orthogonal = orthogonal
        self.class_weight = class_weight
        self.fit_intercept = fit_intercept
        self.scale = scale
        self.solver = solver
        self.max_iter = max_iter
        self.step = step
        self.batch_size = batch_size
        self.block_size = block_size
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.dtype = dtype
        self.memory_budget = memory_budget
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
        X : array, table, source or Dask collection of shape (n, n_features)
            float32 is computed in float32, everything else in float64, unless `dtype` says otherwise. A source, such as
            ``gyrfalcon.open(path, target=name)``, is read block by block, once for each pass.
        y : array of shape (n,)
            Labels of any kind. By default those of X, if it was opened with a target.
        sample_weight : array of shape (n,), optional
            Not negative. Rows with weight 0 are ignored. Only ratios matter: the penalty goes with weights of mean 1.
        X_val, y_val : optional
            Rows on which the validation error is recorded (the share of wrong classes), and
            which decide what is decided by validation, such as when `early_stopping` stops.

        Returns
        -------
        self
        """
        check_parameters(self, **random_features.RULES)
        patience = NoImprovement(self.n_iter_no_change) if self.early_stopping else None
        with fit_session(self, patience=patience) as session:
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
                hold_out=self.validation_fraction if self.early_stopping and self.solver != "direct" else None,
                random_access=self.solver == "sgd",
            )
            self.penalty_ = as_penalty(self.penalty, self, data, session.random_state)
            self.kernel_, self.feature_map_, solution = random_features.solve(self, self.penalty_, data, session)
            self.feature_coef_ = data.shaped(solution.coef)
            self._set_solution(data, session)
            self.classes_ = classes
        return self

    def _values(self, X: Any) -> Array:
        check_is_fitted(self)
        rows = self._scaled_rows(X, self.feature_map_.weights.dtype)
        return self._from_offset(
            feature_operator(self.feature_map_, rows, n_jobs=self.n_jobs).matmat(self.feature_coef_)
        )

    def _check_loaded(self) -> None:
        self._check_scaling()
        self._check_classes(self.feature_coef_)
        check_loaded_features(self.kernel_, self.feature_map_, self.feature_coef_, self.n_features_in_)
        self._check_offset(self.feature_coef_)
