"""Random generators come back from states that files hold, and from no others."""

from __future__ import annotations

import numpy as np
import pytest

from gyrfalcon._utils.generators import restored

STATE = np.random.RandomState(3).get_state()


@pytest.mark.parametrize("legacy", [True, False])
def test_a_generator_goes_on(legacy):
    one = np.random.RandomState(7)
    one.standard_normal(3)  # an odd number, so that a Gaussian number is kept
    again = restored(one.get_state(legacy=legacy))
    assert (again.standard_normal(700) == one.standard_normal(700)).all()


@pytest.mark.parametrize("position", [0, 1, 624])
def test_positions_at_the_ends(position):
    restored((*STATE[:2], position, *STATE[3:])).randint(10, size=1000)


@pytest.mark.parametrize(
    ("state", "message"),
    [
        *(((*STATE[:2], position, *STATE[3:]), "position") for position in (625, -1, 2**31 - 1, 1.0, True, None)),
        ((STATE[0], STATE[1][:-1], *STATE[2:]), "keys"),
        ((STATE[0], STATE[1].astype(np.int64), *STATE[2:]), "keys"),
        ((STATE[0], list(STATE[1]), *STATE[2:]), "keys"),
        ((STATE[0], np.zeros(624, np.uint32), *STATE[2:]), "keys"),
        ((*STATE[:3], 2, 0.0), "has_gauss"),
        ((*STATE[:4], np.nan), "gauss"),
        ((*STATE[:4], "0"), "gauss"),
        (("PCG64", *STATE[1:]), "not of MT19937"),
        (STATE[:4], "is not the state"),
        ({}, "is not the state"),
        ({"state": {}}, "not of MT19937"),
        (None, "is not the state"),
    ],
)
def test_what_is_no_state(state, message):
    with pytest.raises(ValueError, match=message):
        restored(state)
