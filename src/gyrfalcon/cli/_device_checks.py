"""What ``gyrfalcon check-device`` compares with the host: products, memory, repeated bits, factors, streams and fits.

A case compares one situation and may give several errors. What it raises is an error as well: the report is then about
everything else, too.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from .._utils.devices import free_memory, has_float64, import_torch, resolve_devices, round_to_tf32
from ..estimators.falkon_classifier import FalkonClassifier
from ..estimators.falkon_regressor import FalkonRegressor
from ..kernels import NAMES, Gaussian
from ..losses.named import NAMES as LOSSES
from ..losses.named import OF_LABELS
from ..operators import DeviceOperator, Rowwise
from ..preconditioners.factors import LapackFactors
from ..preconditioners.torch_factors import TorchFactors
from ..sources.files import open as open_files
from ..sources.tensors import as_torch, to_host

Array = NDArray[Any]
Errors = Iterator[tuple[str, float]]

# Largest errors of products relative to the sums of the sizes of their terms: some hundred roundings
_PRODUCTS = {"float32": 2e-5, "float64": 1e-12}
# Largest differences of predictions of two fits that have converged
_FITS = {"float32": 2e-4, "float64": 1e-9}
_CROWDED_ROWS, _CROWDED_CENTERS = 50_000, 2_000  # whose kernel matrix takes 400 MB in float32
_LITTLE = 300 << 20  # bytes that CUDA may allocate for it


@dataclass(frozen=True)
class Sizes:
    """Sizes of what is compared: blocks are small, so that buffers are used again and streams overlap."""

    rows: int = 10_000
    block: int = 512
    centers: int = 70
    factors: int = 2_000
    fits: int = 2_000


SHORT = Sizes(rows=200, block=64, centers=20, factors=100, fits=300)


@dataclass(frozen=True)
class Check:
    """One comparison: its error, the largest that rounding explains, and the exception if one was raised."""

    group: str
    what: str
    error: float
    allowed: float
    raised: str | None = None

    @property
    def right(self) -> bool:
        """Whether the device computed what the host did."""
        return self.error <= self.allowed  # which NaN is not


@dataclass(frozen=True)
class _Case:
    what: str
    allowed: float
    errors: Callable[[], Errors]


@dataclass(frozen=True)
class _Setting:
    names: list[str]
    sizes: Sizes

    @property
    def dtypes(self) -> list[str]:
        devices = resolve_devices(self.names) or ()
        return ["float32", "float64"] if all(map(has_float64, devices)) else ["float32"]


def checks(names: list[str], sizes: Sizes) -> Iterator[Check]:
    """Compare everything on the named devices with the host, in float64 there."""
    setting = _Setting(names, sizes)
    for group, cases in GROUPS.items():
        for case in cases(setting):
            try:
                for verb, error in case.errors():
                    yield Check(group, f"{verb}, {case.what}", float(error), case.allowed)
            except Exception as error:  # of a driver, a compiler or PyTorch: each is worth reporting
                yield Check(group, case.what, float("inf"), case.allowed, f"{type(error).__name__}: {error}")


# ---- products --------------------------------------------------------------------------------------------------------


def _products(setting: _Setting) -> Iterator[_Case]:
    """Every named kernel, in each precision, of dense and sparse rows, fused and not."""
    for kind, name in {kind: name for name, kind in reversed(NAMES.items())}.items():
        for dtype in setting.dtypes:
            dense, sparse = _rows(setting.sizes, dtype)
            cases: dict[str, tuple[Any, dict[str, Any]]] = {
                "dense rows": (dense, {"fuses": False}),
                "dense rows, fused": (dense, {}),
                "sparse rows": (sparse, {}),
            }
            if dtype == "float32":
                cases["dense rows, TF32"] = round_to_tf32(dense), {"precision": "tf32"}
            for what, (rows, options) in cases.items():
                run = partial(_errors_of_kernel, setting, kind(), rows, options)
                yield _Case(f"{name}, {dtype}, {what}", _PRODUCTS[dtype], run)
    dense, _ = _rows(setting.sizes, "float32")
    for name in dict.fromkeys(setting.names):  # each has the rows, and gives some to the others
        run = partial(_errors_of_tensor, setting, name, dense)
        yield _Case(f"gaussian, float32, a tensor on {name}", _PRODUCTS["float32"], run)


def _rows(sizes: Sizes, dtype: str) -> tuple[Array, Any]:
    rng = np.random.default_rng(0)
    sparse = sp.random_array((sizes.rows, 200), density=0.05, format="csr", rng=rng)
    return rng.standard_normal((sizes.rows, 6)).astype(dtype), sparse.astype(dtype)


def _errors_of_kernel(setting: _Setting, kernel: Any, rows: Any, options: dict[str, Any]) -> Errors:
    operator = DeviceOperator(kernel, rows, rows[: setting.sizes.centers], device=setting.names, **options)
    if options or sp.issparse(rows) or operator.fused:
        operator.block_size = setting.sizes.block
        yield from _errors(operator, rows)


def _errors(operator: DeviceOperator, rows: Any) -> Errors:
    """Compare each verb in two passes: in the second one, rows may have stayed on the device."""
    rng = np.random.default_rng(1)
    n, M = operator.shape
    V, U = (rng.standard_normal((size, 2)).astype(operator.dtype) for size in (M, n))
    K = operator.kernel(_dense(rows), _dense(operator.centers))
    size = np.abs(K)
    terms = size.T @ (np.abs(U) + size @ np.abs(V))
    for when in ("first pass", "second pass"):
        yield f"K V, {when}", _off(operator.matmat(V), K @ V, size @ np.abs(V))
        yield f"K' U, {when}", _off(operator.rmatmat(U), K.T @ U, size.T @ np.abs(U))
        for where, portable in (("there", True), ("here", False)):
            found = operator.sandwich(V, Rowwise(_residual, U, portable=portable))
            yield f"K'(U - K V) with U - K V made {where}, {when}", _off(found, K.T @ (U - K @ V), terms)


def _errors_of_tensor(setting: _Setting, name: str, X: Array) -> Errors:
    Z = X[: setting.sizes.centers]
    operator = DeviceOperator(Gaussian(1.0), as_torch(X).to(name), Z, device=setting.names)
    operator.block_size = setting.sizes.block
    V = np.random.default_rng(1).standard_normal((len(Z), 2)).astype(X.dtype)
    K = operator.kernel(_dense(X), _dense(Z))
    yield "K V", _off(to_host(operator.image(V)), K @ V, K @ np.abs(V))


def _residual(T: Any, U: Any) -> Any:
    return U - T


def _dense(rows: Any) -> Any:
    return np.asarray(rows.toarray() if sp.issparse(rows) else rows, dtype=np.float64)


def _off(found: Any, exact: Any, size: Any) -> float:
    return float(np.linalg.norm(found - exact) / np.linalg.norm(size))


# ---- memory, bits and streams ----------------------------------------------------------------------------------------


def _memory(setting: _Setting) -> Iterator[_Case]:
    """Blocks for which there is no memory: a kernel that says so, and on CUDA a limit of the allocator."""
    yield _Case("float32, a kernel without memory for large blocks", _PRODUCTS["float32"], partial(_refused, setting))
    if all(device.type == "cuda" for device in resolve_devices(setting.names) or ()):
        yield _Case("float32, a limit of CUDA's allocator", _PRODUCTS["float32"], partial(_limited, setting))


def _refused(setting: _Setting) -> Errors:
    X, _ = _rows(setting.sizes, "float32")
    largest = setting.sizes.block // 2

    def crowded(A: Array, B: Array) -> Array:
        if A.dtype == np.float32 and len(A) > largest:
            raise RuntimeError("out of memory, as check-device wants it")
        return np.asarray(Gaussian(1.0)(A, B))

    operator = DeviceOperator(crowded, X, X[: setting.sizes.centers], device=setting.names)
    operator.block_size = 2 * setting.sizes.block
    yield from _errors(operator, X)
    yield "blocks that stayed too large", float(operator.block_size > largest)


def _limited(setting: _Setting) -> Errors:
    torch = import_torch()
    devices = set(resolve_devices(setting.names) or ())
    X = np.random.default_rng(0).standard_normal((_CROWDED_ROWS, 6), dtype=np.float32)
    operator = DeviceOperator(Gaussian(1.0), X, X[:_CROWDED_CENTERS], device=setting.names, fuses=False)
    before = operator.block_size
    V = np.ones((_CROWDED_CENTERS, 1), dtype=np.float32)
    torch.cuda.empty_cache()
    for device in devices:
        total = torch.cuda.get_device_properties(device).total_memory
        limit = min(torch.cuda.memory_reserved(device) + _LITTLE, free_memory(device))
        torch.cuda.set_per_process_memory_fraction(limit / total, device)
    try:
        found = operator.matmat(V)
    finally:
        for device in devices:
            torch.cuda.set_per_process_memory_fraction(1.0, device)
    some = slice(None, None, 50)
    K = operator.kernel(_dense(X[some]), _dense(operator.centers))
    yield "K V", _off(found[some], K @ V, K @ V)
    yield "blocks that were not halved", float(operator.block_size >= before)


def _bits(setting: _Setting) -> Iterator[_Case]:
    """The same products again, by the same operator and by another."""
    for dtype in setting.dtypes:
        for what, options in {"unfused": {"fuses": False}, "fused if it can be": {}}.items():
            yield _Case(f"{dtype}, {what}", 0.0, partial(_changed_bits, setting, dtype, options))


def _changed_bits(setting: _Setting, dtype: str, options: dict[str, Any]) -> Errors:
    X, _ = _rows(setting.sizes, dtype)
    Z = X[: setting.sizes.centers]
    V = np.random.default_rng(1).standard_normal((len(Z), 2)).astype(dtype)
    found = []
    for _ in range(2):
        operator = DeviceOperator(Gaussian(1.0), X, Z, device=setting.names, **options)
        operator.block_size = setting.sizes.block
        found += [operator.sandwich(V) for _ in range(3)]
    yield "share of sums that differ in six passes", float(np.mean([again != found[0] for again in found]))


def _streams(setting: _Setting) -> Iterator[_Case]:
    """Rows of a file, which are read again in every pass."""
    for dtype in setting.dtypes:
        yield _Case(f"{dtype}, rows of a file", _PRODUCTS[dtype], partial(_streamed, setting, dtype))


def _streamed(setting: _Setting, dtype: str) -> Errors:
    X, _ = _rows(setting.sizes, dtype)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.npy"
        np.save(path, X)
        rows = open_files(path).X
        operator = DeviceOperator(Gaussian(1.0), rows, X[: setting.sizes.centers], device=setting.names).on(rows)
        operator.block_size = setting.sizes.block
        yield from _errors(operator, X)


# ---- factors and fits ------------------------------------------------------------------------------------------------


def _factors(setting: _Setting) -> Iterator[_Case]:
    """Factors of a matrix that is kept on the device, and tile by tile from the host; MPS makes none."""
    if "float64" not in setting.dtypes:
        return
    M = setting.sizes.factors
    for dtype in setting.dtypes:
        tile = 1 << ((M // 6).bit_length() - 1)
        budget = 8 * len(setting.names) * tile * tile * np.dtype(dtype).itemsize
        for what, bytes_there in {"as a whole": None, "tile by tile": budget}.items():
            allowed = 20 * M * float(np.finfo(dtype).eps)
            yield _Case(f"{dtype}, {M} centers, {what}", allowed, partial(_factored, setting, dtype, bytes_there))


def _factored(setting: _Setting, dtype: str, budget: int | None) -> Errors:
    devices = resolve_devices(setting.names)
    assert devices is not None
    there, here = TorchFactors(devices, budget), LapackFactors(1)
    M = setting.sizes.factors
    rng = np.random.default_rng(0)
    A = rng.standard_normal((M, M))
    given = np.asfortranarray((A @ A.T / M + np.eye(M)).astype(dtype))
    found, exact = given.copy(order="F"), np.asfortranarray(given, dtype=np.float64)
    if not there.cholesky(found, lower=False) or not here.cholesky(exact, lower=False):
        yield "a Cholesky factor that was not found", float("inf")
        return
    yield "Cholesky factor", _largest(np.triu(found), np.triu(exact))
    B = rng.standard_normal((M, 30)).astype(dtype)
    solved, right = np.asfortranarray(B), np.asfortranarray(B, dtype=np.float64)
    there.solve_upper_transposed(found, solved)
    here.solve_upper_transposed(exact, right)
    yield "solve with many columns", _largest(solved, right)
    for transposed in (False, True):
        x = there.triangles(found).solve(B[:, 0], lower=False, transposed=transposed)
        y = here.triangles(exact).solve(B[:, 0], lower=False, transposed=transposed)
        yield f"solve with {'its transpose' if transposed else 'the factor'}", _largest(x, y)
    found, exact = given.copy(order="F"), np.asfortranarray(given, dtype=np.float64)
    there.square_lower(found)
    here.square_lower(exact)
    yield "product of a triangle and its transpose", _largest(np.tril(found), np.tril(exact))


def _largest(found: Array, exact: Array) -> float:
    return float(np.abs(found - exact).max() / np.abs(exact).max())


def _fits(setting: _Setting) -> Iterator[_Case]:
    """A fit of each loss, beside the same one with device=None."""
    dtype = setting.dtypes[-1]
    for loss in LOSSES:
        yield _Case(f"{loss}, {dtype}", _FITS[dtype], partial(_fitted, setting, loss, dtype))


def _fitted(setting: _Setting, loss: str, dtype: str) -> Errors:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((setting.sizes.fits, 4)).astype(dtype)
    y = np.abs(np.sin(2 * X[:, 0]) + np.square(X[:, 1]))  # a mean that Poisson's loss can have
    given: dict[str, Any] = {"n_centers": 40, "penalty": 1e-3, "random_state": 0, "loss": loss}
    if loss == "squared":  # before it has converged, conjugate gradient multiplies every rounding
        given |= {"max_iter": 100, "tol": 1e-13 if dtype == "float64" else 1e-6}
    predictions = []
    for device in (None, setting.names):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            if loss in OF_LABELS:
                model: Any = FalkonClassifier(**given, device=device).fit(X, y > 1)
                predictions.append(model.decision_function(X))
            else:
                predictions.append(FalkonRegressor(**given, device=device).fit(X, y).predict(X))
    here, there = predictions
    yield "predictions", float(np.linalg.norm(there - here) / np.linalg.norm(here))


GROUPS: dict[str, Callable[[_Setting], Iterator[_Case]]] = {
    "products": _products,
    "out of memory": _memory,
    "repeated bits": _bits,
    "rows of a file": _streams,
    "factors": _factors,
    "fits": _fits,
}
