"""Text from files that is shown on a terminal."""

from __future__ import annotations

import re
import unicodedata

# Control characters, which a terminal obeys; marks of direction, which reorder what is around them; invisible ones
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})
_PLAIN = re.compile(r"[ -~\xa1-\xac\xae-\u02ff]*")  # has none of them, and is most text


def printable(text: str, keep: str = "") -> str:
    r"""Escape the characters that a terminal obeys instead of showing them, as Python writes them in a string.

    Names of columns and labels come from files: an escape sequence in one could clear the screen or show a different
    text. `keep` are characters that stay, such as "\n" for text of several lines.
    """
    if _PLAIN.fullmatch(text):
        return text
    return "".join(
        ascii(mark)[1:-1] if unicodedata.category(mark) in _HIDDEN and mark not in keep else mark for mark in text
    )
