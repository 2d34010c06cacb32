"""Dask rows: every product against the dense formula, whole fits against those of the same rows in memory.

On Dask's own threads, and on a real cluster of two processes, workers of which are killed.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import contextmanager

import numpy as np
import pytest
import scipy.sparse

da = pytest.importorskip("dask.array")
dd = pytest.importorskip("dask.dataframe")
distributed = pytest.importorskip("distributed")

import dask  # noqa: E402
import pandas as pd  # noqa: E402

from gyrfalcon import FalkonClassifier, FalkonRegressor, KernelOperator  # noqa: E402
from gyrfalcon.estimators._lazy import predict_lazily  # noqa: E402
from gyrfalcon.fitting import row_sample  # noqa: E402
from gyrfalcon.kernels import Gaussian  # noqa: E402
from gyrfalcon.losses import Huber, Logistic, Softmax, SquaredHinge  # noqa: E402
from gyrfalcon.operators import Rowwise, make_operator  # noqa: E402
from gyrfalcon.operators.dask import DaskOperator  # noqa: E402
from gyrfalcon.preconditioners import Preconditioner  # noqa: E402
from gyrfalcon.solvers.newton import newton  # noqa: E402
from gyrfalcon.sources import DaskRows, Rows, as_rows, as_source  # noqa: E402
from gyrfalcon.sources.dask import compute  # noqa: E402
from gyrfalcon.testing import check_rows  # noqa: E402

VALUES = np.random.default_rng(3).integers(0, 100, (103, 4))
PRECISION = {np.float32: 1e-6, np.float64: 1e-10}


@contextmanager
def cluster_of(workers):
    before = os.environ.copy()
    with (
        distributed.LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            processes=True,
            dashboard_address=":0",
            memory_limit="1GiB",
            silence_logs="CRITICAL",
        ) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        # the threads of its workers' BLAS, which it sets for this process as well
        for name in set(os.environ) - set(before):
            del os.environ[name]
        yield client


@pytest.fixture(scope="module")
def client():
    with cluster_of(2) as client:
        yield client


@pytest.fixture
def one_worker():
    """A cluster of a single process, which is not missed by other tests when it is killed."""
    with cluster_of(1) as client:
        yield client


@pytest.fixture(params=["synchronous", "threads", pytest.param("cluster", marks=pytest.mark.slow)])
def anywhere(request):
    """The schedulers, each as the ambient one."""
    if request.param == "cluster":
        with request.getfixturevalue("client").as_current() as client:
            yield client
    else:
        with dask.config.set(scheduler=request.param):
            yield None


def frame(values, partitions=3):
    table = pd.DataFrame(values, columns=[f"x{j}" for j in range(values.shape[1])])
    return dd.from_pandas(table, npartitions=partitions)


# ---- rows -----------------------------------------------------------------------------------------------------------

COLLECTIONS = {
    "float64": lambda: da.from_array(VALUES.astype(float), chunks=(20, 4)),
    "float32": lambda: da.from_array(VALUES.astype(np.float32), chunks=(20, 4)),
    "integers": lambda: da.from_array(VALUES, chunks=(103, 4)),
    "chunks over columns": lambda: da.from_array(VALUES.astype(float), chunks=(40, 3)),
    "uneven chunks": lambda: da.from_array(VALUES.astype(float), chunks=((1, 50, 2, 50), 4)),
    "unknown chunks, one of them empty": lambda: _with_unknown_chunks(),
    "dataframe": lambda: frame(VALUES.astype(float)),
    "float32 dataframe": lambda: frame(VALUES.astype(np.float32)),
    "nullable integers": lambda: frame(VALUES).astype("Int64"),
}


def _with_unknown_chunks():
    padded = np.vstack([np.full((30, 4), -1.0), VALUES])
    X = da.from_array(padded, chunks=(30, 4))
    return X[X[:, 0] >= 0]


@pytest.fixture(params=COLLECTIONS)
def rows(request):
    with dask.config.set(scheduler="synchronous"):
        yield as_rows(COLLECTIONS[request.param]())


def test_rows_say_what_they_are(rows):
    assert isinstance(rows, DaskRows)
    assert isinstance(rows, Rows)
    assert rows.shape == (103, 4)
    assert rows.lengths.sum() == 103
    assert rows.lengths.all()


def test_rows_keep_the_contract(rows):
    check_rows(rows, VALUES)


def test_take_subset_and_map(rows):
    indices = np.array([102, 0, 5, 5, 1])
    taken = rows.take(indices)
    assert taken.dtype == rows.dtype
    np.testing.assert_array_equal(taken, VALUES[indices])
    assert rows.take(np.empty(0, dtype=int)).shape == (0, 4)
    some = np.array([0, 3, 50, 51, 102])
    part = rows.subset(some)
    assert isinstance(part, DaskRows)
    np.testing.assert_array_equal(np.vstack(list(part.blocks(2))), VALUES[some])
    np.testing.assert_array_equal(part.take(np.array([3, 1])), VALUES[some[[3, 1]]])
    narrow = part.astype(np.float32)
    assert isinstance(narrow, DaskRows)
    (block,) = narrow.blocks(10)
    assert block.dtype == np.float32
    np.testing.assert_array_equal(block, VALUES[some])
    with pytest.raises(IndexError, match="103"):
        rows.take(np.array([103]))


def test_types():
    assert as_rows(COLLECTIONS["float32"]()).dtype == np.float32
    assert as_rows(COLLECTIONS["float32 dataframe"]()).dtype == np.float32
    assert as_rows(da.from_array(VALUES.astype(np.float16))).dtype == np.float32
    assert as_rows(frame(VALUES.astype(np.float16))).dtype == np.float32
    assert as_rows(COLLECTIONS["integers"]()).dtype == np.float64
    assert as_rows(COLLECTIONS["dataframe"]()).dtype == np.float64
    assert as_rows(COLLECTIONS["dataframe"]()).feature_names == ["x0", "x1", "x2", "x3"]


def test_fingerprints():
    X = VALUES.astype(float)
    one, same, other = (as_rows(da.from_array(x, chunks=(50, 4))) for x in (X, X.copy(), X + 1))
    assert one.fingerprint() == same.fingerprint() != other.fingerprint()
    parts = [one.subset(np.arange(k)).fingerprint() for k in (5, 5, 6)]
    assert parts[0] == parts[1] != parts[2]
    assert len({one.fingerprint(), parts[0], one.astype(np.float32).fingerprint()}) == 3


def test_sparse_chunks():
    X = scipy.sparse.random_array((103, 40), density=0.2, format="csr", rng=np.random.default_rng(0))
    chunks = [da.from_delayed(dask.delayed(X[a:b]), (b - a, 40), meta=X[:0]) for a, b in ((0, 60), (60, 103))]
    rows = as_rows(da.concatenate(chunks))
    assert scipy.sparse.issparse(rows.take(np.empty(0, dtype=int)))
    np.testing.assert_array_equal(scipy.sparse.vstack(list(rows.blocks(30))).toarray(), X.toarray())
    np.testing.assert_array_equal(rows.take(np.array([70, 3])).toarray(), X.toarray()[[70, 3]])
    assert rows.nbytes >= X.data.nbytes


def test_what_is_no_collection_is_left_alone():
    assert as_source([[1.0]]) is None
    y = np.arange(3)
    assert compute(y) is y
    np.testing.assert_array_equal(compute(da.from_array(y, chunks=2)), y)
    np.testing.assert_array_equal(compute(dd.from_pandas(pd.Series(["a", "b"]), npartitions=2)), ["a", "b"])


# ---- products -------------------------------------------------------------------------------------------------------


def residual(T, Y, w):
    return w[:, None] * (Y - T)


def problem(n=3_000, d=5, M=40, dtype=np.float64):
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d)).astype(dtype)
    return X, X[:M], rng.standard_normal((M, 2)), rng.standard_normal((n, 2)), rng.random(n)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("budget", [0, "200MB"])
def test_every_product(anywhere, dtype, budget):
    X, Z, V, U, w = problem(dtype=dtype)
    K = np.exp(-((X.astype(float)[:, None] - Z.astype(float)[None]) ** 2).sum(axis=2) / 8)
    rows = DaskRows(da.from_array(X, chunks=(700, 3)))
    operator = make_operator(Gaussian(2.0), rows, Z, memory_budget=budget)
    assert operator.shape == K.shape
    assert operator.keeps == (budget != 0)
    close = 1e-5 if dtype == np.float32 else 1e-12

    def check(found, exact):
        np.testing.assert_allclose(found, exact, rtol=0, atol=close * np.abs(exact).max())

    for _ in range(2):
        check(operator.matmat(V), K @ V)
        check(operator.rmatmat(U), K.T @ U)
        check(operator.sandwich(V), K.T @ (K @ V))
        check(operator.sandwich(V[:, 0], w), K.T @ (w * (K @ V[:, 0])))
        check(operator.sandwich(V, Rowwise(residual, U, w)), K.T @ (w[:, None] * (U - K @ V)))
    assert operator.passes == 10
    check(operator.sandwich(V, lambda at, T: w[at, None] * (U[at] - T)), K.T @ (w[:, None] * (U - K @ V)))
    assert operator.passes == 12  # a function of any kind needs the products here, and sends them back
    check(operator.centers_gram(), K[: len(Z)])
    check(np.vstack([block for _, block in operator.blocks()]), K)
    check(operator.on(X[:10]).matmat(V), K[:10] @ V)
    check(operator.on(rows.subset(np.arange(0, 3_000, 9))).matmat(V), K[::9] @ V)


@pytest.mark.parametrize("chunk", [1, 95, 96, 100, 1_000, 2_999, 3_000])
@pytest.mark.parametrize("budget", [0, "200MB"])
def test_float32_has_the_bits_of_memory(chunk, budget):
    X, Z, V, U, w = problem(dtype=np.float32)
    with dask.config.set(scheduler="synchronous"):
        there = DaskRows(da.from_array(X[:100] if chunk == 1 else X, chunks=(chunk, 5)))
        here = KernelOperator(Gaussian(2.0), X[: there.shape[0]], Z, memory_budget=budget)
        there = make_operator(Gaussian(2.0), there, Z, memory_budget=budget)
        assert here.keeps == there.keeps == (budget != 0)
        n = there.shape[0]
        for _ in range(2):
            np.testing.assert_array_equal(there.matmat(V), here.matmat(V))
            np.testing.assert_allclose(there.rmatmat(U[:n]), here.rmatmat(U[:n]), rtol=1e-12, atol=1e-10)
            weight = Rowwise(residual, U[:n], w[:n])
            np.testing.assert_allclose(there.sandwich(V, weight), here.sandwich(V, weight), rtol=1e-12, atol=1e-10)


@pytest.mark.slow
def test_same_bits_wherever_it_runs(client):
    X, Z, V, U, w = problem()
    X = da.from_array(X, chunks=(111, 5))  # so many that sums are of sums

    def products(rows):
        operator = DaskOperator(Gaussian(2.0), rows, Z, memory_budget=0)
        return [operator.matmat(V), operator.rmatmat(U), operator.sandwich(V, Rowwise(residual, U, w))]

    found = [products(DaskRows(X, client=client))]
    for scheduler in ("synchronous", "threads"):
        with dask.config.set(scheduler=scheduler):
            found.append(products(DaskRows(X)))
    for others in found[1:]:
        for one, other in zip(found[0], others, strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.slow
def test_large_orders_and_sums_stay_on_the_workers(client, monkeypatch):
    X, Z, V, U, w = problem()
    rows = DaskRows(da.from_array(X, chunks=(111, 5)), client=client)
    operator = make_operator(Gaussian(2.0), rows, Z, memory_budget=0)
    few = operator.sandwich(V, Rowwise(residual, U, w))
    monkeypatch.setattr("gyrfalcon.operators.dask._SMALL", 0)
    np.testing.assert_array_equal(operator.sandwich(V, Rowwise(residual, U, w)), few)
    KV = np.empty((len(X), V.shape[1]))
    np.testing.assert_array_equal(operator.sandwich(V, Rowwise(residual, U, w), KV=KV), few)
    np.testing.assert_array_equal(KV, operator.matmat(V))


@pytest.mark.slow
def test_processes():
    X, Z, V, _, _ = problem(n=200)
    with dask.config.set(scheduler="processes", num_workers=1):
        operator = make_operator(Gaussian(2.0), DaskRows(da.from_array(X, chunks=(100, 5))), Z)
        assert not operator.keeps
        np.testing.assert_allclose(operator.matmat(V), Gaussian(2.0)(X, Z) @ V, rtol=1e-10)


# ---- fits -----------------------------------------------------------------------------------------------------------


def regression(n=4_000, dtype=np.float64):
    rng = np.random.default_rng(1)
    X = rng.standard_normal((n, 3)).astype(dtype)
    y = np.sin(X[:, 0]) + X[:, 1] * X[:, 2] + 0.1 * rng.standard_normal(n)
    return X, y.astype(dtype), rng.random(n)


def falkon(**changes):
    return FalkonRegressor(Gaussian(1.5), n_centers=60, penalty=1e-2, random_state=0, **changes)


def assert_same_predictions(model, expected, X, tolerance):
    f = expected.predict(X)
    np.testing.assert_allclose(model.predict(X), f, rtol=0, atol=tolerance * np.abs(f).max())


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_fit_is_that_of_memory(anywhere, dtype):
    X, y, w = regression(dtype=dtype)
    expected = falkon().fit(X, y, sample_weight=w)
    model = falkon().fit(
        da.from_array(X, chunks=(900, 2)), da.from_array(y, chunks=500), sample_weight=da.from_array(w, chunks=900)
    )
    # the same rows; means and deviations that scale them are sums of n numbers in another order
    rounding = len(X) * np.finfo(np.float64).eps + np.finfo(dtype).eps
    largest = np.abs(expected.centers_).max()
    np.testing.assert_allclose(model.centers_, expected.centers_, rtol=0, atol=rounding * largest)
    assert_same_predictions(model, expected, X, PRECISION[dtype])


@pytest.mark.slow
def test_a_sample_preconditions_as_in_memory(client, monkeypatch):
    monkeypatch.setattr(row_sample, "_WORTH_SAMPLING", 0)
    X = np.random.default_rng(0).standard_normal((6_000, 3), dtype=np.float32)
    y = np.sin(2 * X[:, 0]) + X[:, 1]
    settings = {"n_centers": 30, "penalty": 1e-6, "scale": False, "random_state": 0}
    expected = FalkonRegressor(**settings).fit(X, y)
    found = FalkonRegressor(**settings).fit(DaskRows(da.from_array(X, chunks=(1_100, 3)), client=client), y)
    assert found.history_[-1]["preconditioner"] == expected.history_[-1]["preconditioner"] == "sample"
    assert found.history_[-1]["passes"] == expected.history_[-1]["passes"] < 5
    rounding = np.finfo(np.float32).eps * np.abs(expected.dual_coef_).sum()  # of the terms of a prediction
    np.testing.assert_allclose(found.predict(X), expected.predict(X), rtol=0, atol=rounding)


@pytest.mark.slow
def test_explicit_client(client):
    X, y, _ = regression()
    model = falkon().fit(DaskRows(da.from_array(X, chunks=(900, 3)), client=client), y)
    assert_same_predictions(model, falkon().fit(X, y), X, 1e-10)


@pytest.mark.slow
def test_explicit_client_for_all_that_is_given(client):
    """Collections that live on a cluster which is nobody's default can be had through its own client alone."""
    X, y, w = regression()
    kept = [client.persist(da.from_array(array, chunks=900)) for array in (y, w)]
    rows = DaskRows(client.persist(da.from_array(X, chunks=(900, 3))), client=client)
    model = falkon().fit(rows, kept[0], sample_weight=kept[1], X_val=rows, y_val=kept[0])
    expected = falkon().fit(X, y, sample_weight=w, X_val=X, y_val=y)
    assert_same_predictions(model, expected, X, 1e-10)
    assert model.score(rows, *kept) == pytest.approx(expected.score(X, y, w))


def test_several_targets_scaling_and_early_stopping():
    X, y, _ = regression()
    Y = np.column_stack([y, np.cos(X[:, 0])])
    X = X * [1.0, 100.0, 0.01] + 5
    options = {"scale": True, "early_stopping": True, "max_iter": 5}
    expected = falkon(**options).fit(X, Y)
    model = falkon(**options).fit(da.from_array(X, chunks=(900, 3)), da.from_array(Y, chunks=(900, 1)))
    assert_same_predictions(model, expected, X, 1e-9)


def test_dataframe(anywhere):
    X, y, _ = regression()
    table = pd.DataFrame(X, columns=["a", "b", "c"]).assign(target=y)
    data = dd.from_pandas(table, npartitions=4)
    expected = falkon().fit(table[["a", "b", "c"]], table["target"])
    model = falkon().fit(data[["a", "b", "c"]], data["target"])
    assert list(model.feature_names_in_) == ["a", "b", "c"]
    assert_same_predictions(model, expected, table[["a", "b", "c"]], 1e-10)


def test_dataframe_from_files(tmp_path):
    X, y, _ = regression()
    table = pd.DataFrame(np.hstack([X, X, X]), columns=list("abcdefghi")).assign(target=y)
    dd.from_pandas(table, npartitions=8).to_parquet(tmp_path / "rows")
    data = dd.read_parquet(tmp_path / "rows")
    columns = ["a", "b", "c"]  # so few of many that Dask reads several files at once
    with dask.config.set(scheduler="threads"):
        model = falkon().fit(data[columns], data["target"])
        assert_same_predictions(model, falkon().fit(table[columns], y), table[columns], 1e-10)
        lazy = model.predict(data[columns])
        assert lazy.numblocks == (data.npartitions,)
        np.testing.assert_allclose(lazy.compute(), model.predict(table[columns]), rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["squared", "logistic", "squared_hinge", "hinge"])
def test_classification(client, loss):
    X, y, w = regression(n=2_000)
    labels = np.array(["low", "middle", "high"])[np.digitize(y, [-0.5, 0.5])]
    options = {"kernel": Gaussian(1.5), "n_centers": 50, "penalty": 1e-2, "loss": loss, "random_state": 0}
    expected = FalkonClassifier(**options).fit(X, labels, sample_weight=w)
    with client.as_current():
        model = FalkonClassifier(**options).fit(
            da.from_array(X, chunks=(600, 3)), dd.from_pandas(pd.Series(labels), npartitions=2), sample_weight=w
        )
    assert list(model.classes_) == list(expected.classes_)
    np.testing.assert_allclose(model.decision_function(X), expected.decision_function(X), rtol=1e-6, atol=1e-8)


LOSSES = {
    "logistic": (Logistic(), lambda y: np.where(y > 0, 1.0, -1.0)[:, None]),
    "squared_hinge": (SquaredHinge(), lambda y: np.where(y > 0, 1.0, -1.0)[:, None]),
    "softmax": (Softmax(), lambda y: np.eye(3)[np.digitize(y, [-0.5, 0.5])]),
    "huber": (Huber(0.3), lambda y: y[:, None]),
}


@pytest.mark.parametrize("loss", LOSSES)
def test_newton_passes_over_the_kernel_once_a_step(anywhere, loss):
    X, y, w = regression(n=1_500)
    loss, targets = LOSSES[loss]
    Z, targets, w = X[:40], targets(y), w / w.mean()
    found = {}
    for where in ("here", "there"):
        rows = DaskRows(da.from_array(X, chunks=(400, 3))) if where == "there" else as_rows(X)
        K = make_operator(Gaussian(1.5), rows, Z, memory_budget=0)
        B = Preconditioner(K.centers_gram(np.float64), 1e-3, len(X), tile_dtype=np.float64)
        steps = newton(K, targets, loss, B, 1e-3, max_iter=6, tol=0.0, weight=w, center_rows=np.arange(40))
        found[where] = list(steps)
        assert K.passes == sum(step.cg_steps + 1 for step in found[where])
    here, there = found["here"][-1], found["there"][-1]
    assert there.passes == here.passes
    np.testing.assert_allclose(there.coef(), here.coef(), rtol=0, atol=1e-10 * np.abs(here.coef()).max())


# ---- predictions ----------------------------------------------------------------------------------------------------


def test_lazy_predictions(anywhere):
    X, y, _ = regression()
    model = falkon().fit(X, y)
    lazy = model.predict(da.from_array(X, chunks=(900, 2)))
    assert isinstance(lazy, da.Array)
    assert lazy.chunks == ((900, 900, 900, 900, 400),)
    assert lazy.dtype == np.float64
    np.testing.assert_allclose(lazy.compute(), model.predict(X), rtol=1e-12)
    both = falkon().fit(X, np.column_stack([y, -y])).predict(da.from_array(X, chunks=(900, 3)))
    assert both.shape == (4_000, 2)
    np.testing.assert_allclose(both[1_000:1_003].compute(), np.column_stack([1.0, -1.0]) * both[1_000:1_003, :1])


def test_lazy_predictions_of_classes_and_dataframes():
    X, y, _ = regression(n=1_000)
    table = pd.DataFrame(X, columns=["a", "b", "c"])
    data = dd.from_pandas(table, npartitions=3)
    model = FalkonClassifier(Gaussian(1.5), n_centers=40, loss="logistic", random_state=0)
    model.fit(table, np.where(y > 0, "up", "down"))
    assert (model.predict(data).compute() == model.predict(table)).all()
    p = model.predict_proba(data[data["a"] > 0])
    assert p.ndim == 2
    np.testing.assert_allclose(p.compute(), model.predict_proba(table[table["a"] > 0]), rtol=1e-9)
    none = predict_lazily(model, data[data["a"] > 1e9], "predict_proba")
    assert none.compute().shape == (0, 2)


# ---- errors ---------------------------------------------------------------------------------------------------------


def test_nan_is_found_in_its_partition(anywhere):
    X, Z, V, _, _ = problem()
    X = X.copy()
    X[1_803, 2] = np.nan
    operator = make_operator(Gaussian(2.0), DaskRows(da.from_array(X, chunks=(600, 5))), Z)
    with pytest.raises(ValueError, match="row 1803, in partition 3 of X, has NaN or infinity"):
        operator.sandwich(V)


def test_nan_in_lazy_predictions():
    X, y, _ = regression(n=300)
    model = falkon().fit(X, y)
    named = falkon().fit(pd.DataFrame(X, columns=["x0", "x1", "x2"]), y)
    X[207, 1] = np.nan
    with pytest.raises(ValueError, match="row 7 of partition 2 of X has NaN or infinity"):
        model.predict(da.from_array(X, chunks=(100, 3))).compute()
    with pytest.raises(ValueError, match="row 7 of partition 2 of X has NaN or infinity"):
        named.predict(frame(X).astype("Float64")).compute()


def test_wrong_chunk_sizes(anywhere):
    X, y, _ = regression(n=300)

    def declared(rows):
        right, wrong = (da.from_delayed(dask.delayed(X[at]), (n, 3), dtype=X.dtype) for at, n in rows)
        return da.concatenate([right, wrong])

    lying = declared([(slice(0, 100), 100), (slice(100, 300), 150)])
    message = r"partition 1 of X has 200 rows, and 150 were declared .* X.compute_chunk_sizes\(\)"
    for read in (
        lambda: falkon().fit(lying, y[:250]),
        lambda: DaskRows(lying).take([200]),
        lambda: DaskRows(lying).moments(),
        lambda: list(DaskRows(lying).blocks(50)),
        lambda: falkon().fit(X, y).predict(lying).compute(),
    ):
        with pytest.raises(ValueError, match=message):
            read()
    assert_same_predictions(falkon().fit(lying.compute_chunk_sizes(), y), falkon().fit(X, y), X, 1e-10)


def _time_out(block):
    raise TimeoutError("the store did not answer")


def test_errors_of_tasks_are_raised_as_they_are(anywhere):
    X, y, _ = regression(n=300)
    broken = da.from_array(X, chunks=(100, 3)).map_blocks(_time_out, meta=np.empty((0, 3)))
    rows = DaskRows(broken)
    for read in (
        lambda: falkon().fit(broken, y),
        lambda: falkon().fit(broken, y, X_val=broken, y_val=y),
        lambda: make_operator(Gaussian(1.0), rows, X[:5]).matmat(np.ones(5)),
        lambda: rows.take([0]),
        lambda: rows.moments(),
        lambda: list(rows.blocks(10)),
        lambda: DaskRows(broken[broken[:, 0] > 0]),  # counts lengths
        lambda: compute(broken[:, 0]),
    ):
        with pytest.raises(TimeoutError, match="the store did not answer"):
            read()


def test_errors_say_what_to_do():
    X, y, _ = regression(n=300)
    lazy = da.from_array(X, chunks=(100, 3))
    with pytest.raises(ValueError, match="X has 300 rows and y has 299"):
        falkon().fit(lazy, y[:-1])
    with pytest.raises(ValueError, match="must have rows and columns"):
        DaskRows(lazy[:, 0])
    with pytest.raises(ValueError, match="not numbers"):
        DaskRows(lazy.astype(str))
    table = frame(X).assign(colour="red")
    with pytest.raises(ValueError, match="column 'colour' of X is of type"):
        falkon().fit(table, y)
    with pytest.raises(TypeError, match="give a Dask array or a Dask dataframe"):
        DaskRows(X)
    operator = make_operator(Gaussian(1.0), DaskRows(lazy), X[:5])
    with pytest.raises(ValueError, match="one number for each row, 300"):
        operator.sandwich(np.ones(5), np.ones(4))
    with pytest.raises(ValueError, match="V has shape"):
        operator.matmat(np.ones(4))


def test_a_client_that_is_closed():
    X, y, _ = regression(n=300)
    with (
        distributed.LocalCluster(n_workers=1, processes=False, dashboard_address=":0") as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        rows = DaskRows(da.from_array(X, chunks=(100, 3)), client=client)
        model = falkon().fit(rows, y)  # threads of this process
    assert_same_predictions(model, falkon().fit(X, y), X, 1e-10)
    with pytest.raises(RuntimeError, match="client is closed"):
        falkon().fit(rows, y)


# ---- workers die ----------------------------------------------------------------------------------------------------


def kill_one(client):
    os.kill(next(iter(client.run(os.getpid).values())), signal.SIGKILL)


@pytest.mark.slow
def test_a_worker_is_killed_during_a_fit(client):
    X, y, w = regression()
    rows = DaskRows(da.from_array(X, chunks=(500, 3)), client=client)
    expected = falkon(max_iter=8, tol=0).fit(X, y, sample_weight=w)
    killed = []

    def at_the_third(record):
        if record["iteration"] == 3:
            kill_one(client)
            killed.append(True)

    model = falkon(max_iter=8, tol=0, callbacks=[at_the_third]).fit(rows, y, sample_weight=w)
    assert killed
    assert model.n_iter_ == 8
    scale = np.abs(expected.dual_coef_).max()
    np.testing.assert_allclose(model.dual_coef_, expected.dual_coef_, rtol=0, atol=1e-8 * scale)
    assert_same_predictions(model, expected, X, 1e-10)


@pytest.mark.slow
def test_the_only_worker_is_killed(one_worker):
    X, Z, V, U, w = problem()
    rows = DaskRows(da.from_array(X, chunks=(500, 5)), client=one_worker)
    operator = make_operator(Gaussian(2.0), rows, Z, memory_budget=0)
    before = operator.sandwich(V, Rowwise(residual, U, w))
    kill_one(one_worker)
    np.testing.assert_array_equal(operator.sandwich(V, Rowwise(residual, U, w)), before)


@pytest.mark.slow
def test_results_that_are_lost_are_asked_for_again(client):
    rows = DaskRows(da.from_array(VALUES.astype(float), chunks=(20, 4)), client=client)
    before = set(client.futures)
    found = []
    for block in rows.blocks(20):
        found.append(block)
        if len(found) == 1:  # cancelled is also what Dask calls results that it cannot make again
            under_way = set(client.futures) - before
            assert under_way
            client.cancel([distributed.Future(key, client=client) for key in under_way])
    np.testing.assert_array_equal(np.vstack(found), VALUES)


@pytest.mark.slow
def test_rows_that_only_a_lost_worker_had(one_worker):
    (there,) = one_worker.scatter([VALUES.astype(float)])
    rows = DaskRows(da.from_delayed(dask.delayed(there), VALUES.shape, dtype=float), client=one_worker)
    np.testing.assert_array_equal(rows.take([7]), VALUES[[7]])
    kill_one(one_worker)
    while there.status == "finished":
        time.sleep(0.05)
    for read in (lambda: rows.take([7]), rows.moments, lambda: list(rows.blocks(10))):
        with pytest.raises(RuntimeError, match=r"lost in 5 attempts .* cannot be computed again"):
            read()


def _die(block):
    if len(block) == 7:
        os.kill(os.getpid(), signal.SIGKILL)
    return block


@pytest.mark.slow
def test_a_task_that_no_worker_survives(client):
    X = da.from_array(VALUES.astype(float), chunks=((96, 7), 4)).map_blocks(_die, meta=np.empty((0, 4)))
    operator = make_operator(Gaussian(50.0), DaskRows(X, client=client), VALUES[:5].astype(float))
    scheduler = client.cluster.scheduler
    allowed, scheduler.allowed_failures = scheduler.allowed_failures, 0  # or it would take four of them
    try:
        with pytest.raises(RuntimeError, match="memory: make the partitions smaller"):
            operator.matmat(np.ones(5))
    finally:
        scheduler.allowed_failures = allowed
