"""Rows of tensors that stay on their device: the contract of sources, and which tensors stay."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal

from gyrfalcon._utils.devices import round_to_tf32
from gyrfalcon.sources import ArrayRows, TensorRows, near
from gyrfalcon.sources.scaling import Standardize
from gyrfalcon.testing import check_rows

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.devices, pytest.mark.usefixtures("one_thread")]

VALUES = np.random.default_rng(0).integers(-50, 50, (103, 4)).astype(np.float64)
TENSORS = {
    "float64": (torch.tensor(VALUES), np.float64),
    "float32": (torch.tensor(VALUES, dtype=torch.float32), np.float32),
    "float16": (torch.tensor(VALUES, dtype=torch.float16), np.float32),
    "bfloat16": (torch.tensor(VALUES, dtype=torch.bfloat16), np.float32),
    "int16": (torch.tensor(VALUES, dtype=torch.int16), np.float64),
    "transposed": (torch.tensor(VALUES.T.copy()).T, np.float64),
    "every second": (torch.tensor(np.repeat(np.repeat(VALUES, 2, 0), 2, 1))[::2, ::2], np.float64),
    "imaginary part": (torch.complex(torch.tensor(VALUES), torch.tensor(-VALUES)).conj().imag, np.float64),
}


@pytest.mark.parametrize("name", TENSORS)
def test_they_keep_the_contract(name):
    X, dtype = TENSORS[name]
    rows = near(X, "cpu")
    assert isinstance(rows, TensorRows)
    assert rows.dtype == dtype
    check_rows(rows, VALUES)
    check_rows(rows.subset(np.arange(0, 103, 3)), VALUES[::3])
    assert_array_equal(rows.extremes(), [VALUES.min(), VALUES.max()])
    assert rows.fingerprint() == ArrayRows(VALUES.astype(dtype)).fingerprint()


@pytest.mark.parametrize("dtype", [np.float32, np.float64], ids=lambda t: t.__name__)
def test_what_is_done_on_the_device_has_the_bits_of_the_host(dtype):
    X = (1e3 + np.random.default_rng(0).standard_normal((500, 3))).astype(dtype)
    here, there = ArrayRows(X), TensorRows(torch.tensor(X))
    given = X.copy()
    for weight in (None, np.random.default_rng(1).random(500), np.zeros(500)):
        one, other = here.moments(weight), there.moments(weight)
        assert one.total == pytest.approx(other.total, rel=1e-14)
        assert_allclose(other.mean, one.mean, rtol=1e-14)
        assert_allclose(other.squares, one.squares, rtol=1e-9)  # of numbers that are 1000 times their deviation
    mean, scale = here.moments().mean_and_scale()
    for step in (Standardize(mean, scale, np.float32), Standardize(None, scale, dtype)):
        for rows in (here, here.subset(np.arange(7, 400))):
            other = there if rows is here else there.subset(np.arange(7, 400))
            mapped = other.map(step, step.dtype)
            assert isinstance(mapped, TensorRows)
            check_rows(mapped, rows.map(step, step.dtype).take(np.arange(rows.shape[0])))
    assert isinstance(there.astype(np.float32), TensorRows)
    check_rows(there.astype(np.float32), X.astype(np.float32))
    rounded = there.astype(np.float32).map(round_to_tf32, np.float32)
    assert isinstance(rounded, TensorRows)
    check_rows(rounded, round_to_tf32(X.astype(np.float32)))
    assert there.map(sp.csr_array, dtype).is_sparse  # a function that is known on the host alone
    assert_array_equal(X, given)


@pytest.mark.filterwarnings("ignore:Sparse")  # PyTorch calls its CSR tensors beta
def test_which_tensors_stay():
    X = torch.tensor(VALUES)
    assert type(near(X, None)) is np.ndarray
    assert near(VALUES, "cpu") is VALUES
    for other in (
        X[0],
        X[:0],
        X[:, :0],
        X[None],
        X.to(torch.complex64),
        torch.where(X[0, 0] == X, torch.nan, X),
        torch.where(X[0, 0] == X, torch.inf, X),
    ):
        assert type(near(other, "cpu")) is np.ndarray
    assert sp.issparse(near(X.to_sparse(), "cpu"))
    with pytest.raises(ValueError, match="requires gradients"):
        near(X.clone().requires_grad_(), "cpu")
