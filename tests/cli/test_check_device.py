"""``gyrfalcon check-device``: a report of right results, and of wrong ones."""

from __future__ import annotations

import json

import numpy as np
import pytest

from gyrfalcon.backends import torch_tiles
from gyrfalcon.cli import _device_checks, _device_model
from gyrfalcon.cli._device_checks import GROUPS, SHORT
from gyrfalcon.cli.main import main
from gyrfalcon.kernels import NAMES, Matern
from gyrfalcon.losses.named import NAMES as LOSSES
from gyrfalcon.preconditioners.torch_factors import TorchFactors

SMALL = ["--short", "--rows", "600", "--centers", "20", "--features", "3"]

pytestmark = [pytest.mark.devices, pytest.mark.usefixtures("one_thread")]


@pytest.fixture
def only(monkeypatch):
    """Leave some groups of checks, and nothing to measure."""

    def leave(*groups):
        monkeypatch.setattr(_device_checks, "GROUPS", {name: GROUPS[name] for name in groups})
        monkeypatch.setattr("gyrfalcon.cli.check_device._speed", lambda *arguments: {})
        monkeypatch.setattr("gyrfalcon.cli.check_device._print_speed", lambda speed: None)

    return leave


def test_a_device_that_computes_what_it_should(capsys, tmp_path):
    path = tmp_path / "report.json"
    assert main(["check-device", "cpu", "cpu", *SMALL, "--output", str(path)]) == 0
    out = capsys.readouterr().out
    assert "600 rows, 20 centers, 3 features in float64" in out
    assert out.endswith("all results are right\n")
    report = json.loads(path.read_text())
    assert report["wrong"] == 0
    assert report["names"] == ["cpu", "cpu"]
    assert {"gyrfalcon", "torch", "numpy", "platform"} <= set(report["versions"])
    done = report["checks"]
    assert {check["group"] for check in done} == set(GROUPS)
    assert all(check["right"] and check["error"] <= check["allowed"] for check in done)
    products = [check["what"] for check in done if check["group"] == "products"]
    for name in {kind: name for name, kind in reversed(NAMES.items())}.values():
        for dtype in ("float32", "float64"):
            for rows in ("dense rows", "sparse rows"):
                assert sum(what.endswith(f" pass, {name}, {dtype}, {rows}") for what in products) == 8
    fits = {check["what"].removeprefix("predictions, ").split(",")[0] for check in done if check["group"] == "fits"}
    assert fits == set(LOSSES)
    speed = report["speed"]
    assert speed["copies"]["cpu"]["to_device_gb_per_second"] > 0
    assert set(speed["phases_in_milliseconds"]["cpu"]["unfused"]) == {"rows_to_device", "tile", "K_v", "K_transposed_u"}
    assert speed["host_microseconds_a_block"] > 0
    assert [one["rows"] for one in speed["passes"]] == 2 * [150, 600, 600]
    assert all(one["seconds"] > 0 and one["model_seconds"] is None for one in speed["passes"])


def test_a_device_that_does_not(capsys, monkeypatch, only, tmp_path):
    only("products")
    monkeypatch.setitem(torch_tiles._PROFILES, Matern, lambda kernel, s: s.mul_(0).add_(1))
    assert main(["check-device", "cpu", *SMALL, "--output", str(tmp_path / "report.json")]) == 1
    out = capsys.readouterr().out
    assert "WRONG K' U, first pass, matern, float64, sparse rows: off by" in out
    assert out.endswith("40 results are WRONG: please send this report in\n")
    wrong = [check for check in json.loads((tmp_path / "report.json").read_text())["checks"] if not check["right"]]
    assert len(wrong) == 40
    assert all("matern" in check["what"] for check in wrong)


def test_what_a_device_raises_is_reported(capsys, monkeypatch, only, tmp_path):
    def fail(*arguments, **options):
        raise RuntimeError("CUSOLVER_STATUS_INTERNAL_ERROR")

    only("repeated bits", "factors")
    monkeypatch.setattr(TorchFactors, "cholesky", fail)
    assert main(["check-device", "cpu", *SMALL, "--output", str(tmp_path / "report.json")]) == 1
    assert "(RuntimeError: CUSOLVER_STATUS_INTERNAL_ERROR)" in capsys.readouterr().out
    done = json.loads((tmp_path / "report.json").read_text())["checks"]
    assert {check["group"] for check in done if check["right"]} == {"repeated bits"}
    assert {(check["raised"], check["error"]) for check in done if not check["right"]} == {
        ("RuntimeError: CUSOLVER_STATUS_INTERNAL_ERROR", None)
    }


@pytest.mark.parametrize("group", GROUPS)
def test_results_that_are_not_numbers_are_wrong(monkeypatch, group):
    """Every group would notice a device that returns NaN."""
    if group in ("products", "out of memory", "repeated bits", "rows of a file"):
        target = "gyrfalcon.operators._lanes.Lane.total"
        monkeypatch.setattr(target, lambda lane: np.full(lane._sums._total.shape, np.nan))
    elif group == "factors":
        monkeypatch.setattr(TorchFactors, "cholesky", lambda engine, matrix, lower: matrix.fill(np.nan) or True)
    else:
        monkeypatch.setattr("gyrfalcon.operators.DeviceOperator.matmat", lambda self, V: np.full(self.shape[0], np.nan))
    monkeypatch.setattr(_device_checks, "GROUPS", {group: GROUPS[group]})
    monkeypatch.setattr(_device_checks, "NAMES", {"matern": Matern})
    assert not all(check.right for check in _device_checks.checks(["cpu"], SHORT))


def test_the_model_knows_some_devices():
    assert _device_model.peaks_of("cpu") is None
    peaks = _device_model.peaks_of("NVIDIA A100-SXM4-80GB")
    assert peaks is not None
    fused, unfused = (_device_model.least_seconds(10**6, 10**4, 18, peaks, fused=fused) for fused in (True, False))
    assert 0 < fused < unfused


@pytest.mark.parametrize("device", ["gpu", "cuda:99"])
def test_a_device_that_is_not_there(capsys, device):
    assert main(["check-device", device]) == 1
    assert f"device={device!r}" in capsys.readouterr().err


def test_a_file_that_cannot_be_written_is_refused_first(capsys, tmp_path):
    assert main(["check-device", "cpu", "--output", str(tmp_path)]) == 1
    assert "is a folder" in capsys.readouterr().err
