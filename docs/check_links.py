"""Check the links inside the built site: every page, file and anchor that a page points to must be there.

    python docs/check_links.py docs/_build/html

What is on other hosts is left alone, so no network is needed. The exit code is 1 if a link leads nowhere.
"""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlsplit


class Page(HTMLParser):
    """What a page points to, and the anchors that it has."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.targets: set[str] = set()
        self.anchors: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("id", "name") and value:
                self.anchors.add(value)
            elif name in ("href", "src") and value:
                self.targets.add(value)


def broken_links(site: Path) -> list[str]:
    """Return "page: target" for every link inside the site that leads nowhere."""
    pages = {path.resolve(): Page(path) for path in sorted(site.rglob("*.html")) if "_static" not in path.parts}
    if not pages:
        raise FileNotFoundError(f"{site} has no pages: build the site first")
    broken = []
    for path, page in pages.items():
        for target in sorted(page.targets):
            address, anchor = urldefrag(target)
            if urlsplit(address).scheme or address.startswith("//"):
                continue
            file = (path.parent / unquote(urlsplit(address).path)).resolve() if address else path
            there = pages[file].anchors if file in pages else None
            if not file.is_file() or (anchor and there is not None and unquote(anchor) not in there):
                broken.append(f"{path.relative_to(site.resolve())}: {target}")
    return broken


if __name__ == "__main__":
    found = broken_links(Path(sys.argv[1]))
    print("\n".join(found) or "every link inside the site leads somewhere")
    sys.exit(bool(found))
