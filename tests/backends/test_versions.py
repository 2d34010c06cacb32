"""The report for bug reports says what is there, and works best when something is not."""

from __future__ import annotations

import importlib.metadata
import platform
import sys
import types

import numpy as np
import pytest

from gyrfalcon.backends import versions as versions_module
from gyrfalcon.backends.versions import show_versions, versions


def fake(monkeypatch, name, **members):
    module = types.ModuleType(name)
    vars(module).update(members)
    monkeypatch.setitem(sys.modules, name, module)


@pytest.fixture
def healthy(monkeypatch):
    fake(monkeypatch, "gyrfalcon.backends")
    fake(monkeypatch, "gyrfalcon.backends.native", instruction_set=lambda: "avx2")
    fake(monkeypatch, "gyrfalcon._utils.threads", effective_n_jobs=lambda n_jobs: 7)


@pytest.mark.usefixtures("healthy")
def test_versions():
    found = versions()
    assert list(found)[:2] == ["gyrfalcon", "python"]
    assert found["python"].startswith(platform.python_version())
    assert found["numpy"] == np.__version__
    for name in ("scipy", "scikit-learn", "threadpoolctl", "tqdm", "safetensors", "matplotlib"):
        assert found[name] == importlib.metadata.version(name)
    assert found["instruction set"] == "avx2"
    assert found["threads"] == "7"
    assert "threads)" in found["blas"]
    assert found["platform"] == platform.platform()
    assert int(found["processors"]) >= 1
    assert all(isinstance(value, str) and "\n" not in value for value in found.values())


def test_an_instruction_set_that_is_not_there(monkeypatch):
    monkeypatch.setenv("GYRFALCON_ISA", "sse9")
    assert "'sse9' is not available" in versions()["instruction set"]


def test_broken_installation(monkeypatch):
    for name in ("gyrfalcon.backends.native", "gyrfalcon._utils.threads", "threadpoolctl"):
        monkeypatch.setitem(sys.modules, name, None)

    def missing(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", missing)
    found = versions()
    assert found["gyrfalcon"] == "unknown"
    assert found["numpy"] == "not installed"
    assert "matplotlib" not in found
    assert found["instruction set"].startswith("none: the native core cannot be imported (")
    assert found["threads"].startswith("unknown (")
    assert found["blas"].startswith("unknown (")


def test_no_blas(monkeypatch):
    fake(monkeypatch, "threadpoolctl", threadpool_info=lambda: [{"user_api": "openmp"}])
    assert versions_module._blas() == "none found"
    libraries = [{"user_api": "blas", "internal_api": "mkl", "num_threads": 2, "version": None}]
    fake(monkeypatch, "threadpoolctl", threadpool_info=lambda: libraries)
    assert versions_module._blas() == "mkl (unknown version) (unknown architecture, 2 threads)"


@pytest.mark.usefixtures("healthy")
def test_show_versions(capsys):
    assert show_versions() is None
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(versions())
    assert f"          numpy: {np.__version__}" in lines
    assert "instruction set: avx2" in lines
