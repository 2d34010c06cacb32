"""Tools of the cases: findings, and bytes, JSON, arrays and model files with something wrong in them."""

from __future__ import annotations

import contextlib
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import Generator

from gyrfalcon.storage.models import write_file


class Finding(Exception):  # noqa: N818 (it is what is looked for)
    """A result that must not be."""


# Messages of Python and NumPy about code, which tell a user nothing of what he gave.
INTERNAL = re.compile(
    r"NoneType|unsupported operand|not subscriptable|has no len|object is not (callable|iterable)|operands could not|"
    r"broadcast input|setting an array element|unexpected keyword|positional argument|truth value|not aligned|"
    r"index \d+ is out of bounds|zero-size array|cannot unpack|values to unpack|illegal value|only (0-dim|length-1)"
)


def one(rng: Generator, choices: Any) -> Any:
    return choices[int(rng.integers(len(choices)))]


said: list[str] = []


def say(words: str) -> None:
    """Keep what a case is, for the report of a finding."""
    said[:] = [words]


NUMBERS = [0, 1, -1, 2, 127, 255, 2**15, 2**31 - 1, -(2**31), 2**32, 2**40, 2**62, -(2**63), 10**7]


def damaged(rng: Generator, contents: bytes) -> bytes:
    """The same bytes with something wrong: some of them others, away, twice, or a number that is another."""
    out = bytearray(contents)
    for _ in range(one(rng, [1, 1, 1, 2, 5, 30])):
        if not out:
            break
        at, length = int(rng.integers(len(out))), one(rng, [1, 4, 16, 200])
        how = one(rng, ["bit"] * 4 + ["number"] * 4 + ["cut", "away", "twice", "zeros", "noise"])
        if how == "bit":
            out[at] ^= 1 << int(rng.integers(8))
        elif how == "number":
            size = one(rng, [1, 2, 4, 8])
            number = one(rng, NUMBERS) % 2 ** (8 * size)
            out[at : at + size] = number.to_bytes(size, "little")[: len(out) - at]
        elif how == "cut":
            del out[at:]
        elif how == "away":
            del out[at : at + length]
        elif how == "twice":
            out[at:at] = out[at : at + length]
        elif how == "zeros":
            out[at : at + length] = bytes(len(out[at : at + length]))
        else:
            out[at : at + length] = rng.bytes(len(out[at : at + length]))
    return bytes(out)


VALUES = [None, True, 0, 1, -1, 2**31, 2**63, 2**70, 1e308, 0.5, "", "x", [], {}, [1, 2], {"a": 1}]
VALUES += [{"__float__": "nan"}, {"__float__": "inf"}, {"__tuple__": []}]


def altered(rng: Generator, node: Any) -> Any:
    """JSON with one value that is another, away, or moved: what a checksum would not notice if it were right."""
    places = list(_places(node))
    for _ in range(one(rng, [1, 1, 2, 4])):
        parent, key = one(rng, places)
        with contextlib.suppress(KeyError, IndexError):
            how = one(rng, ["value"] * 4 + ["away", "other", "number"])
            if how == "value":
                parent[key] = one(rng, VALUES)
            elif how == "away":
                del parent[key]
            elif how == "other":
                other, name = one(rng, places)
                parent[key] = json.loads(json.dumps(other[name]))
            elif isinstance(parent[key], int | float):
                parent[key] = one(rng, NUMBERS)
    return node


def _places(node: Any) -> Any:
    for key in list(node) if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else []:
        yield node, key
        yield from _places(node[key])


def altered_arrays(rng: Generator, arrays: dict[str, Any]) -> dict[str, Any]:
    """Arrays of which one has another shape, type or contents."""
    arrays = dict(arrays)
    if not arrays:
        return arrays
    name = one(rng, sorted(arrays))
    array = arrays[name]
    how = one(rng, ["shape", "type", "value", "empty", "longer", "away", "extra"])
    if how == "shape":
        arrays[name] = array.reshape(-1, 1) if array.ndim == 1 else array.ravel()
    elif how == "type":
        with np.errstate(all="ignore"):
            arrays[name] = array.astype(one(rng, ["f8", "f4", "i8", "i4", "u1", "?"]))
    elif how == "value" and array.size:
        arrays[name] = array.copy()
        with np.errstate(all="ignore"):
            value = np.array(one(rng, [np.nan, np.inf, -1.0, 1e300, 2.0**31])).astype(array.dtype)
        arrays[name].flat[int(rng.integers(array.size))] = value
    elif how == "empty":
        arrays[name] = array[:0]
    elif how == "longer" and array.ndim:
        arrays[name] = np.concatenate([array, array])
    elif how == "away":
        del arrays[name]
    else:
        arrays["extra"] = np.zeros(3)
    return arrays


# ---- what somebody would forge on purpose ----------------------------------------------------------------------------

POSITIONS = [2**31 - 1, -(2**31), 625, 624, 0, -1, -1000, 2**40, 2**63, 1.5, None, True, "1"]
CLASSES = ["FalkonRegressor", "ExactRegressor", "FalkonClassifier", "BKB", "KernelPCA", "RandomFeatures", "Mixing"]
CLASSES += ["TableEncoder", "AutoRegressor", "CategoryColumn", "Gaussian", "Linear", "Sum", "Squared", "FeatureMap"]
CLASSES += ["Calibration", "Posterior", "Conformity", "Uniform", "Given", "CallableKernel", "Nobody"]
LEFT_OUT = {"checkpoint": "elsewhere", "device": "cpu", "callbacks": [], "precision": "float64", "n_jobs": 2**31}
SHAPES = [(0, 2**40), (2**40, 0), (0, 0), (0,), (1,), (1, 1), (2**33, 0, 1)]


def forged(rng: Generator, node: Any, arrays: dict[str, Any]) -> str:
    """Forge one thing of a kind that code relies on; say which."""
    places = list(_places(node))
    how = one(rng, ["random state", "class", "class", "parameter", "length", "empty", "swap", "order", "index"])
    if how == "random state":
        for parent, key in places:
            if key == "pos" or (isinstance(parent[key], int) and isinstance(parent, list) and "MT19937" in parent):
                parent[key] = one(rng, POSITIONS)
    elif how == "class":
        named = [(parent, key) for parent, key in places if key in ("class", "__kernel__", "family", "bit_generator")]
        for parent, key in named[: one(rng, [1, 1, 2])] if rng.random() < 0.3 or not named else [one(rng, named)]:
            parent[key] = one(rng, CLASSES)
    elif how == "parameter":
        owners = [parent[key] for parent, key in places if key == "params" and isinstance(parent[key], dict)]
        owners += [node["params"]] if "params" in node else []
        if owners:
            name = one(rng, sorted(LEFT_OUT))
            one(rng, owners)[name] = LEFT_OUT[name]
    elif how == "length":
        lists = [parent[key] for parent, key in places if isinstance(parent[key], list) and parent[key]]
        if lists:
            chosen = one(rng, lists)
            chosen[:] = one(rng, [chosen[:-1], chosen + chosen, chosen * 50, chosen[:1], chosen[::-1]])
    elif arrays:
        _forge_array(rng, how, arrays)
    return how


def _forge_array(rng: Generator, how: str, arrays: dict[str, Any]) -> None:
    name, other = one(rng, sorted(arrays)), one(rng, sorted(arrays))
    if how == "empty":
        arrays[name] = np.empty(one(rng, SHAPES), dtype=arrays[name].dtype)
    elif how == "swap":
        arrays[name], arrays[other] = arrays[other], arrays[name]
    elif how == "order" and arrays[name].ndim > 1:
        arrays[name] = np.ascontiguousarray(arrays[name].T)
    else:  # numbers that may be indices
        whole = [name for name in sorted(arrays) if arrays[name].dtype.kind in "iu" and arrays[name].size]
        if whole:
            name = one(rng, whole)
            arrays[name] = arrays[name].copy()
            most = np.iinfo(arrays[name].dtype)
            at = int(rng.integers(arrays[name].size))
            arrays[name].flat[at] = min(max(one(rng, NUMBERS), int(most.min)), int(most.max))


def resealed(rng: Generator, path: Path, kind: Any) -> str:
    """Alter a model or a checkpoint, and give it the checksum that belongs to that; say how."""
    from safetensors import safe_open

    with safe_open(path, framework="numpy") as file:
        node = json.loads(file.metadata()[kind.key])
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (it is no dict)
    chance = rng.random()
    how = "altered and sealed again"
    if chance < 0.4:
        node = altered(rng, node)
    elif chance < 0.6:
        arrays = altered_arrays(rng, arrays)
    else:
        how = f"forged ({forged(rng, node, arrays)}) and sealed again"
    text = json.dumps(node)
    if rng.random() < 0.7:  # an array that belongs to nothing would be all that is found
        arrays = {name: array for name, array in arrays.items() if json.dumps(name) in text}
    write_file(str(path), kind, text, arrays)
    return how
