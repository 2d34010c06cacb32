"""K in 16 bits: rounded products where that is allowed, exact ones elsewhere, and fits that are as good."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone

from gyrfalcon import FalkonRegressor, KernelOperator, _core
from gyrfalcon.backends.native import HALF_SETS
from gyrfalcon.kernels import Gaussian, Laplacian, Linear, Matern
from gyrfalcon.operators import dense
from gyrfalcon.operators.keeping import Halving
from gyrfalcon.storage.checkpoints import Checkpoint

F32 = np.float32
SETS = [isa for isa in _core.instruction_sets() if isa in HALF_SETS]
pytestmark = pytest.mark.skipif(not SETS, reason="no instruction set here converts entries of 16 bits")

RNG = np.random.default_rng(0)
N, M, D = 900, 70, 64
X = RNG.standard_normal((N, D)).astype(F32)
GAUSSIAN = Gaussian(8.0)
MUCH = Halving(10**9, passes=100)


def halved(kernel=GAUSSIAN, **options):
    return KernelOperator(kernel, X, X[:M], memory_budget=0, halving=MUCH, **options)


@pytest.mark.parametrize("isa", SETS)
def test_numbers_are_rounded_to_the_nearest_step(isa):
    near, wrong = RNG.random((37, 29)), np.array([[np.inf, -np.inf, 2.0, 1e30, -1e-30] * 9])
    for values in (near, 1e-6 * near, -near, np.zeros((3, 5)), np.ones((1, 1)), wrong, np.full((1, 35), np.nan)):
        K = values.astype(F32)
        out = np.empty(K.shape, np.uint16)
        _core.narrow(isa, K, out)
        # half a step, and the rounding of 65,535 in float32
        assert np.abs(out - np.clip(np.nan_to_num(K), 0, 1) * 65535.0).max() <= 0.5 + 65535 * 2.0**-24


@pytest.mark.parametrize("isa", SETS)
@pytest.mark.parametrize(
    "shape", [(0, 3, 1), (1, 1, 1), (7, 5, 3), (97, 33, 1), (300, 513, 11), (26, 2100, 2)], ids=str
)
def test_the_native_product(shape, isa):
    n, m, k = shape
    H = RNG.integers(0, 2**16, (n, m), dtype=np.uint16)
    V, w = RNG.standard_normal((m, k)).astype(F32), RNG.random(n).astype(F32)
    out, K = np.empty((m, k)), H / 65535
    for weight in (None, w):
        _core.half_sandwich(isa, H, V, weight, out)
        by = np.ones((n, 1)) if weight is None else w.astype(float)[:, None]
        size = K.T @ (by * (K @ np.abs(V)))
        # sums in float32 have at most 64 vectors of centers and 256 rows
        assert np.max(np.abs(out - K.T @ (by * (K @ V))) - 256 * 2.0**-24 * size) <= 0


def test_native_functions_check_what_they_are_given():
    H, V, out = np.zeros((4, 3), np.uint16), np.zeros((3, 1), F32), np.zeros((3, 1))
    for wrong in (
        (H, V[:2], None, out),
        (H, V, None, out[:2]),
        (H, V, np.zeros(3, F32), out),
        (H.astype(F32), V, None, out),
        (H, np.zeros((3, 2), F32), None, out),
    ):
        with pytest.raises((TypeError, ValueError)):
            _core.half_sandwich(SETS[0], *wrong)
    with pytest.raises(ValueError, match="shape of the block"):
        _core.narrow(SETS[0], np.zeros((4, 3), F32), np.zeros((4, 2), np.uint16))
    with pytest.raises(ValueError, match="cannot convert"):
        _core.narrow("baseline", np.zeros((1, 1), F32), np.zeros((1, 1), np.uint16))


@pytest.mark.parametrize("kernel", [Gaussian(8.0), Laplacian(8.0), Laplacian(60.0, norm=1), Matern(9.0)], ids=repr)
@pytest.mark.parametrize("columns", [1, 3, 300])
def test_only_the_sandwich_is_rounded(kernel, columns):
    operator, exact = halved(kernel), KernelOperator(kernel, X, X[:M], memory_budget=0)
    assert operator.arithmetic == "kept in 16 bits"
    assert (operator.keeps, operator.kept_bytes) == (True, 2 * N * M)
    V, U = RNG.standard_normal((M, columns)).astype(F32), RNG.standard_normal((N, columns)).astype(F32)
    w = RNG.random(N).astype(F32)
    K = np.concatenate([block for _, block in exact.blocks()])
    rounded = np.rint(K * 65535.0) / 65535
    image = np.empty((N, columns), F32)

    first = operator.sandwich(V, w)  # the pass that fills K is exact
    np.testing.assert_allclose(first, exact.sandwich(V, w), rtol=1e-4, atol=1e-5 * np.abs(first).max())
    for weight in (None, w):
        by = 1.0 if weight is None else w[:, None].astype(float)
        expected = rounded.T @ (by * (rounded @ V))
        got = operator.sandwich(V, weight)
        assert np.abs(got - expected).max() <= 1e-5 * np.abs(expected).max()
    np.testing.assert_array_equal(operator.matmat(V), exact.matmat(V))
    np.testing.assert_array_equal(operator.rmatmat(U), exact.rmatmat(U))
    np.testing.assert_array_equal(
        operator.sandwich(V, lambda at, T: U[at] - T), exact.sandwich(V, lambda at, T: U[at] - T)
    )
    np.testing.assert_array_equal(operator.sandwich(V, w, KV=image), exact.sandwich(V, w, KV=image.copy()))
    np.testing.assert_array_equal(np.concatenate([block for _, block in operator.blocks()]), K)
    assert operator.passes == 8


@pytest.mark.parametrize("columns", [1, 10])
def test_whoever_fills_k_and_on_any_threads(columns, monkeypatch):
    monkeypatch.setattr(dense, "_FEW_OPERATIONS", 0)
    monkeypatch.setattr(dense, "block_rows", lambda *shape: 100)
    V = RNG.standard_normal((M, columns))
    products = []
    for n_jobs in (1, 3):
        for fill in (
            lambda K: K.fill(),
            lambda K: K.matmat(V),
            lambda K: list(K.blocks()),
            lambda K: K.set_filled(True),
        ):
            operator = halved(n_jobs=n_jobs)
            fill(operator)
            products.append(operator.sandwich(V))
    for product in products[1:]:
        np.testing.assert_array_equal(product, products[0])


@pytest.mark.parametrize(
    ("kernel", "rows", "halving"),
    [
        (Gaussian(8.0), X.astype(float), MUCH),
        (Linear(), X, MUCH),
        (2.0 * Gaussian(8.0), X, MUCH),
        (Gaussian(8.0), X[:, :2].copy(), Halving(10**9, passes=5)),
        (Gaussian(8.0), X, Halving(2 * N * M - 1, passes=100)),
        (Gaussian(8.0), X, Halving(10**9, passes=1)),
        (Gaussian(8.0), X, None),
    ],
    ids=["float64", "not bounded", "not known to be", "cheap", "too large", "one pass", "not allowed"],
)
def test_where_k_is_not_rounded(kernel, rows, halving):
    operator = KernelOperator(kernel, rows, rows[:M], memory_budget=0, halving=halving)
    assert operator.arithmetic == "made again"


def test_16_bits_come_before_float32():
    operator = KernelOperator(GAUSSIAN, X, X[:M], memory_budget="1GB", halving=MUCH)
    assert operator.arithmetic == "kept in 16 bits"
    assert operator.kept_bytes == 2 * N * M
    operator.fill()
    assert operator.sandwich(np.empty((M, 0))).shape == (M, 0)
    # where it is not allowed, float32 is kept as ever
    assert KernelOperator(Linear(), X, X[:M], memory_budget="1GB", halving=MUCH).kept_bytes == 4 * N * M


def test_nothing_without_the_instructions(monkeypatch):
    monkeypatch.setenv("GYRFALCON_ISA", "baseline")
    assert halved().arithmetic == "made again"


# ---- fits: a sample of the rows, which preconditions -----------------------------------------------------------------

WIDE = 440
PLANE = RNG.standard_normal((6000, 3))
NOISE = 0.05 * RNG.standard_normal((6000, WIDE))
# near a plane, so that a smooth kernel's matrix has eigenvalues far below what rounding to a float of 16 bits adds
ROWS = (PLANE @ RNG.standard_normal((3, WIDE)) / np.sqrt(3) + NOISE).astype(F32)
Y = np.sin(1.5 * PLANE[:, 0]) + PLANE[:, 1] + 0.01 * RNG.standard_normal(len(ROWS))
TRAIN = 5000
MODEL = FalkonRegressor(
    Gaussian(20.0), n_centers=100, penalty=1e-6, scale=False, preconditioner="sample", random_state=0
)


@pytest.fixture
def arithmetic(monkeypatch):
    """What operators do, by their number of rows."""
    seen = {}
    make_operator = dense.KernelOperator.__init__

    def watched(self, *arguments, **options):
        make_operator(self, *arguments, **options)
        seen[self.shape[0]] = self.arithmetic

    monkeypatch.setattr(dense.KernelOperator, "__init__", watched)
    return seen


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("targets", [Y, np.stack([Y, Y**2, -Y], axis=1)], ids=["one", "three"])
def test_only_the_sample_is_rounded_and_models_are_as_good(targets, arithmetic):
    def error(**parameters):
        model = clone(MODEL).set_params(**parameters).fit(ROWS[:TRAIN], targets[:TRAIN])
        return np.sqrt(np.mean(np.square(model.predict(ROWS[TRAIN:]) - targets[TRAIN:]), axis=0))

    rounded = error()
    assert arithmetic[TRAIN // 8] == "kept in 16 bits"
    assert arithmetic[TRAIN] == "kept in memory"
    exact = error(memory_budget=0)
    assert set(arithmetic.values()) == {"made again"}
    # both end when the squared error is known to a thousandth
    np.testing.assert_allclose(rounded, exact, rtol=0.01)


def test_a_fit_that_goes_on_has_the_same_bits(arithmetic, tmp_path):
    model = clone(MODEL).set_params(penalty=1e-4)
    whole = clone(model).fit(ROWS, Y)
    last = whole.history_[-1]["iteration"]
    assert last > 1

    def fail(record):
        if record["iteration"] == last - 1:
            raise KeyError

    with pytest.raises(KeyError):
        clone(model).set_params(checkpoint=Checkpoint(tmp_path, 0), callbacks=fail).fit(ROWS, Y)
    again = clone(model).set_params(checkpoint=tmp_path).fit(ROWS, Y)
    np.testing.assert_array_equal(again.dual_coef_, whole.dual_coef_)
    assert [record["passes"] for record in again.history_] == [record["passes"] for record in whole.history_]
    assert arithmetic[len(ROWS) // 8] == "kept in 16 bits"
