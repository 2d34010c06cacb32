"""The table of docs/papers.md that lists every algorithm, table and figure of the papers: no row points nowhere."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from pathlib import Path

import pytest

import gyrfalcon

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "papers.md"
NAMES = re.compile(r"`([\w.]+)(\([^`]*\))?`")


def rows() -> list[list[str]]:
    """The cells of the table."""
    section = PAGE.read_text(encoding="utf-8").split("## Every algorithm, table and figure")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[1:]]


def found(name: str) -> object:
    """A public name: of the package, of its baselines, or a dotted one."""
    if name.startswith("gyrfalcon."):
        module, _, last = name.rpartition(".")
        if name.removeprefix("gyrfalcon.") in dir(gyrfalcon):
            return importlib.import_module(name)
        return getattr(importlib.import_module(module), last)
    return getattr(gyrfalcon, name) if name in dir(gyrfalcon) else getattr(gyrfalcon.baselines, name)


def anchors(page: Path) -> set[str]:
    """Anchors of the headings of a page, as GitHub and MyST make them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0])
def test_no_row_points_nowhere(row):
    assert len(row) == 5
    _, here, command, published, measured = row
    for name, call in NAMES.findall(here):
        value = found(name)
        if call:  # its parameters exist, and are accepted with these values' types
            keywords = ast.parse(name.rpartition(".")[2] + call, mode="eval").body.keywords
            assert {keyword.arg for keyword in keywords} <= set(inspect.signature(value).parameters)
    script, *options = command.strip("`").removeprefix("python ").split()
    source = (ROOT / script).read_text(encoding="utf-8")
    if "_data import" in source:  # where the options of all scripts stand
        source += (ROOT / "benchmarks" / "papers" / "_data.py").read_text(encoding="utf-8")
    for option in options:
        if option.startswith("--"):
            assert f'"{option}"' in source
        elif option not in ("DIR", "1000"):
            folder = ROOT / "benchmarks" / "papers"
            settings = [(folder / name).read_text(encoding="utf-8") for name in ("_configurations.py", "_rivals.py")]
            assert f'"{option}"' in "".join([source, *settings]) or f"def {option}" in source
    assert published
    for page, anchor in re.findall(r"\]\(([^)#]*)#?([^)]*)\)", measured):
        path = ROOT / "docs" / page if page else PAGE
        assert path.exists()
        assert not anchor or anchor in anchors(path)
    # a row has a number or a link, or says why it has neither
    assert re.search(r"\d|\]\(", measured) or measured.startswith("not run"), measured


def test_the_table_has_every_data_set(monkeypatch):
    for folder in ("benchmarks", "benchmarks/papers"):
        monkeypatch.syspath_prepend(str(ROOT / folder))
    sets = importlib.import_module("_configurations").SETS
    commands = " ".join(row[2] for row in rows())
    assert {name for name in sets if f"published.py {name} " in commands} == set(sets)


def test_every_picture_has_its_command():
    """Each figure of the papers' pages is drawn by a command that the page names."""
    for page in (PAGE, ROOT / "docs" / "papers_nytro.md"):
        text = page.read_text(encoding="utf-8")
        for picture in re.findall(r"images/(papers_\w+\.png)", text):
            scripts = (ROOT / "benchmarks" / "papers").glob("*.py")
            drawn = [path.name for path in scripts if picture in path.read_text(encoding="utf-8")]
            assert any(name in text for name in drawn), picture
