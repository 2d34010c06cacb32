"""Graphs of ONNX operators: kernels and random features of rows.

`Graph` collects nodes and constants; the functions below add to one and return the name of the result.
K = k(rows, centers) of the rows that a session is given at once is a value of the graph: large sets are given in parts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ..kernels import ArcCosine, Gaussian, Kernel, Laplacian, Linear, Matern, Polynomial, RationalQuadratic, Sigmoid
from ..kernels.composite import Constant, Product, Sum
from ..kernels.dot_product import Affine
from ..kernels.features import FeatureMap

Array = NDArray[Any]

# versions of 2022: they have all operators that are used here, and current runtimes support them
_OPSET, _IR = 17, 8


def onnx() -> Any:
    """Import onnx; raise ImportError with the command to install it if it is missing."""
    try:
        import onnx
    except ImportError as error:
        raise ImportError("models are exported by the package onnx: pip install onnx") from error
    return onnx


def _tensor_type(dtype: DTypeLike) -> int:
    return int(onnx().helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))


class Graph:
    """Nodes and constants of a graph that is being built; names of a graph inside another begin with `prefix`."""

    def __init__(self, dtype: DTypeLike, prefix: str = "") -> None:
        self.dtype: np.dtype[Any] = np.dtype(dtype)
        self.prefix = prefix
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def add(self, operator: str, *inputs: str, output: str | None = None, **attributes: Any) -> str:
        """Add a node, and return the name of its output."""
        name = output or f"{self.prefix}{operator}_{len(self.nodes)}"
        self.nodes.append(onnx().helper.make_node(operator, inputs, [name], **attributes))
        return name

    def constant(self, value: Any, dtype: DTypeLike | None = None) -> str:
        """Add an array, of the graph's type unless another is given, and return its name."""
        name = f"{self.prefix}constant_{len(self.constants)}"
        array = np.asarray(value).astype(self.dtype if dtype is None else dtype)
        self.constants.append(onnx().numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name))
        return name

    def cast(self, a: str, dtype: DTypeLike) -> str:
        """Convert to another type."""
        return self.add("Cast", a, to=_tensor_type(dtype))

    def plus(self, a: str, value: Any) -> str:
        """Add a constant."""
        return self.add("Add", a, self.constant(value))

    def times(self, a: str, value: Any) -> str:
        """Multiply by a constant."""
        return self.add("Mul", a, self.constant(value))

    def exp(self, a: str, factor: float) -> str:
        """Compute exp(factor a)."""
        return self.add("Exp", self.times(a, factor))

    def row_squares(self, a: str) -> str:
        """Sum the squares of each row, of shape (n, 1)."""
        return self.add("ReduceSum", self.add("Mul", a, a), self.constant([1], np.int64), keepdims=1)

    def sort(self, a: str, n_columns: int) -> str:
        """Sort each row of `n_columns` numbers."""
        name = f"{self.prefix}TopK_{len(self.nodes)}"
        count = self.constant([n_columns], np.int64)
        self.nodes.append(onnx().helper.make_node("TopK", [a, count], [name, f"{name}_places"], axis=1, largest=0))
        return name

    def model(self, n_features: int, outputs: dict[str, tuple[DTypeLike, int | None]], metadata: dict[str, str]) -> Any:
        """Return the checked model of the graph, whose input is X.

        `outputs` has the type and the number of columns of each output; None stands for an output of one dimension.
        """
        helper = onnx().helper
        wanted = [
            helper.make_tensor_value_info(name, _tensor_type(dtype), ["n"] if columns is None else ["n", columns])
            for name, (dtype, columns) in outputs.items()
        ]
        given = [helper.make_tensor_value_info("X", _tensor_type(self.dtype), ["n", n_features])]
        graph = helper.make_graph(self.nodes, "gyrfalcon", given, wanted, self.constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=_IR)
        helper.set_model_props(model, metadata)
        model.producer_name = "gyrfalcon"
        try:
            onnx().checker.check_model(model, full_check=True)
        except (onnx().checker.ValidationError, onnx().shape_inference.InferenceError) as error:
            raise ValueError(
                f"the model cannot be written as ONNX, since its numbers do not fit together: {error}"
            ) from error
        return model


# ---- kernels ---------------------------------------------------------------------------------------------------------


def kernel_values(graph: Graph, kernel: Kernel, rows: str, centers: Array) -> str:
    """Add k(rows, centers) of a resolved kernel, of shape (n, M)."""
    kind = type(kernel)  # and not a subclass, which may have another profile
    if kind in (Sum, Product):
        parts = [kernel_values(graph, part, rows, centers) for part in (kernel.k1, kernel.k2)]
        return graph.add("Add" if kind is Sum else "Mul", *parts)
    if kind is Constant:
        return _full(graph, rows, len(centers), float(kernel.value))
    if kind not in _PROFILES:
        raise TypeError(
            f"{kernel!r} cannot be exported: use {', '.join(known.__name__ for known in _PROFILES)}, or sums and "
            "products of these"
        )
    argument = _ARGUMENTS[kernel.geometry](graph, kernel, rows, np.asarray(centers, dtype=np.float64))
    values = _PROFILES[kind](graph, kernel, argument)
    if kernel.geometry != "angle" or kernel.norm_power == 0:
        return values
    norms = graph.add("Sqrt", graph.row_squares(rows))
    return graph.times(graph.add("Mul", values, norms), np.linalg.norm(centers, axis=1))


def _squared_distance(graph: Graph, kernel: Kernel, rows: str, centers: Array) -> str:
    scale, middle = kernel.scaling(centers.shape[1]), centers.mean(axis=0)
    A, B = graph.times(graph.plus(rows, -middle), scale), (centers - middle) * scale
    if not kernel.smooth:  # its root would magnify the rounding error of small distances
        return _sum_of_differences(graph, A, B, "square")
    products = graph.add("MatMul", A, graph.constant(-2.0 * B.T))
    squares = graph.plus(graph.row_squares(A), np.square(B).sum(axis=1))
    return graph.add("Relu", graph.add("Add", squares, products))


def _absolute_distance(graph: Graph, kernel: Kernel, rows: str, centers: Array) -> str:
    scale = kernel.scaling(centers.shape[1])
    return _sum_of_differences(graph, graph.times(rows, scale), centers * scale, "absolute")


def _dot_product(graph: Graph, kernel: Kernel, rows: str, centers: Array) -> str:
    """x.z, or gamma x.z: onnxruntime joins a product and the factor after it, which it then rounds to float32."""
    gamma: Any = kernel.gamma if isinstance(kernel, Affine) else 1.0
    return graph.add("MatMul", rows, graph.constant(gamma * centers.T))


def _one_minus_cosine(graph: Graph, kernel: Kernel, rows: str, centers: Array) -> str:
    """Half the squared distance of unit vectors; a zero row is orthogonal to all others."""
    squares = graph.row_squares(rows)
    zero = graph.cast(graph.add("Equal", squares, graph.constant(0.0)), graph.dtype)
    units = graph.add("Div", rows, graph.add("Add", graph.add("Sqrt", squares), zero))
    A = graph.add("Concat", units, zero, axis=1)
    norms = np.linalg.norm(centers, axis=1, keepdims=True)
    B = np.hstack([centers / np.where(norms == 0, 1.0, norms), norms == 0])
    return graph.times(_sum_of_differences(graph, A, B, "square"), 0.5)


def _sum_of_differences(graph: Graph, A: str, B: Array, power: str) -> str:
    """Sum |a - b| or (a - b)^2 feature by feature, so that no array has more than n M numbers."""
    helper, real = onnx().helper, _tensor_type(graph.dtype)
    body = Graph(graph.dtype, f"scan_{len(graph.nodes)}_")
    total, a, b, summed = (f"{body.prefix}{name}" for name in ("total", "a", "b", "summed"))
    columns = [body.add("Unsqueeze", name, body.constant([axis], np.int64)) for name, axis in ((a, 1), (b, 0))]
    difference = body.add("Sub", *columns)
    term = body.add("Abs", difference) if power == "absolute" else body.add("Mul", difference, difference)
    body.add("Add", total, term, output=summed)
    M = len(B)
    shapes = {total: ["n", M], a: ["n"], b: [M]}
    inputs = [helper.make_tensor_value_info(name, real, shape) for name, shape in shapes.items()]
    outputs = [helper.make_tensor_value_info(summed, real, ["n", M])]
    inner = helper.make_graph(body.nodes, "one_feature", inputs, outputs, body.constants)
    return graph.add(
        "Scan", _full(graph, A, M, 0.0), graph.add("Transpose", A), graph.constant(B.T), body=inner, num_scan_inputs=2
    )


def _full(graph: Graph, rows: str, n_columns: int, value: float) -> str:
    """Add an array with the number of rows of `rows`, `n_columns` columns and one value."""
    count = graph.add("Shape", rows, start=0, end=1)
    shape = graph.add("Concat", count, graph.constant([n_columns], np.int64), axis=0)
    return graph.add("Expand", graph.constant([[value]]), shape)


_ARGUMENTS: dict[str, Callable[[Graph, Any, str, Array], str]] = {
    "distance": _squared_distance,
    "manhattan": _absolute_distance,
    "dot": _dot_product,
    "angle": _one_minus_cosine,
}


def _gaussian(graph: Graph, kernel: Gaussian, s: str) -> str:
    return graph.exp(s, -0.5)


def _laplacian(graph: Graph, kernel: Laplacian, s: str) -> str:
    return graph.exp(s if kernel.norm == 1 else graph.add("Sqrt", s), -1.0)


def _matern(graph: Graph, kernel: Matern, s: str) -> str:
    a = graph.add("Sqrt", graph.times(s, 2 * kernel.nu))
    decay = graph.exp(a, -1.0)
    if kernel.nu == 0.5:
        return decay
    polynomial = graph.plus(a, 1.0)
    if kernel.nu == 2.5:
        polynomial = graph.add("Add", polynomial, graph.times(graph.add("Mul", a, a), 1 / 3))
    return graph.add("Mul", polynomial, decay)


def _rational_quadratic(graph: Graph, kernel: RationalQuadratic, s: str) -> str:
    base = graph.plus(graph.times(s, 1 / (2 * kernel.alpha)), 1.0)
    return graph.exp(graph.add("Log", base), -kernel.alpha)


def _linear(graph: Graph, kernel: Linear, s: str) -> str:
    return s


def _polynomial(graph: Graph, kernel: Polynomial, s: str) -> str:
    return graph.add("Pow", graph.plus(s, kernel.coef0), graph.constant(float(kernel.degree)))


def _sigmoid(graph: Graph, kernel: Sigmoid, s: str) -> str:
    return graph.add("Tanh", graph.plus(s, kernel.coef0))


def _arc_cosine(graph: Graph, kernel: ArcCosine, s: str) -> str:
    t = graph.add("Clip", graph.times(s, 0.5), graph.constant(0.0), graph.constant(1.0))  # sin^2(theta / 2)
    cosine = graph.plus(graph.times(t, -2.0), 1.0)
    rest = graph.plus(graph.times(t, -1.0), 1.0)
    sine = graph.times(graph.add("Sqrt", graph.add("Mul", t, rest)), 2.0)
    away = graph.plus(graph.times(_angle(graph, t, cosine, sine), -1 / np.pi), 1.0)
    if kernel.degree == 0:
        return away
    return graph.add("Add", graph.times(sine, 1 / np.pi), graph.add("Mul", away, cosine))


def _angle(graph: Graph, t: str, cosine: str, sine: str) -> str:
    """Add theta with these sine and cosine: in float32, where runtimes have the arcsine, and then a correction."""
    half = graph.add("Asin", graph.cast(graph.add("Sqrt", t), np.float32))
    near = graph.times(graph.cast(half, graph.dtype), 2.0)
    ahead = graph.add("Mul", sine, graph.add("Cos", near))
    behind = graph.add("Mul", cosine, graph.add("Sin", near))
    return graph.add("Add", near, graph.add("Sub", ahead, behind))  # sin(theta - near), which is small


_PROFILES: dict[type[Kernel], Callable[[Graph, Any, str], str]] = {
    Gaussian: _gaussian,
    Laplacian: _laplacian,
    Matern: _matern,
    RationalQuadratic: _rational_quadratic,
    Linear: _linear,
    Polynomial: _polynomial,
    Sigmoid: _sigmoid,
    ArcCosine: _arc_cosine,
}


# ---- random features -------------------------------------------------------------------------------------------------


def feature_values(graph: Graph, features: FeatureMap, rows: str) -> str:
    """Add the random features of the rows, of shape (n, M)."""
    parts, start = [], 0
    for name, count in features.activations:
        part = features.columns(start, start + count)
        if name not in _ACTIVATIONS:
            raise TypeError(f"the activation {name!r} cannot be exported: use one of {', '.join(_ACTIVATIONS)}")
        linear = graph.plus(graph.add("MatMul", rows, graph.constant(part.weights.T)), part.offset)
        parts.append(graph.times(_ACTIVATIONS[name](graph, linear), part.scale))
        start += count
    return graph.add("Concat", *parts, axis=1)


def _step(graph: Graph, a: str) -> str:
    return graph.cast(graph.add("Greater", a, graph.constant(0.0)), graph.dtype)


def _softplus(graph: Graph, a: str) -> str:
    # log(1 + exp(a)) = max(a, 0) + log(1 + exp(-|a|)): runtimes have Softplus in float32 alone, as they have Erf
    small = graph.exp(graph.add("Abs", a), -1.0)
    return graph.add("Add", graph.add("Relu", a), graph.add("Log", graph.plus(small, 1.0)))


_ACTIVATIONS: dict[str, Callable[[Graph, str], str]] = {
    "cos": lambda graph, a: graph.add("Cos", a),
    "sin": lambda graph, a: graph.add("Sin", a),
    "relu": lambda graph, a: graph.add("Relu", a),
    "step": _step,
    "tanh": lambda graph, a: graph.add("Tanh", a),
    "sigmoid": lambda graph, a: graph.add("Sigmoid", a),
    "softplus": _softplus,
    "identity": lambda graph, a: a,
}
