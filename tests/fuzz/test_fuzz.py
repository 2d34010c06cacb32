"""A fixed share of the random cases: the same ones each time, about a minute's work on two cores."""

from __future__ import annotations

import signal

import pytest

from . import run

# CONTRIBUTING.md says how to look further.
COUNTS = {"checkpoint": 200, "file": 300, "fit": 300, "model": 500, "play": 60, "sample": 60, "search": 150}


@pytest.mark.slow
@pytest.mark.parametrize("kind", COUNTS)
def test_nothing_is_found(kind):
    count, findings = run.search(kind, seed=0, count=COUNTS[kind])
    assert count == COUNTS[kind]
    assert not findings, "\n- ".join(["", *findings])


@pytest.mark.slow
def test_crashes_and_hangs_are_told_from_each_other(monkeypatch, tmp_path):
    """The watchdog itself: a child that dies in its second case, one that hangs in its third, and one that goes on."""
    (tmp_path / "tests" / "fuzz").mkdir(parents=True)
    child = (
        "import os, json, signal, sys, time\n"
        "at = sys.argv.index('--numbers')\n"
        "for number in range(*map(int, sys.argv[at + 1 : at + 4])):\n"
        "    print(json.dumps({'at': number}), flush=True)\n"
        "    if number == 1: os.kill(os.getpid(), signal.SIGSEGV)\n"
        "    if number == 2: time.sleep(1000)\n"
        "    print(json.dumps({'done': number, 'found': 'odd' if number == 3 else None}), flush=True)\n"
    )
    for name, text in {"__init__.py": "", "fuzz/__init__.py": "", "fuzz/run.py": child}.items():
        (tmp_path / "tests" / name).write_text(text)
    monkeypatch.setattr(run, "ROOT", tmp_path)
    monkeypatch.setattr(run, "SECONDS", 5)
    results = dict(run.watched("fit", 0, range(5)))
    assert list(results) == [0, 1, 2, 3, 4]
    assert (results[0], results[3], results[4]) == (None, "odd", None)
    assert signal.SIGSEGV.name in results[1]
    assert "hangs" in results[2]


def test_a_case_depends_on_its_number_alone(tmp_path):
    from . import cases

    def contents():
        found = cases.run("file", 5, 11, tmp_path / "case")
        files = sorted(path for path in (tmp_path / "case").rglob("*") if path.is_file())
        return found, [(path.name, path.stat().st_size) for path in files]

    assert contents() == contents()
