"""Every kernel with its formula, every backend, every source: the contract tests run over all that is listed here.

The formulas are written out anew, in float64 and by broadcasting, and share nothing with the library.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import scipy.special

from gyrfalcon import TableEncoder, _core
from gyrfalcon.kernels import (
    ArcCosine,
    CallableKernel,
    Constant,
    Gaussian,
    Kernel,
    Laplacian,
    Linear,
    Matern,
    Polynomial,
    RationalQuadratic,
    Sigmoid,
)
from gyrfalcon.sources import ArrayRows
from gyrfalcon.tables.inputs import EncodedRows

from .stored import STORED, csv

Oracle = Callable[[Any, Any], Any]

BACKENDS = ["native", "reference"]
INSTRUCTION_SETS = _core.instruction_sets()
DTYPES = [np.float32, np.float64]
TOLERANCE = {np.float32: 1e-5, np.float64: 1e-12}


# ---- kernels --------------------------------------------------------------------------------------------------------


class Cauchy(Kernel):
    """1 / (1 + |x - z|^2): a kernel that someone else wrote, with a profile and nothing more."""

    def profile(self, s):
        return 1 / (1 + s)


class Hyperbolic(Kernel):
    """1 / (1 + sum_j |x_j - z_j|), of the 1-norm."""

    geometry = "manhattan"
    smooth = False

    def profile(self, s):
        return 1 / (1 + s)


class Quartic(Kernel):
    """(x.z)^4, of the dot product."""

    geometry = "dot"

    def profile(self, s):
        return s**4


def histogram_intersection(A, B):
    return np.minimum(A[:, None], B[None]).sum(axis=2)


def squared_distance(A, B, length_scale=1.0):
    A, B = np.asarray(A, dtype=np.float64), np.asarray(B, dtype=np.float64)
    return np.square((A[:, None] - B[None]) / length_scale).sum(axis=2)


def absolute_distance(A, B, length_scale=1.0):
    A, B = np.asarray(A, dtype=np.float64), np.asarray(B, dtype=np.float64)
    return np.abs((A[:, None] - B[None]) / length_scale).sum(axis=2)


def dot(A, B):
    A, B = np.asarray(A, dtype=np.float64), np.asarray(B, dtype=np.float64)
    return (A[:, None] * B[None]).sum(axis=2)


def bessel_matern(nu, length_scale):
    """The Matern kernel of any smoothness, by the modified Bessel function of the second kind."""

    def k(A, B):
        a = np.sqrt(2 * nu * squared_distance(A, B, length_scale))
        near = a < 1e-10
        a = np.where(near, 1.0, a)
        return np.where(near, 1.0, 2 ** (1 - nu) / scipy.special.gamma(nu) * a**nu * scipy.special.kv(nu, a))

    return k


def arc_cosine(degree):
    """Cho and Saul's J_0 and J_1; the zero vector is at a right angle to everything else, and at none to itself."""

    def k(A, B):
        A, B = np.asarray(A, dtype=np.float64), np.asarray(B, dtype=np.float64)
        a, b = np.linalg.norm(A, axis=1)[:, None], np.linalg.norm(B, axis=1)[:, None]
        U, V = A / np.where(a == 0, 1, a), B / np.where(b == 0, 1, b)
        apart = np.linalg.norm(U[:, None] - V[None], axis=2)
        together = np.linalg.norm(U[:, None] + V[None], axis=2)
        theta = 2 * np.arctan2(apart, together)  # Kahan: accurate at every angle
        theta = np.where((a == 0) ^ (b == 0).T, np.pi / 2, np.where((a == 0) & (b == 0).T, 0.0, theta))
        if degree == 0:
            return 1 - theta / np.pi
        return a * b.T * (np.sin(theta) + (np.pi - theta) * np.cos(theta)) / np.pi

    return k


class Entry(NamedTuple):
    kernel: Kernel
    oracle: Oracle


SCALES = np.array([0.7, 3.0, 1.0, 20.0, 1.5])  # one for each of the five features of `data`

KERNELS: dict[str, Entry] = {
    "gaussian": Entry(Gaussian(1.7), lambda A, B: np.exp(-squared_distance(A, B, 1.7) / 2)),
    "gaussian narrow": Entry(Gaussian(0.05), lambda A, B: np.exp(-squared_distance(A, B, 0.05) / 2)),
    "gaussian anisotropic": Entry(Gaussian(SCALES), lambda A, B: np.exp(-squared_distance(A, B, SCALES) / 2)),
    "laplacian": Entry(Laplacian(2.0), lambda A, B: np.exp(-np.sqrt(squared_distance(A, B, 2.0)))),
    "laplacian 1-norm": Entry(Laplacian(2.0, norm=1), lambda A, B: np.exp(-absolute_distance(A, B, 2.0))),
    "laplacian 1-norm anisotropic": Entry(
        Laplacian(SCALES, norm=1), lambda A, B: np.exp(-absolute_distance(A, B, SCALES))
    ),
    "matern 1/2": Entry(Matern(1.3, nu=0.5), bessel_matern(0.5, 1.3)),
    "matern 3/2": Entry(Matern(1.3, nu=1.5), bessel_matern(1.5, 1.3)),
    "matern 5/2": Entry(Matern(SCALES, nu=2.5), bessel_matern(2.5, SCALES)),
    "rational quadratic": Entry(
        RationalQuadratic(1.2, alpha=0.7), lambda A, B: (1 + squared_distance(A, B, 1.2) / 1.4) ** -0.7
    ),
    "linear": Entry(Linear(), dot),
    "polynomial": Entry(Polynomial(degree=5, gamma=0.3, coef0=0.5), lambda A, B: (0.3 * dot(A, B) + 0.5) ** 5),
    "sigmoid": Entry(Sigmoid(gamma=0.2, coef0=-0.3), lambda A, B: np.tanh(0.2 * dot(A, B) - 0.3)),
    "sigmoid faint": Entry(Sigmoid(gamma=1e-6), lambda A, B: np.tanh(1e-6 * dot(A, B))),
    "arc-cosine 0": Entry(ArcCosine(degree=0), arc_cosine(0)),
    "arc-cosine 1": Entry(ArcCosine(degree=1), arc_cosine(1)),
    "constant": Entry(Constant(2.5), lambda A, B: np.full((len(A), len(B)), 2.5)),
    "sum": Entry(
        Gaussian(1.7) + 0.1 * Linear() + 3,
        lambda A, B: np.exp(-squared_distance(A, B, 1.7) / 2) + 0.1 * dot(A, B) + 3,
    ),
    "product": Entry(
        Polynomial(degree=2, gamma=0.5) * Laplacian(2.0) * 4.0,
        lambda A, B: (0.5 * dot(A, B) + 1) ** 2 * np.exp(-np.sqrt(squared_distance(A, B, 2.0))) * 4,
    ),
    "subclass of distance": Entry(Cauchy(), lambda A, B: 1 / (1 + squared_distance(A, B))),
    "subclass of manhattan": Entry(Hyperbolic(), lambda A, B: 1 / (1 + absolute_distance(A, B))),
    "subclass of dot": Entry(Quartic(), lambda A, B: dot(A, B) ** 4),
    "subclass in a sum": Entry(Cauchy() + Linear(), lambda A, B: 1 / (1 + squared_distance(A, B)) + dot(A, B)),
    "callable": Entry(CallableKernel(histogram_intersection), lambda A, B: histogram_intersection(A, B)),
}

# Kernels that the native core makes itself, at no particular parameters.
NATIVE_KERNELS = [
    Gaussian(),
    Laplacian(),
    Laplacian(norm=1),
    Matern(nu=1.5),
    Matern(nu=2.5),
    RationalQuadratic(),
    Linear(),
    Polynomial(),
    Sigmoid(),
    ArcCosine(0),
    ArcCosine(1),
]


def data(n=700, n_centers=45, d=5, dtype=np.float64, seed=0):
    """Rows and centers with all that is awkward: half the centers are rows, some rows are the same, one is 0."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d))
    X[n // 2 : n // 2 + n // 10] = X[: n // 10]
    X[n - 1] = 0.0
    Z = np.vstack([X[: n_centers // 2], rng.standard_normal((n_centers - n_centers // 2, d))])
    return X.astype(dtype), Z.astype(dtype)


# ---- sources --------------------------------------------------------------------------------------------------------

SOURCE_VALUES = np.random.default_rng(1).integers(-50, 50, (103, 4))


class Generated:
    """Rows that are nowhere stored: the least that a source can be."""

    shape = SOURCE_VALUES.shape
    dtype = np.dtype(np.float32)

    def blocks(self, size):
        for start in range(0, self.shape[0], size):
            yield SOURCE_VALUES[start : start + size].astype(np.float32)

    def take(self, indices):
        return SOURCE_VALUES[indices].astype(np.float32)


def _read_only(X):
    X = X.copy()
    X.flags.writeable = False
    return X


def _memmap(folder):
    mapped = np.memmap(folder / "rows", dtype=np.float32, mode="w+", shape=SOURCE_VALUES.shape)
    mapped[:] = SOURCE_VALUES
    return ArrayRows(mapped)


def _scrambled():
    order = np.random.default_rng(2).permutation(103)
    return ArrayRows(SOURCE_VALUES[np.argsort(order)].astype(float), index=order)


def _encoded(folder):
    """Rows of a CSV file as an encoder makes them, one that neither shifts nor scales."""
    encoder = TableEncoder("standard").fit(pd.DataFrame(SOURCE_VALUES, columns=[f"x{j}" for j in range(4)]))
    encoder.numbers_.center_[:], encoder.numbers_.scale_[:] = 0, 1
    return EncodedRows(csv(folder, SOURCE_VALUES), encoder)


# each is a function of a folder it may write to, and gives SOURCE_VALUES as rows
SOURCES: dict[str, Callable[[Any], Any]] = {
    "float64": lambda folder: ArrayRows(SOURCE_VALUES.astype(np.float64)),
    "float32": lambda folder: ArrayRows(SOURCE_VALUES.astype(np.float32)),
    "float32 asked for": lambda folder: ArrayRows(SOURCE_VALUES.astype(np.float64), dtype=np.float32),
    "integers": lambda folder: ArrayRows(SOURCE_VALUES),
    "float16": lambda folder: ArrayRows(SOURCE_VALUES.astype(np.float16)),
    "other byte order": lambda folder: ArrayRows(SOURCE_VALUES.astype(">f8")),
    "Fortran order": lambda folder: ArrayRows(np.asfortranarray(SOURCE_VALUES, dtype=np.float32)),
    "every second row and column": lambda folder: ArrayRows(
        np.repeat(np.repeat(SOURCE_VALUES, 2, 0), 2, 1).astype(float)[::2, ::2]
    ),
    "read only": lambda folder: ArrayRows(_read_only(SOURCE_VALUES.astype(np.float64))),
    "list of lists": lambda folder: ArrayRows(SOURCE_VALUES.tolist()),
    "memory map": _memmap,
    "by index": lambda folder: _scrambled(),
    "subset": lambda folder: ArrayRows(np.vstack([SOURCE_VALUES * 2, SOURCE_VALUES]).astype(float)).subset(
        np.arange(103, 206)
    ),
    "subset of a subset": lambda folder: (
        ArrayRows(np.repeat(SOURCE_VALUES, 4, 0).astype(float))
        .subset(np.arange(0, 412, 2))
        .subset(np.arange(0, 206, 2))
    ),
    "generated": lambda folder: Generated(),
    "encoded": _encoded,
    "encoded, subset": lambda folder: _encoded(folder).subset(np.arange(103)),
}
SOURCES.update({make.__name__: partial(make, values=SOURCE_VALUES) for make in STORED})


# ---- how far off ----------------------------------------------------------------------------------------------------


def off_by(actual, exact, size):
    """Error in the norm, relative to the result without cancellation: what `exact` is with every term made positive."""
    assert np.shape(actual) == np.shape(exact), (np.shape(actual), np.shape(exact))
    assert np.isfinite(actual).all()
    total = np.linalg.norm(size)
    return float(np.linalg.norm(np.asarray(actual, dtype=np.float64) - exact) / (total if total > 0 else 1.0))
