"""Changes of variables alpha = B beta that solvers work in: what is learnt from the centers before the first pass.

    Identity          B = I / sqrt(n)                the plain Nyström system
    Whitening         B = D Q T^-1 / sqrt(n)         orthonormal functions: NYTRO, and the direct solve
    Preconditioner    B = D Q T^-1 A^-1 / sqrt(n)    FALKON
    Krill             the same, with A from a sketch of the rows: for any centers

A solver takes any of them in the same place, by the `Coordinates` protocol.
"""

from .coordinates import Coordinates, Halfway, Identity
from .falkon import Preconditioner
from .krill import Krill
from .whitening import Whitening

__all__ = ["Coordinates", "Halfway", "Identity", "Krill", "Preconditioner", "Whitening"]
