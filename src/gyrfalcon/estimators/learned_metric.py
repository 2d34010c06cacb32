"""A metric learnt from the gradient of the fit, as a transformer."""

from __future__ import annotations

from collections.abc import Iterable
from numbers import Number
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import OneToOneFeatureMixin, TransformerMixin, clone
from sklearn.utils.validation import check_is_fitted

from .._utils.checks import integer, number, one_of
from .._utils.registry import register
from .._utils.words import a
from ..callbacks import CallbackLike
from ..centers import Centers
from ..fitting.arguments import described
from ..fitting.attributes import check_attributes
from ..fitting.data import classification_data, regression_data
from ..fitting.parameters import check_parameters
from ..fitting.rows import Reading, computed, labelled, more_rows, scaled
from ..fitting.session import Session
from ..fitting.targets import mixed_labels
from ..fitting.weights import count
from ..sources.dask import first_not_finite
from ..sources.memory import MetricArray
from ._base import KernelRegressor
from ._estimator import Estimator
from ._lazy import lazily
from ._metric_rounds import Rounds, drawn, root_metric, under
from .divide_and_conquer import DivideAndConquerRegressor
from .exact import ExactRegressor
from .falkon_classifier import FalkonClassifier
from .falkon_regressor import FalkonRegressor
from .nystrom import NystromRegressor
from .nytro import NytroRegressor

Array = NDArray[Any]

_READ_ROWS = 16_384  # rows of a block
_WITH_CENTERS = (
    FalkonRegressor,
    FalkonClassifier,
    NystromRegressor,
    NytroRegressor,
    ExactRegressor,
    DivideAndConquerRegressor,
)
_WORSE = 1.05  # a round whose error is larger than the best by this factor ends the fit


@register
@described
class LearnedMetric(OneToOneFeatureMixin, TransformerMixin, Estimator):  # type: ignore[misc]
    """Learn scales of the features, or a matrix, that make a kernel method more accurate: a step of a pipeline.

    A kernel with one length scale treats all features alike, and irrelevant features hide the others. Here a FALKON fit
    determines which features matter: feature j is multiplied by the root of the mean squared derivative of the fit with
    respect to it, and the next round fits the features scaled in this way (recursive feature machines [1]_, on Nyström
    centers). The round with the least validation error is kept; the first round has no metric, so that a metric is used
    only if it helps.

    Parameters
    ----------
    estimator : estimator or None, default=None
        The estimator to fit in each round: `FalkonRegressor`, `FalkonClassifier`, or another estimator of this library
        with centers, always with `scale=False`. None is a `FalkonRegressor` if y is numeric, and a `FalkonClassifier`
        otherwise. Its kernel should be that of the method that follows, with the length scale "scale", which adapts to
        the metric.
    kind : {"diagonal", "full"}, default="diagonal"
        Form of the metric. "diagonal" multiplies each feature by a number. Use "full", which multiplies rows by a
        symmetric matrix, if y may depend on a few combinations of the features; it takes time and memory for
        n_features^2 numbers.
    scale : bool or "auto", default="auto"
        Whether to standardise every feature first, to mean 0 and standard deviation 1, so that their units do not
        matter. "auto" does so unless the estimator's kernel is given with a length scale, which is in the units of the
        features, or the rows come from a `TableEncoder`.
    n_rounds : int, default=5
        Maximum number of rounds with a metric. The fit ends earlier, with a round that is 5% worse than the best.
    n_gradients : int, default=4000
        Number of rows over which squared derivatives are averaged. Centers are not among them.
    n_rows : int, default=20000
        Maximum number of rows to fit, drawn at random; more rows change a metric little. At most the same number is
        used for validation.
    floor : float, default=0.02
        Smallest scale; the largest is 1. Features that do not matter at all get the smallest.
    {validation_fraction, n_jobs}
    random_state : int, RandomState or None, default=None
        Seed of the rows that are drawn and held out, and of the centers.
    callbacks : callable, Callback, list of them, or None, default=None
        Functions that are called with the record of each round; if one returns True, the fit stops. See
        `gyrfalcon.callbacks`.
    verbose : int, default=0
        1 shows a progress bar, 2 also logs a line for each round.

    Attributes
    ----------
    scales_ : array of shape (n_features_in_,), or None
        The numbers by which features are multiplied, for kind="diagonal".
    matrix_ : array of shape (n_features_in_, n_features_in_), or None
        The matrix by which rows are multiplied, for kind="full".
    feature_importances_ : array of shape (n_features_in_,)
        Mean squared derivatives of the fit of the best round, as shares of their sum; derivatives are with respect to
        standardised features if features were standardised.
    history_ : list of dict
        For each round: `iteration` (its number; round 0 has no metric), `validation_error` and `seconds`. The error is
        the root mean squared error: in standard deviations of y for regression, and that of codes +1 and -1 for
        classes. For a classifier with another loss it is the mean loss.
    n_rounds_ : int
        Number of rounds with a metric.
    best_round_ : int
        The round whose metric was kept; 0 is none.
    mean_, scale_ : array of shape (n_features_in_,), or None
        Means and standard deviations by which features are scaled; None if they are taken as they are.
    {n_features_in_, feature_names_in_}

    See Also
    --------
    gyrfalcon.operators.mean_square_gradient : The mean squared derivatives of one round.

    Notes
    -----
    Standardising the rows that `transform` returns would undo the metric. An estimator with ``scale="auto"``, the
    default, recognises the array and leaves it as it is; tensors, tables made by `set_output`, and the output of other
    transformers need ``scale=False``.

    A diagonal metric can also be given to a kernel, as length scales in the units of the features:
    ``Gaussian(length_scale=L * metric.scale_ / metric.scales_)``. Rows that do not fit memory are then read as they
    are.

    References
    ----------
    .. [1] Radhakrishnan, Beaglehole, Pandit, Belkin, "Mechanism for feature learning in neural networks and
       backpropagation-free machine learning models", Science 383, 2024.

    Examples
    --------
    >>> from sklearn.datasets import make_friedman1
    >>> from sklearn.pipeline import make_pipeline
    >>> from gyrfalcon import FalkonRegressor, LearnedMetric
    >>> X, y = make_friedman1(2000, n_features=15, random_state=0)  # of which 5 matter
    >>> y -= y.mean()
    >>> model = make_pipeline(LearnedMetric(random_state=0), FalkonRegressor(random_state=0)).fit(X[:1000], y[:1000])
    >>> bool(model.score(X[1000:], y[1000:]) > 0.97)
    True
    >>> sorted(model[0].feature_importances_.argsort()[-5:].tolist())
    [0, 1, 2, 3, 4]
    """

    scales_: Array | None
    matrix_: Array | None
    feature_importances_: Array
    history_: list[dict[str, Any]]
    n_rounds_: int
    best_round_: int
    mean_: Array | None
    scale_: Array | None

    def __init__(
        self,
        estimator: Any = None,
        *,
        kind: str = "diagonal",
        scale: bool | str = "auto",
        n_rounds: int = 5,
        n_gradients: int = 4000,
        n_rows: int = 20000,
        floor: float = 0.02,
        validation_fraction: float = 0.2,
        n_jobs: int | None = None,
        random_state: int | np.random.RandomState | None = None,
        callbacks: CallbackLike | Iterable[CallbackLike] | None = None,
        verbose: int = 0,
    ) -> None:
        self.estimator = estimator
        self.kind = kind
        self.scale = scale
        self.n_rounds = n_rounds
        self.n_gradients = n_gradients
        self.n_rows = n_rows
        self.floor = floor
        self.validation_fraction = validation_fraction
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.callbacks = callbacks
        self.verbose = verbose

    def fit(
        self, X: Any, y: Any = None, sample_weight: ArrayLike | None = None, X_val: Any = None, y_val: Any = None
    ) -> Self:
        """Learn the metric.

        Parameters
        ----------
        {dense_rows.X}
        y : array of shape (n,) or (n, n_outputs)
            Targets, or labels for a classifier. By default those of X, if X was opened with a target.
        {unlabelled.sample_weight}
        X_val, y_val : optional
            Rows on which the validation error is measured, instead of held-out rows of X.

        Returns
        -------
        self
        """
        check_parameters(
            self.get_params(deep=False),
            kind=one_of("diagonal", "full"),
            n_rounds=integer(0),
            n_gradients=integer(1),
            n_rows=integer(2),
            floor=number(lambda x: 0 < x < 1, "between 0 and 1, both excluded"),
        )
        with self._session() as session:
            rounds = self._rounds(X, y, sample_weight, X_val, y_val, session)
            session.start(rounds.data, max_iter=self.n_rounds)
            d = rounds.data.features.n
            metric = best = np.ones(d) if self.kind == "diagonal" else np.eye(d)
            least, importances, best_round = np.inf, np.ones(d), 0
            for iteration in range(self.n_rounds + 1):
                error, squares = rounds.run(metric)
                flat = not squares.any()
                if error < least:
                    least, best, best_round = error, metric, iteration
                    importances = np.diag(squares) if squares.ndim == 2 else squares
                    importances = np.ones_like(importances) if flat else importances
                stop = session.record({"iteration": iteration, "validation_error": error})
                if stop or error > _WORSE * least or flat:
                    break
                metric = root_metric(squares, self.floor)
            self._set_features(rounds.data.features)
            self.n_rounds_, self.best_round_, self.history_ = iteration, best_round, session.history
            self.scales_, self.matrix_ = (best, None) if self.kind == "diagonal" else (None, best)
            self.feature_importances_ = importances / importances.sum()
            self.mean_, self.scale_ = rounds.data.mean, rounds.data.scale
        return self

    @lazily
    def transform(self, X: Any) -> Array:
        """Bring rows to the metric.

        Parameters
        ----------
        {dense_rows.X}

        Returns
        -------
        array of shape (n, n_features), which ``scale="auto"`` leaves as it is; a Dask array for a Dask collection
        """
        check_is_fitted(self)
        given = more_rows(self._reading, self._features, X, standardised=self.scale_ is not None)
        metric = self.scales_ if self.matrix_ is None else self.matrix_
        assert metric is not None
        rows = scaled(given, self.mean_, self.scale_, given.dtype)
        out, start = np.empty(rows.shape, dtype=rows.dtype), 0
        for block in rows.blocks(_READ_ROWS):
            bad = first_not_finite(block)
            if bad is not None:
                raise ValueError(f"row {start + bad} of X has NaN or infinity: remove or impute those values")
            out[start : start + len(block)] = under(metric, block)
            start += len(block)
        return out.view(MetricArray)

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """Return the names of the columns that `transform` gives: those of X, or numbered ones for kind="full".

        Parameters
        ----------
        input_features : list of str or None
            Names of the features, if X had none.

        Returns
        -------
        array of str
        """
        names: Array = super().get_feature_names_out(input_features)
        if self.matrix_ is None:
            return names
        return np.asarray([f"learnedmetric{i}" for i in range(len(names))], dtype=object)

    def __sklearn_is_fitted__(self) -> bool:
        return "feature_importances_" in vars(self)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        tags.target_tags.required = True
        return tags

    def _check_loaded(self) -> None:
        check_attributes(vars(self))
        if not (self.estimator is None or isinstance(self.estimator, _WITH_CENTERS)):
            raise ValueError(f"estimator is {a(type(self.estimator).__name__)}")
        d = self.n_features_in_
        shapes = {"feature_importances_": (d,), "mean_": (d,), "scale_": (d,), "scales_": (d,), "matrix_": (d, d)}
        for name, shape in shapes.items():
            value = vars(self)[name]
            if value is not None and (np.shape(value) != shape or not np.isfinite(value).all()):
                raise ValueError(f"{name} is not an array of {shape} finite numbers")
        if (self.scales_ is None) == (self.matrix_ is None):
            raise ValueError("one of scales_ and matrix_ is needed")

    @property
    def _reading(self) -> Reading:
        """How rows are read; with scale="auto" the kernel of the fits decides whether features are standardised."""
        kernel = "gaussian" if self.estimator is None else self.estimator.kernel
        return Reading(type(self).__name__, kernel, scale=self.scale)

    # ---- the beginning of a fit --------------------------------------------------------------------------------------

    def _rounds(self, X: Any, y: Any, sample_weight: Any, X_val: Any, y_val: Any, session: Session) -> Rounds:
        """Check what `fit` is given, hold out rows, standardise them, and draw those that are used."""
        random_state = session.random_state
        X, y, sample_weight = labelled(X, y, sample_weight)
        base = self._base(y, sample_weight, random_state.randint(np.iinfo(np.int32).max))
        given = X, y, sample_weight, X_val, y_val
        how: dict[str, Any] = {
            "random_state": random_state,
            "fit_intercept": False,  # the estimator of a round has its own
            "scratch": session.scratch,
            "hold_out": self.validation_fraction,
        }
        if isinstance(base, KernelRegressor):
            data = regression_data(self._reading, *given, **how)
        else:
            data, _ = classification_data(self._reading, *given, class_weight=None, **how)
        assert data.validation is not None
        held = data.validation
        fitted = drawn(data.rows, data.targets, data.weight, self.n_rows, random_state)
        judging = drawn(held.rows, held.targets, held.weight, self.n_rows, random_state)
        return Rounds(base, data, fitted, judging, random_state, self.n_gradients, self.n_jobs)

    def _base(self, y: Any, sample_weight: Any, seed: int) -> Any:
        """Return the estimator to fit in each round, with the same centers."""
        if self.estimator is None:
            kind = FalkonClassifier if _are_labels(y, sample_weight) else FalkonRegressor
            return kind(scale=False, n_jobs=self.n_jobs, random_state=seed)
        if not isinstance(self.estimator, _WITH_CENTERS):
            names = ", ".join(kind.__name__ for kind in _WITH_CENTERS)
            raise TypeError(f"estimator={self.estimator!r} must be None or one of {names}")
        given = self.estimator.get_params(deep=False)
        if not isinstance(given.get("centers", "uniform"), str | Centers):
            raise ValueError("estimator has centers given as an array, which do not follow the metric: name a method")
        if given.get("checkpoint") is not None:
            raise ValueError("estimator has a checkpoint, which is for one fit and not for rounds of them: use None")
        base = clone(self.estimator).set_params(scale=False)  # which would undo the metric
        return base if base.random_state is not None else base.set_params(random_state=seed)


def _are_labels(y: Any, sample_weight: Any) -> bool:
    """Whether y are labels for a classifier: it is not numeric in the rows of positive weight."""
    values = np.asarray(mixed_labels(computed(y)))
    if values.ndim and sample_weight is not None:
        values = count(computed(sample_weight), len(values)).among(values)
    if values.dtype == object:
        return values.ndim > 0 and not all(isinstance(value, Number) for value in values.flat)
    return values.dtype.kind not in "fiu"
