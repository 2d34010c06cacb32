"""Fused products by Triton: right in its interpreter, and compiled for GPUs without spills."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from gyrfalcon._utils import devices
from gyrfalcon._utils.devices import round_to_tf32
from gyrfalcon.cli import _device_checks, _device_speed
from gyrfalcon.cli.main import main
from gyrfalcon.kernels import (
    NAMES,
    ArcCosine,
    Gaussian,
    Laplacian,
    Linear,
    Matern,
    Polynomial,
    RationalQuadratic,
    Sigmoid,
)
from gyrfalcon.operators import DeviceOperator, Rowwise

torch = pytest.importorskip("torch")
triton = pytest.importorskip("triton")

import triton.language as tl  # noqa: E402

from gyrfalcon.backends import triton_kernels, triton_tiles  # noqa: E402

pytestmark = [pytest.mark.devices, pytest.mark.usefixtures("one_thread")]

KERNELS = [
    Gaussian(1.3),
    Gaussian(np.linspace(0.5, 4, 4)),
    Laplacian(2.0),
    Laplacian(3.0, norm=1),
    Matern(1.5, nu=0.5),
    Matern(1.5, nu=1.5),
    Matern(1.5, nu=2.5),
    RationalQuadratic(1.5, alpha=0.3),
    RationalQuadratic(1.5, alpha=40.0),
    RationalQuadratic(1.5, alpha=1e4),
    Linear(),
    Polynomial(1, 0.1, 1.0),
    Polynomial(4, 0.1, 1.0),
    Sigmoid(0.1, -0.2),
    ArcCosine(0),
    ArcCosine(1),
]
DTYPES = [np.float32, np.float64]
TOLERANCE = {np.dtype(np.float32): 2e-5, np.dtype(np.float64): 1e-13}


@pytest.fixture
def fused(monkeypatch):
    """Fused products on the CPU, which nothing is known about yet, in tiles that the interpreter has few of."""
    monkeypatch.setattr(triton_tiles, "FUSED_ON", {"cpu", "cuda"})
    monkeypatch.setattr(triton_tiles, "_checked", {})
    monkeypatch.setattr(triton_kernels, "TILES", dict.fromkeys(triton_kernels.TILES, (64, 64, 4)))


@pytest.fixture
def unchecked(fused, monkeypatch):
    """As `fused`, without the comparison before the first use, which a test has made."""
    monkeypatch.setattr(triton_tiles, "_problem", lambda *arguments: None)


@pytest.fixture(params=["inner", "dots"])
def method(request, monkeypatch):
    """How inner products are made in float32."""
    monkeypatch.setattr(triton_tiles, "has_fast_tf32", lambda device: request.param == "dots")
    return request.param


def problem(n=60, M=40, d=7, k=2, dtype=np.float32):
    rng = np.random.default_rng(0)
    return tuple(rng.standard_normal(shape).astype(dtype) for shape in ((n, d), (M, d), (M, k), (n, k)))


def assert_products(operator, X, Z, V, U):
    """Compare products with those of the reference in float64, but for roundings of the terms of sums.

    K'(U - K V) takes both directions of the kernel, once for several columns and once for one. U - K V is made on the
    device or on the host.
    """
    X, Z, V, U = (part.astype(np.float64) for part in (X, Z, V, U))
    K = operator.kernel(X, Z)
    size = np.abs(K)
    for k, portable in {V.shape[1]: True, 1: False}.items():
        found = operator.sandwich(V[:, :k], Rowwise(lambda T, U: U - T, U[:, :k], portable=portable))
        exact = K.T @ (U[:, :k] - K @ V[:, :k])
        assert found.shape == exact.shape
        terms = size.T @ (np.abs(U[:, :k]) + size @ np.abs(V[:, :k]))
        assert (np.abs(found - exact) <= TOLERANCE[operator.dtype] * terms).all()


@pytest.mark.parametrize(("dtype", "device"), [(np.float32, ["cpu"] * 3), (np.float64, "cpu")], ids=str)
@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_products(unchecked, kernel, dtype, device):
    X, Z, V, U = problem(40, 30, 4, dtype=dtype)
    X[3] = 0  # which has no angle
    operator = DeviceOperator(kernel, X, Z, device=device)
    assert operator.fused
    assert operator.arithmetic.endswith(", fused")
    assert_products(operator, X, Z, V, U)


@pytest.mark.parametrize("device", ["cpu", ["cpu"] * 3], ids=["one", "three"])
def test_each_verb(unchecked, device):
    X, Z, V, U = problem()
    operator = DeviceOperator(Gaussian(1.5), X, Z, device=device)
    K = operator.kernel(*(part.astype(np.float64) for part in (X, Z)))
    for found, exact in {
        "K V": (operator.matmat(V), K @ V),
        "K v": (operator.matmat(V[:, 0]), K @ V[:, 0]),
        "K' U": (operator.rmatmat(U), K.T @ U),
        "K' K V": (operator.sandwich(V), K.T @ (K @ V)),
    }.values():
        np.testing.assert_allclose(found, exact, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("kernel", "d"),
    [
        *((kernel, 4) for kernel in KERNELS if kernel.geometry in ("distance", "dot")),
        (Gaussian(3.0), 18),
        (Gaussian(3.0), 25),
        (Sigmoid(0.1, -0.2), 18),
    ],
    ids=repr,
)
def test_products_by_tensor_cores(unchecked, monkeypatch, kernel, d):
    monkeypatch.setattr(triton_tiles, "has_fast_tf32", lambda device: True)
    kernel = (
        Gaussian(np.linspace(2, 4, d))
        if np.ndim(kernel.length_scale if isinstance(kernel, Gaussian) else 0)
        else kernel
    )
    X, Z, V, U = problem(40, 30, d)
    operator = DeviceOperator(kernel, X, Z, device="cpu")
    assert operator.fused
    assert_products(operator, X, Z, V, U)


def test_differences_where_expanding_would_lose_digits(unchecked, monkeypatch):
    monkeypatch.setattr(triton_tiles, "expands", lambda kernel, centers: False)
    X, Z, V, U = problem(40, 30, 4)
    assert_products(DeviceOperator(Gaussian(1.3), X, Z, device="cpu"), X, Z, V, U)


@pytest.mark.parametrize(
    ("kernel", "dtype"), [*((kernel, np.float32) for kernel in KERNELS), (Sigmoid(0.1, -0.2), np.float64)], ids=repr
)
def test_the_comparison_before_the_first_use(fused, recwarn, kernel, dtype):
    assert triton_tiles.prepare(kernel, problem(d=4, dtype=dtype)[1], torch.device("cpu")) is not None
    assert not recwarn.list


def test_all_named_kernels_are_tried():
    assert {type(kernel) for kernel in KERNELS} == set(NAMES.values())


def test_numbers_of_tensor_cores_lose_nothing(fused, monkeypatch):
    """TF32 rounds none of them, and sums of their products are those of float32's."""
    monkeypatch.setattr(triton_tiles, "has_fast_tf32", lambda device: True)
    X, Z, _, _ = problem(d=18)
    make = triton_tiles.prepare(Linear(), Z, torch.device("cpu"))
    rows, centers = make(torch.from_numpy(X))._rows.values[: len(X)], make.centers.values[: len(Z)]
    for numbers in (rows, centers):
        np.testing.assert_array_equal(round_to_tf32(numbers), numbers)
    found = rows.double().numpy() @ centers.double().numpy().T
    x, z = X.astype(np.float64), Z.astype(np.float64)
    assert (np.abs(found - x @ z.T) <= 3 * 2.0**-22 * (np.abs(x) @ np.abs(z).T)).all()


@pytest.mark.parametrize(
    ("n", "M", "d", "k"),
    [(1, 1, 1, 1), (1, 600, 2, 3), (513, 1, 1, 1), (17, 16, 3, 32), (530, 15, 1, 2), (9, 1025, 2, 1), (16, 33, 33, 2)],
)
def test_any_shape(unchecked, method, n, M, d, k):
    X, Z, V, U = problem(n, M, d, k)
    operator = DeviceOperator(Gaussian(1.5 + d / 6), X, Z, device=["cpu", "cpu"])
    assert operator.fused
    assert_products(operator, X, Z, V, U)


# Most relative errors that PTX allows the instructions of NVIDIA's devices; that of a logarithm is absolute near 1
ERRORS = {"exp2": 2.0**-22, "sqrt": 2.0**-23, "rsqrt": 2.0**-22.4, "divide": 2.0**-23}


@pytest.fixture(params=[-1, 1], ids=["less", "more"])
def approximate(request, monkeypatch):
    """The interpreter with functions that are as wrong as a device's may be."""
    from triton.runtime.interpreter import InterpreterBuilder

    def wrong(name):
        function, off = getattr(np, name, inverse_root), np.float32(request.param * ERRORS[name])
        return lambda *arguments: function(*arguments) * (1 + off)

    def log2(x):
        return np.log2(x) + np.float32(request.param * 2.0**-22) * np.maximum(1, np.abs(np.log2(x)))

    def inverse_root(x):
        return 1 / np.sqrt(x)

    unary, binary = InterpreterBuilder.unary_op, InterpreterBuilder.binary_op
    unary_functions = {f"create_{name}": wrong(name) for name in ("exp2", "sqrt", "rsqrt")} | {"create_log2": log2}
    for name, function in unary_functions.items():
        monkeypatch.setattr(InterpreterBuilder, name, lambda self, x, function=function: unary(self, x, function))
    divide = wrong("divide")
    monkeypatch.setattr(InterpreterBuilder, "create_fdiv", lambda self, x, y: binary(self, x, y, divide))


def entries_of(kernel, s, *, ptx=False):
    """Return what a profile makes of s = |x - z|^2, or x'z, in float32, and exactly."""
    profile = triton_tiles._PROFILES[type(kernel)](kernel, np.dtype(np.float32))
    dot = kernel.geometry == "dot"
    h = (profile.factor**2 * s * (1 if dot else -0.5) + profile.offset).astype(np.float32)
    s = (h.astype(np.float64) - profile.offset) / profile.factor**2 * (1 if dot else -2)
    p, q = [*profile.parameters, 0.0, 0.0][:2]
    out = torch.empty(len(h))
    applied[(1,)](torch.from_numpy(h), out, p, q, triton_kernels.PROFILES[profile.name], ptx, N=len(h))
    return out.numpy().astype(np.float64), kernel.profile(s)


@triton.jit
def applied(H, out, p, q, profile: tl.constexpr, PTX: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, N)
    tl.store(out + i, profile(tl.load(H + i), p, q, PTX))


# What NVIDIA's instructions compute, for arguments of their names
INSTRUCTIONS = {
    "fma.rn": lambda x, y, z: x * y + z,
    "fma.rn.sat": lambda x, y, z: tl.minimum(tl.maximum(x * y + z, 0.0), 1.0),
    "mul": lambda x, y: x * y,
    "rcp.approx": lambda x: 1.0 / x,
    "lg2.approx": lambda x: tl.log2(x),  # looked up when it is called: the interpreter has put its own there
    "rsqrt.approx": lambda x: tl.rsqrt(x),
}


def interpreted(asm, constraints, arguments, dtype, is_pure, pack):
    """Compute what instructions of PTX do, which Triton's interpreter does not know."""
    assert constraints == ",".join(["=f", *["f"] * len(arguments)])
    values = {f"${i}": argument for i, argument in enumerate(arguments, 1)}
    for line in asm.strip("{} \n").split(";"):
        name, _, operands = line.strip().partition(" ")
        if ".ftz" in name:
            to, *given = operands.split(", ")
            compute = INSTRUCTIONS[name.replace(".ftz", "").removesuffix(".f32")]
            values[to] = compute(*(values[one] for one in given))
    return values["$0"]


@pytest.mark.parametrize(
    ("kernel", "most"),
    [
        (Gaussian(1.0), 3e-7),
        (Matern(1.0, nu=1.5), 5e-7),
        (Matern(1.0, nu=2.5), 5e-7),
        (RationalQuadratic(1.0, alpha=1.0), 7e-7),
        (RationalQuadratic(1.0, alpha=16.0), 4e-6),
        (RationalQuadratic(1.0, alpha=16.1), 8e-7),
        (RationalQuadratic(1.0, alpha=300.0), 8e-7),
    ],
    ids=repr,
)
@pytest.mark.parametrize("ptx", [False, True], ids=["any device", "NVIDIA"])
def test_entries_are_good_with_the_approximations_of_devices(fused, approximate, monkeypatch, kernel, most, ptx):
    monkeypatch.setattr(tl, "inline_asm_elementwise", interpreted)
    found, exact = entries_of(kernel, np.concatenate([np.geomspace(1e-6, 200.0, 4095), [0.0]]), ptx=ptx)
    np.testing.assert_allclose(found, exact, rtol=0, atol=most)


@pytest.mark.parametrize("ptx", [False, True], ids=["any device", "NVIDIA"])
def test_entries_of_points_that_are_far_apart_are_0(fused, monkeypatch, ptx):
    monkeypatch.setattr(tl, "inline_asm_elementwise", interpreted)
    for alpha in (16.1, 1e6):
        found, exact = entries_of(RationalQuadratic(1.0, alpha=alpha), np.geomspace(1e9, 1e37, 32), ptx=ptx)
        np.testing.assert_allclose(found, exact, rtol=0, atol=1e-15)


@pytest.mark.parametrize("ptx", [False, True], ids=["any device", "NVIDIA"])
def test_entries_of_sigmoid_keep_their_digits_near_0(fused, approximate, monkeypatch, ptx):
    monkeypatch.setattr(tl, "inline_asm_elementwise", interpreted)
    s = np.geomspace(1e-6, 20.0, 2048)
    found, exact = entries_of(Sigmoid(1.0, 0.0), np.concatenate([s, -s]), ptx=ptx)
    np.testing.assert_allclose(found, exact, rtol=2e-6, atol=0)


def test_sums_of_many_parts(unchecked, monkeypatch):
    monkeypatch.setattr(triton_tiles, "_LONGEST_SUM", 128)
    X, Z, V, U = problem(300, 200, 2)
    assert_products(DeviceOperator(Gaussian(1.5), X, Z, device="cpu"), X, Z, V, U)


def test_the_size_of_tiles_does_not_matter(unchecked, method, monkeypatch):
    X, Z, V, U = problem(n=20, d=2)
    products = []
    for tile in ((64, 64, 4), (16, 64, 4)):
        monkeypatch.setattr(triton_kernels, "TILES", dict.fromkeys(triton_kernels.TILES, tile))
        operator = DeviceOperator(Gaussian(1.5), X, Z, device="cpu")
        products.append(np.concatenate([operator.matmat(V), operator.rmatmat(U)]))
    np.testing.assert_allclose(*products, rtol=1e-5, atol=1e-6)


def test_the_same_bits_again(unchecked):
    X, Z, V, _ = problem()
    first, second = (DeviceOperator(Matern(1.5), X, Z, device=["cpu"] * 3) for _ in range(2))
    expected = first.sandwich(V)
    np.testing.assert_array_equal(first.sandwich(V), expected)
    np.testing.assert_array_equal(second.sandwich(V), expected)


def test_offsets_and_duplicates_keep_their_digits(unchecked):
    X, Z, V, U = problem(d=3)
    X, Z = X + np.float32(1e3), Z + np.float32(1e3)
    X[:20] = Z[:20]
    assert_products(DeviceOperator(Laplacian(0.1), X, Z, device="cpu"), X, Z, V, U)


def test_more_columns_than_programs_should_sum(unchecked):
    X, Z, V, U = problem(n=20, k=triton_tiles.MOST_COLUMNS + 1)
    operator = DeviceOperator(Gaussian(1.5), X, Z, device="cpu")
    assert_products(operator, X, Z, V, U)
    tile = triton_tiles.MakeFusedTile(operator.kernel, Z, torch.device("cpu"), "inner")(torch.from_numpy(X))
    np.testing.assert_allclose(tile @ torch.from_numpy(V), operator.matmat(V), atol=1e-4)


def test_rows_that_are_not_finite(fused):
    X, Z, V, _ = problem()
    X[50, 2] = np.nan
    with pytest.raises(ValueError, match="row 50"):
        DeviceOperator(Gaussian(1.5), X, Z, device="cpu").matmat(V)


@pytest.mark.parametrize(
    "make",
    [
        lambda X: DeviceOperator(Gaussian(9.0), np.tile(X, 37), np.tile(X[:9], 37), device="cpu"),
        lambda X: DeviceOperator(Gaussian(1.5), X, X[:9], device="cpu", precision="tf32"),
        lambda X: DeviceOperator(lambda A, B: A @ B.T, X, X[:9], device="cpu"),
        lambda X: DeviceOperator(0.5 * Gaussian(1.5), X, X[:9], device="cpu"),
    ],
    ids=["259 features", "TF32", "a kernel of a user", "a product"],
)
def test_who_is_not_fused(fused, make):
    assert not make(problem()[0]).fused


def test_the_device_decides(fused, monkeypatch):
    """Wide rows are fused where tensor cores are fast, and in float64 where that is fast; differences always are."""
    wide = [np.tile(problem(dtype=dtype)[0], 37) for dtype in DTYPES]
    monkeypatch.setattr(triton_tiles, "has_fast_tf32", lambda device: True)
    assert triton_tiles._method(Gaussian(9.0), wide[0], torch.device("cpu")) == "dots"
    assert triton_tiles._method(Laplacian(9.0), wide[0], torch.device("cpu")) == "squares"
    for fast in (True, False):
        monkeypatch.setattr(triton_tiles, "has_fast_float64", lambda device, fast=fast: fast)
        narrow = wide[1][:, :50]
        assert triton_tiles._method(Gaussian(9.0), narrow, torch.device("cpu")) == ("inner" if fast else None)
        assert triton_tiles._method(Laplacian(9.0, norm=1), wide[1], torch.device("cpu")) == "sizes"


@pytest.mark.parametrize(
    ("capability", "hip", "tf32", "float64"),
    [
        ((8, 0), None, True, True),
        ((9, 0), None, True, True),
        ((8, 9), None, False, False),
        ((9, 4), "6.0", False, True),
    ],
)
def test_what_devices_are_fast_at(monkeypatch, capability, hip, tf32, float64):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setattr(torch.version, "hip", hip)
    assert devices.has_fast_tf32(torch.device("cuda:0")) == tf32
    assert devices.has_fast_float64(torch.device("cuda:0")) == float64
    assert devices.has_fast_float64(torch.device("cpu"))
    assert not devices.has_fast_float64(torch.device("mps"))


def test_no_cpu_is_fused_unless_a_test_asks():
    X, Z, _, _ = problem()
    assert not DeviceOperator(Gaussian(1.5), X, Z, device="cpu").fused


def test_no_operation_mixes_devices(fused, monkeypatch):
    from pretended import pretend

    two = ["cuda:0", "cuda:1"]
    X, Z, V, U = problem()
    with pretend(monkeypatch) as devices:
        operator = DeviceOperator(Gaussian(1.5), X, Z, device=two)
        operator.block_size = 32
        assert operator.arithmetic == "made again on cuda:0, cuda:1, fused"
        assert_products(operator, X, Z, V, U)
    assert {torch.device(name) for name in two} <= devices.seen


def test_blocks_have_more_entries_where_they_are_not_in_memory(unchecked, monkeypatch):
    from pretended import pretend

    X = np.broadcast_to(np.float32([1, 2]), (5_000_000, 2))
    with pretend(monkeypatch):
        operator = DeviceOperator(Gaussian(1.5), X, np.arange(2000, dtype=np.float32).reshape(1000, 2), device="cuda")
        assert operator.fused
        rows = [
            operator._rows_for(columns) for columns in (1, triton_tiles.MOST_COLUMNS, triton_tiles.MOST_COLUMNS + 1)
        ]
    np.testing.assert_allclose(np.multiply(rows, 1000), [2**30, 2**30, 2**27], rtol=0.01)


def test_the_check_compares_it(fused, capsys, monkeypatch):
    monkeypatch.setattr(_device_checks, "NAMES", {"gaussian": Gaussian})
    monkeypatch.setattr(_device_checks, "GROUPS", {"products": _device_checks.GROUPS["products"]})
    monkeypatch.setattr(_device_checks, "SHORT", _device_checks.Sizes(rows=20, block=16, centers=5))
    monkeypatch.setattr(_device_speed, "_SMALL_BLOCKS", 1)
    arguments = ["check-device", "cpu", "--short", "--rows", "40", "--centers", "3", "--features", "2"]
    assert main(arguments) == 0
    out = capsys.readouterr().out
    assert "fused kernel: used\n" in out
    assert "a block on cpu, fused: rows_to_device" in out
    assert "40 rows, 3 centers, 18 features in float32" in out
    assert "rows, fused)" in out
    monkeypatch.setattr(triton_tiles, "_checked", {})
    monkeypatch.setattr(triton_kernels, "products", Broken())
    assert main(arguments) == 0
    assert "fused kernel: not used, cpu makes Gaussian(length_scale=1.0) by PyTorch" in capsys.readouterr().out


# ---- what can go wrong -----------------------------------------------------------------------------------------------


def broken(*args, **kwargs):
    raise RuntimeError("Failed to find C compiler.")


class Broken:
    def __getitem__(self, grid):
        return broken


class Wrong:
    """Sums of nothing."""

    def __getitem__(self, grid):
        return lambda A, B, NA, NB, W, out, *args, **kwargs: out.zero_()


@pytest.mark.parametrize(
    ("kernels", "words"), [(Broken(), "Failed to find C compiler"), (Wrong(), "its products are off by 1")]
)
def test_a_kernel_that_does_not_work_is_not_used(fused, monkeypatch, recwarn, kernels, words):
    monkeypatch.setattr(triton_kernels, "products", kernels)
    X, Z, V, U = problem()
    for _ in range(2):
        operator = DeviceOperator(Gaussian(1.5), X, Z, device=["cpu", "cpu"])
        assert operator.arithmetic == "made again on cpu, cpu"
    assert_products(operator, X, Z, V, U)
    (warning,) = recwarn.list
    assert str(warning.message).startswith(
        "cpu makes Gaussian(length_scale=1.5) by PyTorch, without the fused kernel: "
    )
    assert words in str(warning.message)
    assert warning.filename == __file__


def test_a_kernel_that_does_not_work_says_nothing_of_others(fused, monkeypatch, recwarn):
    def problem_of(kernel, centers, device, method):
        fails = isinstance(kernel, Matern) and kernel.nu == 1.5 and centers.dtype == np.float32
        return "as a test wants it" if fails else None

    monkeypatch.setattr(triton_tiles, "_problem", problem_of)
    for dtype in DTYPES:
        X, Z, _, _ = problem(dtype=dtype)
        used = [DeviceOperator(kernel, X, Z, device="cpu").fused for kernel in (Matern(), Matern(nu=2.5), Gaussian())]
        assert used == [dtype == np.float64, True, True]
    assert len(recwarn.list) == 1


def test_a_moment_without_memory_says_nothing_of_the_kernel(fused, monkeypatch, recwarn):
    X, Z, V, U = problem()
    with monkeypatch.context() as patch:
        patch.setattr(triton_tiles.MakeFusedTile, "_padded", crowded)
        operator = DeviceOperator(Gaussian(1.5), X, Z, device="cpu")
        assert not operator.fused
        assert_products(operator, X, Z, V, U)
    assert DeviceOperator(Gaussian(1.5), X, Z, device="cpu").fused
    assert not recwarn.list


def crowded(*args):
    raise torch.cuda.OutOfMemoryError("CUDA out of memory, as a test wants it")


def test_triton_is_optional_and_not_imported_without_a_gpu(tmp_path):
    (tmp_path / "triton.py").write_text("raise ImportError('there is no Triton here')")
    code = """
import sys, warnings
import numpy as np
from gyrfalcon.backends import triton_tiles
from gyrfalcon.operators import DeviceOperator
X = np.random.default_rng(0).standard_normal((90, 3), dtype=np.float32)
expected = DeviceOperator("gaussian", X, X[:5], device="cpu").matmat(np.ones(5))
assert "triton" not in sys.modules and "gyrfalcon.backends.triton_kernels" not in sys.modules
triton_tiles.FUSED_ON.add("cpu")
with warnings.catch_warnings(record=True) as caught:
    found = [DeviceOperator("gaussian", X, X[:5], device="cpu").matmat(np.ones(5)) for _ in range(2)]
assert len(caught) == 1 and "there is no Triton here" in str(caught[0].message), caught
np.testing.assert_array_equal(found, [expected, expected])
"""
    path = os.pathsep.join([str(tmp_path), *sys.path])
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONPATH": path})


# ---- compiled --------------------------------------------------------------------------------------------------------


# What Triton 3.9 makes of the kernels, by compile_for_gpus.py: more instructions are a slower kernel
RECORDED = json.loads(Path(__file__).with_name("compiled_kernels.json").read_text())
# Most instructions for an entry of K with 18 features, made and multiplied with one column
BARS = {"inner": 33, ("sm_80", "dots"): 18, ("sm_90", "dots"): 12}
# Profiles that take more, with what they take: docs/devices.md counts them one by one. "inner" is for devices without
# tensor cores that are fast in TF32, so that neither of the first two is what is used on sm_80
ABOVE = {
    ("sm_80", "inner", "matern_3"): 33.3,
    ("sm_80", "inner", "rational_quadratic_large"): 35.5,
    ("sm_80", "inner", "sigmoid"): 36.2,
    ("sm_89", "inner", "sigmoid"): 36.2,
    ("sm_90", "inner", "sigmoid"): 36.2,
    ("sm_120", "inner", "sigmoid"): 35.0,
    ("sm_90", "dots", "sigmoid"): 14.8,
}


def variant(one):
    return tuple(one[name] for name in ("target", "method", "profile", "dtype", "columns"))


def test_what_is_recorded_has_every_profile_and_keeps_the_bars():
    for dtype in ("fp32", "fp64"):
        profiles = set(triton_kernels.PROFILES) - ({"rational_quadratic_large"} if dtype == "fp64" else set())
        assert {one["profile"] for one in RECORDED if one["dtype"] == dtype} == profiles
    assert {one["target"] for one in RECORDED} == {"sm_80", "sm_89", "sm_90", "sm_120", "gfx942"}
    assert not any(one["spills"] for one in RECORDED)
    seen = 0
    for one in RECORDED:
        key, count = (one["target"], one["method"]), one.get("instructions")
        if one["dtype"] == "fp32" and count is not None and one["method"] in ("inner", "dots"):
            most = BARS.get(key, BARS.get(one["method"]))
            assert count <= ABOVE.get((*key, one["profile"]), most), one
            seen += 1
    assert seen >= 30


@pytest.mark.slow
def test_compiled_for_gpus_without_spills(tmp_path):
    script = Path(__file__).with_name("compile_for_gpus.py")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TRITON_CACHE_DIR": str(tmp_path)}
    del environment["TRITON_INTERPRET"]
    run = subprocess.run([sys.executable, script], check=True, capture_output=True, text=True, env=environment)
    found = {method: [] for method in ("starved", "launched", "compiled")}
    for one in json.loads(run.stdout):
        found[one["method"] if one["method"] in found else "compiled"].append(one)
    assert found["starved"][0]["spills"] > 0  # that spills would be seen
    # 600 rows and 300 centers, K v and K'u with one column and with two: programs for as many rows, and parts of a sum
    launched = [(one["target"], one["grid"][0], one["warps"]) for one in found["launched"]]
    assert launched == [
        *(("sm_80", programs, 8) for programs in (5 * 1, 3 * 1, 5 * 6, 3 * 10)),
        *(("sm_89", programs, 4) for programs in (75 * 1, 38 * 1, 75 * 1, 38 * 2)),
    ]
    recorded = {variant(one): one for one in RECORDED}
    for one in found["compiled"]:
        assert one["spills"] == 0, one
        assert 0 < one["registers"] <= 255, one
        most = recorded[variant(one)].get("instructions")
        if most is not None:
            assert 0 < one["instructions"] <= most, one
