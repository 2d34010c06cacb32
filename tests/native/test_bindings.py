"""The native core's own door: what does not fit is refused with an exception before any memory is touched.

Reads and writes out of bounds are looked for by run_sanitizers.sh, beside this file.
"""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest

from contracts.market import NATIVE_KERNELS
from gyrfalcon import _core
from gyrfalcon.backends.native import profile_of

REFUSED = (TypeError, ValueError, RuntimeError)
F32 = np.float32

X = np.random.default_rng(0).standard_normal((7, 3)).astype(F32)
Z = np.random.default_rng(1).standard_normal((5, 3)).astype(F32)
ONES = {n: np.ones(n, dtype=F32) for n in (2, 3, 4, 5, 6, 7)}


def make(
    centers=Z,
    shift=None,
    scale=None,
    profile=_core.Profile.linear,
    param0=0.0,
    param1=0.0,
    degree=0,
    difference=False,
    isa="",
):
    shift = np.zeros(3, dtype=F32) if shift is None else shift
    scale = ONES[3] if scale is None else scale
    return _core.CentersF32(centers, shift, scale, profile, param0, param1, degree, difference, isa)


LINEAR = make()


def read_only(a):
    a = a.copy()
    a.flags.writeable = False
    return a


def test_what_fits_is_done():
    out, sums = np.empty(7, dtype=F32), np.empty(5)
    K = np.empty((7, 5), dtype=F32)
    LINEAR.fill(read_only(X), K)
    np.testing.assert_allclose(K, X @ Z.T, rtol=1e-5, atol=1e-6)
    LINEAR.matvec(X, read_only(ONES[5]), out)
    np.testing.assert_allclose(out, (X @ Z.T).sum(axis=1), rtol=1e-5, atol=1e-6)
    LINEAR.rmatvec(X, ONES[7], sums)
    np.testing.assert_allclose(sums, (X @ Z.T).sum(axis=0), rtol=1e-5, atol=1e-6)
    LINEAR.sandwich(X, ONES[5], None, sums)
    np.testing.assert_allclose(sums, (X @ Z.T).T @ (X @ Z.T).sum(axis=1), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "change",
    [
        {"centers": Z[:0]},
        {"centers": Z[:, :0], "shift": ONES[3][:0], "scale": ONES[3][:0]},
        {"centers": Z[0]},
        {"centers": Z.tolist()},
        {"centers": None},
        {"centers": Z.astype(complex)},
        {"shift": ONES[2]},
        {"scale": ONES[4]},
        {"scale": None, "shift": np.zeros((3, 1), dtype=F32)},
        {"profile": 5},
        {"profile": 2**40},
        {"profile": "gaussian"},
        {"profile": _core.Verb.fill},
        {"profile": None},
        {"degree": -1},
        {"degree": 1024},
        {"degree": 2.5},
        {"isa": "sse9"},
        {"isa": None},
    ],
    ids=repr,
)
def test_centers_that_do_not_fit(change):
    with pytest.raises(REFUSED):
        make(**change)


@pytest.mark.parametrize(
    "rows",
    [
        X[:, :2].copy(),
        X.astype(np.float64),
        X.astype(int),
        np.asfortranarray(X),
        X[::2],
        X[:, ::-1],
        X[0],
        X[None],
        None,
    ],
)
def test_rows_that_do_not_fit(rows):
    n = 7 if rows is None or rows.ndim != 2 else len(rows)
    for call in (
        lambda: LINEAR.fill(rows, np.empty((n, 5), dtype=F32)),
        lambda: LINEAR.matvec(rows, ONES[5], np.empty(n, dtype=F32)),
        lambda: LINEAR.rmatvec(rows, np.ones(n, dtype=F32), np.empty(5)),
        lambda: LINEAR.sandwich(rows, ONES[5], None, np.empty(5)),
    ):
        with pytest.raises(REFUSED):
            call()


def test_results_that_do_not_fit():
    """Above all none that is converted first, so that the result would be written to a copy and lost."""
    calls = {
        "fill": (
            lambda out: LINEAR.fill(X, out),
            [
                np.empty((7, 4), F32),
                np.empty((5, 7), F32),
                np.empty((7, 5)),
                np.empty((7, 5), F32, order="F"),
                np.empty((7, 10), F32)[:, ::2],
                read_only(np.zeros((7, 5), F32)),
                np.empty(35, F32),
            ],
        ),
        "matvec": (
            lambda out: LINEAR.matvec(X, ONES[5], out),
            [
                np.empty(6, F32),
                np.empty(8, F32),
                np.empty(7),
                np.empty((7, 1), F32),
                np.empty(14, F32)[::2],
                read_only(np.zeros(7, F32)),
                None,
            ],
        ),
        "rmatvec": (
            lambda out: LINEAR.rmatvec(X, ONES[7], out),
            [np.empty(4), np.empty(6), np.empty(5, F32), np.empty(10)[::2], read_only(np.zeros(5)), None],
        ),
        "sandwich": (
            lambda out: LINEAR.sandwich(X, ONES[5], None, out),
            [np.empty(4), np.empty(5, F32), np.empty(10)[::2], read_only(np.zeros(5))],
        ),
        "dense matvec": (
            lambda out: _core.dense("", _core.Verb.matvec, X, ONES[3], None, out),
            [np.empty(6, F32), np.empty(7), np.empty(14, F32)[::2], read_only(np.zeros(7, F32)), None],
        ),
        "dense rmatvec": (
            lambda out: _core.dense("", _core.Verb.rmatvec, X, None, ONES[7], out),
            [np.empty(2), np.empty(3, F32), np.empty(6)[::2], read_only(np.zeros(3)), None],
        ),
        "dense sandwich": (
            lambda out: _core.dense("", _core.Verb.sandwich, X, ONES[3], ONES[7], out),
            [np.empty(2), np.empty(3, F32), np.empty(6)[::2], read_only(np.zeros(3)), None],
        ),
    }
    for call, wrong in calls.values():
        for out in wrong:
            with pytest.raises(REFUSED):
                call(out)


@pytest.mark.parametrize(
    "wrong", [ONES[4], ONES[6], np.ones(5), np.ones((5, 1), F32), np.ones(10, F32)[::2], None, "v"]
)
def test_right_factors_that_do_not_fit(wrong):
    for call in (
        lambda: LINEAR.matvec(X, wrong, np.empty(7, F32)),
        lambda: LINEAR.sandwich(X, wrong, None, np.empty(5)),
        lambda: _core.dense("", _core.Verb.matvec, np.ones((7, 5), F32), wrong, None, np.empty(7, F32)),
        lambda: _core.dense("", _core.Verb.sandwich, np.ones((7, 5), F32), wrong, None, np.empty(5)),
    ):
        with pytest.raises(REFUSED):
            call()


@pytest.mark.parametrize("wrong", [ONES[6], np.ones(7), np.ones((7, 1), F32), np.ones(14, F32)[::2], "u", 1.0])
def test_left_factors_that_do_not_fit(wrong):
    for call in (
        lambda: LINEAR.rmatvec(X, wrong, np.empty(5)),
        lambda: LINEAR.sandwich(X, ONES[5], wrong, np.empty(5)),
        lambda: _core.dense("", _core.Verb.rmatvec, np.ones((7, 5), F32), None, wrong, np.empty(5)),
        lambda: _core.dense("", _core.Verb.sandwich, np.ones((7, 5), F32), ONES[5], wrong, np.empty(5)),
    ):
        with pytest.raises(REFUSED):
            call()
    with pytest.raises(REFUSED):
        LINEAR.rmatvec(X, None, np.empty(5))


@pytest.mark.parametrize("verb", [_core.Verb.fill, 1, 4, 2**40, "matvec", _core.Profile.gaussian, None])
def test_unknown_verbs(verb):
    with pytest.raises(REFUSED):
        _core.dense("", verb, X, ONES[3], ONES[7], np.empty(3))


@pytest.mark.parametrize("code", [-1, len(_core.Profile), 2**40, "gauss"])
def test_unknown_profiles(code):
    with pytest.raises(ValueError, match="is not a valid"):
        _core.Profile(code)


def test_geometry_is_that_of_the_kernel():
    kernels = [kernel.resolve(X) for kernel in NATIVE_KERNELS]
    named = {profile_of(kernel).code: kernel.geometry for kernel in kernels}
    assert {profile: _core.geometry(profile) for profile in _core.Profile} == named


@pytest.mark.parametrize("block", [X.astype(int), np.asfortranarray(X), X[::2], X[0], None])
def test_blocks_that_do_not_fit(block):
    with pytest.raises(REFUSED):
        _core.dense("", _core.Verb.sandwich, block, ONES[3], None, np.empty(3))


def test_nothing_to_do():
    none = np.empty((0, 3), dtype=F32)
    sums = np.full(5, 9.0)
    LINEAR.fill(none, np.empty((0, 5), dtype=F32))
    LINEAR.matvec(none, ONES[5], np.empty(0, dtype=F32))
    LINEAR.rmatvec(none, np.empty(0, dtype=F32), sums)
    np.testing.assert_array_equal(sums, 0)
    sums[:] = 9
    LINEAR.sandwich(none, ONES[5], None, sums)
    np.testing.assert_array_equal(sums, 0)
    sums[:] = 9
    _core.dense("", _core.Verb.sandwich, np.empty((0, 5), dtype=F32), ONES[5], None, sums)
    np.testing.assert_array_equal(sums, 0)
    _core.dense("", _core.Verb.sandwich, np.empty((4, 0), dtype=F32), np.empty(0, dtype=F32), None, np.empty(0))
    out = np.full(4, 9.0, dtype=F32)
    _core.dense("", _core.Verb.matvec, np.empty((4, 0), dtype=F32), np.empty(0, dtype=F32), None, out)
    np.testing.assert_array_equal(out, 0)


def test_centers_do_not_hold_on_to_their_arrays():
    given = Z.copy()
    centers = make(given)
    given[:] = np.nan
    K = np.empty((7, 5), dtype=F32)
    centers.fill(X, K)
    np.testing.assert_allclose(K, X @ Z.T, rtol=1e-5, atol=1e-6)


def test_centers_cannot_be_made_of_nothing():
    empty = _core.CentersF32.__new__(_core.CentersF32)
    with pytest.raises(REFUSED), pytest.warns(RuntimeWarning):
        empty.fill(X, np.empty((7, 5), dtype=F32))
    for attempt in (lambda: _core.CentersF32(), lambda: copy.copy(LINEAR), lambda: pickle.dumps(LINEAR)):
        with pytest.raises(REFUSED):
            attempt()
    with pytest.raises(REFUSED), pytest.warns(RuntimeWarning, match="already-initialized"):
        make().__init__(Z, ONES[2], ONES[3], _core.Profile.linear, 0.0, 0.0, 0, False, "")
