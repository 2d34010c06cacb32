"""Pictures of fits and of fitted models, in the manner of scikit-learn's displays; see docs/plots.md.

matplotlib, which ``pip install matplotlib`` installs, is imported when something is drawn.
"""

from .centers import CentersDisplay
from .convergence import ConvergenceDisplay
from .importances import ImportanceDisplay
from .intervals import IntervalDisplay
from .kernel_pca import KernelPCADisplay
from .penalty_path import PenaltyPathDisplay
from .search_surface import SearchSurfaceDisplay
from .shapley import ShapleyDisplay
from .spectrum import SpectrumDisplay

__all__ = [
    "CentersDisplay",
    "ConvergenceDisplay",
    "ImportanceDisplay",
    "IntervalDisplay",
    "KernelPCADisplay",
    "PenaltyPathDisplay",
    "SearchSurfaceDisplay",
    "ShapleyDisplay",
    "SpectrumDisplay",
]
