"""Tune the length scales, the penalty and the centers of a model by gradients."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
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
from ..fitting.tuning_state import Place, TuningJournal
from ..kernels import Kernel, as_kernel
from ..solvers.objectives import TuningProblem
from ..storage.checkpoints import Checkpoint
from ..storage.checkpoints.identity import identify
from ..storage.checkpoints.journal import as_checkpoint
from ._base import KernelEstimator

__all__ = ["tune"]

Array = NDArray[Any]

_OBJECTIVE = one_of("evidence", "complexity", "validation")
_COUNT = integer(0)
_ROWS = integer(10)
_HELD_OUT = 0.2  # of the rows, for the objective "validation"
_CENTERS = 1000
_STEPS, _STEPS_ALL = 50, 10  # iterations of L-BFGS on a sample and on all rows
_STEPS_CENTERS, _STEPS_ALL_CENTERS = 20, 23  # of Adam, with which all rows gain more for the time (kin40k)
_NOISE = 0.1  # mu at the start, as a share of the mean of k(x, x)


def tune(
    model: Any,
    X: Any,
    y: Any = None,
    *,
    objective: str = "evidence",
    sample_weight: ArrayLike | None = None,
    tune_centers: bool = False,
    kernels: Iterable[Any] | None = None,
    sample_size: int = 10_000,
    max_iter: int | None = None,
    max_iter_all: int | None = None,
    checkpoint: str | os.PathLike[str] | Checkpoint | None = None,
    random_state: int | np.random.RandomState | None = None,
    callbacks: CallbackLike | Iterable[CallbackLike] | None = None,
    verbose: int = 0,
) -> Any:
    """Find a length scale for each feature, other parameters of the kernel and the penalty by gradients; fit with them.

    The parameters minimise a smooth objective of the Nyström model with the model's number of centers, by L-BFGS: first
    on a sample of the rows, then on all of them. Parameters are the length scale of each feature, factors of terms in
    a sum, `alpha` of the rational quadratic kernel, the penalty, and the centers if `tune_centers`. With the centers,
    Adam takes the place of L-BFGS, and draws another sample for each iteration.

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
        With all of them, labels are treated as numbers.
    sample_weight : array of shape (n,), optional
        As for `fit`.
    tune_centers : bool, default=False
        Whether the centers are tuned, too. The model must have the parameter `centers`.
    kernels : list of kernels or names, optional
        Kernels to compare, instead of the model's own, such as ``[Matern(nu=nu) for nu in (0.5, 1.5, 2.5)]``. Each is
        tuned on the sample, and the one with the smallest objective is chosen.
    sample_size : int, default=10000
        Number of rows in the sample.
    max_iter : int or None, default=None
        Largest number of iterations on the sample. None is 50, and 20 with `tune_centers` if all rows follow.
    max_iter_all : int or None, default=None
        Largest number of iterations on all rows, each of which takes about 3 n M^2 operations. None is 10, and 23 with
        `tune_centers`. 0 tunes on the sample only, and takes memory for the sample only.
    checkpoint : str, path-like or Checkpoint, optional
        Folder in which the parameters are saved, every 30 seconds, or as often as a `Checkpoint` specifies. If the
        process was killed, the same call continues from there: with ``tune_centers`` it ends with the same bits;
        otherwise L-BFGS begins anew at the parameters that were reached.
    random_state : int, RandomState or None, default=None
        Seed of the sample, of the centers and of the held-out rows.
    callbacks : callable, Callback or a list of these, optional
        Functions that are called with the record of each iteration; if one returns True, the search ends.
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
    for name, limit in (("max_iter", max_iter), ("max_iter_all", max_iter_all)):
        if limit is not None:
            _COUNT(name, limit)
    parameters = _checked_parameters(model, tune_centers)
    random, compute = check_random_state(random_state), model._compute
    given = [as_kernel(kernel) for kernel in ([parameters["kernel"]] if kernels is None else kernels)]
    if not given:
        raise ValueError("kernels is empty: give at least one kernel, or None for that of the model")
    folder = as_checkpoint(checkpoint)
    data = _data(model, given[0], X, y, sample_weight, random)
    n = data.rows.shape[0]
    sample = np.sort(random.permutation(n)[:sample_size])
    M = min(_n_centers(parameters), len(sample))
    stages = _stages(n, sample, tune_centers, max_iter, max_iter_all)
    _check_memory(compute.memory_budget, max(len(stage.rows) for stage in stages), M, data.rows.shape[1])
    points = np.asarray(data.rows.take(sample), dtype=np.float64)
    begun = [_begin(kernel, parameters.get("scale", False), points) for kernel in given]
    centers = points[np.sort(random.permutation(len(sample))[:M])]
    seed = int(random.randint(2**31))
    journal = None
    if folder is not None:
        told = {"objective": objective, "kernels": begun, "tune_centers": tune_centers, "seed": seed}
        told |= {"sample_size": sample_size, "stages": [stage.steps for stage in stages], "y": data.targets}
        journal = TuningJournal(folder, identify(type(model).__name__, told, {"X": points, "centers": centers}))
    bar = progress_callback(verbose)
    watchers = CallbackList([*([] if bar is None else [bar]), *CallbackList(callbacks).callbacks])
    steps = sum(stage.steps for stage in stages) + (len(begun) - 1) * stages[0].steps
    with watchers.fitting(model, {"max_iter": steps, "n_rows": n, "n_centers": M}) as watching:
        run = _Run(data, objective, tune_centers, seed, compute.n_jobs, watching.on_iteration, journal)
        tuned = run.search(begun, centers, stages, points)
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


@dataclass(frozen=True)
class _Stage:
    """Rows to tune on, how many of them each step draws (None: all), and the largest number of iterations."""

    rows: Array
    batch: int | None
    steps: int


def _stages(n: int, sample: Array, of_centers: bool, max_iter: int | None, max_iter_all: int | None) -> list[_Stage]:
    """Return the sample, followed by all rows if there are more."""
    after = (_STEPS_ALL_CENTERS if of_centers else _STEPS_ALL) if max_iter_all is None else max_iter_all
    more = len(sample) < n and after > 0
    before = (_STEPS_CENTERS if of_centers and more else _STEPS) if max_iter is None else max_iter
    if not more:
        return [_Stage(sample, None, before)]
    every = np.arange(n)
    first = _Stage(every, len(sample), before) if of_centers else _Stage(sample, None, before)
    return [first, _Stage(every, None, after)]


@dataclass(frozen=True)
class _Run:
    """A search through all stages."""

    data: FitData
    objective: str
    of_centers: bool
    seed: int
    n_jobs: int | None
    watch: Callable[[dict[str, Any]], bool]
    journal: TuningJournal | None

    def search(self, kernels: list[Kernel], centers: Array, stages: list[_Stage], points: Array) -> Tuned:
        """Tune each kernel on the first stage, and the best of them on the others; continue what was begun."""
        found = None if self.journal is None else self.journal.read(kernels, centers)
        tried, place = found or ([], Place(0, 0, 0))
        if place.stage == 0:
            for number in range(place.kernel, len(kernels)):
                if len(tried) <= number:
                    history = tried[-1].history if tried else []
                    mu = _NOISE * float(kernels[number].diag(points).mean())
                    tried.append(Tuned(kernels[number], mu, centers, np.nan, history))
                done = place.done if number == place.kernel else 0
                tried[-1] = self._stage(tried, stages, Place(number, 0, done))
                if tried[-1].is_stopped:
                    break
            number = int(np.nanargmin([one.value for one in tried])) if len(tried) > 1 else 0
            tried = [replace(tried[number], history=tried[-1].history, is_stopped=tried[-1].is_stopped)]
            place = Place(number, 1, 0)
        for at in range(place.stage, len(stages)):
            if not tried[0].is_stopped:
                tried = [self._stage(tried, stages, Place(place.kernel, at, place.done if at == place.stage else 0))]
        if self.journal is not None and len(tried[0].history):
            self.journal.write(tried, Place(place.kernel, len(stages), 0), at_once=True)
        return tried[0]

    def _stage(self, tried: list[Tuned], stages: list[_Stage], place: Place) -> Tuned:
        """Tune the last of the tried ones."""
        stage, earlier = stages[place.stage], tried[:-1]
        problem, held = self._problem(stage.rows)
        before, after = (sum(one.steps for one in some) for some in (stages[: place.stage], stages[place.stage + 1 :]))
        settings = TuningSettings(self.objective, self.of_centers, stage.steps, stage.batch, before, after, self.seed)

        def keep(tuned: Tuned, done: int) -> None:
            if self.journal is not None:
                self.journal.write([*earlier, tuned], replace(place, done=done))

        return tune_on(problem, held, tried[-1], settings, self.watch, keep, place.done)

    def _problem(self, rows: Array) -> tuple[TuningProblem, TuningProblem | None]:
        """Return the rows to tune on, and those held out of them for the objective "validation"."""

        def of(at: Array) -> TuningProblem:
            weight = None if self.data.weight is None else self.data.weight[at] / self.data.weight[at].mean()
            X = np.asarray(self.data.rows.take(at), dtype=np.float64)
            Y = np.asarray(self.data.targets[at], dtype=np.float64)
            return TuningProblem(X, Y, weight, self.n_jobs)

        if self.objective != "validation":
            return of(rows), None
        order = np.random.RandomState(self.seed).permutation(rows)
        few = max(1, round(_HELD_OUT * len(rows)))
        return of(np.sort(order[few:])), of(np.sort(order[:few]))


def _check_memory(budget: Any, n: int, M: int, d: int) -> None:
    """Raise MemoryError if the kernel matrix and its factors do not fit."""
    size = 8 * (n * (M + 2 * d) + 8 * M * M)
    what = f"tuning on {n} rows with {M} centers takes {format_bytes(size)}"
    require(budget, size, what, "use max_iter_all=0, a smaller sample_size or fewer centers")
