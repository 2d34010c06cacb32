"""Let names in the text of pages lead to the reference: `AutoRegressor` to ours, `GridSearchCV` to scikit-learn's.

Pages write names as code, and no one who writes them has to think of links. Links to other projects are written from
their pattern, since a build without a network cannot read their inventories.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

SKLEARN = "https://scikit-learn.org/stable/modules/generated/sklearn.{}.html"
NUMPY = "https://numpy.org/doc/stable/reference/generated/numpy.{}.html"
PANDAS = "https://pandas.pydata.org/docs/reference/api/pandas.{}.html"

# names of scikit-learn as pages write them, by their module
_SKLEARN = {
    "calibration": ("CalibratedClassifierCV",),
    "cluster": ("KMeans",),
    "compose": ("ColumnTransformer",),
    "decomposition": ("PCA",),
    "ensemble": ("HistGradientBoostingClassifier", "HistGradientBoostingRegressor"),
    "gaussian_process": ("GaussianProcessRegressor",),
    "inspection": ("PartialDependenceDisplay", "partial_dependence", "permutation_importance"),
    "kernel_approximation": ("Nystroem", "RBFSampler"),
    "kernel_ridge": ("KernelRidge",),
    "linear_model": ("LogisticRegression", "RidgeCV", "SGDClassifier"),
    "model_selection": ("GridSearchCV", "RandomizedSearchCV", "TimeSeriesSplit", "cross_val_score"),
    "pipeline": ("Pipeline", "make_pipeline"),
    "preprocessing": ("StandardScaler",),
    "svm": ("LinearSVC", "OneClassSVM", "SVC", "SVR"),
}
FOREIGN = {name: SKLEARN.format(f"{module}.{name}") for module, names in _SKLEARN.items() for name in names} | {
    "numpy.memmap": NUMPY.format("memmap"),
    "pandas.DataFrame": PANDAS.format("DataFrame"),
}

_NAME = re.compile(r"(?:gyrfalcon\.)?((?:[a-z_]+\.)?[A-Za-z]\w*)(\(.*\))?", re.DOTALL)


def name_in(code: str, known: Mapping[str, str]) -> str | None:
    """Return the known name that a piece of code is, or that it calls; None for any other code.

    Functions are known by their names alone only if these have an underscore or a module: `open` and `save` are also
    ordinary words and methods.
    """
    match = _NAME.fullmatch(code)
    if match is None or match[1] not in known:
        return None
    name = match[1]
    distinct = name[0].isupper() or "_" in name or "." in code.partition("(")[0]
    return name if distinct else None


def names_of(objects: Mapping[str, Any]) -> dict[str, str]:
    """Return the whole names of public objects, by the short ones that pages write; ambiguous ones are left out."""
    found: dict[str, set[str]] = {}
    for whole, entry in objects.items():
        parts = whole.split(".")
        if parts[0] != "gyrfalcon" or entry.objtype not in ("class", "function", "exception"):
            continue
        for short in {parts[-1], ".".join(parts[1:])}:
            found.setdefault(short, set()).add(whole)
    return {short: min(wholes, key=len) for short, wholes in found.items() if len(wholes) == 1}


def link(app: Any, doctree: Any, page: str) -> None:
    """Make links of the names in the text of a page; headings, links and the reference are left as they are."""
    from docutils import nodes  # Sphinx has it; tests of the names do without

    if page.startswith("api/"):
        return
    objects = app.env.domains["py"].objects
    ours = names_of(objects)
    for literal in list(doctree.findall(nodes.literal)):
        if any(isinstance(one, nodes.reference | nodes.title) for one in _above(literal)):
            continue
        if (name := name_in(literal.astext(), ours)) is not None:
            entry = objects[ours[name]]
            address = f"{app.builder.get_relative_uri(page, entry.docname)}#{entry.node_id}"
        elif (name := name_in(literal.astext(), FOREIGN)) is not None:
            address = FOREIGN[name]
        else:
            continue
        reference = nodes.reference("", "", refuri=address, internal=name in ours, classes=["name"])
        literal.replace_self(reference)
        reference += literal


def _above(node: Any) -> list[Any]:
    found = []
    while node.parent is not None:
        node = node.parent
        found.append(node)
    return found
