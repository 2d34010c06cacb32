"""Checkpoints: the state of a fit on disk, and the proof that it is the state of the same fit.

A checkpoint is one file in a folder, in the format of model files (`gyrfalcon.storage.models`: arrays and JSON, nothing
that could run), and holds

    identity    everything the result depends on, as text and digests: another fit is refused, with the differences
    beginning   what was drawn or decided once: the random state, the centers, what is kept in memory
    progress    the solver's state, the history, the best solution so far, and at the end the solution

The file is replaced as a whole (`gyrfalcon._utils.atomic`), so that it always holds one state or the next. Everything
else is recomputed from the same numbers by the same code, to the same bits.
"""

from .identity import WARM, identify
from .journal import Journal, as_checkpoint, journal, peek
from .parameter import Checkpoint, CheckpointError
from .state import Beginning, Progress, decode_selection, encode_selection

__all__ = [
    "WARM",
    "Beginning",
    "Checkpoint",
    "CheckpointError",
    "Journal",
    "Progress",
    "as_checkpoint",
    "decode_selection",
    "encode_selection",
    "identify",
    "journal",
    "peek",
]
