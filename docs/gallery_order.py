"""Sections of the gallery and the order of their examples: that of the user guide.

The gallery makes a section of each folder, and `examples/` is a single one: `arrange` copies it into folders.
"""

from __future__ import annotations

from pathlib import Path

# folder: its title, a sentence, and its examples
SECTIONS = {
    "tables": (
        "Tables and first models",
        "Regression, classification, and tables with categories, dates and missing values.",
        ("tables", "regression", "classification", "svm", "grid_search"),
    ),
    "uncertainty": (
        "Probabilities and intervals",
        "Probabilities of classes, and intervals that contain y with a given probability.",
        ("probabilities", "uncertainty", "quantiles", "inside_mapie", "inside_crepes"),
    ),
    "explaining": (
        "What a model has learned",
        "Which columns matter, and how a fit converged.",
        ("shapley", "learned_metric", "plots", "early_stopping", "learning_on", "stream"),
    ),
    "big_data": (
        "Big data",
        "Files, sparse rows, clusters, and fits that are interrupted.",
        ("parquet_folder", "sparse_text", "dask_cluster", "checkpoint"),
    ),
    "unsupervised": (
        "Without targets, and what to try next",
        "Components, clusters, diverse rows and bandits.",
        ("kernel_pca", "kernel_kmeans", "diverse_rows", "bandits"),
    ),
    "methods": (
        "More methods",
        "Kernels, centers and other algorithms.",
        (
            *("custom_kernel", "center_selection", "hierarchical", "random_features", "baselines"),
            *("deep_features", "hard_negatives", "kernel_operator"),
        ),
    ),
}
EXAMPLES = [name for _, _, names in SECTIONS.values() for name in names]


def page_of(name: str) -> str:
    """Return the page of an example."""
    return next(f"auto_examples/{folder}/{name}" for folder, (_, _, names) in SECTIONS.items() if name in names)


def arrange(examples: Path, destination: Path) -> None:
    """Copy the examples into a folder for each section."""
    write(destination / "GALLERY_HEADER.rst", (examples / "GALLERY_HEADER.rst").read_text(encoding="utf-8"))
    for folder, (title, sentence, names) in SECTIONS.items():
        write(destination / folder / "GALLERY_HEADER.rst", f"{title}\n{'-' * len(title)}\n\n{sentence}\n")
        for name in names:
            write(destination / folder / f"{name}.py", (examples / f"{name}.py").read_text(encoding="utf-8"))


def write(path: Path, text: str) -> None:
    """Write a file, unless it has that text: the gallery runs examples that are newer than their pages."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


class SectionOrder:
    """Sort key of the folders."""

    def __call__(self, folder: str) -> int:
        return list(SECTIONS).index(Path(folder).name)


class ExampleOrder:
    """Sort key of the examples' file names, which the gallery makes for a folder."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def __call__(self, filename: str) -> int:
        return EXAMPLES.index(Path(filename).stem)
