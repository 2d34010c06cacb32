"""What FALKON's regressor and classifier share: their settings, the warm start, and the attributes of a solution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .._utils.compute import Compute
from .._utils.threads import single_threaded_blas
from ..centers import Selection
from ..fitting import falkon, newton
from ..fitting.data import FitData
from ..fitting.precision import warn_if_iterates_rounded
from ..fitting.session import Session, Solution
from ..fitting.subspace import CenterSettings, ChosenCenters, Subspace, WarmStart
from ..losses import Loss
from ._base import KernelEstimator


class FalkonEstimator(KernelEstimator):
    """An estimator whose coefficients FALKON finds, or Newton's method with its preconditioner."""

    n_centers: int | None
    centers: Any
    penalty: float | str
    preconditioner: str
    max_iter: int
    tol: float | None
    penalty_path: Sequence[float] | None
    cg_steps: int | Sequence[int] | None

    loss_: Loss
    penalty_: float
    _chosen: ChosenCenters | None = None

    def _solve(
        self, data: FitData, compute: Compute, session: Session, *, warm: bool, buffers: int = 1
    ) -> tuple[Subspace, Solution[Any]]:
        """Find the coefficients, from those of the last fit if it is `warm`."""
        settings = falkon.FalkonSettings(
            CenterSettings(self.kernel, self.n_centers, self.centers),
            penalty=self.penalty,
            preconditioner=self.preconditioner,
            max_iter=self.max_iter,
            tol=self.tol,
            penalty_path=self.penalty_path,
            cg_steps=self.cg_steps,
        )
        start = None
        # centers mean something else to features in other units, and coefficients to another loss
        if warm and (data.scale is None) == (self.scale_ is None) and type(self.loss_) is type(data.loss):
            # how the centers of a model from a file were chosen is not known
            known = self._chosen or ChosenCenters(Selection(self.centers_), None, self.n_centers, self.centers)
            start = WarmStart(known, self.dual_coef_)
        with single_threaded_blas():  # threads of its own would decide the last bits, and spin beside ours
            if data.is_least_squares:
                return falkon.solve(settings, data, compute, session, start, buffers=buffers)
            return newton.solve(settings, data, compute, session, start)

    def _set_falkon(self, space: Subspace, solution: Solution[Any], session: Session) -> None:
        """Set the attributes of a solution, and warn if rounding has decided part of it."""
        data = space.data
        self._set_solution(data, session)
        self._set_expansion(space.operator, solution.coef, data)
        penalty = space.penalty if data.is_least_squares else None
        warn_if_iterates_rounded(space.operator, solution, penalty, foreseen=data.dtype_given)
        self._chosen, self.penalty_, self.loss_ = space.remembered, space.penalty, data.loss
