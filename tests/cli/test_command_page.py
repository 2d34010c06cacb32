"""The page about the command line shows what the commands print, up to the numbers."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from gyrfalcon.cli.main import main

PAGE = Path(__file__).parents[2] / "docs" / "command_line.md"
NUMBER = re.compile(r"-?\d[\d.,]*(e[+-]?\d+)?( kB)?")


def masked(lines: list[str]) -> list[str]:
    lines = [line for line in lines if not line.startswith("written by")]  # a checkout has no version
    return [NUMBER.sub("#", line) for line in lines]


def test_the_page_shows_what_is_printed(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    text = PAGE.read_text()
    exec(re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)[0], {})
    blocks = re.findall(r"^```console\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    sessions = [session for block in blocks for session in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]]
    assert len(sessions) == 9
    for session in sessions:
        command, *shown = session.splitlines()
        command, _, head = command.partition(" | head -n ")
        code = main(shlex.split(command)[1:])
        out, err = capsys.readouterr()
        assert code == (1 if "tset.csv" in command else 0), err
        printed = (err + out).splitlines()[: int(head) if head else None]
        assert masked(printed) == masked(shown), command
