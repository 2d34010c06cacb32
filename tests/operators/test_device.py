"""DeviceOperator: several devices, too little memory, and what can break; and that torch stays optional."""

from __future__ import annotations

import inspect
import subprocess
import sys
from functools import partial

import numpy as np
import pytest

import gyrfalcon
from gyrfalcon import KernelOperator
from gyrfalcon._utils import copies, devices
from gyrfalcon._utils.copies import Fetched
from gyrfalcon._utils.devices import free_memory, is_out_of_memory, resolve_devices, round_to_tf32
from gyrfalcon._utils.precision import matmul_precision
from gyrfalcon.backends import torch_tiles, triton_tiles
from gyrfalcon.kernels import ArcCosine, CallableKernel, Gaussian, Laplacian, Linear, Matern, Polynomial
from gyrfalcon.losses import (
    Hinge,
    Huber,
    Logistic,
    Poisson,
    Quantile,
    Softmax,
    Squared,
    SquaredEpsilonInsensitive,
    SquaredHinge,
)
from gyrfalcon.operators import DeviceOperator, Rowwise, _lanes, make_operator
from gyrfalcon.operators.features import FeatureOperator
from gyrfalcon.operators.keeping import Halving
from gyrfalcon.solvers import newton_step

torch = pytest.importorskip("torch")

pytestmark = [pytest.mark.devices, pytest.mark.usefixtures("one_thread")]

KERNEL = Gaussian(1.5) + Laplacian(2.0) * Polynomial(2, 0.1) + Laplacian(2.0, norm=1) + 0.1 * ArcCosine()
TWO = ["cuda:0", "cuda:1"]
TOLERANCE = {np.float32: 2e-6, np.float64: 1e-13}


@pytest.fixture
def cuda(monkeypatch):
    """Two CUDA devices that make K by PyTorch; fused products, for which an interpreter runs, have their own file."""
    from pretended import pretend

    monkeypatch.setattr(triton_tiles, "FUSED_ON", set())
    with pretend(monkeypatch) as devices:
        yield devices


def problem(n=1500, M=20, d=4, dtype=np.float32):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d)).astype(dtype)
    return X, X[:M] + 0, rng.standard_normal((M, 2)), rng.standard_normal((n, 2)), rng.random(n)


def curve(T, Y, w):
    return w[:, None] * (Y - np.tanh(T))


def squared_curve(T, Y, w):
    return w[:, None] * (Y - T * (T * T).sum(1)[:, None])


def all_products(operator, V, U, w):
    return [
        operator.matmat(V),
        operator.rmatmat(U),
        operator.sandwich(V),
        operator.sandwich(V, w),
        operator.sandwich(V, Rowwise(curve, U, w)),
        operator.sandwich(V, Rowwise(squared_curve, U, w, portable=True)),
        operator.sandwich(V, lambda at, T: U[at] - T),
        *products_with_image(operator, V, Rowwise(squared_curve, U, w, portable=True)),
    ]


def products_with_image(operator, V, weight):
    image = np.full((operator.shape[0], V.shape[1]), np.nan, operator.dtype)
    return operator.sandwich(V, weight, KV=image), image


def not_keeping(operator):
    """Let an operator read its rows in every pass, as one does whose rows do not fit."""
    operator._may_keep = False
    return operator


def assert_alike(found, expected, tolerance):
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=tolerance * np.abs(other).max())


# ---- several devices -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=lambda t: t.__name__)
@pytest.mark.parametrize("keeps", [False, True])
def test_no_operation_mixes_devices(cuda, dtype, keeps):
    X, Z, V, U, w = problem(dtype=dtype)
    there = DeviceOperator(KERNEL, X, Z, device=TWO)
    there.block_size, there._may_keep = 300, keeps
    here = KernelOperator(KERNEL, X, Z, memory_budget=0)
    for _ in range(2):
        assert_alike(all_products(there, V, U, w), all_products(here, V, U, w), TOLERANCE[dtype])
    assert {torch.device(name) for name in TWO} <= cuda.seen
    assert there.passes == 16
    assert there.arithmetic == "made again on cuda:0, cuda:1"


def test_sparse_rows_and_foreign_kernels_mix_no_devices(cuda):
    import scipy.sparse as sp

    X = sp.random_array((700, 90), density=0.05, format="csr", rng=np.random.default_rng(0))
    for kernel in (KERNEL, Gaussian(np.linspace(1, 2, 90)), Gaussian(1.0) + (lambda A, B: np.asarray((A @ B.T) ** 2))):
        dense = DeviceOperator(kernel, X.toarray(), X[:9].toarray(), device=TWO)
        assert_alike([dense.matmat(np.ones(9))], [kernel(X.toarray(), X[:9].toarray()).sum(axis=1)], 1e-13)
        if kernel is KERNEL or isinstance(kernel, Gaussian):
            sparse = DeviceOperator(kernel, X, X[:9], device=TWO)
            assert_alike([sparse.matmat(np.ones(9))], [dense.matmat(np.ones(9))], 1e-13)


@pytest.mark.parametrize("loss", [Logistic(), Softmax()], ids=repr)
def test_arithmetic_of_losses_runs_on_the_devices(cuda, loss):
    X, Z, V, U, _ = problem(dtype=np.float64)
    at_f = loss.curvature_at(np.sign(U), U)
    seen = set()

    def function(T, *parts):
        seen.update(one.device for one in (T, *parts))
        return at_f.function(T, *parts)

    there = DeviceOperator(KERNEL, X, Z, device=TWO)
    found = there.sandwich(V, Rowwise(function, *at_f.arrays, portable=at_f.portable))
    assert seen == {torch.device(name) for name in TWO}
    T = KERNEL(X, Z) @ V
    assert_alike([found], [KERNEL(X, Z).T @ loss.curvature(np.sign(U), U, T)], TOLERANCE[np.float64])


ALL_LOSSES = [
    Logistic(),
    Softmax(),
    Huber(0.3),
    Huber(np.array([0.3, 0.5])),
    Quantile(0.3, 0.1),
    Quantile([0.2, 0.9], np.array([0.1, 0.2])),
    Poisson(),
    Squared(),
    SquaredHinge(),
    Hinge(0.1),
    SquaredEpsilonInsensitive(np.array([0.1, 0.2])),
]


@pytest.mark.parametrize("loss", ALL_LOSSES, ids=repr)
@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=lambda t: t.__name__)
def test_first_derivatives_of_losses_run_on_the_devices(cuda, loss, dtype):
    X, Z, V, U, _ = problem(dtype=dtype)
    V /= 10  # exp of large numbers would be all that counts
    y = np.sign(U) if isinstance(loss, Logistic | SquaredHinge | Hinge) else np.abs(U)
    offset = np.array([0.3, -0.2])
    seen = set()

    def function(T, y):
        seen.add(T.device)
        return newton_step._slopes(loss, offset, T, y)

    there = DeviceOperator(KERNEL, X, Z, device=TWO)
    there.block_size = 300
    cuda.fetched.clear()
    found = there.sandwich(V, Rowwise(function, y, portable=loss.portable))
    assert seen == {torch.device(name) for name in TWO}
    assert all(len(shape) != 2 or shape[0] == 20 for shape in cuda.fetched)  # the sums alone
    K = KERNEL(X.astype(np.float64), Z.astype(np.float64))
    expected = K.T @ loss.gradient(y, K @ V + offset)
    assert_alike([found], [expected], 1e-13 if dtype == np.float64 else 1e-5)


def test_losses_of_users_run_on_the_host():
    class Mine(Logistic):
        def gradient(self, y, f):
            assert isinstance(f, np.ndarray)
            return super().gradient(y, f)

    class There(Logistic):
        portable = True

    assert Logistic().portable
    assert There().portable
    assert not Mine().portable
    X, y = problem(300)[0], np.arange(300) % 2
    model = gyrfalcon.FalkonClassifier(loss=Mine(), n_centers=20, penalty=1e-3, device="cpu")
    assert model.fit(X, y).predict(torch.tensor(X)).shape == (300,)


def test_a_mixture_would_be_noticed(cuda):
    from pretended import MixedDevicesError

    one = torch.ones(2, device="cuda:0")
    with pytest.raises(MixedDevicesError):
        one + torch.ones(2)


@pytest.mark.parametrize(
    ("kind", "wait", "words"),
    [("Stream", "wait_stream", "the result of a launch"), ("Event", "synchronize", "a buffer that is being copied")],
)
def test_a_missing_wait_would_be_noticed(cuda, monkeypatch, kind, wait, words):
    import pretended

    X, Z, V, _, _ = problem()
    there = not_keeping(DeviceOperator(KERNEL, X, Z, device=TWO))
    there.block_size = 100
    monkeypatch.setattr(getattr(pretended, kind), wait, lambda *arguments: None)
    with pytest.raises(pretended.OrderError, match=words):
        there.sandwich(V)


def test_a_product_that_is_read_too_early_would_be_noticed(cuda):
    from pretended import OrderError

    product = Fetched(torch.ones((2, 2), device="cuda:0"))
    with pytest.raises(OrderError, match="before the host has waited for it"):
        product._host.numpy()
    assert product.array().sum() == 4


def test_rows_that_fit_stay_on_the_devices(cuda):
    X, Z, V, U, w = problem()
    reads = 0

    class Counted(gyrfalcon.sources.ArrayRows):
        def blocks(self, size):
            nonlocal reads
            reads += 1
            return super().blocks(size)

    there = DeviceOperator(KERNEL, Counted(X), Z, device=TWO)
    first, second = all_products(there, V, U, w), all_products(there, V, U, w)
    assert reads == 1
    for one, again in zip(first, second, strict=True):
        np.testing.assert_array_equal(one, again)
    other = there.on(X[:100])
    other.matmat(V)
    assert other._kept is None


@pytest.mark.parametrize(("free", "n"), [(1 << 12, 300), (1 << 20, 1500)])
def test_little_memory_makes_small_blocks_and_keeps_no_rows(monkeypatch, free, n):
    from pretended import pretend

    X, Z, V, U, w = problem(n)
    with pretend(monkeypatch, free=free // 2, reserved=free // 2):
        assert free_memory(torch.device("cuda:0")) == free
        there = DeviceOperator(KERNEL, X, Z, device=TWO)
        assert there.block_size == (32 if free == 1 << 12 else 768)
        assert there._may_keep == (free == 1 << 20)
        expected = all_products(KernelOperator(KERNEL, X, Z), V, U, w)
        assert_alike(all_products(there, V, U, w), expected, TOLERANCE[np.float32])


@pytest.mark.parametrize("frees", [(9 << 30, 16 << 30), (100_000_000, 101_000_000)], ids=["much", "little"])
def test_blocks_do_not_depend_on_who_else_uses_the_memory(monkeypatch, frees):
    """Nor, if little is left, on figures that are not powers of two."""
    from pretended import pretend

    X = np.broadcast_to(np.float64([1, 2]), (5_000_000, 2))
    sizes = set()
    for free in frees:
        with pretend(monkeypatch, free=free):
            sizes.add(DeviceOperator("gaussian", X, np.arange(200.0).reshape(100, 2), device="cuda").block_size)
    assert len(sizes) == 1


def test_the_precision_of_products_is_set_once_a_pass(monkeypatch):
    """Setting it for each product of each block would take the host as long as launching them."""
    from gyrfalcon._utils import precision

    X, Z, V, U, w = problem()
    there = DeviceOperator(KERNEL, X, Z, device=["cpu"] * 2)
    there.block_size = 100
    times, set_ = [], precision._set
    monkeypatch.setattr(precision, "_set", lambda name: (times.append(name), set_(name)))
    for products in (
        lambda: there.matmat(V),
        lambda: there.rmatmat(U),
        lambda: there.sandwich(V),
        lambda: there.sandwich(V, Rowwise(squared_curve, U, w, portable=True)),
    ):
        times.clear()
        products()
        assert times == ["ieee"]


@pytest.mark.parametrize("devices", ["cpu", ["cpu"] * 3], ids=str)
def test_the_same_bits_on_the_same_devices(devices):
    X, Z, V, U, w = problem(5000)
    one, again = (all_products(DeviceOperator(KERNEL, X, Z, device=devices), V, U, w) for _ in range(2))
    for first, second in zip(one, again, strict=True):
        np.testing.assert_array_equal(first, second)


# ---- what can go wrong -----------------------------------------------------------------------------------------------


def test_out_of_memory_halves_the_blocks(cuda):
    X, Z, V, U, w = problem()
    expected = all_products(KernelOperator(KERNEL, X, Z), V, U, w)
    for keeps in (False, True):
        there = DeviceOperator(KERNEL, X, Z, device=TWO)
        there._may_keep, there.block_size, cuda.room = keeps, 700, 200
        assert_alike(all_products(there, V, U, w), expected, TOLERANCE[np.float32])
        assert there.block_size == 175
        assert there.passes == 8


def test_rows_stay_where_smaller_blocks_suffice(cuda):
    """A first pass that runs out of memory does not make every later one read and copy the rows again."""
    X, Z, V, U, w = problem()
    expected = all_products(KernelOperator(KERNEL, X, Z), V, U, w)
    there = DeviceOperator(KERNEL, X, Z, device=TWO)
    there.block_size, cuda.room = 700, 200
    assert_alike(all_products(there, V, U, w), expected, TOLERANCE[np.float32])
    assert there._kept is not None
    cuda.sent.clear()
    assert_alike(all_products(there, V, U, w), expected, TOLERANCE[np.float32])
    assert not any(shape[-1:] == (4,) for shape in cuda.sent)


def test_rows_are_kept_once_if_a_product_did_not_come_back(cuda, monkeypatch):
    X, Z, V, U, w = problem()
    there = DeviceOperator(KERNEL, X, Z, device=TWO)
    products = _lanes.chunked_products
    monkeypatch.setattr(_lanes, "chunked_products", lambda K, U: products(K, U) if len(K) <= 250 else out_of_memory())
    expected = KernelOperator(KERNEL, X, Z).sandwich(V, Rowwise(curve, U, w))
    for _ in range(2):
        assert_alike([there.sandwich(V, Rowwise(curve, U, w))], [expected], TOLERANCE[np.float32])
    assert sum(len(X) for _, _, X in there._kept) == 1500


def test_the_budget_of_the_host_does_not_decide_for_devices(cuda):
    X, Z, V, _, _ = problem()
    there = DeviceOperator(KERNEL, X, Z, device=TWO, memory_budget=0)
    there.matmat(V)
    assert there._kept is not None
    assert not DeviceOperator(KERNEL, X, Z, device="cpu", memory_budget=0)._may_keep


def out_of_memory(*args):
    raise torch.cuda.OutOfMemoryError("CUDA out of memory, as a test wants it")


@pytest.mark.parametrize("name", ["begin", "total"])
@pytest.mark.parametrize("times", [1, 3, 9])
def test_out_of_memory_beside_blocks(cuda, monkeypatch, name, times):
    """While V goes up or sums come back: it is tried again, without the rows if they are there, and then refused."""
    X, Z, V, _, w = problem()
    expected = KernelOperator(KERNEL, X, Z).sandwich(V, w)
    there = DeviceOperator(KERNEL, X, Z, device=TWO)
    there.sandwich(V, w)
    method, left = getattr(_lanes.Lane, name), [None] * times

    def crowded(lane, *args):
        return out_of_memory(left.pop()) if left else method(lane, *args)

    monkeypatch.setattr(_lanes.Lane, name, crowded)
    if times == 9:
        with pytest.raises(MemoryError, match=r"does not fit in its memory, of which .* 20 centers: use fewer centers"):
            there.sandwich(V, w)
        return
    assert_alike([there.sandwich(V, w)], [expected], TOLERANCE[np.float32])
    assert (there._kept is None) == (times == 3)


def test_rows_blocks_and_factors_share_the_memory(monkeypatch):
    from gyrfalcon.preconditioners.torch_factors import TorchFactors
    from pretended import pretend

    X, Z, _, _, _ = problem(n=30_000)
    buffer = np.empty((300, 300), order="F")  # 0.72 MB, beside 0.48 MB of rows
    cuda = torch.device("cuda:0")
    with pretend(monkeypatch, free=1_500_000):
        assert TorchFactors([cuda]).triangles(buffer).kept_share == 1
        there = DeviceOperator(KERNEL, X, Z, device="cuda:0")
        assert there._may_keep
        assert TorchFactors([cuda]).triangles(buffer).kept_share == 0
        del there
        triangles = TorchFactors([cuda]).triangles(buffer)
        assert triangles.kept_share == 1
        assert not DeviceOperator(KERNEL, X, Z, device="cuda:0")._may_keep


def test_out_of_memory_with_rows_that_stay(cuda):
    X, Z, V, U, w = problem()
    expected = all_products(KernelOperator(KERNEL, X, Z), V, U, w)
    there = DeviceOperator(KERNEL, X, Z, device=TWO)
    all_products(there, V, U, w)
    cuda.room = 100
    assert_alike(all_products(there, V, U, w), expected, TOLERANCE[np.float32])
    assert there.block_size <= 100
    assert there._kept is not None


def test_out_of_memory_when_a_product_comes_back(cuda, monkeypatch):
    X, Z, V, U, w = problem()
    there = not_keeping(DeviceOperator(KERNEL, X, Z, device=TWO))
    products = _lanes.chunked_products
    monkeypatch.setattr(_lanes, "chunked_products", lambda K, U: products(K, U) if len(K) <= 250 else fail())

    def fail():
        raise torch.cuda.OutOfMemoryError("CUDA out of memory, as a test wants it")

    expected = KernelOperator(KERNEL, X, Z).sandwich(V, Rowwise(curve, U, w))
    assert_alike([there.sandwich(V, Rowwise(curve, U, w))], [expected], TOLERANCE[np.float32])
    assert there.block_size < 250


def test_rows_that_stay_are_given_up_before_the_pass(cuda, monkeypatch):
    """They take the memory that the smallest block needs."""
    X, Z, V, U, w = problem()
    expected = all_products(KernelOperator(KERNEL, X, Z), V, U, w)
    there = DeviceOperator(KERNEL, X, Z, device=TWO)
    all_products(there, V, U, w)
    size, tile = there.block_size, there._lanes[1].tile

    def crowded(X):
        if there._kept is not None:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory, as a test wants it")
        return tile(X)

    monkeypatch.setattr(there._lanes[1], "_whole", crowded)
    assert_alike(all_products(there, V, U, w), expected, TOLERANCE[np.float32])
    assert there._kept is None
    assert there.block_size == size
    assert there.passes == 16


@pytest.mark.parametrize("size", [32, 200])
def test_the_block_that_waits_makes_room_for_the_next(cuda, monkeypatch, size):
    X, Z, V, U, w = problem()
    there = not_keeping(DeviceOperator(KERNEL, X, Z, device=TWO))
    there.block_size = size
    upload_rows = _lanes.Lane.upload_rows

    def crowded(lane, rows):
        if lane.waiting is not None:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory, as a test wants it")
        return upload_rows(lane, rows)

    monkeypatch.setattr(_lanes.Lane, "upload_rows", crowded)
    expected = all_products(KernelOperator(KERNEL, X, Z), V, U, w)
    assert_alike(all_products(there, V, U, w), expected, TOLERANCE[np.float32])
    assert there.block_size == size


@pytest.mark.parametrize(
    "words",
    [
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "cusolver error: CUSOLVER_STATUS_ALLOC_FAILED, when calling `cusolverDnCreate(handle)`",
        "[enforce fail at alloc_cpu.cpp:124] DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes",
        "MPS backend out of memory (MPS allocated: 1 GB)",
        "CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
        "Invalid buffer size: 4.50 GiB",
    ],
)
def test_words_for_out_of_memory(words):
    assert is_out_of_memory(RuntimeError(words))
    assert not is_out_of_memory(RuntimeError("CUBLAS_STATUS_EXECUTION_FAILED"))


def refusing_buffers(monkeypatch, error):
    """Let the buffers for rows find no memory three times, one more than there are buffers."""
    host_buffer, left = copies.host_buffer, [error] * 3

    def refuse(shape, dtype):
        if len(shape) == 1 and left:
            raise left.pop()
        return host_buffer(shape, dtype)

    monkeypatch.setattr(copies, "host_buffer", refuse)


def test_no_buffer_is_lost_where_the_host_runs_out_of_memory(cuda, monkeypatch):
    X, Z, V, U, w = problem()
    there = not_keeping(DeviceOperator(KERNEL, X, Z, device=TWO))
    there.block_size = 400
    refusing_buffers(monkeypatch, RuntimeError("DefaultCPUAllocator: can't allocate memory, as a test wants it"))
    expected = all_products(KernelOperator(KERNEL, X, Z), V, U, w)
    assert_alike(all_products(there, V, U, w), expected, TOLERANCE[np.float32])
    assert there.block_size == 50


def test_no_buffer_is_lost_by_an_interrupt(cuda, monkeypatch):
    X, Z, V, U, w = problem()
    there = not_keeping(DeviceOperator(KERNEL, X, Z, device=TWO))
    refusing_buffers(monkeypatch, KeyboardInterrupt())
    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            there.matmat(V)
    expected = all_products(KernelOperator(KERNEL, X, Z), V, U, w)
    assert_alike(all_products(there, V, U, w), expected, TOLERANCE[np.float32])


def test_too_little_memory_for_any_block(cuda):
    X, Z, V, _, _ = problem()
    there = DeviceOperator(KERNEL, X, Z, device=TWO)
    cuda.room = 10
    with pytest.raises(MemoryError, match=r"rows \d+ to \d+ of 1500 on cuda:0 do not fit .* 20 centers: use fewer"):
        there.matmat(V)
    assert there.passes == 0


def test_memory_that_cannot_be_pinned(cuda):
    X, Z, V, U, w = problem()
    cuda.pins = False
    expected = all_products(KernelOperator(KERNEL, X, Z), V, U, w)
    assert_alike(all_products(DeviceOperator(KERNEL, X, Z, device=TWO), V, U, w), expected, TOLERANCE[np.float32])
    cuda.pins = True
    DeviceOperator(KERNEL, X, Z, device=TWO).matmat(V)
    assert cuda.pinned > 0


def test_an_error_of_one_device_ends_the_pass(cuda):
    X, Z, V, U, w = problem()
    there = DeviceOperator(KERNEL, X, Z, device=TWO)
    there.block_size = 300
    cuda.breaks_after = 2
    with pytest.raises(RuntimeError, match="illegal memory access") as caught:
        there.sandwich(V, w)
    assert caught.value.__notes__ == ["It happened with rows 900 to 1200 of 1500 on cuda:1."]
    assert there.passes == 0
    assert all(lane.waiting is None and lane.V is None for lane in there._lanes)
    cuda.breaks_after = None
    expected = all_products(KernelOperator(KERNEL, X, Z), V, U, w)
    assert_alike(all_products(there, V, U, w), expected, TOLERANCE[np.float32])


@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
def test_an_interrupted_pass_leaves_the_operator_as_it_was(error):
    X, Z, V, U, w = problem()
    there = DeviceOperator(KERNEL, X, Z, device=["cpu"] * 2)
    there.block_size = 100

    def interrupted(last, at, T):
        if at.stop >= last:
            raise error
        return T

    for last in (500, 1500):
        with pytest.raises(error):
            there.sandwich(V, partial(interrupted, last))
        assert there.passes == 0
        assert there._kept is None
    expected = all_products(KernelOperator(KERNEL, X, Z), V, U, w)
    assert_alike(all_products(there, V, U, w), expected, TOLERANCE[np.float32])


def test_the_user_keeps_the_precision_of_products():
    setting = torch.backends.mkldnn.matmul
    before = setting.fp32_precision
    try:
        setting.fp32_precision = "tf32"
        X, Z, V, _, _ = problem()
        seen = []

        def kernel(A, B):
            seen.append(setting.fp32_precision)
            return A @ B.T

        DeviceOperator(kernel, X, Z, device="cpu").matmat(V)
        assert set(seen) == {"ieee"}
        assert setting.fp32_precision == "tf32"
        with pytest.raises(ZeroDivisionError), matmul_precision(tf32=False):
            raise ZeroDivisionError
        assert setting.fp32_precision == "tf32"
    finally:
        setting.fp32_precision = before


# ---- TF32 ------------------------------------------------------------------------------------------------------------


def as_in_tf32(monkeypatch):
    """Let matrix products of torch round what they are given as a device would, while TF32 is asked for."""
    setting = torch.backends.mkldnn.matmul

    rounds = []

    def rounded(product, *tensors, **options):
        if setting.fp32_precision == "tf32":
            rounds.append(product)
            tensors = [torch.from_numpy(round_to_tf32(one.numpy())) if one.ndim == 2 else one for one in tensors]
        return product(*tensors, **options)

    monkeypatch.setattr(torch, "addmm", partial(rounded, torch.addmm))
    product = torch.Tensor.__matmul__
    monkeypatch.setattr(torch.Tensor, "__matmul__", lambda A, B: rounded(product, A, B))
    return rounds


def test_rounding_to_tf32_is_to_even():
    x = np.float32([1 + 2**-11, 1 + 3 * 2**-11, -1 - 2**-11 - 2**-20, 0.0, -0.0, 1e-42, np.inf, np.nan])
    expected = np.float32([1, 1 + 2**-9, -1 - 2**-10, 0.0, -0.0, round(1e-42 / 2**-136) * 2**-136, np.inf, np.nan])
    np.testing.assert_array_equal(round_to_tf32(x), expected)
    nans = np.array([0x7FFFFFFF, -1, 0x7F800001, 0x7FFFF000], dtype=np.int32).view(np.float32)
    assert np.isnan(round_to_tf32(nans)).all()
    assert round_to_tf32(torch.from_numpy(nans)).isnan().all()
    x = np.random.default_rng(0).standard_normal(10_000).astype(np.float32)
    assert (np.abs(round_to_tf32(x) - x) <= 2.0**-11 * np.abs(x)).all()
    np.testing.assert_array_equal(round_to_tf32(round_to_tf32(x)), round_to_tf32(x))


IN_TF32 = {
    "sum": KERNEL,
    "gaussian": Gaussian(1.5),
    "several scales": Gaussian(np.linspace(1, 2, 4)),
    "far": Gaussian(0.05),
    "linear": Linear(),
    "polynomial": Polynomial(2, 0.1),
}


@pytest.mark.parametrize("name", IN_TF32)
def test_tf32_is_the_matrix_of_rounded_points(monkeypatch, name):
    kernel = IN_TF32[name]
    X, Z, V, U, w = problem()
    there = DeviceOperator(kernel, X, Z, device=["cpu"] * 2, precision="tf32")
    found = all_products(there, V, U, w)
    exact = KernelOperator(kernel, *(round_to_tf32(one).astype(np.float64) for one in (X, Z)))
    assert_alike(found, all_products(exact, V, U, w), TOLERANCE[np.float32])
    np.testing.assert_allclose(there.centers_gram(np.float64), exact.centers_gram(), rtol=1e-12, atol=1e-300)
    assert_alike([there.on(X[:100]).matmat(V)], [exact.matmat(V)[:100]], TOLERANCE[np.float32])
    rounds = as_in_tf32(monkeypatch)
    for one, same in zip(all_products(there, V, U, w), found, strict=True):
        np.testing.assert_array_equal(one, same)  # what a device rounds has no more bits than it keeps
    assert bool(rounds) == (name not in ("several scales", "far"))


def test_rows_that_are_not_finite_in_tf32():
    X, Z, V, _, _ = problem()
    X[7, 1] = np.array(0x7FFFFFFF, dtype=np.int32).view(np.float32)  # CUDA's NaN, which rounding must not make a number
    with pytest.raises(ValueError, match="row 7"):
        DeviceOperator("gaussian", X, Z, device="cpu", precision="tf32").matmat(V)


def test_tf32_mixes_no_devices(cuda):
    X, Z, V, U, w = problem()
    there = DeviceOperator(KERNEL, X, Z, device=TWO, precision="tf32")
    assert there.arithmetic == "made again on cuda:0, cuda:1 in TF32"
    here = KernelOperator(KERNEL, round_to_tf32(X), round_to_tf32(Z))
    assert_alike(all_products(there, V, U, w), all_products(here, V, U, w), TOLERANCE[np.float32])


def test_where_there_is_no_tf32():
    import scipy.sparse as sp

    X, Z, V, _, _ = problem(dtype=np.float64)
    there, plain = (DeviceOperator(KERNEL, X, Z, device="cpu", precision=precision) for precision in ("tf32", None))
    np.testing.assert_array_equal(there.matmat(V), plain.matmat(V))
    with pytest.raises(ValueError, match="for dense rows, and these are sparse: use precision=None"):
        DeviceOperator(
            "gaussian", sp.csr_array(np.float32(X)), sp.csr_array(np.float32(Z)), device="cpu", precision="tf32"
        )
    with pytest.raises(ValueError, match="precision='tf32' is for devices: give one"):
        make_operator("gaussian", X, Z, precision="tf32")
    with pytest.raises(ValueError, match="precision='bf16' must be one of None, 'tf32'"):
        make_operator("gaussian", X, Z, device="cpu", precision="bf16")


# ---- sums ------------------------------------------------------------------------------------------------------------


def test_sums_do_not_lose_digits():
    rng = np.random.default_rng(0)
    K, U = rng.random((40_000, 3), dtype=np.float32), rng.random((40_000, 2), dtype=np.float32)
    exact = K.T.astype(np.float64) @ U
    for sums in (_lanes.Sums, _lanes.CompensatedSums):
        total = sums((3, 2), "cpu")
        for start in range(0, 40_000, 7_000):
            part = slice(start, start + 7_000)
            total.add(_lanes.chunked_products(torch.from_numpy(K[part]), torch.from_numpy(U[part])))
        # each product of 256 terms is rounded, with errors that average out over 157 of them
        np.testing.assert_allclose(total.array(), exact, rtol=16 * 2.0**-24)


def test_compensated_sums_are_as_good_as_float64():
    parts = np.random.default_rng(0).random((2_000, 4, 1), dtype=np.float32) * np.float32(1e4)
    total = _lanes.CompensatedSums((4, 1), "cpu")
    for part in parts:
        total.add(torch.from_numpy(part[None]))
    np.testing.assert_allclose(total.array(), parts.sum(axis=0, dtype=np.float64), rtol=1e-13)


def test_compensated_sums_add_all_parts_or_none():
    total = _lanes.CompensatedSums((1, 1), "cpu")
    total.add(torch.ones((2, 1, 1)))

    def parts():
        yield torch.ones((1, 1))
        raise RuntimeError("MPS backend out of memory, as a test wants it")

    with pytest.raises(RuntimeError, match="out of memory"):
        total.add(parts())
    assert total.array() == 2


@pytest.mark.parametrize("where", ["cpu", "cuda:0"])
@pytest.mark.parametrize(("M", "k"), [(30_000, 1), (30_100, 2), (3_000, 40), (256, 3), (300, 500)])
def test_images_do_not_lose_digits(cuda, where, M, k):
    rng = np.random.default_rng(0)
    K, V = rng.random((3, M), dtype=np.float32), rng.random((M, k), dtype=np.float32)
    there = (torch.from_numpy(one).to(torch.device(where)) for one in (K, V))
    found = _lanes.chunked_image(*there).cpu().numpy()
    np.testing.assert_allclose(found, K.astype(np.float64) @ V, rtol=32 * 2.0**-24)


def test_batched_products_are_those_of_the_chunks(cuda):
    rng = np.random.default_rng(0)
    K, U = (torch.from_numpy(rng.random((700, k), dtype=np.float32)) for k in (5, 2))
    there = _lanes.chunked_products(K.to(torch.device("cuda:0")), U.to(torch.device("cuda:0")))
    np.testing.assert_allclose(there.cpu().numpy(), _lanes.chunked_products(K, U).numpy(), rtol=1e-5)


def test_devices_without_float64(monkeypatch):
    """As on MPS."""
    X, Z, V, U, w = problem()
    for module in (devices, _lanes):
        monkeypatch.setattr(module, "has_float64", lambda device: False)
    expected = all_products(KernelOperator(KERNEL, X, Z), V, U, w)
    assert_alike(all_products(DeviceOperator(KERNEL, X, Z, device="cpu"), V, U, w), expected, TOLERANCE[np.float32])
    message = r"device='cpu' has no float64: use dtype=\"float32\""
    with pytest.raises(ValueError, match=message):
        DeviceOperator("gaussian", X.astype(np.float64), Z, device="cpu")

    class Unread(gyrfalcon.sources.ArrayRows):
        def blocks(self, size):
            raise AssertionError("no row need be read for that")

    for rows in (X.astype(np.float64), Unread(X.astype(np.float64))):
        with pytest.raises(ValueError, match=message):
            gyrfalcon.FalkonRegressor(n_centers=5, device="cpu").fit(rows, U[:, 0])


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=lambda t: t.__name__)
def test_differences_of_one_feature_at_a_time(monkeypatch, dtype):
    """As on MPS, whose cdist makes a tensor of the differences in all features and fails if it is too large."""

    def fail(*args, **kwargs):
        raise RuntimeError("Invalid buffer size: 4.50 GiB")

    monkeypatch.setattr(torch, "cdist", fail)
    monkeypatch.setattr(torch_tiles, "_ONE_FEATURE_AT_A_TIME", {"cpu"})
    X, Z, V, U, w = problem(dtype=dtype)
    for kernel in (Laplacian(2.0), Laplacian(2.0, norm=1), Matern(2.0, nu=0.5), ArcCosine(), Gaussian(0.02)):
        expected = all_products(KernelOperator(kernel, X, Z), V, U, w)
        assert_alike(all_products(DeviceOperator(kernel, X, Z, device="cpu"), V, U, w), expected, TOLERANCE[dtype])


# ---- the door --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("precision", [None, "tf32"])
def test_make_operator_takes_devices(precision):
    X, Z, V, _, _ = problem()
    options = {"n_jobs": 1, "memory_budget": 0, "precision": precision}
    there = make_operator(KERNEL, X, Z, device=["cpu"] * 2, **options)
    assert type(there) is DeviceOperator
    assert there.arithmetic == "made again on cpu, cpu" + (" in TF32" if precision else "")
    expected = DeviceOperator(KERNEL, X, centers=Z, device=["cpu"] * 2, **options)
    np.testing.assert_array_equal(there.sandwich(V), expected.sandwich(V))
    by_name = make_operator(kernel=KERNEL, rows=X, centers=Z, device="cpu", passes=3, halving=Halving(1 << 20, 3))
    assert type(by_name) is DeviceOperator
    assert type(KernelOperator(KERNEL, X, Z, device=None, precision=None)) is KernelOperator


@pytest.mark.parametrize(
    ("given", "remedy"),
    [
        ({"device": "cuda"}, r"device='cuda': .* for devices use .*make_operator\(\.\.\., device='cuda'\)"),
        ({"precision": "tf32"}, r"precision='tf32': .* for devices use .*make_operator"),
    ],
)
def test_kernel_operator_is_for_the_cores(given, remedy):
    """The constructor makes an instance of its own class, and names the function that chooses another one."""
    X, Z, _, _, _ = problem()
    with pytest.raises(ValueError, match=remedy):
        KernelOperator(KERNEL, X, Z, **given)
    features = Gaussian(1.0).random_features(5, 2, np.random.RandomState(0))
    with pytest.raises(ValueError, match="FeatureOperator is for the cores of this machine"):
        FeatureOperator(CallableKernel(features), np.ones((3, 2)), features.weights, **given)
    for cls in (KernelOperator, DeviceOperator):
        assert cls.__new__ is object.__new__
        assert list(inspect.signature(cls).parameters) == list(inspect.signature(cls.__init__).parameters)[1:]


# ---- a default device ------------------------------------------------------------------------------------------------


@pytest.fixture
def elsewhere():
    """Tensors that say nothing of a device go to one that has no numbers."""
    torch.set_default_device("meta")
    yield
    torch.set_default_device(None)


def test_a_default_device_is_not_used(elsewhere):
    import scipy.sparse as sp

    X, Z, V, U, w = problem()
    tensor = torch.from_numpy(X)
    for rows, centers in ((X, Z), (sp.csr_array(X), sp.csr_array(Z)), (tensor, Z)):
        expected = all_products(KernelOperator(KERNEL, rows, centers), V, U, w)
        there = DeviceOperator(KERNEL, rows, centers, device="cpu")
        assert_alike(all_products(there, V, U, w), expected, TOLERANCE[np.float32])
    there = DeviceOperator(KERNEL, tensor, Z, device="cpu", precision="tf32")
    assert_alike([there.image(V).numpy()], [there.matmat(V)], TOLERANCE[np.float32])
    y = np.digitize(X[:, 0], [-0.5, 0.5])
    options = {"n_centers": 20, "penalty": 1e-3, "device": "cpu", "random_state": 0}
    model = gyrfalcon.FalkonClassifier(loss="logistic", multi_class="multinomial", **options).fit(tensor, y)
    assert model.predict_proba(tensor).device.type == "cpu"


def test_a_default_device_has_no_pinned_memory(elsewhere, cuda):
    X, Z, V, U, w = problem()
    for cuda.pins in (True, False):
        there = DeviceOperator(KERNEL, X, Z, device=TWO)
        expected = all_products(KernelOperator(KERNEL, X, Z), V, U, w)
        assert_alike(all_products(there, V, U, w), expected, TOLERANCE[np.float32])


# ---- names of devices, and torch -------------------------------------------------------------------------------------


def test_names_of_devices(monkeypatch):
    cpu = torch.device("cpu")
    assert resolve_devices(None) is None
    assert resolve_devices("cpu") == resolve_devices("cpu:0") == resolve_devices(cpu) == resolve_devices(("cpu",))
    assert resolve_devices(["cpu"] * 3) == (cpu,) * 3
    for wrong, error, message in (
        ("gpu", ValueError, "device='gpu' is not a device that PyTorch knows: give None"),
        ("meta", ValueError, "device='meta' cannot compute kernels"),
        ([], ValueError, r"device=\[\] names no device"),
        (3, TypeError, "device=3 is not the name of a device"),
        (["cpu", None], TypeError, "device=None is not the name of a device"),
    ):
        with pytest.raises(error, match=message):
            resolve_devices(wrong)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ValueError, match=r"device='cuda' is not available: PyTorch .* finds none of that kind"):
        resolve_devices("cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    assert resolve_devices(["cuda:0", "cuda"]) == (torch.device("cuda", 0), torch.device("cuda", 1))
    with pytest.raises(ValueError, match=r"device='cuda:2' is not available: PyTorch .* has 2 of that kind"):
        resolve_devices("cuda:2")
    with pytest.raises(ValueError, match="device=None names no device"):
        DeviceOperator(Linear(), np.ones((2, 1)), np.ones((1, 1)), device=None)


@pytest.mark.slow
def test_torch_is_imported_for_a_device_alone():
    code = """
import sys
from functools import partial
import numpy as np
from gyrfalcon import FalkonRegressor
X = np.random.default_rng(0).random((50, 2))
FalkonRegressor(n_centers=5).fit(X, X[:, 0]).predict(X)
assert "torch" not in sys.modules
sys.modules["torch"] = None
try:
    FalkonRegressor(n_centers=5, device="cpu").fit(X, X[:, 0])
except ImportError as error:
    assert "pip install torch" in str(error), error
else:
    raise AssertionError("no error")
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=100)


@pytest.mark.parametrize(
    ("capability", "dtype", "count"), [((8, 9), float, 1), ((8, 9), "float32", 0), ((8, 0), float, 0)]
)
def test_float64_is_slow_on_devices_for_games(cuda, monkeypatch, recwarn, capability, dtype, count):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    X = np.zeros((40, 2), dtype=dtype)
    DeviceOperator("gaussian", X, X[:5], device="cuda:0", fuses=False)
    assert len(recwarn.list) == count
    for warning in recwarn.list:
        assert str(warning.message).startswith("cuda:0 computes in float64 at 1/32 of its speed in float32")
        assert warning.filename == __file__


# ---- sparse rows -----------------------------------------------------------------------------------------------------


def sparse_problem(dtype, density=0.05):
    import scipy.sparse as sp

    X = sp.random(300, 200, density=density, format="csr", random_state=0, dtype=dtype)
    X.data -= dtype(0.4)
    Z = sp.csr_array(X[:15])
    assert density > 0.1 or len(np.unique(Z.indices)) < 200  # rows have values where no center has any
    rng = np.random.default_rng(0)
    return sp.csr_array(X), Z, rng.standard_normal((15, 2)), rng.standard_normal((300, 2)), rng.random(300)


CSR_KERNELS = {
    "gaussian": Gaussian(1.5),
    "scales": Gaussian(np.linspace(1, 2, 200)),
    "matern": Matern(2.0, nu=2.5),
    "linear": Linear(),
    "sum": 0.5 * Gaussian(1.5) * Polynomial(2, 0.1) + Linear(),
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=lambda t: t.__name__)
@pytest.mark.parametrize("name", CSR_KERNELS)
def test_sparse_rows_stay_sparse(cuda, monkeypatch, name, dtype):
    X, Z, V, U, w = sparse_problem(dtype)
    monkeypatch.setattr(_lanes.SparseColumns, "positions", lambda columns, rows: out_of_memory())  # makes them dense
    monkeypatch.setattr(torch_tiles.SparseColumns, "dense", lambda columns, rows: _dense(columns, rows))
    for device in (TWO, "cpu"):
        there = DeviceOperator(CSR_KERNELS[name], X, Z, device=device)
        there.block_size = 64
        expected = all_products(KernelOperator(CSR_KERNELS[name], X, Z), V, U, w)
        assert_alike(all_products(there, V, U, w), expected, 5 * TOLERANCE[dtype])
    np.testing.assert_allclose(
        there.centers_gram(), KernelOperator(CSR_KERNELS[name], Z, Z).matmat(np.eye(15)), atol=1e-5
    )


def _dense(columns, rows):
    return np.hstack([rows.toarray()[:, columns.columns], np.zeros((rows.shape[0], 2), rows.dtype)])


def test_which_sparse_rows_are_made_dense():
    X, Z, V, U, w = sparse_problem(np.float64)
    for kernel in (Laplacian(2.0), Gaussian(0.01), ArcCosine(), CallableKernel(lambda A, B: A @ B.T)):
        there = DeviceOperator(kernel, X, Z, device="cpu")
        assert not there._columns.stays_csr
        expected = all_products(KernelOperator(kernel, X, Z), V, U, w)
        assert_alike(all_products(there, V, U, w), expected, 1e-12)
    crowded, few, *_ = sparse_problem(np.float64, density=0.4)
    assert not DeviceOperator("gaussian", crowded, few, device="cpu")._columns.stays_csr


def test_sparse_blocks_are_taken_apart(cuda, monkeypatch):
    """A product that does not come back is made again from a part of the rows."""
    X, Z, V, U, w = sparse_problem(np.float64)
    expected = KernelOperator("gaussian", X, Z).sandwich(V, Rowwise(curve, U, w))
    there = DeviceOperator("gaussian", X, Z, device=TWO)
    assert there._columns.stays_csr
    products = _lanes.chunked_products
    monkeypatch.setattr(_lanes, "chunked_products", lambda K, U: products(K, U) if len(K) <= 64 else out_of_memory())
    assert_alike([there.sandwich(V, Rowwise(curve, U, w))], [expected], 1e-12)


# ---- blocks ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("keeps", [False, True])
def test_blocks_come_in_order_from_several_devices(cuda, keeps):
    X, Z, V, U, _ = problem()
    there = DeviceOperator(KERNEL, X, Z, device=TWO)
    there._may_keep, there.block_size = keeps, 400
    there.matmat(V)
    assert (there._kept is not None) == keeps
    expected = KernelOperator(KERNEL, X, Z).matmat(np.eye(20))
    there.block_size, cuda.room, stop = 300, 130, 0
    for at, K in there.blocks():
        assert at.start == stop
        np.testing.assert_allclose(K, expected[at], rtol=0, atol=2e-6)
        stop = at.stop
        there.rmatmat(U)  # a product between two blocks
    assert stop == len(X)
    assert there.block_size <= 130


def test_blocks_give_up_rows_that_stay(cuda, monkeypatch):
    X, Z, V, *_ = problem()
    there = DeviceOperator(KERNEL, X, Z, device=TWO)
    there.matmat(V)

    def crowded(tile, X):
        return out_of_memory() if there._kept is not None else tile(X)

    there._tiles = [(device, partial(crowded, tile)) for device, tile in there._tiles]
    found = np.concatenate([K for _, K in there.blocks()])
    assert there._kept is None
    np.testing.assert_allclose(found, KernelOperator(KERNEL, X, Z).matmat(np.eye(20)), rtol=0, atol=2e-6)


def test_the_next_block_is_launched_before_the_last_product_is_there(cuda, monkeypatch):
    X, Z, V, *_ = problem()
    there = DeviceOperator(KERNEL, X, Z, device="cuda:0")
    there.block_size, order = 500, []
    image, array = _lanes.Lane.image, Fetched.array
    monkeypatch.setattr(_lanes.Lane, "image", lambda lane, K: (order.append("launch"), image(lane, K))[1])
    monkeypatch.setattr(Fetched, "array", lambda fetched: (order.append("wait"), array(fetched))[1])
    there.matmat(V)
    assert order == ["launch", "launch", "wait", "launch", "wait", "wait"]
