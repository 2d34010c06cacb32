"""Tensors on devices: no row of them comes to the host, and predictions stay where the rows are."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

from gyrfalcon import FalkonClassifier, FalkonRegressor, KernelOperator
from gyrfalcon.backends import triton_tiles
from gyrfalcon.kernels import Gaussian, Laplacian
from gyrfalcon.operators import DeviceOperator, make_operator
from gyrfalcon.preconditioners import torch_factors
from gyrfalcon.sources import TensorRows

torch = pytest.importorskip("torch")

pytestmark = [
    pytest.mark.devices,
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning"),
]

TWO = ["cuda:0", "cuda:1"]
KERNEL = Gaussian(15.0) + Laplacian(20.0)
RNG = np.random.default_rng(0)
X = RNG.standard_normal((900, 7)) * [1, 2, 3, 4, 5, 6, 7] + 3
Y = np.sin(X[:, 0]) + X[:, 1]
CLASSES = np.digitize(Y, np.quantile(Y, [0.3, 0.7]))
WEIGHT = RNG.random(900)


@pytest.fixture
def cuda(monkeypatch):
    from pretended import pretend

    # the check of fused products, for the first operator of a process that may have them, sends rows of its own
    monkeypatch.setattr(triton_tiles, "FUSED_ON", set())
    # threads that deal tiles of factors to devices would be outside of the mode that pretends
    monkeypatch.setattr(torch_factors, "share", lambda run, items, n_threads: [run(item) for item in items])
    with pretend(monkeypatch) as devices:
        yield devices


def there(values, device="cuda:0"):
    return torch.tensor(values).to(torch.device(device))


def rows_of(shapes):
    """Shapes of copies that are as wide as the rows, and more than the 30 centers."""
    return [shape for shape in shapes if len(shape) == 2 and shape[1] == 7 and shape[0] > 30]


# ---- operators -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=lambda t: t.__name__)
@pytest.mark.parametrize("keeps", [False, True])
def test_blocks_are_taken_where_they_are(cuda, dtype, keeps):
    given = X.astype(dtype)
    tensor = there(given, "cuda:1")
    operator = DeviceOperator(KERNEL, tensor, given[:30], device=TWO)
    operator._may_keep = keeps
    operator.block_size = 200
    here = KernelOperator(KERNEL, given, given[:30])
    cuda.sent.clear()
    V, tolerance = RNG.standard_normal((30, 2)), 2e-6 if dtype == np.float32 else 1e-13
    for _ in range(2):
        for found, expected in (
            (operator.matmat(V), here.matmat(V)),
            (operator.sandwich(V, WEIGHT), here.sandwich(V, WEIGHT)),
            (operator.rmatmat(Y), here.rmatmat(Y)),
        ):
            assert_allclose(found, expected, rtol=0, atol=tolerance * np.abs(expected).max())
    assert rows_of(cuda.fetched) == rows_of(cuda.sent) == []
    cuda.fetched.clear()
    image = operator.image(V)
    assert image.device == tensor.device
    assert max(map(len, cuda.fetched), default=0) == 0  # single numbers at most
    assert_array_equal(image.cpu().numpy(), operator.matmat(V))
    assert operator.passes == 8


def test_memory_runs_out_while_rows_are_made(cuda):
    tensor = there(X)
    operator = DeviceOperator(KERNEL, tensor, X[:30], device=TWO)
    operator.block_size, cuda.room = 400, 150
    V = RNG.standard_normal((30, 2))
    assert_allclose(
        operator.image(V).cpu().numpy(), KernelOperator(KERNEL, X, X[:30]).matmat(V), rtol=1e-12, atol=1e-13
    )
    assert operator.block_size == 100


def test_rows_of_another_kind_of_device_go_through_the_host(cuda):
    assert isinstance(make_operator(KERNEL, there(X), X[:30], device="cuda:1").rows, TensorRows)
    for tensor, device in ((there(X), "cpu"), (torch.tensor(X), "cuda:0"), (there(X), None)):
        operator = make_operator(KERNEL, tensor, X[:30], device=device)
        assert not isinstance(operator.rows, TensorRows)
        assert type(operator.image(np.ones(30))) is np.ndarray


def test_rows_that_are_not_finite_are_named():
    wrong = torch.tensor(X)
    wrong[650, 2] = torch.nan
    for rows in (wrong, TensorRows(wrong)):
        operator = DeviceOperator(KERNEL, rows, X[:30], device="cpu")
        with pytest.raises(ValueError, match=r"row 650 has nan in feature 2"):
            operator.image(np.ones(30))


def test_tf32_rounds_tensors_as_it_rounds_arrays():
    given = X.astype(np.float32)
    one, other = (
        DeviceOperator(KERNEL, rows, given[:30], device=["cpu"] * 2, precision="tf32")
        for rows in (given, torch.tensor(given))
    )
    assert isinstance(other.rows, TensorRows)
    V = RNG.standard_normal((30, 2))
    assert_array_equal(one.sandwich(V), other.sandwich(V))
    assert_array_equal(other.on(torch.tensor(given[:99])).image(V).numpy(), one.matmat(V)[:99])


# ---- fits ------------------------------------------------------------------------------------------------------------

COMMON = {"n_centers": 30, "penalty": 1e-3, "random_state": 0}
SETTLED = {**COMMON, "max_iter": 200}  # before it has converged, conjugate gradient multiplies every rounding
FITS = {
    "squared": (FalkonRegressor(**SETTLED), Y),
    "not scaled": (FalkonRegressor(**SETTLED, scale=False, kernel=Gaussian(10.0)), Y),
    "float32 of float64": (FalkonRegressor(**SETTLED, dtype="float32"), Y),
    "early stopping": (FalkonRegressor(**COMMON, early_stopping=True), Y),
    "a sample": (FalkonRegressor(**COMMON, preconditioner="sample"), Y),
    "chosen penalty": (FalkonRegressor(n_centers=30, max_iter=200, random_state=0), Y),
    "huber, two outputs": (FalkonRegressor(**COMMON, loss="huber"), np.stack([Y, X[:, 0]], axis=1)),
    "quantiles": (FalkonRegressor(**COMMON, loss="quantile", quantiles=[0.9, 0.1]), Y),
    "poisson": (FalkonRegressor(**COMMON, loss="poisson"), np.round(np.abs(Y))),
    "logistic": (FalkonClassifier(**COMMON, loss="logistic"), CLASSES > 0),
    "softmax": (FalkonClassifier(**COMMON, loss="logistic", multi_class="multinomial"), CLASSES),
    "squared hinge": (FalkonClassifier(**COMMON, loss="squared_hinge"), CLASSES),
    "hinge": (FalkonClassifier(**COMMON, loss="hinge"), CLASSES > 0),
    "squared, classes": (FalkonClassifier(**SETTLED), CLASSES),
}
PROBABLE = ("logistic", "softmax")


@pytest.mark.parametrize("name", FITS)
def test_a_fit_of_tensors_is_that_of_arrays_on_the_same_device(name):
    model, targets = FITS[name]
    tensor, y = torch.tensor(X), torch.tensor(targets)
    arrays = clone(model).set_params(device=["cpu"] * 2).fit(X, targets, sample_weight=WEIGHT)
    tensors = clone(arrays).fit(tensor, y, sample_weight=torch.tensor(WEIGHT))
    # the two libraries sum means and deviations of features in another order
    tolerance = 2e-5 if name == "float32 of float64" else 1e-10
    assert_allclose(tensors.centers_, arrays.centers_, rtol=0, atol=tolerance)
    for attribute in (tensors.dual_coef_, tensors.centers_):
        assert type(attribute) is np.ndarray
    assert type(tensors.offset_) is type(arrays.offset_)
    predictions = tensors.predict(tensor)
    assert isinstance(predictions, torch.Tensor)
    scale = np.abs(arrays.predict(X)).max()
    assert_allclose(predictions.numpy(), arrays.predict(X), rtol=0, atol=tolerance * scale)
    assert tensors.score(tensor, y, torch.tensor(WEIGHT)) == pytest.approx(
        arrays.score(X, targets, WEIGHT), rel=tolerance
    )
    for method in ("predict_proba", "predict_log_proba") if name in PROBABLE else ():
        found = getattr(tensors, method)(tensor)
        assert found.dtype == torch.float64
        assert_allclose(found.numpy(), getattr(arrays, method)(X), rtol=0, atol=1e-9)


@pytest.mark.parametrize(("name", "device"), [*((name, TWO) for name in FITS), (next(iter(FITS)), "cuda:0")], ids=str)
def test_no_rows_come_to_the_host(cuda, name, device):
    model, targets = FITS[name]
    tensor, held = there(X), there(X[:200])
    y = there(targets)
    cuda.sent.clear()
    model = clone(model).set_params(device=device)
    model.fit(tensor, y, sample_weight=there(WEIGHT), X_val=held, y_val=there(targets[:200]))
    # centers, and the rows from which the penalty is chosen
    allowed = {len(X)} if name == "chosen penalty" else set()
    assert {shape[0] for shape in rows_of(cuda.fetched)} <= allowed
    assert rows_of(cuda.sent) == []
    cuda.fetched.clear()
    predictions = model.predict(tensor)
    assert predictions.device == tensor.device
    if name in PROBABLE:
        assert model.predict_proba(tensor).device == tensor.device
    assert rows_of(cuda.fetched) == rows_of(cuda.sent) == []
    assert max((shape[0] for shape in cuda.fetched if shape), default=0) <= 2  # the extremes, and no number of a row
    model.score(tensor, y)
    assert rows_of(cuda.fetched) == rows_of(cuda.sent) == []
    if model.loss == "squared" or name in PROBABLE:
        validation = {"X_val": X[:200], "y_val": targets[:200]}
        expected = clone(model).set_params(device=None).fit(X, targets, sample_weight=WEIGHT, **validation)
        values = predictions.cpu().numpy().astype(np.float64)
        tolerance = 1e-4 if name == "float32 of float64" else 1e-6
        assert np.abs(values - expected.predict(X)).mean() < tolerance * np.abs(values).mean()
