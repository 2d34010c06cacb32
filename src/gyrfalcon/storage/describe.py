"""Descriptions of values, which a checkpoint compares to find out whether a fit is still the same one.

Data are described by their contents. So are functions: by their code and by what it refers to, since two lambdas have
the same name. A value whose contents cannot be described is refused, as a change of it would go unnoticed.
"""

from __future__ import annotations

import functools
import hashlib
import json
import reprlib
import sys
import types
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import scipy.sparse

from .._utils.words import a
from ..sources import RowsLike, as_rows
from ..sources.columns import Column, Vector
from .values import Encoder

# Packages whose classes change only with their versions, which are compared.
_KNOWN = ("builtins", "abc", "typing", "gyrfalcon", "sklearn", "numpy")


def describe(value: Any) -> str:
    """Describe a value by itself if it is short, else by its type and a digest of its contents.

    Raises TypeError if the contents cannot be described.
    """
    return _Describer().describe(value)


class _Describer:
    def __init__(self) -> None:
        self._seen: list[Any] = []  # functions may refer to each other

    def describe(self, value: Any) -> str:
        known = _data(value)
        if known is not None:
            return known
        for at, other in enumerate(self._seen):
            if other is value:
                return f"<{at}>"
        self._seen.append(value)
        if isinstance(value, type | types.ModuleType) or _is_compiled(value):
            return _name(value)
        return f"{_name(value)} {digest('; '.join(self._parts(value)).encode())}"

    def _parts(self, value: Any) -> Iterator[str]:
        match value:
            case types.FunctionType():
                yield from self._function(value)
            case types.CodeType():
                yield from self._code(value)
            case types.MethodType():
                yield from map(self.describe, (value.__self__, value.__func__))
            case functools.partial():
                yield from map(self.describe, (value.func, value.args, value.keywords))
            case list() | tuple():
                yield from map(self.describe, value)
            case set() | frozenset():
                yield from sorted(map(self.describe, value))
            case dict():
                yield from map(self.describe, value.items())
            case np.ndarray():
                yield self.describe(value.tolist())
            case bytes() | complex() | types.EllipsisType():
                yield repr(value)
            case _:
                yield from self._object(value)

    def _function(self, function: types.FunctionType) -> Iterator[str]:
        yield from self._code(function.__code__)
        yield from map(self.describe, (function.__defaults__, function.__kwdefaults__))
        for cell in function.__closure__ or ():
            try:
                yield self._leniently(cell.cell_contents)
            except ValueError:  # an empty cell
                yield "nothing"
        for name in sorted(_names(function.__code__) & function.__globals__.keys()):
            value = function.__globals__[name]
            # what is imported, or is not data, counts by its name: the rest would be the whole program
            own = isinstance(value, types.FunctionType) and value.__module__ == function.__module__
            yield f"{name}={self.describe(value) if own else _data(value) or _name(value)}"

    def _code(self, code: types.CodeType) -> Iterator[str]:
        yield code.co_code.hex()
        yield repr((code.co_names, code.co_varnames, code.co_freevars, code.co_argcount, code.co_flags))
        yield from map(self.describe, code.co_consts)

    def _leniently(self, value: Any) -> str:
        try:
            return self.describe(value)
        except TypeError:
            return _name(value)

    def _object(self, value: Any) -> Iterator[str]:
        contents = _attributes(value)
        if hasattr(value, "get_params"):  # scikit-learn's contract, kept by objects of any class
            contents = value.get_params(deep=False)
        elif contents is not None and isinstance(contents.get("py_func"), types.FunctionType):  # compiled by Numba
            contents = {"py_func": contents["py_func"]}
        compiled = isinstance(value, np.ufunc) or (_qualified_name(value) is not None and not contents)
        if compiled or contents is None:
            raise TypeError(f"the contents of {a(_name(type(value)))} cannot be told")
        yield from (f"{name}={self.describe(part)}" for name, part in contents.items())
        for cls in type(value).__mro__:
            if cls.__module__.partition(".")[0] in _KNOWN:
                continue
            yield _name(cls)
            for name, member in vars(cls).items():
                match member:
                    case staticmethod() | classmethod() | types.MethodType():
                        function: Any = member.__func__
                    case property():
                        function = member.fget
                    case _:
                        function = member
                if isinstance(function, types.FunctionType):
                    yield f"{name}={self.describe(function)}"
                elif not name.startswith("__"):
                    yield f"{name}={_data(member) or _name(member)}"


def _data(value: Any) -> str | None:
    """Describe data; return None for any other value."""
    if value is None or isinstance(value, str | bool | int | float | np.generic):
        return repr(value)
    if isinstance(value, np.random.RandomState | np.random.Generator):
        return "None"  # its draws are kept in the checkpoint, as those of the generator that None stands for
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        return f"{value.dtype} {value.shape} {digest(value)}"
    if isinstance(value, Column | Vector):  # the same as of an array in memory
        return f"{value.dtype} {value.shape} {_digest(value.parts())}"
    if scipy.sparse.issparse(value):
        csr = value.tocsr()
        indices = (csr.indptr.astype(np.int64), csr.indices.astype(np.int64))  # the same for any type of indices
        return f"sparse {csr.dtype} {csr.shape} {digest(*indices, csr.data)}"
    if isinstance(value, RowsLike) and not isinstance(value, type):
        contents = as_rows(value).fingerprint()
        return f"{np.dtype(value.dtype)} {value.shape}{',' if ' ' in contents else ''} {contents}"
    encoder = Encoder("the checkpoint")
    try:
        text = json.dumps(encoder.value(value, "value", 0))
    except TypeError:
        return None
    words = reprlib.repr(value)
    arrays = [encoder.tensors[name] for name in sorted(encoder.tensors)]
    return words if words == repr(value) and not arrays else f"{words} {digest(text.encode(), *arrays)}"


def _is_compiled(value: Any) -> bool:
    """Return whether a value is a function without Python code that its module has under its name."""
    if isinstance(value, types.FunctionType) or (_attributes(value) and not isinstance(value, np.ufunc)):
        return False
    module, _, name = _name(value).rpartition(".")
    return module in sys.modules and vars(sys.modules[module]).get(name) is value


def _names(code: types.CodeType) -> set[str]:
    """Return the names that code and the functions in it refer to."""
    inner = (_names(constant) for constant in code.co_consts if isinstance(constant, types.CodeType))
    return set(code.co_names).union(*inner)


def _name(value: Any) -> str:
    if isinstance(value, types.ModuleType):
        return value.__name__
    if isinstance(value, np.ufunc):
        return f"numpy.{value.__name__}"
    return _qualified_name(value) or f"{type(value).__module__}.{type(value).__qualname__}"


def _qualified_name(value: Any) -> str | None:
    """Return the module and the name of a class or a function, which instances lack."""
    try:
        module, name = value.__module__, value.__qualname__
    except AttributeError:
        return None
    return f"{module}.{name}" if isinstance(module, str) and isinstance(name, str) else None


def _attributes(value: Any) -> dict[str, Any] | None:
    """Return the attributes of an object, None for one with slots or of a compiled class."""
    try:
        return dict(vars(value))
    except TypeError:
        return None


def digest(*parts: Any) -> str:
    """Return a hash of arrays and bytes."""
    return _digest(parts)


def _digest(parts: Iterable[Any]) -> str:
    hashed = hashlib.blake2b(digest_size=16)
    for part in parts:
        hashed.update(np.ascontiguousarray(part).data if isinstance(part, np.ndarray) else part)
    return hashed.hexdigest()
