"""Lists of names, values and numbers in messages, and suggestions for misspelled names."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any


def listed(items: Iterable[Any], most: int | None = 5, *, last: str = "", plain: bool = False) -> str:
    """List names or values for a message: all, or the first `most`.

    `last` is "and" or "or" before the last item instead of a comma; `plain` items are written without quotation marks.

    >>> listed(range(100), most=3)
    '0, 1, 2 and 97 more'
    >>> listed(["a", "b", "c"], last="or", plain=True)
    'a, b or c'
    """
    items = list(items)
    words = [str(item) if plain else shown(item) for item in (items if most is None else items[:most])]
    if len(words) < len(items):
        return f"{', '.join(words)} and {len(items) - len(words)} more"
    if last and len(words) > 1:
        return f"{', '.join(words[:-1])} {last} {words[-1]}"
    return ", ".join(words)


def hint(name: str, known: Iterable[str]) -> str:
    """Return the end of a message, which asks whether a known name was meant; empty if none is similar.

    >>> hint("gausian", ["gaussian", "matern"])
    "; did you mean 'gaussian'?"
    """
    near = similar(name.lower(), known, 1)
    return f"; did you mean {near[0]!r}?" if near else ""


def similar(name: str, known: Iterable[str], most: int = 3) -> list[str]:
    """Return the known names that are spelled similarly, the most similar first.

    >>> similar("colour", ["color", "size"])
    ['color']
    """
    return get_close_matches(name, list(known), most)


def shown(value: Any) -> str:
    """Return the representation of a value; NumPy's numbers and strings, also in lists, are shown as Python's.

    >>> import numpy as np
    >>> shown([np.float64(0.5), np.str_("a")])
    "[0.5, 'a']"
    """
    return repr(_plain(value))


def _plain(value: Any) -> Any:
    import numpy as np  # here, so that the command line starts without it

    if isinstance(value, np.datetime64 | np.timedelta64):
        return str(value)
    if isinstance(value, np.generic):
        return value.item()
    return type(value)(map(_plain, value)) if type(value) in (list, tuple) else value


def a(noun: str) -> str:
    """Return a noun, such as the name of a class, with its indefinite article.

    >>> a("AutoClassifier"), a("FalkonRegressor"), a("uint8")
    ('an AutoClassifier', 'a FalkonRegressor', 'a uint8')
    """
    return f"{'an' if noun[:1].lower() in 'aeio' else 'a'} {noun}"


def plural(number: float, one: str, several: str | None = None) -> str:
    """Return a number with its noun: `one` if the number is 1, else `several`, by default with an added "s".

    >>> plural(1, "row"), plural(1500, "row"), plural(2.5, "pass", "passes")
    ('1 row', '1,500 rows', '2.5 passes')
    """
    whole = int(number) if number == int(number) else number
    return f"{whole:,} {one if number == 1 else several or one + 's'}"
