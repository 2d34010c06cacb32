"""Fused products by Triton: right in its interpreter, and compiled for GPUs without spills."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from gyrfalcon.cli import check_device
from gyrfalcon.cli.main import main
from gyrfalcon.kernels import Gaussian, Laplacian, Linear, Matern, RationalQuadratic
from gyrfalcon.operators import DeviceOperator, Rowwise

torch = pytest.importorskip("torch")
os.environ["TRITON_INTERPRET"] = "1"  # is read when Triton is imported, and when kernels are made and run
pytest.importorskip("triton")

from gyrfalcon.backends import triton_kernels, triton_tiles  # noqa: E402

del os.environ["TRITON_INTERPRET"]

pytestmark = [pytest.mark.devices, pytest.mark.usefixtures("one_thread")]

KERNELS = [
    Gaussian(1.3),
    Gaussian(np.linspace(0.5, 4, 7)),
    Laplacian(2.0),
    Laplacian(3.0, norm=1),
    Matern(1.5, nu=0.5),
    Matern(1.5, nu=1.5),
    Matern(1.5, nu=2.5),
    RationalQuadratic(1.5, alpha=0.3),
    RationalQuadratic(1.5, alpha=1e4),
]


@pytest.fixture
def fused(monkeypatch):
    """Fused products on the CPU, which nothing is known about yet; larger tiles, since each takes 10 ms or more."""
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setattr(triton_tiles, "FUSED_ON", {"cpu", "cuda"})
    monkeypatch.setattr(triton_tiles, "_checked", {})
    monkeypatch.setattr(triton_kernels, "TILE", 64)


def problem(n=60, M=40, d=7, k=2):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d), dtype=np.float32)
    Z = rng.standard_normal((M, d), dtype=np.float32)
    return X, Z, rng.standard_normal((M, k), dtype=np.float32), rng.standard_normal((n, k), dtype=np.float32)


def assert_right(found, exact, size):
    """Entries may be off by some roundings of the terms that they are sums of."""
    assert found.shape == exact.shape
    assert (np.abs(found - exact) <= 2e-5 * size).all()


def assert_products(operator, X, Z, V, U):
    """Compare the three verbs with those of the reference in float64."""
    X, Z, V, U = (part.astype(np.float64) for part in (X, Z, V, U))
    K = operator.kernel(X, Z)
    size = np.abs(K)
    assert_right(operator.matmat(V), K @ V, size @ np.abs(V))
    assert_right(operator.rmatmat(U), K.T @ U, size.T @ np.abs(U))
    assert_right(operator.sandwich(V), K.T @ (K @ V), size.T @ (size @ np.abs(V)))
    for portable in (True, False):
        found = operator.sandwich(V, Rowwise(lambda T, U: U - T, U, portable=portable))
        assert_right(found, K.T @ (U - K @ V), size.T @ (np.abs(U) + size @ np.abs(V)))


@pytest.mark.parametrize("kernel", KERNELS, ids=repr)
def test_products(fused, kernel):
    X, Z, V, U = problem()
    operator = DeviceOperator(kernel, X, Z, device="cpu")
    assert operator.arithmetic == "made again on cpu, fused"
    assert_products(operator, X, Z, V, U)


@pytest.mark.parametrize(
    ("n", "M", "d", "k"),
    [(1, 1, 1, 1), (1, 600, 2, 3), (513, 1, 1, 1), (17, 16, 3, 32), (530, 15, 1, 2), (9, 1025, 2, 1), (16, 33, 32, 2)],
)
def test_any_shape(fused, n, M, d, k):
    X, Z, V, U = problem(n, M, d, k)
    operator = DeviceOperator(Gaussian(1.5), X, Z, device=["cpu", "cpu"])
    assert operator.fused
    assert_products(operator, X, Z, V, U)


def test_the_size_of_tiles_does_not_matter(fused, monkeypatch):
    X, Z, V, U = problem(n=20, d=2)
    operator = DeviceOperator(Gaussian(1.5), X, Z, device="cpu")
    products = []
    for size in (64, 8):
        monkeypatch.setattr(triton_kernels, "TILE", size)
        products.append(np.concatenate([operator.matmat(V), operator.rmatmat(U)]))
    np.testing.assert_array_equal(*products)


def test_the_same_bits_again(fused):
    X, Z, V, _ = problem()
    first, second = (DeviceOperator(Matern(1.5), X, Z, device=["cpu"] * 3) for _ in range(2))
    expected = first.sandwich(V)
    np.testing.assert_array_equal(first.sandwich(V), expected)
    np.testing.assert_array_equal(second.sandwich(V), expected)


def test_offsets_and_duplicates_keep_their_digits(fused):
    X, Z, V, U = problem(d=3)
    X, Z = X + np.float32(1e3), Z + np.float32(1e3)
    X[:20] = Z[:20]
    assert_products(DeviceOperator(Laplacian(0.1), X, Z, device="cpu"), X, Z, V, U)


def test_more_columns_than_programs_should_sum(fused):
    X, Z, V, U = problem(n=20, k=triton_tiles.MOST_COLUMNS + 1)
    operator = DeviceOperator(Gaussian(1.5), X, Z, device="cpu")
    assert_products(operator, X, Z, V, U)
    tile = triton_tiles.MakeFusedTile(operator.kernel, Z, torch.device("cpu"))(torch.from_numpy(X))
    np.testing.assert_allclose(tile @ torch.from_numpy(V), operator.matmat(V), atol=1e-4)


def test_rows_that_are_not_finite(fused):
    X, Z, V, _ = problem()
    X[50, 2] = np.nan
    with pytest.raises(ValueError, match="row 50"):
        DeviceOperator(Gaussian(1.5), X, Z, device="cpu").matmat(V)


@pytest.mark.parametrize(
    "make",
    [
        lambda X: DeviceOperator(Gaussian(1.5), X.astype(np.float64), X[:9].astype(np.float64), device="cpu"),
        lambda X: DeviceOperator(Gaussian(1.5), np.tile(X, 5), np.tile(X[:9], 5), device="cpu"),
        lambda X: DeviceOperator(Gaussian(1.5), X, X[:9], device="cpu", precision="tf32"),
        lambda X: DeviceOperator(Linear(), X, X[:9], device="cpu"),
        lambda X: DeviceOperator(0.5 * Gaussian(1.5), X, X[:9], device="cpu"),
    ],
    ids=["float64", "35 features", "TF32", "another kernel", "a product"],
)
def test_who_is_not_fused(fused, make):
    assert not make(problem()[0]).fused


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


def test_the_check_compares_it(fused, capsys, monkeypatch):
    for name, number in {"_CHECKED_ROWS": 20, "_CHECKED_CENTERS": 5}.items():
        monkeypatch.setattr(check_device, name, number)
    arguments = ["check-device", "cpu", "--rows", "40", "--centers", "3", "--features", "2"]
    assert main(arguments) == 0
    out = capsys.readouterr().out
    assert "fused kernel: used\n" in out
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
        return lambda A, B, W, out, *args, **kwargs: out.zero_()


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


def test_a_moment_without_memory_says_nothing_of_the_kernel(fused, monkeypatch, recwarn):
    X, Z, V, U = problem()
    with monkeypatch.context() as patch:
        patch.setattr(triton_tiles, "_padded", crowded)
        operator = DeviceOperator(Gaussian(1.5), X, Z, device="cpu")
        assert not operator.fused
        assert_products(operator, X, Z, V, U)
    assert DeviceOperator(Gaussian(1.5), X, Z, device="cpu").fused
    assert not recwarn.list


def crowded(points):
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


def test_compiled_for_gpus_without_spills(tmp_path):
    script = Path(__file__).with_name("compile_for_gpus.py")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TRITON_CACHE_DIR": str(tmp_path)}
    run = subprocess.run([sys.executable, script], check=True, capture_output=True, text=True, env=environment)
    found = {(one["target"], one["profile"]): one for one in json.loads(run.stdout)}
    assert found.pop(("sm_80", "starved"))["spills"] > 0  # that spills would be seen
    assert len(found) == 3 * len(triton_kernels.PROFILES)
    for one in found.values():
        assert one["spills"] == 0, one
        assert 0 < one["registers"] <= 128, one  # so that 16 warps fit on a multiprocessor
