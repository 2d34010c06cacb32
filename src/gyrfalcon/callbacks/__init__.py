"""Watch a fit and stop it: callbacks, stopping rules, progress bars, and a plot of the convergence."""

from .base import Callback, CallbackLike, CallbackList, Record
from .plots import convergence_plot
from .progress import ProgressBar
from .stopping import NoImprovement, TimeLimit

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
