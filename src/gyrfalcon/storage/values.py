"""The contents of model files: estimators and kernels as JSON values and named arrays, and back.

The file itself is written and read by `gyrfalcon.storage.models`; which values may be in it, and how they are checked,
is decided here. `Encoder` and `Decoder` mirror each other. Values that JSON lacks are objects with one tag:
``{"__tensor__": name}``, ``{"__kernel__": class, "params": {...}}``, ``{"__tuple__": [...]}``, ``{"__float__": "inf"}``
and so on.
"""

from __future__ import annotations

import functools
import inspect
import math
import reprlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
import scipy.sparse
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from .._utils.registry import is_estimator, registered
from .._utils.version import package_version
from .scikit_learn import PREFIX, VERSION, Known, check_known, is_kept, known_of, named

Array = npt.NDArray[Any]

# The safetensors name of every dtype a model may hold. NumPy lacks the others (bfloat16, 8-bit floats), or no estimator
# makes them (complex).
TENSOR_DTYPES: dict[str, type[np.generic]] = {
    "F64": np.float64,
    "F32": np.float32,
    "F16": np.float16,
    "I64": np.int64,
    "I32": np.int32,
    "I16": np.int16,
    "I8": np.int8,
    "U64": np.uint64,
    "U32": np.uint32,
    "U16": np.uint16,
    "U8": np.uint8,
    "BOOL": np.bool_,
}
_SCALAR_TYPES: dict[str, type[np.generic]] = {np.dtype(t).name: t for t in TENSOR_DTYPES.values()}
_TYPES: dict[str, type] = {**_SCALAR_TYPES, "float": float}

_MAX_DEPTH = 50
# Most terms of a sum or a product of kernels, a binary tree: far more than Python can recurse over.
_MAX_PARTS = 1000
# Bytes of all arrays of strings of a file. They have a fixed width, length x longest: a short list with one long entry
# could take any amount of memory.
_MAX_STRINGS = 32 * 2**20
# Longest axis of an array without elements, whose shape is not bound by the size of the file.
_MAX_EMPTY = 100_000
# Parameters that are neither saved nor read: who watches a fit, where it writes, and which hardware it uses.
_LEFT_OUT = ("callbacks", "checkpoint", "device", "precision")
# The same of scikit-learn's estimators: a cache on disk holds pickles, and n_jobs starts processes.
_LEFT_OUT_OF_SCIKIT_LEARN = ("memory", "n_jobs")
# Most keys of a dict with the same hash, each of which is compared with each: 64-bit integers have up to 16.
_MAX_ALIKE = 16
# Types of the items of an array of objects.
_ITEM_TYPES = (str, bool, int, float, np.generic, type(None))

_CSR_ARRAYS = ("data", "indices", "indptr")


class ModelFileError(ValueError):
    """Raised for a file that `load` refuses: missing, damaged, foreign, or written by a newer version.

    The message names the file and what is wrong with it.

    Examples
    --------
    >>> import gyrfalcon
    >>> try:
    ...     gyrfalcon.load("no_such_model.gyr")
    ... except gyrfalcon.ModelFileError as error:
    ...     print("no_such_model.gyr" in str(error))
    True
    """


def _is_descriptor(member: Any) -> bool:
    """Return whether a class member is a method or a property, which no value from a file may hide."""
    return callable(member) or inspect.ismethoddescriptor(member) or inspect.isdatadescriptor(member)


@functools.cache
def _parameters(cls: type) -> tuple[frozenset[str], frozenset[str]]:
    """Return the names of all parameters of a constructor, and of those without a default."""
    known = inspect.signature(cls).parameters
    plain = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    needed = (name for name, one in known.items() if one.default is inspect.Parameter.empty and one.kind in plain)
    return frozenset(known), frozenset(needed)


def check_shape(shape: Sequence[int]) -> None:
    """Raise a ValueError for an array without elements whose shape claims a great many rows or columns."""
    if 0 in shape and max(shape) > _MAX_EMPTY:
        raise ValueError(f"an array of shape {tuple(shape)} is empty, and its axes are longer than {_MAX_EMPTY}")


def _is_fitted_name(name: str) -> bool:
    return name.isidentifier() and name.endswith("_") and not name.startswith("_")


def _is_kept(name: str, known: Known | None) -> bool:
    """Whether an attribute goes into a file; of scikit-learn's estimators also the private ones of our list."""
    return _is_fitted_name(name) or (known is not None and is_kept(known, name))


class Encoder:
    """Encode an estimator as JSON values, and collect its arrays in `tensors` under the path that leads to them."""

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.tensors: dict[str, Array] = {}
        self.strings = 0  # bytes of arrays of strings

    def estimator(self, estimator: Any, where: str, depth: int = 0) -> dict[str, Any]:
        known = known_of(type(estimator))
        left_out = _LEFT_OUT if known is None else _LEFT_OUT_OF_SCIKIT_LEARN
        params = {
            name: None if isinstance(value, np.random.RandomState | np.random.Generator) else value
            for name, value in estimator.get_params(deep=False).items()
            if name not in left_out
        }
        attributes = {name: value for name, value in vars(estimator).items() if _is_kept(name, known)}
        if known is not None and attributes:
            try:
                check_known(estimator, known)
            except ValueError as error:
                raise TypeError(f"cannot save {self.owner}: {type(estimator).__name__}: {error}") from error
        node = {
            "class": type(estimator).__name__,
            "params": self.fields(params, f"{where}params.", depth),
            "attributes": self.fields(attributes, f"{where}attributes.", depth),
        }
        return node if known is None else {**node, "class": PREFIX + known.cls.__name__, "version": VERSION}

    def fields(self, values: Mapping[str, Any], where: str, depth: int) -> dict[str, Any]:
        return {name: self.value(value, where + name, depth + 1) for name, value in values.items()}

    def value(self, value: Any, where: str, depth: int) -> Any:
        if depth > _MAX_DEPTH:
            self.refuse(value, where, f"it is nested more than {_MAX_DEPTH} deep")
        kind = type(value)
        if value is None or kind in (bool, int, str):
            return value
        if kind is float:
            return value if math.isfinite(value) else {"__float__": str(value)}
        if isinstance(value, np.str_):
            return str(value)
        if isinstance(value, np.generic) and value.dtype.name in _SCALAR_TYPES:
            return {"__scalar__": value.dtype.name, "value": self.value(value.item(), where, depth + 1)}
        if kind in (np.ndarray, np.memmap):
            return self.array(value, where, depth)
        if scipy.sparse.issparse(value) and value.format == "csr" and value.ndim == 2:
            return self.csr(value, where, depth)
        if kind is list:
            return self.items(value, where, depth)
        if kind is tuple:
            return {"__tuple__": self.items(value, where, depth)}
        if kind is dict:
            return self.mapping(value, where, depth)
        if isinstance(value, np.dtype) and value.name in _SCALAR_TYPES:
            return {"__dtype__": value.name}
        if isinstance(value, type) and value in _TYPES.values():
            return {"__type__": next(name for name, known in _TYPES.items() if known is value)}
        if kind is slice:
            return {"__slice__": self.items([value.start, value.stop, value.step], where, depth)}
        if known_of(kind) is not None:
            return {"__estimator__": self.estimator(value, f"{where}.", depth + 1)}
        if registered(kind.__name__) is kind:
            if is_estimator(kind):
                return {"__estimator__": self.estimator(value, f"{where}.", depth + 1)}
            return self.kernel(value, where, depth)
        self.refuse(value, where, f"it is {reprlib.repr(value)} of type {kind.__module__}.{kind.__qualname__}")

    def kernel(self, value: Any, where: str, depth: int) -> dict[str, Any]:
        """Encode a kernel; the nested sums of ``a + b + c + d`` become ``a + b`` and a list of further terms."""
        kind, params = type(value), value.get_params(deep=False)
        then: list[Any] = []
        while params and type(params[first := min(params)]) is kind:
            inner = params.pop(first)
            then.append(self.fields(params, f"{where}.{len(then)}.", depth))
            if len(then) > _MAX_PARTS:
                self.refuse(value, where, f"it has more than {_MAX_PARTS} parts")
            params = inner.get_params(deep=False)
        node = {"__kernel__": kind.__name__, "params": self.fields(params, f"{where}.", depth)}
        return {**node, "then": then[::-1]} if then else node

    def items(self, values: list[Any] | tuple[Any, ...], where: str, depth: int) -> list[Any]:
        return [self.value(value, f"{where}.{i}", depth + 1) for i, value in enumerate(values)]

    def mapping(self, values: dict[Any, Any], where: str, depth: int) -> dict[str, Any]:
        if all(type(key) is str and not key.startswith("__") for key in values):
            return self.fields(values, f"{where}.", depth)
        # keys of other types (class_weight={0: 1.0}), or that look like tags
        return {"__dict__": [self.items(item, f"{where}.{i}", depth) for i, item in enumerate(values.items())]}

    def array(self, array: Array, where: str, depth: int) -> dict[str, Any]:
        if array.dtype.kind == "U":
            self.strings += array.nbytes
            if self.strings > _MAX_STRINGS:
                self.refuse(array, where, f"it is an array of strings of {array.nbytes} bytes, too large for a header")
            return {"__array__": "str", "shape": list(array.shape), "values": array.ravel().tolist()}
        if array.dtype.kind == "O":
            flat = array.ravel().tolist()
            for item in flat:
                if not isinstance(item, _ITEM_TYPES):
                    self.refuse(array, where, f"it is an object array with {reprlib.repr(item)} in it")
            return {"__array__": "object", "shape": list(array.shape), "values": self.items(flat, where, depth)}
        if array.dtype.name not in _SCALAR_TYPES:
            self.refuse(array, where, f"it is an array of dtype {array.dtype}")
        array = np.asarray(array, dtype=array.dtype.newbyteorder("="))
        name = where.encode("ascii", "backslashreplace").decode()
        # {"a.0": x, "a": [y]} has the path "a.0" twice
        while name in self.tensors:
            name += "'"
        tensor = {"__tensor__": name}
        # The order is kept: a product with an array in the other order may differ in the last bit.
        if array.flags.f_contiguous and not array.flags.c_contiguous:
            array, tensor["order"] = array.T, "F"
        # safetensors copies memory without regard to strides. (ascontiguousarray would make 0-d 1-d.)
        self.tensors[name] = np.require(array, requirements="C")
        return tensor

    def csr(self, matrix: Any, where: str, depth: int) -> dict[str, Any]:
        parts = {"data": matrix.data, "indices": matrix.indices, "indptr": matrix.indptr}
        return {"__csr__": [int(size) for size in matrix.shape], **self.fields(parts, f"{where}.", depth)}

    def refuse(self, value: Any, where: str, why: str) -> NoReturn:
        kind, _, name = where.partition(".")
        remedy = "a named kernel" if callable(value) else "numbers, strings or NumPy arrays"
        raise TypeError(
            f"cannot save {self.owner}: {'parameter' if kind == 'params' else 'attribute'} {name!r} cannot go into a "
            f"model file, which holds data and no code: {why}. Use {remedy} instead, or pickle the estimator"
        )


class Decoder:
    """Decode what `Encoder` made; any unknown structure raises a `ModelFileError`."""

    def __init__(self, tensors: Mapping[str, Array]) -> None:
        self.unused = dict(tensors)
        self.versions: set[str] = set()  # of scikit-learn that wrote its estimators
        self.strings = 0  # bytes of arrays of strings

    def estimator(self, node: Any, depth: int = 0) -> Any:
        known = named(node.get("class")) if isinstance(node, dict) else None
        node = self.keys(node, "class", "params", "attributes", *(["version"] if known is not None else []))
        cls = self.registered(node["class"], estimator=True) if known is None else known.cls
        if known is not None:
            self.versions.add(str(node["version"]))
        left_out = _LEFT_OUT if known is None else _LEFT_OUT_OF_SCIKIT_LEARN
        forbidden = sorted(set(left_out).intersection(node["params"] if isinstance(node["params"], dict) else ()))
        if forbidden:
            raise ModelFileError(f"it sets {forbidden[0]!r} of {cls.__name__}, which no model file may hold")
        estimator = self.build(cls, node["params"], depth)
        if not isinstance(node["attributes"], dict):
            raise ModelFileError(f"the attributes of {cls.__name__} are not a JSON object")
        for name, value in node["attributes"].items():
            if not _is_kept(name, known) or _is_descriptor(inspect.getattr_static(cls, name, None)):
                raise ModelFileError(f"{cls.__name__} has no attribute {name!r} that can be set")
            setattr(estimator, name, self.value(value, depth + 1))
        if depth and not node["attributes"]:
            return estimator  # a parameter of another one, to be cloned and fitted
        try:
            if known is not None:
                check_known(estimator, known)
            check_is_fitted(estimator)
            getattr(estimator, "_check_loaded", lambda: None)()  # optional for users' own classes, see `register`
        except NotFittedError as error:
            raise ModelFileError(f"it holds a {cls.__name__} that is not fitted") from error
        except Exception as error:
            raise ModelFileError(f"it holds an inconsistent {cls.__name__}: {error}") from error
        return estimator

    def build(self, cls: type, params: Any, depth: int, **known: Any) -> Any:
        if not isinstance(params, dict):
            raise ModelFileError(f"the parameters of {cls.__name__} are not a JSON object")
        allowed, needed = (names - known.keys() for names in _parameters(cls))
        unknown, missing = sorted(params.keys() - allowed), sorted(needed - params.keys())
        if missing:
            names = f"missing {len(missing)} required, {', '.join(missing)}"
            raise ModelFileError(f"{cls.__name__} refuses the parameters in it: {names}")
        if unknown:
            raise ModelFileError(f"{cls.__name__} has no parameter {unknown[0]!r} in gyrfalcon {package_version()}")
        values = {name: self.value(value, depth + 1) for name, value in params.items()}
        try:
            return cls(**known, **values)
        except Exception as error:
            raise ModelFileError(f"{cls.__name__} refuses the parameters in it: {error}") from error

    def registered(self, name: Any, *, estimator: bool) -> type:
        cls = registered(name) if isinstance(name, str) else None
        if cls is None or is_estimator(cls) is not estimator:
            what = "estimator" if estimator else "kernel"
            raise ModelFileError(
                f"it holds an unknown {what} {reprlib.repr(name)} (a class of your own must be registered with "
                "gyrfalcon.storage.register before loading)"
            )
        return cls

    def value(self, node: Any, depth: int) -> Any:
        if depth > _MAX_DEPTH:
            raise ModelFileError(f"its values are nested more than {_MAX_DEPTH} deep")
        if isinstance(node, list):
            return [self.value(item, depth + 1) for item in node]
        if not isinstance(node, dict):
            return node
        tag = next((key for key in node if key.startswith("__")), None)
        if tag is None:
            return {key: self.value(item, depth + 1) for key, item in node.items()}
        if tag not in self.tags:
            raise ModelFileError(f"it holds a value of an unknown kind {reprlib.repr(tag)}")
        try:
            return self.tags[tag](self, node, depth)
        except (TypeError, ValueError, OverflowError) as error:
            if isinstance(error, ModelFileError):
                raise
            raise ModelFileError(f"it holds a malformed value {reprlib.repr(node)}: {error}") from error

    def keys(self, node: Any, *names: str) -> dict[str, Any]:
        if not isinstance(node, dict) or node.keys() != set(names):
            raise ModelFileError(f"it holds {reprlib.repr(node)} where an object with {', '.join(names)} should be")
        return node

    def items(self, node: Any, depth: int) -> list[Any]:
        if not isinstance(node, list):
            raise ModelFileError(f"it holds {reprlib.repr(node)} where a list should be")
        return [self.value(item, depth + 1) for item in node]

    def slice_(self, node: Any, depth: int) -> slice:
        ends = self.items(self.keys(node, "__slice__")["__slice__"], depth)
        if len(ends) != 3 or not all(end is None or type(end) is int for end in ends):
            raise ModelFileError(f"it holds {reprlib.repr(ends)} where the ends of a slice should be")
        return slice(*ends)

    def tuple_(self, node: Any, depth: int) -> tuple[Any, ...]:
        return tuple(self.items(self.keys(node, "__tuple__")["__tuple__"], depth))

    def dict_(self, node: Any, depth: int) -> dict[Any, Any]:
        pairs = self.items(self.keys(node, "__dict__")["__dict__"], depth)
        alike = Counter(hash(key) for key, _ in pairs)
        if max(alike.values(), default=0) > _MAX_ALIKE:
            raise ModelFileError(f"it holds a dict of which {max(alike.values())} keys have the same hash")
        return dict(pairs)

    def float_(self, node: Any, depth: int) -> float:
        name = self.keys(node, "__float__")["__float__"]
        if name not in ("inf", "-inf", "nan"):
            raise ModelFileError(f"it holds {reprlib.repr(name)} where inf, -inf or nan should be")
        return float(name)

    def scalar(self, node: Any, depth: int) -> Any:
        node = self.keys(node, "__scalar__", "value")
        kind: Any = self.named(node["__scalar__"], _SCALAR_TYPES)
        value = self.value(node["value"], depth + 1)
        if type(value) is not type(kind().item()):
            raise ModelFileError(f"it holds {reprlib.repr(value)} where a {kind.__name__} should be")
        return kind(value)

    def dtype(self, node: Any, depth: int) -> np.dtype[Any]:
        return np.dtype(self.named(self.keys(node, "__dtype__")["__dtype__"], _SCALAR_TYPES))

    def type_(self, node: Any, depth: int) -> type:
        return self.named(self.keys(node, "__type__")["__type__"], _TYPES)

    def named(self, name: Any, names: Mapping[str, type]) -> type:
        if not isinstance(name, str) or name not in names:
            raise ModelFileError(f"it holds an unknown type {reprlib.repr(name)}")
        return names[name]

    def kernel(self, node: Any, depth: int) -> Any:
        node = self.keys({"then": [], **node}, "__kernel__", "params", "then")
        cls, then = self.registered(node["__kernel__"], estimator=False), node["then"]
        kernel = self.build(cls, node["params"], depth)
        if not isinstance(then, list) or len(then) > _MAX_PARTS or (then and not kernel.get_params(deep=False)):
            raise ModelFileError(f"it holds {reprlib.repr(then)} where parts of a {cls.__name__} should be")
        for params in then:
            kernel = self.build(cls, params, depth, **{min(kernel.get_params(deep=False)): kernel})
        return kernel

    def nested(self, node: Any, depth: int) -> Any:
        return self.estimator(self.keys(node, "__estimator__")["__estimator__"], depth + 1)

    def array(self, node: Any, depth: int) -> Array:
        node = self.keys(node, "__array__", "shape", "values")
        shape, values = node["shape"], self.items(node["values"], depth)
        if not (isinstance(shape, list) and all(type(size) is int and size >= 0 for size in shape)):
            raise ModelFileError(f"it holds {reprlib.repr(shape)} where the shape of an array should be")
        check_shape(shape)
        if math.prod(shape) != len(values):
            raise ModelFileError(f"it holds {len(values)} values for an array of shape {reprlib.repr(shape)}")
        if node["__array__"] == "str" and all(type(value) is str for value in values):
            longest = max(map(len, values), default=1)
            self.strings += 4 * len(values) * longest
            if self.strings > _MAX_STRINGS:
                raise ModelFileError(f"it holds {len(values)} strings of up to {longest} characters, too many")
            return np.array(values, dtype=np.str_).reshape(shape)
        if node["__array__"] == "object" and all(isinstance(value, _ITEM_TYPES) for value in values):
            array = np.empty(len(values), dtype=object)
            array[:] = values
            return array.reshape(shape)
        raise ModelFileError(f"it holds an array of {reprlib.repr(node['__array__'])} with {reprlib.repr(values)}")

    def tensor(self, node: Any, depth: int) -> Array:
        node = self.keys({"order": "C", **node}, "__tensor__", "order")
        name, order = node["__tensor__"], node["order"]
        if order not in ("C", "F"):
            raise ModelFileError(f"the array {reprlib.repr(name)} has an unknown order {reprlib.repr(order)}")
        # each array is used once, so that a small file cannot ask for many copies
        if not isinstance(name, str) or name not in self.unused:
            raise ModelFileError(f"the array {reprlib.repr(name)} is missing, or used twice")
        array = self.unused.pop(name)
        return array.T if order == "F" else array

    def csr(self, node: Any, depth: int) -> Any:
        node = self.keys(node, "__csr__", *_CSR_ARRAYS)
        shape = node["__csr__"]
        data, indices, indptr = (self.value(node[name], depth + 1) for name in _CSR_ARRAYS)
        if not (isinstance(shape, list) and len(shape) == 2 and all(type(size) is int and size >= 0 for size in shape)):
            raise ModelFileError(f"it holds {reprlib.repr(shape)} where the shape of a sparse matrix should be")
        if not all(isinstance(part, np.ndarray) and part.ndim == 1 for part in (data, indices, indptr)):
            raise ModelFileError("it holds a sparse matrix whose parts are not arrays")
        if not (data.dtype.kind in "fiub" and indices.dtype == indptr.dtype and indices.dtype in (np.int32, np.int64)):
            raise ModelFileError("it holds a sparse matrix of the wrong types")
        # all indices are checked, since compiled code follows them
        rows_fit = len(indptr) == shape[0] + 1 and indptr[0] == 0 and indptr[-1] == len(data) == len(indices)
        if not (rows_fit and (indptr[1:] >= indptr[:-1]).all()):
            raise ModelFileError("it holds a sparse matrix whose rows do not fit its numbers")
        if len(indices) and not (indices.min() >= 0 and indices.max() < shape[1]):
            raise ModelFileError(f"it holds a sparse matrix with indices outside its {shape[1]} columns")
        return scipy.sparse.csr_array((data, indices, indptr), shape=tuple(shape))

    tags: Mapping[str, Callable[[Decoder, Any, int], Any]] = {
        "__tuple__": tuple_,
        "__slice__": slice_,
        "__dict__": dict_,
        "__float__": float_,
        "__scalar__": scalar,
        "__dtype__": dtype,
        "__type__": type_,
        "__kernel__": kernel,
        "__estimator__": nested,
        "__array__": array,
        "__tensor__": tensor,
        "__csr__": csr,
    }
