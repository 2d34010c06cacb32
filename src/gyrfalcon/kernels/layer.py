"""Units of a neural net with random weights, as features and as the kernel of an infinitely wide layer of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from .._utils.checks import not_negative, optional, positive
from .._utils.registry import register
from .base import Array, Kernel, require_both_sparse, total_variance
from .features import FeatureMap, check_activation, normal_weights

_SCALE = optional(positive('a finite number greater than 0, or "auto"'), instead="auto")
_BIAS_SCALE = not_negative()
_WIDTH = 2_048  # units of the layer that stands for an infinitely wide one where values of the kernel are needed


@register
class RandomLayer(Kernel):
    """Layer of a neural net with random weights: its features are activation(w.x + b) / sqrt(M).

    w and b are drawn at random and stay as they are; a linear method on the features learns the output weights. It is
    given to `RandomFeaturesRegressor`, `RandomFeaturesClassifier` and `RandomFeatures` as a kernel: that of an
    infinitely wide layer, the mean of activation(w.x + b) activation(w.z + b) over w and b [1]_. Twice the kernel of
    "relu" without a bias is ``ArcCosine(1)``, and of "step" ``ArcCosine(0)``.

    Parameters
    ----------
    activation : str or callable, default="relu"
        "relu", "tanh", "sigmoid", "softplus", "erf", "step", "cos", "sin" or "identity", or a Python function of an
        array that returns an array of the same shape, each entry computed from the same entry of its argument. It is
        called from several threads at once. Model files and ONNX hold names alone.
    scale : float or "auto", default="auto"
        Standard deviation of each entry of w. "auto" makes the variance of w.x over the rows 1.
    bias_scale : float, default=1.0
        Standard deviation of b; 0 for no bias.

    Notes
    -----
    The kernel has no formula for most activations. Where its values are needed, as for ``penalty="auto"``, they are
    those of one layer of 2,048 units, which are always the same.

    References
    ----------
    .. [1] Rahimi, Recht, "Weighted Sums of Random Kitchen Sinks", NeurIPS 2008.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon import RandomFeaturesRegressor
    >>> from gyrfalcon.kernels import RandomLayer
    >>> X = np.random.default_rng(0).uniform(-3, 3, size=(2000, 1))
    >>> y = np.sin(2 * X[:, 0])
    >>> layer = RandomLayer("tanh", scale=3.0, bias_scale=3.0)
    >>> model = RandomFeaturesRegressor(layer, n_components=200, random_state=0)
    >>> bool(model.fit(X, y).score(X, y) > 0.999)
    True
    """

    def __init__(
        self,
        activation: str | Callable[[Array], ArrayLike] = "relu",
        scale: float | Literal["auto"] = "auto",
        bias_scale: float = 1.0,
    ) -> None:
        self.activation = activation
        self.scale = scale
        self.bias_scale = bias_scale

    def resolve(self, X: Array) -> Kernel:
        check_activation(self.activation)
        _SCALE("scale", self.scale)
        _BIAS_SCALE("bias_scale", self.bias_scale)
        scale: Any = self.scale
        if isinstance(scale, str):
            total, unit = total_variance(X)
            scale = 1 / np.sqrt(total) / unit
        # not clone, which would copy a function that is an object with state
        return type(self)(self.activation, float(scale), float(self.bias_scale))

    @property
    def has_given_scale(self) -> bool:
        return self.scale != "auto"

    def constants(self, info: np.finfo[Any]) -> Mapping[str, Any]:
        return {"scale": self._number, "bias_scale": self.bias_scale}

    @property
    def _number(self) -> float:
        """The scale of the resolved kernel."""
        if isinstance(self.scale, str):
            raise ValueError(f"scale={self.scale!r} has no value yet: call resolve(X) first")
        return self.scale

    def random_features(
        self, n_components: int, n_features: int, random_state: np.random.RandomState, orthogonal: bool = False
    ) -> FeatureMap:
        check_activation(self.activation)
        weights = self._number * normal_weights(n_components, n_features, random_state, orthogonal)
        offset = self.bias_scale * random_state.standard_normal(n_components)
        return FeatureMap.layer(self.activation, weights, offset, 1 / np.sqrt(n_components))

    def constant_diag(self) -> None:
        return None

    def _diag(self, X: Array) -> Array:
        F = self._values(X)
        return np.einsum("ij,ij->i", F, F)

    def __call__(self, A: ArrayLike, B: ArrayLike) -> Array:
        if sp.issparse(A) or sp.issparse(B):
            require_both_sparse(A, B)
        with np.errstate(over="ignore", invalid="ignore"):  # the caller checks for values that are not finite
            return self._values(A) @ self._values(B).T

    def _values(self, X: Any) -> Array:
        """Compute the units of the layer whose inner products are the values of the kernel."""
        X = X.astype(np.float64) if sp.issparse(X) else np.asarray(X, dtype=np.float64)
        return self.random_features(_WIDTH, X.shape[1], np.random.RandomState(0))(X)
