"""Losses of predictions f for targets y: a value, two derivatives and an inverse link.

`value`, `gradient` and `hessian` are functions of y and f, arrays of shape (n, k), entry by entry. Newton's method
(`gyrfalcon.solvers.newton`) needs nothing else, so a subclass of `Loss` with these three methods works in
`FalkonRegressor` (numbers) and in `FalkonClassifier` (y of +1 and -1; with more than two classes, one column for each).
All losses here are convex, not negative, and they and their derivatives overflow only where the exact result does.

=========================== =========================== ============================= ==============
loss                        y                           value                         prediction
=========================== =========================== ============================= ==============
`Squared`                   numbers                     (f - y)^2 / 2                 f
`Huber`                     numbers                     same, linear beyond delta     f
`SquaredEpsilonInsensitive` numbers                     max(0, |f - y| - epsilon)^2   f
`Quantile`                  numbers                     pinball, smoothed             f, sorted
`Poisson`                   counts, not negative        half the deviance             exp(f)
`Logistic`                  -1 or +1                    log(1 + exp(-y f))            P(y = +1)
`Softmax`                   probabilities of k classes  -sum_c y_c log p_c            p = softmax(f)
`SquaredHinge`              -1 or +1                    max(0, 1 - y f)^2             f
`Hinge`                     -1 or +1                    max(0, 1 - y f), smoothed     f
=========================== =========================== ============================= ==============
"""

from .base import Loss
from .margins import Hinge, SquaredHinge
from .named import Huber, Logistic, Poisson, Quantile, Softmax, Squared, SquaredEpsilonInsensitive, as_loss

__all__ = [
    "Hinge",
    "Huber",
    "Logistic",
    "Loss",
    "Poisson",
    "Quantile",
    "Softmax",
    "Squared",
    "SquaredEpsilonInsensitive",
    "SquaredHinge",
    "as_loss",
]
