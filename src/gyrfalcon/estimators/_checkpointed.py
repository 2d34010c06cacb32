"""Nyström estimators whose fit can be killed and gone on with: where a fit meets `gyrfalcon.storage.checkpoints`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..centers import Selection
from ..kernels import Kernel
from ..operators.dense import KernelOperator
from ..solvers import Iterate
from ..sources import Rows, runs_elsewhere
from ..sources.stored import ContentsError
from ..storage.checkpoints import (
    WARM,
    Beginning,
    Checkpoint,
    CheckpointError,
    decode_selection,
    encode_selection,
    identify,
    journal,
)
from ._base import Problem
from ._nystrom import NystromEstimator, Subspace

Array = NDArray[Any]


class Checkpointed(NystromEstimator):
    """What is drawn or decided at the start of a fit is kept in its journal, and taken from there when it is resumed.

    The journal is open while the fit runs; `Estimator._follow` writes the solver's progress into it.
    """

    checkpoint: str | os.PathLike[str] | Checkpoint | None
    max_iter: int

    @contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        with super()._all_or_nothing(), journal(self.checkpoint) as opened:
            if opened is None:
                yield
                return
            self._journal = opened  # an open file, which a fitted estimator must not have: it can be pickled
            yield
            del self._journal

    def _split(
        self, indices: Array, stratify: Array | None, random_state: np.random.RandomState
    ) -> tuple[Array, Array]:
        if self._journal is not None:
            random_state = self._journal.generator(random_state)
        return super()._split(indices, stratify, random_state)

    def _choose_centers(
        self, rows: Rows, weight: Array | None, random_state: np.random.RandomState, warm: bool
    ) -> tuple[Selection, Array | None]:
        if self._journal is not None:
            if self._journal.beginning is not None:
                return decode_selection(self._journal.beginning.selection, rows)
            random_state = self._journal.generator(random_state)
        return super()._choose_centers(rows, weight, random_state, warm)

    def _subspace(self, problem: Problem, random_state: np.random.RandomState, warm: bool, **needs: Any) -> Subspace:
        if self._journal is None:
            return super()._subspace(problem, random_state, warm, **needs)
        self._journal.check(self._identity(problem, warm), self.max_iter)
        space = super()._subspace(problem, random_state, warm, **needs)
        if self._journal.beginning is not None:
            begun = self._journal.beginning
            return replace(space, budget=begun.budget, factors=np.dtype(begun.factors))
        drawn = self._journal.random_state
        assert drawn is not None  # the centers were drawn with it
        selection = encode_selection(space.selection, space.center_weight)
        self._journal.begin(
            Beginning(drawn, selection, space.budget, space.spare, space.operator.arithmetic, space.factors.name)
        )
        return space

    def _operator(self, kernel: Kernel, rows: Rows, centers: Any, budget: int | float | str) -> KernelOperator:
        """What is kept in memory decides the last bits of products, so a resumed fit keeps what the first one did."""
        begun = None if self._journal is None else self._journal.beginning
        if begun is None:
            return super()._operator(kernel, rows, centers, budget)
        if not runs_elsewhere(rows):
            budget = min(begun.budget, budget)
        elif begun.arithmetic == "made again":
            budget = 0
        operator = super()._operator(kernel, rows, centers, budget)
        if operator.arithmetic != begun.arithmetic:
            raise CheckpointError(
                f"the fit began with a kernel matrix of shape {operator.shape} that is {begun.arithmetic}, and now it "
                f"would be {operator.arithmetic}, for want of memory: raise memory_budget={self.memory_budget!r}, or "
                "delete the checkpoint folder to start afresh"
            )
        return operator

    def _has_room(self, space: Subspace, needed: int) -> bool:
        """Whether there are so many bytes beside what is planned; for a resumed fit, whether the first start had them.

        What it decided must not change, so a resumed fit that has less raises an error.
        """
        begun = None if self._journal is None else self._journal.beginning
        had = needed <= (space.spare if begun is None else begun.spare)
        if had and needed > space.spare:
            raise CheckpointError(
                f"the fit began with room for {needed:,} bytes of factors of another preconditioner, which it needs "
                f"now, and there are {max(0, space.spare):,}: raise memory_budget={self.memory_budget!r}, or delete "
                "the checkpoint folder to start afresh"
            )
        return had

    def _follow(self, iterates: Iterable[Iterate], *given: Any, **more: Any) -> tuple[Iterate, bool]:
        if self._resumed_state() is not None:
            iterates = self._resuming(iter(iterates))
        return super()._follow(iterates, *given, **more)

    def _resuming(self, iterates: Iterator[Iterate]) -> Iterator[Iterate]:
        """The same iterates; what fails in the first two may be the state they are made of, for it once did not."""
        assert self._journal is not None
        for _ in range(2):
            try:
                iterate = next(iterates)
            except StopIteration:
                return
            except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
                if isinstance(error, CheckpointError | ContentsError):
                    raise
                what = f"{type(error).__name__}: {error}; if that is not about the data, its state is damaged"
                raise CheckpointError(self._journal.unfit(what)) from error
            yield iterate
        yield from iterates

    def _identity(self, problem: Problem, warm: bool) -> dict[str, str]:
        held = [arg for arg in getattr(problem.error, "args", ()) if isinstance(arg, np.ndarray)]
        y_val, weight_val, *_ = [*held, None, None]
        return identify(
            self,
            {
                "X": problem.rows,
                "y": problem.targets,
                "sample_weight": problem.weight,
                "X_val": problem.validation,
                "y_val": y_val,
                "sample_weight of X_val": weight_val,
                WARM: self.coef_ if warm else None,
                "their centers": self.centers_ if warm else None,
            },
        )

    def _resumed_state(self) -> dict[str, Any] | None:
        """The solver's state to go on from, if there is one."""
        return None if self._journal is None or self._journal.progress is None else self._journal.progress.state


def fill(operator: KernelOperator) -> None:
    """Make the pass that fills a K that is kept: it adds products in another order than later passes do, so a solver
    that is resumed must not be the one to make it.
    """
    if operator.keeps:
        operator.rmatmat(np.zeros((operator.shape[0], 1)))
