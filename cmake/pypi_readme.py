"""The README as PyPI shows it: links to files of the repository become whole addresses.

scikit-build-core calls `dynamic_metadata` when it writes the metadata of a wheel or a source archive.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

SOURCE = "https://github.com/gyrfalcon-ml/gyrfalcon"
SITE = "https://gyrfalcon.readthedocs.io/en/latest"


def absolute(text: str) -> str:
    """Return a README in which no link is relative: pages lead to the site, other files to the repository."""

    def whole(match: re.Match[str]) -> str:
        path, anchor = match["path"], match["anchor"] or ""
        if match["image"]:
            return f"{match['words']}({SOURCE}/raw/main/{path})"
        page = re.fullmatch(r"docs/(\w+)\.md", path)
        return f"{match['words']}({f'{SITE}/{page[1]}.html' if page else f'{SOURCE}/blob/main/{path}'}{anchor})"

    words = r"(?P<words>(?P<image>!?)\[(?:[^\[\]]|\[[^\[\]]*\]\([^()]*\))*\])"
    return re.sub(words + r"\((?!\w+:|#)(?P<path>[^()#\s]+)(?P<anchor>#[^()\s]*)?\)", whole, text)


def dynamic_metadata(field: str, *_: Any) -> dict[str, str]:
    """Return the README for the metadata; scikit-build-core runs in the folder of pyproject.toml."""
    if field != "readme":
        raise ValueError(f"{field!r} is not written here, only the readme")
    return {"content-type": "text/markdown", "text": absolute(Path("README.md").read_text(encoding="utf-8"))}
