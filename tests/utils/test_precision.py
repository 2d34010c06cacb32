"""PyTorch has one precision of products for the process: threads do not take it from each other, nor from the user."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from gyrfalcon._utils.precision import matmul_precision
from gyrfalcon.kernels import Gaussian
from gyrfalcon.operators import DeviceOperator

torch = pytest.importorskip("torch")

pytestmark = [
    pytest.mark.devices,
    pytest.mark.usefixtures("one_thread", "user_setting"),
    pytest.mark.skipif(
        not hasattr(torch.backends.cuda.matmul, "fp32_precision"), reason="PyTorch before 2.9 has another setting"
    ),
]


@pytest.fixture
def user_setting():
    yield
    torch.set_float32_matmul_precision("highest")
    torch.backends.fp32_precision = "none"
    for setting in (torch.backends.cuda.matmul, torch.backends.mkldnn.matmul):
        setting.fp32_precision = "none"


def settings():
    return {one.matmul.fp32_precision for one in (torch.backends.cuda, torch.backends.mkldnn)}


def test_threads_that_overlap():
    """A enters, B enters, A leaves: B is still exact, and the user's setting comes back when B leaves."""
    torch.backends.cuda.matmul.fp32_precision = torch.backends.mkldnn.matmul.fp32_precision = "tf32"
    entered, left = threading.Event(), threading.Event()

    def first():
        with matmul_precision():
            entered.set()
            assert left.wait(10)

    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(first)
        assert entered.wait(10)
        with matmul_precision():
            left.set()
            done.result(10)
            assert settings() == {"ieee"}
    assert settings() == {"tf32"}


def test_tf32_is_within_exact_and_exact_within_tf32():
    with matmul_precision():
        with matmul_precision(tf32=True):
            assert settings() == {"tf32"}
            with matmul_precision():
                assert settings() == {"ieee"}
            assert settings() == {"tf32"}
        assert settings() == {"ieee"}
    assert settings() == {"none"}


@pytest.mark.parametrize("names", [("exact", "rounded"), ("rounded", "exact")], ids=str)
def test_a_product_in_tf32_leaves_those_of_other_threads_alone(monkeypatch, names):
    X = np.random.default_rng(0).standard_normal((300, 3)).astype(np.float32)
    precisions = {"exact": None, "rounded": "tf32"}
    begun, seen, product = {name: threading.Event() for name in names}, {}, torch.addmm

    def addmm(*tensors, **options):
        name = threading.current_thread().name
        begun[name].set()
        begun["rounded" if name == "exact" else "exact"].wait(0.3)  # it may not begin meanwhile
        seen[name] = settings()
        return product(*tensors, **options)

    monkeypatch.setattr(torch, "addmm", addmm)
    threads = []
    for name in names:
        operator = DeviceOperator(Gaussian(1.0), X, X[:20], device="cpu", precision=precisions[name])
        threads.append(threading.Thread(target=operator.matmat, args=[np.ones(20)], name=name))
        threads[-1].start()
        assert begun[names[0]].wait(10)
    for thread in threads:
        thread.join(10)
    assert seen == {"exact": {"ieee"}, "rounded": {"tf32"}}


def test_a_setting_that_is_inherited_stays_so():
    torch.backends.fp32_precision = "tf32"
    X = np.ones((50, 2), dtype=np.float32)
    DeviceOperator(Gaussian(1.0), X, X[:5], device="cpu").matmat(np.ones(5))
    assert settings() == {"tf32"}
    torch.backends.fp32_precision = "ieee"
    assert settings() == {"ieee"}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_restores_the_setting():
    """Threads that hold it are not copied, and would never leave."""
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    with matmul_precision():
        child = os.fork()
        if child == 0:
            kept = torch.backends.cuda.matmul.fp32_precision
            with matmul_precision(tf32=True):
                pass
            os._exit(0 if kept == "tf32" else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert torch.backends.cuda.matmul.fp32_precision == "ieee"


@pytest.mark.parametrize("older", ["highest", "high", "medium"])
@pytest.mark.parametrize("newer", [None, "ieee", "tf32"])
@pytest.mark.parametrize("tf32", [False, True])
def test_the_older_setting_follows_and_comes_back(older, newer, tf32):
    """PyTorch compares it with the newer ones in every product on CUDA, and raises an error if they differ."""
    torch.set_float32_matmul_precision(older)
    before = settings()
    if newer is not None:
        torch.backends.cuda.matmul.fp32_precision = torch.backends.mkldnn.matmul.fp32_precision = newer
        before = {newer}
    with matmul_precision(tf32=tf32):
        assert torch.backends.cuda.matmul.allow_tf32 == tf32
        assert torch.get_float32_matmul_precision() == ("high" if tf32 else "highest")
        assert settings() == {"tf32" if tf32 else "ieee"}
    assert settings() == before
    if newer is None:
        assert torch.get_float32_matmul_precision() == older
        assert torch.backends.cuda.matmul.allow_tf32 == (older != "highest")
