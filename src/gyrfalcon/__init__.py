"""Gyrfalcon: kernel learning at scale, behind the scikit-learn API."""

from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as _version

from . import callbacks, centers, kernels, losses
from ._show_versions import show_versions
from .checkpoints import Checkpoint, CheckpointError
from .estimators import (
    DivideAndConquerRegressor,
    EigenProRegressor,
    ExactRegressor,
    FalkonClassifier,
    FalkonRegressor,
    NystromRegressor,
    NytroRegressor,
    RandomFeaturesClassifier,
    RandomFeaturesRegressor,
)
from .leverage import effective_dimension, leverage_scores
from .operator import KernelOperator
from .persistence import ModelFileError, load, save
from .predictions import write_predictions
from .random_features import RandomFeatures
from .sources.files import open
from .theory import suggest

try:
    __version__ = _version("gyrfalcon")
except PackageNotFoundError:  # run from a checkout that is not installed
    __version__ = "unknown"

__all__ = [
    "Checkpoint",
    "CheckpointError",
    "DivideAndConquerRegressor",
    "EigenProRegressor",
    "ExactRegressor",
    "FalkonClassifier",
    "FalkonRegressor",
    "KernelOperator",
    "ModelFileError",
    "NystromRegressor",
    "NytroRegressor",
    "RandomFeatures",
    "RandomFeaturesClassifier",
    "RandomFeaturesRegressor",
    "callbacks",
    "centers",
    "effective_dimension",
    "kernels",
    "leverage_scores",
    "load",
    "losses",
    "open",
    "save",
    "show_versions",
    "suggest",
    "write_predictions",
]
