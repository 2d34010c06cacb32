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
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
import scipy.sparse
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

from .._utils.registry import is_estimator, is_registered_estimator, registered
from .._utils.version import package_version
from .._utils.words import a
from .scikit_learn import PREFIX, VERSION, Known, check_known, is_kept, known_of, named

Array = npt.NDArray[Any]

# The safetensors name of every dtype a model may hold. NumPy lacks the others (bfloat16, 8-bit floats), or no estimator
# makes them (complex).
TENSOR_DTYPES: dict[str, type[np.generic]] = {
    "F64": np.float64, "F32": np.float32, "F16": np.float16,
    "I64": np.int64, "I32": np.int32, "I16": np.int16, "I8": np.int8,
    "U64": np.uint64, "U32": np.uint32, "U16": np.uint16, "U8": np.uint8,
    "BOOL": np.bool_,
}  # fmt: skip
_SCALAR_TYPES: dict[str, type[np.generic]] = {np.dtype(t).name: t for t in TENSOR_DTYPES.values()}
_NUMPY_SCALARS = tuple(kind for kind in set(np.sctypeDict.values()) if np.dtype(kind).name in _SCALAR_TYPES)
_TYPES: dict[str, type] = {**_SCALAR_TYPES, "float": float}

_MAX_DEPTH = 50
# Most terms of a sum or a product of kernels, a binary tree: far more than Python can recurse over.
_MAX_PARTS = 1000
# Bytes of all arrays of strings of a file. They have a fixed width, length x longest: a short list with one long entry
# could take any amount of memory.
_MAX_STRINGS = 32 * 2**20
# Longest axis of an array without elements, whose shape is not bound by the size of the file.
_MAX_EMPTY = 100_000
# Parameters that are neither saved nor read: callbacks of a fit, where it writes, and which hardware it uses.
_LEFT_OUT = ("callbacks", "checkpoint", "device", "precision")
# The same for scikit-learn's estimators: a cache on disk holds pickles, and n_jobs starts processes.
_LEFT_OUT_OF_SCIKIT_LEARN = ("memory", "n_jobs")
# Largest number of keys of a dict with the same hash, as each is compared with each: 64-bit integers have up to 16.
_MAX_ALIKE = 16
# Types of the items of an array of objects.
_ITEM_TYPES = (str, bool, int, float, np.generic, type(None))


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
    """Raise a ValueError for an array without elements whose shape has very many rows or columns."""
    if 0 in shape and max(shape) > _MAX_EMPTY:
        raise ValueError(f"an array of shape {tuple(shape)} is empty, and its axes are longer than {_MAX_EMPTY}")


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
        attributes = {name: value for name, value in vars(estimator).items() if is_kept(known, name)}
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
        encode: Callable[..., Any] = self.kinds.get(type(value), Encoder.registered)
        return encode(self, value, where, depth)

    def registered(self, value: Any, where: str, depth: int) -> dict[str, Any]:
        """Encode an estimator or a kernel; refuse a value of any class that is not registered."""
        kind = type(value)
        if known_of(kind) is not None or is_registered_estimator(kind):
            return {"__estimator__": self.estimator(value, f"{where}.", depth + 1)}
        if registered(kind.__name__) is kind:
            return self.kernel(value, where, depth)
        self.refuse(value, where, f"it is {reprlib.repr(value)} of type {kind.__module__}.{kind.__qualname__}")

    def float_(self, value: float, where: str, depth: int) -> Any:
        return value if math.isfinite(value) else {"__float__": str(value)}

    def scalar(self, value: np.generic, where: str, depth: int) -> dict[str, Any]:
        return {"__scalar__": value.dtype.name, "value": self.value(value.item(), where, depth + 1)}

    def type_(self, value: type, where: str, depth: int) -> dict[str, Any]:
        name = next((name for name, known in _TYPES.items() if known is value), None)
        return self.registered(value, where, depth) if name is None else {"__type__": name}

    def slice_(self, value: slice, where: str, depth: int) -> dict[str, Any]:
        return {"__slice__": self.items([value.start, value.stop, value.step], where, depth)}

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
        if matrix.ndim != 2:
            return self.registered(matrix, where, depth)
        parts = {"data": matrix.data, "indices": matrix.indices, "indptr": matrix.indptr}
        return {"__csr__": [int(size) for size in matrix.shape], **self.fields(parts, f"{where}.", depth)}

    def refuse(self, value: Any, where: str, why: str) -> NoReturn:
        kind, _, name = where.partition(".")
        remedy = "a named kernel or activation" if callable(value) else "numbers, strings or NumPy arrays"
        raise TypeError(
            f"cannot save {self.owner}: {'parameter' if kind == 'params' else 'attribute'} {name!r} cannot go into a "
            f"model file, which holds data and no code: {why}. Use {remedy} instead, or pickle the estimator"
        )

    # By the very class of a value, as a subclass may hold more. NumPy has several classes for one dtype.
    kinds: Mapping[type, Callable[[Encoder, Any, str, int], Any]] = {
        **dict.fromkeys((type(None), bool, int, str), lambda self, value, where, depth: value),
        np.str_: lambda self, value, where, depth: str(value),
        float: float_,
        **dict.fromkeys(_NUMPY_SCALARS, scalar),
        **{type(np.dtype(kind)): lambda self, value, *_: {"__dtype__": value.name} for kind in _NUMPY_SCALARS},
        type: type_,
        slice: slice_,
        list: items,
        tuple: lambda self, value, where, depth: {"__tuple__": self.items(value, where, depth)},
        dict: mapping,
        np.ndarray: array,
        np.memmap: array,
        scipy.sparse.csr_array: csr,
        scipy.sparse.csr_matrix: csr,
    }


class Decoder:
    """Decode what `Encoder` made; any unknown structure raises a `ModelFileError`."""

    def __init__(self, tensors: Mapping[str, Array]) -> None:
        self.unused = dict(tensors)
        self.versions: set[str] = set()  # of scikit-learn that wrote its estimators
        self.strings = 0  # bytes of arrays of strings

    def estimator(self, node: Any, depth: int = 0) -> Any:
        known = named(node.get("class")) if isinstance(node, dict) else None
        names = ["class", "params", "attributes", *(["version"] if known is not None else [])]
        if not isinstance(node, dict) or node.keys() != set(names):
            raise ModelFileError(f"it holds {reprlib.repr(node)} where an object with {', '.join(names)} should be")
        cls = self.registered(node["class"], estimator=True) if known is None else known.cls
        if known is not None:
            self.versions.add(str(node["version"]))
        left_out = _LEFT_OUT if known is None else _LEFT_OUT_OF_SCIKIT_LEARN
        estimator = self.build(cls, node["params"], depth, left_out=left_out)
        if not isinstance(node["attributes"], dict):
            raise ModelFileError(f"the attributes of {cls.__name__} are not a JSON object")
        for name, value in node["attributes"].items():
            if not is_kept(known, name) or _is_descriptor(inspect.getattr_static(cls, name, None)):
                raise ModelFileError(f"{cls.__name__} has no attribute {name!r} that can be set")
            setattr(estimator, name, self.value(value, depth + 1))
        if node["attributes"] or not depth:  # else it is a parameter of another one, to be cloned and fitted
            _check_fitted(estimator, known)
        return estimator

    def build(
        self, cls: type, params: Any, depth: int, *, given: Mapping[str, Any] = {}, left_out: Iterable[str] = ()
    ) -> Any:
        if not isinstance(params, dict):
            raise ModelFileError(f"the parameters of {cls.__name__} are not a JSON object")
        allowed, needed = (names - given.keys() for names in _parameters(cls))
        forbidden = sorted(params.keys() & set(left_out))
        unknown, missing = sorted(params.keys() - allowed), sorted(needed - params.keys())
        if forbidden:
            raise ModelFileError(f"it sets {forbidden[0]!r} of {cls.__name__}, which no model file may hold")
        if missing:
            names = f"missing {len(missing)} required, {', '.join(missing)}"
            raise ModelFileError(f"{cls.__name__} refuses the parameters in it: {names}")
        if unknown:
            raise ModelFileError(f"{cls.__name__} has no parameter {unknown[0]!r} in gyrfalcon {package_version()}")
        values = {name: self.value(value, depth + 1) for name, value in params.items()}
        try:
            return cls(**given, **values)
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
        content, others = node[tag], {key: item for key, item in node.items() if key != tag}
        try:
            return self.tags[tag](self, content, depth, **others)
        except (TypeError, ValueError, OverflowError) as error:
            if isinstance(error, ModelFileError):
                raise
            raise ModelFileError(f"it holds a malformed value {reprlib.repr(node)}: {error}") from error

    def items(self, node: Any, depth: int) -> list[Any]:
        if not isinstance(node, list):
            raise ModelFileError(f"it holds {reprlib.repr(node)} where a list should be")
        return [self.value(item, depth + 1) for item in node]

    def slice_(self, node: Any, depth: int) -> slice:
        ends = self.items(node, depth)
        if len(ends) != 3 or not all(end is None or type(end) is int for end in ends):
            raise ModelFileError(f"it holds {reprlib.repr(ends)} where the ends of a slice should be")
        return slice(*ends)

    def dict_(self, node: Any, depth: int) -> dict[Any, Any]:
        pairs = self.items(node, depth)
        alike = Counter(hash(key) for key, _ in pairs)
        if max(alike.values(), default=0) > _MAX_ALIKE:
            raise ModelFileError(f"it holds a dict with {max(alike.values())} keys of the same hash")
        return dict(pairs)

    def float_(self, node: Any, depth: int) -> float:
        if node not in ("inf", "-inf", "nan"):
            raise ModelFileError(f"it holds {reprlib.repr(node)} where inf, -inf or nan should be")
        return float(node)

    def scalar(self, node: Any, depth: int, *, value: Any) -> Any:
        kind: Any = self.named(node, _SCALAR_TYPES)
        value = self.value(value, depth + 1)
        if type(value) is not type(kind().item()):
            raise ModelFileError(f"it holds {reprlib.repr(value)} where {a(kind.__name__)} should be")
        return kind(value)

    def named(self, name: Any, names: Mapping[str, type]) -> type:
        if not isinstance(name, str) or name not in names:
            raise ModelFileError(f"it holds an unknown type {reprlib.repr(name)}")
        return names[name]

    def kernel(self, node: Any, depth: int, *, params: Any, then: Any = ()) -> Any:
        cls = self.registered(node, estimator=False)
        kernel = self.build(cls, params, depth)
        if not isinstance(then, list | tuple) or len(then) > _MAX_PARTS or (then and not kernel.get_params(deep=False)):
            raise ModelFileError(f"it holds {reprlib.repr(then)} where parts of {a(cls.__name__)} should be")
        for more in then:
            kernel = self.build(cls, more, depth, given={min(kernel.get_params(deep=False)): kernel})
        return kernel

    def array(self, node: Any, depth: int, *, shape: Any, values: Any) -> Array:
        shape, values = self.shape(shape, "an array"), self.items(values, depth)
        check_shape(shape)
        if math.prod(shape) != len(values):
            raise ModelFileError(f"it holds {len(values)} values for an array of shape {reprlib.repr(shape)}")
        if node == "str" and all(type(value) is str for value in values):
            longest = max(map(len, values), default=1)
            self.strings += 4 * len(values) * longest
            if self.strings > _MAX_STRINGS:
                raise ModelFileError(f"it holds {len(values)} strings of up to {longest} characters, too many")
            return np.array(values, dtype=np.str_).reshape(shape)
        if node == "object" and all(isinstance(value, _ITEM_TYPES) for value in values):
            array = np.empty(len(values), dtype=object)
            array[:] = values
            return array.reshape(shape)
        raise ModelFileError(f"it holds an array of {reprlib.repr(node)} with {reprlib.repr(values)}")

    def tensor(self, node: Any, depth: int, *, order: Any = "C") -> Array:
        if order not in ("C", "F"):
            raise ModelFileError(f"the array {reprlib.repr(node)} has an unknown order {reprlib.repr(order)}")
        # each array is used once, so that a small file cannot ask for many copies
        if not isinstance(node, str) or node not in self.unused:
            raise ModelFileError(f"the array {reprlib.repr(node)} is missing, or used twice")
        array = self.unused.pop(node)
        return array.T if order == "F" else array

    def csr(self, node: Any, depth: int, *, data: Any, indices: Any, indptr: Any) -> Any:
        shape = self.shape(node, "a sparse matrix", axes=2)
        parts = [self.value(part, depth + 1) for part in (data, indices, indptr)]
        if not all(isinstance(part, np.ndarray) and part.ndim == 1 for part in parts):
            raise ModelFileError("it holds a sparse matrix whose parts are not arrays")
        _check_csr(shape, *parts)
        return scipy.sparse.csr_array(tuple(parts), shape=tuple(shape))

    def shape(self, node: Any, what: str, axes: int | None = None) -> list[int]:
        whole = isinstance(node, list) and all(type(size) is int and size >= 0 for size in node)
        if not whole or axes not in (None, len(node)):
            raise ModelFileError(f"it holds {reprlib.repr(node)} where the shape of {what} should be")
        return list(node)

    # Methods of the tag's value, the depth, and the other keys of the object by name: Python refuses unknown ones.
    tags: Mapping[str, Callable[..., Any]] = {
        "__tuple__": lambda self, node, depth: tuple(self.items(node, depth)),
        "__slice__": slice_,
        "__dict__": dict_,
        "__float__": float_,
        "__scalar__": scalar,
        "__dtype__": lambda self, node, depth: np.dtype(self.named(node, _SCALAR_TYPES)),
        "__type__": lambda self, node, depth: self.named(node, _TYPES),
        "__kernel__": kernel,
        "__estimator__": lambda self, node, depth: self.estimator(node, depth + 1),
        "__array__": array,
        "__tensor__": tensor,
        "__csr__": csr,
    }


def _check_fitted(estimator: Any, known: Known | None) -> None:
    """Raise ModelFileError for an estimator that is not fitted, or that cannot come from a fit."""
    name = type(estimator).__name__
    try:
        if known is not None:
            check_known(estimator, known)
        check_is_fitted(estimator)
        getattr(estimator, "_check_loaded", lambda: None)()  # optional for users' own classes, see `register`
    except NotFittedError as error:
        raise ModelFileError(f"it holds {a(name)} that is not fitted") from error
    except Exception as error:
        raise ModelFileError(f"it holds an inconsistent {name}: {error}") from error


def _check_csr(shape: Sequence[int], data: Array, indices: Array, indptr: Array) -> None:
    """Raise ModelFileError for arrays that make no CSR matrix; all indices are checked: compiled code follows them."""
    if not (data.dtype.kind in "fiub" and indices.dtype == indptr.dtype and indices.dtype in (np.int32, np.int64)):
        raise ModelFileError("it holds a sparse matrix of the wrong types")
    rows_fit = len(indptr) == shape[0] + 1 and indptr[0] == 0 and indptr[-1] == len(data) == len(indices)
    if not (rows_fit and (indptr[1:] >= indptr[:-1]).all()):
        raise ModelFileError("it holds a sparse matrix whose rows do not fit its numbers")
    if len(indices) and not (indices.min() >= 0 and indices.max() < shape[1]):
        raise ModelFileError(f"it holds a sparse matrix with indices outside its {shape[1]} columns")
