"""What is shown: who asks for a bar, what it says, and that it is closed whatever happens."""

from __future__ import annotations

import io
import logging
import pickle
import subprocess
import sys
import threading

import numpy as np
import pytest

from gyrfalcon.callbacks import CallbackList
from gyrfalcon.callbacks import progress as display
from gyrfalcon.callbacks.progress import ProgressBar, progress_callback


class FalkonToy:
    pass


def records(n=3, **more):
    return [
        {"iteration": i, "residual": 10.0**-i, "seconds": 0.5 * i, "passes": i + 1, **more} for i in range(1, n + 1)
    ]


def run(callback, history, info=None):
    with CallbackList(callback).fitting(FalkonToy(), {"max_iter": 5} if info is None else info) as hooks:
        for record in history:
            hooks.on_iteration(record)


@pytest.fixture
def logger_without_handlers(monkeypatch):
    """As in a program that never set up logging (pytest sets it up)."""
    monkeypatch.setattr(display.logger, "hasHandlers", lambda: False)


# Who asks for it ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("verbose", "environment", "expected"),
    [
        (0, None, None),
        (False, None, None),
        (0, "", None),
        (0, "0", None),
        (0, "1", "ProgressBar(log=False)"),
        (0, "True", "ProgressBar(log=False)"),
        (1, None, "ProgressBar(log=False)"),
        (1, "0", "ProgressBar(log=False)"),
        (True, None, "ProgressBar(log=False)"),
        (np.int64(2), None, "ProgressBar(log=True)"),
        (10, "1", "ProgressBar(log=True)"),
    ],
)
def test_who_asks(verbose, environment, expected, monkeypatch):
    monkeypatch.delenv("GYRFALCON_PROGRESS", raising=False)
    if environment is not None:
        monkeypatch.setenv("GYRFALCON_PROGRESS", environment)
    bar = progress_callback(verbose)
    assert (None if bar is None else repr(bar)) == expected


@pytest.mark.parametrize("verbose", [-1, 1.0, "auto", None])
def test_verbose_is_checked(verbose):
    with pytest.raises(ValueError, match=f"verbose={verbose!r} must be an integer of at least 0"):
        progress_callback(verbose)


# What it says ---------------------------------------------------------------------------------------------------------


def last_line(text):
    return text.replace("\n", "\r").rstrip("\r").split("\r")[-1]


def test_bar_counts_passes():
    out = io.StringIO()
    run(ProgressBar(file=out), records(3, validation_error=0.25))
    text = out.getvalue()
    assert "FalkonToy:   0%|" in text
    line = last_line(text)
    assert line.startswith("FalkonToy:  67%|")
    assert "| 4/6 passes [00:00<00:00, residual 1.0e-03, validation error 0.25]" in line
    assert text.endswith("\n")


def test_bar_goes_to_standard_error(capsys):
    run(progress_callback(1), records(2))
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "3/6 passes" in captured.err


def test_converged_is_full():
    out = io.StringIO()
    run(ProgressBar(file=out), [*records(2), {"iteration": 3, "residual": 0.0, "passes": 4, "converged": True}])
    assert last_line(out.getvalue()).startswith("FalkonToy: 100%|")
    assert "4/4 passes" in last_line(out.getvalue())


@pytest.mark.parametrize(
    ("info", "expected"),
    [({}, "FalkonToy: 4 passes [00:00, residual 1.0e-03]"), ({"max_iter": None}, "FalkonToy: 4 passes [00:00")],
)
def test_unknown_length(info, expected):
    out = io.StringIO()
    run(ProgressBar(file=out), records(3), info)
    assert expected in last_line(out.getvalue())


def test_more_passes_than_foreseen():
    out = io.StringIO()
    run(ProgressBar(file=out), records(3), {"max_passes": 2})
    assert "4/4 passes" in last_line(out.getvalue())


def test_parts_of_passes_are_rounded():
    """Passes over a sample are parts of one."""
    out = io.StringIO()
    history = [{"iteration": i, "residual": 0.1, "passes": 2.84375 * i, "seconds": 0.5} for i in range(1, 4)]
    run(ProgressBar(file=out), history, {"max_iter": 7})
    assert "| 0/8 passes [00:00]" in out.getvalue()
    assert "?" not in out.getvalue()
    assert "9/9 passes" in last_line(out.getvalue())
    assert ".84375" not in out.getvalue()


def test_parts_of_passes_in_lines(caplog):
    with caplog.at_level(logging.INFO, logger="gyrfalcon"):
        run(
            ProgressBar(log=True, file=io.StringIO()),
            [{"iteration": 1, "passes": 2.84375}, {"iteration": 2, "passes": 1}],
        )
    assert [record.getMessage() for record in caplog.records] == ["iteration 1: 2.8 passes", "iteration 2: 1 pass"]


def test_sparse_records():
    out = io.StringIO()
    run(
        ProgressBar(log=True, file=out),
        [{}, {"residual": None, "validation_error": None}, {"residual": np.float32(0.5)}],
    )
    assert "3/6 passes [00:00<00:00, residual 5.0e-01]" in last_line(out.getvalue())


def test_no_console(monkeypatch):
    monkeypatch.setattr(sys, "stderr", None)
    run(ProgressBar(log=True), records(2))


def test_lines_through_logging(caplog):
    out = io.StringIO()
    with caplog.at_level(logging.INFO, logger="gyrfalcon"):
        run(ProgressBar(log=True, file=out), records(2, validation_error=0.125))
    assert [(r.name, r.levelname, r.getMessage()) for r in caplog.records] == [
        ("gyrfalcon", "INFO", "iteration 1: residual 1.0e-01, validation error 0.125, 2 passes, 0.50 s"),
        ("gyrfalcon", "INFO", "iteration 2: residual 1.0e-02, validation error 0.125, 3 passes, 1.00 s"),
    ]
    assert "iteration" not in out.getvalue()


def test_no_lines_without_log(caplog):
    with caplog.at_level(logging.DEBUG, logger="gyrfalcon"):
        run(ProgressBar(file=io.StringIO()), records(2))
    assert caplog.records == []


@pytest.mark.usefixtures("logger_without_handlers")
def test_lines_above_the_bar_when_nobody_logs():
    out = io.StringIO()
    run(ProgressBar(log=True, file=out), records(2))
    assert "iteration 1: residual 1.0e-01, 2 passes, 0.50 s\n" in out.getvalue()
    assert "iteration 2: residual 1.0e-02, 3 passes, 1.00 s\n" in out.getvalue()


# It is closed ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_closed_when_the_fit_fails(error):
    out = io.StringIO()
    bar = ProgressBar(file=out)

    def fail(record):
        raise error

    with pytest.raises(error):
        run([bar, fail], records(2))
    assert bar._bar is None
    assert out.getvalue().endswith("\n")
    assert "2/6 passes" in last_line(out.getvalue())


def test_no_thread_and_no_bar_is_left():
    from tqdm import tqdm

    before = threading.active_count()
    for _ in range(2):
        run(ProgressBar(file=io.StringIO()), records(2))
        run(ProgressBar(), records(2))
    assert threading.active_count() == before
    assert len(tqdm._instances) == 0


def test_started_twice_closes_the_first():
    out = io.StringIO()
    bar = ProgressBar(file=out)
    bar.on_fit_start(FalkonToy(), {"max_iter": 5})
    bar.on_fit_start(FalkonToy(), {"max_iter": 7})
    bar.on_fit_end(FalkonToy())
    assert out.getvalue().count("\n") == 2
    assert "0/8 passes" in last_line(out.getvalue())
    bar.on_fit_end(FalkonToy())
    bar.on_iteration({"iteration": 1})
    assert out.getvalue().count("\n") == 2


def test_pickles_in_the_middle_of_a_fit():
    copies = []
    bar = ProgressBar(log=True, file=io.StringIO())
    run([bar, lambda record: copies.append(pickle.loads(pickle.dumps(bar)))], records(1))
    assert repr(copies[0]) == "ProgressBar(log=True)"
    assert copies[0].file is None


def test_heavy_imports_wait():
    code = "import sys, gyrfalcon.callbacks.progress; print([m for m in ('tqdm', 'matplotlib') if m in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "[]\n"
