"""Least squares on random features: the other way of not storing a kernel matrix, for comparison and for streams."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from .._utils.checks import integer, one_of, optional, positive
from .._utils.memory import format_bytes, limit_of, parse_memory, require
from .._utils.registry import register
from ..kernels import Kernel
from ..kernels.features import FeatureMap
from ..solvers import Iterate, stochastic_gradient
from ..sources import Rows
from ._base import Estimator, Problem, powers_of_two, resolved
from ._parameters import HasPenalty, HasResources, HasValidation, documented, parameters
from .classification import Classification
from .feature_transform import FeatureCoordinates, feature_operator, normal_equations, sample_of, solve_ridge
from .regression import Regression

Array = NDArray[Any]

_SMALLEST_BATCH = 256
_WORTH_THREADS = 1 << 20  # features of a batch

WORDS = {
    "kernel": """Kernel or str
        A kernel of `gyrfalcon.kernels` that has random features, or its name: `Gaussian`, `Laplacian`, `Matern`,
        `RationalQuadratic`, `ArcCosine`, `Linear`, sums of these, and their products with a number.""",
    "n_components": """int
        Number of features M. More is more accurate; the direct solver takes time n M^2 and memory M^2.""",
    "orthogonal": """bool
        Orthogonal weights, which meet the kernel with less variance at the same cost; see `RandomFeatures`.""",
    "penalty": """float
        lambda, on the mean squared error; not negative.""",
    "solver": """"direct" or "sgd"
        "direct" adds up the normal equations in one pass over the rows and factorises them. "sgd" passes over the rows
        in mini-batches, in O(M) memory.""",
    "step": """float or "auto"
        Length of the steps of "sgd", with the mean squared error halved. "auto" is 1 over the largest curvature that a
        few batches have. It is constant, so the solution is reached up to a neighbourhood that shrinks with the step.
        Longer steps than twice "auto" diverge, and an error says so.""",
    "batch_size": """int or None
        Rows of a mini-batch of "sgd"; None is sqrt(n), at least 256.""",
    "max_iter": """int
        Epochs of "sgd". With a small penalty they regularise: stop early by validation.""",
    "dtype": """"auto", "float32" or "float64"
        Precision of the features; "auto" follows X. The normal equations are in float64.""",
    "memory_budget": """"auto", int or str
        If the features of the validation rows fit they are kept. Those of the training rows never are.""",
    "random_state": """int, RandomState or None
        Seed of the features, the validation split and the order of mini-batches.""",
    "early_stopping": """bool
        Stop "sgd" when the validation error has not fallen for `n_iter_no_change` epochs, and keep the best solution.
        The validation set is the one given to `fit`, or a random part of the rows.""",
}


class FeatureExpansion(Estimator):
    """Learns functions sum_j coef_j feature_j(x)."""

    kernel_: Kernel
    feature_map_: FeatureMap

    def _predict(self, X: Any) -> Array:
        check_is_fitted(self)
        features = self.feature_map_
        rows = self._new_rows(X, features.weights.dtype)
        return feature_operator(features, rows, n_jobs=self.n_jobs).matmat(self.coef_)

    def _check_loaded(self) -> None:
        """What a model file must satisfy beyond being well formed."""
        if not isinstance(self.kernel_, Kernel) or not isinstance(self.feature_map_, FeatureMap):
            raise ValueError("kernel_ is not a kernel, or feature_map_ is not a FeatureMap")
        self.feature_map_.check(self.n_features_in_)
        if self.coef_.ndim not in (1, 2) or len(self.coef_) != len(self.feature_map_) or self.coef_.dtype.kind != "f":
            raise ValueError(f"coef_ of shape {self.coef_.shape} does not fit {self.feature_map_!r}")
        if not np.isfinite(self.coef_).all():
            raise ValueError("coef_ holds NaN or infinity")


@parameters
class HasFeatures:
    """Which features stand for the kernel."""

    n_components: int = 1000
    orthogonal: bool = False


@parameters
class HasFeatureSolver(HasPenalty):
    """How coefficients of features are found."""

    solver: Literal["direct", "sgd"] = "direct"
    step: float | Literal["auto"] = "auto"
    batch_size: int | None = None
    max_iter: int = 20


@parameters
class RandomFeaturesBase(HasResources, HasValidation, HasFeatureSolver, HasFeatures, FeatureExpansion):
    """Everything of the estimators on random features but the meaning of y."""

    own_rules = {
        "n_components": integer(1),
        "solver": one_of("direct", "sgd"),
        "step": optional(positive('"auto" or a finite number greater than 0'), "auto"),
        "batch_size": optional(integer(1)),
    }

    @property
    def _random_access(self) -> bool:
        return self.solver == "sgd"

    @property
    def _holds_out(self) -> bool:
        return self.early_stopping and self.solver == "sgd"

    def _solve(self, problem: Problem, random_state: np.random.RandomState, warm: bool) -> None:
        rows, weight = problem.rows, problem.weight
        sample = sample_of(rows, random_state, weight)
        points = rows.take(sample)
        kernel = resolved(self.kernel, points, None if weight is None else weight[sample])
        kernel.check_precision(rows.dtype)
        features = kernel.random_features(int(self.n_components), rows.shape[1], random_state, self.orthogonal)
        features = features.astype(rows.dtype)
        scale = powers_of_two(problem.targets)
        targets = (problem.targets / scale).astype(rows.dtype, copy=False)
        find, epochs = (self._direct, 1) if self.solver == "direct" else (self._sgd, self.max_iter)
        self._follow(
            find(features, rows, targets, weight, random_state),
            problem,
            {"kernel_": kernel, "feature_map_": features},
            info={"max_iter": epochs, "n_components": len(features)},
            watch=self._watch(problem, features),
            scale=scale,
        )

    def _direct(
        self, features: FeatureMap, rows: Rows, targets: Array, weight: Array | None, random_state: Any
    ) -> Iterator[Iterate]:
        began = time.perf_counter()
        n, M, k = rows.shape[0], len(features), targets.shape[1]
        size = 8 * M * M
        what = f"the {M} x {M} normal equations take {format_bytes(size)}"
        fits = math.isqrt(limit_of(self.memory_budget) // 8)
        require(self.memory_budget, size, what, f'n_components={fits} would fit, or solver="sgd"')
        operator = feature_operator(features, rows, n_jobs=self.n_jobs)
        G, c = normal_equations(operator, targets, weight, n_jobs=self.n_jobs)
        coef = solve_ridge(G, c, self.penalty * n)
        yield Iterate(
            iteration=1,
            residual=0.0,
            residuals=np.zeros(k),
            seconds=time.perf_counter() - began,
            passes=1,
            converged=True,
            step=np.zeros(k),
            ratio=np.zeros(k),
            _coef=lambda: coef,
        )

    def _sgd(
        self, features: FeatureMap, rows: Rows, targets: Array, weight: Array | None, random_state: Any
    ) -> Iterator[Iterate]:
        n, M = rows.shape[0], len(features)
        batch_size = max(_SMALLEST_BATCH, math.isqrt(n)) if self.batch_size is None else int(self.batch_size)
        # a small batch is done before a second thread has started
        n_jobs = 1 if batch_size * M < _WORTH_THREADS else self.n_jobs
        return stochastic_gradient(
            feature_operator(features, rows, n_jobs=n_jobs),
            targets,
            FeatureCoordinates(n, M),
            self.penalty,
            step=self.step,
            batch_size=batch_size,
            max_iter=self.max_iter,
            random_state=random_state,
            weight=weight,
        )

    def _watch(self, problem: Problem, features: FeatureMap) -> Callable[[Array], float] | None:
        """The validation error of coefficients."""
        if problem.validation is None or problem.error is None:
            return None
        budget = parse_memory(self.memory_budget)
        operator = feature_operator(features, problem.validation, n_jobs=self.n_jobs, memory_budget=budget)
        error = problem.error
        return lambda coef: error(operator.matmat(coef))


@register
@documented(**WORDS)
@parameters
class RandomFeaturesRegressor(Regression, RandomFeaturesBase):
    """Ridge regression on random features of a kernel.

    Minimises mean((y - F coef)^2) + penalty |coef|^2, F being M random features of the rows, by normal equations that
    are added up over blocks of rows, or by mini-batch gradient descent [1]_. F is never stored. As M grows the
    solution becomes that of kernel ridge regression; Nyström centers (`FalkonRegressor`) are chosen among the data, and
    usually fewer of them are needed [2]_. There is no intercept: center y, or add a constant to the kernel.

    {parameters}

    Attributes
    ----------
    coef_ : array of shape (M,) or (M, n_outputs)
        Coefficients of the features.
    feature_map_ : FeatureMap
        The weights of the features.
    kernel_ : Kernel
        The kernel, with what depends on the data worked out.
    n_iter_ : int
        Epochs done; 1 for "direct".
    history_ : list of dict
        For each epoch: `iteration`, `residual`, `passes`, `seconds`, `converged`, `validation_error` where there is a
        validation set, and what callbacks added.
    n_features_in_ : int
        Number of features of X.
    feature_names_in_ : array of str
        Their names, where X had names that are all strings.

    See Also
    --------
    RandomFeatures : The features alone, for a pipeline.
    RandomFeaturesClassifier : The same for classification.

    References
    ----------
    .. [1] Carratino, Rudi, Rosasco, "Learning with SGD and Random Features", NeurIPS 2018.
    .. [2] Yang, Li, Mahdavi, Jin, Zhou, "Nyström Method vs Random Fourier Features", NeurIPS 2012.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon.estimators.random_features import RandomFeaturesRegressor
    >>> X = np.random.default_rng(0).uniform(-3, 3, size=(2000, 1))
    >>> y = np.sin(2 * X[:, 0])
    >>> model = RandomFeaturesRegressor(n_components=200, random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.999)
    True
    """


@register
@documented(**WORDS)
@parameters
class RandomFeaturesClassifier(Classification, RandomFeaturesBase):
    """Classification by least squares on random features of a kernel.

    Regresses on targets +1 and -1 (one column for two classes, one for each class otherwise) and predicts the class
    with the largest value. See `RandomFeaturesRegressor` for the method.

    {parameters}

    Attributes
    ----------
    classes_ : array of shape (n_classes,)
        The classes, sorted.
    coef_ : array of shape (M,) for two classes, else (M, n_classes)
        Coefficients of the features.
    feature_map_ : FeatureMap
        The weights of the features.
    kernel_ : Kernel
        The kernel, with what depends on the data worked out.
    n_iter_ : int
        Epochs done; 1 for "direct".
    history_ : list of dict
        As for `RandomFeaturesRegressor`; the validation error is the share of wrong classes.
    n_features_in_ : int
        Number of features of X.
    feature_names_in_ : array of str
        Their names, where X had names that are all strings.

    See Also
    --------
    RandomFeaturesRegressor : The same for regression.

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> from gyrfalcon.estimators.random_features import RandomFeaturesClassifier
    >>> X, y = make_moons(1000, noise=0.1, random_state=0)
    >>> model = RandomFeaturesClassifier(n_components=200, random_state=0).fit(X, y)
    >>> bool(model.score(X, y) > 0.99)
    True
    """
