"""Gyrfalcon: kernel learning at scale, behind the scikit-learn API.

The names below are imported when they are first used, so that the command line starts without NumPy and scikit-learn.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import baselines, callbacks, centers, kernels, losses, plots
    from .backends.versions import show_versions
    from .centers.leverage import effective_dimension, leverage_scores, n_infinity
    from .centers.regimes import d_tilde, regime, signal_to_noise, suggest_nytro
    from .centers.theory import centers_needed, suggest
    from .estimators import (
        BBKB,
        BKB,
        DPP,
        ConformalClassifier,
        ConformalRegressor,
        DivideAndConquerRegressor,
        EigenProRegressor,
        ExactClassifier,
        ExactRegressor,
        FalkonClassifier,
        FalkonRegressor,
        HierarchicalClassifier,
        HierarchicalRegressor,
        KernelKMeans,
        KernelPCA,
        LearnedMetric,
        NoveltyDetector,
        NystromRegressor,
        NytroRegressor,
        RandomFeatures,
        RandomFeaturesClassifier,
        RandomFeaturesRegressor,
    )
    from .estimators.dpp import sample_dpp
    from .estimators.mini_bootstrap import Detectors, mini_bootstrap
    from .estimators.onnx_export import to_onnx
    from .estimators.partial_dependence import partial_dependence
    from .estimators.shapley import ShapleyValues, shapley_interactions, shapley_values
    from .estimators.stream import learn_stream
    from .estimators.tune import tune
    from .estimators.two_sample import MMDTest, mmd_test
    from .operators.dense import KernelOperator
    from .sources.files import open as open
    from .storage.checkpoints import Checkpoint, CheckpointError
    from .storage.models import ModelFileError, load, save
    from .storage.predictions import write_predictions
    from .tables import AutoClassifier, AutoRegressor, TableEncoder

    __version__: str

__all__ = [
    "BBKB",
    "BKB",
    "DPP",
    "AutoClassifier",
    "AutoRegressor",
    "Checkpoint",
    "CheckpointError",
    "ConformalClassifier",
    "ConformalRegressor",
    "Detectors",
    "DivideAndConquerRegressor",
    "EigenProRegressor",
    "ExactClassifier",
    "ExactRegressor",
    "FalkonClassifier",
    "FalkonRegressor",
    "HierarchicalClassifier",
    "HierarchicalRegressor",
    "KernelKMeans",
    "KernelOperator",
    "KernelPCA",
    "LearnedMetric",
    "MMDTest",
    "ModelFileError",
    "NoveltyDetector",
    "NystromRegressor",
    "NytroRegressor",
    "RandomFeatures",
    "RandomFeaturesClassifier",
    "RandomFeaturesRegressor",
    "ShapleyValues",
    "TableEncoder",
    "baselines",
    "callbacks",
    "centers",
    "centers_needed",
    "d_tilde",
    "effective_dimension",
    "kernels",
    "learn_stream",
    "leverage_scores",
    "load",
    "losses",
    "mini_bootstrap",
    "mmd_test",
    "n_infinity",
    "partial_dependence",
    "plots",
    "regime",
    "sample_dpp",
    "save",
    "shapley_interactions",
    "shapley_values",
    "show_versions",
    "signal_to_noise",
    "suggest",
    "suggest_nytro",
    "to_onnx",
    "tune",
    "write_predictions",
]

# where each public name comes from; `open` is one that `from gyrfalcon import *` must not put in the place of Python's
_MODULES = {
    "BBKB": "estimators",
    "BKB": "estimators",
    "DPP": "estimators",
    "AutoClassifier": "tables",
    "AutoRegressor": "tables",
    "Checkpoint": "storage.checkpoints",
    "CheckpointError": "storage.checkpoints",
    "ConformalClassifier": "estimators",
    "ConformalRegressor": "estimators",
    "Detectors": "estimators.mini_bootstrap",
    "DivideAndConquerRegressor": "estimators",
    "EigenProRegressor": "estimators",
    "ExactClassifier": "estimators",
    "ExactRegressor": "estimators",
    "FalkonClassifier": "estimators",
    "FalkonRegressor": "estimators",
    "HierarchicalClassifier": "estimators",
    "HierarchicalRegressor": "estimators",
    "KernelKMeans": "estimators",
    "KernelOperator": "operators.dense",
    "KernelPCA": "estimators",
    "LearnedMetric": "estimators",
    "MMDTest": "estimators.two_sample",
    "ModelFileError": "storage.models",
    "NoveltyDetector": "estimators",
    "NystromRegressor": "estimators",
    "NytroRegressor": "estimators",
    "RandomFeatures": "estimators",
    "RandomFeaturesClassifier": "estimators",
    "RandomFeaturesRegressor": "estimators",
    "ShapleyValues": "estimators.shapley",
    "TableEncoder": "tables",
    "effective_dimension": "centers.leverage",
    "leverage_scores": "centers.leverage",
    "load": "storage.models",
    "mini_bootstrap": "estimators.mini_bootstrap",
    "mmd_test": "estimators.two_sample",
    "open": "sources.files",
    "sample_dpp": "estimators.dpp",
    "save": "storage.models",
    "partial_dependence": "estimators.partial_dependence",
    "shapley_interactions": "estimators.shapley",
    "shapley_values": "estimators.shapley",
    "show_versions": "backends.versions",
    "suggest": "centers.theory",
    "centers_needed": "centers.theory",
    "d_tilde": "centers.regimes",
    "n_infinity": "centers.leverage",
    "regime": "centers.regimes",
    "signal_to_noise": "centers.regimes",
    "suggest_nytro": "centers.regimes",
    "to_onnx": "estimators.onnx_export",
    "learn_stream": "estimators.stream",
    "tune": "estimators.tune",
    "write_predictions": "storage.predictions",
}
# what can be reached as an attribute without an import of its own
_PACKAGES = (
    "backends",
    "baselines",
    "callbacks",
    "centers",
    "estimators",
    "kernels",
    "losses",
    "operators",
    "plots",
    "preconditioners",
    "solvers",
    "sources",
    "storage",
    "tables",
    "testing",
)


if not TYPE_CHECKING:  # a type checker would take any name for granted

    def __getattr__(name: str) -> Any:
        if name in _PACKAGES:
            return import_module(f".{name}", __name__)
        if name in _MODULES:
            value = vars(import_module(f".{_MODULES[name]}", __name__))[name]
        elif name == "__version__":
            from ._utils.version import package_version

            value = package_version()
        else:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        special = (name for name in globals() if name.startswith("__"))
        return sorted({*special, *__all__, *_PACKAGES, "open", "__version__"})
