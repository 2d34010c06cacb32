"""Draw the three charts of docs/benchmarks.md from the tables of benchmarks/NOTES.md.

python docs/draw_benchmarks.py

The background is part of each picture, so that it is legible in light and in dark themes.
"""

from __future__ import annotations

import math
import re
from html import escape
from pathlib import Path

ROOT = Path(__file__).parents[1]
WIDTH, LEFT, RIGHT, TOP = 640, 210, 60, 54
INK, SOFT, BLUE, ORANGE, PAPER, LINE = "#1b2733", "#566370", "#0b4f8a", "#b4500f", "#ffffff", "#d5dbe2"


def rows(heading: str) -> list[list[str]]:
    """Return the cells of the table in NOTES.md whose first line begins with a heading."""
    text = (ROOT / "benchmarks" / "NOTES.md").read_text(encoding="utf-8")
    found = re.search(rf"^\| ?{re.escape(heading)}.*\n\|[-|]+\|\n((?:\|.*\n)+)", text, re.MULTILINE)
    if found is None:
        raise ValueError(f"benchmarks/NOTES.md has no table that begins with {heading!r}")
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in found[1].splitlines()]


def words(x: float, y: float, text: str, *, end: str = "start", fill: str = INK, size: int = 14) -> str:
    """Return a line of text."""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-family="sans-serif" font-size="{size}" text-anchor="{end}" '
        f'fill="{fill}">{escape(text)}</text>'
    )


def picture(title: str, height: float, parts: list[str]) -> str:
    """Return a whole picture with a title."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" width="{WIDTH}" '
        f'height="{height:.0f}" role="img"><title>{escape(title)}</title>'
        f'<rect width="{WIDTH}" height="{height:.0f}" rx="10" fill="{PAPER}"/>'
        f"{words(16, 30, title, size=16)}{''.join(parts)}</svg>\n"
    )


def fit() -> str:
    """Return the bars of one fit beside scikit-learn's."""
    cells = [(row[0].replace("`", ""), float(row[1].split()[0])) for row in rows("| AMD EPYC, AVX-512 | times faster")]
    most = max(seconds for _, seconds in cells)
    parts = []
    for at, (name, seconds) in enumerate(cells):
        y, length = TOP + 34 * at, (WIDTH - LEFT - RIGHT - 30) * seconds / most
        name = re.sub(r" \(the same: .*\)| \(the sample's K kept\)|default, ", "", name)
        name = name if "Nystroem" in name or "iterations" in name else f"default, {name}"
        colour = ORANGE if "Nystroem" in name else BLUE
        parts += [
            words(LEFT + 20, y + 16, name.replace("scikit-learn ", ""), end="end", size=13),
            f'<rect x="{LEFT + 30}" y="{y}" width="{max(length, 2):.1f}" height="22" rx="3" fill="{colour}"/>',
            words(LEFT + 38 + length, y + 16, f"{seconds:.3g} s" if seconds >= 1 else f"{seconds:.2f} s", size=13),
        ]
    return picture("Seconds of one fit: 200,000 rows, 18 features, 2,000 centers", TOP + 34 * len(cells) + 10, parts)


def growth() -> str:
    """Return the seconds of fits against their rows, on logarithmic axes."""
    points = [
        (float(row[0].removeprefix("n = ").replace(",", "")), float(row[1])) for row in rows("fit from Parquet, d = 20")
    ]
    height, bottom = 330.0, 276.0

    def at(n: float, seconds: float) -> tuple[float, float]:
        across = 70 + (math.log10(n) - 5) / 2 * (WIDTH - 130)
        return across, bottom - (math.log10(seconds) + 1) / 2.6 * (bottom - TOP)

    parts = []
    for seconds in (0.1, 1, 10):
        _, y = at(1e5, seconds)
        parts += [
            f'<path d="M70 {y:.1f}H{WIDTH - 40}" stroke="{LINE}"/>',
            words(62, y + 5, f"{seconds:g} s", end="end", size=13, fill=SOFT),
        ]
    parts += [
        words(at(n, 0.1)[0], bottom + 22, f"{int(n):,} rows", end="middle", size=13, fill=SOFT) for n, _ in points
    ]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in (at(*point) for point in points))
    parts.append(f'<polyline points="{line}" fill="none" stroke="{BLUE}" stroke-width="2.5"/>')
    for point in points:
        x, y = at(*point)
        parts += [
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{BLUE}"/>',
            words(x - 8, y - 12, f"{point[1]:g} s", end="middle", size=13),
        ]
    return picture("Fits from Parquet files: time is proportional to the rows", height, parts)


def tables() -> str:
    """Return a dot for each table: the error of the automatic estimators relative to LightGBM's."""
    cells = [(row[0], float(row[3])) for row in rows("table, 10 s")]
    cells.sort(key=lambda cell: cell[1])

    def across(ratio: float) -> float:
        return LEFT + ratio / 1.1 * (WIDTH - LEFT - RIGHT)

    end = TOP + 22 * len(cells)
    parts = [f'<path d="M{across(1):.1f} {TOP - 8}V{end}" stroke="{SOFT}" stroke-dasharray="4 4"/>']
    parts += [
        words(across(ratio), end + 20, f"{ratio:g}", end="middle", size=13, fill=SOFT)
        for ratio in (0, 0.25, 0.5, 0.75, 1)
    ]
    for place, (name, ratio) in enumerate(cells):
        y = TOP + 22 * place
        colour = BLUE if ratio <= 1 else ORANGE
        parts += [
            words(LEFT - 14, y + 9, name, end="end", size=13),
            f'<path d="M{LEFT} {y + 5}H{across(ratio):.1f}" stroke="{LINE}"/>',
            f'<circle cx="{across(ratio):.1f}" cy="{y + 5}" r="5" fill="{colour}"/>',
            words(WIDTH - 18, y + 9, f"{ratio:.3f}", end="end", size=12, fill=SOFT),
        ]
    parts.append(words(across(0.5), end + 42, "error relative to LightGBM's; below 1 is better", end="middle", size=13))
    return picture(f"{len(cells)} tables, 10 seconds each, nothing tuned", end + 58, parts)


if __name__ == "__main__":
    for drawn in (fit, growth, tables):
        name = f"benchmarks_{drawn.__name__}.svg"
        (ROOT / "docs" / "images" / name).write_text(drawn(), encoding="utf-8")
