"""Regression: what y means to every regressor, and the FALKON one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar, Self, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_array, check_is_fitted

from .._utils.checks import numbers, optional
from .._utils.ranges import check_squares
from .._utils.registry import register
from ..losses import Loss, Poisson, Quantile, Squared, as_loss
from ._base import Estimator
from ._falkon import FalkonBase
from ._input import check_lengths, gathered, in_memory, lazily
from ._newton import NEWTON_WORDS, mean_loss
from ._parameters import documented, parameters
from ._sklearn import MultiOutputMixin, RegressorMixin

Array = NDArray[Any]


class Regression(MultiOutputMixin, RegressorMixin, Estimator):
    """What y means to a regressor: one or several columns of numbers."""

    @property
    def _flat(self) -> bool:
        """Whether a y without a second axis has predictions without one."""
        return True

    def _make_targets(self, y: Array, name: str) -> Array:
        """The columns to learn, of the columns of y."""
        return y

    def _make_loss(self, targets: Array, weight: Array | None) -> Loss | None:
        """The loss to be minimised, None where that is no choice."""
        return None

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
        X : array, table, sparse matrix, source or Dask collection of shape (n, n_features)
            float32 is computed in float32, all else in float64, unless `dtype` says otherwise. A source, such as
            ``gyrfalcon.open(path).X``, is read block by block, once for each pass.
        y : array of shape (n,) or (n, n_outputs)
        sample_weight : array of shape (n,), optional
            Not negative. Only ratios matter: the penalty goes with weights of mean 1.
        X_val, y_val : optional
            Rows on which the validation error (root mean squared, or the mean of another loss) is recorded, and which
            decide what is decided by validation, such as when `early_stopping` stops.

        Returns
        -------
        self
        """
        with self._all_or_nothing():
            self._check_parameters()
            rows, y = self._training_rows(X, y, multi_output=True, y_numeric=True)
            weight = self._check_weight(sample_weight, rows)
            targets = self._make_targets(_as_columns(y, "y"), "y")
            loss = self._make_loss(targets, weight)
            if loss is not None and type(loss) is not Squared and loss.unit(targets, weight) == 1:
                check_squares(targets, self._tile_dtype(rows), "y")
            held = self._check_validation(X_val, y_val)
            held_targets = None
            if held is not None:
                y_val = check_array(gathered(y_val, held), ensure_2d=False, dtype=None, input_name="y_val")
                check_lengths(held, y_val)
                held_targets = self._make_targets(_as_columns(y_val, "y_val"), "y_val")
                if loss is not None:
                    loss.check(held_targets, "y_val")
                if held_targets.shape[1] != targets.shape[1]:
                    raise ValueError(f"y_val has shape {y_val.shape} and y has shape {y.shape}: outputs must agree")
            random_state = check_random_state(self.random_state)
            error = _root_mean_square if loss is None or type(loss) is Squared else partial(mean_loss, loss)
            problem = self._problem(rows, targets, weight, held, held_targets, error, None, random_state)
            problem.flat = y.ndim == 1 and not np.ndim(cast(Any, getattr(self, "quantiles", 0)))
            if loss is not None:
                # held out rows have no say in it
                loss = self._make_loss(problem.targets, problem.weight) or loss
                offset = loss.offset(problem.targets, problem.weight)
                problem.attributes = {"loss_": loss, "offset_": offset}
            warm = getattr(self, "warm_start", False) and hasattr(self, "coef_")
            # coefficients mean something else to another loss
            self._solve(problem, random_state, warm and type(getattr(self, "loss_", None)) is type(loss))
        return self

    @lazily
    def predict(self, X: Any) -> Array:
        """Predict y.

        Parameters
        ----------
        X : array, table, sparse matrix, source or Dask collection of shape (n, n_features)

        Returns
        -------
        array of shape (n,) or (n, n_outputs); a Dask array for a Dask collection
        """
        return self._predict(X)

    def score(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> float:
        """The coefficient of determination R^2 of the predictions; 1 is perfect, 0 is that of the mean of y.

        Parameters
        ----------
        X : as for `predict`
        y : array of shape (n,) or (n, n_outputs)
        sample_weight : array of shape (n,), optional

        Returns
        -------
        float
        """
        return float(super().score(*in_memory(X, y, sample_weight)))


_LEVELS = numbers(lambda x: 0 < x < 1, "None, a number between 0 and 1, both excluded, or a list of them", scalar=True)


@register
@documented(
    loss=""""squared", "huber", "quantile", "poisson" or Loss
        What is minimised. "squared" is the fastest, one linear system, and learns the mean; "huber" as well, but
        outliers cannot bend it; "quantile" learns `quantiles`; "poisson" the mean of counts, as exp(f). Or a loss of
        `gyrfalcon.losses`, where their parameters can be chosen, or your own.""",
    quantiles="""float, list of float, or None
        Levels for loss="quantile". A list gives a column of predictions for each, which never cross. None is the
        median.""",
    **NEWTON_WORDS,
)
@parameters
class FalkonRegressor(Regression, FalkonBase):
    """Kernel ridge regression on millions of rows, by FALKON; also robust regression, quantiles and counts.

    Minimises mean((y - f(x))^2) + penalty |f|^2 over functions f(x) = sum_j coef_j k(x, center_j): the Nyström form
    of kernel ridge regression, solved by conjugate gradient with a preconditioner made from the centers [1]_. The
    kernel matrix is never stored unless it fits `memory_budget`. There is no intercept: center y, or add a constant to
    the kernel.

    With another loss, minimises mean(loss(y, f(x))) + penalty / 2 |f - offset|^2 by Newton's method, each step of which
    is a weighted problem of that kind [2]_. There f is measured from the best constant, so that far from the rows it is
    the median, the quantile or the mean of all y.

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
        is a validation set, and what callbacks added. For losses other than the squared one an iteration is a Newton
        step, with `penalty`, `decrement` (Newton's), `cg_steps`, `step` (its length) and `objective` (after it).
    loss_ : Loss
        The loss, with what depends on the data worked out.
    offset_ : array of shape (n_outputs,)
        What f is measured from; 0 for the squared loss.
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
    sum: ``alpha = penalty * n``. t iterations of conjugate gradient pass t + 1 times over the rows; the sketch for
    KRILL's preconditioner is one pass more.

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

    loss: str | Loss = "squared"
    quantiles: float | ArrayLike | None = None

    own_rules: ClassVar = {**FalkonBase.own_rules, "quantiles": optional(_LEVELS)}
    loss_: ClassVar[Loss]
    offset_: ClassVar[Array]

    @property
    def _flat(self) -> bool:
        return not isinstance(self.quantiles, Sequence | np.ndarray)

    def _make_targets(self, y: Array, name: str) -> Array:
        if self.quantiles is None:
            return y
        if not (isinstance(self.loss, str) and self.loss == "quantile"):
            raise ValueError(f'quantiles={self.quantiles!r} are for loss="quantile", not for loss={self.loss!r}')
        if not np.ndim(self.quantiles):
            return y
        if y.shape[1] != 1:
            raise ValueError(f"{name} has {y.shape[1]} columns: several quantiles can be learnt of one column only")
        return np.repeat(y, np.size(self.quantiles), axis=1)

    def _make_loss(self, targets: Array, weight: Array | None) -> Loss:
        loss = as_loss(self.loss)
        if isinstance(self.loss, str):
            if self.loss == "logistic":
                raise ValueError('loss="logistic" is for labels: use FalkonClassifier')
            if self.quantiles is not None:
                loss = Quantile(self.quantiles, ordered=True)
        loss.check(targets)
        return loss.resolve(targets, weight)

    def _predict(self, X: Any) -> Array:
        f = super()._predict(X)
        if type(self.loss_) is Squared:
            return f
        columns = f.reshape(len(f), -1) + self.offset_.astype(f.dtype)
        return self.loss_.inverse_link(columns).reshape(f.shape)

    def score(self, X: Any, y: Any, sample_weight: ArrayLike | None = None) -> float:
        """How much of y the predictions explain; 1 is perfect, 0 is no better than a constant.

        The coefficient of determination R^2; for quantiles D^2 instead, the share of the pinball loss of the best
        constant that is saved (`sklearn.metrics.d2_pinball_score`), and of several quantiles its mean.

        Parameters
        ----------
        X : as for `predict`
        y : array of shape (n,) or (n, n_outputs)
        sample_weight : array of shape (n,), optional

        Returns
        -------
        float
        """
        check_is_fitted(self)
        loss = self.loss_
        if not isinstance(loss, Quantile):
            return super().score(X, y, sample_weight)
        from sklearn.metrics import d2_pinball_score

        rows, y, sample_weight = in_memory(X, y, sample_weight)
        predictions = self.predict(rows)
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
        columns = 1 if self.coef_.ndim == 1 else self.coef_.shape[1]
        if self.offset_.shape != (columns,) or not np.isfinite(self.offset_).all():
            raise ValueError(f"offset_ of shape {self.offset_.shape} does not fit coef_ of shape {self.coef_.shape}")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = isinstance(self.loss, Poisson) or self.loss == "poisson"
        return tags


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
