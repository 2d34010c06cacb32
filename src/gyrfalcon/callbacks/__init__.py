"""Watch a fit and stop it: callbacks, stopping rules and progress bars."""

from .base import Callback, CallbackLike, CallbackList, Record
from .drift import DriftMonitor
from .progress import ProgressBar
from .stopping import NoImprovement, TimeLimit

__all__ = [
    "Callback",
    "CallbackLike",
    "CallbackList",
    "DriftMonitor",
    "NoImprovement",
    "ProgressBar",
    "Record",
    "TimeLimit",
]
