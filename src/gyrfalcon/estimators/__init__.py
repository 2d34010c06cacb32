"""Estimators: thin. Validate, make rows, choose centers, build an operator, run a solver, set attributes."""

from .classification import FalkonClassifier
from .regression import FalkonRegressor

__all__ = ["FalkonClassifier", "FalkonRegressor"]
