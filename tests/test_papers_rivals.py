"""Every row of the papers' tables has a command, and its published number is on a page."""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np
import pytest

from gyrfalcon.kernels import Gaussian

ROOT = Path(__file__).parents[1]
# of the tables: rivals that classify, and those that regress
CLASSIFYING = ["BCD R. F.", "BCD Nyström", "EigenPro", "KRR", "Sparse Kernels", "Ensemble", "Hierarchical", "EigenPro2"]
REGRESSING = [
    "Prec. KRR", "Hierarchical", "D&C", "Rand. Feat.", "Nyström", "ADMM R. F.", "KRR", "BCD Nyström", "EigenPro2",
    "KOLS", "KRLS", "Early Stopping",
]  # fmt: skip


@pytest.fixture
def published(monkeypatch):
    for folder in ("benchmarks", "benchmarks/papers"):
        monkeypatch.syspath_prepend(str(ROOT / folder))
    return importlib.import_module("published")


def data(classes: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.standard_normal((240, 3))
    if classes:
        return X, X[:, :classes].argmax(axis=1)
    return X, np.sin(2 * X[:, 0]) + 0.3 * X[:, 1]


def row_of(published, method: str):
    row = published.Row("MillionSongs", "", "FALKON", Gaussian(1.5), 1e-4, 60, {}, "", iterations=100, threshold=1e-3)
    return row if method == "Early Stopping" else published.replace(row, iterations=20)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("method", REGRESSING)
def test_a_rival_regresses_with_the_settings_of_falkon(published, method):
    X, y = data()
    row = row_of(published, method)
    model = published.rival_of(method, row, 60, classes=False, seed=0)
    assert model.kernel is row.kernel
    assert (model.scale, model.fit_intercept) == (False, False)
    error = np.mean((model.fit(X[:200], y[:200]).predict(X[200:]) - y[200:]) ** 2)
    assert error < (0.6 if method == "D&C" else 0.3) * y.var()  # D&C: parts of 12 rows
    if method in ("KRR", "KRLS"):
        squares = ((X[:, None] - X[None, :200]) ** 2).sum(axis=2)
        K = np.exp(-squares / (2 * 1.5**2))
        exact = K[200:] @ np.linalg.solve(K[:200] + 1e-4 * 200 * np.eye(200), y[:200])
        np.testing.assert_allclose(model.predict(X[200:]), exact, atol=1e-2 if method == "KRR" else 1e-6)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("method", CLASSIFYING)
def test_a_rival_classifies(published, method, n_classes):
    X, y = data(n_classes)
    model = published.rival_of(method, row_of(published, method), 60, classes=True, seed=0).fit(X[:200], y[:200])
    scores = model.decision_function(X[200:])
    assert scores.shape == ((40,) if n_classes == 2 else (40, 3))
    chosen = model.classes_[(scores > 0).astype(int) if n_classes == 2 else scores.argmax(axis=1)]
    assert np.mean(chosen == y[200:]) > 0.75


def test_every_rival_is_made_or_another_program(published):
    for rival in published.RIVALS:
        if rival.method in published.OTHERS:
            assert rival.method not in published.METHODS
            continue
        row = published.settings_of(rival)
        classes = published.SETS[rival.data].metrics[0] in ("c-err", "AUC")
        assert rival.method in (CLASSIFYING if classes else REGRESSING) or rival.data == "YELP"
        model = published.rival_of(rival.method, row, 10, classes=classes, seed=0)
        assert getattr(model, "regressor", model).kernel is row.kernel


def test_every_published_number_is_on_a_page(published):
    """Each row of a table: a line of a page names the method and has the number."""
    lines = [
        line
        for page in ("papers.md", "papers_nytro.md")
        for line in (ROOT / "docs" / page).read_text(encoding="utf-8").splitlines()
    ]
    for row in [*published.ROWS, *published.RIVALS]:
        numbers = [row.time.split()[0] if row.time and not row.published else None]
        numbers += [f"{value:g}" for value in row.published.values()]
        for number in filter(None, numbers):
            shown = {number, f"{float(number) * 1e3:g}e-3"}
            assert any(row.method in line and any(text in line for text in shown) for line in lines), (row, number)
