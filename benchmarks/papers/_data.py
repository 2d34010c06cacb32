"""Data, options and small tools of the papers' benchmarks.

Data sets are .npz archives in one folder, named by `--data`: arrays X, y and, where there is a split, X_test, y_test.
A sparse X is stored as X_data, X_indices, X_indptr and X_shape. Nothing is downloaded.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
IMAGES = ROOT / "docs" / "images"
sys.path.insert(0, str(ROOT / "benchmarks"))
from _common import in_subprocess, table  # noqa: E402

__all__ = [
    "IMAGES",
    "ROOT",
    "Data",
    "Scale",
    "in_subprocess",
    "load",
    "options",
    "read_npz",
    "rmse",
    "save_figure",
    "split",
    "standardise",
    "table",
]


@dataclass
class Data:
    """Rows to train on and rows to test on."""

    X: Any
    y: np.ndarray
    X_test: Any
    y_test: np.ndarray


class Scale(NamedTuple):
    """Mean and deviation of y, where it is standardised."""

    mean: float = 0.0
    deviation: float = 1.0

    def to_units(self, y: np.ndarray) -> np.ndarray:
        return (y - self.mean) / self.deviation

    def from_units(self, y: np.ndarray) -> np.ndarray:
        return np.asarray(y, np.float64) * self.deviation + self.mean


def options(description: str, only: list[str] | None = None) -> argparse.Namespace:
    """The options that all scripts have; `only` names parts of one that can be run alone."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data", help="folder of .npz files")
    parser.add_argument("--quick", action="store_true", help="smaller sizes, for a look")
    parser.add_argument("--plot", action="store_true", help="draw the pictures into docs/images")
    if only:
        parser.add_argument("--only", nargs="+", choices=only, help="these alone")
    return parser.parse_args()


def load(folder: Path, name: str, dtype: Any = np.float32) -> dict[str, Any] | None:
    """The arrays of a data set; None, and a line that says so, if it is not there."""
    path = folder / f"{name}.npz"
    if not path.exists():
        print(f"\n{name} is left out: there is no {path.name} in {folder} (--data names the folder)")
        return None
    return read_npz(path, dtype)


def read_npz(path: Path, dtype: Any) -> dict[str, Any]:
    """X, y, X_test and y_test of an archive, as far as it has them."""
    out: dict[str, Any] = {}
    with np.load(path, allow_pickle=False) as archive:
        for key in archive.files:
            if key.endswith("_shape"):
                from scipy.sparse import csr_matrix

                base = key.removesuffix("_shape")
                parts = (archive[f"{base}_data"].astype(dtype), archive[f"{base}_indices"], archive[f"{base}_indptr"])
                out[base] = csr_matrix(parts, shape=tuple(archive[key]))
            elif key in ("X", "X_test", "y", "y_test"):
                out[key] = archive[key].astype(dtype)
    return out


def split(arrays: dict[str, Any], test: float = 0.2, seed: int = 0, n_rows: int | None = None) -> Data:
    """The set's own split, or a random one; `n_rows` takes a random part of the training rows."""
    rng = np.random.default_rng(seed)
    X, y = arrays["X"], arrays["y"]
    if "X_test" in arrays:
        X_test, y_test = arrays["X_test"], arrays["y_test"]
        train = rng.permutation(len(y))
    else:
        order = rng.permutation(len(y))
        held, train = np.split(order, [round(test * len(y))])
        X_test, y_test = X[held], y[held]
    train = train[:n_rows]
    return Data(X[train], y[train], X_test, y_test)


def standardise(data: Data, targets: bool = False) -> Data:
    """Features (and targets) with mean 0 and variance 1 on the training rows."""
    # float32 sums of millions of rows would be off
    mean, deviation = data.X.mean(axis=0, dtype=np.float64), data.X.std(axis=0, dtype=np.float64)
    deviation[deviation == 0] = 1
    mean, deviation = mean.astype(data.X.dtype), deviation.astype(data.X.dtype)
    X, X_test = (data.X - mean) / deviation, (data.X_test - mean) / deviation
    y, y_test = data.y, data.y_test
    if targets:
        center, scale = float(y.mean(dtype=np.float64)), float(y.std(dtype=np.float64))
        y, y_test = (y - center) / scale, (y_test - center) / scale
    return Data(X, y, X_test, y_test)


def rmse(predictions: np.ndarray, y: np.ndarray) -> float:
    """Root of the mean squared error."""
    return float(np.sqrt(np.mean(np.square(np.asarray(predictions, dtype=np.float64) - y))))


def save_figure(figure: Any, name: str) -> None:
    """Write a picture of the documentation, with twice the pixels of its size on a page (`docs/pictures.py`)."""
    from PIL import Image

    path, drawn = IMAGES / name, BytesIO()
    figure.savefig(drawn, dpi=220, facecolor="white")
    picture = Image.open(drawn).convert("RGB").quantize(256, dither=Image.Dither.NONE)
    picture.save(path, optimize=True, dpi=(220, 220))
    print(f"\n{path.relative_to(ROOT)}: {path.stat().st_size / 1000:.0f} kB")
