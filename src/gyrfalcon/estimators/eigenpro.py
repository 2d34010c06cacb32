"""EigenPro: a coefficient for every row, learnt from mini-batches."""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np

from .._utils.checks import integer, optional, positive
from .._utils.memory import format_bytes, parse_memory, require
from .._utils.registry import register
from ..operators.dense import KernelOperator
from ..solvers.eigenpro import eigenpro, top_eigensystem
from ._base import TOLERANCES, KernelExpansion, Problem, powers_of_two, resolved, warn_if_unsettled
from ._parameters import HasResources, HasValidation, documented, parameters
from .regression import Regression

_MANY_ROWS = 100_000
_WORTH_THREADS = 3_000  # rows, below which a batch is done before a second thread has started


@parameters
class HasEigenPro:
    """The parameters of EigenPro's solver."""

    n_subsamples: int | None = None
    n_components: int | None = None
    batch_size: int | None = None
    step: Any = "auto"
    max_iter: int = 20
    tol: float | None = None


@register
@documented(
    n_subsamples="""int or None
        Rows from which the eigenvectors are estimated, at most n. None is 1,000, and 2,000 beyond 100,000 rows.""",
    n_components="""int or None
        Number of eigenvectors whose eigenvalues are cut down; 0 is plain stochastic gradient descent. Where the kernel
        matrix has a lower rank there are fewer. None takes as many as let batches of 1,000 rows (a tenth of the rows,
        if that is less) be of use, at most a quarter of `n_subsamples`.""",
    batch_size="""int or None
        Rows of a mini-batch. None takes the largest with which an epoch achieves about as much as with single rows.""",
    step="""float or "auto"
        Length of the steps. "auto" is the longest that is known to be safe, by the largest k(x, x) and the largest
        eigenvalue that the eigenvectors leave.""",
    max_iter="""int
        Most epochs: each visits every row once, and computes all n^2 kernel values.""",
    tol="""float or None
        Stop when the residual of an epoch, as its batches met it, falls below `tol` times the norm of y; a
        `ConvergenceWarning` says if it did not. None stops where more would not be seen (1e-6 in float32, 1e-10 in
        float64), and never warns. 0 is for `max_iter` epochs, and never warns either.""",
    memory_budget=""""auto", int or str
        If the kernel matrix of the validation rows fits it is kept. Bytes, a string such as "4GB", or "auto" for half
        of what is available. That of the training rows is never kept.""",
    dtype=""""auto", "float32" or "float64"
        Precision of the kernel; "auto" follows X. The eigenvectors are in float64.""",
)
@parameters
class EigenProRegressor(Regression, HasResources, HasValidation, HasEigenPro, KernelExpansion):
    """Kernel regression with a coefficient for every row, by EigenPro.

    Fits f(x) = sum_i coef_i k(x, x_i) over all n rows by stochastic gradient descent on the mean squared error, with
    the largest eigenvalues of the kernel matrix cut down so that large batches and long steps are possible [1]_ [2]_.
    There is no penalty: the fit runs towards the function that interpolates y, and stopping early is what makes it
    smooth, so give validation rows or set `early_stopping`. Memory is that of the rows; time is n^2 for each epoch, and
    n for each prediction.

    {parameters}

    Attributes
    ----------
    centers_ : array of shape (n, n_features_in_)
        The rows trained on.
    coef_ : array of shape (n,) or (n, n_outputs)
        Their coefficients.
    kernel_ : Kernel
        The kernel, with what depends on the data worked out.
    n_components_, batch_size_, step_ : int, int, float
        The number of eigenvectors, the batch size and the step that were used.
    n_iter_ : int
        Epochs done.
    history_ : list of dict
        For each epoch: `iteration`, `residual`, `passes`, `seconds`, `converged`, `validation_error` where there is a
        validation set, and what callbacks added.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : array of str
        Their names, where X had names that are all strings.

    See Also
    --------
    FalkonRegressor : M centers instead of n, so that time and memory for each row do not grow with n.

    Notes
    -----
    Sample weights are not accepted. Weights do not change the interpolant, only the way there, and a mini-batch that
    meets a row of weight 2 once is not one that meets it twice.

    References
    ----------
    .. [1] Ma, Belkin, "Diving into the shallows: a computational perspective on large-scale shallow learning",
       NeurIPS 2017.
    .. [2] Ma, Belkin, "Kernel machines that adapt to GPUs for effective large batch training", MLSys 2019.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon.estimators.eigenpro import EigenProRegressor
    >>> X = np.random.default_rng(0).uniform(-3, 3, size=(1000, 1))
    >>> y = np.sin(2 * X[:, 0])
    >>> model = EigenProRegressor("laplacian", max_iter=10, random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.99)
    True
    """

    own_rules: ClassVar = {
        "n_subsamples": optional(integer(1)),
        "n_components": optional(integer(0)),
        "batch_size": optional(integer(1)),
        "step": optional(positive('"auto" or a finite number greater than 0'), "auto"),
    }

    @property
    def _random_access(self) -> bool:
        return True

    def fit(self, X: Any, y: Any, X_val: Any = None, y_val: Any = None) -> Self:  # type: ignore[override]
        """Learn from rows.

        Parameters
        ----------
        X : array or table of shape (n, n_features)
            float32 is computed in float32, all else in float64, unless `dtype` says otherwise.
        y : array of shape (n,) or (n, n_outputs)
        X_val, y_val : optional
            Rows on which the validation error (root mean squared) is recorded, and by which `early_stopping` stops.

        Returns
        -------
        self
        """
        return super().fit(X, y, X_val=X_val, y_val=y_val)

    def _solve(self, problem: Problem, random_state: np.random.RandomState, warm: bool) -> None:
        rows, n = problem.rows, problem.rows.shape[0]
        s = self.n_subsamples or (1_000 if n <= _MANY_ROWS else 2_000)
        size = 3 * 8 * min(s, n) ** 2
        what = f"the eigenvectors of n_subsamples={s} rows take {format_bytes(size)}"
        require(self.memory_budget, size, what, "take fewer")
        n_jobs = 1 if n < _WORTH_THREADS else self.n_jobs
        points = rows.take(np.arange(n))
        kernel = resolved(self.kernel, points, None, rows.dtype)
        operator = KernelOperator(kernel, rows, points, n_jobs=n_jobs, memory_budget=0)
        system = top_eigensystem(
            operator,
            n_subsamples=s,
            n_components=self.n_components,
            batch_size=self.batch_size,
            random_state=random_state,
            n_jobs=n_jobs,
        )
        batch_size = min(n, system.batch_size if self.batch_size is None else int(self.batch_size))
        step = system.step(batch_size) if isinstance(self.step, str) else float(self.step)
        scale = powers_of_two(problem.targets)
        tol = TOLERANCES[rows.dtype] if self.tol is None else float(self.tol)
        last, stopped = self._follow(
            eigenpro(
                operator,
                problem.targets / scale,
                system,
                max_iter=self.max_iter,
                tol=tol,
                step=step or "auto",
                batch_size=batch_size,
                random_state=random_state,
            ),
            problem,
            {
                "kernel_": kernel,
                "centers_": operator.centers,
                "n_components_": system.n_components,
                "batch_size_": batch_size,
                "step_": step,
            },
            info={"max_iter": self.max_iter, "n_centers": n},
            watch=self._watch(problem, operator, parse_memory(self.memory_budget)),
            scale=scale,
        )
        if not stopped:
            warn_if_unsettled(
                last,
                problem.targets,
                None,
                tol=self.tol,
                reached=tol,
                steps="epochs",
                remedy=f"raise max_iter={self.max_iter} or tol",
                stacklevel=4,
            )
