"""Draw docs/images/which_estimator.svg: questions from top to bottom, and an answer beside each.

python docs/draw_which_estimator.py

The page includes it as a part of itself, so that its names can be clicked. Narrow and in large letters, so that a phone
can show it; with a background of its own, so that it is legible in light and in dark themes.
"""

from __future__ import annotations

import re
from html import escape
from pathlib import Path

# a question in two lines, and the names that answer it when it is answered with yes
STEPS = [
    (("Nothing to predict:", "no target column?"), ("KernelPCA, KernelKMeans", "NoveltyDetector", "mmd_test")),
    (("A table with text,", "dates or gaps?"), ("AutoRegressor", "AutoClassifier")),
    (("No wish to choose", "anything yourself?"), ("AutoRegressor", "AutoClassifier")),
    (("At most 50,000 rows,", "accuracy first?"), ("ExactRegressor(", '  method="pcg")', "ExactClassifier")),
    (("More rows, with fine", "detail everywhere?"), ("HierarchicalRegressor", "HierarchicalClassifier")),
    (("Many strengths of", "smoothing to try?"), ("NystromRegressor(", "  penalties=[...])")),
    (("Is y mostly noise?",), ("NytroRegressor",)),
    (("Probabilities", "of classes?"), ("FalkonClassifier(", '  loss="logistic")')),
    (("Only the classes?",), ("FalkonClassifier",)),
    (("Quantiles, counts,", "outliers in y?"), ("FalkonRegressor(loss=", ' "quantile", "poisson",', ' "huber")')),
]
LAST = ("FalkonRegressor",)

WIDTH, STEP, TOP = 560, 108, 16
LEFT, QUESTION, ANSWER = 14, 236, 254
HEIGHT, RIGHT = 74, WIDTH - 14 - 254
INK, BLUE, PAPER, LINE = "#1b2733", "#0b4f8a", "#ffffff", "#5a6875"


def box(x: int, y: int, width: int, lines: tuple[str, ...], *, fill: str, ink: str, mono: bool) -> str:
    """Return a rectangle with lines of text in its middle."""
    size, leading = (16, 20) if mono else (20, 25)
    family = "ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace" if mono else "sans-serif"
    first = y + HEIGHT / 2 - leading * (len(lines) - 1) / 2 + size * 0.35
    shown = [linked(line) if mono else escape(line) for line in lines]
    words = "".join(
        f'<text x="{x + 12}" y="{first + leading * at:g}" xml:space="preserve">{line}</text>'
        for at, line in enumerate(shown)
    )
    return (
        f'<rect x="{x}" y="{y}" width="{width}" height="{HEIGHT}" rx="9" fill="{fill}" stroke="{LINE}"/>'
        f'<g font-family="{family}" font-size="{size}" fill="{ink}">{words}</g>'
    )


def linked(line: str) -> str:
    """Return a line in which names of the package lead to the reference."""
    link = r'<a href="api/gyrfalcon.\1.html" text-decoration="underline">\1</a>'
    return re.sub(r"\b([A-Z]\w+|mmd_test)\b", link, escape(line))


def arrow(x1: float, y1: float, x2: float, y2: float, word: str) -> str:
    """Return an arrow with a word beside it."""
    down = x1 == x2
    x, y = (x1 + 10, (y1 + y2) / 2 + 5) if down else ((x1 + x2) / 2 - 15, y1 - 8)
    return (
        f'<path d="M{x1} {y1}L{x2} {y2}" stroke="{LINE}" stroke-width="2" marker-end="url(#tip)"/>'
        f'<text x="{x:g}" y="{y:g}" font-family="sans-serif" font-size="17" fill="{INK}">{word}</text>'
    )


def draw() -> str:
    """Return the picture."""
    parts = []
    for at, (question, answer) in enumerate(STEPS):
        y = TOP + STEP * at
        middle, down = y + HEIGHT // 2, LEFT + QUESTION // 2
        parts.append(box(LEFT, y, QUESTION, question, fill="#eef3f8", ink=INK, mono=False))
        parts.append(box(RIGHT, y, ANSWER, answer, fill=BLUE, ink=PAPER, mono=True))
        parts.append(arrow(LEFT + QUESTION, middle, RIGHT - 7, middle, "yes"))
        parts.append(arrow(down, y + HEIGHT, down, y + STEP - 7, "no"))
    end = TOP + STEP * len(STEPS)
    parts.append(box(LEFT, end, QUESTION, LAST, fill=BLUE, ink=PAPER, mono=True))
    height = end + HEIGHT + TOP
    words = "; ".join(f"{' '.join(question)} {' '.join(''.join(answer).split())}" for question, answer in STEPS)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'style="max-width: 100%; height: auto">'
        f"<title>Which estimator? {escape(words)}; otherwise FalkonRegressor</title>"
        f'<defs><marker id="tip" markerWidth="8" markerHeight="8" refX="3" refY="4" orient="auto">'
        f'<path d="M0 0L8 4L0 8z" fill="{LINE}"/></marker></defs>'
        f'<rect width="{WIDTH}" height="{height}" rx="12" fill="{PAPER}"/>{"".join(parts)}</svg>\n'
    )


if __name__ == "__main__":
    (Path(__file__).parent / "images" / "which_estimator.svg").write_text(draw(), encoding="utf-8")
