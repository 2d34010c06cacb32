"""Kernel ridge regression with a random sketch of the kernel matrix."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from .._utils.checks import integer, one_of
from .._utils.registry import register
from ..callbacks import CallbackLike
from ..estimators._base import KernelRegressor
from ..estimators._sklearn import BASELINE_LINK
from ..fitting.arguments import described
from ..fitting.kernel import validation_watch
from ..fitting.parameters import check_parameters
from ..fitting.plan import check_memory
from ..fitting.ridge import EveryRow, every_row, least_penalty
from ..fitting.session import Session, finite
from ..kernels import Kernel, KernelFunction
from ..operators import KernelOperator
from ..solvers.sketched import SKETCHES, random_sketch, sketched_ridge


@register
@described
class SketchedRegressor(KernelRegressor):
    """Kernel ridge regression with a random sketch of the kernel matrix.

    The coefficients of all n rows are combinations S'theta of m random vectors, so that only m numbers are learnt [1]_.
    It takes time m n^2, because products with the kernel matrix are needed, and memory for m n numbers; predictions use
    all n rows. With m of the order of the effective dimension the error has the rate of exact kernel ridge regression.

    Parameters
    ----------
    {kernel}
    sketch_size : int, default=200
        Number m of random vectors, at most n.
    sketch : {"gaussian", "orthogonal"}, default="gaussian"
        "gaussian" has independent normal numbers. "orthogonal" draws columns of the cosine transform and multiplies
        rows by random signs.
    {features.penalty, fit_intercept, dense.scale, parts.dtype}
    memory_budget : "auto", int or str, default="auto"
        Memory for the sketch and the sketched kernel matrix, 2 m n numbers, which must fit, in bytes or as "4GB".
    {n_jobs}
    random_state : int, RandomState or None, default=None
        Seed of the sketch.
    {callbacks, verbose}

    Attributes
    ----------
    {rows.centers_, rows.dual_coef_, kernel_, penalty_}
    n_iter_ : int
        1.
    history_ : list of dict
        One record, with `iteration`, `passes`, `penalty`, `seconds`, and `validation_error` where there is a validation
        set.
    {offset_, output_dtype_, mean_ scale_, n_features_in_, feature_names_in_}

    See Also
    --------
    gyrfalcon.NystromRegressor : The sketch that draws rows, which needs m n kernel values and predicts with m centers.

    References
    ----------
    .. [1] Yang, Pilanci, Wainwright, "Randomized Sketches for Kernels: Fast and Optimal Nonparametric Regression",
       Annals of Statistics 2017 (arXiv 2015).

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon.baselines import SketchedRegressor
    >>> X = np.random.default_rng(0).uniform(-3, 3, size=(1000, 1))
    >>> y = np.sin(2 * X[:, 0])
    >>> model = SketchedRegressor(sketch_size=30, random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.999)
    True
    """

    _doc_link_template = BASELINE_LINK

    penalty_: float

    def __init__(
        self,
        kernel: Kernel | str | KernelFunction = "gaussian",
        *,
        sketch_size: int = 200,
        sketch: str = "gaussian",
        penalty: float | str = "auto",
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
        self.sketch_size = sketch_size
        self.sketch = sketch
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
        {dense.X, fit.y, fit.sample_weight, fit.X_val y_val}

        Returns
        -------
        self
        """
        check_parameters(self.get_params(deep=False), sketch_size=integer(1), sketch=one_of(*SKETCHES))
        with self._session() as session:
            data = self._data(session, X, y, sample_weight, X_val, y_val)
            self._learn(every_row(self.kernel, self.penalty, data, self._compute, session.random_state), session)
        return self

    def _learn(self, problem: EveryRow, session: Session) -> None:
        """Draw the sketch, solve, and set the attributes."""
        data, n = problem.data, len(problem.points)
        m = min(int(self.sketch_size), n)
        needs = {"the sketch": 16 * n * m + 8 * m * m}
        check_memory(self.memory_budget, needs, f"a sketch of size {m} of {n} rows takes", "take a smaller sketch_size")
        session.start(data, max_passes=1, n_centers=n)
        operator = KernelOperator(problem.kernel, data.rows, problem.points, n_jobs=self.n_jobs, memory_budget=0)
        assert problem.penalty is not None
        penalty = max(problem.penalty, least_penalty(operator))
        wide = problem.points.astype(np.float64, copy=False)
        system = KernelOperator(problem.kernel, wide, wide, n_jobs=self.n_jobs, memory_budget=0)
        S = random_sketch(self.sketch, n, m, session.random_state)
        coef = finite(sketched_ridge(system, problem.targets, S, penalty, data.weight) * problem.scale, operator.dtype)
        record: dict[str, Any] = {"iteration": 1, "passes": 1, "penalty": problem.penalty}
        watch = validation_watch(data, operator, self._compute, 0)
        if watch is not None:
            record["validation_error"] = watch(coef)
        session.record(record)
        self._set_solution(data, session)
        self._set_expansion(operator, coef, data)
        self.penalty_ = problem.penalty
