"""Files of the papers' data sets, as they are published, read into rows to train on and rows to test on.

Each function takes a folder and the number of training rows wanted (None: all), and returns arrays X, y, and X_test,
y_test where the files have a split; or None if the files are not there. Any set may be stored as NAME.npz instead.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from _data import read_npz

Arrays = dict[str, Any]
Reader = Callable[[Path, "int | None"], "Arrays | None"]


def find(folder: Path, *names: str) -> Path | None:
    """The first of the files, or of the same packed by gzip or bzip2, that is in the folder."""
    candidates = (folder / f"{name}{packed}" for name in names for packed in ("", ".gz", ".bz2"))
    return next((path for path in candidates if path.exists()), None)


def npz(name: str) -> Reader:
    """Arrays X, y, X_test, y_test of an archive; sparse ones as X_data, X_indices, X_indptr, X_shape."""

    def read(folder: Path, rows: int | None) -> Arrays | None:
        path = folder / f"{name}.npz"
        return read_npz(path, np.float32) if path.exists() else None

    return read


def table(name: str, n_train: int | None = None, delimiter: str = ",") -> Reader:
    """A text file of numbers with y in the first column; the first `n_train` rows are to train on, the rest to test."""

    def read(folder: Path, rows: int | None) -> Arrays | None:
        path = find(folder, name)
        if path is None:
            return None
        # a part of the rows is enough where the file has no split of its own
        most = None if rows is None or n_train is not None else 2 * rows
        values = np.loadtxt(path, delimiter=delimiter, dtype=np.float32, max_rows=most, ndmin=2)
        X, y = values[:, 1:], values[:, 0]
        if n_train is None:
            return {"X": X, "y": y}
        return {"X": X[:n_train], "y": y[:n_train], "X_test": X[n_train:], "y_test": y[n_train:]}

    return read


def libsvm(train: str, test: str | None = None, n_features: int | None = None) -> Reader:
    """Files of LIBSVM's format, sparse; `test` is the file of the test rows."""

    def read(folder: Path, rows: int | None) -> Arrays | None:
        from sklearn.datasets import load_svmlight_file

        paths = [find(folder, name) for name in (train, test) if name]
        if None in paths:
            return None
        parts = [load_svmlight_file(str(path), n_features=n_features, dtype=np.float32) for path in paths]
        out: Arrays = {"X": parts[0][0], "y": parts[0][1].astype(np.float32)}
        if test:
            out |= {"X_test": parts[1][0], "y_test": parts[1][1].astype(np.float32)}
        return out

    return read


def coil(folder: Path, rows: int | None) -> Arrays | None:
    """InsuranceCompany as UCI has it: the training file ends with y, that of the test rows lies apart."""
    paths = [find(folder, f"{name}2000.txt") for name in ("ticdata", "ticeval", "tictgts")]
    if None in paths:
        return None
    train, X_test, y_test = (np.loadtxt(path, dtype=np.float32, ndmin=2) for path in paths if path)
    return {"X": train[:, :-1], "y": train[:, -1], "X_test": X_test, "y_test": y_test.ravel()}


def hdf5(*names: str) -> Reader:
    """Arrays X and Y of an HDF5 file."""

    def read(folder: Path, rows: int | None) -> Arrays | None:
        path = find(folder, *names)
        if path is None:
            return None
        import h5py

        part = slice(None if rows is None else 2 * rows)
        with h5py.File(path) as file:
            return {"X": np.asarray(file["X"][part], np.float32), "y": np.asarray(file["Y"][part], np.float32).ravel()}

    return read


def flights(folder: Path, rows: int | None) -> Arrays | None:
    """The airline delays of 2008 with their eight features in the order of Hensman et al., as a table with a header."""
    path = find(folder, "flights.csv", "airline.csv")
    if path is None:
        return None
    with gzip.open(path, "rt") if path.suffix == ".gz" else open(path) as file:
        header = next(file).strip().split(",")
    columns = [header.index(name) for name in (*FLIGHT_COLUMNS, "ArrDelay")]
    most = None if rows is None else 2 * rows
    values = np.genfromtxt(path, delimiter=",", skip_header=1, usecols=columns, dtype=np.float32, max_rows=most)
    values = values[np.isfinite(values).all(axis=1)]  # cancelled flights
    return {"X": values[:, :-1], "y": values[:, -1]}


FLIGHT_COLUMNS = ("Month", "DayofMonth", "DayOfWeek", "plane_age", "Distance", "AirTime", "DepTime", "ArrTime")


def mat(train: str) -> Reader:
    """Xtr, Ytr, Xts, Yts of a MATLAB file."""

    def read(folder: Path, rows: int | None) -> Arrays | None:
        path = find(folder, train)
        if path is None:
            return None
        from scipy.io import loadmat

        found = loadmat(path)
        X, X_test = (np.asarray(found[name], np.float32) for name in ("Xtr", "Xts"))
        return {"X": X, "y": found["Ytr"].ravel(), "X_test": X_test, "y_test": found["Yts"].ravel()}

    return read


def idx(folder: Path, rows: int | None) -> Arrays | None:
    """MNIST's four files: big-endian sizes, then bytes."""
    out: Arrays = {}
    for suffix, name in (("", "train"), ("_test", "t10k")):
        for key, kind, header in (("X", "images-idx3-ubyte", 16), ("y", "labels-idx1-ubyte", 8)):
            path = find(folder, f"{name}-{kind}")
            if path is None:
                return None
            data = path.read_bytes()
            data = gzip.decompress(data) if path.suffix == ".gz" else data
            n = int.from_bytes(data[4:8], "big")
            out[key + suffix] = np.frombuffer(data, np.uint8, offset=header).reshape(n, -1).astype(np.float32)
    return {key: values.ravel() if key.startswith("y") else values for key, values in out.items()}


def cifar(folder: Path, rows: int | None) -> Arrays | None:
    """CIFAR-10, the version of binary files: a byte for the class, then 1,024 each of red, green and blue."""
    parts = [[f"data_batch_{i}.bin" for i in range(1, 6)], ["test_batch.bin"]]
    out: Arrays = {}
    for suffix, names in zip(("", "_test"), parts, strict=True):
        paths = [find(folder, name, f"cifar-10-batches-bin/{name}") for name in names]
        if None in paths:
            return None
        data = np.concatenate([np.fromfile(path, np.uint8).reshape(-1, 3_073) for path in paths if path])
        out |= {f"X{suffix}": grey(data[:, 1:].reshape(-1, 3, 1_024)), f"y{suffix}": data[:, 0].astype(np.float32)}
    return out


def svhn(folder: Path, rows: int | None) -> Arrays | None:
    """SVHN, the cropped digits: X of 32 x 32 x 3 x n in MATLAB's files."""
    from scipy.io import loadmat

    out: Arrays = {}
    for suffix, name in (("", "train_32x32.mat"), ("_test", "test_32x32.mat")):
        path = find(folder, name)
        if path is None:
            return None
        found = loadmat(path)
        pixels = np.moveaxis(found["X"], (3, 2), (0, 1))  # n, colour, then rows and columns of pixels
        out |= {f"X{suffix}": grey(pixels.reshape(len(pixels), 3, -1)), f"y{suffix}": found["y"].ravel()}
    return out


def grey(pixels: np.ndarray) -> np.ndarray:
    """Luminance of red, green and blue, the weights of the authors' code."""
    return np.tensordot(np.array([0.2126, 0.7152, 0.0722], np.float32), pixels.astype(np.float32), axes=(0, 1))
