"""How much of a time budget is left."""

from __future__ import annotations

import time
from dataclasses import dataclass, field


@dataclass
class Clock:
    """A time budget in seconds, that begins when it is made."""

    budget: float
    began: float = field(default_factory=time.perf_counter)

    @property
    def used(self) -> float:
        """Seconds since the beginning."""
        return time.perf_counter() - self.began

    @property
    def left(self) -> float:
        """Seconds until the budget is used up; negative after that."""
        return self.budget - self.used
