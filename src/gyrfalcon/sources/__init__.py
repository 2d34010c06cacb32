"""Rows that come from somewhere."""

from .base import Rows
from .memory import ArrayRows, as_rows

__all__ = ["ArrayRows", "Rows", "as_rows"]
