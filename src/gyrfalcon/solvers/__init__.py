"""Solvers: plain functions of an operator, targets and a few numbers. Iterative ones yield a record for each iteration.

cg            conjugate gradient: FALKON, and Nyström with any coordinates
two_level     conjugate gradient preconditioned by a sample of the rows
kernel_cg     conjugate gradient with every row as a center, for many systems at once
newton        Newton's method for other losses than the squared one
gradient      gradient descent and mini-batches: NYTRO and its comparisons
block_descent      blocks of coefficients solved in turn
askotch       the same with every row as a center, accelerated
eigenpro      preconditioned mini-batches for exact interpolation
svrg          variance-reduced mini-batches on features, with a sketched preconditioner
admm          blocks of rows and features that agree on their average
pegasos            stochastic subgradients of support vector machines
doubly_stochastic  mini-batches of rows and of features
sketched      kernel ridge regression with random combinations of the rows
ridge_path    direct solves for a whole list of penalties: Nyström and exact
center_path   direct solves for a whole list of numbers of centers
running_sums  sums to which rows are added, for models that learn on
objectives    evidence and other objectives, with derivatives by the kernel's parameters
posterior     the covariance of f, and leave-one-out errors in units of it
nystrom_features  the features F = K R and their sums, for direct methods on centers
principal     principal components of these features
lloyd         k-means of these features
exact         one exact solve
features      normal equations of random features
arms          means and variances of a bandit's arms
lanczos       extreme eigenvalues, for the condition number and the longest step
"""

from .askotch import askotch
from .base import Iterate, StateError
from .block_descent import block_descent
from .center_path import CenterPath
from .cg import conjugate_gradient
from .exact import exact_ridge
from .features import normal_equations, solve_ridge
from .gradient import gradient_descent, kernel_descent, largest_eigenvalue, stochastic_gradient
from .kernel_cg import KernelIterate, KernelSystems, kernel_cg
from .lloyd import Clustering, Lloyd, approach, approach_bytes
from .nystrom_features import feature_sums, features_of, nystrom_features, row_squares
from .posterior import Posterior, leave_one_out_scores, missed_by, posterior_of
from .principal import Components, components_of_centers, largest_components, principal_components
from .ridge_path import RidgePath, exact_path, nystrom_path
from .two_level import RowSample, two_level_cg

__all__ = [
    "CenterPath",
    "Clustering",
    "Components",
    "Iterate",
    "KernelIterate",
    "KernelSystems",
    "Lloyd",
    "Posterior",
    "RidgePath",
    "RowSample",
    "StateError",
    "approach",
    "approach_bytes",
    "askotch",
    "block_descent",
    "components_of_centers",
    "conjugate_gradient",
    "exact_path",
    "exact_ridge",
    "feature_sums",
    "features_of",
    "gradient_descent",
    "kernel_cg",
    "kernel_descent",
    "largest_components",
    "largest_eigenvalue",
    "leave_one_out_scores",
    "missed_by",
    "normal_equations",
    "nystrom_features",
    "nystrom_path",
    "posterior_of",
    "principal_components",
    "row_squares",
    "solve_ridge",
    "stochastic_gradient",
    "two_level_cg",
]
