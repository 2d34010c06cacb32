"""Predictions with their uncertainty, for regressors that can keep a posterior."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, Literal, overload

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import get_lapack_funcs
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from .._utils.checks import array, integer
from .._utils.memory import format_bytes, require
from ..fitting.arguments import described
from ..fitting.conformal import COVERAGE, Conformity
from ..fitting.data import FitData
from ..fitting.posterior import Uncertainty, in_float64, widening
from ..fitting.rows import at_once, read_again
from ..operators import KernelOperator
from ..solvers import Posterior
from ..solvers.running_sums import RunningSums
from ._base import KernelRegressor
from ._lazy import in_kind, lazily

Array = NDArray[Any]


@described
class UncertainRegressor(KernelRegressor):
    """A regressor with the parameter `uncertainty`, whose predictions then come with deviations and intervals."""

    remedy: ClassVar[str] = "fit with uncertainty=True"  # named in errors where there is no standard deviation
    _kept: ClassVar[tuple[str, ...]]  # attributes of a fit with uncertainty

    uncertainty: bool

    conformity_: Conformity
    noise_variance_: Any

    @overload
    def predict(self, X: Any, return_std: Literal[False] = False) -> Array: ...
    @overload
    def predict(self, X: Any, return_std: Literal[True]) -> tuple[Array, Array]: ...
    @overload
    def predict(self, X: Any, return_std: bool) -> Array | tuple[Array, Array]: ...
    def predict(self, X: Any, return_std: bool = False) -> Array | tuple[Array, Array]:
        """Predict y.

        Parameters
        ----------
        {rows.X}
        return_std : bool, default=False
            Whether to also return the standard deviation of f(x), which is the uncertainty of the learnt function
            itself; that of y is ``np.sqrt(std**2 + model.noise_variance_)``. It requires a fit with `uncertainty=True`,
            takes many times as long as the prediction alone, and is computed in float64.

        Returns
        -------
        mean : array of shape (n,) or (n, n_outputs); a Dask array for a Dask collection
            In the precision of the fit, or in float64 where float32 would round away the variation of y beside a large
            mean (`output_dtype_`).
        std : array of the same shape, only with `return_std`
        """
        if not return_std:
            return super().predict(X)
        self._require_posterior()
        X = read_again(X)
        return super().predict(X), self._deviation(X)

    @in_kind
    def predict_interval(self, X: Any, coverage: float = 0.9) -> Array:
        """Predict intervals that contain y with the given probability.

        Widths follow the standard deviation of y and are calibrated by the leave-one-out errors of the training rows:
        no row is held out, and no distribution is assumed, but new rows must be like the training rows. With centers,
        they also follow the leave-one-out errors of training rows nearby. This requires a fit with `uncertainty=True`.

        Parameters
        ----------
        {interval.X, coverage}

        Returns
        -------
        array of shape (n, 2) or (n, 2, n_outputs): lower and upper ends
        """
        COVERAGE("coverage", coverage)
        self._require_posterior()
        times = self.conformity_.quantile(coverage)
        rows = at_once(X)
        predictions = np.asarray(super().predict(rows), dtype=np.float64)
        middle, width = predictions.reshape(len(predictions), -1), times * self._widths(rows)
        ends = np.stack([middle - width, middle + width], axis=1)
        return ends[:, :, 0] if predictions.ndim == 1 else ends

    @lazily
    def _deviation(self, X: Any) -> Array:
        """Return the standard deviation of f(x), in the shape of predictions."""
        deviation = self._deviations(X)
        return deviation[:, 0] if np.ndim(self.offset_) == 0 else deviation

    @abstractmethod
    def _deviations(self, X: Any) -> Array:
        """Return the standard deviation of f(x), of shape (n, k)."""

    @abstractmethod
    def _widths(self, X: Any) -> Array:
        """Return what the widths of intervals are proportional to, of shape (n, k)."""

    def _require_posterior(self) -> None:
        """Raise ValueError if the fit has kept no posterior."""
        check_is_fitted(self)
        if "conformity_" not in vars(self):
            raise ValueError(f"this {type(self).__name__} has no standard deviations or intervals: {self.remedy}")

    def _forget_uncertainty(self) -> None:
        """Remove the attributes of an earlier fit."""
        for name in self._kept:
            vars(self).pop(name, None)

    @abstractmethod
    def _check_uncertainty(self, k: int) -> None:
        """Raise ValueError if attributes of a model file do not fit together; there are k outputs."""

    def _check_loaded(self) -> None:
        super()._check_loaded()
        known = [name for name in self._kept if name in vars(self)]
        if not known:
            return
        if len(known) < len(self._kept):
            raise ValueError(f"of {', '.join(self._kept)} it has only {', '.join(known)}")
        k = np.size(self.offset_)
        if not isinstance(self.conformity_, Conformity) or self.conformity_.scores.shape[1] != k:
            raise ValueError(f"conformity_ does not fit {k} outputs")
        if np.shape(self.noise_variance_) != np.shape(self.offset_):
            raise ValueError(f"noise_variance_ does not fit the {k} outputs of offset_")
        self._check_uncertainty(k)


@described
class PosteriorRegressor(UncertainRegressor):
    """A regressor with the parameter `uncertainty`, and centers, which can also draw functions."""

    _kept = ("posterior_", "spread_", "conformity_", "noise_variance_")

    posterior_: Posterior
    spread_: Array
    penalty_: float

    # of those that learn on: see _learning_on.py
    running_sums_: RunningSums
    n_samples_seen_: int
    stream_: dict[str, Any]

    def _check_incremental(self) -> None:
        """Raise ValueError for parameters that `incremental=True` does not go with."""
        if self.uncertainty:
            raise ValueError(
                "a model that learns on has no standard deviations, because these need rows that it does not keep: "
                "use uncertainty=False, and ConformalRegressor for intervals"
            )

    def _forget_sums(self) -> None:
        """Remove the attributes of an earlier fit."""
        for name in ("running_sums_", "n_samples_seen_", "stream_"):
            vars(self).pop(name, None)

    def _set_uncertainty(self, found: Uncertainty | None, data: FitData) -> None:
        """Set the attributes of a fit with uncertainty, or remove those of an earlier one."""
        self._forget_uncertainty()
        if found is not None:
            self.posterior_, self.spread_, self.conformity_ = found.posterior, found.spread, found.conformity
            with np.errstate(over="ignore"):
                self.noise_variance_ = data.shown(np.square(found.posterior.noise_deviation))

    def _deviations(self, X: Any) -> Array:
        return self._deviations_on(self._wide_operator(X))

    def _deviations_on(self, operator: KernelOperator) -> Array:
        return np.sqrt(self.posterior_.variances(operator))[:, None] * self.posterior_.prior_deviation

    def _widths(self, X: Any) -> Array:
        operator = self._wide_operator(X)
        std = self._deviations_on(operator)
        return np.hypot(std, self.posterior_.noise_deviation) * widening(operator, self.spread_)

    @in_kind
    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0) -> Array:
        """Draw functions from the posterior, and return their values: of f, without the noise of y.

        Values at different rows are correlated as the posterior says, also in directions that the centers cannot
        represent. This requires a fit with `uncertainty=True`, and memory for n^2 numbers.

        Parameters
        ----------
        X : array, table, sparse matrix or source of shape (n, n_features)
            Up to a few thousand rows.
        n_samples : int, default=1
            Number of functions.
        random_state : int, RandomState or None, default=0
            Seed.

        Returns
        -------
        array of shape (n, n_samples) or (n, n_outputs, n_samples)
        """
        integer(1)("n_samples", n_samples)
        self._require_posterior()
        rows = at_once(X)
        operator = self._wide_operator(rows)
        n = operator.shape[0]
        size = 3 * 8 * n * n
        require(
            self.memory_budget, size, f"the covariance of {n} rows takes {format_bytes(size)}", "draw at fewer rows"
        )
        points = operator.rows.take(np.arange(n))
        # variances are differences of values of the kernel, whose rounding is all that is left below this
        rounding = n * float(np.finfo(np.float64).eps) * float(np.max(operator.kernel.diag(points)))
        root = _root(self.posterior_.covariance(operator), rounding)
        predictions = np.asarray(super().predict(rows), dtype=np.float64)
        tau = self.posterior_.prior_deviation
        z = check_random_state(random_state).standard_normal((root.shape[1], len(tau) * n_samples))
        drawn = (root @ z).reshape(n, len(tau), n_samples) * tau[:, None]
        drawn += predictions.reshape(n, -1)[:, :, None]
        return drawn[:, 0] if predictions.ndim == 1 else drawn

    def _wide_operator(self, X: Any) -> KernelOperator:
        rows = self._scaled_rows(X, np.dtype(np.float64))
        return in_float64(self.kernel_, rows, self.centers_, self._compute)

    def _check_uncertainty(self, k: int) -> None:
        M = len(self.dual_coef_)
        if not isinstance(self.posterior_, Posterior):
            raise ValueError("posterior_ is something else")
        if self.posterior_.projection.shape[0] != M or self.posterior_.prior_deviation.shape != (k,):
            raise ValueError(f"posterior_ does not fit {M} centers and {k} outputs")
        array((M, k))("spread_", self.spread_)

    def _check_loaded(self) -> None:
        super()._check_loaded()
        if "running_sums_" not in vars(self):
            return
        M, k, sums = len(self.dual_coef_), np.size(self.offset_), self.running_sums_
        if not isinstance(sums, RunningSums) or "n_samples_seen_" not in vars(self):
            raise ValueError("running_sums_ is something else, or has no n_samples_seen_")
        if (
            self.running_sums_.projection.shape[0] != M
            or len(self.running_sums_.origin) != k
            or not self.running_sums_.weight > 0
        ):
            raise ValueError(f"running_sums_ does not fit {M} centers and {k} outputs")


def _root(covariance: Array, tolerance: float) -> Array:
    """Return C of shape (n, r) with C C' = covariance, which may be singular, but for variances below `tolerance`."""
    n = len(covariance)
    (pstrf,) = get_lapack_funcs(("pstrf",), (covariance,))
    factor, pivots, rank, _ = pstrf(covariance, tol=tolerance, lower=True)
    if covariance.diagonal().max() <= tolerance:  # pstrf stops after its first step, not before
        rank = 0
    root = np.empty((n, rank))
    root[pivots - 1] = np.tril(factor)[:, :rank]
    return root
