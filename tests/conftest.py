"""What every test may rely on."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def environment_of_its_own():
    """Clusters set the number of threads for the process that makes them, and again whenever a worker starts anew."""
    before = os.environ.copy()
    yield
    for name in set(os.environ) - set(before):
        del os.environ[name]
    os.environ.update(before)
