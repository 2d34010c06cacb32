"""The native core's door for sparse rows: no index is followed before it is known to lead somewhere."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from exercise import SPARSE_SHAPES, refuse_sparse, run_sparse

from gyrfalcon import _core


def test_what_does_not_fit_is_refused():
    refuse_sparse(_core)


@pytest.mark.parametrize("isa", _core.instruction_sets())
@pytest.mark.parametrize("profile", _core.Profile, ids=lambda p: p.name)
@pytest.mark.parametrize("shape", SPARSE_SHAPES, ids=str)
def test_what_fits_is_done(isa, profile, shape):
    for dtype, index in ((np.float32, np.int32), (np.float64, np.int64)):  # exercise.py has every pair
        run_sparse(_core, isa, profile, dtype, shape, index, np.random.default_rng(0))


def test_centers_do_not_hold_on_to_their_arrays():
    data, indices, starts = np.ones(2), np.array([0, 2], dtype=np.int32), np.array([0, 1, 2], dtype=np.int32)
    centers = _core.SparseF64(data, indices, starts, 3, np.ones(1), _core.Profile.linear, 0.0, 0.0, 0, "")
    data[:], indices[:], starts[:] = np.nan, 99, 99
    K = np.empty((1, 2))
    row = np.array([2.0, 3.0]), np.array([0, 2], dtype=np.int64), np.array([0, 2], dtype=np.int64), 3
    assert centers.fill(*row, K)
    np.testing.assert_array_equal(K, [[2.0, 3.0]])
    for attempt in (lambda: _core.SparseF64(), lambda: copy.copy(centers), lambda: pickle.dumps(centers)):
        with pytest.raises((TypeError, ValueError, RuntimeError)):
            attempt()


def test_results_that_would_be_lost_in_a_copy():
    row = np.ones(1), np.zeros(1, dtype=np.int32), np.array([0, 1], dtype=np.int32), 1
    centers = _core.SparseF64(*row, np.ones(1), _core.Profile.linear, 0.0, 0.0, 0, "")
    read_only = np.zeros((1, 1))
    read_only.flags.writeable = False
    for out in (read_only, np.zeros((1, 1), dtype=np.float32), np.zeros((2, 2)), None):
        with pytest.raises((TypeError, ValueError, RuntimeError)):
            centers.fill(*row, out)
