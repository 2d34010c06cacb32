"""Drift: whether the errors of a model that learns on are rising."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy import stats

from .._utils.checks import boolean, integer, number
from .._utils.warnings import warn
from .base import Callback, Record

_check_level = number(lambda x: 0 < x < 1, "between 0 and 1, both excluded")
_FEWEST = 5  # earlier batches from which on there is a test
_LEAST = 1e-300  # an error of 0 has no logarithm


class DriftMonitor(Callback):
    """Warn if a model that is updated predicts new batches worse than earlier ones, because the relation has changed.

    Each batch is predicted before it is learned (`error_before` in the record). A one-sided t-test compares the
    logarithms of the errors of the last `recent` batches with those of up to `reference` batches before them. Its
    p-value is added to the record as `drift`, or None as long as there are fewer than five earlier batches. If it is
    below `level`, a warning is given, and later batches are compared with those since then.

    Parameters
    ----------
    recent : int, default=3
        Number of recent batches whose errors are tested. With more of them, smaller changes are detected, but later.
    reference : int, default=20
        Maximum number of earlier batches with which they are compared.
    level : float, default=0.001
        Largest p-value that counts as drift. Without drift, about this share of the batches gives a false alarm.
    stop : bool, default=False
        Whether to stop learning at drift.

    Attributes
    ----------
    drifted : list of int
        Iterations at which drift was found.

    See Also
    --------
    gyrfalcon.mmd_test : Compare the rows of two batches with each other, without targets.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon import NystromRegressor, learn_stream
    >>> from gyrfalcon.callbacks import DriftMonitor
    >>> def batches():
    ...     rng = np.random.default_rng(0)
    ...     for day in range(20):
    ...         X = rng.uniform(-3, 3, size=(300, 1))
    ...         yield X, np.sin(X[:, 0] + (day >= 15)) + 0.1 * rng.standard_normal(300)  # changes on day 15
    >>> monitor = DriftMonitor(stop=True)
    >>> model = NystromRegressor(n_centers=20, penalty=1e-4, incremental=True, random_state=0)
    >>> import warnings
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore")
    ...     model = learn_stream(model, batches(), callbacks=monitor)
    >>> model.stream_["batches"]  # it stops at the second of the batches that are different
    17
    """

    def __init__(self, recent: int = 3, reference: int = 20, level: float = 0.001, stop: bool = False) -> None:
        integer(1)("recent", recent)
        integer(_FEWEST)("reference", reference)
        _check_level("level", level)
        boolean("stop", stop)
        self.recent = recent
        self.reference = reference
        self.level = level
        self.stop = stop
        self.drifted: list[int] = []
        self._logs: list[float] = []

    def __repr__(self) -> str:
        return f"DriftMonitor({self.recent}, {self.reference}, {self.level}, {self.stop})"

    def on_fit_start(self, estimator: Any, info: Mapping[str, Any]) -> None:
        """Begin with the errors that a model has recorded before, such as those of a model from a file."""
        self._logs, self.drifted = [], []
        for record in vars(estimator).get("history_", ()):
            self._add(record)

    def on_iteration(self, record: Record) -> bool:
        """Test whether the errors of the last batches are larger."""
        if not self._add(record):
            return False
        warn(
            f"the errors of the last {self.recent} batches are larger than those before (p = {record['drift']:.1g}): "
            "the relation between X and y, or the rows, may have changed. Let earlier rows fade by a "
            "forgetting_factor below 1, or forget them",
            RuntimeWarning,
        )
        return self.stop

    def _add(self, record: Record) -> bool:
        """Add the error of a batch, set the p-value of its record, and return whether there is drift."""
        if "error_before" not in record:
            return False
        self._logs = [*self._logs, math.log(max(record["error_before"], _LEAST))][-self.recent - self.reference :]
        earlier, recent = self._logs[: -self.recent], self._logs[-self.recent :]
        record["drift"] = _pvalue(earlier, recent) if len(earlier) >= _FEWEST else None
        if record["drift"] is None or record["drift"] >= self.level:
            return False
        self.drifted.append(record["iteration"])
        self._logs = []
        return True


def _pvalue(earlier: list[float], recent: list[float]) -> float:
    """Return the p-value of the t-test whether the mean of `recent` is above that of `earlier`."""
    a, b = np.array(earlier), np.array(recent)
    freedom = len(a) + len(b) - 2
    squares = float(np.square(a - a.mean()).sum() + np.square(b - b.mean()).sum())
    rise = float(b.mean() - a.mean())
    unit = math.sqrt(squares / freedom * (1 / len(a) + 1 / len(b)))
    if unit == 0:  # all errors are equal within each of the two
        return 0.0 if rise > 0 else 1.0
    return float(stats.t.sf(rise / unit, freedom))
