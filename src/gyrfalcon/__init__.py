"""Gyrfalcon: kernel learning at scale, behind the scikit-learn API."""

from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as _version

from . import callbacks, centers, kernels
from ._show_versions import show_versions
from .estimators import FalkonClassifier, FalkonRegressor
from .operator import KernelOperator
from .persistence import ModelFileError, load, save

try:
    __version__ = _version("gyrfalcon")
except PackageNotFoundError:  # run from a checkout that is not installed
    __version__ = "unknown"

__all__ = [
    "FalkonClassifier",
    "FalkonRegressor",
    "KernelOperator",
    "ModelFileError",
    "callbacks",
    "centers",
    "kernels",
    "load",
    "save",
    "show_versions",
]
