"""``gyrfalcon check-device``: a report of right products, and of wrong ones."""

from __future__ import annotations

import pytest

from gyrfalcon.backends import torch_tiles
from gyrfalcon.cli.main import main
from gyrfalcon.kernels import Matern

SMALL = ["--rows", "2000", "--centers", "20", "--features", "3"]

pytestmark = [pytest.mark.devices, pytest.mark.usefixtures("one_thread")]


def test_a_device_that_computes_what_it_should(capsys):
    assert main(["check-device", "cpu", "cpu", *SMALL]) == 0
    out = capsys.readouterr().out
    assert "products in float32: largest error" in out
    assert "2,000 rows, 20 centers, 3 features in float64" in out
    assert out.endswith("all products are right\n")


def test_a_device_that_does_not(capsys, monkeypatch):
    monkeypatch.setitem(torch_tiles._PROFILES, Matern, lambda kernel, s: s.mul_(0).add_(1))
    assert main(["check-device", "cpu", *SMALL]) == 1
    out = capsys.readouterr().out
    assert "WRONG K' U, matern, sparse rows in float64: off by" in out
    assert out.endswith("40 products are WRONG: please send this report in\n")


def test_a_device_that_is_not_there(capsys):
    assert main(["check-device", "gpu"]) == 1
    assert "device='gpu' is not a device that PyTorch knows" in capsys.readouterr().err
