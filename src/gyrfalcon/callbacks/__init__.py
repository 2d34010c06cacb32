"""Watch a fit and stop it: callbacks, time limits, progress bars, and a plot of what was recorded."""

from .base import Callback, CallbackLike, CallbackList, NoImprovement, Record, TimeLimit
from .plots import convergence_plot
from .progress import ProgressBar

__all__ = [
    "Callback",
    "CallbackLike",
    "CallbackList",
    "NoImprovement",
    "ProgressBar",
    "Record",
    "TimeLimit",
    "convergence_plot",
]
