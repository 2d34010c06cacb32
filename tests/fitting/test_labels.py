"""The one rule for targets that look like labels, by which the command line and TableEncoder decide."""

from __future__ import annotations

import argparse

import numpy as np
import pytest

from gyrfalcon.cli._tasks import task_of
from gyrfalcon.fitting.targets import are_labels, few_values
from gyrfalcon.tables.targets import target_columns

REPEATED = np.arange(300)
CASES = [
    (np.where(REPEATED % 2, "no", "yes"), True),
    (REPEATED % 2 == 0, True),
    (REPEATED % 20, True),
    (REPEATED[:40] % 5, True),  # few rows of each
    (REPEATED % 21, False),
    (np.arange(10), False),  # each occurs once
    (REPEATED % 2 * 1.0, False),
    (REPEATED / 7, False),
]


@pytest.mark.parametrize(("y", "expected"), CASES)
def test_what_looks_like_labels(y, expected):
    assert are_labels(y) == expected
    task = task_of(argparse.Namespace(quiet=True), "y", y)
    assert task == ("classification" if expected else "regression")
    columns, _ = target_columns(y, "auto")
    assert np.isin(columns, [0, 1]).all() == expected


def test_many_values_in_the_last_rows_of_a_long_target():
    y = np.zeros(100_050, dtype=int)
    y[-50:] = np.arange(50)
    assert few_values(y) is None
    assert not are_labels(y)
