"""Session: one loop around any solver, with its callbacks, patience, progress bar and checkpoint."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from .._utils.memory import require_workspace
from ..callbacks import CallbackList, NoImprovement
from ..operators import Operator
from ..solvers import Iterate, StateError
from ..sources.scratch import Scratch
from ..storage.checkpoints import Beginning, Checkpoint, CheckpointError, Journal, Progress, identify, journal
from .data import FitData

Array = NDArray[Any]
Step = TypeVar("Step", bound=Iterate)
State = TypeVar("State")
# Tells callbacks that a fit starts, given its sizes and limits, and at the end of the context that it has ended
Watch = Callable[[Mapping[str, Any]], AbstractContextManager[CallbackList]]


@dataclass(frozen=True)
class Solution(Generic[Step]):
    """The result of a solver.

    coef : array of shape (M, k), in the units of y
    stopped : whether a callback or the validation error stopped the solver early
    """

    coef: Array
    last: Step
    stopped: bool


class Session:
    """One fit, made by `fit_session`: its callbacks, its early stopping and its checkpoint.

    random_state : the generator for all random numbers of the fit
    history : the records so far
    seconds_before : seconds of earlier rounds of the fit
    scratch : temporary files, beside the checkpoint if there is one, deleted when the fit ends or fails
    """

    def __init__(
        self,
        owner: str,
        parameters: Mapping[str, Any],
        watch: Watch,
        patience: NoImprovement | None,
        journal: Journal | None,
        end: ExitStack,
    ) -> None:
        self.history: list[dict[str, Any]] = []
        self.seconds_before = 0.0
        random_state = check_random_state(parameters["random_state"])
        self.random_state = random_state if journal is None else journal.generator(random_state)
        self._owner, self._parameters = owner, parameters
        self._watch = watch
        self._patience = patience
        self._journal = journal
        self._end = end
        self._callbacks = CallbackList()  # until the fit starts
        self._began: float | None = None
        self.scratch = Scratch(None if journal is None else journal.folder)
        end.callback(self.scratch.close)

    # ---- checkpoints -------------------------------------------------------------------------------------------------

    def identify(self, data: FitData, start: Mapping[str, Any], max_iter: int) -> None:
        """Refuse a checkpoint of another fit; `start` maps names to what a warm start begins from, or to None."""
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
        self._journal.check(identify(self._owner, self._parameters, parts), max_iter)

    @property
    def beginning(self) -> Beginning | None:
        """What the resumed fit has drawn and decided at its start, or None."""
        return None if self._journal is None else self._journal.beginning

    def begin(self, decided: Callable[[dict[str, Any]], Beginning]) -> None:
        """Keep what was drawn and decided, unless it is kept already; `decided` is called with the random state."""
        if self._journal is None or self._journal.beginning is not None:
            return
        assert self._journal.random_state is not None  # the constructor has asked for the generator
        self._journal.begin(decided(self._journal.random_state))

    def remember_sums(self, operator: Operator) -> None:
        """Let the passes of an operator go on where a killed process left them, if there is a checkpoint.

        Its rows, targets and weights must be those of the fit.
        """
        if self._journal is not None:
            operator.remember(self._journal.sums)

    @property
    def resume(self) -> dict[str, Any] | None:
        """The solver's state to continue from, or None."""
        return None if self._journal is None or self._journal.progress is None else self._journal.progress.state

    # ---- rounds ------------------------------------------------------------------------------------------------------

    def may_go_on(self, **info: Any) -> bool:
        """Tell the callbacks of another round of the fit, and return whether none of them asks to stop."""
        return not self._callbacks.on_round_start(info)

    @contextmanager
    def round(self, name: str, **changed: Any) -> Iterator[Session]:
        """Open the session of another round of this fit, with a history, patience and checkpoint of its own.

        name : folder of its checkpoint, in that of the fit
        **changed : parameters in which it differs from the fit
        """
        kept, patience = self._journal, self._patience
        checkpoint = None if kept is None else Checkpoint(os.path.join(kept.folder, name), kept.every)
        with journal(checkpoint) as opened, ExitStack() as end:
            session = Session(
                self._owner,
                {**self._parameters, **changed},
                lambda info: nullcontext(self._callbacks),  # which have been told that the fit starts
                None if patience is None else NoImprovement(patience.n_iter_no_change, patience.tol),
                opened,
                end,
            )
            session.seconds_before = self.history[-1]["seconds"]
            yield session

    def resumed(self, read: Callable[[dict[str, Any]], State]) -> State | None:
        """Return the state of a fit without iterates from its checkpoint, and take over its history; None without one.

        `read` makes it from the values in the file, and raises StateError if they do not fit.
        """
        if self._journal is None or self._journal.progress is None:
            return None
        with self._blaming_checkpoint():
            found = read(self._journal.progress.state)
        self.history = self._journal.progress.history
        return found

    def keep(self, state: Callable[[], dict[str, Any]], *, is_last: bool = False) -> None:
        """Write the state of a fit without iterates to its checkpoint, if it is time or the last one."""
        if self._journal is not None and (is_last or self._journal.due):
            last = {"iteration": self.history[-1]["iteration"]}
            self._journal.keep(Progress(state(), last, self.history))

    # ---- the loop ----------------------------------------------------------------------------------------------------

    def start(self, data: FitData, **info: Any) -> None:
        """Tell the callbacks that the fit starts, with its sizes and `info`; they are also told when it ends."""
        n, k = data.targets.shape
        self._began = time.perf_counter() - (self.history[-1]["seconds"] if self.history else self.seconds_before)
        self._callbacks = self._end.enter_context(self._watch({"n_rows": n, "n_targets": k, **info}))

    def progress(self, passes: float) -> None:
        """Tell the callbacks how far the work has come within an iteration."""
        self._callbacks.on_progress(passes)

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

        iterates : an iterable that computes the solver's iterates on demand
        kind : class of the iterates, which reads the last iterate of a finished fit from its checkpoint
        max_iter : maximum number of iterations, including those of the fit that is resumed
        watch : function that returns the validation error of coefficients, or None
        scale : factor by which coefficients are multiplied
        n_centers : number of rows of the coefficients, checked against the checkpoint and passed to callbacks
        **info : further values passed to callbacks at the start
        """
        resumed = self._resumed(data, n_centers)
        self.start(data, max_iter=max_iter, **({} if n_centers is None else {"n_centers": n_centers}), **info)
        if resumed is not None and resumed.is_over(max_iter):
            assert resumed.coef is not None
            coef = finite(resumed.coef, data.rows.dtype)
            with self._blaming_checkpoint():
                return Solution(coef, kind.again(resumed.last), self.exhausted)
        steps, best, stop = iter(iterates), None, False
        if resumed is not None:
            steps, best, stop = self._resuming(steps), resumed.best, self.exhausted
            iterate = next(steps)  # already recorded
        while not stop:
            following = next(steps, None)
            if following is None:
                break
            iterate = following
            stop, best = self._look_at(iterate, best, watch, scale)
            if not stop and self._journal is not None and self._journal.due:
                self._journal.keep(self._progress(iterate, best))
        coef = finite(iterate.coef() * scale if best is None else best, data.rows.dtype)
        if self._journal is not None:
            enough = iterate.converged or self.exhausted
            # a fit stopped by a callback can continue: its next answer may differ
            may_go_on = not enough and (stop or iterate.iteration >= max_iter)
            self._journal.keep(self._progress(iterate, best, coef=coef, may_go_on=may_go_on))
        return Solution(coef, iterate, stop)

    @property
    def exhausted(self) -> bool:
        """Whether the validation error has not improved for long enough."""
        return self._patience is not None and self._patience.exhausted

    def _look_at(
        self, iterate: Iterate, best: Array | None, watch: Callable[[Array], float] | None, scale: Array | float
    ) -> tuple[bool, Array | None]:
        """Record an iterate; return whether to stop, and the coefficients with the least validation error so far."""
        record = {
            "iteration": iterate.iteration,
            "residual": iterate.residual,
            "passes": iterate.passes,
            "converged": iterate.converged,
            **iterate.details,
        }
        exhausted = False
        if watch is not None:
            coef = iterate.coef() * scale
            record["validation_error"] = watch(coef)
            if self._patience is not None:
                exhausted = self._patience.update(record["validation_error"], iterate.iteration)
                best = coef if self._patience.improved else best
        return self.record(record) or exhausted, best

    def _progress(self, iterate: Iterate, best: Array | None, **end: Any) -> Progress:
        waiting = None if self._patience is None else self._patience.state()
        return Progress(iterate.state(), iterate.numbers(), self.history, best, waiting, **end)

    def _resumed(self, data: FitData, n_centers: int | None) -> Progress | None:
        """Return the progress of the resumed fit, and take over its history and patience.

        Coefficients that do not belong to these data are refused.
        """
        if self._journal is None or self._journal.progress is None:
            return None
        resumed = self._journal.progress
        shape = (n_centers, data.targets.shape[1])
        for name, coef in (("best", resumed.best), ("coef", resumed.coef)):
            if coef is not None and (coef.shape != shape or coef.dtype.kind != "f"):
                raise CheckpointError(self._journal.unfit(f"its {name} has shape {coef.shape} and not {shape}"))
        if self._patience is not None:
            try:
                self._patience.resume(resumed.patience or {})
            except (KeyError, ValueError) as error:
                raise CheckpointError(self._journal.unfit(f"its patience is none: {error}")) from error
        self.history = resumed.history
        return resumed

    def _resuming(self, iterates: Iterator[Step]) -> Iterator[Step]:
        """Yield the iterates of a solver that resumes; if it refuses the state, that is an error of the checkpoint."""
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
    owner: str,
    parameters: Mapping[str, Any],
    watch: Watch,
    *,
    patience: NoImprovement | None = None,
    checkpoint: Any = None,
) -> Iterator[Session]:
    """Open the session of a fit.

    owner : name of the estimator's class
    parameters : parameters of the estimator: `random_state`, and all that identify a checkpoint
    watch : opens the context in which callbacks run, see `Watch`
    patience : the rule by which the validation error stops the fit
    checkpoint : folder or Checkpoint for the state of the fit, or None
    """
    require_workspace()
    with journal(checkpoint) as opened, ExitStack() as end:
        yield Session(owner, parameters, watch, patience, opened, end)


def finite(coef: Array, dtype: np.dtype[Any]) -> Array:
    """Return the coefficients if they are finite in the precision of the kernel, else raise FloatingPointError."""
    if not np.abs(coef).max() <= float(np.finfo(dtype).max):
        raise FloatingPointError(
            f"the coefficients are not finite in {dtype}: scale X and y to moderate numbers, use "
            'dtype="float64", or a larger penalty'
        )
    return coef
