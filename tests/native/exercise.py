"""Every profile, verb, precision and awkward shape of the native core, for a run under the sanitizers.

    python exercise.py FOLDER        the folder that holds _core*.so

Needs NumPy alone. Arrays are as long as they must be and no longer, so that a read or a write beyond them is seen.
Products are checked against the filled tile, to be sure that what was run is what was meant.
"""

from __future__ import annotations

import sys
import threading

import numpy as np

PROFILES = {
    0: "gaussian",
    1: "laplacian",
    2: "matern 3/2",
    3: "matern 5/2",
    4: "rational",
    5: "linear",
    6: "polynomial",
    7: "sigmoid",
    8: "arc-cosine 0",
    9: "arc-cosine 1",
}
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
        X[-1] = 1e18 if dtype == np.float32 and profile < 4 else 0  # so far that squares overflow
    shift, scale = np.zeros(d, dtype=dtype), np.full(d, 1 / np.sqrt(d), dtype=dtype)
    centers = make(Z, shift, scale, profile, 0.7, 0.1, 3, difference, profile >= 8, isa)
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
        core.dense(isa, 3, K, v, weight, sums)
        agree(sums, K64.T @ (w * right), A.T @ (aw * size))
    centers.matvec(X, v, rows)
    agree(rows, right, size)
    core.dense(isa, 1, K, v, None, rows)
    agree(rows, right, size)
    centers.rmatvec(X, u, sums)
    agree(sums, K64.T @ u, A.T @ np.abs(u))
    core.dense(isa, 2, K, None, u, sums)
    agree(sums, K64.T @ u, A.T @ np.abs(u))
    return centers, X, v, K


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


def refuse(core):
    """Arguments that must be refused, each with an exception and without touching memory."""
    Z, one = np.ones((4, 3), dtype=np.float32), np.ones(3, dtype=np.float32)
    good = core.CentersF32(Z, one, one, 0, 0.0, 0.0, 0, False, False, "")
    X, out, sums = np.ones((5, 3), dtype=np.float32), np.empty(5, dtype=np.float32), np.empty(4)
    attempts = [
        lambda: core.CentersF32(Z[:0], one, one, 0, 0.0, 0.0, 0, False, False, ""),
        lambda: core.CentersF32(Z, one[:2], one, 0, 0.0, 0.0, 0, False, False, ""),
        lambda: core.CentersF32(Z, one, one, 99, 0.0, 0.0, 0, False, False, ""),
        lambda: core.CentersF32(Z, one, one, 0, 0.0, 0.0, 0, False, True, ""),
        lambda: core.CentersF32(Z, one, one, 0, 0.0, 0.0, 0, False, False, "mmx"),
        lambda: good.matvec(X[:, :2].copy(), one, out),
        lambda: good.matvec(X, np.ones(5, dtype=np.float32), out),
        lambda: good.matvec(X, np.ones(4, dtype=np.float32), out[:4]),
        lambda: good.fill(X, np.empty((4, 5), dtype=np.float32)),
        lambda: good.rmatvec(X, np.ones(4, dtype=np.float32), sums),
        lambda: good.sandwich(X, np.ones(4, dtype=np.float32), np.ones(6, dtype=np.float32), sums),
        lambda: good.sandwich(X, np.ones(4, dtype=np.float32), "weight", sums),
        lambda: core.dense("", 3, X, np.ones(4, dtype=np.float32), None, sums),
        lambda: core.dense("", 7, X, one, None, sums),
        lambda: core.dense("", 2, X, None, None, sums),
    ]
    for i, attempt in enumerate(attempts):
        try:
            attempt()
        except (TypeError, ValueError, RuntimeError):
            continue
        raise AssertionError(f"attempt {i} was not refused")


def main(folder):
    sys.path.insert(0, folder)
    import _core

    rng = np.random.default_rng(0)
    for isa in _core.instruction_sets():
        for dtype in (np.float32, np.float64):
            for profile in PROFILES:
                for difference in (False, True) if profile < 5 else (False,):
                    for shape in SHAPES:
                        last = run(_core, isa, profile, dtype, shape, difference, rng)
                run_on_threads(*last)
    refuse(_core)
    print(f"exercised {', '.join(_core.instruction_sets())}: {len(PROFILES)} profiles, {len(SHAPES)} shapes")


if __name__ == "__main__":
    main(sys.argv[1])
