"""Tune the length scales, the penalty and the centers of a model by gradients."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone, is_classifier
from sklearn.utils import check_random_state

from .._utils.checks import boolean, integer, one_of
from .._utils.memory import format_bytes, require
from .._utils.words import listed
from ..callbacks import CallbackLike, CallbackList
from ..callbacks.progress import progress_callback
from ..fitting.data import FitData, classification_data, regression_data
from ..fitting.rows import Reading, is_scaled
from ..fitting.tuning import Tuned, TuningSettings, tune_on
from ..kernels import Kernel, as_kernel
from ..solvers.objectives import TuningProblem
from ._base import KernelEstimator

__all__ = ["tune"]

Array = NDArray[Any]

_OBJECTIVE = one_of("evidence", "complexity", "validation")
_COUNT = integer(0)
_ROWS = integer(10)
_HELD_OUT = 0.2  # of the rows, for the objective "validation"
_CENTERS = 1000
_NOISE = 0.1  # mu at the start, as a share of the mean of k(x, x)


def tune(
    model: Any,
    X: Any,
    y: Any = None,
    *,
    objective: str = "evidence",
    sample_weight: ArrayLike | None = None,
    tune_centers: bool = False,
    sample_size: int = 10_000,
    max_iter: int = 50,
    max_iter_all: int = 10,
    random_state: int | np.random.RandomState | None = None,
    callbacks: CallbackLike | Iterable[CallbackLike] | None = None,
    verbose: int = 0,
) -> Any:
    """Find a length scale for each feature, other parameters of the kernel and the penalty by gradients; fit with them.

    The parameters minimise a smooth objective of the Nyström model with the model's number of centers, by L-BFGS: first
    on a sample of the rows, then on all of them. Parameters are the length scale of each feature, factors of terms in
    a sum, `alpha` of the rational quadratic kernel, the penalty, and the centers if `tune_centers`.

    Parameters
    ----------
    model : FalkonRegressor, FalkonClassifier, NystromRegressor, ExactRegressor, ExactClassifier or another estimator
        With the parameters `kernel` and `penalty`. It is not changed. Its kernel is where the search begins: a kernel
        with length scales, or sums and products of such kernels and of numbers.
    X : array, table or source of shape (n, n_features)
        Dense rows, which are read into memory in float64.
    y : array of shape (n,) or (n, n_outputs)
        Targets or labels. By default those of X, if X was opened with a target.
    objective : {"evidence", "complexity", "validation"}, default="evidence"
        "evidence" is the bound on the marginal likelihood of a sparse Gaussian process [1]_. "complexity" is the sum of
        the effective dimension, the data fit and what the centers miss of the kernel [2]_. "validation" is the mean
        squared error on a fifth of the rows, which the parameters may then follow too closely if there are few rows.
        Labels are learnt as numbers in all of them.
    sample_weight : array of shape (n,), optional
        As for `fit`.
    tune_centers : bool, default=False
        Whether the centers are tuned, too. The model must have the parameter `centers`.
    sample_size : int, default=10000
        Rows of the sample.
    max_iter : int, default=50
        Largest number of iterations on the sample.
    max_iter_all : int, default=10
        Largest number of iterations on all rows, each of which takes about 6 n M^2 operations. 0 tunes on the sample
        only, and takes memory for the sample only.
    random_state : int, RandomState or None, default=None
        Draws the sample, the centers and the held-out rows.
    callbacks : callable, Callback or a list of these, optional
        Called with the record of each iteration; True as a return value stops the search.
    verbose : int, default=0
        1 shows a progress bar.

    Returns
    -------
    estimator
        A clone of `model` with the parameters `kernel` and `penalty` (and `centers`) that were found, fitted to all
        rows. Length scales are in the units of the features. `tuning_history_` has a record for each iteration:
        `iteration`, `rows`, `objective`, `penalty`, `passes` (evaluations of the objective) and `seconds`.

    References
    ----------
    .. [1] Titsias, "Variational Learning of Inducing Variables in Sparse Gaussian Processes", AISTATS 2009.
    .. [2] Meanti, Carratino, De Vito, Rosasco, "Efficient Hyperparameter Tuning for Large Scale Kernel Ridge
       Regression", AISTATS 2022.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon import NystromRegressor, tune
    >>> X = np.random.default_rng(0).uniform(-3, 3, size=(1000, 3))
    >>> y = np.sin(2 * X[:, 0]) + 0.1 * X[:, 1]  # the last feature does not matter
    >>> model = tune(NystromRegressor(n_centers=100), X, y, random_state=0)
    >>> scales = model.kernel.length_scale
    >>> bool(scales[2] > 5 * scales[0])
    True
    """
    _OBJECTIVE("objective", objective)
    boolean("tune_centers", tune_centers)
    _ROWS("sample_size", sample_size)
    _COUNT("max_iter", max_iter)
    _COUNT("max_iter_all", max_iter_all)
    parameters = _checked_parameters(model, tune_centers)
    random, compute, given = check_random_state(random_state), model._compute, as_kernel(parameters["kernel"])
    data = _data(model, given, X, y, sample_weight, random)
    n = data.rows.shape[0]
    sample = np.sort(random.permutation(n)[:sample_size])
    M = min(_n_centers(parameters), len(sample))
    stages = [(sample, max_iter)]
    if n > sample_size and max_iter_all:
        stages.append((np.arange(n), max_iter_all))
    _check_memory(compute.memory_budget, len(stages[-1][0]), M, data.rows.shape[1])
    points = np.asarray(data.rows.take(sample), dtype=np.float64)
    kernel = _begin(given, parameters.get("scale", False), points)
    centers = points[np.sort(random.permutation(len(sample))[:M])]
    tuned = Tuned(kernel, _NOISE * float(kernel.diag(points).mean()), centers, np.nan, [])
    bar = progress_callback(verbose)
    watchers = CallbackList([*([] if bar is None else [bar]), *CallbackList(callbacks).callbacks])
    info = {"max_iter": sum(steps for _, steps in stages), "n_rows": n, "n_centers": M}
    with watchers.fitting(model, info) as watching:
        for rows, steps in stages:
            problem, held = _problem(data, rows, objective, random, compute.n_jobs)
            settings = TuningSettings(objective, tune_centers, steps)
            tuned = tune_on(problem, held, tuned, settings, watching.on_iteration)
    found = clone(model).set_params(kernel=tuned.kernel)
    if data.is_least_squares and parameters.get("loss", "squared") in ("squared", "squared_error"):
        found.set_params(penalty=tuned.mu / n)  # a penalty beside another loss means something else
    if tune_centers:
        found.set_params(centers=tuned.centers)
    found.fit(X, y, sample_weight)
    found.tuning_history_ = tuned.history
    return found


def _checked_parameters(model: Any, tune_centers: bool) -> dict[str, Any]:
    """Return the parameters of a model that can be tuned."""
    if not isinstance(model, KernelEstimator):
        raise TypeError(f"tune needs an estimator of this library with kernel and penalty, not {model!r}")
    parameters: dict[str, Any] = model.get_params(deep=False)
    needed = ["kernel", "penalty", *(["centers"] if tune_centers else [])]
    missing = [name for name in needed if name not in parameters]
    if missing:
        raise ValueError(f"{type(model).__name__} has no parameter {listed(missing, None, plain=True)} to tune")
    return parameters


def _n_centers(parameters: dict[str, Any]) -> int:
    """Return the number of centers to tune with: the model's, if it is a number."""
    many = parameters.get("n_centers")
    return int(many) if isinstance(many, int | np.integer) else _CENTERS


def _data(model: Any, kernel: Kernel, X: Any, y: Any, sample_weight: Any, random: np.random.RandomState) -> FitData:
    """Return rows as they are, in float64, and targets measured from their mean."""
    reading = Reading(type(model).__name__, kernel, np.float64, False, False, model.memory_budget)
    options: dict[str, Any] = {"random_state": random, "fit_intercept": True}
    if is_classifier(model):
        weights = model.class_weight
        return classification_data(reading, X, y, sample_weight, None, None, class_weight=weights, **options)[0]
    return regression_data(reading, X, y, sample_weight, None, None, **options)


def _begin(kernel: Kernel, scale: bool | str, points: Array) -> Kernel:
    """Return the kernel to begin with, in the units of the features, with a length scale for each of them."""
    d = points.shape[1]
    if is_scaled(scale, kernel, sparse=False, metric=False):
        deviation = points.std(axis=0)
        deviation[deviation == 0] = 1.0
        resolved = kernel.resolve(points / deviation).in_units(deviation)
    else:
        resolved = kernel.resolve(points)
    theta = resolved.log_parameters(d)
    if not len(theta):
        raise ValueError(
            f"{kernel!r} has no parameters that gradients can tune: use Gaussian, Laplacian, Matern, "
            "RationalQuadratic, or sums and products of these and of numbers"
        )
    return resolved.with_log_parameters(theta, d)


def _problem(
    data: FitData, rows: Array, objective: str, random: np.random.RandomState, n_jobs: int | None
) -> tuple[TuningProblem, TuningProblem | None]:
    """Return the rows to tune on, and those held out of them for the objective "validation"."""

    def of(at: Array) -> TuningProblem:
        weight = None if data.weight is None else data.weight[at] / data.weight[at].mean()
        X = np.asarray(data.rows.take(at), dtype=np.float64)
        return TuningProblem(X, np.asarray(data.targets[at], dtype=np.float64), weight, n_jobs)

    if objective != "validation":
        return of(rows), None
    order = random.permutation(rows)
    few = max(1, round(_HELD_OUT * len(rows)))
    return of(np.sort(order[few:])), of(np.sort(order[:few]))


def _check_memory(budget: Any, n: int, M: int, d: int) -> None:
    """Raise MemoryError if the kernel matrix and its factors do not fit."""
    size = 8 * (n * (M + 2 * d) + 8 * M * M)
    what = f"tuning on {n} rows with {M} centers takes {format_bytes(size)}"
    require(budget, size, what, "use max_iter_all=0, a smaller sample_size or fewer centers")
