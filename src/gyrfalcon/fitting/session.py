"""Session: one loop around any solver, with its callbacks, patience, progress bar and checkpoint."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from .._utils.memory import require_workspace
from ..callbacks import CallbackList, NoImprovement
from ..callbacks.progress import progress_callback
from ..callbacks.scikit_learn import scikit_learn_callbacks
from ..solvers import Iterate, StateError
from ..sources.scratch import Scratch
from ..storage.checkpoints import Beginning, CheckpointError, Journal, Progress, identify, journal
from .data import FitData

Array = NDArray[Any]
Step = TypeVar("Step", bound=Iterate)


class Watched(Protocol):
    """An estimator, as far as it says who watches its fit."""

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name."""
        ...

    @property
    def random_state(self) -> Any:
        """Seed, generator or None."""
        ...

    @property
    def callbacks(self) -> Any:
        """Who is told of every iteration."""
        ...

    @property
    def verbose(self) -> int:
        """Whether a progress bar is shown."""
        ...


@dataclass(frozen=True)
class Solution(Generic[Step]):
    """What a solver came to.

    Attributes
    ----------
    coef : array of shape (M, k), in the units of y
    last : the last iterate
    stopped : whether a callback or the validation error stopped the solver before its end
    """

    coef: Array
    last: Step
    stopped: bool


class Session:
    """One fit: who watches it, when it stops early, and where its state is kept.

    Made by `fit_session`.

    Attributes
    ----------
    random_state : RandomState
        From which all that is random in the fit is drawn.
    history : list of dict
        The records so far.
    scratch : Scratch
        Temporary files, which are gone when the fit ends or fails; beside the checkpoint if there is one.
    """

    def __init__(
        self, estimator: Watched, patience: NoImprovement | None, journal: Journal | None, end: ExitStack
    ) -> None:
        self.history: list[dict[str, Any]] = []
        random_state = check_random_state(estimator.random_state)
        self.random_state = random_state if journal is None else journal.generator(random_state)
        self._estimator = estimator
        self._patience = patience
        self._journal = journal
        self._end = end
        progress = filter(None, [progress_callback(estimator.verbose)])
        given = CallbackList(estimator.callbacks).callbacks
        self._callbacks = CallbackList([*progress, *scikit_learn_callbacks(estimator), *given])
        self._began: float | None = None
        self.scratch = Scratch(None if journal is None else journal.folder)
        end.callback(self.scratch.close)

    # ---- checkpoints -------------------------------------------------------------------------------------------------

    def identify(self, data: FitData, start: Mapping[str, Any], max_iter: int) -> None:
        """Refuse a checkpoint of another fit.

        Parameters
        ----------
        data : FitData
        start : what a warm start begins from, by name; values are None for a cold one
        max_iter : int
        """
        if self._journal is None:
            return
        held = data.validation
        parts = {
            "X": data.rows,
            "y": data.targets,
            "sample_weight": data.weight,
            "X_val": None if held is None else held.rows,
            "y_val": None if held is None else held.targets,
            "sample_weight of X_val": None if held is None else held.weight,
            **start,
        }
        self._journal.check(identify(self._estimator, parts), max_iter)

    @property
    def beginning(self) -> Beginning | None:
        """What the fit that is resumed has drawn and decided at its start, or None."""
        return None if self._journal is None else self._journal.beginning

    def begin(self, decided: Callable[[dict[str, Any]], Beginning]) -> None:
        """Keep what was drawn and decided, unless that was done before; `decided` is given the random state."""
        if self._journal is None or self._journal.beginning is not None:
            return
        assert self._journal.random_state is not None  # the constructor has asked for the generator
        self._journal.begin(decided(self._journal.random_state))

    @property
    def resume(self) -> dict[str, Any] | None:
        """The solver's state to go on from, or None."""
        return None if self._journal is None or self._journal.progress is None else self._journal.progress.state

    # ---- the loop ----------------------------------------------------------------------------------------------------

    def start(self, data: FitData, **info: Any) -> None:
        """Tell the callbacks that the fit starts, and `info` beside the sizes; at its end they are told that too."""
        n, k = data.targets.shape
        self._began = time.perf_counter() - (self.history[-1]["seconds"] if self.history else 0.0)
        self._end.enter_context(self._callbacks.fitting(self._estimator, {"n_rows": n, "n_targets": k, **info}))

    def record(self, record: dict[str, Any]) -> bool:
        """Add a record to the history, show it to the callbacks, and return whether one of them asks to stop."""
        assert self._began is not None, "start() has not been called"
        record["seconds"] = time.perf_counter() - self._began
        self.history.append(record)
        return self._callbacks.on_iteration(record)

    def run(
        self,
        iterates: Iterable[Step],
        data: FitData,
        *,
        kind: type[Step],
        max_iter: int,
        watch: Callable[[Array], float] | None = None,
        scale: Array | float = 1.0,
        n_centers: int | None = None,
        **info: Any,
    ) -> Solution[Step]:
        """Run a solver to its end, or until a callback or the validation error stops it.

        Parameters
        ----------
        iterates : the solver's iterates, made as they are asked for
        data : FitData
        kind : class of the iterates, by which the last one of a fit that is over is read from its checkpoint
        max_iter : most iterations, of this fit and of the one that it resumes together
        watch : the validation error of coefficients, or None
        scale : what coefficients are to be multiplied with
        n_centers : rows of the coefficients, which those of a checkpoint must have; callbacks are told too
        **info : what callbacks are told at the start
        """
        patience, resumed = self._patience, None if self._journal is None else self._journal.progress
        best: Array | None = None
        if resumed is not None:
            self._check_resumed(resumed, data, n_centers)
            best, self.history = resumed.best, resumed.history
            iterates = self._resuming(iter(iterates))
        self.start(data, max_iter=max_iter, **({} if n_centers is None else {"n_centers": n_centers}), **info)
        if resumed is not None and resumed.is_over(max_iter):
            assert resumed.coef is not None
            coef = finite(resumed.coef, data.rows.dtype)
            with self._blaming_checkpoint():
                last = kind.again(resumed.last)
            return Solution(coef, last, patience is not None and patience.exhausted)
        stop = False
        for iterate in iterates:
            if resumed is not None:  # the one that is resumed, which is on record
                resumed = None
                stop = patience is not None and patience.exhausted
                if stop:
                    break
                continue
            record = _record(iterate)
            if watch is not None:
                coef = iterate.coef() * scale
                record["validation_error"] = watch(coef)
                if patience is not None:
                    stop = patience.update(record["validation_error"], iterate.iteration)
                    best = coef if patience.improved else best
            stop = self.record(record) or stop
            if stop:
                break
            if self._journal is not None and self._journal.due:
                self._journal.keep(self._progress(iterate, best))
        coef = finite(iterate.coef() * scale if best is None else best, data.rows.dtype)
        if self._journal is not None:
            enough = iterate.converged or (patience is not None and patience.exhausted)
            # what a callback has stopped can go on: its next answer may be another
            may_go_on = not enough and (stop or iterate.iteration >= max_iter)
            self._journal.keep(self._progress(iterate, best, coef=coef, may_go_on=may_go_on))
        return Solution(coef, iterate, stop)

    def _progress(self, iterate: Iterate, best: Array | None, **end: Any) -> Progress:
        waiting = None if self._patience is None else self._patience.state()
        return Progress(iterate.state(), iterate.numbers(), self.history, best, waiting, **end)

    def _check_resumed(self, resumed: Progress, data: FitData, n_centers: int | None) -> None:
        """Set the patience of the fit that is resumed; refuse coefficients that do not belong to these data."""
        assert self._journal is not None
        shape = (n_centers, data.targets.shape[1])
        for name, coef in (("best", resumed.best), ("coef", resumed.coef)):
            if coef is not None and (coef.shape != shape or coef.dtype.kind != "f"):
                raise CheckpointError(self._journal.unfit(f"its {name} has shape {coef.shape} and not {shape}"))
        if self._patience is not None:
            try:
                self._patience.resume(resumed.patience or {})
            except (KeyError, ValueError) as error:
                raise CheckpointError(self._journal.unfit(f"its patience is none: {error}")) from error

    def _resuming(self, iterates: Iterator[Step]) -> Iterator[Step]:
        """Yield the iterates of a solver that resumes; a state that it refuses is the fault of the checkpoint."""
        with self._blaming_checkpoint():
            yield from iterates

    @contextmanager
    def _blaming_checkpoint(self) -> Iterator[None]:
        assert self._journal is not None
        try:
            yield
        except StateError as error:
            raise CheckpointError(self._journal.unfit(str(error))) from error


@contextmanager
def fit_session(
    estimator: Watched, *, patience: NoImprovement | None = None, checkpoint: Any = None
) -> Iterator[Session]:
    """Open the session of a fit. The estimator is left as it was if the fit fails or is interrupted.

    Parameters
    ----------
    estimator : estimator
    patience : NoImprovement, optional
        The rule by which the validation error stops the fit.
    checkpoint : str, path-like, Checkpoint or None
        Where the state of the fit is kept.
    """
    require_workspace()
    with unchanged_on_failure(estimator), journal(checkpoint) as opened, ExitStack() as end:
        yield Session(estimator, patience, opened, end)


@contextmanager
def unchanged_on_failure(estimator: Any) -> Iterator[None]:
    """Leave the estimator as it was if what is inside fails or is interrupted."""
    before = vars(estimator).copy()
    try:
        yield
    except BaseException:
        now = vars(estimator)
        now.update(before)
        for name in now.keys() - before.keys():
            del now[name]
        raise


def finite(coef: Array, dtype: np.dtype[Any]) -> Array:
    """Return the coefficients, if predictions can be made with them: in the precision of the kernel."""
    if not np.abs(coef).max() <= float(np.finfo(dtype).max):
        raise FloatingPointError(
            f"the coefficients are not finite in {dtype}: scale X and y to moderate numbers, use "
            'dtype="float64", or a larger penalty'
        )
    return coef


def _record(iterate: Iterate) -> dict[str, Any]:
    """What history_ and callbacks have of an iterate."""
    return {
        "iteration": iterate.iteration,
        "residual": iterate.residual,
        "passes": iterate.passes,
        "converged": iterate.converged,
        **iterate.details,
    }
