"""Number checks: what is allowed passes, and all else is named in the error."""

from __future__ import annotations

import numpy as np
import pytest

from gyrfalcon._utils.checks import integer, numbers

SHARES = numbers(lambda x: 0 < x < 1, "shares", scalar=True)


@pytest.mark.parametrize("value", [0.5, [0.1, 0.9], (0.2,), np.array([0.3], dtype=np.float32), np.float64(0.5)])
def test_numbers_in_an_interval(value):
    SHARES("share", value)


@pytest.mark.parametrize(
    "value", [None, True, "0.5", ["0.5"], [True], [], 0, [0.5, 1.0], [0.5, np.nan], [[0.5]], [0.5, [0.1, 0.2]], 1j]
)
def test_other_values(value):
    with pytest.raises(ValueError, match=r"^share=.* must be shares"):
        SHARES("share", value)


def test_lists_alone_and_empty_ones():
    many = numbers(lambda x: x >= 0, "a list", empty=True)
    many("values", [])
    with pytest.raises(ValueError, match=r"values=0.5 must be a list"):
        many("values", 0.5)


def test_integers_with_an_upper_end():
    for value in (1, 3, np.int64(2)):
        integer(1, 3)("n", value)
    for value in (0, 4, 2.0, True, "2", None):
        with pytest.raises(ValueError, match=r"^n=.* must be an integer from 1 to 3"):
            integer(1, 3)("n", value)
    with pytest.raises(ValueError, match="n=3 must be one or two"):
        integer(1, 2, words="one or two")("n", 3)
