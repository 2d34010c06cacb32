"""EigenPro for classification."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Self

import numpy as np
from numpy.typing import DTypeLike

from .._utils.registry import register
from ..callbacks import CallbackLike, NoImprovement
from ..estimators._base import KernelClassifier
from ..estimators._sklearn import BASELINE_LINK
from ..estimators.eigenpro import RULES, ByEigenPro
from ..fitting.arguments import described
from ..fitting.parameters import check_parameters
from ..kernels import Kernel, KernelFunction


@register
@described
class EigenProClassifier(ByEigenPro, KernelClassifier):
    """Classification with a coefficient for every row, by EigenPro.

    Regresses on targets +1 and -1 (one column for two classes, one for each class otherwise) and predicts the class
    with the largest value [1]_. See `EigenProRegressor` for the method. There is no penalty: give validation rows or
    set `early_stopping`.

    Parameters
    ----------
    {kernel, fit_intercept, dense.scale, eigenpro.n_subsamples, eigenpro.n_components, eigenpro.max_iter, eigenpro.tol,
    eigenpro.step, eigenpro.batch_size, eigenpro.early_stopping, validation_fraction, n_iter_no_change, eigenpro.dtype,
    eigenpro.memory_budget, n_jobs, eigenpro.random_state, callbacks, verbose}

    Attributes
    ----------
    {classes_, eigenpro.centers_, classes.dual_coef_, kernel_, eigenpro.n_components_ batch_size_ step_,
    eigenpro.n_iter_}
    history_ : list of dict
        As for `EigenProRegressor`; the validation error is the share of wrong classes.
    {classes.offset_, classes.output_dtype_, mean_ scale_, n_features_in_, feature_names_in_}

    See Also
    --------
    gyrfalcon.EigenProRegressor : The same for regression.

    Notes
    -----
    Neither sample weights nor class weights are accepted, for the reason given for `EigenProRegressor`.

    References
    ----------
    .. [1] Ma, Belkin, "Kernel machines that adapt to GPUs for effective large batch training", MLSys 2019.

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from gyrfalcon.baselines import EigenProClassifier
    >>> X, y = make_moons(500, noise=0.1, random_state=0)
    >>> model = EigenProClassifier("laplacian", max_iter=5, random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.99)
    True
    """

    _doc_link_template = BASELINE_LINK
    class_weight = None

    def __init__(
        self,
        kernel: Kernel | str | KernelFunction = "gaussian",
        *,
        fit_intercept: bool = True,
        scale: bool | str = "auto",
        n_subsamples: int | None = None,
        n_components: int | None = None,
        max_iter: int = 20,
        tol: float | None = None,
        step: float | str = "auto",
        batch_size: int | None = None,
        early_stopping: bool = False,
        validation_fraction: float = 0.1,
        n_iter_no_change: int = 5,
        dtype: DTypeLike = "auto",
        memory_budget: int | float | str = "auto",
        n_jobs: int | None = None,
        random_state: int | np.random.RandomState | None = None,
        callbacks: CallbackLike | Iterable[CallbackLike] | None = None,
        verbose: int = 0,
    ) -> None:
        self.kernel = kernel
        self.fit_intercept = fit_intercept
        self.scale = scale
        self.n_subsamples = n_subsamples
        self.n_components = n_components
        self.max_iter = max_iter
        self.tol = tol
        self.step = step
        self.batch_size = batch_size
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.dtype = dtype
        self.memory_budget = memory_budget
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.callbacks = callbacks
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None, X_val: Any = None, y_val: Any = None) -> Self:
        """Learn from rows.

        Parameters
        ----------
        {eigenpro.X, labels.y}
        {validation.X_val y_val}
            The error is the share of wrong classes.

        Returns
        -------
        self
        """
        check_parameters(self.get_params(deep=False), **RULES)
        patience = NoImprovement(self.n_iter_no_change) if self.early_stopping else None
        with self._session(patience=patience) as session:
            hold_out = self.validation_fraction if self.early_stopping else None
            data, classes = self._data(session, X, y, None, X_val, y_val, hold_out=hold_out, random_access=True)
            self._iterate(data, session)
            self.classes_ = classes
        return self
