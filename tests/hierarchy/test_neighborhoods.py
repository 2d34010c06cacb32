"""Predictions by the nearest rows: a dense solve for each row, limits in which the fit is exact, and refusals."""

from __future__ import annotations

import numpy as np
import pytest

import gyrfalcon
from gyrfalcon import ExactRegressor, HierarchicalRegressor
from gyrfalcon.hierarchy import Neighborhoods, neighborhoods
from gyrfalcon.kernels import Gaussian, Kernel, Laplacian, Polynomial

KERNEL = Laplacian(1.5)


def data(n: int = 400, d: int = 3) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.uniform(-3, 3, size=(n + 50, d))
    y = np.sin(X[:, 0]) * np.cos(X[:, 1]) + 0.1 * rng.standard_normal(n + 50)
    return X[:n], y[:n], X[n:]


def model(kernel: Kernel = KERNEL, **parameters: object) -> HierarchicalRegressor:
    given = {"penalty": 1e-4, "leaf_size": 20, "n_trees": 1, "n_centers": 0, "scale": False, "random_state": 0}
    return HierarchicalRegressor(kernel, **given | parameters)


@pytest.mark.parametrize("kernel", [KERNEL, Gaussian(2.0), Polynomial(2, coef0=1.0)])
@pytest.mark.parametrize("n_centers", [0, 15])
def test_each_row_is_a_dense_solve(kernel: Kernel, n_centers: int) -> None:
    X, y, new = data()
    weight = np.random.default_rng(1).uniform(0.5, 2.0, len(X))
    fitted = model(kernel, n_neighbors=30, n_centers=n_centers, dtype="float64").fit(X, y, sample_weight=weight)
    kernel = fitted.kernel_

    def smooth(rows: np.ndarray) -> np.ndarray:
        parts = kernel(rows, fitted.global_centers_) @ fitted.global_coef_ if n_centers else np.zeros((len(rows), 1))
        return np.asarray(parts[:, 0] + fitted.offset_)

    noise, left = 1e-4 * weight.sum() / weight, y - smooth(X)
    wanted = smooth(new)
    for i, x in enumerate(new):
        distance = kernel.diag(X) - 2 * kernel(x[None], X)[0]
        near = np.argsort(distance)[:30]
        system = kernel(X[near], X[near]) + np.diag(noise[near])
        wanted[i] += kernel(x[None], X[near])[0] @ np.linalg.solve(system, left[near])
    np.testing.assert_allclose(fitted.predict(new), wanted, atol=1e-7)


def test_all_rows_are_the_exact_fit() -> None:
    X, y, new = data()
    Y = np.c_[y, 1000 * y**2]
    near = model(n_neighbors=10_000).fit(X, Y)
    assert near.neighborhoods_.size == len(X)
    exact = ExactRegressor(KERNEL, penalty=1e-4, scale=False).fit(X, Y)
    np.testing.assert_allclose(near.predict(new), exact.predict(new), rtol=1e-7, atol=1e-7)
    one = model(n_neighbors=5).fit(X[:1], y[:1])
    np.testing.assert_allclose(one.predict(new), np.full(50, y[0]), atol=1e-12)


def test_neighbors_are_closer_to_the_exact_fit_than_trees() -> None:
    X, y, new = data(2_000)
    exact = ExactRegressor(KERNEL, penalty=1e-5, scale=False).fit(X, y).predict(new)
    trees, near = (
        np.linalg.norm(model(penalty=1e-5, leaf_size=60, n_trees=4, n_neighbors=m).fit(X, y).predict(new) - exact)
        for m in (0, 60)
    )
    assert near < trees


def test_few_cells_are_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neighbors among some cells are close to those among all rows, and rows may be predicted in any parts."""
    X, y, new = data(2_000)
    fitted = model(n_neighbors=20).fit(X, y)
    everywhere = fitted.predict(new)
    monkeypatch.setattr(neighborhoods, "_SEARCHED", 60)
    monkeypatch.setattr(neighborhoods, "_SEARCHED_TIMES", 1)
    monkeypatch.setattr(neighborhoods, "_AT_ONCE", 1)
    somewhere = fitted.predict(new)
    assert 0 < np.linalg.norm(somewhere - everywhere) < 0.3 * np.linalg.norm(everywhere)
    np.testing.assert_allclose([fitted.predict(x[None])[0] for x in new[:5]], somewhere[:5], atol=1e-10)
    np.testing.assert_array_equal(fitted.set_params(n_jobs=2).predict(new), fitted.set_params(n_jobs=1).predict(new))


def test_files_and_equal_rows(tmp_path) -> None:
    X, y, new = data(60)
    fitted = model(n_neighbors=25, penalty=0.0).fit(np.repeat(X, 3, axis=0), np.repeat(y, 3))
    assert np.isfinite(fitted.predict(np.r_[new, new + 1e6])).all()
    gyrfalcon.save(fitted, tmp_path / "model.gyr")
    np.testing.assert_array_equal(gyrfalcon.load(tmp_path / "model.gyr").predict(new), fitted.predict(new))


def test_refusals() -> None:
    X, y, _ = data(30)
    with pytest.raises(ValueError, match=r"n_neighbors=5 has no standard deviations"):
        model(n_neighbors=5, uncertainty=True).fit(X, y)
    for wrong in (-1, 2.5, None):
        with pytest.raises(ValueError, match="n_neighbors"):
            model(n_neighbors=wrong).fit(X, y)
    for size, noise in ((4, np.ones(3)), (0, np.ones(3)), (2.0, np.ones(3)), (2, np.zeros(3))):
        with pytest.raises(ValueError, match=r"size|noise"):
            Neighborhoods(size, np.ones((3, 1)), noise)
