"""Changes of variables alpha = B beta that solvers work in: what is learnt from the centers before the first pass.

    Identity              B = I / sqrt(n)                the plain Nyström system
    FeatureCoordinates    B = I / sqrt(n)                random features, whose Gram matrix is the identity
    Whitening             B = D Q T^-1 / sqrt(n)         orthonormal functions: NYTRO, and the direct solve
    Preconditioner        B = D Q T^-1 A^-1 / sqrt(n)    FALKON; A from the centers
    Krill                 B = D Q T^-1 A^-1 / sqrt(n)    KRILL; A from a sketch of the rows, for any centers
    Sampled               B = D Q T^-1 A^-1 / sqrt(n)    A from a sample of the rows

A solver takes any of them in the same place, by the contract `Coordinates`. T is made by `Whitening`; the last three
have one, as ``whitening``, and beside it their `A`.

`NystromPreconditioner` is no change of variables: it approximates the inverse of K_nn + mu I, where every row is a
center.
"""

from .coordinates import Coordinates, FeatureCoordinates, Halfway, Identity
from .falkon import Preconditioner
from .krill import Krill
from .nystrom import NystromPreconditioner
from .sampled import Sampled
from .whitening import Whitening

__all__ = [
    "Coordinates",
    "FeatureCoordinates",
    "Halfway",
    "Identity",
    "Krill",
    "NystromPreconditioner",
    "Preconditioner",
    "Sampled",
    "Whitening",
]
