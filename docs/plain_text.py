"""Let docstrings be plain text: what reStructuredText would take for markup is escaped on the way into a page.

Docstrings are read in editors and terminals far more often than on the site. So they say |f|^2 and `centers_` where
reStructuredText sees a substitution and a link, and no one who writes them has to think of that.
"""

from __future__ import annotations

import re

# Backticks are names, and left alone; `::` begins a block that is left alone, and so does >>>
_QUOTED = re.compile(r"(``.+?``|(?::[\w:]+:)?`[^`]+`_?|<[^<>\s]+>`?_?|\*\*\w[^*]*\*\*)", re.DOTALL)
_NAME_AND_TYPE = re.compile(r"^(\s*\*{0,2}[A-Za-z_][\w.]*(?:, \*{0,2}[A-Za-z_][\w.]*)* : )(.*)$")
_TRAILING_UNDERSCORE = re.compile(r"(?<![\w`\\.])([A-Za-z]\w*_)(?![\w`])")


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _escaped(text: str) -> str:
    parts = _QUOTED.split(text)
    for at in range(0, len(parts), 2):
        plain = re.sub(r"([*|])", r"\\\1", parts[at])
        parts[at] = _TRAILING_UNDERSCORE.sub(r"``\1``", plain)
    return "".join(parts)


def _literal_lines(lines: list[str]) -> list[bool]:
    """Say which lines belong to an example or to a block after ``::``, or are directives and underlines."""
    literal, block, example = [], None, False
    for line in lines:
        bare = line.strip()
        if block is not None and bare and _indent(line) <= block:
            block = None
        example = bare.startswith(">>>") or (example and bool(bare))
        underline = bool(bare) and not bare.strip("-=~")
        literal.append(example or block is not None or underline or bare.startswith(".. "))
        if bare.endswith("::"):
            block = _indent(line)
    return literal


def escape(lines: list[str]) -> list[str]:
    """Escape the lines of a docstring.

    >>> escape(["Minimise |f|^2 with `|f|` of `coef_` or coef_.", "", ">>> model.coef_ | 1"])
    ['Minimise \\\\|f\\\\|^2 with `|f|` of `coef_` or ``coef_``.', '', '>>> model.coef_ | 1']
    """
    found: list[str] = []
    plain: list[str] = []

    def flush() -> None:
        if plain:
            found.extend(_escaped("\n".join(plain)).split("\n"))
            plain.clear()

    for line, literal in zip(lines, _literal_lines(lines), strict=True):
        typed = _NAME_AND_TYPE.match(line)
        if literal or typed or not line.strip():
            flush()
            found.append(typed.group(1) + _escaped(typed.group(2)) if typed and not literal else line)
        else:
            plain.append(line)
    flush()
    return found


def on_docstring(app: object, what: str, name: str, thing: object, options: object, lines: list[str]) -> None:
    """Escape a docstring before numpydoc reads it."""
    lines[:] = escape(lines)
