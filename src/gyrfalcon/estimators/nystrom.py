"""Nyström kernel ridge regression without FALKON's preconditioner: the direct solve, and plain iterations.

The iterations work on the coefficients themselves (the slow curves of Figure 1 of the FALKON paper).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from .._utils.checks import integer, one_of, optional
from .._utils.registry import register
from ..callbacks import CallbackLike, NoImprovement
from ..centers import Centers
from ..fitting.arguments import described
from ..fitting.convergence import tolerance, warn_if_unsettled
from ..fitting.data import FitData
from ..fitting.descent import descend_by_blocks, iterate_on_centers
from ..fitting.kernel import validation_watch
from ..fitting.parameters import STEP_OR_NONE, check_parameters, counts
from ..fitting.penalties import choose_n_centers, choose_penalty
from ..fitting.plan import Needs
from ..fitting.posterior import BUFFERS, Uncertainty, check_noise, uncertainty_of_centers, uncertainty_of_path
from ..fitting.precision import warn_if_chosen_penalty_rounds, warn_if_rounded
from ..fitting.session import Session
from ..fitting.subspace import CenterSettings, Subspace, choose_subspace, passes_of
from ..kernels import Kernel, KernelFunction
from ..operators import make_operator
from ..preconditioners import Identity, Whitening
from ..solvers import CenterPath, Iterate, nystrom_path
from ._learning_on import can_learn_on, check_steps, forget_batch, keep_sums, learn_batch
from ._posterior import PosteriorRegressor
from ._sklearn import available_if

Array = NDArray[Any]
Solved = tuple[Subspace, Array, float, Uncertainty | None]


@register
@described
class NystromRegressor(PosteriorRegressor):
    """Nyström kernel ridge regression, solved directly for a whole list of penalties, or by plain iterations.

    Minimises mean((y - f(x))^2) + penalty |f|^2 over functions f(x) = sum_j coef_j k(x, center_j), as `FalkonRegressor`
    does. `solver="direct"` takes n M^2 time, and then has the solutions for all `penalties`, their degrees of freedom,
    and the errors by which to choose among them; or the solutions for several numbers of centers, because fewer centers
    regularise as well as a larger penalty does [1]_.

    Parameters
    ----------
    {kernel}
    n_centers : int, list of int, or None, default=None
        Number of Nyström centers M, at most n. More centers are more accurate and take more time. Pass a list to have
        one of the numbers chosen (together with `penalties`) on the validation rows, which are given to `fit` or held
        out of X: the centers of a smaller number are the first ones of a larger number, and all share one pass over the
        rows and one factorisation. None is 2,000, or 2 sqrt(n) for more than a million rows, but at most 10,000.
    {penalty, penalties, choose_by, centers, fit_intercept, scale, uncertainty, incremental}
    solver : {"direct", "gd", "cg", "sgd", "bcd"}, default="direct"
        How the coefficients are computed. "direct" is one factorisation. "gd", "cg" and "sgd" are gradient descent,
        conjugate gradient and mini-batch gradient descent without a preconditioner, and "bcd" is block coordinate
        descent [2]_; they take many iterations, and are meant for comparisons.
    {max_iter}
    tol : float or None, default=None
        Tolerance at which "gd", "cg" and "bcd" stop: when the residual falls below `tol` times the norm of the
        right-hand side. A `ConvergenceWarning` is given if that was not reached. None stops when further iterations
        would have no visible effect on predictions (1e-6 in float32, 1e-10 in float64); 0 runs all `max_iter`
        iterations. Both warn only if predictions of "cg" would still change by 5% of the standard deviation of y.
    step : float, "auto" or None, default=None
        Length of the steps of "gd" and "sgd". None and "auto" are 1 / the largest eigenvalue, estimated from ten
        passes, or from a few mini-batches.
    {batch_size, block_size, early_stopping, validation_fraction, n_iter_no_change}
    dtype : "auto", "float32" or "float64", default="auto"
        Precision of the kernel. "auto" is the precision of X, but float64 if float32 would lose a single penalty or one
        term of the kernel in rounding, or part of f, as happens with a smooth kernel and a small penalty. "direct"
        always factors in float64.
    {memory_budget, device, n_jobs, batches.random_state, callbacks, verbose}

    Attributes
    ----------
    {centers_, dual_coef_, kernel_, penalty_, penalties.n_iter_}
    history_ : list of dict
        With "direct", for each penalty: `penalty`, `df` (degrees of freedom), `log_evidence` (the logarithm of the
        density of y, summed over outputs), and `validation_error`, `gcv_error` or `loo_error`, in the units of y. For
        each number of a list of `n_centers`, and each penalty: `n_centers`, `penalty` and `validation_error`.
        Otherwise, for each iteration, the record that `FalkonRegressor` has. Each call of `partial_fit` adds `rows`,
        `error_before` (the root mean squared error on these rows before they were learnt) and `new_centers`.
    {offset_, output_dtype_, noise_variance_, posterior_ spread_ conformity_, running_sums_, n_samples_seen_}
    {mean_ scale_, n_features_in_, feature_names_in_}

    See Also
    --------
    FalkonRegressor : The same problem in about 20 passes over the rows, for many centers.
    NytroRegressor : The number of iterations instead of a penalty.

    Notes
    -----
    Where validation rows are held out of X to choose a penalty, the model is fitted to the other rows. Leave-one-out
    errors keep centers and kernel fixed, and take a second pass; generalised cross-validation and the evidence take
    none. "direct" takes memory for about 5 M^2 numbers. A list of `n_centers` takes about the time of its largest.

    References
    ----------
    .. [1] Rudi, Camoriano, Rosasco, "Less is More: Nyström Computational Regularization", NeurIPS 2015.
    .. [2] Tu, Roelofs, Venkataraman, Recht, "Large Scale Kernel Learning using Block Coordinate Descent", 2016.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon import NystromRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-3, 3, size=(2000, 1))
    >>> y = np.sin(2 * X[:, 0]) + 0.1 * rng.standard_normal(2000)
    >>> model = NystromRegressor(n_centers=100, penalties=np.logspace(-10, 0, 11), random_state=0).fit(X, y)
    >>> bool(1e-7 < model.penalty_ < 1e-2)
    True
    >>> len(model.history_)
    11
    """

    takes_sparse = True

    penalty_: float

    def __init__(
        self,
        kernel: Kernel | str | KernelFunction = "gaussian",
        *,
        n_centers: int | Sequence[int] | None = None,
        penalty: float | str = "auto",
        penalties: ArrayLike | None = None,
        choose_by: str | None = None,
        centers: str | ArrayLike | Centers = "uniform",
        fit_intercept: bool = True,
        scale: bool | str = "auto",
        uncertainty: bool = False,
        incremental: bool = False,
        solver: str = "direct",
        max_iter: int = 500,
        tol: float | None = None,
        step: float | str | None = None,
        batch_size: int = 256,
        block_size: int | None = None,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 5,
        dtype: DTypeLike = "auto",
        memory_budget: int | float | str = "auto",
        device: Any = None,
        n_jobs: int | None = None,
        random_state: int | np.random.RandomState | None = None,
        callbacks: CallbackLike | Iterable[CallbackLike] | None = None,
        verbose: int = 0,
    ) -> None:
        self.kernel = kernel
        self.n_centers = n_centers
        self.penalty = penalty
        self.penalties = penalties
        self.choose_by = choose_by
        self.centers = centers
        self.fit_intercept = fit_intercept
        self.scale = scale
        self.uncertainty = uncertainty
        self.incremental = incremental
        self.solver = solver
        self.max_iter = max_iter
        self.tol = tol
        self.step = step
        self.batch_size = batch_size
        self.block_size = block_size
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.dtype = dtype
        self.memory_budget = memory_budget
        self.device = device
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
        {fit.X, fit.y, fit.sample_weight, fit.X_val y_val}

        Returns
        -------
        self
        """
        return self._fit(X, y, sample_weight, X_val, y_val, keeps_sums=self.incremental)

    @available_if(can_learn_on)
    def partial_fit(
        self,
        X: Any,
        y: Any = None,
        sample_weight: ArrayLike | None = None,
        *,
        forgetting_factor: float = 1.0,
        max_new_centers: int = 0,
    ) -> Self:
        """Learn a batch of rows in addition to those learnt before.

        The first batch is fitted as by `fit`. It determines the centers, the kernel, the penalty and the scales of the
        features, which later batches keep: the model is then the one that a fit to all rows gives with these. A later
        batch of b rows takes about b M^2 + M^3 / 3 operations, whatever was learnt before.

        Parameters
        ----------
        {fit.X, fit.y, learn.sample_weight, forgetting_factor, max_new_centers}

        Returns
        -------
        self
        """
        if not self._is_fitted:
            check_steps(forgetting_factor, max_new_centers)
            return self._fit(X, y, sample_weight, keeps_sums=True)
        learn_batch(self, X, y, sample_weight, forgetting_factor, max_new_centers)
        return self

    def forget(self, X: Any, y: Any = None, sample_weight: ArrayLike | None = None) -> Self:
        """Forget rows that were learnt before.

        The model is then the one that never saw them, with the same centers, kernel, penalty and scales. This requires
        a fit with `incremental=True`, or `partial_fit`. Whether the rows were learnt is not checked.

        Parameters
        ----------
        {fit.X, fit.y, forget.sample_weight}

        Returns
        -------
        self
        """
        forget_batch(self, X, y, sample_weight)
        return self

    def _fit(
        self, X: Any, y: Any, sample_weight: Any, X_val: Any = None, y_val: Any = None, *, keeps_sums: bool
    ) -> Self:
        check_parameters(
            self.get_params(deep=False),
            n_centers=optional(counts),
            solver=one_of("direct", "gd", "cg", "sgd", "bcd"),
            step=STEP_OR_NONE,
            batch_size=integer(1),
            block_size=optional(integer(1)),
        )
        direct, nested = self.solver == "direct", self._sizes is not None
        if nested:
            self._check_nested()
        if not direct and self.penalties is not None:
            raise ValueError(f'penalties are for solver="direct": solver={self.solver!r} has one penalty')
        if not direct and self.uncertainty:
            raise ValueError(
                f'uncertainty=True is for solver="direct", not for solver={self.solver!r}; FalkonRegressor, which is '
                "iterative, has it as well"
            )
        if self.uncertainty:
            check_noise(self.penalty, self.penalties)
        if keeps_sums:
            self._check_incremental()
        validates = self.penalties is not None and self.choose_by == "validation" if direct else self.early_stopping
        validates = validates or nested
        patience = NoImprovement(self.n_iter_no_change) if self.early_stopping else None
        with self._session(patience=patience) as session:
            hold_out = self.validation_fraction if validates else None
            options: dict[str, Any] = {"hold_out": hold_out, "random_access": self.solver == "sgd"}
            in_file = self.solver in ("direct", "gd", "cg") and not (keeps_sums or self.device is not None)
            data = self._data(session, X, y, sample_weight, X_val, y_val, **options, in_file=in_file)
            solve = self._solve_nested if nested else self._solve_directly if direct else self._iterate
            space, coef, penalty, uncertainty = solve(data, session)
            self._set_solution(space.data, session)
            self._set_expansion(space.operator, coef, space.data)
            if direct and self.penalties is not None and space.operator.dtype == np.float32:
                warn_if_chosen_penalty_rounds(space.operator, space.data, penalty, np.float64)
            else:
                warn_if_rounded(space.operator, coef, penalty if direct else None, foreseen=data.dtype_given)
            self._set_uncertainty(uncertainty, data)
            self.penalty_ = penalty
            self._forget_sums()
            if keeps_sums:
                keep_sums(self, space.operator, space.data, penalty, (X, y, sample_weight))
        return self

    def _check_nested(self) -> None:
        """Raise ValueError for parameters that a list of numbers of centers does not go with."""
        if self.solver != "direct":
            raise ValueError(f'a list of n_centers is for solver="direct", not for solver={self.solver!r}')
        if self.choose_by not in (None, "validation"):
            raise ValueError(
                f"a list of n_centers is chosen from by the validation error, not by choose_by={self.choose_by!r}: use "
                "None, with X_val and y_val or without"
            )
        if self.uncertainty:
            raise ValueError("uncertainty=True needs one number of centers: choose it first, then fit with it")

    def _centers(self) -> CenterSettings:
        many: Any = self.n_centers if self._sizes is None else max(self._sizes)
        return CenterSettings(self.kernel, many, self.centers, shuffled=self._sizes is not None)

    @property
    def _sizes(self) -> list[int] | None:
        """The numbers of centers to choose from; None for a single one."""
        many: Any = self.n_centers
        return None if np.ndim(many) == 0 else sorted({int(m) for m in many})

    def _solve_nested(self, data: FitData, session: Session) -> Solved:
        penalty = self.penalty if self.penalties is None else float(np.min(self.penalties))
        needs = Needs(
            buffers=6 * 8 // data.rows.dtype.itemsize, penalty=penalty, resolves_penalty=self.penalties is None
        )
        space = choose_subspace(self._centers(), needs, data, self._compute, session.random_state)
        data, operator, (n, M) = space.data, space.operator, space.operator.shape
        assert self._sizes is not None
        whitening = Whitening(
            operator.centers_gram(np.float64),
            n,
            tile_dtype=operator.dtype,
            nested=True,
            devices=space.compute.devices,
        )
        session.start(data, n_centers=M)
        coef, chosen, m = choose_n_centers(
            CenterPath(operator, space.targets, whitening, data.weight),
            data,
            operator,
            session,
            penalties=space.penalty if self.penalties is None else self.penalties,
            sizes=sorted({min(m, M) for m in self._sizes}),
            least=whitening.least_penalty,
            scale=space.scale,
            compute=space.compute,
        )
        few = make_operator(
            operator.kernel,
            operator.rows,
            operator.centers[:m],
            n_jobs=self.n_jobs,
            memory_budget=0,
            device=self.device,
        )
        return replace(space, operator=few), coef, chosen, None

    def _solve_directly(self, data: FitData, session: Session) -> Solved:
        # the factor of K_MM, F'F, its eigenvectors and room to make them, all in float64
        buffers = (BUFFERS if self.uncertainty else 5) * 8 // data.rows.dtype.itemsize
        # selectors of centers that depend on a penalty take the least of a list
        penalty = self.penalty if self.penalties is None else float(np.min(self.penalties))
        # which penalty of a list is chosen is not known yet
        needs = Needs(buffers=buffers, penalty=penalty, resolves_penalty=self.penalties is None)
        space = choose_subspace(self._centers(), needs, data, self._compute, session.random_state)
        operator, (n, M) = space.operator, space.operator.shape
        whitening = Whitening(
            operator.centers_gram(np.float64), n, tile_dtype=operator.dtype, devices=space.compute.devices
        )
        session.start(space.data, n_centers=M)
        path = nystrom_path(operator, space.targets, whitening, space.data.weight)
        coef, chosen = choose_penalty(
            path,
            space.data,
            operator,
            session,
            penalties=space.penalty if self.penalties is None else self.penalties,
            choose_by=self.choose_by,
            least=whitening.least_penalty,
            scale=space.scale,
            compute=space.compute,
        )
        if not self.uncertainty:
            return space, coef, chosen, None
        if operator.dtype != np.float64:
            return space, coef, chosen, uncertainty_of_centers(space, coef, chosen)
        used, indices = max(chosen, whitening.least_penalty), space.selection.indices
        uncertainty = uncertainty_of_path(
            path, space.data, operator, coef, space.targets, space.scale, used, indices, self._compute
        )
        return space, coef, chosen, uncertainty

    def _iterate(self, data: FitData, session: Session) -> Solved:
        by_blocks = self.solver == "bcd"
        # factors of blocks take less than two matrices of all coefficients in float64
        needs = Needs(
            buffers=5 if by_blocks else 1, passes=passes_of(self.max_iter), penalty=self.penalty, resolves_penalty=True
        )
        space = choose_subspace(self._centers(), needs, data, self._compute, session.random_state)
        operator, M = space.operator, space.operator.shape[1]
        tol = tolerance(self.tol, space.data.rows.dtype)
        if by_blocks:
            iterates = descend_by_blocks(space, self.block_size, max_iter=self.max_iter, tol=tol)
        else:
            iterates = self._descend(space, tol, session)
        solution = session.run(
            iterates,
            space.data,
            kind=Iterate,
            max_iter=self.max_iter,
            watch=validation_watch(space.data, operator, space.compute, space.budget),
            scale=space.scale,
            max_passes=(2 if by_blocks else 1) * self.max_iter + (self.solver == "cg"),
            n_centers=M,
        )
        if self.solver != "sgd" and not solution.stopped:
            ways = f"raise max_iter={self.max_iter}, {'block_size, ' if by_blocks else ''}the penalty or tol"
            remedy = f'{ways}, or use solver="direct" or FalkonRegressor'
            warn_if_unsettled(solution.last, tol=self.tol, reached=tol, steps="iterations", remedy=remedy)
        return space, solution.coef, space.penalty, None

    def _descend(self, space: Subspace, tol: float, session: Session) -> Iterator[Iterate]:
        operator = space.operator
        gram = operator.centers_gram(space.factors)
        return iterate_on_centers(
            self.solver,
            space,
            Identity(gram, operator.shape[0], tile_dtype=operator.dtype),
            session.random_state,
            penalty=space.penalty,
            step="auto" if self.step is None else self.step,
            batch_size=self.batch_size,
            max_iter=self.max_iter,
            tol=tol,
        )
