"""Small charts in SVG, for a page: points, curves and guides over axes."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._page import number, text

Array = NDArray[Any]

_WIDTH, _HEIGHT = 460, 330
_LEFT, _RIGHT, _TOP, _BOTTOM = 66, 12, 10, 46


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Return about `count` round numbers between two."""
    step = 10 ** math.floor(math.log10((high - low) / count))
    step *= next(factor for factor in (1, 2, 5, 10) if (high - low) / (factor * step) <= count + 0.5)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [step * i for i in range(first, last + 1)]


def span(*values: Array, share: float = 0.04) -> tuple[float, float]:
    """Return the range of finite values with a margin; a range around the value if there is one only."""
    together = np.concatenate([np.asarray(one, dtype=np.float64).ravel() for one in values])
    together = together[np.isfinite(together)]
    low, high = (float(together.min()), float(together.max())) if len(together) else (0.0, 1.0)
    margin = share * (high - low) or max(abs(low), 1.0) * 0.1
    return low - margin, high + margin


@dataclass
class Chart:
    """Marks over two axes, given by their ranges and titles.

    With `log`, y is given as logarithms to the base 10, and the axis shows the numbers; with `whole`, x is a count.
    """

    x: tuple[float, float]
    y: tuple[float, float]
    x_name: str
    y_name: str
    log: bool = False
    whole: bool = False
    marks: list[str] = field(default_factory=list)

    def _at(self, x: Any, y: Any) -> tuple[Any, Any]:
        across = (np.asarray(x, dtype=np.float64) - self.x[0]) / (self.x[1] - self.x[0])
        up = (np.asarray(y, dtype=np.float64) - self.y[0]) / (self.y[1] - self.y[0])
        return _LEFT + across * (_WIDTH - _LEFT - _RIGHT), _HEIGHT - _BOTTOM - up * (_HEIGHT - _TOP - _BOTTOM)

    def points(self, x: Array, y: Array, kind: str = "", radius: float = 2.5) -> None:
        """Add points."""
        across, down = self._at(x, y)
        shown = np.isfinite(across) & np.isfinite(down)
        self.marks += [
            f'<circle class="dot {kind}" cx="{a:.1f}" cy="{b:.1f}" r="{radius:g}"/>'
            for a, b in zip(across[shown], down[shown], strict=True)
        ]

    def curve(self, x: Array, y: Array, kind: str = "curve") -> None:
        """Add a line through points."""
        across, down = self._at(x, y)
        shown = np.isfinite(across) & np.isfinite(down)
        places = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(across[shown], down[shown], strict=True))
        if places:
            self.marks.append(f'<polyline class="{kind}" points="{places}"/>')

    def band(self, low: float, high: float) -> None:
        """Add a horizontal band."""
        (left, right), (upper, lower) = self._at(self.x, np.clip([high, low], *self.y))
        self.marks.append(
            f'<rect class="band" x="{left:.1f}" y="{upper:.1f}" width="{right - left:.1f}" '
            f'height="{lower - upper:.1f}"/>'
        )

    def svg(self, description: str) -> str:
        """Return the chart."""
        parts = [f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{text(description)}">']
        bottom = _HEIGHT - _BOTTOM
        for value in [value for value in ticks(*self.x) if not self.whole or value == round(value)]:
            across = float(self._at(value, self.y[0])[0])
            parts.append(f'<line class="grid" x1="{across:.1f}" y1="{_TOP}" x2="{across:.1f}" y2="{bottom}"/>')
            parts.append(f'<text x="{across:.1f}" y="{bottom + 17}" text-anchor="middle">{_label(value)}</text>')
        for value in ticks(*self.y):
            down = float(self._at(self.x[0], value)[1])
            shown = _label(10**value) if self.log else _label(value)
            parts.append(f'<line class="grid" x1="{_LEFT}" y1="{down:.1f}" x2="{_WIDTH - _RIGHT}" y2="{down:.1f}"/>')
            parts.append(f'<text x="{_LEFT - 6}" y="{down + 4:.1f}" text-anchor="end">{shown}</text>')
        parts += self.marks
        middle = (_LEFT + _WIDTH - _RIGHT) / 2
        parts.append(
            f'<text x="{middle:.0f}" y="{_HEIGHT - 8}" text-anchor="middle">{text(_short(self.x_name))}</text>'
        )
        height = (_TOP + bottom) / 2
        parts.append(
            f'<text transform="translate(13 {height:.0f}) rotate(-90)" text-anchor="middle">'
            f"{text(_short(self.y_name))}</text></svg>"
        )
        return "\n".join(parts)


def _label(value: float) -> str:
    for factor, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= 10 * factor and abs(value) < 1e4 * factor:
            return number(value / factor, 4) + unit
    return number(round(value, 12), 3)


def _short(name: str, most: int = 48) -> str:
    return name if len(name) <= most else name[: most - 1] + "…"


def thinned(*values: Array, most: int = 1500) -> list[Array]:
    """Return the same random rows of several arrays, if they have many."""
    n = len(values[0])
    if n <= most:
        return list(values)
    some = np.sort(np.random.RandomState(0).permutation(n)[:most])
    return [one[some] for one in values]
