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

__all__ = [
    "DivideAndConquerRegressor",
    "EigenProRegressor",
    "ExactClassifier",
    "ExactRegressor",
    "NystromRegressor",
    "NytroRegressor",
    "RandomFeaturesClassifier",
    "RandomFeaturesRegressor",
]
