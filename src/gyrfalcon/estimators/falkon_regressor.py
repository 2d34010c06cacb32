"""Regression by FALKON."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray
from sklearn.utils.validation import check_is_fitted

from .._utils.checks import one_of
from .._utils.registry import register
from .._utils.threads import single_threaded_blas
from ..callbacks import CallbackLike, NoImprovement
from ..centers import Centers
from ..fitting import falkon, newton
from ..fitting.arguments import described
from ..fitting.conformal import COVERAGE
from ..fitting.growth import Method, fit_centers
from ..fitting.parameters import CENTERS_OR_AUTO, STEP_OR_NONE, check_parameters
from ..fitting.posterior import BUFFERS, check_noise, uncertainty_of_centers
from ..fitting.precision import warn_if_iterates_rounded
from ..fitting.rows import at_once, for_score
from ..fitting.subspace import AUTO, CenterSettings, ChosenCenters, WarmStart
from ..kernels import Kernel, KernelFunction
from ..losses import Loss, Poisson, Quantile, Squared, as_loss
from ..losses.named import OF_LABELS, OF_NUMBERS, loss_name
from ..sources import to_host
from ..storage.checkpoints import Checkpoint
from ._lazy import in_kind
from ._learning_on import forget_batch, keep_sums, learn_batch
from ._posterior import PosteriorRegressor

Array = NDArray[Any]


@register
@described
class FalkonRegressor(PosteriorRegressor):
    """Kernel ridge regression on millions of rows, by FALKON; also robust regression, quantiles and counts.

    It minimises mean((y - f(x))^2) + penalty |f - offset|^2 over functions f(x) = offset + sum_j coef_j k(x, center_j),
    where the offset is the mean of y. This is the Nyström form of kernel ridge regression, solved by conjugate gradient
    with a preconditioner that is computed from the centers [1]_. The kernel matrix is stored only if it fits in
    `memory_budget`.

    With another loss, it minimises mean(loss(y, f(x))) + penalty / 2 |f - offset|^2 by Newton's method, where each step
    is a weighted problem of that kind [2]_. The offset is then the best constant for that loss, so that far from the
    rows f is the median, the quantile or the mean of all y.

    Parameters
    ----------
    {kernel, falkon.n_centers}
    {falkon.penalty}
        For quantiles, the penalty is relative to a robust standard deviation of y, so that the unit of y does not
        matter.
    loss : "squared", "huber", "quantile", "poisson", "squared_epsilon_insensitive" or Loss, default="squared"
        The loss to minimise. "squared" predicts the mean, and is the fastest, because it is one linear system. Use
        "huber" if y has outliers, "quantile" to predict `quantiles`, and "poisson" for counts, whose mean is exp(f).
        "squared_epsilon_insensitive" is support vector regression, which ignores small errors. A loss of
        `gyrfalcon.losses`, whose parameters can be chosen, and a loss of your own are also accepted. The names
        "squared_error" and "absolute_error" (the median) of scikit-learn stand for "squared" and "quantile".
    {quantiles, centers, fit_intercept, scale, uncertainty, incremental}
        It requires the squared loss.
    solver : {"cg", "gd"}, default="cg"
        The iterative method. "cg" is conjugate gradient. "gd" is gradient descent, the basic algorithm of the FALKON
        paper (equations 11 and 12), which takes more iterations and is only meant for comparisons. It requires the
        squared loss, no checkpoint, and `preconditioner` "paper" (which "auto" then stands for) or "falkon".
    {preconditioner, falkon.max_iter, tol, penalty_path, cg_steps}
    step : float, "auto" or None, default=None
        Length of the steps of `solver="gd"`, which is tau / n in the paper. None and "auto" are 1 over the largest
        eigenvalue of the preconditioned system, estimated in ten passes. Steps below 2 over it are stable.
    {warm_start, early_stopping, validation_fraction, n_iter_no_change, checkpoint, dtype, memory_budget,
    device, precision, n_jobs, random_state, callbacks, verbose}

    Attributes
    ----------
    {centers_, dual_coef_, kernel_, n_iter_}
    history_ : list of dict
        For each iteration: `iteration`, `residual`, `passes`, `seconds`, `converged`, `error` (for the squared loss, an
        estimate of how far the fitted values are from the solution's, as a share of their standard deviation),
        `validation_error` where there is a validation set, `preconditioner` (the one that this iteration had: "falkon",
        "paper", "sample" or "krill"), and what callbacks added. For losses other than the squared one an iteration is a
        Newton step, with `penalty`, `decrement` (Newton's), `cg_steps`, `step` (its length) and `objective` (after it).
        Each call of `update` adds `rows`, `error_before` (on these rows, before they were learnt) and `new_centers`.
    {growth_, penalty_}
    loss_ : Loss
        The loss, with the parameters that depend on the data resolved.
    {offset_, output_dtype_}
    {noise_variance_}
        If iterations stopped early, it includes the mean square of the part of f that is missing.
    {posterior_ spread_ conformity_, running_sums_, n_samples_seen_, mean_ scale_, n_features_in_, feature_names_in_}

    See Also
    --------
    FalkonClassifier : The same for classification.
    KernelOperator : The products with the kernel matrix.

    Notes
    -----
    The penalty is the papers' lambda, the factor beside the mean squared error. The `alpha` of scikit-learn's
    `KernelRidge` is the factor beside the sum: ``alpha = penalty * n``. t iterations of conjugate gradient take t + 1
    passes over the rows; the sketch for KRILL's preconditioner takes one more.

    References
    ----------
    .. [1] Rudi, Carratino, Rosasco, "FALKON: An Optimal Large Scale Kernel Method", NeurIPS 2017.
    .. [2] Marteau-Ferey, Bach, Rudi, "Globally Convergent Newton Methods for Ill-conditioned Generalized
       Self-concordant Losses", NeurIPS 2019.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon import FalkonRegressor
    >>> X = np.random.default_rng(0).uniform(-3, 3, size=(2000, 1))
    >>> y = np.sin(2 * X[:, 0])
    >>> model = FalkonRegressor(n_centers=100, random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.999)
    True
    """

    takes_sparse = True

    loss_: Loss
    penalty_: float
    growth_: list[dict[str, Any]]
    _chosen: ChosenCenters | None = None

    def __init__(
        self,
        kernel: Kernel | str | KernelFunction = "gaussian",
        *,
        n_centers: int | str | None = None,
        penalty: float | str = "auto",
        loss: str | Loss = "squared",
        quantiles: float | ArrayLike | None = None,
        centers: str | ArrayLike | Centers = "uniform",
        fit_intercept: bool = True,
        scale: bool | str = "auto",
        uncertainty: bool = False,
        incremental: bool = False,
        solver: str = "cg",
        preconditioner: str = "auto",
        max_iter: int = 20,
        tol: float | None = None,
        penalty_path: Sequence[float] | None = None,
        cg_steps: int | Sequence[int] | None = None,
        step: float | str | None = None,
        warm_start: bool = False,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 5,
        checkpoint: str | os.PathLike[str] | Checkpoint | None = None,
        dtype: DTypeLike = "auto",
        memory_budget: int | float | str = "auto",
        device: Any = None,
        precision: str | None = None,
        n_jobs: int | None = None,
        random_state: int | np.random.RandomState | None = None,
        callbacks: CallbackLike | Iterable[CallbackLike] | None = None,
        verbose: int = 0,
    ) -> None:
        self.kernel = kernel
        self.n_centers = n_centers
        self.penalty = penalty
        self.loss = loss
        self.quantiles = quantiles
        self.centers = centers
        self.fit_intercept = fit_intercept
        self.scale = scale
        self.uncertainty = uncertainty
        self.incremental = incremental
        self.solver = solver
        self.preconditioner = preconditioner
        self.max_iter = max_iter
        self.tol = tol
        self.penalty_path = penalty_path
        self.cg_steps = cg_steps
        self.step = step
        self.warm_start = warm_start
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.checkpoint = checkpoint
        self.dtype = dtype
        self.memory_budget = memory_budget
        self.device = device
        self.precision = precision
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
        {fit.X, fit.y, fit.sample_weight}
        {validation.X_val y_val}
            The error is the root mean squared error, or the mean of another loss.

        Returns
        -------
        self
        """
        check_parameters(
            self.get_params(deep=False), n_centers=CENTERS_OR_AUTO, solver=one_of("cg", "gd"), step=STEP_OR_NONE
        )
        compute = self._compute
        loss = self._loss()
        if self.solver == "gd":
            self._check_descent(loss)
        if self.uncertainty and type(loss) is not Squared:
            raise ValueError(
                f"uncertainty=True is for the squared loss, not for loss={self.loss!r}: "
                'loss="quantile" has intervals of its own, and ConformalRegressor makes them hold'
            )
        if self.uncertainty:
            check_noise(self.penalty)
        if self.incremental:
            self._check_incremental()
            if type(loss) is not Squared:
                raise ValueError(f"incremental=True is for the squared loss, not for loss={self.loss!r}")
        patience = NoImprovement(self.n_iter_no_change) if self.early_stopping else None
        with self._session(patience=patience, checkpoint=self.checkpoint) as session:
            validates = self.early_stopping or self.n_centers == AUTO
            hold_out = self.validation_fraction if validates else None
            # a loss of the user, too, may need all of y at once
            in_file = type(loss) in (Squared, *OF_NUMBERS.values()) and not self.incremental
            options = {"hold_out": hold_out, "loss": loss, "copies": self._n_levels()}
            data = self._data(session, X, y, sample_weight, X_val, y_val, **options, in_file=in_file)
            settings, warm = self._settings, None
            # coefficients mean something else to another loss, and centers to features in other units
            warm_start = self.warm_start and self._is_fitted and type(self.loss_) is type(data.loss)
            if warm_start and (data.scale is None) == (self.scale_ is None):
                warm = WarmStart.of(self._chosen, self.centers_, self.dual_coef_, settings.centers)
            with single_threaded_blas():  # threads of its own would decide the last bits, and spin beside ours
                method = Method(newton.solve, newton.warn)
                if data.is_least_squares:
                    solve = partial(falkon.solve, buffers=BUFFERS if self.uncertainty else 1)
                    method = Method(solve, falkon.warn)
                fitted = fit_centers(method, settings, data, compute, session, warm)
            space, solution, data = fitted.space, fitted.solution, fitted.space.data
            uncertainty = uncertainty_of_centers(space, solution.coef, space.penalty) if self.uncertainty else None
            self._set_uncertainty(uncertainty, data)
            self._set_solution(data, session)
            self._set_expansion(space.operator, solution.coef, data)
            penalty = space.penalty if data.is_least_squares else None
            warn_if_iterates_rounded(space.operator, solution, penalty, foreseen=data.dtype_given)
            self._chosen, self.penalty_, self.loss_ = space.remembered, space.penalty, data.loss
            vars(self).pop("growth_", None)  # of an earlier fit
            if fitted.growth is not None:
                self.growth_ = fitted.growth
            self._forget_sums()
            if self.incremental:
                keep_sums(self, space.operator, data, space.penalty, (X, y, sample_weight))
        return self

    def update(
        self,
        X: Any,
        y: Any = None,
        sample_weight: ArrayLike | None = None,
        *,
        forgetting_factor: float = 1.0,
        max_new_centers: int = 0,
    ) -> Self:
        """Learn a batch of rows in addition to those learnt before, which requires a fit with `incremental=True`.

        Centers, kernel, penalty and scales stay those of the fit. A batch of b rows takes about b M^2 + M^3 / 3
        operations, whatever was learnt before: the solution is direct, and not by iterations.

        Parameters
        ----------
        {fit.X, fit.y, learn.sample_weight, forgetting_factor, max_new_centers}

        Returns
        -------
        self
        """
        learn_batch(self, X, y, sample_weight, forgetting_factor, max_new_centers)
        return self

    def forget(self, X: Any, y: Any = None, sample_weight: ArrayLike | None = None) -> Self:
        """Forget rows that were learnt before, which requires a fit with `incremental=True`.

        The model is then the one that never saw them, with the same centers, kernel, penalty and scales. Whether the
        rows were learnt is not checked.

        Parameters
        ----------
        {fit.X, fit.y, forget.sample_weight}

        Returns
        -------
        self
        """
        forget_batch(self, X, y, sample_weight)
        return self

    @property
    def _settings(self) -> falkon.FalkonSettings:
        return falkon.FalkonSettings(
            CenterSettings(self.kernel, self.n_centers, self.centers),
            penalty=self.penalty,
            preconditioner=self.preconditioner,
            max_iter=self.max_iter,
            tol=self.tol,
            penalty_path=self.penalty_path,
            cg_steps=self.cg_steps,
            solver=self.solver,
            step=self.step,
        )

    def _check_descent(self, loss: Loss) -> None:
        """Raise ValueError for parameters that gradient descent does not have."""
        if type(loss) is not Squared:
            raise ValueError(f'solver="gd" is for the squared loss, not for loss={self.loss!r}: use solver="cg"')
        if self.preconditioner not in ("auto", "paper", "falkon"):
            raise ValueError(
                f'solver="gd" has preconditioner="paper" or "falkon", not {self.preconditioner!r}: use solver="cg"'
            )
        if self.checkpoint is not None:
            raise ValueError('solver="gd" cannot be resumed from a checkpoint: use checkpoint=None or solver="cg"')

    def _loss(self) -> Loss:
        """Return the loss that the parameters ask for."""
        if self.quantiles is not None and not (isinstance(self.loss, str) and self.loss == "quantile"):
            raise ValueError(f'quantiles={self.quantiles!r} are for loss="quantile", not for loss={self.loss!r}')
        loss = as_loss(self.loss)
        if loss_name(self.loss) in OF_LABELS:
            raise ValueError(f'loss="{self.loss}" is for labels: use FalkonClassifier')
        return loss if self.quantiles is None else Quantile(self.quantiles, ordered=True)

    @in_kind
    def predict_interval(self, X: Any, coverage: float | None = None) -> Array:
        """Predict intervals that contain y with the given probability, after a fit with `uncertainty` or `quantiles`.

        With `uncertainty=True`, widths follow the standard deviation of y and the leave-one-out errors of training rows
        nearby, and are calibrated by all leave-one-out errors: no row is held out, and no distribution is assumed, but
        new rows must be like the training rows. With a list of `quantiles`, intervals go from one learnt quantile to
        another; `ConformalRegressor` calibrates such intervals.

        Parameters
        ----------
        {interval.X}
        coverage : float or None, default=None
            Between 0 and 1, both excluded. None is 0.9, or for quantiles the coverage between the outer two. With
            quantiles the coverage must be that between two levels that are equally far from 0 and from 1.

        Returns
        -------
        array of shape (n, 2) or (n, 2, n_outputs): lower and upper ends
        """
        check_is_fitted(self)
        if not isinstance(self.loss_, Quantile):
            return super().predict_interval(X, 0.9 if coverage is None else coverage)
        low, high = self._ends(coverage)
        predictions = np.asarray(self.predict(at_once(X)), dtype=np.float64)
        return predictions[:, [low, high]]

    def _ends(self, coverage: float | None) -> tuple[int, int]:
        """Return the columns of the quantiles that are the ends of an interval."""
        assert isinstance(self.loss_, Quantile)
        levels = np.atleast_1d(self.loss_.level)
        if len(levels) < 2 or not self.loss_.ordered:
            raise ValueError("one quantile of y is not an interval: fit with quantiles=[0.05, 0.95], for 90% of y")
        if coverage is None:
            return int(np.argmin(levels)), int(np.argmax(levels))
        COVERAGE("coverage", coverage)
        wanted = np.array([1 - coverage, 1 + coverage]) / 2
        low, high = np.abs(levels[:, None] - wanted).argmin(axis=0)
        if not np.allclose(levels[[low, high]], wanted, rtol=0, atol=1e-6):
            ends = ", ".join(f"{level:g}" for level in wanted)
            known = ", ".join(f"{level:g}" for level in levels)
            raise ValueError(
                f"coverage={coverage!r} needs the quantiles {ends}, and the fit has {known}: fit with them"
            )
        return int(low), int(high)

    def _require_posterior(self) -> None:
        check_is_fitted(self)
        if not isinstance(self.loss_, Squared):
            raise ValueError(
                f'a fit of {type(self.loss_).__name__} has no standard deviations: for intervals use loss="quantile", '
                "quantiles=[0.05, 0.95], or ConformalRegressor, which makes them around any model"
            )
        super()._require_posterior()

    def _n_levels(self) -> int | None:
        """Return the number of quantiles if they are a list, where each has a column of its own."""
        return None if self.quantiles is None or np.ndim(self.quantiles) == 0 else np.size(self.quantiles)

    def _values(self, X: Any) -> Array:
        f = super()._values(X)
        f = f if self.loss_.portable else to_host(f)
        return self.loss_.inverse_link(f.reshape(len(f), -1)).reshape(f.shape)

    def score(self, X: Any, y: Any = None, sample_weight: ArrayLike | None = None) -> float:
        """Measure how much of y the predictions explain; 1 is perfect, 0 is no better than a constant.

        The score is the coefficient of determination R^2. For quantiles it is D^2, the share by which the pinball loss
        of the best constant is reduced (`sklearn.metrics.d2_pinball_score`), averaged over several quantiles.

        Parameters
        ----------
        {score.X, score.y, score.sample_weight}

        Returns
        -------
        float
        """
        check_is_fitted(self)
        loss = self.loss_
        if not isinstance(loss, Quantile):
            return super().score(X, y, sample_weight)
        from sklearn.metrics import d2_pinball_score

        rows, y, sample_weight = for_score(X, y, sample_weight, self.device)
        predictions = to_host(self.predict(rows))
        columns, targets = predictions.reshape(len(predictions), -1), np.asarray(y)
        targets = targets.reshape(len(targets), -1)
        if loss.ordered and targets.shape[1] == 1:  # all levels are of the same y
            targets = np.repeat(targets, columns.shape[1], axis=1)
        if targets.shape != columns.shape:
            raise ValueError(f"y has shape {np.shape(y)}, but predictions for X have shape {predictions.shape}")
        levels = np.broadcast_to(loss.level, columns.shape[1])
        each = [
            d2_pinball_score(target, column, sample_weight=sample_weight, alpha=float(level))
            for target, column, level in zip(targets.T, columns.T, levels, strict=True)
        ]
        return float(np.mean(each))

    def _check_loaded(self) -> None:
        super()._check_loaded()
        if not isinstance(self.loss_, Loss):
            raise ValueError("loss_ is not a loss")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = isinstance(self.loss, Poisson) or self.loss == "poisson"
        return tags
