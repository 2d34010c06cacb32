"""Methods that the papers compare FALKON with, one file for each.

Those that are useful beyond comparisons are in `gyrfalcon.estimators` and at the front door, and are listed here too.
"""

from ..estimators import (
    DivideAndConquerRegressor,
    EigenProRegressor,
    ExactClassifier,
    ExactRegressor,
    HierarchicalClassifier,
    HierarchicalRegressor,
    NystromRegressor,
    NytroRegressor,
    RandomFeaturesClassifier,
    RandomFeaturesRegressor,
)
from .admm_regressor import AdmmRegressor
from .divide_and_conquer_classifier import DivideAndConquerClassifier
from .doubly_stochastic_regressor import DoublyStochasticRegressor
from .eigenpro_classifier import EigenProClassifier
from .ensemble_classifier import EnsembleClassifier
from .ensemble_regressor import EnsembleRegressor
from .feature_selection_classifier import FeatureSelectionClassifier
from .feature_selection_regressor import FeatureSelectionRegressor
from .pegasos_classifier import PegasosClassifier
from .sketched_regressor import SketchedRegressor
from .svrg_regressor import SvrgRegressor

__all__ = [
    "AdmmRegressor",
    "DivideAndConquerClassifier",
    "DivideAndConquerRegressor",
    "DoublyStochasticRegressor",
    "EigenProClassifier",
    "EigenProRegressor",
    "EnsembleClassifier",
    "EnsembleRegressor",
    "ExactClassifier",
    "ExactRegressor",
    "FeatureSelectionClassifier",
    "FeatureSelectionRegressor",
    "HierarchicalClassifier",
    "HierarchicalRegressor",
    "NystromRegressor",
    "NytroRegressor",
    "PegasosClassifier",
    "RandomFeaturesClassifier",
    "RandomFeaturesRegressor",
    "SketchedRegressor",
    "SvrgRegressor",
]
