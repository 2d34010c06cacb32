"""Estimators, one file for each: plain constructors, and fits that read as a screen of named steps."""

from .bandits import BKB
from .batch_bandits import BBKB
from .conformal_classifier import ConformalClassifier
from .conformal_regressor import ConformalRegressor
from .divide_and_conquer import DivideAndConquerRegressor
from .dpp import DPP
from .eigenpro import EigenProRegressor
from .exact import ExactRegressor
from .exact_classifier import ExactClassifier
from .falkon_classifier import FalkonClassifier
from .falkon_regressor import FalkonRegressor
from .feature_transform import RandomFeatures
from .hierarchical_classifier import HierarchicalClassifier
from .hierarchical_regressor import HierarchicalRegressor
from .kernel_kmeans import KernelKMeans
from .kernel_pca import KernelPCA
from .learned_metric import LearnedMetric
from .novelty import NoveltyDetector
from .nystrom import NystromRegressor
from .nytro import NytroRegressor
from .random_features_classifier import RandomFeaturesClassifier
from .random_features_regressor import RandomFeaturesRegressor

__all__ = [
    "BBKB",
    "BKB",
    "DPP",
    "ConformalClassifier",
    "ConformalRegressor",
    "DivideAndConquerRegressor",
    "EigenProRegressor",
    "ExactClassifier",
    "ExactRegressor",
    "FalkonClassifier",
    "FalkonRegressor",
    "HierarchicalClassifier",
    "HierarchicalRegressor",
    "KernelKMeans",
    "KernelPCA",
    "LearnedMetric",
    "NoveltyDetector",
    "NystromRegressor",
    "NytroRegressor",
    "RandomFeatures",
    "RandomFeaturesClassifier",
    "RandomFeaturesRegressor",
]
