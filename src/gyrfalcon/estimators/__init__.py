"""Estimators, one file for each: plain constructors, and fits that read as a screen of named steps."""

from .bandits import BBKB, BKB
from .divide_and_conquer import DivideAndConquerRegressor
from .dpp import DPP
from .eigenpro import EigenProRegressor
from .exact import ExactRegressor
from .exact_classifier import ExactClassifier
from .falkon_classifier import FalkonClassifier
from .falkon_regressor import FalkonRegressor
from .feature_transform import RandomFeatures
from .learned_metric import LearnedMetric
from .nystrom import NystromRegressor
from .nytro import NytroRegressor
from .random_features_classifier import RandomFeaturesClassifier
from .random_features_regressor import RandomFeaturesRegressor

__all__ = [
    "BBKB",
    "BKB",
    "DPP",
    "DivideAndConquerRegressor",
    "EigenProRegressor",
    "ExactClassifier",
    "ExactRegressor",
    "FalkonClassifier",
    "FalkonRegressor",
    "LearnedMetric",
    "NystromRegressor",
    "NytroRegressor",
    "RandomFeatures",
    "RandomFeaturesClassifier",
    "RandomFeaturesRegressor",
]
