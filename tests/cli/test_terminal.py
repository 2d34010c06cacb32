"""What files say cannot control a terminal: names of columns and labels are escaped wherever a person reads them."""

from __future__ import annotations

import io
import unicodedata

import numpy as np
import pandas as pd
import pytest

from gyrfalcon._utils.terminal import printable
from gyrfalcon.cli import _shared
from gyrfalcon.cli.main import main

NAME = "a\x1b[2J\x1b]0;title\x07\u202egnp.exe\u2066\x9b31m"
LABEL = "yes\x1b[31m\nno\u202e"


def hidden(text):
    return [mark for mark in text if unicodedata.category(mark) in ("Cc", "Cf") and mark != "\n"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    table = pd.DataFrame({NAME: rng.standard_normal(80), "b": rng.standard_normal(80)})
    table["y\x1b[1m"] = np.where(table[NAME] > 0, LABEL, "other")
    table.to_parquet("rows.parquet")
    return tmp_path


def test_escapes():
    assert printable("plain ä € 価格") == "plain ä € 価格"
    assert printable(NAME) == "a\\x1b[2J\\x1b]0;title\\x07\\u202egnp.exe\\u2066\\x9b31m"
    assert printable("a\nb\u2028c") == "a\\nb\\u2028c"
    assert printable("a\nb", keep="\n") == "a\nb"
    assert not hidden(printable("".join(map(chr, range(0x3000)))))


def test_commands(folder, capsys):
    fit = ["fit", "rows.parquet", "--target", "y\x1b[1m", "-o", "model.gyr", "--method", "falkon", "-v"]
    assert main([*fit, "--loss", "logistic", "--n-centers", "20"]) == 0
    assert main(["inspect", "model.gyr"]) == 0
    assert main(["evaluate", "model.gyr", "rows.parquet"]) == 0
    assert main(["report", "model.gyr", "rows.parquet", "-o", "page.html"]) == 0
    pd.DataFrame({"c": [1.0]}).to_parquet("other.parquet")
    assert main(["predict", "model.gyr", "other.parquet"]) == 1
    assert main(["fit", "rows.parquet", "--target", "none", "-o", "model.gyr"]) == 1
    out, err = capsys.readouterr()
    assert not hidden(out)
    assert not hidden(err.replace("\r", ""))  # which progress bars write
    assert "a\\x1b[2J" in out
    assert "yes\\x1b[31m\\nno\\u202e" in out


def test_predictions_on_a_terminal(folder, capsys, monkeypatch):
    fit = ["fit", "rows.parquet", "--target", "y\x1b[1m", "-o", "model.gyr", "--method", "falkon", "-q"]
    assert main([*fit, "--n-centers", "20"]) == 0
    capsys.readouterr()
    assert main(["predict", "model.gyr", "rows.parquet"]) == 0
    assert LABEL in capsys.readouterr().out  # a program gets the label as it is
    screen = io.StringIO()
    screen.isatty = lambda: True
    monkeypatch.setattr("sys.stdout", screen)
    assert main(["predict", "model.gyr", "rows.parquet"]) == 0
    assert not hidden(screen.getvalue())
    assert "yes\\x1b[31m" in screen.getvalue()


def test_errors_warnings_and_messages(capsys):
    from argparse import Namespace

    from gyrfalcon.cli.main import Command

    def fail(_):
        import warnings

        warnings.warn(f"of {NAME}", stacklevel=1)
        _shared.say(f"reading {NAME}", Namespace(quiet=False))
        _shared.say_above(f"reading {NAME}", Namespace(quiet=False))
        raise ValueError(f"no column {NAME}")

    command = Command("fail", "Fail.", lambda parser: None, fail)
    assert main(["fail"], [command]) == 1
    err = capsys.readouterr().err
    assert not hidden(err.replace("\r", ""))
    assert err.count("a\\x1b[2J") == 4
