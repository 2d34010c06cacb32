"""The common part of the baselines that learn coefficients of random features."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from numpy.typing import ArrayLike

from .._utils.checks import Rule, integer
from ..estimators._base import KernelClassifier, KernelRegressor
from ..estimators._sklearn import BASELINE_LINK
from ..estimators.random_features_regressor import OnRandomFeatures
from ..fitting.arguments import described
from ..fitting.parameters import check_parameters


@described
class FeatureBaseline(OnRandomFeatures, KernelRegressor):
    """A regressor on random features, whose `_solve` finds the coefficients."""

    _doc_link_template = BASELINE_LINK
    _rules: ClassVar[Mapping[str, Rule]] = {}  # of parameters that only this method has

    orthogonal = False

    def fit(
        self, X: Any, y: Any = None, sample_weight: ArrayLike | None = None, X_val: Any = None, y_val: Any = None
    ) -> Self:
        """Learn from rows.

        Parameters
        ----------
        {dense.X, fit.y, fit.sample_weight, fit.X_val y_val}

        Returns
        -------
        self
        """
        check_parameters(self.get_params(deep=False), **{"n_components": integer(1), **self._rules})
        with self._session() as session:
            data = self._data(session, X, y, sample_weight, X_val, y_val, random_access=True)
            self._learn(data, session)
        return self


@described
class FeatureClassifier(OnRandomFeatures, KernelClassifier):
    """A classifier on random features: `_solve` finds the coefficients for targets +1 and -1."""

    _doc_link_template = BASELINE_LINK
    _rules: ClassVar[Mapping[str, Rule]] = {}  # of parameters that only this method has

    orthogonal = False

    def fit(
        self, X: Any, y: Any = None, sample_weight: ArrayLike | None = None, X_val: Any = None, y_val: Any = None
    ) -> Self:
        """Learn from rows.

        Parameters
        ----------
        {dense.X, labels.y, fit.sample_weight}
        X_val, y_val : optional
            Rows on which the validation error (the share of wrong classes) is recorded.

        Returns
        -------
        self
        """
        check_parameters(self.get_params(deep=False), **{"n_components": integer(1), **self._rules})
        with self._session() as session:
            data, classes = self._data(session, X, y, sample_weight, X_val, y_val, random_access=True)
            self._learn(data, session)
            self.classes_ = classes
        return self

    def _check_loaded(self) -> None:
        super()._check_loaded()
        self._check_classes(self.feature_coef_)
