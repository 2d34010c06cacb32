"""Kernel least-squares classification on parts of the rows, averaged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from .._utils.registry import register
from ..callbacks import CallbackLike
from ..estimators._base import KernelClassifier
from ..estimators._sklearn import BASELINE_LINK
from ..estimators.divide_and_conquer import RULES, OnParts
from ..fitting.arguments import described
from ..fitting.parameters import check_parameters
from ..kernels import Kernel, KernelFunction


@register
@described
class DivideAndConquerClassifier(OnParts, KernelClassifier):
    """Classification by the average of exact kernel ridge regressions on random parts of the rows.

    Regresses on targets +1 and -1 (one column for two classes, one for each class otherwise) and predicts the class
    with the largest value of the average [1]_. See `DivideAndConquerRegressor` for the method.

    Parameters
    ----------
    {kernel, parts.n_partitions, parts.penalty, class_weight, fit_intercept, dense.scale, parts.dtype,
    parts.memory_budget, n_jobs, parts.random_state, callbacks, verbose}

    Attributes
    ----------
    {classes_, parts.centers_, classes.dual_coef_, kernel_, parts.n_iter_}
    history_ : list of dict
        As for `DivideAndConquerRegressor`; the validation error is the share of wrong classes.
    {classes.offset_, classes.output_dtype_, mean_ scale_, n_features_in_, feature_names_in_}

    See Also
    --------
    gyrfalcon.DivideAndConquerRegressor : The same for regression.
    gyrfalcon.FalkonClassifier : Cheaper for the same accuracy, both to fit and to predict.

    References
    ----------
    .. [1] Zhang, Duchi, Wainwright, "Divide and Conquer Kernel Ridge Regression", COLT 2013.

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from gyrfalcon.baselines import DivideAndConquerClassifier
    >>> X, y = make_moons(500, noise=0.1, random_state=0)
    >>> model = DivideAndConquerClassifier(n_partitions=4, random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.99)
    True
    """

    _doc_link_template = BASELINE_LINK

    def __init__(
        self,
        kernel: Kernel | str | KernelFunction = "gaussian",
        *,
        n_partitions: int | None = None,
        penalty: float = 1e-06,
        class_weight: Mapping[Any, float] | str | None = None,
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
        self.class_weight = class_weight
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
        {dense.X, labels.y, fit.sample_weight}
        X_val, y_val : optional
            Rows on which the validation error (the share of wrong classes) of the average so far is recorded.

        Returns
        -------
        self
        """
        check_parameters(self.get_params(deep=False), **RULES)
        with self._session() as session:
            data, classes = self._data(session, X, y, sample_weight, X_val, y_val)
            self._learn(data, session)
            self.classes_ = classes
        return self
