"""What the documentation shows is run: the examples, and every block of Python in README.md and docs.

Where a page says in a comment what a ``print(...)`` prints, the numbers that are printed are compared with it.
"""

from __future__ import annotations

import re
import runpy
import sys
import warnings
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted(ROOT.glob("examples/*.py"))
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CLAIM = re.compile(r"\bprint\(.*\)  # (.*)$")
NUMBER = re.compile(r"(?<![\w.])-?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:e[-+]\d+)?")
# Share by which printed numbers may differ from the page's, beside its rounding: other machines round otherwise, and a
# search may end elsewhere
TOLERANCE = 0.03
# Pages of a few seconds that are run by the quick tests, too
QUICK = ("getting_started", "learned_metric", "scaling", "theory", "unsupervised")
# What an example is given where it is not the number of rows
SIZES = {"hard_negatives": "20"}
# How many lines of a page say what they print
CLAIMS = {"README": 3, "index": 3, "getting_started": 4, "tables": 2, "learned_metric": 3, "theory": 6, "scaling": 4}
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
    monkeypatch.setattr(sys, "argv", [str(example), SIZES.get(example.stem, "2000")])
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        runpy.run_path(str(example), run_name="__main__")
    printed = capsys.readouterr().out
    assert printed.strip()
    assert "nan" not in printed
    if example.stem == "grid_search":
        # the search likes wide kernels and small penalties: what is hardest in float32 when there are more centers
        assert float(printed.split()[-1]) < 0.2, printed


def run_page(page: Path) -> dict[int, str]:
    """Run the blocks of a page one after the other; return what each line printed, by its number."""
    text, printed = page.read_text(), {}

    def keep(*values: Any, **options: Any) -> None:
        line = sys._getframe(1).f_lineno
        printed[line] = f"{printed.get(line, '')} {' '.join(map(str, values))}"

    namespace: dict[str, object] = {"__name__": "__page__", "print": keep}
    for block in BLOCK.finditer(text):
        # blank lines first, so that an error names the line of the page
        code = "\n" * text[: block.start(1)].count("\n") + block.group(1)
        exec(compile(code, str(page), "exec"), namespace)
    return printed


def numbers(text: str) -> list[tuple[float, float]]:
    """The numbers in a text, each with half a unit of its last digit."""
    found = [number.replace(",", "") for number in NUMBER.findall(text)]
    return [(float(number), 0.5 * 10.0 ** int(Decimal(number).as_tuple().exponent)) for number in found]


def check_claims(page: Path, printed: dict[int, str]) -> int:
    """Compare what lines printed with their comments, up to a colon; return how many had one with a number."""
    checked = 0
    for line, text in enumerate(page.read_text().splitlines(), start=1):
        claim = CLAIM.search(text)
        if claim is None or line not in printed:
            continue
        claimed, found = numbers(claim[1].split(":")[0]), numbers(printed[line])
        if claimed:
            checked += 1
            where = f"{page.name}:{line} says {claim[1]!r}, and {printed[line]!r} is printed"
            assert len(found) >= len(claimed), where
            for (expected, rounding), (value, _) in zip(claimed, found, strict=False):
                assert abs(value - expected) <= TOLERANCE * abs(expected) + rounding, where
    return checked


def pages() -> list[Any]:
    found = [page for page in PAGES if BLOCK.search(page.read_text())]
    return [pytest.param(page, marks=() if page.stem in QUICK else pytest.mark.slow, id=page.stem) for page in found]


@pytest.mark.parametrize("page", pages())
def test_page(page, tmp_path, monkeypatch):
    if page.stem in ("devices", "devices_report", "tensors"):
        pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    checked = check_claims(page, run_page(page))
    assert checked >= CLAIMS.get(page.stem, 0), "a line that prints a number no longer says which"


def test_claims_that_are_not_true_are_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "```python\nprint(0.173, 1_000)  # 0.17, 1,000: R2, of 5\nfor i in (1, 2):\n    print(i)  # 1, 2\n```\n"
    )
    assert check_claims(page, run_page(page)) == 2
    for claim in ("print(0.173)  # 0.12: R2", "print('nothing')  # about 0.17"):
        page.write_text(f"```python\n{claim}\n```\n")
        with pytest.raises(AssertionError, match="is printed"):
            check_claims(page, run_page(page))


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
