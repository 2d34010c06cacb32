"""Fitted estimators on disk, as data only: one safetensors file that holds the arrays, and JSON in its header.

Loading such a file runs no code that the file chose. It can only name classes that were passed to `register`, give them
constructor parameters they already have, and set attributes made of numbers, strings, arrays and containers of these.
Everything read is checked, and whatever is wrong with a file is reported as one exception, `ModelFileError`.

The header's metadata holds ``format``, ``format_version``, ``gyrfalcon_version``, ``model`` (the JSON below) and
``sha256``, a digest of the model and of every array, so that a damaged file is refused instead of predicting nonsense::

    {"class": "FalkonRegressor", "params": {...}, "attributes": {...}}

How values are written in that JSON, and what is believed when they are read, is in `gyrfalcon._model_values`.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import reprlib
import secrets
from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np
from sklearn.utils.validation import check_is_fitted

from gyrfalcon._model_values import (
    TENSOR_DTYPES,
    Array,
    Decoder,
    Encoder,
    ModelFileError,
    is_registered_estimator,
    package_version,
    register,
)

__all__ = ["ModelFileError", "SaveMixin", "load", "register", "save"]

FORMAT = "gyrfalcon-model"
FORMAT_VERSION = 1
# A header may be 100 MB by the safetensors rules, but small JSON makes Python objects twenty times its size.
_MAX_JSON = 32 * 2**20


class SaveMixin:
    """Gives an estimator ``save(path)``."""

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted estimator to a file that `gyrfalcon.load` reads back.

        The file is safetensors with JSON in its header: no pickle, and loading it runs no code. It is written under a
        temporary name and then moved, so an existing file is replaced whole or not at all. ``callbacks`` and the state
        of a random generator given as ``random_state`` are not kept.

        Parameters
        ----------
        path : str or path-like
            Where to write.

        Raises
        ------
        sklearn.exceptions.NotFittedError
            If the estimator is not fitted.
        TypeError
            If a parameter or an attribute is not data, such as a kernel given as a function; pickle can keep those.
        OSError
            If the file cannot be written.
        """
        save(self, path)


def save(estimator: Any, path: str | os.PathLike[str]) -> None:
    """Write a fitted estimator to a file; the same as ``estimator.save(path)``.

    Parameters
    ----------
    estimator : estimator
        A fitted instance of a registered class.
    path : str or path-like
        Where to write. An existing file is replaced whole or, on failure, left as it was.

    See Also
    --------
    SaveMixin.save : The method, with what it raises.
    load : Read the file back.
    """
    cls = type(estimator)
    if not is_registered_estimator(cls):
        raise TypeError(
            f"cannot save {reprlib.repr(estimator)}: {cls.__module__}.{cls.__qualname__} is not a registered estimator "
            "(for a class of your own, decorate it with gyrfalcon.persistence.register)"
        )
    check_is_fitted(estimator)
    encoder = Encoder(cls.__name__)
    model = json.dumps(encoder.estimator(estimator, ""), allow_nan=False, separators=(",", ":"))
    if len(model) > _MAX_JSON:
        raise ValueError(
            f"{cls.__name__} holds {len(model)} bytes of strings and numbers outside arrays, more than the "
            f"{_MAX_JSON} a model file may hold; pickle can keep it"
        )
    metadata = {
        "format": FORMAT,
        "format_version": str(FORMAT_VERSION),
        "gyrfalcon_version": package_version(),
        "model": model,
        "sha256": _digest(model, encoder.tensors),
    }
    _write(os.fspath(path), encoder.tensors, metadata)


def load(path: str | os.PathLike[str]) -> Any:
    """Read an estimator that was written by ``save``.

    No code from the file is run, whoever wrote it: the file holds numbers, strings and the names of known classes.

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
    """
    source = os.fspath(path)
    try:
        return _read(source)
    except ModelFileError as error:
        raise ModelFileError(f"cannot load {source!r}: {error}") from error.__cause__


def _digest(model: str, tensors: Mapping[str, Array]) -> str:
    """SHA-256 over everything that makes the model: against damage, not against forgery."""
    digest = hashlib.sha256(model.encode("utf-8", "surrogatepass"))
    for name in sorted(tensors):
        array = tensors[name]
        digest.update(json.dumps([name, array.dtype.name, array.shape]).encode())
        little_endian = array.astype(array.dtype.newbyteorder("<"), copy=False)
        digest.update(little_endian.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _write(path: str, tensors: dict[str, Array], metadata: dict[str, str]) -> None:
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    # A link stays a link: the file it points to is the one to replace.
    target = os.path.realpath(path)
    if os.path.isdir(target):
        raise IsADirectoryError(f"cannot save to {path!r}: it is a folder")
    folder, name = os.path.split(target)
    partial = os.path.join(folder, f".{name[:40]}.{secrets.token_hex(8)}.partial")
    try:
        # Made here because safetensors may make its file readable by the owner alone; the model gets the mode any new
        # file would have, or that of the file it replaces.
        descriptor = os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666)
        mode = os.fstat(descriptor).st_mode
        os.close(descriptor)
        with contextlib.suppress(FileNotFoundError):
            mode = os.stat(target).st_mode
        try:
            save_file(tensors, partial, metadata=metadata)
        except SafetensorError as error:
            reason = str(error)
            number = re.search(r"os error (\d+)", reason)
            if number:
                raise OSError(int(number[1]), f"cannot save the model: {reason}", path) from error
            raise OSError(f"cannot save the model to {path!r}: {reason}") from error
        _sync(partial, os.O_RDWR)
        os.chmod(partial, mode & 0o777)
        os.replace(partial, target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(partial)
        raise
    # The move itself survives a power cut only once the folder is on disk; some systems cannot do that, and need not.
    with contextlib.suppress(OSError):
        _sync(folder, os.O_RDONLY)


def _sync(path: str, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _read(path: str) -> Any:
    from safetensors import SafetensorError, safe_open

    if not os.path.exists(path):
        raise ModelFileError("there is no such file")
    if not os.path.isfile(path):
        raise ModelFileError("it is not a regular file")
    try:
        with safe_open(path, framework="numpy") as file:
            model, sha256 = _header(file.metadata())
            tensors = {name: _tensor(file, name) for name in file.keys()}  # noqa: SIM118 (it is no dict)
    except SafetensorError as error:
        raise ModelFileError(f"it is not a safetensors file, or is damaged ({error})") from error
    except OSError as error:
        raise ModelFileError(f"it cannot be read ({error})") from error
    if _digest(model, tensors) != sha256:
        raise ModelFileError("it is damaged: its contents do not match its checksum")
    try:
        node = json.loads(model, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"its model description is not valid JSON ({error})") from error
    decoder = Decoder(tensors)
    estimator = decoder.estimator(node)
    if decoder.unused:
        raise ModelFileError(f"it holds an array that belongs to nothing: {reprlib.repr(min(decoder.unused))}")
    return estimator


def _header(metadata: Any) -> tuple[str, str]:
    """The model's JSON and the digest, from a file known to be ours and not too new."""
    if not isinstance(metadata, dict) or metadata.get("format") != FORMAT:
        raise ModelFileError("it is a safetensors file, but not one written by gyrfalcon")
    number = metadata.get("format_version", "")
    if not re.fullmatch(r"[1-9][0-9]{0,8}", number):
        raise ModelFileError(f"its format version {reprlib.repr(number)} is not a number")
    if int(number) > FORMAT_VERSION:
        version = reprlib.repr(metadata.get("gyrfalcon_version", "unknown"))
        raise ModelFileError(
            f"it has format version {number}, written by gyrfalcon {version}; this is gyrfalcon {package_version()}, "
            f"which reads up to {FORMAT_VERSION}: upgrade gyrfalcon"
        )
    model, sha256 = metadata.get("model"), metadata.get("sha256")
    if model is None or sha256 is None:
        raise ModelFileError("its header lacks the model or the checksum")
    if len(model) > _MAX_JSON:
        raise ModelFileError(f"its model description has {len(model)} characters, more than the {_MAX_JSON} allowed")
    return model, sha256


def _tensor(file: Any, name: str) -> Array:
    view = file.get_slice(name)
    expected = TENSOR_DTYPES.get(view.get_dtype())
    if expected is None:
        raise ModelFileError(f"the array {reprlib.repr(name)} has dtype {view.get_dtype()}, which no model has")
    try:
        array: Array = file.get_tensor(name)
    except (TypeError, ValueError) as error:
        raise ModelFileError(f"the array {reprlib.repr(name)} cannot be read: {error}") from error
    if array.dtype != expected or list(array.shape) != list(view.get_shape()):
        raise ModelFileError(f"the array {reprlib.repr(name)} is not what the header says")
    # A boolean that is neither 0 nor 1 makes NumPy contradict itself.
    if array.dtype == np.bool_ and array.size and array.reshape(-1).view(np.uint8).max() > 1:
        raise ModelFileError(f"the array {reprlib.repr(name)} holds booleans that are neither true nor false")
    return array


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
