"""The solve on the workers of a cluster: the results of a solve in memory."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

from gyrfalcon import HierarchicalClassifier, HierarchicalRegressor
from gyrfalcon.hierarchy import factorise, factorise_on_workers, make_hierarchy
from gyrfalcon.kernels import Laplacian

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")

from gyrfalcon.sources import DaskRows  # noqa: E402


def data(n: int = 700) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, 3))
    return X, np.c_[np.sin(2 * X[:, 0]) * X[:, 1], X[:, 2]] + 0.1 * rng.standard_normal((n, 2))


@pytest.mark.parametrize(("leaf_size", "chunk"), [(4, 97), (40, 700), (350, 200), (699, 300), (700, 300)])
def test_equals_the_solve_in_memory(leaf_size: int, chunk: int) -> None:
    X, Y = data()
    noise = np.random.default_rng(1).uniform(0.1, 0.2, len(X))
    hierarchy = make_hierarchy(Laplacian(2.0), X, leaf_size=leaf_size, rank=1 + leaf_size // 8, split="axis", seed=0)
    needed = {"with_diagonal": True, "with_covariances": True}
    wanted = factorise(hierarchy, Y, noise, **needed)
    seen: list[int] = []
    with dask.config.set(scheduler="threads"):
        rows = DaskRows(da.from_array(X, chunks=(chunk, -1)))
        found = factorise_on_workers(hierarchy, Y, noise, rows=rows, tell=seen.append, **needed)
    for name in ("coef", "pivot_coef", "inverse_diagonal", "covariances", "log_det"):
        assert_allclose(getattr(found, name), getattr(wanted, name), rtol=1e-9, atol=1e-9)
    if leaf_size < len(X):
        assert seen[-1] == hierarchy.tree.n_leaves


def test_a_fit_in_this_process() -> None:
    X, Y = data()
    model = HierarchicalRegressor(Laplacian(2.0), penalty=1e-4, leaf_size=40, n_centers=0, n_trees=2, random_state=0)
    wanted = model.fit(X, Y).predict(X)
    with dask.config.set(scheduler="synchronous"):
        assert_allclose(model.fit(da.from_array(X, chunks=(200, -1)), Y).predict(X), wanted, atol=1e-9)


def test_too_little_memory_on_the_workers_names_sizes_that_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    X, Y = data()
    monkeypatch.setattr("gyrfalcon.sources._schedulers.InProcess.room", lambda self, budget: (10**6,) * 3)
    model = HierarchicalRegressor(Laplacian(2.0), penalty=1e-4, leaf_size=200, rank=100, random_state=0)
    with (
        dask.config.set(scheduler="synchronous"),
        pytest.raises(MemoryError, match=r"on the workers.*leaf_size=\d+ with rank=\d+ would fit"),
    ):
        model.fit(da.from_array(X, chunks=(200, -1)), Y)


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    distributed = pytest.importorskip("distributed")
    before = os.environ.copy()
    with (
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=True,
            dashboard_address=":0",
            memory_limit="1GiB",
            silence_logs="CRITICAL",
        ) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        for name in set(os.environ) - set(before):
            del os.environ[name]
        yield client


@pytest.mark.slow
@pytest.mark.parametrize(
    "model",
    [
        HierarchicalRegressor(Laplacian(2.0), penalty=1e-4, leaf_size=40, n_centers=0, n_trees=2, random_state=0),
        HierarchicalRegressor(Laplacian(2.0), penalties=[1e-4, 1e-3], leaf_size=40, uncertainty=True, random_state=0),
        HierarchicalClassifier("laplacian", penalty=1e-4, leaf_size=40, n_centers=30, random_state=0),
    ],
    ids=["regressor", "uncertain", "classifier"],
)
def test_a_fit_on_a_cluster_of_processes(client: Any, model: Any) -> None:
    X, Y = data(3_000)
    y = Y[:, 0] > 0 if isinstance(model, HierarchicalClassifier) else Y[:, 0]
    model.fit(X, y)
    wanted = model.predict_proba(X) if isinstance(model, HierarchicalClassifier) else model.predict(X)
    model.fit(DaskRows(da.from_array(X, chunks=(500, -1)), client=client), da.from_array(y, chunks=500))
    found = model.predict_proba(X) if isinstance(model, HierarchicalClassifier) else model.predict(X)
    # the global part stops at 1e-3, and its sums are those of partitions
    assert_allclose(found, wanted, atol=1e-6 if isinstance(model, HierarchicalClassifier) else 1e-9)


@pytest.mark.slow
def test_workers_hold_the_factors(client: Any) -> None:
    """A subtree is solved in a process of the cluster, and not here."""
    X, Y = data(3_000)
    hierarchy = make_hierarchy(Laplacian(2.0), X, leaf_size=40, rank=10, split="axis", seed=0)
    began = {key: len(names) for key, names in client.has_what().items()}
    rows = DaskRows(da.from_array(X, chunks=(500, -1)), client=client)
    held: list[int] = []

    def tell(leaves: int) -> None:
        held.append(sum(len(names) for names in client.has_what().values()))

    found = factorise_on_workers(hierarchy, Y, np.full(len(X), 0.1), rows=rows, tell=tell)
    assert_allclose(found.coef, factorise(hierarchy, Y, np.full(len(X), 0.1)).coef, atol=1e-9)
    assert max(held) > sum(began.values()) + 32
