"""Tables as people have them: columns of any kind, made into numbers that a kernel understands."""

from .auto_classifier import AutoClassifier
from .auto_regressor import AutoRegressor
from .encoder import TableEncoder
from .mixing import Mixing

__all__ = ["AutoClassifier", "AutoRegressor", "Mixing", "TableEncoder"]
