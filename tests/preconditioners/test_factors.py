"""Factorisations by LAPACK and by PyTorch against NumPy's in float64, and preconditioners made by either."""

from __future__ import annotations

import itertools
import threading

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from gyrfalcon import KernelOperator
from gyrfalcon.preconditioners import Krill, Preconditioner, Whitening
from gyrfalcon.preconditioners.factors import LapackFactors, copy_to_lower
from gyrfalcon.preconditioners.whitening import choose_engine

torch = pytest.importorskip("torch")
from gyrfalcon._utils.copies import copies_to  # noqa: E402
from gyrfalcon._utils.devices import resolve_devices  # noqa: E402
from gyrfalcon.preconditioners import torch_factors  # noqa: E402
from gyrfalcon.preconditioners.torch_factors import TorchFactors  # noqa: E402

pytestmark = pytest.mark.devices

SIZES = [1, 16, 45]
TINY = 7 * 16 * 16 * 8  # bytes: tiles of 16 in float64
ONE, THREE = resolve_devices("cpu"), resolve_devices(["cpu"] * 3)
ENGINES = {
    "lapack": lambda: LapackFactors(2),
    "one device": lambda: TorchFactors(ONE),
    "tile by tile": lambda: TorchFactors(ONE, budget=TINY),
    "three devices": lambda: TorchFactors(THREE),
    "three devices, tile by tile": lambda: TorchFactors(THREE, budget=3 * TINY // 2),
}


@pytest.fixture(autouse=True)
def small_tiles(monkeypatch, one_thread):
    monkeypatch.setattr(torch_factors, "_RESIDENT_TILE", 16)
    monkeypatch.setattr(torch_factors, "_SOLVED_TILE", 16)


@pytest.fixture(params=ENGINES)
def engine(request):
    return ENGINES[request.param]()


def matrix(M, dtype=np.float64, seed=0):
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((M, 2 * M))
    return np.asfortranarray((A @ A.T / M + np.eye(M)).astype(dtype))


def tolerance(dtype, M):
    return 20 * M * np.finfo(dtype).eps


@pytest.mark.parametrize("M", SIZES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("lower", [False, True])
def test_cholesky_in_one_triangle(engine, M, dtype, lower):
    given = matrix(M, dtype)
    A = given.copy(order="F")
    assert engine.cholesky(A, lower=lower)
    L = np.linalg.cholesky(given.astype(np.float64))
    mine, other = (np.tril, np.triu) if lower else (np.triu, np.tril)
    assert_allclose(mine(A), L if lower else L.T, atol=tolerance(dtype, M))
    assert_array_equal(other(A, 1 if lower else -1), other(given, 1 if lower else -1))


@pytest.mark.parametrize("at", [0, 20, 39])
@pytest.mark.parametrize("lower", [False, True])
def test_cholesky_of_what_is_not_positive(engine, at, lower):
    A = matrix(40)
    A[at, at] = -1.0
    assert not engine.cholesky(A, lower=lower)


def test_nan_is_a_failure_even_if_the_library_reports_success(monkeypatch):
    """cuSOLVER may carry NaN through."""
    honest = torch.linalg.cholesky_ex
    monkeypatch.setattr(torch.linalg, "cholesky_ex", lambda A: (honest(A)[0] * np.nan, torch.tensor(0)))
    assert not TorchFactors(ONE).cholesky(matrix(20), lower=True)


@pytest.mark.parametrize("M", SIZES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_square_of_the_lower_triangle(engine, M, dtype):
    given = matrix(M, dtype)
    A = given.copy(order="F")
    engine.square_lower(A)
    L = np.tril(given.astype(np.float64))
    assert_allclose(np.tril(A), np.tril(L.T @ L), atol=tolerance(dtype, M) * np.abs(L.T @ L).max())
    assert_array_equal(np.triu(A, 1), np.triu(given, 1))


@pytest.mark.parametrize("M", SIZES)
def test_sum_with_a_square(engine, M):
    given, S = matrix(M), np.random.default_rng(1).standard_normal((50, M + 3))[:, :M]
    A = given.copy(order="F")
    engine.add_square(A, S)
    assert_allclose(np.tril(A), np.tril(given + S.T @ S), rtol=1e-12, atol=1e-12)
    assert_array_equal(np.triu(A, 1), np.triu(given, 1))


@pytest.mark.parametrize("M", SIZES)
@pytest.mark.parametrize("columns", [1, 45])
def test_solve_with_many_columns(engine, M, columns):
    U, B = matrix(M), np.random.default_rng(1).standard_normal((columns, M)).T
    X = B.copy(order="K")
    engine.solve_upper_transposed(U, X)
    assert_allclose(np.triu(U).T @ X, B, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("M", SIZES)
@pytest.mark.parametrize("shape", [(), (3,)])
@pytest.mark.parametrize("transposed", [False, True])
def test_solves_with_two_triangles(engine, M, shape, transposed):
    A, x = matrix(M), np.random.default_rng(1).standard_normal((M, *shape))
    triangles = engine.triangles(A)
    U, L = np.triu(A), np.tril(A, -1) + np.eye(M)
    for triangle, lower in ((U, False), (L, True)):
        solution = triangles.solve(x, lower=lower, transposed=transposed)
        assert solution.shape == x.shape
        assert solution.dtype == np.float64
        residual = (triangle.T if transposed else triangle) @ solution - x
        assert_allclose(residual, 0, atol=1e-13 * M * max(1, np.abs(triangle).max() * np.abs(solution).max()))


def test_devices_share_a_budget_and_give_the_same_bits_again():
    first, again = matrix(63), matrix(63)
    for A in (first, again):
        assert TorchFactors(THREE).cholesky(A, lower=True)
    assert_array_equal(first, again)


# ---- preconditioners -------------------------------------------------------------------------------------------------


def gram_of(X, dtype=np.float64, length_scale=0.5):
    distance = np.square(X[:, None] - X[None]).sum(axis=2)
    return np.asfortranarray(np.exp(-distance / (2 * length_scale**2)).astype(dtype))


@pytest.fixture
def centers():
    return np.random.default_rng(0).standard_normal((150, 3))


@pytest.mark.parametrize("devices", [ONE, THREE], ids=["one", "three"])
@pytest.mark.parametrize(("dtype", "rtol"), [(np.float64, 1e-12), (np.float32, 2e-5)])
def test_factors_are_those_of_lapack(centers, devices, dtype, rtol):
    """With a jitter that leaves a condition number of some hundreds, factors agree to their rounding times it."""
    given = gram_of(centers, dtype)
    weight = np.random.default_rng(1).uniform(0, 2, 150)
    made = [
        Preconditioner(given.copy(order="F"), 1e-2, 1000, center_weight=weight, jitter=0.1, devices=chosen)
        for chosen in (None, devices)
    ]
    T, other = (np.asarray(one.whitening.T) for one in made)
    assert_allclose(other, T, rtol=0, atol=rtol * np.abs(T).max())  # T above, A below
    x = np.random.default_rng(2).standard_normal((150, 2))
    B = [one.apply(x) for one in made]
    assert_allclose(B[1], B[0], rtol=0, atol=100 * rtol * np.abs(B[0]).max())
    assert_allclose(made[1].invert(B[1]), x, atol=1000 * rtol * np.abs(x).max())
    for one in made:
        one.update(1.0)
    assert made[1].whitening.triangles._panels == [None]  # of the buffer with the last A
    B = [one.apply(x) for one in made]
    assert_allclose(B[1], B[0], rtol=0, atol=100 * rtol * np.abs(B[0]).max())


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_linear_kernel_of_few_features(centers, dtype):
    given = np.asfortranarray((centers @ centers.T).astype(dtype))
    P = Preconditioner(given, 1e-3, 1000, devices=ONE)
    assert (P.rank, P.whitening.method) == (3, "pivoted_cholesky")
    K = centers @ centers.T
    H = 1000 / 150 * K @ K + P.ridge * 1000 * K
    B = P.apply(np.eye(3))
    assert_allclose(B.T @ H @ B, np.eye(3), atol=1e-9 if dtype == np.float64 else 1e-3)


def test_duplicates_get_a_jitter(centers):
    some = np.vstack([centers[:100], centers[:40]])
    P = Preconditioner(gram_of(some), 1e-3, 1000, devices=THREE)
    assert (P.rank, P.whitening.method) == (140, "cholesky")
    assert P.whitening.jitter > 0
    assert np.isfinite(P.apply(np.ones(140))).all()


def test_constant_kernel_and_one_center():
    assert Preconditioner(np.ones((30, 30), order="F"), 1e-3, 100, devices=ONE).rank == 1
    zero = Preconditioner(np.zeros((30, 30), order="F"), 1e-3, 100, devices=ONE)
    assert zero.rank == 0
    assert_array_equal(zero.apply(np.zeros(0)), np.zeros(30))
    assert_allclose(Whitening(np.full((1, 1), 4.0, order="F"), 1, jitter=0.0, devices=ONE).apply(np.ones(1)), 0.5)


def test_a_kernel_that_is_not_positive_is_refused_as_by_lapack(monkeypatch):
    """Each failure is noticed, a larger jitter is tried, and at the end an error says what to do."""
    monkeypatch.setattr(torch_factors, "_has_failed", lambda L, status: True)
    with pytest.raises(ValueError, match=r"cannot be factored in float32.*choose a positive semidefinite kernel"):
        Whitening(matrix(20, np.float32), 100, devices=ONE)


def test_krill(centers):
    X = np.random.default_rng(1).standard_normal((1000, 3))
    K = KernelOperator("gaussian", X, centers)
    x = np.ones(150)
    one, other = (
        Krill(K, K.centers_gram(), 1e-3, jitter=0.1, random_state=0, devices=chosen).apply(x) for chosen in (None, ONE)
    )
    assert_allclose(other, one, rtol=0, atol=1e-9 * np.abs(one).max())


# ---- devices that are not there --------------------------------------------------------------------------------------


def test_no_devices_and_devices_without_float64_leave_it_to_lapack():
    assert isinstance(choose_engine(None, 2), LapackFactors)
    assert isinstance(choose_engine([torch.device("mps")], 2), LapackFactors)
    assert isinstance(choose_engine(ONE, 2), TorchFactors)


@pytest.fixture
def cuda(monkeypatch):
    from pretended import pretend

    # a thread does not know what holds in another
    monkeypatch.setattr(torch_factors, "share", lambda work, items, n_threads: [work(item) for item in items])
    with pretend(monkeypatch) as devices:
        yield devices


@pytest.mark.parametrize("pins", [True, False], ids=["pinned", "pageable"])
@pytest.mark.parametrize(
    ("count", "budget"),
    [(1, 2**30), (1, TINY), (2, TINY // 2), (2, 2**30)],
    ids=["resident", "tile by tile", "tile by tile on two", "resident on two"],
)
def test_no_operation_mixes_devices(cuda, count, budget, pins):
    """The code for CUDA, with streams and pinned tiles, gives what the host gives."""
    cuda.pins = pins
    engines = TorchFactors([torch.device("cuda", number) for number in range(count)], budget=budget), LapackFactors(1)
    S, B = np.random.default_rng(1).standard_normal((50, 45)), np.random.default_rng(2).standard_normal((45, 30))
    found, expected, sent = [], [], []
    for engine, results in zip(engines, (found, expected), strict=True):
        A, X = matrix(45), B.copy()
        assert engine.cholesky(A, lower=False)
        engine.solve_upper_transposed(A, X)
        results.append((np.triu(A), X))
        A = matrix(45)
        engine.add_square(A, S)
        results.append((np.tril(A),))
        engine.square_lower(A)
        assert engine.cholesky(A, lower=True)
        results.append((np.tril(A),))
        sent += cuda.sent
        x = engine.triangles(A).solve(np.ones(45), lower=False)
        cuda.sent.clear()
        results.append((x,))
    for one, other in zip(found, expected, strict=True):
        for result, exact in zip(one, other, strict=True):
            assert_allclose(result, exact, rtol=0, atol=1e-9 * np.abs(exact).max())
    assert {torch.device("cuda", number) for number in range(count)} <= cuda.seen
    assert bool(cuda.pinned) == pins
    if budget <= TINY:
        assert max(shape[0] for shape in sent if len(shape) == 2) <= 16  # tiles, never the matrix


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("step", ["cholesky", "square_lower"])
def test_tiles_stay_on_the_devices_that_have_room_for_their_share(cuda, monkeypatch, count, step):
    """Each is copied there and back once; of two devices, each needs room for half of them, and for one row."""
    monkeypatch.setattr(torch_factors, "_RESIDENT_TILE", 5)
    devices = [torch.device("cuda", number) for number in range(count)]
    least = max(torch_factors._numbers_that_stay(90, 5, count, axis) for axis in (0, 1)) * 8
    triangle, at_work = 90 * 95 // 2, 7 * 25
    assert least == 8 * (triangle + at_work if count == 1 else (triangle + 5 * 45) // 2 + 5 * 90 + at_work)
    for budget, stays in ((least, True), (least - 8, False)):
        given = np.asfortranarray(np.tril(matrix(90)))
        A = given.copy(order="F")
        cuda.sent.clear(), cuda.fetched.clear()
        engine = TorchFactors(devices, budget=budget)
        if step == "cholesky":
            assert engine.cholesky(A, lower=True)
            exact = np.linalg.cholesky(matrix(90))
        else:
            engine.square_lower(A)
            exact = np.tril(given.T @ given)
        assert_allclose(np.tril(A), exact, rtol=0, atol=tolerance(np.float64, 90) * np.abs(exact).max())
        sent, fetched = (
            sum(shape[0] * shape[1] for shape in copied if len(shape) == 2) for copied in (cuda.sent, cuda.fetched)
        )
        assert (sent == fetched == triangle) == stays


def test_too_little_memory_says_so():
    with pytest.raises(MemoryError, match="room for 12 numbers, too few for the factors of 40 centers"):
        TorchFactors(ONE, budget=100).cholesky(matrix(40), lower=True)


def test_a_device_that_runs_out_of_memory_says_so(monkeypatch):
    def full(*arguments, **options):
        raise torch.cuda.OutOfMemoryError("out of memory")

    monkeypatch.setattr(torch.linalg, "cholesky_ex", full)
    with pytest.raises(MemoryError, match="cpu ran out of memory while 40 centers were factored"):
        TorchFactors(ONE).cholesky(matrix(40), lower=True)


@pytest.mark.parametrize("step", ["_solve_triangular", "from_numpy"])
def test_solves_are_made_on_the_host_where_a_device_has_no_memory(monkeypatch, step):
    A = matrix(45)
    triangles, here = TorchFactors(ONE).triangles(A), LapackFactors(1).triangles(A)
    x = np.random.default_rng(1).standard_normal((45, 2))
    triangles.solve(x, lower=False)
    if step == "from_numpy":
        triangles.changed()  # a copy has to be made again

    def full(*arguments, **options):
        raise torch.cuda.OutOfMemoryError("CUDA out of memory, as a test wants it")

    with monkeypatch.context() as patched:
        patched.setattr(torch if step == "from_numpy" else torch_factors, step, full)
        solutions = [each.solve(x, lower=True, transposed=True) for each in (triangles, here)]
    assert_array_equal(*solutions)
    assert triangles._panels == [None]
    assert_array_equal(triangles.solve(x, lower=False), here.solve(x, lower=False))  # it does not try again

    def broken(*arguments, **options):
        raise RuntimeError("unplugged")

    monkeypatch.setattr(torch_factors, "_solve_triangular", broken)
    with pytest.raises(RuntimeError, match="unplugged"):
        TorchFactors(ONE).triangles(A).solve(x, lower=False)


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=lambda t: t.__name__)
@pytest.mark.parametrize(
    ("room", "share"), [(10**6, 1.0), (1_100, 1.0), (1, 0.0), (1_000, 2 / 6)], ids=["one", "two", "none", "some"]
)
def test_solves_with_factors_that_no_device_can_keep(cuda, monkeypatch, dtype, room, share):
    """Block columns stay on two devices as far as they fit, and the others are copied there in each solve."""
    monkeypatch.setattr(torch_factors, "_PANEL", 8)
    monkeypatch.setattr(torch_factors, "_SOLVED_TILE", 3)
    A = np.asfortranarray(matrix(45, dtype))
    there = TorchFactors([torch.device("cuda", number) for number in range(2)], budget=room * A.itemsize).triangles(A)
    assert there.kept_share == share
    here = LapackFactors(1).triangles(A)
    x = np.random.default_rng(1).standard_normal((45, 3))
    for again in range(2):
        cuda.sent.clear()
        for lower, transposed in itertools.product([False, True], repeat=2):
            found = there.solve(x, lower=lower, transposed=transposed)
            exact = here.solve(x, lower=lower, transposed=transposed)
            assert_allclose(found, exact, rtol=0, atol=tolerance(dtype, 45) * np.abs(exact).max())
        copied = [shape for shape in cuda.sent if len(shape) == 2 and 3 not in shape]
        assert bool(copied) == (share < 1 or not again)
    there.changed()
    A *= 2
    assert_allclose(there.solve(x, lower=False), here.solve(x, lower=False), rtol=1e-3)


def test_a_row_of_tiles_is_copied_once_for_its_column(cuda):
    """The products of all tiles below a diagonal one need the tiles on its left."""
    sent = []
    for budget in (TINY, 3 * TINY):
        cuda.sent.clear()
        A = matrix(200)
        assert TorchFactors([torch.device("cuda:0")], budget=budget).cholesky(A, lower=True)
        assert_allclose(np.tril(A), np.linalg.cholesky(matrix(200)), atol=1e-12)
        L = np.asfortranarray(np.tril(A))
        TorchFactors([torch.device("cuda:0")], budget=budget).square_lower(A)
        assert_allclose(np.tril(A), np.tril(L.T @ L), atol=1e-10)
        sent.append(sum(shape[0] * shape[1] for shape in cuda.sent if len(shape) == 2))
    assert sent[1] < 0.65 * sent[0]


def test_threads_compute_on_the_streams_of_the_caller(monkeypatch):
    from pretended import pretend

    pretend(monkeypatch)
    devices = [torch.device("cuda", number) for number in range(2)]
    streams = [torch.cuda.Stream(device) for device in devices]
    seen = []

    def work(item, copies):
        seen.append((threading.get_ident(), *(torch.cuda.current_stream(device) for device in devices)))

    with torch.cuda.stream(streams[0]), torch.cuda.stream(streams[1]):
        TorchFactors(devices)._deal(work, range(4), [copies_to(device) for device in devices])
    assert [found[1:] for found in seen] == [tuple(streams)] * 4
    assert threading.get_ident() not in {found[0] for found in seen}


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_an_error_on_one_device_ends_all(monkeypatch, error):
    calls, honest = [], torch_factors._solve_triangular

    def fail(*arguments, **options):
        calls.append(1)
        if len(calls) == 3:
            raise error("unplugged")
        return honest(*arguments, **options)

    monkeypatch.setattr(torch_factors, "_solve_triangular", fail)
    with pytest.raises(error, match="unplugged"):
        TorchFactors(THREE).cholesky(matrix(63), lower=True)


def test_tf32_is_off_while_factoring_and_restored(monkeypatch):
    if not hasattr(torch.backends.cuda.matmul, "fp32_precision"):
        pytest.skip("PyTorch before 2.9 has another setting")
    seen, honest = [], torch.linalg.cholesky_ex

    def look(A):
        seen.append(torch.backends.cuda.matmul.fp32_precision)
        return honest(A)

    monkeypatch.setattr(torch.linalg, "cholesky_ex", look)
    before = torch.backends.cuda.matmul.fp32_precision
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    try:
        TorchFactors(ONE).cholesky(matrix(20, np.float32), lower=True)
        assert torch.backends.cuda.matmul.fp32_precision == "tf32"
    finally:
        torch.backends.cuda.matmul.fp32_precision = before
    assert set(seen) == {"ieee"}


@pytest.mark.parametrize("M", [1, 256, 700])
def test_a_triangle_is_copied_by_any_number_of_threads(M):
    rng = np.random.default_rng(0)
    given, scale = np.asfortranarray(rng.standard_normal((M, M))), rng.random(M)
    for n_threads in (1, 3):
        A = given.copy(order="F")
        copy_to_lower(A, scale, n_threads)
        assert_array_equal(A, np.triu(given, 1) + np.tril(given.T * scale[:, None]))


def test_tiles_are_fetched_in_the_order_in_which_they_are_stored(cuda, monkeypatch):
    """The host would transpose them at a twentieth of the speed."""
    fetched = []

    class Recorded(torch_factors.Fetched):
        def __init__(self, tensor):
            super().__init__(tensor)
            fetched.append((tensor, self))

    monkeypatch.setattr(torch_factors, "Fetched", Recorded)
    given = np.asfortranarray(np.tril(matrix(45)))
    A = given.copy(order="F")
    TorchFactors([torch.device("cuda:0")], budget=TINY).square_lower(A)
    assert_allclose(np.tril(A), np.tril(given.T @ given), atol=tolerance(np.float64, 45))
    below = [result.tensor() for tensor, result in fetched if tensor.shape[0] != tensor.shape[1]]
    assert below
    for tile in below:
        assert tile.is_contiguous()
        assert tile.shape == (12, 9)  # of the last 9 rows, transposed
