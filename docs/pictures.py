"""Pictures that are drawn with twice the pixels of their size on a page, so that they are sharp on every screen."""

from __future__ import annotations

from pathlib import Path

from docutils import nodes
from PIL import Image
from sphinx.transforms import SphinxTransform

SHARP = 220  # dots per inch of `save` in make_figures.py; 110 are shown


class SharpPictures(SphinxTransform):
    """Show pictures of 220 dots per inch at half the size that their pixels would have."""

    default_priority = 400

    def apply(self, **kwargs: object) -> None:
        for image in self.document.findall(nodes.image):
            path = Path(self.env.srcdir) / image["uri"]
            if path.suffix == ".png" and path.exists() and "width" not in image:
                with Image.open(path) as picture:
                    if round(picture.info.get("dpi", (0, 0))[0]) == SHARP:
                        image["width"] = f"{picture.width // 2}px"
