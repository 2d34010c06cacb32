"""Estimators: thin. Validate, make rows, choose centers, build an operator, run a solver, set attributes."""

from .classification import FalkonClassifier
from .eigenpro import EigenProRegressor
from .exact import DivideAndConquerRegressor, ExactRegressor
from .nystrom import NystromRegressor, NytroRegressor
from .random_features import RandomFeaturesClassifier, RandomFeaturesRegressor
from .regression import FalkonRegressor

__all__ = [
    "DivideAndConquerRegressor",
    "EigenProRegressor",
    "ExactRegressor",
    "FalkonClassifier",
    "FalkonRegressor",
    "NystromRegressor",
    "NytroRegressor",
    "RandomFeaturesClassifier",
    "RandomFeaturesRegressor",
]
