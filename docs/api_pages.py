"""Write the pages of the reference: which public names there are, and in what order a reader meets them.

Names come from `__all__` of the package and of its public modules, so that none can be forgotten. `GROUPS` is the order
of those of the package itself; a name that no group has stands at the end, under "More".
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

GROUPS = {
    "Tables": ("AutoRegressor", "AutoClassifier", "TableEncoder"),
    "FALKON": ("FalkonRegressor", "FalkonClassifier"),
    "Other methods": (
        "NystromRegressor",
        "NytroRegressor",
        "ExactRegressor",
        "ExactClassifier",
        "HierarchicalRegressor",
        "HierarchicalClassifier",
        "RandomFeaturesRegressor",
        "RandomFeaturesClassifier",
        "RandomFeatures",
        "DivideAndConquerRegressor",
        "EigenProRegressor",
    ),
    "Detection": ("mini_bootstrap", "Detectors"),
    "Intervals and sets of classes": ("ConformalRegressor", "ConformalClassifier"),
    "Which features matter": (
        "shapley_values",
        "ShapleyValues",
        "shapley_interactions",
        "partial_dependence",
        "LearnedMetric",
    ),
    "Choosing parameters": ("tune",),
    "New rows": ("learn_stream",),
    "Without targets": ("KernelPCA", "KernelKMeans", "NoveltyDetector", "mmd_test", "MMDTest"),
    "Diverse rows and bandits": ("DPP", "sample_dpp", "BKB", "BBKB"),
    "Files, models and checkpoints": (
        "open",
        "write_predictions",
        "save",
        "load",
        "to_onnx",
        "ModelFileError",
        "Checkpoint",
        "CheckpointError",
    ),
    "Theory": (
        "suggest",
        "centers_needed",
        "leverage_scores",
        "effective_dimension",
        "n_infinity",
        "d_tilde",
        "signal_to_noise",
        "suggest_nytro",
        "regime",
    ),
    "For methods of your own": ("KernelOperator",),
    "This installation": ("show_versions",),
}

# Public modules and what they are for. Examples in docstrings are asked for in all but the last three.
MODULES = {
    "baselines": "Methods with which the papers compare FALKON.",
    "plots": "Pictures of fits and of data.",
    "kernels": "Kernels, sums and products of them, and the base classes for kernels of your own.",
    "losses": "Losses of regression and classification, and the base class for losses of your own.",
    "centers": "Methods that choose the centers of a model among the rows.",
    "callbacks": "Objects that follow a fit, report its progress or stop it.",
    "tables": "Parts of the pipelines that ``AutoRegressor`` and ``AutoClassifier`` find.",
    "sources": "Rows in memory, in files and on clusters, which estimators read block by block.",
    "storage": "Model files with estimators and kernels of your own.",
    "testing": "Tests of sources of rows that you write.",
    "operators": "Products with the matrix K of kernel values of rows and centers.",
    "preconditioners": "Changes of variables in which solvers need few iterations. For methods of your own.",
    "solvers": "The numerical methods of the estimators, as functions of an operator. For methods of your own.",
    "backends": "Implementations of products with a block of K. For methods of your own.",
}
PARTS = ("preconditioners", "solvers", "backends")


def public_modules() -> list[str]:
    """Return the names of the public modules that this version has."""
    import gyrfalcon

    return [name for name in MODULES if name in dir(gyrfalcon)]


def public_names(module: str) -> list[str]:
    """Return the public names of a module ("" is the package) without those of the package and without modules."""
    import gyrfalcon

    owner = importlib.import_module(f"gyrfalcon.{module}" if module else "gyrfalcon")
    names = list(owner.__all__)
    if not module:
        reachable = [name for name in ("open",) if name not in names]  # hides a built-in, so that * leaves it out
        return [name for name in (*names, *reachable) if not isinstance(getattr(owner, name), ModuleType)]
    return [name for name in names if getattr(gyrfalcon, name, None) is not getattr(owner, name)]


def grouped() -> Iterator[tuple[str, list[str]]]:
    """Yield the groups of the package's own names, those that no group has last."""
    left = public_names("")
    for title, group in GROUPS.items():
        yield title, [name for name in group if name in left]
    listed = {name for group in GROUPS.values() for name in group}
    yield "More", [name for name in left if name not in listed]


def is_alias(module: str, name: str) -> bool:
    """Say whether a name is a constant or a type alias, which has no docstring of its own."""
    thing = getattr(importlib.import_module(f"gyrfalcon.{module}"), name)
    return not str(getattr(thing, "__module__", "")).startswith("gyrfalcon")


def _aliases(module: str, names: list[str]) -> str:
    if not names:
        return ""
    items = "".join(f".. py:data:: gyrfalcon.{module}.{name}\n   :no-typesetting:\n\n" for name in names)
    listed = ", ".join(f"``{name}``" for name in names)
    return f"{items}Constants and aliases of types, for annotations: {listed}.\n"


def _section(title: str, names: list[str], module: str, line: str = "-") -> str:
    if not names:
        return ""
    rows = "\n".join(f"   {name}" for name in names)
    heading = f"{title}\n{line * len(title)}\n\n" if title else ""
    caption = f"   :caption: {title}\n" if title else ""
    options = f"   :toctree: .\n{caption}   :nosignatures:\n"
    return f"{heading}.. currentmodule:: {module}\n\n.. autosummary::\n{options}\n{rows}\n\n"


def pages() -> dict[str, str]:
    """Return the text of each page by its name."""
    modules = public_modules()
    contents = "\n".join(f"   {name}_module" for name in modules)
    index = "API reference\n=============\n\n"
    index += "These names are imported from ``gyrfalcon``. Its modules have further ones:\n"
    index += ", ".join(f":doc:`gyrfalcon.{name} <{name}_module>`" for name in modules) + ".\n\n"
    index += "".join(_section(title, names, "gyrfalcon") for title, names in grouped())
    index += f".. toctree::\n   :caption: Modules\n   :hidden:\n\n{contents}\n"
    found = {"index": index}
    for name in modules:
        title = f"gyrfalcon.{name}"
        text = f"{title}\n{'=' * len(title)}\n\n{MODULES[name]}\n\n"
        aliases = [public for public in public_names(name) if is_alias(name, public)]
        documented = [public for public in public_names(name) if public not in aliases]
        found[f"{name}_module"] = text + _section("", documented, title) + _aliases(name, aliases)
    return found


def write(folder: Path) -> None:
    """Write the pages that differ from what is there, so that a second build is quick."""
    folder.mkdir(exist_ok=True)
    for name, text in pages().items():
        path = folder / f"{name}.rst"
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
