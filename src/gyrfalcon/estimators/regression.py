"""Regression: what y means to every regressor, and the FALKON one."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_array, check_consistent_length, validate_data

from ..persistence import register
from ._base import Estimator
from ._falkon import FalkonBase
from ._parameters import documented, parameters

Array = NDArray[Any]


class Regression(MultiOutputMixin, RegressorMixin, Estimator):  # type: ignore[misc]
    """What y means to a regressor: one or several columns of numbers."""

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: ArrayLike | None = None,
        X_val: Any = None,
        y_val: Any = None,
    ) -> Self:
        """Learn from rows.

        Parameters
        ----------
        X : array or table of shape (n, n_features)
            float32 is computed in float32, all else in float64, unless `dtype` says otherwise.
        y : array of shape (n,) or (n, n_outputs)
        sample_weight : array of shape (n,), optional
            Not negative. Only ratios matter: the penalty goes with weights of mean 1.
        X_val, y_val : optional
            Rows on which the validation error (root mean squared) is recorded, and which decide what is decided by
            validation, such as when `early_stopping` stops.

        Returns
        -------
        self
        """
        with self._all_or_nothing():
            self._check_parameters()
            X, y = validate_data(self, X, y, dtype=[np.float64, np.float32], multi_output=True, y_numeric=True)
            weight = self._check_weight(sample_weight, X)
            targets = _as_columns(y, "y")
            held = self._check_validation(X_val, y_val)
            held_targets = None
            if held is not None:
                y_val = check_array(y_val, ensure_2d=False, dtype=None, input_name="y_val")
                check_consistent_length(held, y_val)
                held_targets = _as_columns(y_val, "y_val")
                if held_targets.shape[1] != targets.shape[1]:
                    raise ValueError(f"y_val has shape {y_val.shape} and y has shape {y.shape}: outputs must agree")
            random_state = check_random_state(self.random_state)
            problem = self._problem(X, targets, weight, held, held_targets, _root_mean_square, None, random_state)
            problem.flat = y.ndim == 1
            self._solve(problem, random_state, warm=getattr(self, "warm_start", False) and hasattr(self, "coef_"))
        return self

    def predict(self, X: Any) -> Array:
        """Predict y.

        Parameters
        ----------
        X : array or table of shape (n, n_features)

        Returns
        -------
        array of shape (n,) or (n, n_outputs)
        """
        return self._predict(X)


@register
@documented()
@parameters
class FalkonRegressor(Regression, FalkonBase):
    """Kernel ridge regression on millions of rows, by FALKON.

    Minimises mean((y - f(x))^2) + penalty |f|^2 over functions f(x) = sum_j coef_j k(x, center_j): the Nyström form
    of kernel ridge regression, solved by conjugate gradient with a preconditioner made from the centers [1]_. The
    kernel matrix is never stored unless it fits `memory_budget`. There is no intercept: center y, or add a constant to
    the kernel.

    {parameters}

    Attributes
    ----------
    centers_ : array of shape (M, n_features_in_)
        The centers.
    coef_ : array of shape (M,) or (M, n_outputs)
        Coefficients of the centers.
    kernel_ : Kernel
        The kernel, with what depends on the data worked out.
    n_iter_ : int
        Iterations done.
    history_ : list of dict
        For each iteration: `iteration`, `residual`, `passes`, `seconds`, `converged`, `validation_error` where there
        is a validation set, and what callbacks added.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : array of str
        Their names, where X had names that are all strings.

    See Also
    --------
    FalkonClassifier : The same for classification.
    KernelOperator : The products this is made of.

    Notes
    -----
    The penalty is the papers' lambda, on the mean squared error. scikit-learn's `KernelRidge` puts its `alpha` on the
    sum: ``alpha = penalty * n``. t iterations pass t + 1 times over the rows.

    References
    ----------
    .. [1] Rudi, Carratino, Rosasco, "FALKON: An Optimal Large Scale Kernel Method", NeurIPS 2017.

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


def _as_columns(y: Array, name: str) -> Array:
    if y.dtype.kind not in "fiub":
        raise ValueError(f"{name} of type {y.dtype} is not numbers: FalkonClassifier learns labels")
    dtype = y.dtype if y.dtype == np.float32 else np.float64
    return y.astype(dtype, copy=False).reshape(len(y), -1)


def _root_mean_square(targets: Array, weight: Array | None, predictions: Array) -> float:
    errors = predictions - targets.astype(np.float64)
    largest = float(np.abs(errors).max())
    if not 0 < largest < np.inf:
        return largest
    return largest * float(np.sqrt(np.average(np.square(errors / largest).mean(axis=1), weights=weight)))
