"""Names and values in messages: as Python's own, whatever array they come from, and not too many."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np


def listed(items: Iterable[Any], most: int = 5) -> str:
    """List names or values for a message, at most `most` of them.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon._utils.words import listed
    >>> listed(np.array(["age", "city"]))
    "'age', 'city'"
    >>> listed(range(100), most=3)
    '0, 1, 2 and 97 more'
    """
    items = list(items)
    text = ", ".join(map(shown, items[:most]))
    return text if len(items) <= most else f"{text} and {len(items) - most} more"


def shown(value: Any) -> str:
    """Return the representation of a value; NumPy's numbers and strings, also in lists, are shown as Python's.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon._utils.words import shown
    >>> shown([np.float64(0.5), np.str_("a")])
    "[0.5, 'a']"
    """
    return repr(_plain(value))


def _plain(value: Any) -> Any:
    if isinstance(value, np.datetime64 | np.timedelta64):
        return str(value)
    if isinstance(value, np.generic):
        return value.item()
    return type(value)(map(_plain, value)) if type(value) in (list, tuple) else value


def a(noun: str) -> str:
    """Return a noun, such as the name of a class, behind its indefinite article.

    Examples
    --------
    >>> from gyrfalcon._utils.words import a
    >>> a("AutoClassifier"), a("FalkonRegressor"), a("uint8")
    ('an AutoClassifier', 'a FalkonRegressor', 'a uint8')
    """
    return f"{'an' if noun[:1].lower() in 'aeio' else 'a'} {noun}"


def plural(number: float, one: str, several: str | None = None) -> str:
    """Return a number with its noun, in the plural unless the number is 1.

    Parameters
    ----------
    number : int or float
        Written with separators of thousands, and without a fraction of 0.
    one : str
        The noun in the singular.
    several : str, optional
        The plural, if it is not the singular with an "s".

    Examples
    --------
    >>> from gyrfalcon._utils.words import plural
    >>> plural(1, "row"), plural(1500, "row"), plural(2.5, "pass", "passes")
    ('1 row', '1,500 rows', '2.5 passes')
    """
    whole = int(number) if number == int(number) else number
    return f"{whole:,} {one if number == 1 else several or one + 's'}"
