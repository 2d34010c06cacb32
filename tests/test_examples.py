"""What the documentation shows is run: the examples, and every block of Python in README.md and docs."""

from __future__ import annotations

import re
import runpy
import sys
import warnings
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted(ROOT.glob("examples/*.py"))
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#\s]+)(?:#([^)\s]+))?\)")


@pytest.fixture(autouse=True)
def _close_figures():
    """matplotlib warns when too many are open, and the gallery's examples leave theirs open."""
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")


@pytest.mark.slow
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_example(example, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    monkeypatch.setattr(sys, "argv", [str(example), "2000"])
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        runpy.run_path(str(example), run_name="__main__")
    printed = capsys.readouterr().out
    assert printed.strip()
    assert "nan" not in printed
    if example.stem == "grid_search":
        # the search likes wide kernels and small penalties: what is hardest in float32 when there are more centers
        assert float(printed.split()[-1]) < 0.2, printed


@pytest.mark.parametrize("page", [page for page in PAGES if BLOCK.search(page.read_text())], ids=lambda path: path.stem)
@pytest.mark.slow
def test_page(page, tmp_path, monkeypatch):
    if page.stem in ("devices", "tensors"):
        pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    text = page.read_text()
    namespace: dict[str, object] = {"__name__": "__page__"}
    for block in BLOCK.finditer(text):
        # blank lines first, so that an error names the line of the page
        code = "\n" * text[: block.start(1)].count("\n") + block.group(1)
        exec(compile(code, str(page), "exec"), namespace)


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=lambda path: path.stem)
def test_links_lead_somewhere(page):
    for target, anchor in LINK.findall(page.read_text()):
        if target.startswith(("http://", "https://")):
            continue
        path = page.parent / target
        assert path.exists(), f"{page.name} links to {target}"
        if anchor:
            headings = re.findall(r"^#+ (.*)$", path.read_text(), re.MULTILINE)
            slugs = [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]
            assert anchor in slugs, f"{page.name} links to {target}#{anchor}"


def test_readme_has_its_two_commands():
    text = (ROOT / "README.md").read_text()
    assert re.search(r"^python3 -m venv .*gyrfalcon demo$", text, re.MULTILINE)
    assert re.search(r'^python3 -m venv .*-m pytest -n 3 -m "not slow"$', text, re.MULTILINE)


def test_no_example_hides_a_module():
    """Python looks beside a script first: an example named mapie would import itself."""
    imported = {name for path in EXAMPLES for name in re.findall(r"^ *(?:import|from) (\w+)", path.read_text(), re.M)}
    assert {"numpy", "mapie", "crepes"} < imported
    assert not {path.stem for path in EXAMPLES} & (imported | set(sys.stdlib_module_names))


def test_pictures_are_small():
    pictures = list(ROOT.glob("docs/images/*.png"))
    assert pictures
    assert all(picture.stat().st_size < 200_000 for picture in pictures)
