"""Candidates without a kernel: settings of trees or of linear models, and what they learn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from .boosting import SETTINGS as TREES
from .boosting import TreeSettings
from .linear import LinearSettings
from .transforms import Target

LINEAR = LinearSettings()
OTHER_FOLDS = {one.name: one.on_other_folds() for one in TREES}  # by the names of settings of trees
SETTINGS: dict[str, TreeSettings | LinearSettings] = {  # by their names
    LINEAR.name: LINEAR,
    **{one.name: one for one in (*TREES, *OTHER_FOLDS.values())},
}


class PlainFamily(NamedTuple):
    """The name of a family of candidates that are not kernels."""

    name: str


@dataclass(frozen=True, eq=False)
class PlainCandidate:
    """Settings of trees or of linear models and what they learn, in the place of a candidate of the search.

    view : the position of the encoding
    """

    view: int
    target: Target
    settings: TreeSettings | LinearSettings

    round: int = 0
    factor: float = 0.0
    mixing: None = None

    @property
    def key(self) -> tuple[str, str]:
        """What tells candidates apart."""
        return self.settings.name, self.target.name

    @property
    def family(self) -> PlainFamily:
        """The name that records have."""
        return PlainFamily(self.settings.label)
