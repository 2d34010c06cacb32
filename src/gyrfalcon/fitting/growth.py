"""``n_centers="auto"``: double the number of centers until held-out rows gain no more from it.

Each round is an ordinary fit, with a checkpoint of its own. Uniform centers are nested: a round adds rows to those of
the round before, and starts from its coefficients. Other selectors choose anew.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._utils.compute import Compute
from .._utils.ranges import power_of_two
from .._utils.sampling import draw
from ..centers import Given, Selection, as_centers
from ..operators import make_operator
from .data import FitData
from .falkon import FalkonSettings
from .row_sample import entry_cost
from .session import Session, Solution
from .subspace import AUTO, ChosenCenters, Subspace, WarmStart, choose_operator
from .targets import mean_loss, root_mean_square, row_losses

Array = NDArray[Any]

# Least fall of the held-out loss for which centers are doubled again, as a share of the loss or of what the model
# explains, whichever is less: 1% of a root mean squared error. Doubling takes 2 to 8 times as long.
_SHARE = 0.02
_MOST = 50_000  # centers, whose factors take 10 GB in float32


class Method(NamedTuple):
    """A solver of problems on centers, and what warns of a solution that is not one."""

    solve: Callable[[FalkonSettings, FitData, Compute, Session, WarmStart | None], tuple[Subspace, Solution[Any]]]
    warn: Callable[[FalkonSettings, FitData, Solution[Any]], None]


@dataclass(frozen=True)
class Fitted:
    """The result of a fit on centers; `growth` has a record for each number that "auto" tried, or is None."""

    space: Subspace
    solution: Solution[Any]
    growth: list[dict[str, Any]] | None = None


@dataclass(frozen=True)
class _Round:
    """A fit with one number of centers, its record, and the losses of held-out rows: its own, and of a constant."""

    space: Subspace
    solution: Solution[Any]
    history: list[dict[str, Any]]
    losses: Array
    losses_of_constant: Array
    record: dict[str, Any]

    @property
    def M(self) -> int:
        """The number of centers."""
        return self.space.operator.shape[1]

    @property
    def loss(self) -> float:
        """The mean loss of the held-out rows."""
        return float(self.record["validation_loss"])

    def at_rest(self, compute: Compute) -> _Round:
        """Return the round without its factors and kernel matrix, whose memory the next round needs."""
        kernel, rows, centers = self.space.operator.kernel, self.space.operator.rows, self.space.operator.centers
        operator = choose_operator(kernel, rows, centers, replace(compute, memory_budget=0), 0, 1)
        last = self.solution.last
        solution = replace(self.solution, last=type(last).again(last.numbers()))
        return replace(self, space=replace(self.space, operator=operator), solution=solution)


def fit_centers(
    method: Method, settings: FalkonSettings, data: FitData, compute: Compute, session: Session, warm: WarmStart | None
) -> Fitted:
    """Solve with the number of centers of the settings; with "auto", with the number that held-out rows choose.

    The session then has the history of the round that is kept.
    """
    if settings.centers.n_centers != AUTO:
        found = Fitted(*method.solve(settings, data, compute, session, warm))
        method.warn(settings, found.space.data, found.solution)
        return found
    selector = as_centers(settings.centers.centers)
    if isinstance(selector, Given):
        raise ValueError(
            f'n_centers="auto" chooses how many centers to draw, and centers has {settings.centers.wanted(0)} points: '
            'give n_centers=None, or centers="uniform" or another selector'
        )
    seed, n = int(session.random_state.randint(2**31 - 1)), data.rows.shape[0]
    best = _solved(method, settings, data, compute, session, warm).at_rest(compute)
    tried, stopped = [best.record], _reason_to_stop(best, None, n, session)
    while stopped is None:
        M = min(2 * best.M, n, max(_MOST, best.M))
        session.history = best.history
        if not session.may_go_on(n_centers=M, max_iter=settings.max_iter, expected_seconds=_expected(best, M)):
            stopped = "callback"
            break
        with session.round(str(M), n_centers=M, random_state=(seed + M) % 2**32) as inner:
            larger = replace(settings, penalty=best.space.penalty, centers=replace(settings.centers, n_centers=M))
            start = _start(best, M, larger, data, inner.random_state)
            try:
                now = _solved(method, larger, data, compute, inner, start).at_rest(compute)
            except MemoryError:
                if inner.beginning is not None:  # it did fit when the fit that is resumed was there
                    raise
                stopped = "memory"
                break
            stopped = _reason_to_stop(now, best, n, inner)
        tried.append(now.record)
        best = now if now.loss < best.loss else best
    session.history, tried[-1]["stopped"] = best.history, stopped
    method.warn(settings, best.space.data, best.solution)
    chosen = replace(best.space.chosen, n_centers=AUTO)
    return Fitted(replace(best.space, chosen=chosen), best.solution, tried)


def _solved(
    method: Method, settings: FalkonSettings, data: FitData, compute: Compute, session: Session, warm: WarmStart | None
) -> _Round:
    """Run one round, and measure it on the held-out rows."""
    space, solution = method.solve(settings, data, compute, session, warm)
    data, held = space.data, space.data.validation
    assert held is not None
    f = make_operator(
        space.operator.kernel,
        held.rows,
        space.operator.centers,
        n_jobs=compute.n_jobs,
        memory_budget=0,
        device=compute.device,
    ).matmat(solution.coef)
    values = f if data.offset is None else f + data.offset
    squared = data.is_least_squares
    unit = power_of_two(held.targets) if squared else 1.0  # so that no square overflows
    losses, of_constant = (row_losses(data.loss, held.targets / unit, each / unit) for each in (values, values - f))
    record = {
        "n_centers": space.operator.shape[1],
        "validation_loss": (root_mean_square if squared else partial(mean_loss, data.loss))(
            held.targets, held.weight, values
        ),
        "validation_error": data.validation_error(f),
        "n_iter": solution.last.iteration,
        "passes": solution.last.passes,
        "seconds": session.history[-1]["seconds"] - session.seconds_before,
        "stopped": None,
    }
    return _Round(space, solution, session.history, losses, of_constant, record)


def _reason_to_stop(now: _Round, before: _Round | None, n: int, session: Session) -> str | None:
    """Return why no more centers are tried after a round, or None."""
    if now.solution.stopped and not session.exhausted:
        return "callback"
    if before is not None and not _gains(now, before):
        return "error"
    M = now.record["n_centers"]
    if n <= M:
        return "rows"
    return "limit" if M >= _MOST else None


def _gains(now: _Round, before: _Round) -> bool:
    """Whether the held-out loss has fallen by enough, and by more than the standard error of the difference."""
    held = now.space.data.validation
    assert held is not None
    weight = np.ones(len(now.losses)) if held.weight is None else held.weight
    fall = before.losses - now.losses
    gain, loss, constant = (
        float(np.average(each, weights=weight)) for each in (fall, before.losses, before.losses_of_constant)
    )
    share = weight / weight.sum()
    error = math.sqrt(float(np.square(share) @ np.square(fall - gain)))
    return gain > max(_SHARE * min(loss, max(constant - loss, 0.0)), error)


def _start(
    before: _Round, M: int, settings: FalkonSettings, data: FitData, random_state: np.random.RandomState
) -> WarmStart | None:
    """Add uniformly drawn rows to uniform centers, with coefficients 0; None for centers that were chosen otherwise."""
    known = before.space.selection
    if known.indices is None or known.D is not None or not known.sampled:
        return None
    (n, _), m = data.rows.shape, len(known.indices)
    taken = np.sort(known.indices)
    more = draw(n - m, M - m, random_state)  # among the other rows
    more += np.searchsorted(taken - np.arange(m), more, side="right")
    indices = np.sort(np.concatenate([taken, more]))
    coef = np.zeros((M, before.solution.coef.shape[1]))
    coef[np.searchsorted(indices, known.indices)] = before.solution.coef
    weight = None if data.weight is None else data.weight[indices]
    selection = Selection(data.rows.take(indices), indices)
    return WarmStart(ChosenCenters(selection, weight, M, settings.centers.centers), coef)


def _expected(last: _Round, M: int) -> float:
    """Estimate the seconds of a round with M centers: passes take time proportional to M, and factors to M^3."""
    (n, m), times = last.space.operator.shape, M / last.M
    passes = last.record["passes"] * n * m * entry_cost(last.space.operator.rows)
    return float(last.record["seconds"]) * (passes * times + m**3 * times**3) / (passes + m**3)
