"""Gyrfalcon: kernel learning at scale, behind the scikit-learn API."""

from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as _version

from . import callbacks, centers, kernels, losses
from .backends.versions import show_versions
from .centers.leverage import effective_dimension, leverage_scores
from .centers.theory import suggest
from .estimators import (
    DivideAndConquerRegressor,
    EigenProRegressor,
    ExactRegressor,
    FalkonClassifier,
    FalkonRegressor,
    NystromRegressor,
    NytroRegressor,
    RandomFeatures,
    RandomFeaturesClassifier,
    RandomFeaturesRegressor,
)
from .operators.dense import KernelOperator
from .sources.files import open
from .storage.checkpoints import Checkpoint, CheckpointError
from .storage.models import ModelFileError, load, save
from .storage.predictions import write_predictions

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
