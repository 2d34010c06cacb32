"""How Sphinx makes the site of these pages, of the docstrings and of the examples; CONTRIBUTING.md has the command."""

from __future__ import annotations

import html
import os
import re
import sys
import tomllib
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
os.environ["MPLBACKEND"] = "Agg"

import api_pages
import gallery_order
import keywords
import link_names
import pictures
import plain_text
import signatures

from gyrfalcon.estimators._sklearn import SITE

ROOT = Path(__file__).parents[1]
DESCRIPTION = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

project = "Gyrfalcon"
author = "The Gyrfalcon authors"
copyright = "the Gyrfalcon authors, BSD-3-Clause"
version = release = DESCRIPTION["version"]
root_doc = "index"
exclude_patterns = ["_build", "_gallery", "_snippets", "**/README.md"]
extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "formulas",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]

# ---- pages -----------------------------------------------------------------------------------------------------------
source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
myst_enable_extensions = ["colon_fence", "dollarmath"]
html_math_renderer = "mathml"
myst_heading_anchors = 3
highlight_language = "none"
nitpicky = True
smartquotes = False  # code in docstrings and pages is copied
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

# ---- the reference ---------------------------------------------------------------------------------------------------
autosummary_generate = True
autosummary_imported_members = True
autodoc_typehints = "none"
autodoc_member_order = "groupwise"
toc_object_entries_show_parents = "hide"
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False
default_role = "literal"  # docstrings write names as `name`
templates_path = ["_templates"]

# ---- examples --------------------------------------------------------------------------------------------------------
# Rows of the examples: enough to see the point, and few enough for all of them to run in minutes
EXAMPLE_ROWS = "8000"


def example_arguments(gallery_conf: dict[str, object], script_vars: dict[str, object]) -> list[str]:
    """Return what an example finds in `sys.argv`."""
    return [EXAMPLE_ROWS]


sphinx_gallery_conf = {
    "examples_dirs": "_gallery",  # examples/ in sections: gallery_order.py
    "gallery_dirs": "auto_examples",
    "filename_pattern": r"(?<!checkpoint)\.py$",  # that one kills a process of its own, which the gallery's cannot be
    "ignore_pattern": r"__init__\.py",
    "reset_argv": "conf.example_arguments",
    "subsection_order": gallery_order.SectionOrder(),
    "within_subsection_order": "gallery_order.ExampleOrder",
    "default_thumb_file": str(ROOT / "docs" / "images" / "output.png"),
    "download_all_examples": False,
    "show_memory": False,
    "show_signature": False,
    "min_reported_time": 1e9,
    "write_computation_times": False,
    "plot_gallery": "True",
    "abort_on_example_error": True,
    "image_srcset": ["2x"],
    "capture_repr": (),
    "remove_config_comments": True,
}
# an example may show a warning on purpose; matplotlib's about windows says nothing here
warnings.filterwarnings("ignore", message=".*non-interactive.*", category=UserWarning)

# ---- how it looks ----------------------------------------------------------------------------------------------------
html_theme = "pydata_sphinx_theme"
html_title = "Gyrfalcon"
html_static_path = ["_static"]
html_css_files = ["gyrfalcon.css"]
html_js_files = ["accessible.js"]
html_show_sourcelink = False
html_search_scorer = str(ROOT / "docs" / "_static" / "search_scorer.js")
html_favicon = "_static/favicon.svg"
html_extra_path = ["404.html"]
html_baseurl = SITE
html_context = {
    "github_user": "gyrfalcon-ml",
    "github_repo": "gyrfalcon",
    "github_version": "main",
    "doc_path": "docs",
    "default_mode": "auto",
}
html_theme_options = {
    "use_edit_page_button": True,
    "github_url": "https://github.com/gyrfalcon-ml/gyrfalcon",
    "logo": {"text": "Gyrfalcon", "image_light": "_static/favicon.svg", "image_dark": "_static/favicon.svg"},
    "header_links_before_dropdown": 6,
    "navbar_align": "left",
    # all versions read the list of the latest one
    "switcher": {"json_url": f"{SITE}_static/switcher.json", "version_match": version},
    "check_switcher": False,
    "navbar_end": ["version-switcher", "theme-switcher", "navbar-icon-links"],
    "show_prev_next": True,
    "navigation_with_keys": False,
    "show_toc_level": 2,
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
    "footer_start": ["copyright"],
    "footer_end": ["theme-version"],
    "secondary_sidebar_items": {"**": ["page-toc", "edit-this-page"], "index": []},
}
html_sidebars = {"index": []}


def adapt_links(app: object, docname: str, source: list[str]) -> None:
    """Let links that lead to files of the repository lead to pages of the site."""
    pattern = r"\]\((?:\.\./)?examples/(\w+)\.py\)"
    text = re.sub(pattern, lambda found: f"](/{gallery_order.page_of(found[1])}.rst)", source[0])
    source[0] = re.sub(r"\]\(\.\./(benchmarks/\w+\.md)", rf"]({html_theme_options['github_url']}/blob/main/\1", text)


def leave_out(app: object, what: str, name: str, thing: object, skip: bool, options: object) -> bool | None:
    """Leave out what comes from elsewhere: scikit-learn's docstrings refer to its own pages, operators have none."""
    module = getattr(thing, "__module__", None) or getattr(getattr(thing, "fget", None), "__module__", None) or ""
    return True if module.startswith("sklearn.") or module in ("_operator", "numpy") else None


# pages that are made of files elsewhere in the repository
SOURCES = {"changes": "CHANGELOG.md", "contributing": "CONTRIBUTING.md"}


def source_of(page: str) -> str | None:
    """Return the file of the repository to edit for a page; None if there is no single one."""
    name = page.split("/")[-1]
    if page.startswith("auto_examples/") and name in gallery_order.EXAMPLES:
        return f"examples/{name}.py"
    written = next((name for name in (f"docs/{page}.md", f"docs/{page}.rst") if (ROOT / name).exists()), None)
    made = page.startswith(("api/", "auto_examples/"))
    return SOURCES.get(page, None if made else written)


def edit_the_source(app: object, page: str, template: str, context: dict[str, object], doctree: object) -> None:
    """Let "Edit on GitHub" lead to the file that a page is made of, and leave it out where there is none."""
    path, site = source_of(page), html_theme_options["github_url"]
    context["theme_use_edit_page_button"] = path is not None
    context["get_edit_provider_and_url"] = lambda: ("GitHub", f"{site}/edit/main/{path}")


SUMMARY = "Accurate models of tables with nothing to tune, and kernel learning from millions of rows, for scikit-learn"


def describe(app: object, page: str, template: str, context: dict[str, object], doctree: object) -> None:
    """Add the description and the card that search engines and messengers show, and do not double the first title."""
    if page == "index":
        context["docstitle"] = ""
        context["title"] = f"Gyrfalcon: {SUMMARY}"
    tags = {
        "og:title": html_title if page == "index" else f"{context.get('title', '')} - {html_title}",
        "og:description": SUMMARY,
        "og:image": f"{SITE}_static/card.png",  # card.svg, drawn by chromium: messengers show no SVG
        "og:type": "website",
    }
    lines = [f'<meta name="description" content="{SUMMARY}" />']
    lines += [
        f'<meta property="{name}" content="{html.escape(re.sub("<[^>]*>", "", text))}" />'
        for name, text in tags.items()
    ]
    context["metatags"] = str(context.get("metatags", "")) + "\n".join(lines)


def setup(app: object) -> None:
    api_pages.write(Path(__file__).parent / "api")
    gallery_order.arrange(ROOT / "examples", Path(__file__).parent / "_gallery")
    app.add_transform(keywords.IndexKeywords)
    app.add_transform(pictures.SharpPictures)
    app.connect("source-read", adapt_links)
    app.connect("autodoc-process-docstring", plain_text.on_docstring, priority=400)  # before numpydoc
    app.connect("autodoc-process-signature", signatures.on_signature)
    app.connect("autodoc-skip-member", leave_out)
    app.connect("doctree-resolved", link_names.link)
    app.connect("html-page-context", describe)
    app.connect("html-page-context", edit_the_source, priority=900)  # after the theme's
