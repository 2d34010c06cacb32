"""FALKON regression."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_array, validate_data

from ..persistence import register
from ..sources import ArrayRows
from ._falkon import PARAMETERS, FalkonBase, Problem, documented

Array = NDArray[Any]


@register
@documented(PARAMETERS)
class FalkonRegressor(MultiOutputMixin, RegressorMixin, FalkonBase):  # type: ignore[misc]
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

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: ArrayLike | None = None,
        X_val: Any = None,
        y_val: Any = None,
    ) -> FalkonRegressor:
        """Learn from rows.

        Parameters
        ----------
        X : array or table of shape (n, n_features)
            float32 is computed in float32, all else in float64, unless `dtype` says otherwise.
        y : array of shape (n,) or (n, n_outputs)
        sample_weight : array of shape (n,), optional
            Not negative. Only ratios matter: the penalty goes with weights of mean 1.
        X_val, y_val : optional
            Rows on which the validation error (root mean squared) is recorded at every iteration, and which decide
            when `early_stopping` stops.

        Returns
        -------
        self
        """
        self._check_parameters()
        X, y = validate_data(self, X, y, dtype=[np.float64, np.float32], multi_output=True, y_numeric=True)
        dtype = self._tile_dtype(X)
        weight = self._check_weight(sample_weight, X)
        random_state = check_random_state(self.random_state)
        targets = np.asarray(y, dtype=dtype)
        held = self._check_validation(X_val, y_val)
        y_held = None
        if held is not None:
            y_held = check_array(y_val, ensure_2d=False, allow_nd=False, dtype=np.float64, input_name="y_val")
            if y_held.reshape(len(y_held), -1).shape[1] != targets.reshape(len(targets), -1).shape[1]:
                raise ValueError(f"y_val has shape {y_held.shape} and y has shape {targets.shape}: outputs must agree")
        problem = self._problem(X, targets, weight, held, y_held, _root_mean_square, None, random_state)
        self._fit(problem, random_state)
        if targets.ndim == 1:
            self.coef_ = self.coef_[:, 0]
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


def _root_mean_square(targets: Array, predictions: Array) -> float:
    return float(np.sqrt(np.mean(np.square(predictions - targets, dtype=np.float64))))
