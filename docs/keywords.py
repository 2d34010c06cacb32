"""The keywords at the top of a page, as entries of the site's index, which its search ranks first.

A page begins with them:

    ---
    myst:
      html_meta:
        keywords: missing values, categories, dates
    ---

Sphinx adds the words to the text that is searched, so that a question with a word that the page does not use finds it.
`_static/search_scorer.js` has the order of the results, and `check_search.py` asks what a newcomer would.
"""

from __future__ import annotations

from docutils import nodes
from sphinx import addnodes
from sphinx.transforms import SphinxTransform


class IndexKeywords(SphinxTransform):
    """Add an entry of the index for each keyword of a page."""

    default_priority = 400

    def apply(self, **kwargs: object) -> None:
        for meta in self.document.findall(nodes.meta):
            if meta.get("name") == "keywords":
                words = [word.strip() for word in meta["content"].split(",")]
                entries = [("single", word, "", "main", None) for word in words]
                self.document.insert(0, addnodes.index(entries=entries))
                return
