"""Tables as people have them: columns of any kind, made into numbers that a kernel understands."""

from .encoder import TableEncoder

__all__ = ["TableEncoder"]
