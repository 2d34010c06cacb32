"""The five places that hold formulas of kernels all have the kernels they claim, and agree with one plain formula.

============================ ============================================= =================================
place                        table of its kernels                          claims
============================ ============================================= =================================
kernels/                     `NAMES` of `kernels/names.py`                 every named kernel
_native/profiles.h           `Profiles`, and `_PROFILES` of `native.py`    every named kernel
backends/torch_tiles.py      `_PROFILES`                                   every named kernel
backends/triton_kernels.py   `PROFILES`, and `_PROFILES` of triton_tiles   every named kernel
storage/onnx_graph.py        `_PROFILES`                                   every named kernel
============================ ============================================= =================================

The allowed error of an entry is that of `ROUNDINGS` roundings, in the precision of the place, of the argument (relative
to the terms it is a sum of) and of the value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

from gyrfalcon import _core, kernels
from gyrfalcon.backends import native, prepare, torch_tiles, triton_tiles
from gyrfalcon.kernels import (
    NAMES,
    ArcCosine,
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
from gyrfalcon.storage import onnx_graph

from .market import DTYPES, SCALES, absolute_distance, data, dot, squared_distance

# Allowed relative roundings: five terms that are shifted, scaled, squared and summed, and a few operations on their sum
ROUNDINGS = 12


# ---- one plain formula for each kernel -------------------------------------------------------------------------------

Interval = tuple[Any, Any, Any]  # the smallest argument that rounding may give, the exact one, and the largest


def squared(length_scale: Any) -> Callable[[Any, Any, float], Interval]:
    """|x - z|^2 in length scales; it may be computed as |x|^2 - 2 x.z + |z|^2."""

    def argument(A, B, eps):
        s = squared_distance(A, B, length_scale)
        off = eps * np.square(_norms(A / length_scale)[:, None] + _norms(B / length_scale))
        return np.maximum(s - off, 0), s, s + off

    return argument


def distance(length_scale: Any) -> Callable[[Any, Any, float], Interval]:
    """|x - z| in length scales, for kernels that are not differentiable where it is 0: a norm of differences."""

    def argument(A, B, eps):
        r = np.sqrt(squared_distance(A, B, length_scale))
        off = eps * (_norms(A / length_scale)[:, None] + _norms(B / length_scale))
        return np.maximum(r - off, 0), r, r + off

    return argument


def manhattan(length_scale: Any) -> Callable[[Any, Any, float], Interval]:
    """Sum of |x_j - z_j| in length scales."""

    def argument(A, B, eps):
        s = absolute_distance(A, B, length_scale)
        off = eps * (np.abs(A / length_scale).sum(axis=1)[:, None] + np.abs(B / length_scale).sum(axis=1))
        return np.maximum(s - off, 0), s, s + off

    return argument


def affine(gamma: float, coef0: float) -> Callable[[Any, Any, float], Interval]:
    """gamma x.z + coef0."""

    def argument(A, B, eps):
        t, off = gamma * dot(A, B) + coef0, eps * (gamma * dot(np.abs(A), np.abs(B)) + abs(coef0))
        return t - off, t, t + off

    return argument


def chord(A: Any, B: Any, eps: float) -> Interval:
    """Distance between x / |x| and z / |z|; a zero row is at a right angle to all others."""
    U, V = (np.hstack([P / np.where(zero, 1, _norms(P)[:, None]), zero]) for P, zero in ((A, _zero(A)), (B, _zero(B))))
    r = np.sqrt(squared_distance(U, V))
    return np.maximum(r - 2 * eps, 0), r, np.minimum(r + 2 * eps, 2)


def _norms(A: Any) -> Any:
    return np.sqrt(np.square(A).sum(axis=1))


def _zero(A: Any) -> Any:
    return (A == 0).all(axis=1, keepdims=True)


def relu_units(chord: Any) -> Any:
    theta = 2 * np.arcsin(chord / 2)
    return (np.sin(theta) + (np.pi - theta) * np.cos(theta)) / np.pi


def matern_52(s: Any) -> Any:
    a = np.sqrt(5 * s)
    return (1 + a + a * a / 3) * np.exp(-a)


class Formula(NamedTuple):
    kernel: Kernel
    argument: Callable[[Any, Any, float], Interval]
    profile: Callable[[Any], Any]
    times_norms: bool = False

    def values(self, X: Any, Z: Any, eps: float) -> tuple[Any, Any]:
        """Return k(X, Z) in float64, and how far a computation with the precision `eps` may be off, entry by entry."""
        X, Z = X.astype(np.float64), Z.astype(np.float64)
        low, K, high = (self.profile(t) for t in self.argument(X, Z, ROUNDINGS * eps))
        off = np.maximum(np.abs(low - K), np.abs(high - K)) + ROUNDINGS * eps * np.abs(K)
        factor = _norms(X)[:, None] * _norms(Z) if self.times_norms else 1.0
        return factor * K, factor * off


FORMULAS = [
    Formula(Gaussian(1.7), squared(1.7), lambda s: np.exp(-s / 2)),
    Formula(Gaussian(0.05), squared(0.05), lambda s: np.exp(-s / 2)),
    Formula(Gaussian(SCALES), squared(SCALES), lambda s: np.exp(-s / 2)),
    Formula(Laplacian(2.0), distance(2.0), lambda r: np.exp(-r)),
    Formula(Laplacian(SCALES, norm=1), manhattan(SCALES), lambda s: np.exp(-s)),
    Formula(Matern(1.3, nu=0.5), distance(1.3), lambda r: np.exp(-r)),
    Formula(Matern(1.3, nu=1.5), squared(1.3), lambda s: (1 + np.sqrt(3 * s)) * np.exp(-np.sqrt(3 * s))),
    Formula(Matern(SCALES, nu=2.5), squared(SCALES), matern_52),
    Formula(RationalQuadratic(1.2, alpha=0.7), squared(1.2), lambda s: (1 + s / 1.4) ** -0.7),
    Formula(RationalQuadratic(1.2, alpha=40.0), squared(1.2), lambda s: np.exp(-40 * np.log1p(s / 80))),
    Formula(Linear(), affine(1.0, 0.0), lambda t: t),
    Formula(Polynomial(5, gamma=0.3, coef0=0.5), affine(0.3, 0.5), lambda t: t**5),
    Formula(Sigmoid(gamma=0.2, coef0=-0.3), affine(0.2, -0.3), np.tanh),
    Formula(ArcCosine(0), chord, lambda r: 1 - 2 * np.arcsin(r / 2) / np.pi),
    Formula(ArcCosine(1), chord, relu_units, times_norms=True),
]


# ---- the five places -------------------------------------------------------------------------------------------------


def by_kernels(kernel, X, Z):
    return kernel(X, Z)


def by_native(kernel, X, Z):
    tiles = prepare(kernel, Z, "native")
    assert isinstance(tiles, native.NativeTiles)
    return tiles.fill(X)


def by_torch(kernel, X, Z):
    torch = pytest.importorskip("torch")
    return torch_tiles.prepare(kernel, Z, torch.device("cpu"))(torch.from_numpy(X)).numpy()


def by_triton(kernel, X, Z):
    torch = pytest.importorskip("torch")
    method = triton_tiles._method(kernel, Z, torch.device("cpu"))
    tile = triton_tiles.MakeFusedTile(kernel, Z, torch.device("cpu"), method)(torch.from_numpy(X))
    return (tile @ torch.eye(len(Z), dtype=tile.dtype)).numpy()


def by_onnx(kernel, X, Z):
    pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    graph = onnx_graph.Graph(X.dtype)
    graph.add("Identity", onnx_graph.kernel_values(graph, kernel, "X", Z), output="K")
    model = graph.model(X.shape[1], {"K": (X.dtype, len(Z))}, {})
    (K,) = runtime.InferenceSession(model.SerializeToString()).run(["K"], {"X": X})
    return K


class Place(NamedTuple):
    compute: Callable[[Kernel, Any, Any], Any]
    table: set[type[Kernel]]
    dtypes: list[Any] = DTYPES
    marks: tuple[Any, ...] = ()


NAMED = set(NAMES.values())
TRITON = "backends/triton_kernels.py"
PLACES = {
    "kernels": Place(by_kernels, NAMED),
    "_native/profiles.h": Place(by_native, set(native._PROFILES)),
    "backends/torch_tiles.py": Place(by_torch, set(torch_tiles._PROFILES), marks=(pytest.mark.devices,)),
    TRITON: Place(by_triton, set(triton_tiles._PROFILES), marks=(pytest.mark.devices,)),
    "storage/onnx_graph.py": Place(by_onnx, set(onnx_graph._PROFILES)),
}


@pytest.fixture
def interpreted(monkeypatch) -> Iterator[Any]:
    """Triton's kernels in its interpreter, with tiles of which there are few, since each takes 10 ms or more."""
    pytest.importorskip("torch")
    pytest.importorskip("triton")
    from gyrfalcon.backends import triton_kernels

    monkeypatch.setattr(triton_kernels, "TILES", dict.fromkeys(triton_kernels.TILES, (128, 32, 4)))
    monkeypatch.setattr(triton_tiles, "FUSED_ON", {"cpu"})
    return triton_kernels


def cases() -> Iterator[Any]:
    for name, place in PLACES.items():
        for formula in FORMULAS:
            for dtype in place.dtypes if type(formula.kernel) in place.table else []:
                case = f"{name}-{formula.kernel!r}-{dtype.__name__}"
                yield pytest.param(name, formula, dtype, id=case, marks=place.marks)


@pytest.mark.parametrize(("name", "formula", "dtype"), list(cases()))
def test_a_place_computes_the_formula(name, formula, dtype, request):
    if name == TRITON:
        request.getfixturevalue("interpreted")
    X, Z = data(n=70, n_centers=21, dtype=dtype)
    found = PLACES[name].compute(formula.kernel.resolve(Z), X, Z)
    info = np.finfo(found.dtype)
    exact, off = formula.values(X, Z, float(info.eps))
    assert found.shape == exact.shape
    worst = np.max((np.abs(found - exact) - float(info.tiny)) / np.maximum(off, float(info.tiny)))
    assert worst <= 1, f"off by {worst:.2g} times what {ROUNDINGS} roundings explain"


# ---- nothing is missing ----------------------------------------------------------------------------------------------


def test_every_public_kernel_has_a_name_and_a_formula():
    public = [getattr(kernels, name) for name in kernels.__all__]
    classes = {one for one in public if isinstance(one, type) and issubclass(one, Kernel) and "profile" in vars(one)}
    assert classes - {Kernel, Constant} == NAMED
    assert {type(formula.kernel) for formula in FORMULAS} == NAMED


@pytest.mark.parametrize("name", PLACES)
def test_a_place_has_the_kernels_that_it_claims(name):
    assert PLACES[name].table == NAMED


def test_every_native_profile_is_held_against_a_formula():
    used = {native.profile_of(formula.kernel).code for formula in FORMULAS}
    assert used == set(_core.Profile)


@pytest.mark.devices
def test_every_triton_profile_is_held_against_a_formula(interpreted):
    used = {
        triton_tiles._PROFILES[type(formula.kernel)](formula.kernel, np.dtype(dtype)).name
        for formula in FORMULAS
        for dtype in DTYPES
    }
    assert used == set(interpreted.PROFILES)
