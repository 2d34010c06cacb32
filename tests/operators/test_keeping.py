"""When K is kept: by what entries cost, and not by the threads."""

from __future__ import annotations

import numpy as np
import pytest

from gyrfalcon import FalkonClassifier, FalkonRegressor, KernelOperator, NystromRegressor, NytroRegressor
from gyrfalcon.fitting import subspace
from gyrfalcon.kernels import Gaussian, Laplacian, Linear
from gyrfalcon.operators import keeping
from gyrfalcon.operators.keeping import is_worth_keeping

LARGE = 10**10


def test_a_small_matrix_is_kept_whatever_it_costs_for_more_than_a_few_passes():
    assert is_worth_keeping(0.0, 1000, 8, passes=keeping.FEW_PASSES + 1)
    assert not is_worth_keeping(0.0, 1000, 8, passes=keeping.FEW_PASSES)


@pytest.mark.parametrize("itemsize", [4, 8])
def test_the_time_of_all_passes_decides(itemsize):
    """Against the sums of the passes, written out."""
    for cost in (0.5, 1.0, 2.0, 5.0, 50.0):
        for passes in (1, 2, 5, 20, 500):
            again = sum(cost / 4 for _ in range(passes))
            kept = cost / 4 + itemsize / 4.0 + sum(itemsize / 25.0 for _ in range(passes - 1))
            assert is_worth_keeping(cost, LARGE, itemsize, passes) == (again >= 1.25 * kept)


def test_one_pass_never_gains():
    assert not is_worth_keeping(1e6, LARGE, 4, passes=1)
    assert not is_worth_keeping(float("inf"), LARGE, 4, passes=1)
    assert is_worth_keeping(float("inf"), LARGE, 4, passes=2)


@pytest.fixture
def nothing_is_small(monkeypatch):
    monkeypatch.setattr(keeping, "_SMALL", 0)


@pytest.mark.parametrize("n_jobs", [1, 3])
@pytest.mark.parametrize(
    ("kernel", "d", "kept"),
    [
        (Gaussian(1.0), 5, False),
        (Gaussian(1.0), 100, True),
        (Laplacian(1.0, norm=1), 5, False),
        (Laplacian(1.0, norm=1), 20, True),  # costs more than products
        (Gaussian(1.0) + Gaussian(2.0), 20, True),
        (2.0 * Gaussian(1.0), 5, False),
        (lambda A, B: A @ B.T, 5, True),
    ],
    ids=["few features", "many features", "few differences", "differences", "sum", "scaled", "own"],
)
def test_what_an_entry_costs_decides(nothing_is_small, kernel, d, kept, n_jobs):
    X = np.random.default_rng(0).standard_normal((50, d)).astype(np.float32)
    assert KernelOperator(kernel, X, X[:5], n_jobs=n_jobs, backend="native", passes=21).keeps == kept
    assert KernelOperator(kernel, X, X[:5], n_jobs=n_jobs).keeps  # where passes are not known
    assert not KernelOperator(kernel, X, X[:5], n_jobs=n_jobs, memory_budget=0, passes=21).keeps


def test_numpy_tiles_are_worth_keeping(nothing_is_small):
    X = np.random.default_rng(0).standard_normal((50, 3))
    assert KernelOperator(Linear(), X, X[:5], backend="reference", passes=2).keeps


FITS = {
    "falkon": (lambda **more: FalkonRegressor(n_centers=20, **more), 21),
    "newton": (lambda **more: FalkonClassifier(n_centers=20, loss="logistic", **more), 84),
    "direct": (lambda **more: NystromRegressor(n_centers=20, **more), 1),
    "gradient descent": (lambda **more: NytroRegressor(n_centers=20, **more), 501),
}


@pytest.mark.parametrize(("make", "passes"), FITS.values(), ids=FITS)
def test_fits_say_how_many_passes_there_are(make, passes, monkeypatch):
    seen = []
    make_operator = subspace.make_operator

    def watched(*arguments, **options):
        seen.append(options["passes"])
        return make_operator(*arguments, **options)

    monkeypatch.setattr(subspace, "make_operator", watched)
    X = np.random.default_rng(0).standard_normal((60, 2))
    y = X[:, 0] > 0
    make(random_state=0).fit(X, y)
    make(random_state=0, memory_budget="1GB").fit(X, y)  # which is taken at its word, but for a few passes
    assert seen == [passes, passes if passes <= keeping.FEW_PASSES else None]


def test_a_fit_without_a_kept_matrix_is_that_of_memory_budget_0(nothing_is_small):
    X = np.random.default_rng(0).standard_normal((300, 3))
    fits = [
        FalkonRegressor(n_centers=30, random_state=0, memory_budget=budget).fit(X, np.sin(X[:, 0])).dual_coef_
        for budget in ("auto", 0)
    ]
    np.testing.assert_array_equal(*fits)
