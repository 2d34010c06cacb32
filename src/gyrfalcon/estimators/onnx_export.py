"""Fitted estimators as ONNX graphs, for programs without Python or without Gyrfalcon."""

from __future__ import annotations

import json
import os
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import DTypeLike, NDArray
from sklearn.utils.validation import check_is_fitted

from .._utils.atomic import replacing
from .._utils.version import package_version
from ..fitting.calibration import Calibration
from ..losses import Logistic, Loss, Poisson, Quantile, Softmax
from ..storage.onnx_graph import Graph, feature_values, kernel_values
from ._base import KernelClassifier, KernelEstimator, KernelRegressor
from ._trees import OnTrees
from .exact_classifier import ExactClassifier
from .falkon_classifier import FalkonClassifier
from .falkon_regressor import FalkonRegressor
from .random_features_regressor import OnRandomFeatures

__all__ = ["to_onnx"]

Array = NDArray[Any]
Outputs = dict[str, tuple[DTypeLike, int | None]]


def to_onnx(model: Any, path: str | os.PathLike[str] | None = None, *, dtype: DTypeLike | None = None) -> Any:
    """Convert a fitted regressor or classifier to an ONNX model, and write it to a file if a path is given.

    Scaling, intercept, links of losses and calibration are part of the graph. Its input is ``X``, dense rows of shape
    (n, n_features). Its outputs are named after methods: ``predict`` and, of a classifier, ``decision_function`` and
    ``predict_proba`` where the model has it.

    Parameters
    ----------
    model : estimator
        A fitted regressor or classifier with dense centers or random features, whose kernel is one of
        `gyrfalcon.kernels`, or a sum or product of these.
    path : str or path-like, optional
        Where to write; an existing file is replaced as a whole or not at all.
    dtype : float32 or float64, optional
        The type of ``X`` and of the arithmetic, by default that of the centers. In float32, results differ from those
        of `predict` by rounding errors. The offset is added in float64, and ``predict`` is float64, where the model's
        `output_dtype_` is.

    Returns
    -------
    onnx.ModelProto

    Raises
    ------
    TypeError
        If the estimator, its kernel or its loss has no such graph.
    ImportError
        If the package onnx is not installed.

    Examples
    --------
    >>> import numpy as np
    >>> import gyrfalcon
    >>> X = np.random.default_rng(0).uniform(-3, 3, size=(500, 2))
    >>> model = gyrfalcon.FalkonRegressor(n_centers=50, random_state=0).fit(X, np.sin(X[:, 0]))
    >>> graph = gyrfalcon.to_onnx(model)
    >>> import onnxruntime
    >>> session = onnxruntime.InferenceSession(graph.SerializeToString())
    >>> (predictions,) = session.run(["predict"], {"X": X})
    >>> bool(np.abs(predictions - model.predict(X)).max() < 1e-9)
    True
    """
    if isinstance(model, OnTrees) or not isinstance(model, KernelRegressor | KernelClassifier):
        raise TypeError(
            f"{type(model).__name__} cannot be exported: only regressors and classifiers of gyrfalcon.estimators that "
            "are one sum over centers or random features can"
        )
    check_is_fitted(model)
    graph = Graph(_precision(model) if dtype is None else dtype)
    if graph.dtype not in (np.float32, np.float64):
        raise ValueError(f"dtype={dtype!r} must be float32 or float64")
    values, columns = _values(graph, model)
    if isinstance(model, KernelRegressor):
        outputs = _regression(graph, model, values, columns)
    else:
        outputs = _classification(graph, model, values)
    names = vars(model).get("feature_names_in_")
    about = {"class": type(model).__name__, "gyrfalcon_version": package_version()}
    about |= {} if names is None else {"feature_names": json.dumps([str(name) for name in names])}
    found = graph.model(model.n_features_in_, outputs, about)
    if path is not None:
        with replacing(os.fspath(path)) as temporary:
            _write(found, temporary)
    return found


def _precision(model: KernelEstimator) -> np.dtype[Any]:
    if isinstance(model, OnRandomFeatures):
        return np.dtype(model.feature_map_.weights.dtype)
    return np.dtype(model.centers_.dtype)


def _write(model: Any, path: str) -> None:
    with open(path, "wb") as file:
        file.write(model.SerializeToString())


def _values(graph: Graph, model: KernelEstimator) -> tuple[str, int]:
    """Add the learnt functions' values, of shape (n, k), and return their name and k."""
    rows = _scaled_rows(graph, model)
    if isinstance(model, OnRandomFeatures):
        matrix, coef = feature_values(graph, model.feature_map_, rows), model.feature_coef_
    else:
        if scipy.sparse.issparse(model.centers_):
            raise TypeError("a model of sparse rows cannot be exported: ONNX has dense rows alone; fit it to such")
        matrix, coef = kernel_values(graph, model.kernel_, rows, model.centers_), model.dual_coef_
    coef = coef.reshape(len(coef), -1)
    values, dtype = graph.add("MatMul", matrix, graph.constant(coef)), _output_precision(graph, model)
    if dtype != graph.dtype:
        values = graph.cast(values, dtype)
    return graph.add("Add", values, graph.constant(np.atleast_1d(model.offset_), dtype)), coef.shape[1]


def _output_precision(graph: Graph, model: KernelEstimator) -> np.dtype[Any]:
    """Return the precision of predictions: float64 also in a graph of float32, where a large offset needs it."""
    return np.promote_types(graph.dtype, model.output_dtype_)


def _scaled_rows(graph: Graph, model: KernelEstimator) -> str:
    if model.scale_ is None:
        return "X"
    # in float64: large numbers that differ little would be equal in float32
    rows = graph.cast("X", np.float64)
    if model.mean_ is not None:
        rows = graph.add("Sub", rows, graph.constant(model.mean_, np.float64))
    return graph.cast(graph.add("Div", rows, graph.constant(model.scale_, np.float64)), graph.dtype)


# ---- regression ------------------------------------------------------------------------------------------------------


def _regression(graph: Graph, model: KernelRegressor, values: str, columns: int) -> Outputs:
    if isinstance(model, FalkonRegressor):
        values = _inverse_link(graph, model.loss_, values, columns)
    coef = model.feature_coef_ if isinstance(model, OnRandomFeatures) else model.dual_coef_
    dtype = _output_precision(graph, model)
    if coef.ndim == 2:
        graph.add("Identity", values, output="predict")
        return {"predict": (dtype, columns)}
    graph.add("Squeeze", values, graph.constant([1], np.int64), output="predict")
    return {"predict": (dtype, None)}


def _inverse_link(graph: Graph, loss: Loss, f: str, columns: int) -> str:
    if type(loss) is Poisson:
        return graph.add("Exp", f)
    if type(loss) is Quantile and loss.ordered and columns > 1:
        return _sorted(graph, f, np.asarray(loss.level))
    if type(loss) is not Quantile and type(loss).inverse_link is not Loss.inverse_link:
        raise TypeError(f"{type(loss).__name__}.inverse_link is a Python function, which cannot be exported")
    return f


def _sorted(graph: Graph, f: str, level: Array) -> str:
    """Sort each row in the order of the levels."""
    rank = np.argsort(np.argsort(level, kind="stable"))
    return graph.add("Gather", graph.sort(f, len(level)), graph.constant(rank, np.int64), axis=1)


# ---- classification --------------------------------------------------------------------------------------------------


def _classification(graph: Graph, model: KernelClassifier, values: str) -> Outputs:
    """Add the classes, the scores that decide, and probabilities where there are any."""
    k = len(model.classes_)
    probabilities: str | None = None
    if isinstance(model, ExactClassifier):
        values, probabilities = _calibrated(graph, model.calibration_, values)
    elif isinstance(model, FalkonClassifier):
        probabilities = _probabilities(graph, model.loss_, values, k)
    one_column = k == 2
    if one_column:
        positive = graph.add("Greater", values, graph.constant(0.0))
        codes = graph.add("Squeeze", graph.cast(positive, np.int64), graph.constant([1], np.int64))
        graph.add("Squeeze", values, graph.constant([1], np.int64), output="decision_function")
    else:
        codes = graph.add("ArgMax", values, axis=1, keepdims=0)
        graph.add("Identity", values, output="decision_function")
    label_type: DTypeLike = _label_type(model.classes_)
    graph.add("Gather", graph.constant(model.classes_, label_type), codes, output="predict", axis=0)
    outputs: Outputs = {"predict": (label_type, None), "decision_function": (graph.dtype, None if one_column else k)}
    if probabilities is not None:
        graph.add("Identity", probabilities, output="predict_proba")
        outputs["predict_proba"] = (graph.dtype, k)
    return outputs


def _label_type(classes: Array) -> DTypeLike:
    """Return the type of labels in a graph: texts, whole numbers, or numbers."""
    if classes.dtype.kind in "OU" and all(isinstance(label, str) for label in classes):
        return object
    kinds: dict[str, DTypeLike] = {"b": np.bool_, "i": np.int64, "u": np.int64, "f": np.float64}
    if classes.dtype.kind not in kinds:
        raise TypeError(f"labels of type {classes.dtype} cannot be exported: use texts or numbers")
    return kinds[classes.dtype.kind]


def _probabilities(graph: Graph, loss: Loss, f: str, n_classes: int) -> str | None:
    if type(loss) is Softmax:
        return graph.add("Softmax", f, axis=1)
    if type(loss) is not Logistic:
        return None  # of a loss that has none, or a Python function
    if n_classes == 2:
        return graph.add("Sigmoid", graph.add("Concat", graph.add("Neg", f), f, axis=1))
    # each class against the others, made to sum to one: log P = min(f, 0) - log(1 + exp(-|f|))
    rest = graph.add("Log", graph.plus(graph.exp(graph.add("Abs", f), -1.0), 1.0))
    return graph.add("Softmax", graph.add("Sub", graph.add("Min", f, graph.constant(0.0)), rest), axis=1)


def _calibrated(graph: Graph, calibration: Calibration, values: str) -> tuple[str, str]:
    """Add `Calibration.scores` and `Calibration.probabilities`."""
    p = graph.times(graph.plus(values, 1.0), 0.5)
    binary = len(calibration.bias) == 2
    if binary:
        p = graph.add("Concat", graph.plus(graph.add("Neg", p), 1.0), p, axis=1)
    q = graph.add("Clip", p, graph.constant(calibration.eps), graph.constant(1.0))
    log_q = graph.add("Log", q)
    terms = [
        graph.times(p, calibration.slope),
        graph.times(log_q, calibration.log_slope),
        graph.times(graph.add("Sub", log_q, q), calibration.bend),
    ]
    scores = graph.plus(graph.add("Sum", *terms), calibration.bias)
    probabilities = graph.add("Softmax", scores, axis=1)
    if binary:
        return graph.add("MatMul", scores, graph.constant([[-1.0], [1.0]])), probabilities
    return graph.add("LogSoftmax", scores, axis=1), probabilities
