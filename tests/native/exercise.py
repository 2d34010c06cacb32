"""Every profile, verb, precision and awkward shape of the native core, for a run under the sanitizers.

    python exercise.py FOLDER        the folder that holds _core*.so

Needs NumPy alone. Arrays are as long as they must be and no longer, so that a read or a write beyond them is seen.
Products are checked against the filled tile, to be sure that what was run is what was meant.
"""

from __future__ import annotations

import sys
import threading

import numpy as np

# rows, centers, features: around register tiles, strips, panels and blocks of features
SHAPES = [
    (1, 1, 1),
    (2, 3, 1),
    (5, 7, 2),
    (6, 8, 3),
    (7, 9, 4),
    (12, 16, 1),
    (13, 17, 5),
    (47, 31, 18),
    (96, 32, 7),
    (97, 33, 8),
    (300, 65, 3),
    (25, 130, 255),
    (11, 5, 256),
    (50, 33, 257),
    (13, 4, 384),
    (13, 18, 385),
    (49, 3, 513),
    (3, 40, 1030),
    (0, 5, 3),
    (100, 2100, 2),
]
# the same of sparse rows: around vectors of centers, words of columns, and more rows than are summed in one go
SPARSE_SHAPES = [
    (0, 1, 1),
    (1, 1, 1),
    (1, 5, 63),
    (3, 15, 64),
    (7, 16, 65),
    (20, 17, 300),
    (300, 40, 30),
    (9, 130, 5000),
]


def exact(values):
    """A copy whose memory ends where its last number does."""
    out = np.empty(values.shape, dtype=values.dtype)
    out[...] = values
    return out


def run(core, isa, profile, dtype, shape, difference, rng):
    n, m, d = shape
    make = core.CentersF32 if dtype == np.float32 else core.CentersF64
    X, Z = (exact(rng.standard_normal((size, d)).astype(dtype)) for size in (n, m))
    Z[m // 2] = 0
    if n:
        X[n // 2] = Z[0]
        decays = core.geometry(profile) in ("distance", "manhattan") and profile is not core.Profile.rational
        X[-1] = 1e18 if dtype == np.float32 and decays else 0  # so far that squares overflow
    shift, scale = np.zeros(d, dtype=dtype), np.full(d, 1 / np.sqrt(d), dtype=dtype)
    centers = make(Z, shift, scale, profile, 0.7, 0.1, 3, difference, isa)
    del Z, shift, scale
    v, u = exact(rng.standard_normal(m).astype(dtype)), exact(rng.standard_normal(n).astype(dtype))
    K = np.empty((n, m), dtype=dtype)
    centers.fill(X, K)
    assert np.isfinite(K).all()
    rows, sums = np.empty(n, dtype=dtype), np.empty(m)
    rtol = 1e-4 if dtype == np.float32 else 1e-11

    def agree(actual, expected, size):
        assert np.linalg.norm(actual - expected) <= rtol * (np.linalg.norm(size) + 1e-30), (isa, profile, dtype, shape)

    A, K64 = np.abs(K.astype(float)), K.astype(float)
    right, size = K64 @ v, A @ np.abs(v)
    for weight in (None, u):
        w, aw = (1.0, 1.0) if weight is None else (u.astype(float), np.abs(u).astype(float))
        centers.sandwich(X, v, weight, sums)
        agree(sums, K64.T @ (w * right), A.T @ (aw * size))
        core.dense(isa, core.Verb.sandwich, K, v, weight, sums)
        agree(sums, K64.T @ (w * right), A.T @ (aw * size))
        centers.sandwich(X, v, weight, sums, u)
        agree(sums, K64.T @ (w * (right + u)), A.T @ (aw * (size + np.abs(u))))
        core.dense(isa, core.Verb.sandwich, K, v, weight, sums, u)
        agree(sums, K64.T @ (w * (right + u)), A.T @ (aw * (size + np.abs(u))))
    centers.matvec(X, v, rows)
    agree(rows, right, size)
    core.dense(isa, core.Verb.matvec, K, v, None, rows)
    agree(rows, right, size)
    centers.rmatvec(X, u, sums)
    agree(sums, K64.T @ u, A.T @ np.abs(u))
    core.dense(isa, core.Verb.rmatvec, K, None, u, sums)
    agree(sums, K64.T @ u, A.T @ np.abs(u))
    for columns in (2, 7, 17):
        run_columns(core, isa, centers, X, K, columns, agree, rng)
    if dtype == np.float32 and isa != "baseline":
        for columns in (1, 2, 7, 17):
            run_half(core, isa, K, columns, agree, rng)
    Z, coef = (exact(rng.standard_normal(size).astype(dtype)) for size in ((d, m), (2, m)))
    out = np.empty((n, d, 2), dtype=dtype)
    core.signed_sums(isa, K, X, Z, coef, out)
    signs = np.sign(X[:, 0, None] - Z[0])
    agree(out[:, 0], (K64 * signs) @ coef.T, A @ np.abs(coef.T))
    if dtype == np.float64:
        run_shapley(core, isa, m, d, rng)
    return centers, X, v, K


def run_shapley(core, isa, m, d, rng):
    """Integrals of products, for two rows and two background rows."""
    z, b = (exact(rng.random((2, d, m))) for _ in range(2))
    nodes, weights, out = exact(np.array([0.5])), exact(np.array([1.0])), exact(np.empty((2, d, m)))
    core.shapley_sums(isa, z, b, nodes, weights, out)
    middle = (0.5 * (z[:, None] + b[None]))[:, :, 1:].prod(axis=2)
    np.testing.assert_allclose(out[:, 0], ((z[:, None, 0] - b[None, :, 0]) * middle).sum(axis=1), atol=1e-12)


def run_columns(core, isa, centers, X, K, columns, agree, rng):
    """The same products with several columns."""
    (n, m), dtype = K.shape, K.dtype
    V, U = (exact(rng.standard_normal((size, columns)).astype(dtype)) for size in (m, n))
    w = exact(rng.random(n).astype(dtype))
    rows, sums = np.empty((n, columns), dtype=dtype), np.empty((m, columns))
    A, K64 = np.abs(K.astype(float)), K.astype(float)
    for call in (lambda: centers.matmat(X, V, rows), lambda: core.dense_matmat(isa, K, V, rows)):
        call()
        agree(rows, K64 @ V, A @ np.abs(V))
    for call in (lambda: centers.rmatmat(X, U, sums), lambda: core.dense_rmatmat(isa, K, U, sums)):
        call()
        agree(sums, K64.T @ U, A.T @ np.abs(U))
    for weight in (None, w):
        by = 1.0 if weight is None else w.astype(float)[:, None]
        centers.sandwich_columns(X, V, weight, sums)
        agree(sums, K64.T @ (by * (K64 @ V)), A.T @ (by * (A @ np.abs(V))))
        core.dense_sandwich(isa, K, V, weight, sums)
        agree(sums, K64.T @ (by * (K64 @ V)), A.T @ (by * (A @ np.abs(V))))
        for call in (
            lambda by=weight: centers.sandwich_columns(X, V, by, sums, U),
            lambda by=weight: core.dense_sandwich(isa, K, V, by, sums, U),
        ):
            call()
            agree(sums, K64.T @ (by * (K64 @ V + U)), A.T @ (by * (A @ np.abs(V) + np.abs(U))))


def run_half(core, isa, K, columns, agree, rng):
    """The sandwich with a block in 16 bits, of entries between 0 and 1."""
    n, m = K.shape
    K = exact(np.abs(K) / np.abs(K).max(initial=1.0))
    H, sums = np.empty((n, m), dtype=np.uint16), np.empty((m, columns))
    core.narrow(isa, K, H)
    K64 = H / 65535
    assert np.abs(K - K64).max(initial=0.0) <= (0.5 + 65535 * 2.0**-24) / 65535
    V, w = exact(rng.standard_normal((m, columns)).astype(np.float32)), exact(rng.random(n).astype(np.float32))
    for weight in (None, w):
        by = 1.0 if weight is None else w.astype(float)[:, None]
        core.half_sandwich(isa, H, V, weight, sums)
        A = np.abs(K64)
        agree(sums, K64.T @ (by * (K64 @ V)), A.T @ (by * (A @ np.abs(V))))


def run_on_threads(centers, X, v, K):
    """One set of centers used by several threads at once."""
    outcomes = []

    def work():
        out = np.empty(len(X), dtype=X.dtype)
        for _ in range(20):
            centers.matvec(X, v, out)
        outcomes.append(out)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(outcomes) == 3
    assert all((out == outcomes[0]).all() for out in outcomes)


def random_csr(rng, n, d, dtype, index, unsorted=False):
    """Data, indices and indptr in buffers of their own; some rows are empty, some full."""
    lengths = rng.integers(0, min(d, 12) + 1, n)
    if n:
        lengths[n // 2] = 0
        lengths[n // 3] = min(d, 200)
    columns = [np.sort(rng.choice(d, length, replace=False)) for length in lengths]
    if unsorted:
        columns = [column[::-1] for column in columns]
    data = exact(rng.standard_normal(lengths.sum()).astype(dtype))
    indices = exact(np.concatenate([*columns, np.empty(0)]).astype(index))
    return data, indices, exact(np.concatenate([[0], np.cumsum(lengths)]).astype(index)), d


def dense_of(csr):
    data, indices, indptr, d = csr
    X = np.zeros((len(indptr) - 1, d))
    np.add.at(X, (np.repeat(np.arange(len(X)), np.diff(indptr)), indices), data)
    return X


def run_sparse(core, isa, profile, dtype, shape, index, rng):
    n, m, d = shape
    make = core.SparseF32 if dtype == np.float32 else core.SparseF64
    Z, rows = random_csr(rng, m, d, dtype, index), random_csr(rng, n, d, dtype, index)
    scale = np.full(1 if profile.value % 2 else d, 0.5)
    centers = make(*Z, scale, profile, 0.7, 0.1, 3, isa)
    X, C = dense_of(rows), dense_of(Z)
    del Z, scale
    v, u = exact(rng.standard_normal(m).astype(dtype)), exact(rng.standard_normal(n).astype(dtype))
    K = exact(np.empty((n, m), dtype=dtype))
    assert centers.fill(*rows, K)
    assert np.isfinite(K).all()
    if profile is core.Profile.linear or not n:
        np.testing.assert_allclose(K, 0.25 * X @ C.T, rtol=1e-5, atol=1e-5)
    out, sums = exact(np.empty(n, dtype=dtype)), exact(np.empty(m))
    assert centers.matvec(*rows, v, out)
    np.testing.assert_allclose(out, K.astype(float) @ v, rtol=1e-4, atol=1e-3)
    assert centers.rmatvec(*rows, u, sums)
    np.testing.assert_allclose(sums, K.astype(float).T @ u, rtol=1e-4, atol=1e-3)
    for weight in (None, u):
        assert centers.sandwich(*rows, v, weight, sums)
        w = 1.0 if weight is None else u.astype(float)
        np.testing.assert_allclose(sums, K.astype(float).T @ (w * (K.astype(float) @ v)), rtol=1e-3, atol=1e-2)
    if n:
        reverse = random_csr(rng, n, d, dtype, index, unsorted=True)
        assert d == 1 or not centers.fill(*reverse, K)
    for k in (1, 3):
        V, U = rng.standard_normal((m, k)).astype(dtype), rng.standard_normal((n, k)).astype(dtype)
        P, product = exact(np.empty((centers.n_columns, k), dtype=dtype)), exact(np.empty((n, k), dtype=dtype))
        centers.project(exact(V), P)
        centers.linear_matmat(*rows, P, product)
        np.testing.assert_allclose(product, X @ (C.T @ V), rtol=1e-4, atol=1e-3)
        total = exact(np.empty((m, k)))
        centers.linear_rmatmat(*rows, exact(U), total)
        np.testing.assert_allclose(total, C @ (X.T @ U), rtol=1e-4, atol=1e-3)
        centers.linear_sandwich(*rows, P, u, total)
        np.testing.assert_allclose(total, C @ (X.T @ (u[:, None] * (X @ (C.T @ V)))), rtol=1e-3, atol=1e-2)


def refuse_sparse(core):
    """Index arrays that lead outside, in every place where one could."""
    data = exact(np.array([1.0, 2.0, 3.0], dtype=np.float32))
    good = (data, exact(np.array([0, 3, 1], dtype=np.int32)), exact(np.array([0, 2, 3], dtype=np.int32)), 4)
    rest = (np.ones(1), core.Profile.gaussian, 0.0, 0.0, 0, "")
    centers = core.SparseF32(*good, *rest)
    out, sums, v = np.empty(2, dtype=np.float32), np.empty(2), np.ones(2, dtype=np.float32)
    K, P, total = np.empty((2, 2), dtype=np.float32), np.empty((3, 1), dtype=np.float32), np.empty((2, 1))
    centers.project(v[:, None], P)
    broken = []
    for index in (np.int32, np.int64):
        for columns in ([0, 4, 1], [0, -1, 1], [0, np.iinfo(index).max, 1], [0, np.iinfo(index).min, 1], [0, 1]):
            broken.append((data, exact(np.array(columns, dtype=index)), exact(np.array([0, 2, 3], dtype=index)), 4))
        for starts in ([0, 2, 4], [0, 3, 2], [-1, 2, 3], [0, 2, np.iinfo(index).max], [0, np.iinfo(index).min, 3]):
            broken.append((data, exact(np.array([0, 3, 1], dtype=index)), exact(np.array(starts, dtype=index)), 4))
        broken.append((data, exact(np.array([0, 3, 1], dtype=index)), exact(np.empty(0, dtype=index)), 4))
    broken.append((*good[:3], 5))
    broken.append((data, good[1], good[2].astype(np.int64), 4))
    broken.append((data, good[1].astype(float), good[2], 4))
    broken.append((data.astype(float), good[1], good[2], 4))
    broken.append((data[:2], good[1], good[2], 4))
    attempts = []
    for rows in broken:
        attempts += [
            lambda rows=rows: centers.fill(*rows, K),
            lambda rows=rows: centers.matvec(*rows, v, out),
            lambda rows=rows: centers.rmatvec(*rows, v, sums),
            lambda rows=rows: centers.sandwich(*rows, v, None, sums),
            lambda rows=rows: centers.linear_matmat(*rows, P, out[:, None]),
            lambda rows=rows: centers.linear_rmatmat(*rows, v[:, None], total),
            lambda rows=rows: centers.linear_sandwich(*rows, P, None, total),
        ]
        if rows[3] == 4:
            attempts.append(lambda rows=rows: core.SparseF32(*rows, *rest))
    attempts += [
        lambda: core.SparseF32(data, np.array([3, 0, 1], dtype=np.int32), good[2], 4, *rest),  # unsorted
        lambda: core.SparseF32(data, np.array([3, 3, 1], dtype=np.int32), good[2], 4, *rest),  # twice
        lambda: core.SparseF32(*good, np.ones(3), *rest[1:]),
        lambda: core.SparseF32(*good, np.ones(1), 0, 0.0, 0.0, 0, ""),
        lambda: core.SparseF32(*good, np.ones(1), 99, 0.0, 0.0, 0, ""),
        lambda: core.SparseF32(*good[:3], 0, *rest),
        lambda: centers.fill(*good, np.empty((2, 3), dtype=np.float32)),
        lambda: centers.fill(*good, np.empty((2, 2))),
        lambda: centers.matvec(*good, np.ones(3, dtype=np.float32), out),
        lambda: centers.matvec(*good, v, np.empty(3, dtype=np.float32)),
        lambda: centers.rmatvec(*good, np.ones(3, dtype=np.float32), sums),
        lambda: centers.sandwich(*good, v, np.ones(3, dtype=np.float32), sums),
        lambda: centers.sandwich(*good, v, None, np.empty(3)),
        lambda: centers.project(np.ones((3, 1), dtype=np.float32), P),
        lambda: centers.project(v[:, None], np.empty((4, 1), dtype=np.float32)),
        lambda: centers.linear_matmat(*good, np.empty((4, 1), dtype=np.float32), out[:, None]),
        lambda: centers.linear_matmat(*good, P, np.empty((2, 2), dtype=np.float32)),
        lambda: centers.linear_rmatmat(*good, np.ones((3, 1), dtype=np.float32), total),
        lambda: centers.linear_sandwich(*good, P, None, np.empty((2, 2))),
    ]
    bits = exact(np.array([0b1000_0001, 0b10], dtype=np.uint8))
    for index in (np.int32, np.int64):
        marked, columns = exact(np.empty(4, dtype=bool)), exact(np.array([0, 7, 9, 15], dtype=index))
        core.marked(bits, columns, marked)
        assert marked.tolist() == [True, True, True, False]
        for outside in (16, -1, np.iinfo(index).max, np.iinfo(index).min):
            broken_columns = exact(np.array([0, outside, 1, 2], dtype=index))
            attempts.append(lambda columns=broken_columns, out=marked: core.marked(bits, columns, out))
        attempts.append(lambda columns=columns: core.marked(bits, columns, np.empty(3, dtype=bool)))
        attempts.append(lambda columns=columns, out=marked: core.marked(bits[:0], columns, out))
    all_refused(attempts)


def all_refused(attempts):
    for i, attempt in enumerate(attempts):
        try:
            attempt()
        except (TypeError, ValueError, RuntimeError):
            continue
        raise AssertionError(f"attempt {i} was not refused")


def refuse(core):
    """Arguments that must be refused, each with an exception and without touching memory."""
    Z, one = np.ones((4, 3), dtype=np.float32), np.ones(3, dtype=np.float32)
    gaussian = core.Profile.gaussian
    good = core.CentersF32(Z, one, one, gaussian, 0.0, 0.0, 0, False, "")
    X, out, sums = np.ones((5, 3), dtype=np.float32), np.empty(5, dtype=np.float32), np.empty(4)
    attempts = [
        lambda: core.Profile(len(core.Profile)),
        lambda: core.CentersF32(Z[:0], one, one, gaussian, 0.0, 0.0, 0, False, ""),
        lambda: core.CentersF32(Z, one[:2], one, gaussian, 0.0, 0.0, 0, False, ""),
        lambda: core.CentersF32(Z, one, one, 0, 0.0, 0.0, 0, False, ""),
        lambda: core.CentersF32(Z, one, one, core.Verb.fill, 0.0, 0.0, 0, False, ""),
        lambda: core.CentersF32(Z, one, one, gaussian, 0.0, 0.0, 0, False, "mmx"),
        lambda: good.matvec(X[:, :2].copy(), one, out),
        lambda: good.matvec(X, np.ones(5, dtype=np.float32), out),
        lambda: good.matvec(X, np.ones(4, dtype=np.float32), out[:4]),
        lambda: good.fill(X, np.empty((4, 5), dtype=np.float32)),
        lambda: good.rmatvec(X, np.ones(4, dtype=np.float32), sums),
        lambda: good.sandwich(X, np.ones(4, dtype=np.float32), np.ones(6, dtype=np.float32), sums),
        lambda: good.sandwich(X, np.ones(4, dtype=np.float32), "weight", sums),
        lambda: good.sandwich(X, np.ones(4, dtype=np.float32), None, sums, np.ones(6, dtype=np.float32)),
        lambda: good.sandwich_columns(X, np.ones((4, 2), np.float32), None, np.empty((4, 2)), X),
        lambda: core.dense("", core.Verb.rmatvec, X, None, one, sums, one),
        lambda: core.dense("", core.Verb.sandwich, X, np.ones(4, dtype=np.float32), None, sums),
        lambda: core.dense("", core.Verb.fill, X, one, None, sums),
        lambda: core.dense("", core.Verb.rmatvec, X, None, None, sums),
    ]
    all_refused(attempts)


# rows, features and bins of boosted trees: one row to learn from, one bin, few bins, as many as a byte counts
BOOST_SHAPES = [(2, 1, 1), (3, 1, 2), (9, 3, 5), (65, 2, 16), (70, 4, 17), (300, 5, 256)]


def boost_arguments(rng, n, d, n_bins, n_classes):
    """Arguments of `boost` by position, and those that follow by name."""
    bins = rng.integers(0, n_bins, (d, n)).astype(np.uint8)
    bins[:, -1] = n_bins - 1
    y = rng.integers(0, n_classes, n).astype(np.float64) if n_classes else rng.standard_normal(n)
    train, held = np.arange(0, n, 2), np.arange(1, n, 2)
    offset = np.zeros(n_classes if n_classes > 2 else 1)
    arrays = [bins, np.full(d, n_bins, dtype=np.int32), train, held, y, rng.uniform(0.5, 2, n), offset, n_classes]
    growth = {"rate": 0.3, "l2": 1.0, "share": 0.7, "max_leaves": 6, "min_leaf": 1, "symmetric": False}
    return arrays, {**growth, "iterations": 5, "patience": 5, "seconds": np.inf, "seed": 3}


def run_boosting(core, shape, n_classes, rng, **growth):
    """Grow trees, and follow them with the rows that judged them."""
    arrays, named = boost_arguments(rng, *shape, n_classes)
    named |= growth
    bins, _, _, held, y, weight, *_ = arrays
    feature, bin_, left, right, value, root, curve = core.boost(*arrays, **named)
    k = n_classes if n_classes > 2 else 1
    output = (np.arange(len(root)) % k).astype(np.int32)
    scores = np.empty((len(held), k))
    nodes = feature, bin_.astype(np.float64), left, right, np.zeros(len(left), dtype=bool), value
    core.tree_sums(*nodes, root, output, np.ascontiguousarray(bins[:, held].T, dtype=np.float32), scores)
    if n_classes == 0:
        losses = 0.5 * (scores[:, 0] - y[held]) ** 2
    else:
        both = np.column_stack([np.zeros(len(held)), scores[:, 0]]) if n_classes == 2 else scores
        losses = np.log(np.exp(both).sum(axis=1)) - both[np.arange(len(held)), y[held].astype(int)]
    np.testing.assert_allclose(np.average(losses, weights=weight[held]), curve[-1], rtol=1e-10, atol=1e-12)


def refuse_boosting(core):
    arrays, named = boost_arguments(np.random.default_rng(0), 20, 3, 8, 3)
    wrong = {
        0: [np.full_like(arrays[0], 8), arrays[0][:, :19].copy()],
        1: [arrays[1][:2].copy(), np.full(3, 7, dtype=np.int32), np.zeros(3, np.int32), np.full(3, 257, np.int32)],
        2: [np.array([20]), np.array([-1]), np.array([], dtype=np.int64)],
        3: [np.array([20]), np.array([-1]), np.array([], dtype=np.int64)],
        4: [arrays[4][:19].copy(), np.full(20, 3.0), np.full(20, -1.0), np.full(20, np.nan)],
        5: [arrays[5][:19].copy()],
        6: [np.zeros(1), np.zeros(4)],
        7: [1, 4],
    }
    cases = [[*arrays[:at], value, *arrays[at + 1 :]] for at, values in wrong.items() for value in values]
    attempts = [lambda case=case: core.boost(*case, **named) for case in cases]
    attempts += [lambda one=one: core.boost(*arrays, **{**named, one: 0}) for one in ("max_leaves", "min_leaf")]
    all_refused(attempts)


def main(folder):
    sys.path.insert(0, folder)
    import _core

    rng = np.random.default_rng(0)
    for isa in _core.instruction_sets():
        for dtype in (np.float32, np.float64):
            for profile in _core.Profile:
                two_forms = _core.geometry(profile) == "distance"
                for difference in (False, True) if two_forms else (False,):
                    for shape in SHAPES:
                        last = run(_core, isa, profile, dtype, shape, difference, rng)
                run_on_threads(*last)
                for shape in SPARSE_SHAPES:
                    for index in (np.int32, np.int64):
                        run_sparse(_core, isa, profile, dtype, shape, index, rng)
    for shape in BOOST_SHAPES:
        for n_classes in (0, 2, 4):
            run_boosting(_core, shape, n_classes, rng)
            run_boosting(_core, shape, n_classes, rng, max_leaves=70, symmetric=True)
    refuse(_core)
    refuse_sparse(_core)
    refuse_boosting(_core)
    print(f"exercised {', '.join(_core.instruction_sets())}: {len(_core.Profile)} profiles, {len(SHAPES)} shapes")


if __name__ == "__main__":
    main(sys.argv[1])
