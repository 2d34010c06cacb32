"""The arguments that methods of estimators share, as their docstrings describe them."""

from __future__ import annotations

from collections.abc import Mapping

from .._utils.docstrings import Entry, describing
from .attributes import ATTRIBUTES
from .method_entries import METHOD_ENTRIES
from .parameters import PARAMETERS

ARGUMENTS: Mapping[str, Entry] = {
    "predict.X": Entry("array, tensor, table, sparse matrix, source or Dask collection of shape (n, n_features)"),
    "score.X": Entry("as for `predict`"),
    "score.y": Entry("array of shape (n,) or (n, n_outputs)"),
    "score.sample_weight": Entry("array of shape (n,), optional"),
    "classes.y": Entry("array of shape (n,)"),
    "rows.X": Entry("array, table, sparse matrix, source or Dask collection of shape (n, n_features)"),
    "interval.X": Entry("as for `predict`", "A Dask collection is computed immediately."),
    "path": Entry("str or path-like", "The file to write."),
    "coverage": Entry("float, default=0.9", "Between 0 and 1, both excluded."),
    "dense.X": Entry(
        "array, table, source or Dask collection of shape (n, n_features)",
        "{fit.X}",
    ),
    "fit.y": Entry(
        "array of shape (n,) or (n, n_outputs)",
        "Targets. By default those of X, if X was opened with a target.",
    ),
    "fit.sample_weight": Entry(
        "array of shape (n,), optional",
        "{unlabelled.sample_weight} The penalty refers to weights of mean 1.",
    ),
    "learn.sample_weight": Entry(
        "array of shape (n,), optional",
        "Not negative, relative to the weights of the other batches; 1 by default. Rows with weight 0 are ignored.",
    ),
    "forget.sample_weight": Entry(
        "array of shape (n,), optional",
        "The weights with which the rows were learned, multiplied by the forgetting factors of later batches.",
    ),
    "forgetting_factor": Entry(
        "float, default=1.0",
        """Number, above 0 and at most 1, by which the weights of all earlier rows are multiplied. Use a number below 1
        if the relation between X and y changes over time.""",
    ),
    "max_new_centers": Entry(
        "int, default=0",
        """Maximum number of rows of the batch that become centers. Only rows are eligible of which the present centers
        leave at least a tenth of k(x, x) unrepresented. Rows that were learned before contribute to the new
        coefficients only by the part that the earlier centers represent.""",
    ),
    "validation.X_val y_val": Entry(
        "optional",
        """Rows on which the validation error is recorded. They are used wherever something is chosen by validation,
        such as when `early_stopping` stops.""",
    ),
    "fit.X_val y_val": Entry(
        "optional",
        "{validation.X_val y_val} The error is the root mean squared error.",
    ),
    "labels.y": Entry(
        "array of shape (n,)",
        "Labels of any kind. By default those of X, if X was opened with a target.",
    ),
    "dense_rows.X": Entry("array, table, source or Dask collection of shape (n, n_features)"),
    "fit.X": Entry(
        "array, table, sparse matrix, source or Dask collection of shape (n, n_features)",
        """float32 is computed in float32, everything else in float64, unless `dtype` says otherwise. A source, such as
        ``gyrfalcon.open(path, target=name)``, is read block by block, once for each pass.""",
    ),
    "unlabelled.X": Entry(
        "array, table, sparse matrix, source or Dask collection of shape (n, n_features)",
        """float32 is computed in float32, everything else in float64, unless `dtype` says otherwise. A source, such as
        ``gyrfalcon.open(path).X``, is read block by block, once for each pass.""",
    ),
    "unlabelled.sample_weight": Entry(
        "array of shape (n,), optional",
        "Not negative. Rows with weight 0 are ignored. Only ratios of weights matter.",
    ),
    "columns.X": Entry(
        "table, array, source or Dask collection of shape (n, n_features)",
        "Named columns may be in any order.",
    ),
}

SHARED = {**PARAMETERS, **METHOD_ENTRIES, **ATTRIBUTES, **ARGUMENTS}
described = describing(SHARED)
