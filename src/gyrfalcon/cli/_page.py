"""Parts of a web page that needs nothing but itself: no scripts, no fonts, no links.

Every text that is not written here is escaped by `text`: names of columns and labels come from files of strangers.
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence

from .._utils.words import plural

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")

_STYLE = """
:root { color-scheme: light dark; --ink: #1c2430; --soft: #5b6675; --line: #d9dee6; --paper: #ffffff; --card: #f5f7fa;
  --accent: 34, 102, 170; --second: 200, 90, 30; --warn: #8a5300; --warn-paper: #fff5e3; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6eaf0; --soft: #9aa6b5; --line: #36404d; --paper: #12161c;
  --card: #1b212a; --accent: 110, 175, 240; --second: 240, 150, 90; --warn: #ffcb80; --warn-paper: #33270f; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 16px/1.5 system-ui, "Segoe UI", sans-serif; }
main { max-width: 68rem; margin: 0 auto; padding: 1.25rem 1rem 3rem; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: .25rem 0; overflow-wrap: anywhere; }
h2 { font-size: 1.2rem; margin: 2.25rem 0 .5rem; border-bottom: 1px solid var(--line); padding-bottom: .25rem; }
h3 { font-size: 1rem; margin: 0 0 .4rem; }
p { margin: .35rem 0 .75rem; max-width: 50rem; }
.soft, figcaption { color: var(--soft); font-size: .9rem; overflow-wrap: anywhere; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr)); gap: .75rem; margin: 1rem 0; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: .5rem; padding: .7rem .9rem; }
.card b { display: block; font-size: 1.55rem; line-height: 1.3; font-variant-numeric: tabular-nums; }
.card small { color: var(--soft); display: block; }
.advice { list-style: none; padding: 0; margin: .5rem 0; }
.advice li { background: var(--warn-paper); border-left: 4px solid var(--warn); padding: .5rem .8rem; margin: .5rem 0;
  border-radius: 0 .4rem .4rem 0; overflow-wrap: anywhere; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr)); gap: 1.25rem; }
figure { margin: 0; }
.alone { max-width: 32rem; margin-bottom: 1rem; }
svg { display: block; width: 100%; height: auto; }
svg text { fill: var(--soft); font: 12px system-ui, "Segoe UI", sans-serif; }
.grid { stroke: var(--line); stroke-width: 1; }
.guide { stroke: var(--soft); stroke-width: 1.2; stroke-dasharray: 5 4; fill: none; }
.curve { stroke: rgb(var(--accent)); stroke-width: 2; fill: none; }
.dot { fill: rgb(var(--accent)); fill-opacity: .45; }
.dot.solid { fill-opacity: 1; }
.dot.second { fill: rgb(var(--second)); fill-opacity: .9; }
.band { fill: rgb(var(--accent)); fill-opacity: .12; }
.key { display: inline-block; width: .7em; height: .7em; border-radius: 50%; background: rgb(var(--accent)); }
.key.second { background: rgb(var(--second)); }
.bars { display: grid; grid-template-columns: minmax(5rem, max-content) 1fr max-content; gap: .3rem .7rem;
  align-items: center; }
.bars > span { overflow-wrap: anywhere; max-width: 16rem; unicode-bidi: isolate; }
.bars i { display: block; height: .85rem; min-width: 1px; border-radius: 2px; background: rgb(var(--accent)); }
.bars em { font-style: normal; color: var(--soft); font-variant-numeric: tabular-nums; text-align: right; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .3rem .7rem; border-bottom: 1px solid var(--line); vertical-align: top; }
th { color: var(--soft); font-weight: 600; white-space: nowrap; }
td { unicode-bidi: isolate; }
.number { text-align: right; white-space: nowrap; }
.matrix td, .matrix th { text-align: center; max-width: 9rem; overflow-wrap: break-word; white-space: normal; }
.matrix td { background: rgba(var(--accent), calc(var(--share) * .75)); }
summary { cursor: pointer; color: var(--soft); margin: .5rem 0; }
@media (max-width: 34rem) { .bars > span { max-width: 8rem; } .card b { font-size: 1.3rem; } }
@media print { .advice li, .card { break-inside: avoid; } }
"""


def text(value: object) -> str:
    """Return a value as text that a page shows as it is, whatever characters it has."""
    return html.escape(_CONTROL.sub("�", str(value)), quote=True)


def number(value: float | None, digits: int = 4) -> str:
    """Return a number with a few digits, without an exponent where that can be read."""
    if value is None or value != value:
        return "–"
    if value == 0 or 1e-4 <= abs(value) < 1e7:
        shown = f"{value:,.{digits}g}" if abs(value) < 10**digits else f"{value:,.0f}"
        return shown.replace("-", "−")
    return f"{value:.{max(0, digits - 2)}e}".replace("-", "−")


def page(title: str, parts: Sequence[str]) -> str:
    """Return a whole page with the parts, which are HTML, one after another."""
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{text(title)}</title>
<style>{_STYLE}</style>
</head>
<body>
<main>
{chr(10).join(parts)}
</main>
</body>
</html>
"""


def section(title: str, *parts: str) -> str:
    """Return a section with a heading; nothing if it has no parts."""
    inside = "\n".join(part for part in parts if part)
    return f"<section>\n<h2>{text(title)}</h2>\n{inside}\n</section>" if inside else ""


def paragraph(words: str, soft: bool = False) -> str:
    """Return a paragraph."""
    mark = ' class="soft"' if soft else ""
    return f"<p{mark}>{text(words)}</p>"


def cards(items: Sequence[tuple[str, str, str]]) -> str:
    """Return numbers in boxes: a name, the number, and a remark to each."""
    boxes = [
        f'<div class="card">{text(name)}<b>{text(value)}</b><small>{text(remark)}</small></div>'
        for name, value, remark in items
    ]
    return f'<div class="cards">{"".join(boxes)}</div>'


def advice(items: Sequence[str]) -> str:
    """Return sentences, each in a box."""
    return f'<ul class="advice">{"".join(f"<li>{text(item)}</li>" for item in items)}</ul>'


def bars(items: Sequence[tuple[str, float]], most: int = 20) -> str:
    """Return shares as horizontal bars, the first `most` of them."""
    largest = max((share for _, share in items), default=0.0) or 1.0
    rows = [
        f'<span>{text(name)}</span><i style="width:{100 * share / largest:.1f}%"></i><em>{share:.1%}</em>'
        for name, share in items[:most]
    ]
    rest = items[most:]
    more = paragraph(
        f"{plural(len(rest), 'more column')} with {sum(share for _, share in rest):.1%} together.", soft=True
    )
    return f'<div class="bars">{"".join(rows)}</div>{more if rest else ""}'


def table(names: Sequence[str], rows: Sequence[Sequence[str | float | int | None]]) -> str:
    """Return a table; numbers are at the right."""

    def cell(value: str | float | int | None) -> str:
        if isinstance(value, str):
            return f"<td>{text(value)}</td>"
        shown = f"{value:,}" if isinstance(value, int) else number(value)
        return f'<td class="number">{shown}</td>'

    head = "".join(
        f'<th class="number">{text(name)}</th>'
        if rows and not isinstance(rows[0][i], str)
        else f"<th>{text(name)}</th>"
        for i, name in enumerate(names)
    )
    body = "\n".join(f"<tr>{''.join(cell(value) for value in row)}</tr>" for row in rows)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table></div>'


def matrix(labels: Sequence[str], counts: Sequence[Sequence[int]]) -> str:
    """Return a table of counts whose cells are shaded by their share of the row."""
    head = "".join(f"<th>{text(label)}</th>" for label in labels)
    rows = []
    for label, row in zip(labels, counts, strict=True):
        total = sum(row) or 1
        cells = "".join(f'<td style="--share:{count / total:.3f}">{count:,}</td>' for count in row)
        rows.append(f"<tr><th>{text(label)}</th>{cells}</tr>")
    return (
        '<div class="wide"><table class="matrix"><thead><tr><th>true \\ predicted</th>'
        f"{head}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def folded(summary: str, inside: str) -> str:
    """Return a part that is shown when its summary is clicked on."""
    return f"<details><summary>{text(summary)}</summary>{inside}</details>"


def figure(title: str, chart: str, caption: str, alone: bool = False) -> str:
    """Return a chart with a title and a caption."""
    mark = ' class="alone"' if alone else ""
    return f"<figure{mark}><h3>{text(title)}</h3>{chart}<figcaption>{text(caption)}</figcaption></figure>"


def charts(*figures: str) -> str:
    """Return figures side by side, where there is room."""
    return f'<div class="charts">{"".join(figures)}</div>'
