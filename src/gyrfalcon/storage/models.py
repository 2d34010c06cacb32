"""Model files: a fitted estimator as data only, one safetensors file with the arrays and JSON in its header.

Loading such a file runs no code that the file chose. It can only name classes that were passed to `register`, give them
constructor parameters they already have, and set attributes made of numbers, strings, arrays and containers of these.
Everything read is checked, and any fault of a file raises one exception, `ModelFileError`.

The header's metadata holds ``format``, ``format_version``, ``gyrfalcon_version``, ``model`` (the JSON below) and
``sha256``, a digest of the model and of every array, so that a damaged file is refused instead of predicting nonsense::

    {"class": "FalkonRegressor", "params": {...}, "attributes": {...}}

How values are written in that JSON, and checked when they are read, is in `gyrfalcon.storage.values`.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from sklearn.utils.validation import check_is_fitted

from .._utils.atomic import replacing
from .._utils.registry import is_registered_estimator
from .._utils.version import package_version
from .._utils.warnings import warn
from .scikit_learn import VERSION, known_of, names
from .values import TENSOR_DTYPES, Array, Decoder, Encoder, ModelFileError, check_shape

__all__ = ["ModelFileError", "load", "save"]

FORMAT = "gyrfalcon-model"
FORMAT_VERSION = 1
# Limits of the JSON, which are checked before any of it is parsed. safetensors allows headers of 100 MB, but the Python
# objects of small JSON values take twenty times their size. With these limits a file takes less than 200 MB beside
# its arrays, whatever it holds.
_MAX_JSON = 16 * 2**20  # characters
_MAX_HEADER = 3 * _MAX_JSON  # bytes: the JSON is a string in there, with escapes, beside the names of the arrays
_MAX_VALUES = 1_000_000
_MAX_CONTAINERS = 250_000  # lists and objects


@dataclass(frozen=True)
class Format:
    """A kind of file: its name in the header, the newest known version, and the header's key of the JSON."""

    name: str
    version: int
    key: str


_MODEL = Format(FORMAT, FORMAT_VERSION, "model")


def save(estimator: Any, path: str | os.PathLike[str]) -> None:
    """Write a fitted estimator to a file that `load` reads back; the same as ``estimator.save(path)``.

    The file is safetensors with JSON in its header: no pickle, and loading it runs no code. It is written under a
    temporary name and then moved, so that an existing file is replaced as a whole or not at all. ``callbacks``,
    ``checkpoint``, ``device``, ``precision`` and the state of a random generator given as ``random_state`` are not
    saved.

    Parameters
    ----------
    estimator : estimator
        A fitted instance of a registered class; it needs no method ``save`` of its own. Also a `Pipeline` of
        scikit-learn of such, with its common transformers: `ColumnTransformer`, `FeatureUnion`, `StandardScaler` and
        the other scalers, `SimpleImputer`, `OneHotEncoder`, `OrdinalEncoder`, `PCA`, `PolynomialFeatures` and so on.
    path : str or path-like
        Where to write.

    Raises
    ------
    sklearn.exceptions.NotFittedError
        If the estimator is not fitted.
    TypeError
        If the class is not registered, or a parameter or an attribute is not data, such as a kernel given as a
        function; pickle can save those.
    OSError
        If the file cannot be written.

    See Also
    --------
    load : Read the file back.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np
    >>> import gyrfalcon
    >>> X = np.random.default_rng(0).standard_normal((200, 2))
    >>> model = gyrfalcon.FalkonRegressor(n_centers=20, random_state=0).fit(X, X[:, 0])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     gyrfalcon.save(model, os.path.join(folder, "model.gyr"))
    ...     os.listdir(folder)
    ['model.gyr']
    """
    cls = type(estimator)
    if not (is_registered_estimator(cls) or known_of(cls) is not None):
        raise TypeError(
            f"cannot save {reprlib.repr(estimator)}: {cls.__module__}.{cls.__qualname__} is not a registered estimator "
            "(decorate a class of your own with gyrfalcon.storage.register), and none of those of scikit-learn that "
            f"model files may hold: {', '.join(names())}"
        )
    check_is_fitted(estimator)
    encoder = Encoder(cls.__name__)
    model = json.dumps(encoder.estimator(estimator, ""), allow_nan=False, separators=(",", ":"))
    excess = _excess(model, _MAX_JSON)
    if excess:
        raise ValueError(f"{cls.__name__} holds {excess} a model file may hold outside arrays; pickle can save it")
    write_file(os.fspath(path), _MODEL, model, encoder.tensors)


def load(path: str | os.PathLike[str]) -> Any:
    """Read an estimator that was written by ``save``.

    No code from the file is run: it holds numbers, strings and the names of known classes.

    Parameters
    ----------
    path : str or path-like
        The file to read.

    Returns
    -------
    estimator
        As it was when saved, ready to predict.

    Raises
    ------
    ModelFileError
        If the file is missing, damaged, not a Gyrfalcon model, or written by a newer version.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np
    >>> import gyrfalcon
    >>> X = np.random.default_rng(0).standard_normal((200, 2))
    >>> model = gyrfalcon.FalkonRegressor(n_centers=20, random_state=0).fit(X, X[:, 0])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "model.gyr")
    ...     gyrfalcon.save(model, path)
    ...     again = gyrfalcon.load(path)
    >>> bool(np.array_equal(again.predict(X), model.predict(X)))
    True
    """
    source = os.fspath(path)
    try:
        return _read(source)
    except ModelFileError as error:
        raise ModelFileError(f"cannot load {source!r}: {error}") from error.__cause__


def _digest(model: str, tensors: Mapping[str, Array]) -> str:
    """Return the SHA-256 of the JSON and all arrays, which detects damage but not forgery."""
    digest = hashlib.sha256(model.encode("utf-8", "surrogatepass"))
    for name in sorted(tensors):
        array = tensors[name]
        digest.update(json.dumps([name, array.dtype.name, array.shape]).encode())
        little_endian = array.astype(array.dtype.newbyteorder("<"), copy=False)
        digest.update(little_endian.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def write_file(path: str, kind: Format, text: str, tensors: dict[str, Array]) -> None:
    """Write JSON and arrays to a file of a kind, replacing an existing one as a whole."""
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    metadata = {
        "format": kind.name,
        "format_version": str(kind.version),
        "gyrfalcon_version": package_version(),
        kind.key: text,
        "sha256": _digest(text, tensors),
    }
    with replacing(path) as partial:
        try:
            save_file(tensors, partial, metadata=metadata)
        except SafetensorError as error:
            reason = str(error)
            number = re.search(r"os error (\d+)", reason)
            if number:
                raise OSError(int(number[1]), f"cannot save the {kind.key}: {reason}", path) from error
            raise OSError(f"cannot save the {kind.key} to {path!r}: {reason}") from error


def _read(path: str) -> Any:
    node, tensors = read_file(path, _MODEL)
    decoder = Decoder(tensors)
    estimator = decoder.estimator(node)
    others = sorted(decoder.versions - {VERSION})
    if others:
        warn(
            f"{path!r} holds estimators of scikit-learn {reprlib.repr(others[0])}, and this is {VERSION}: "
            "compare predictions with known ones, or save the model again with this version",
            UserWarning,
        )
    if decoder.unused:
        raise ModelFileError(f"it holds an array that belongs to nothing: {reprlib.repr(min(decoder.unused))}")
    return estimator


def read_file(path: str, kind: Format) -> tuple[Any, dict[str, Array]]:
    """Read JSON and arrays from a file; raise an error unless it is undamaged and of that kind."""
    from safetensors import SafetensorError, safe_open

    if not os.path.exists(path):
        raise ModelFileError("there is no such file")
    if not os.path.isfile(path):
        raise ModelFileError("it is not a regular file")
    try:
        _check_header(path)
        with safe_open(path, framework="numpy") as file:
            text, sha256 = _header(file.metadata(), kind)
            tensors = {name: _tensor(file, name) for name in file.keys()}  # noqa: SIM118 (it is no dict)
    except SafetensorError as error:
        raise ModelFileError(f"it is not a safetensors file, or is damaged ({error})") from error
    except OSError as error:
        raise ModelFileError(f"it cannot be read ({error})") from error
    if _digest(text, tensors) != sha256:
        raise ModelFileError("it is damaged: its contents do not match its checksum")
    try:
        return json.loads(text, parse_constant=_no_constant), tensors
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"its {kind.key} description is not valid JSON ({error})") from error


def _header(metadata: Any, kind: Format) -> tuple[str, str]:
    """Return the JSON and the digest; raise an error unless the format is known and not too new."""
    if not isinstance(metadata, dict) or metadata.get("format") != kind.name:
        raise ModelFileError("it is a safetensors file, but not one written by gyrfalcon")
    number = metadata.get("format_version", "")
    if not re.fullmatch(r"[1-9][0-9]{0,8}", number):
        raise ModelFileError(f"its format version {reprlib.repr(number)} is not a number")
    if int(number) > kind.version:
        version = reprlib.repr(metadata.get("gyrfalcon_version", "unknown"))
        raise ModelFileError(
            f"it has format version {number}, written by gyrfalcon {version}; this is gyrfalcon {package_version()}, "
            f"which reads up to {kind.version}: upgrade gyrfalcon"
        )
    text, sha256 = metadata.get(kind.key), metadata.get("sha256")
    if text is None or sha256 is None:
        raise ModelFileError(f"its header lacks the {kind.key} or the checksum")
    excess = _excess(text, _MAX_JSON)
    if excess:
        raise ModelFileError(f"its {kind.key} description has {excess} allowed")
    return text, sha256


def _check_header(path: str) -> None:
    """Raise an error for a header that would take much memory, before safetensors reads it."""
    from safetensors import SafetensorError

    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if length > _MAX_HEADER:
            raise SafetensorError(f"a header of {length} bytes, more than the {_MAX_HEADER} allowed")
        excess = _excess(file.read(length).decode("latin-1"), _MAX_HEADER)
    if excess:
        raise ModelFileError(f"its header has {excess} allowed")


def _excess(text: str, characters: int) -> str:
    """Describe how a JSON text exceeds the limits, or return an empty string; parts of strings count as values too."""
    containers = text.count("[") + text.count("{")
    values = containers + text.count(",") + text.count(":")  # keys included
    if len(text) > characters:
        return f"{len(text)} characters, more than the {characters}"
    if values > _MAX_VALUES:
        return f"{values} values, more than the {_MAX_VALUES}"
    return f"{containers} lists and objects, more than the {_MAX_CONTAINERS}" if containers > _MAX_CONTAINERS else ""


def _tensor(file: Any, name: str) -> Array:
    view = file.get_slice(name)
    expected = TENSOR_DTYPES.get(view.get_dtype())
    if expected is None:
        raise ModelFileError(f"the array {reprlib.repr(name)} has dtype {view.get_dtype()}, which no model has")
    try:
        check_shape(view.get_shape())
        array: Array = file.get_tensor(name)
    except (TypeError, ValueError) as error:
        raise ModelFileError(f"the array {reprlib.repr(name)} cannot be read: {error}") from error
    if array.dtype != expected or list(array.shape) != list(view.get_shape()):
        raise ModelFileError(f"the array {reprlib.repr(name)} is not what the header says")
    # NumPy misbehaves with booleans that are neither 0 nor 1
    if array.dtype == np.bool_ and array.size and array.reshape(-1).view(np.uint8).max() > 1:
        raise ModelFileError(f"the array {reprlib.repr(name)} holds booleans that are neither true nor false")
    return array


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
