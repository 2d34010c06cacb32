"""Docstrings with entries that several classes share, each of which is written once.

A line such as ``{n_jobs, verbose}`` in the docstring of a class, or of a method, stands for the entries of these names
in a table of the package. They are filled in when a class is imported; wheels are built with files where they are
filled in already (`cmake/fill_docstrings.py`), for editors that read files. This module imports nothing outside of the
standard library, because it is used while a wheel is built.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from inspect import signature
from textwrap import wrap
from typing import Any, NamedTuple, TypeVar

Class = TypeVar("Class", bound=type)

_KEY = r"[A-Za-z]\w*(?:\.\w+)?(?: \w+)*"
_LINES = re.compile(rf"\n([ ]*)\{{({_KEY}(?:,\s+{_KEY})*)\}}(?=\n)")
_INLINE = re.compile(rf"\{{({_KEY})\}}")
_WIDTH = 108  # characters of a line of words, so that the longest lines of a method have 120


class Entry(NamedTuple):
    """An entry of a section of a docstring, and the values it allows.

    kind : the type, shown after the name; the default of a constructor's parameter is added to it
    words : the description; a name in braces stands for the words of that entry
    rule : function of a name and a value that raises ValueError for values that are not allowed
    """

    kind: str
    words: str = ""
    rule: Callable[[str, Any], None] | None = None


def filled(text: str, entries: Mapping[str, Entry], defaults: Mapping[str, str]) -> str:
    """Return a docstring with its entries filled in.

    text : the docstring, with names between braces on lines of their own; indented lines below continue the last entry
    entries : entries by name, or by several names with spaces between them, after a prefix and a full stop if the entry
        is only for a few classes
    defaults : defaults of a constructor's parameters, as they are shown
    """

    def words(key: str) -> str:
        return _INLINE.sub(lambda found: words(found[1]), entries[key].words)

    def shown(found: re.Match[str]) -> str:
        lines = []
        for key in re.split(r",\s+", found[2]):
            names = key.rpartition(".")[2].split()
            default = f", default={defaults[names[0]]}" if names[0] in defaults else ""
            lines.append(f"{', '.join(names)} : {entries[key].kind}{default}")
            lines += [f"    {line}" for line in _wrapped(words(key))]
        return "".join(f"\n{found[1]}{line}" for line in lines)

    return _LINES.sub(shown, text) if "{" in text else text


@cache
def _wrapped(words: str) -> list[str]:
    return wrap(" ".join(words.split()), _WIDTH, break_long_words=False, break_on_hyphens=False)


def as_shown(default: Any) -> str:
    """Return a default as docstrings show it."""
    return repr(default).replace("'", '"')


def describing(*tables: Mapping[str, Entry]) -> Callable[[Class], Class]:
    """Return a class decorator that fills entries of these tables into the docstrings of a class and of its methods."""
    entries = {key: entry for table in tables for key, entry in table.items()}

    def described(cls: Class) -> Class:
        if cls.__doc__:  # there is none with python -OO
            constructor = vars(cls).get("__init__")
            parameters = signature(constructor).parameters.values() if constructor else ()
            defaults = {one.name: as_shown(one.default) for one in parameters if one.default is not one.empty}
            cls.__doc__ = filled(cls.__doc__, entries, defaults)
        for member in vars(cls).values():
            while member is not None:  # a decorated method, and the functions that it wraps
                if member.__doc__ and (text := filled(member.__doc__, entries, {})) != member.__doc__:
                    member.__doc__ = text
                member = getattr(member, "__wrapped__", None)
        return cls

    return described
