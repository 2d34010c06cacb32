"""Methods that the papers compare FALKON with, one file for each.

Those that are useful beyond comparisons are in `gyrfalcon.estimators` and at the front door, and are listed here too.
"""

from ..estimators import (
    DivideAndConquerRegressor,
    EigenProRegressor,
    ExactClassifier,
    ExactRegressor,
    NystromRegressor,
    NytroRegressor,
    RandomFeaturesClassifier,
    RandomFeaturesRegressor,
)
from .divide_and_conquer_classifier import DivideAndConquerClassifier
from .eigenpro_classifier import EigenProClassifier

__all__ = [
    "DivideAndConquerClassifier",
    "DivideAndConquerRegressor",
    "EigenProClassifier",
    "EigenProRegressor",
    "ExactClassifier",
    "ExactRegressor",
    "NystromRegressor",
    "NytroRegressor",
    "RandomFeaturesClassifier",
    "RandomFeaturesRegressor",
]
