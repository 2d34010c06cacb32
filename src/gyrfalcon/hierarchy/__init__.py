"""Hierarchically compositional kernels: every row a center, solved directly in time proportional to the rows.

tree       who is in which leaf
blocks     the kernel matrices of leaves and inner nodes
factors    (K_hc + noise) a = Y, up and down the tree
expansion  predictions and deviations: a product for each leaf
neighborhoods  predictions by the rows nearest to a new one
spread     trees over rows in a file
workers    the solve on a Dask cluster
preconditioner  one inner node above all leaves, for conjugate gradient on the exact kernel
"""

from .blocks import Hierarchy, make_hierarchy
from .expansion import LocalExpansion, LocalPosterior
from .factors import Factors, factorise
from .neighborhoods import Neighborhoods
from .preconditioner import HierarchicalPreconditioner, shared_shifts
from .spread import make_stored_hierarchy
from .tree import SPLITS, Tree, grow_tree, pieces
from .workers import factorise_on_workers

__all__ = [
    "SPLITS",
    "Factors",
    "HierarchicalPreconditioner",
    "Hierarchy",
    "LocalExpansion",
    "LocalPosterior",
    "Neighborhoods",
    "Tree",
    "factorise",
    "factorise_on_workers",
    "grow_tree",
    "make_hierarchy",
    "make_stored_hierarchy",
    "pieces",
    "shared_shifts",
]
