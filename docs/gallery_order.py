"""The order in which the gallery shows the examples: that of the user guide."""

from __future__ import annotations

from pathlib import Path

EXAMPLES = [
    *("tables", "regression", "classification", "probabilities", "svm", "quantiles", "uncertainty", "shapley"),
    *("grid_search", "learned_metric", "early_stopping", "learning_on", "plots"),
    *("parquet_folder", "sparse_text", "dask_cluster", "checkpoint"),
    *(
        "custom_kernel",
        "center_selection",
        "baselines",
        "hierarchical",
        "random_features",
        "kernel_pca",
        "kernel_kmeans",
    ),
    *("deep_features", "hard_negatives", "diverse_rows", "bandits", "inside_mapie", "inside_crepes", "kernel_operator"),
]


class ExampleOrder:
    """Sort key of the examples' file names, which the gallery makes for a folder."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def __call__(self, filename: str) -> int:
        return EXAMPLES.index(Path(filename).stem)
