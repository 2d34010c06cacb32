"""Exact kernel ridge regression on parts of the rows, averaged (Zhang, Duchi, Wainwright 2013)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from .._utils.checks import integer, not_negative, optional
from .._utils.ranges import power_of_two
from .._utils.registry import register
from ..callbacks import CallbackLike
from ..fitting.arguments import described
from ..fitting.data import FitData
from ..fitting.kernel import fitted_kernel
from ..fitting.parameters import check_parameters
from ..fitting.precision import in_suitable_precision
from ..fitting.ridge import ridge
from ..fitting.session import Session, finite
from ..kernels import Kernel, KernelFunction
from ..operators import KernelOperator
from ._base import KernelEstimator, KernelRegressor

Array = NDArray[Any]

_LARGEST_PART = 2_000  # rows of a part by default, which takes 32 MB and a tenth of a second

RULES = {"n_partitions": optional(integer(1)), "penalty": not_negative()}


class OnParts(KernelEstimator):
    """The average of exact solutions of random parts of the rows."""

    n_partitions: int | None
    penalty: float

    def _learn(self, data: FitData, session: Session) -> None:
        """Solve for one part after the other, and set the attributes."""
        n = data.rows.shape[0]
        m = -(-n // _LARGEST_PART) if self.n_partitions is None else int(self.n_partitions)
        if m > n:
            raise ValueError(f"n_partitions={m} must be at most the number of rows with positive weight, {n}")
        order = session.random_state.permutation(n)
        points = data.rows.take(order)
        weight = None if data.weight is None else data.weight[order]
        kernel = fitted_kernel(self.kernel, data, points, weight, points.dtype)
        data = in_suitable_precision(data, kernel, points, self.penalty)
        points = points.astype(data.rows.dtype, copy=False)
        scale = power_of_two(data.targets, axis=0)
        y = (data.targets / scale)[order]
        alpha = np.zeros_like(y)
        predictions: Array | float = 0.0
        done = end = 0
        session.start(data, max_passes=m, n_partitions=m)
        for part in np.array_split(np.arange(n), m):
            at = slice(part[0], part[-1] + 1)
            operator = KernelOperator(kernel, points[at], points[at], n_jobs=self.n_jobs, memory_budget=0)
            part_weight = None if weight is None else np.asarray(weight[at] / weight[at].mean())
            alpha[at] = ridge(operator, y[at], self.penalty, part_weight, "more n_partitions")
            done, end = done + 1, at.stop
            record: dict[str, Any] = {"iteration": done, "passes": done, "rows": len(part)}
            if data.validation is not None:
                predictions = predictions + operator.on(data.validation.rows).matmat(alpha[at] * scale)
                record["validation_error"] = data.validation_error(np.asarray(predictions) / done)
            if session.record(record):
                break
        self._set_solution(data, session)
        self._set_centers(kernel, points[:end])
        self.dual_coef_ = data.shaped(finite(alpha[:end] / done * scale, data.rows.dtype))


@register
@described
class DivideAndConquerRegressor(OnParts, KernelRegressor):
    """The average of exact kernel ridge regressions on random parts of the rows.

    Each part is solved with the penalty that would be right for all rows, so that its solution alone would follow the
    noise too closely; the average evens that out [1]_. n rows in m parts take n^3 / m^2 time and n^2 / m^2 memory.
    Predictions use all n rows, as in exact kernel ridge regression.

    Parameters
    ----------
    {kernel, parts.n_partitions, parts.penalty, fit_intercept, dense.scale, parts.dtype, parts.memory_budget, n_jobs,
    parts.random_state, callbacks, verbose}

    Attributes
    ----------
    {parts.centers_}
    dual_coef_ : array of shape (n,) or (n, n_outputs)
        Coefficients of the training rows: those of the parts, divided by the number of parts.
    {kernel_, parts.n_iter_}
    history_ : list of dict
        For each part: `iteration`, `rows`, `seconds`, and the `validation_error` of the average so far.
    {offset_, output_dtype_, mean_ scale_, n_features_in_, feature_names_in_}

    See Also
    --------
    FalkonRegressor : Cheaper for the same accuracy, both to fit and to predict.
    ExactRegressor : All rows at once.

    Notes
    -----
    With a penalty that is right for n rows, Zhang, Duchi and Wainwright show the optimal rate as long as m does not
    grow too fast: like n^(1/3) or more slowly for smooth kernels.

    References
    ----------
    .. [1] Zhang, Duchi, Wainwright, "Divide and Conquer Kernel Ridge Regression", COLT 2013.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon import DivideAndConquerRegressor
    >>> X = np.random.default_rng(0).uniform(-3, 3, size=(1000, 1))
    >>> y = np.sin(2 * X[:, 0])
    >>> model = DivideAndConquerRegressor(n_partitions=5, random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.999)
    True
    """

    def __init__(
        self,
        kernel: Kernel | str | KernelFunction = "gaussian",
        *,
        n_partitions: int | None = None,
        penalty: float = 1e-06,
        fit_intercept: bool = True,
        scale: bool | str = "auto",
        dtype: DTypeLike = "auto",
        memory_budget: int | float | str = "auto",
        n_jobs: int | None = None,
        random_state: int | np.random.RandomState | None = None,
        callbacks: CallbackLike | Iterable[CallbackLike] | None = None,
        verbose: int = 0,
    ) -> None:
        self.kernel = kernel
        self.n_partitions = n_partitions
        self.penalty = penalty
        self.fit_intercept = fit_intercept
        self.scale = scale
        self.dtype = dtype
        self.memory_budget = memory_budget
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.callbacks = callbacks
        self.verbose = verbose

    def fit(
        self, X: Any, y: Any = None, sample_weight: ArrayLike | None = None, X_val: Any = None, y_val: Any = None
    ) -> Self:
        """Learn from rows.

        Parameters
        ----------
        {dense.X, fit.y, fit.sample_weight}
        X_val, y_val : optional
            Rows on which the validation error (root mean squared) of the average so far is recorded.

        Returns
        -------
        self
        """
        check_parameters(self.get_params(deep=False), **RULES)
        with self._session() as session:
            data = self._data(session, X, y, sample_weight, X_val, y_val)
            self._learn(data, session)
        return self
