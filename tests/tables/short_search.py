"""Searches that end after a few candidates, wherever the clock is, so that the same fit gives the same model."""

from __future__ import annotations


class Brief:
    """A callback that ends the search after `most` candidates."""

    def __init__(self, most=2):
        self.most = most

    def on_iteration(self, record):
        return record["iteration"] >= self.most

    def __repr__(self):
        return f"Brief({self.most})"


# Of fits that are to give the same model: on a busy machine the usual budget of a minute may end the search first.
BRIEF = {"callbacks": Brief(2), "time_budget": 100_000}
