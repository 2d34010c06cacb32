"""The documentation site: every public name is on it with an example, every page can be reached, examples have titles.

Sphinx itself is not needed here; CONTRIBUTING.md has the command that builds the site.
"""

from __future__ import annotations

import ast
import importlib
import json
import re
import sys
import tomllib
from pathlib import Path

import pytest
from sklearn.utils import estimator_html_repr

import gyrfalcon
from gyrfalcon.estimators._sklearn import SITE

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
sys.path[:0] = [str(DOCS), str(ROOT / "cmake")]
import api_pages  # noqa: E402
import check_links  # noqa: E402
import gallery_order  # noqa: E402
import link_names  # noqa: E402
import plain_text  # noqa: E402
import pypi_readme  # noqa: E402
import signatures  # noqa: E402

MODULES = ["", *api_pages.public_modules()]
# pages that only lead to others, or that are made of another file
PARTS = ("index", "user_guide", "background", "project", "changes", "contributing", "papers", "papers_nytro")
TOCTREE = re.compile(r"^```\{toctree\}\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def listed(page: Path) -> list[str]:
    """The pages in the tables of contents of a page."""
    bodies = TOCTREE.findall(page.read_text(encoding="utf-8"))
    return [line.strip() for body in bodies for line in body.splitlines() if line.strip() and line[0] != ":"]


def test_every_public_name_has_a_place_in_the_reference():
    pages = api_pages.pages()
    for module in MODULES:
        text = pages[f"{module}_module" if module else "index"]
        for name in api_pages.public_names(module):
            assert re.search(rf"\b{name}\b", text), f"{module}.{name}"
    assert {"kernels", "losses", "centers", "callbacks"} < set(MODULES)


def test_groups_name_what_there_is():
    names = [name for group in api_pages.GROUPS.values() for name in group]
    assert len(names) == len(set(names))
    assert set(names) <= set(api_pages.public_names(""))
    assert all(callable(getattr(gyrfalcon, name)) for name in names)


@pytest.mark.parametrize("module", MODULES)
def test_every_public_name_has_an_example(module):
    """`test_docstrings.py` runs them."""
    owner = importlib.import_module(f"gyrfalcon.{module}".rstrip("."))
    names = [name for name in api_pages.public_names(module) if not module or not api_pages.is_alias(module, name)]
    assert [name for name in names if ">>>" not in (getattr(owner, name).__doc__ or "")] == []


def test_classes_show_their_parameters():
    """Estimators and kernels define `__new__(cls, *args, **named)`, which Sphinx would show."""
    shown = "(*args, **named)"
    found = signatures.on_signature(None, "class", "", gyrfalcon.kernels.Matern, None, shown, None)
    assert found == ("(length_scale='scale', nu=1.5)", None)
    assert signatures.of_class(gyrfalcon.kernels.Stationary) == ""
    assert signatures.on_signature(None, "function", "", gyrfalcon.save, None, "(model, path)", None) is None
    names = [name for name in gyrfalcon.__all__ if hasattr(getattr(gyrfalcon, name), "get_params")]
    assert len(names) > 20
    for name in names:
        text = signatures.of_class(getattr(gyrfalcon, name))
        parameters = getattr(gyrfalcon, name)._get_param_names()
        assert all(re.search(rf"\b{one}\b", text) for one in parameters), name
        assert "*args" not in text


def test_every_page_is_in_one_table_of_contents():
    found = [name for page in DOCS.glob("*.md") for name in listed(page)]
    assert len(found) == len(set(found))
    pages = {page.stem for page in DOCS.glob("*.md")} - {"index"}
    assert pages == {name for name in found if "/" not in name}, "list new pages in docs/user_guide.md"
    assert {name for name in found if "/" in name} == {"auto_examples/index", "api/index"}


def test_the_guide_says_what_its_pages_are_for():
    guide = DOCS / "user_guide.md"
    linked = re.findall(r"\]\((\w+)\.md\)", guide.read_text(encoding="utf-8"))
    assert linked == listed(guide), "link each page once, in the order of the tables of contents"


def test_the_gallery_has_an_order():
    assert sorted(gallery_order.EXAMPLES) == sorted(path.stem for path in ROOT.glob("examples/*.py"))


def test_the_gallery_has_sections(tmp_path):
    gallery_order.arrange(ROOT / "examples", tmp_path)
    assert (tmp_path / "tables" / "regression.py").read_text() == (ROOT / "examples" / "regression.py").read_text()
    folders = sorted(path.name for path in tmp_path.iterdir() if path.is_dir())
    assert folders == sorted(gallery_order.SECTIONS)
    assert sorted(folders, key=gallery_order.SectionOrder()) == list(gallery_order.SECTIONS)
    assert gallery_order.page_of("regression") == "auto_examples/tables/regression"


def test_this_version_is_in_the_switcher():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    versions = json.loads((DOCS / "_static" / "switcher.json").read_text(encoding="utf-8"))
    assert {"version": version, "url": SITE}.items() <= versions[0].items()
    assert sum(entry.get("preferred", False) for entry in versions) == 1


def test_every_question_has_a_page_of_the_guide():
    """`docs/check_search.mjs` asks the search of the built site."""
    questions = json.loads((DOCS / "search_questions.json").read_text(encoding="utf-8"))
    assert len(questions) >= 10
    pages = {page for answers in questions.values() for page in answers if "/" not in page}
    assert pages <= {path.stem for path in DOCS.glob("*.md")}


@pytest.mark.parametrize(
    "page", [page for page in sorted(DOCS.glob("*.md")) if page.stem not in PARTS], ids=lambda p: p.stem
)
def test_every_page_has_keywords(page):
    """The words under which the search finds it: those of a reader who does not know ours."""
    assert re.match(r"---\nmyst:\n  html_meta:\n    keywords: \w.*\w\n---\n\n# ", page.read_text(encoding="utf-8"))


def test_links_that_lead_nowhere_are_found(tmp_path):
    (tmp_path / "deep").mkdir()
    (tmp_path / "a b.html").write_text('<h1 id="top"></h1> <a href="deep/b.html#x"></a> <a href="https://host/"></a>')
    (tmp_path / "deep" / "b.html").write_text(
        '<p id="x"></p> <a href="../a%20b.html#top"></a> <a href="#x"></a> '
        '<a href="../a%20b.html#end"></a> <img src="c.png">'
    )
    assert check_links.broken_links(tmp_path) == ["deep/b.html: ../a%20b.html#end", "deep/b.html: c.png"]
    with pytest.raises(FileNotFoundError, match="build the site first"):
        check_links.broken_links(tmp_path / "nowhere")


@pytest.mark.parametrize("example", sorted(ROOT.glob("examples/*.py")), ids=lambda path: path.stem)
def test_examples_have_a_title(example):
    """The gallery shows the docstring's first line, underlined with =, and runs what follows."""
    lines = (ast.get_docstring(ast.parse(example.read_text(encoding="utf-8"))) or "").splitlines()
    assert len(lines) > 3
    assert re.fullmatch("=+", lines[1])
    assert len(lines[0]) <= len(lines[1])
    assert len(lines[0]) < 50


def test_diagrams_link_to_the_reference():
    shown = estimator_html_repr(gyrfalcon.FalkonRegressor())
    assert f"{SITE}api/gyrfalcon.FalkonRegressor.html" in shown
    names = [name for name in api_pages.public_names("") if hasattr(getattr(gyrfalcon, name), "_get_doc_link")]
    assert len(names) > 20
    for name in names:
        made = getattr(gyrfalcon, name).__new__(getattr(gyrfalcon, name))
        assert made._get_doc_link() == f"{SITE}api/gyrfalcon.{name}.html"
    for name in api_pages.public_names("baselines"):
        cls = getattr(gyrfalcon.baselines, name)
        assert cls.__new__(cls)._get_doc_link() == f"{SITE}api/gyrfalcon.baselines.{name}.html"

    class Own(gyrfalcon.FalkonRegressor):
        pass

    assert Own()._get_doc_link() == ""


def test_every_warning_is_explained():
    """Words of each warning in the source are on the page that says what it means."""
    page = (DOCS / "troubleshooting.md").read_text(encoding="utf-8").lower()
    unexplained = []
    for path in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "warn"):
                continue
            parts = [part.value for part in ast.walk(node.args[0]) if isinstance(part, ast.Constant)]
            texts = [re.findall(r"[\w.'-]+", part.lower()) for part in parts if isinstance(part, str)]
            size = min(4, max(map(len, texts)))
            runs = {" ".join(words[at : at + size]) for words in texts for at in range(len(words) - size + 1)}
            if not any(run in page for run in runs):
                unexplained.append((path.name, node.lineno, texts))
    assert unexplained == []


def test_docstrings_are_escaped():
    lines = [
        "|f|^2 of coef_ : `a|b_`, **kwargs",
        "",
        "name_ : array of shape (n_features_in_,)",
        ">>> a_ | b * c",
        "1 | 2",
    ]
    assert plain_text.escape(lines) == [
        "\\|f\\|^2 of ``coef_`` : `a|b_`, \\*\\*kwargs",
        "",
        "name_ : array of shape (``n_features_in_``,)",
        ">>> a_ | b * c",
        "1 | 2",
    ]
    assert plain_text.escape(["Formula::", "", "    a_ * |b|", "", "after a_"])[2:] == [
        "    a_ * |b|",
        "",
        "after ``a_``",
    ]


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) < 150


def test_every_install_line_is_that_of_the_address():
    """Pages include one file; README has the same line. Both change with the first release."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    line = f'pip install "gyrfalcon[plots,tables] @ git+{project["urls"]["Source"]}"'
    for path in (ROOT / "README.md", DOCS / "_snippets" / "install.md", DOCS / "install.md"):
        assert line in path.read_text(encoding="utf-8"), path


def test_errors_name_packages_that_can_be_installed():
    """An extra of a package that is not on PyPI cannot be installed by its name."""
    files = [*sorted((ROOT / "src").rglob("*.py")), *sorted(DOCS.glob("*.md"))]
    wrong = [path.name for path in files if re.search(r'pip install "?gyrfalcon', path.read_text(encoding="utf-8"))]
    assert wrong == ["install.md"]
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    table = re.findall(r"\| `pip install ([^`]+)` \| `(\w+)` \|", (DOCS / "install.md").read_text(encoding="utf-8"))
    assert {name for _, name in table} == set(extras) - {"test", "docs", "lint"}
    for packages, extra in table:
        assert packages.replace('"', "").split() == [requirement.split(">=")[0] for requirement in extras[extra]]


def test_the_picture_to_follow_is_drawn_by_its_script():
    import draw_which_estimator

    assert (DOCS / "images" / "which_estimator.svg").read_text(encoding="utf-8") == draw_which_estimator.draw()
    for _, answer in draw_which_estimator.STEPS:
        for name in re.findall(r"\b[A-Z]\w+|mmd_test", " ".join(answer)):
            assert name in gyrfalcon.__all__


def test_links_of_the_readme_on_pypi_are_whole():
    """The build puts this text into the metadata of wheels, where nothing else of the repository is."""
    text = pypi_readme.absolute((ROOT / "README.md").read_text(encoding="utf-8"))
    links = re.findall(r"\]\(([^)\s]*)\)", text)
    assert len(links) > 20
    assert all(link.startswith("https://") for link in links)
    assert f"{pypi_readme.SITE}/tables.html" in links
    assert f"{pypi_readme.SOURCE}/raw/main/docs/images/demo.png" in links
    assert pypi_readme.absolute("[a](#e), [b](docs/x.md#y)") == f"[a](#e), [b]({pypi_readme.SITE}/x.html#y)"


def test_names_in_pages_that_lead_to_the_reference():
    known = {"AutoRegressor": "", "shapley_values": "", "open": "", "kernels.Gaussian": "", "Gaussian": ""}
    for code, name in {
        "AutoRegressor": "AutoRegressor",
        'AutoRegressor(cv=5, families=("kernel",))': "AutoRegressor",
        "gyrfalcon.AutoRegressor": "AutoRegressor",
        "shapley_values": "shapley_values",
        "gyrfalcon.open": "open",
        "gyrfalcon.open(path)": "open",
        "kernels.Gaussian": "kernels.Gaussian",
        "open": None,
        "AutoRegressor().fit": None,
        "fit_intercept": None,
        "--target": None,
    }.items():
        assert link_names.name_in(code, known) == name, code


def test_names_of_other_projects_exist():
    for name, address in link_names.FOREIGN.items():
        module, _, last = address.rpartition("/")[2].removesuffix(".html").rpartition(".")
        assert hasattr(importlib.import_module(module), last), name


def test_the_tests_that_the_page_of_devices_names_are_there():
    named = re.findall(r"`(tests/\S+\.py)::(test_\w+)`", (DOCS / "devices.md").read_text(encoding="utf-8"))
    assert len(named) > 30
    for path, name in named:
        assert f"\ndef {name}(" in (ROOT / path).read_text(encoding="utf-8"), (path, name)
