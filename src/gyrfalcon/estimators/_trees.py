"""Functions made by trees of cells, once they are fitted: what the two hierarchical estimators share."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from .._utils.checks import array
from .._utils.threads import effective_n_jobs
from ..fitting.data import FitData
from ..fitting.hierarchical import HierarchicalSolution, neighborhood_predictions, predictions, solve
from ..fitting.ridge import EveryRow
from ..fitting.session import Session
from ..fitting.tree_rows import HierarchySettings, tree_rows
from ..hierarchy import LocalExpansion, Neighborhoods
from ..kernels import Kernel
from ..operators.choose import PreparedCenters
from ..operators.shapley import Expansion
from ._base import KernelEstimator

Array = NDArray[Any]


class OnTrees(KernelEstimator):
    """The mean of functions, each made by a tree of cells."""

    penalty: float | str
    penalties: Any
    leaf_size: int | None
    rank: int | None
    n_trees: int
    n_centers: int | None
    split: str
    choose_by: str | None

    penalty_: float
    leaf_size_: int
    rank_: int
    trees_: list[LocalExpansion]
    global_centers_: Array | None
    global_coef_: Array | None
    neighborhoods_: Neighborhoods | None

    def _settings(self, **needed: Any) -> HierarchySettings:
        return HierarchySettings(
            self.leaf_size, self.rank, self.n_trees, self.split, self.n_centers, self.choose_by, **needed
        )

    def _solve(
        self, data: FitData, session: Session, settings: HierarchySettings
    ) -> tuple[EveryRow, HierarchicalSolution]:
        penalties = self.penalty if self.penalties is None else self.penalties
        problem = tree_rows(self.kernel, penalties, data, self._compute, session.random_state)
        return problem, solve(settings, problem, self._compute, session)

    def _set_trees(self, problem: EveryRow, found: HierarchicalSolution) -> None:
        self.kernel_, self.centers_ = problem.kernel, problem.points
        self.trees_, self.penalty_ = found.trees, found.penalty
        self.leaf_size_, self.rank_ = found.sizes
        smooth = found.smooth
        self.global_centers_, self.global_coef_ = (None, None) if smooth is None else (smooth.centers, smooth.coef)
        self.neighborhoods_ = found.neighborhoods
        self._prepared = PreparedCenters()

    @property
    def _has_one_column(self) -> bool:
        return np.ndim(self.offset_) == 0

    def _expansion(self) -> Expansion | None:
        return None

    def _functions(self, X: Any) -> Array:
        if not self._is_fitted:
            check_is_fitted(self)
        rows = self._scaled_rows(X, self.centers_.dtype)
        learnt = (self.kernel_, self.centers_, rows, effective_n_jobs(self.n_jobs))
        if self.neighborhoods_ is None:
            found = predictions(self.trees_, *learnt)
        else:
            found = neighborhood_predictions(self.neighborhoods_, self.trees_[0], *learnt)
        if self.global_centers_ is not None and self.global_coef_ is not None:
            prepared: PreparedCenters = vars(self).setdefault("_prepared", PreparedCenters())  # a model file has none
            operator = prepared.operator(self.kernel_, rows, self.global_centers_, n_jobs=self.n_jobs)
            found += operator.matmat(self.global_coef_)
        return self._from_offset(found[:, 0] if self._has_one_column else found)

    def _check_loaded(self) -> None:
        self._check_scaling()
        if not isinstance(self.kernel_, Kernel):
            raise ValueError("kernel_ is not a kernel")
        centers = self.centers_
        if not isinstance(centers, np.ndarray) or centers.dtype not in (np.float32, np.float64) or centers.ndim != 2:
            raise ValueError("centers_ is not a matrix of floats")
        if 0 in centers.shape or centers.shape[1] != self.n_features_in_ or not np.isfinite(centers).all():
            raise ValueError(f"centers_ has shape {centers.shape}, or numbers that are not finite")
        if not isinstance(self.trees_, list) or not self.trees_:
            raise ValueError("trees_ is not a list of trees")
        for tree in self.trees_:
            if not isinstance(tree, LocalExpansion) or len(tree.order) != len(centers):
                raise ValueError(f"trees_ has something else than trees of {len(centers)} rows")
            if tree.tree.directions.shape[1:] != centers.shape[1:] or tree.coef.shape[1] != np.size(self.offset_):
                raise ValueError("trees_ do not fit the features or the outputs")
        if self.global_centers_ is not None:
            array((None, self.n_features_in_), centers.dtype)("global_centers_", self.global_centers_)
            array((len(self.global_centers_), np.size(self.offset_)))("global_coef_", self.global_coef_)
        near = self.neighborhoods_
        if near is not None and (
            not isinstance(near, Neighborhoods) or near.targets.shape != (len(centers), np.size(self.offset_))
        ):
            raise ValueError("neighborhoods_ do not fit the rows or the outputs")
        self._check_offset(self.trees_[0].coef[:, 0] if self._has_one_column else self.trees_[0].coef)
        self.kernel_.resolve(centers)
