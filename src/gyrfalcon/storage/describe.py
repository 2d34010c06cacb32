"""Values in words, by which a checkpoint tells whether a fit is still the same one.

Data are known by their contents. So are functions: by their code and by what it refers to, since two lambdas have one
name. A value whose contents cannot be told is refused, as nobody would notice that it is another.
"""

from __future__ import annotations

import functools
import hashlib
import json
import reprlib
import sys
import types
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import scipy.sparse

from ..sources import RowsLike, as_rows
from .values import Encoder

# Classes of these say the same as long as the versions do, which are compared.
_KNOWN = ("builtins", "abc", "typing", "gyrfalcon", "sklearn", "numpy")


def describe(value: Any) -> str:
    """A value in words: itself where it is short, else what it is and a digest of its contents.

    Raises
    ------
    TypeError
        If its contents cannot be told.
    """
    return _Describer().words(value)


class _Describer:
    def __init__(self) -> None:
        self._met: list[Any] = []  # functions may refer to each other

    def words(self, value: Any) -> str:
        known = _data(value)
        if known is not None:
            return known
        for at, other in enumerate(self._met):
            if other is value:
                return f"<{at}>"
        self._met.append(value)
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
                yield from map(self.words, (value.__self__, value.__func__))
            case functools.partial():
                yield from map(self.words, (value.func, value.args, value.keywords))
            case list() | tuple():
                yield from map(self.words, value)
            case set() | frozenset():
                yield from sorted(map(self.words, value))
            case dict():
                yield from map(self.words, value.items())
            case np.ndarray():
                yield self.words(value.tolist())
            case bytes() | complex() | types.EllipsisType():
                yield repr(value)
            case _:
                yield from self._object(value)

    def _function(self, function: types.FunctionType) -> Iterator[str]:
        yield from self._code(function.__code__)
        yield from map(self.words, (function.__defaults__, function.__kwdefaults__))
        for cell in function.__closure__ or ():
            try:
                yield self._leniently(cell.cell_contents)
            except ValueError:  # nothing in it yet
                yield "nothing"
        for name in sorted(_names(function.__code__) & function.__globals__.keys()):
            value = function.__globals__[name]
            # what is imported from elsewhere, or is no data, by its name: the rest would be the whole program
            own = isinstance(value, types.FunctionType) and value.__module__ == function.__module__
            yield f"{name}={self.words(value) if own else _data(value) or _name(value)}"

    def _code(self, code: types.CodeType) -> Iterator[str]:
        yield code.co_code.hex()
        yield repr((code.co_names, code.co_varnames, code.co_freevars, code.co_argcount, code.co_flags))
        yield from map(self.words, code.co_consts)

    def _leniently(self, value: Any) -> str:
        try:
            return self.words(value)
        except TypeError:
            return _name(value)

    def _object(self, value: Any) -> Iterator[str]:
        contents = value.get_params(deep=False) if hasattr(value, "get_params") else getattr(value, "__dict__", None)
        function = getattr(value, "py_func", None)  # what Numba compiles
        if isinstance(function, types.FunctionType):
            contents = {"py_func": function}
        hidden = isinstance(value, np.ufunc) or (hasattr(value, "__qualname__") and not contents)  # compiled
        if hidden or not isinstance(contents, Mapping):
            raise TypeError(f"the contents of a {_name(type(value))} cannot be told")
        yield from (f"{name}={self.words(part)}" for name, part in contents.items())
        for cls in type(value).__mro__:
            if cls.__module__.partition(".")[0] in _KNOWN:
                continue
            yield _name(cls)
            for name, member in vars(cls).items():
                function = getattr(member, "__func__", getattr(member, "fget", member))
                if isinstance(function, types.FunctionType):
                    yield f"{name}={self.words(function)}"
                elif not name.startswith("__"):
                    yield f"{name}={_data(member) or _name(member)}"


def _data(value: Any) -> str | None:
    """What describes data; None for all else."""
    if value is None or isinstance(value, str | bool | int | float | np.generic):
        return repr(value)
    if isinstance(value, np.random.RandomState | np.random.Generator):
        return "None"  # drawn from once, and then kept, as the one that None stands for
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        return f"{value.dtype} {value.shape} {digest(value)}"
    if scipy.sparse.issparse(value):
        csr = value.tocsr()
        indices = (csr.indptr.astype(np.int64), csr.indices.astype(np.int64))  # whatever type they have
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
    """Whether it is a function without code to look at that its module has under its name."""
    contents = None if isinstance(value, np.ufunc) else getattr(value, "__dict__", None)
    if isinstance(value, types.FunctionType) or contents:
        return False
    module, _, name = _name(value).rpartition(".")
    return getattr(sys.modules.get(module), name, None) is value


def _names(code: types.CodeType) -> set[str]:
    """The names that code and the functions in it refer to."""
    inner = (_names(constant) for constant in code.co_consts if isinstance(constant, types.CodeType))
    return set(code.co_names).union(*inner)


def _name(value: Any) -> str:
    if isinstance(value, types.ModuleType):
        return value.__name__
    if isinstance(value, np.ufunc):
        return f"numpy.{value.__name__}"
    named = all(isinstance(getattr(value, part, None), str) for part in ("__module__", "__qualname__"))
    owner = value if named else type(value)
    return f"{owner.__module__}.{owner.__qualname__}"


def digest(*parts: Any) -> str:
    """A hash of arrays and bytes."""
    hashed = hashlib.blake2b(digest_size=16)
    for part in parts:
        hashed.update(np.ascontiguousarray(part).data if isinstance(part, np.ndarray) else part)
    return hashed.hexdigest()
