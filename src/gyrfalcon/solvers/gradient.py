"""Gradient descent with a fixed step, on all rows or on mini-batches: the methods FALKON is compared with.

The path over iterations is itself a regularisation path, so these are the textbook recursions, and the caller stops
where validation says:

    gradient_descent      beta <- beta + step B'(K'W (y - K B beta) - lambda n K_MM B beta)
                          with `Whitening` and lambda = 0 NYTRO, with `Identity` plain Nyström gradient descent
    stochastic_gradient   the same with the rows of a mini-batch, weighted up to all n
    kernel_descent        alpha <- alpha + (step/n) (W (y - K_nn alpha) - lambda n alpha): exact kernel least squares,
                          with a penalty, or with early stopping; accelerated by the nu-method if asked for

The norm of the residual never grows while the step is below 2 over the largest eigenvalue. If it does, an error names
the longest stable step. The nu-method is stable up to 1 over the largest eigenvalue.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from .._utils.checks import integer, optional, positive
from ..operators import Operator
from ..preconditioners import Coordinates
from .base import Iterate, SquareOperator, System, Vectors, coefficients, make_system, sizes
from .lanczos import lanczos

Step = float | Literal["auto"]
check_step = optional(positive('"auto" or a finite number greater than 0'), "auto")

_BELOW = 0.95  # share of the largest eigenvalue that ten passes find at least, for the nu-method
_GROWTH = 10.0  # factor of growth of the residual that rounding and the noise of mini-batches do not explain


def gradient_descent(
    operator: Operator,
    y: NDArray[Any],
    coordinates: Coordinates,
    penalty: float,
    *,
    step: Step,
    max_iter: int,
    tol: float = 0.0,
    weight: NDArray[Any] | None = None,
    start: NDArray[Any] | None = None,
) -> Iterator[Iterate]:
    """Run gradient descent on ``B'(K'WK + penalty n K_MM)B beta = B'K'W y``, with one pass for each iteration.

    Parameters
    ----------
    operator, y, coordinates, weight, start
        As for `conjugate_gradient`.
    penalty : float
        lambda, used without a lower bound; 0 is NYTRO.
    step : float or "auto"
        Length of the steps; stable below 2 / `largest_eigenvalue`. NYTRO's is 1 / max k(x, x). "auto" is
        1 / `largest_eigenvalue`, for ten more passes.
    max_iter : int
        Largest number of iterations.
    tol : float
        Stop when each column's residual is at most ``tol`` times the norm of its right-hand side.

    Yields
    ------
    Iterate
        One for each iteration. Its residual is that of the iterate before: its own would take another pass.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon import KernelOperator, preconditioners, solvers
    >>> X = np.random.default_rng(0).standard_normal((500, 2))
    >>> K, y = KernelOperator("gaussian", X, X[:20]), np.sin(X[:, 0])
    >>> B = preconditioners.Whitening(K.centers_gram(), 500)
    >>> first, *_, last = solvers.gradient_descent(K, y, B, 1e-3, step="auto", max_iter=20)
    >>> bool(last.residual < 0.1 * first.residual)
    True
    """
    began, passes = time.perf_counter(), operator.passes
    B = coordinates
    system = make_system(operator, y, B, penalty, weight)
    k = system.Y.shape[1]
    largest = partial(largest_eigenvalue, operator, B, penalty, weight)
    length = _length(step, largest)
    if start is None:
        beta = np.zeros((B.rank, k))
        b = r = system.rhs()
    else:
        beta = B.invert(start.reshape(B.M, k))
        b, r = system.rhs_and_residual(beta)
    size = sizes(b)
    watch = _Watch(length, operator.dtype, largest)

    def record(iteration: int) -> Iterate:
        return Iterate.measured(
            iteration,
            residuals,
            tol,
            seconds=time.perf_counter() - began,
            passes=operator.passes - passes,
            step=np.full(k, length if iteration else 0.0),
            ratio=np.zeros(k),
            _coef=partial(coefficients, B, beta, (B.M, *y.shape[1:])),
        )

    residuals = np.linalg.norm(r, axis=0) / size
    if max_iter == 0 or (residuals <= tol).all():
        yield record(0)
        return
    for iteration in range(1, max_iter + 1):
        if iteration > 1:
            watch.coefficients(beta)
            r = system.residual(beta)
            residuals = np.linalg.norm(r, axis=0) / size
        watch.residuals(residuals)
        beta = beta + length * r
        yield record(iteration)
        if (residuals <= tol).all():
            return


def stochastic_gradient(
    operator: Operator,
    y: NDArray[Any],
    coordinates: Coordinates,
    penalty: float,
    *,
    step: Step,
    batch_size: int,
    max_iter: int,
    power: float = 0.0,
    average: bool = False,
    random_state: Any = None,
    weight: NDArray[Any] | None = None,
    start: NDArray[Any] | None = None,
) -> Iterator[Iterate]:
    """Run mini-batch gradient descent: each epoch visits all rows once, in a new order.

    A batch I of b rows stands for all n: ``beta <- beta + step B'((n/b) K_I'W_I (y_I - K_I B beta) - penalty n K_MM B
    beta)``.

    Parameters
    ----------
    operator : Operator
        K, of shape (n, M); K is not kept, since a batch is made of other rows each time.
    y, coordinates, penalty, weight, start
        As for `gradient_descent`.
    step : float or "auto"
        "auto" is 1 over the largest eigenvalue that a few batches have. Small batches need shorter steps.
    batch_size : int
        Rows of a batch; the last of an epoch may be smaller.
    max_iter : int
        Number of epochs.
    power : float
        The t-th step, counted over all epochs, has the length ``step * t ** -power``.
    average : bool
        Whether coefficients are the mean over all steps so far (Polyak and Ruppert) instead of the last ones.
    random_state : int, RandomState, Generator or None
        Seed of the orders.

    Yields
    ------
    Iterate
        One at the end of each epoch. Its residual is that of the epoch's mean gradient; ``passes`` counts epochs.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon import KernelOperator, preconditioners, solvers
    >>> X = np.random.default_rng(0).standard_normal((500, 2))
    >>> K, y = KernelOperator("gaussian", X, X[:20]), np.sin(X[:, 0])
    >>> B, settings = preconditioners.Whitening(K.centers_gram(), 500), {"step": "auto", "batch_size": 50}
    >>> *_, last = solvers.stochastic_gradient(K, y, B, 1e-4, max_iter=20, random_state=0, **settings)
    >>> bool(np.mean((K.matmat(last.coef()) - y) ** 2) < 0.1 * np.mean(y**2))
    True
    """
    began, B = time.perf_counter(), coordinates
    whole = make_system(operator, y, B, penalty, weight)
    Y, (n, k) = whole.Y, whole.Y.shape
    integer(1)("batch_size", batch_size)
    is_generator = isinstance(random_state, np.random.RandomState | np.random.Generator)
    rng = random_state if is_generator else np.random.RandomState(random_state)
    beta = np.zeros((B.rank, k)) if start is None else B.invert(start.reshape(B.M, k))
    mean, steps, per_epoch = beta, 0, -(-n // batch_size)
    largest = partial(_largest_of_batches, whole, operator, batch_size)
    length = _length(step, largest)
    watch = _Watch(length, operator.dtype, largest)
    size, rhs = np.ones(k), np.zeros((B.M, k))

    def record(iteration: int) -> Iterate:
        return Iterate(
            iteration=iteration,
            residual=float(residuals.max(initial=0.0)),
            residuals=residuals,
            seconds=time.perf_counter() - began,
            passes=iteration,
            converged=False,
            step=np.full(k, length if iteration else 0.0),
            ratio=np.zeros(k),
            _coef=partial(coefficients, B, mean, (B.M, *y.shape[1:])),
        )

    residuals = np.ones(k)
    if max_iter == 0:
        yield record(0)
        return
    for epoch in range(1, max_iter + 1):
        order, before = rng.permutation(n), beta
        for i in range(0, n, batch_size):
            rows = np.sort(order[i : i + batch_size])
            alpha, halfway = B.forward(beta)
            watch.coefficients(alpha)
            # In the first epoch K_I'W_I y_I comes along, as further columns: residuals are relative to it.
            V = np.hstack([alpha, np.zeros_like(alpha)]) if epoch == 1 else alpha
            of_rows = partial(_residual_beside_y, Y[rows], None if weight is None else weight[rows])
            s = operator.on(operator.rows.take(rows)).sandwich(V, of_rows)
            steps += 1
            decayed = length * float(steps) ** -power
            beta = beta + decayed * B.backward(s[:, :k] * (n / len(rows)), halfway, -penalty)
            mean = mean + (beta - mean) / steps if average else beta
            if epoch == 1:
                rhs += s[:, k:]
        if epoch == 1:
            size = sizes(B.apply_transpose(rhs))
        way = length * float((np.arange(steps - per_epoch + 1, steps + 1, dtype=np.float64) ** -power).sum())
        residuals = np.linalg.norm(beta - before, axis=0) / (way * size)
        watch.residuals(residuals, noisy=True)
        yield record(epoch)


def kernel_descent(
    operator: SquareOperator,
    y: NDArray[Any],
    penalty: float = 0.0,
    *,
    step: Step,
    max_iter: int,
    tol: float = 0.0,
    weight: NDArray[Any] | None = None,
    start: NDArray[Any] | None = None,
    nu: float | None = None,
) -> Iterator[Iterate]:
    """Run gradient descent for exact kernel least squares, equation (6) of the FALKON paper.

    ``alpha <- alpha + (step/n) (W (y - K_nn alpha) - penalty n alpha)``; with `nu`, the nu-method, which needs about
    the square root of as many iterations: its step is longer, and each iteration also repeats a part of the one before.

    Parameters
    ----------
    operator : Operator
        K_nn, of shape (n, n): the centers are the rows, in their order.
    y, weight
        As for `conjugate_gradient`.
    penalty : float
        lambda, used without a lower bound; 0 for early stopping.
    step : float or "auto"
        Stable below 2 (the nu-method: 1) over the largest eigenvalue of W^(1/2) K_nn W^(1/2) / n + penalty I. "auto" is
        1 over it, by ten passes (the nu-method: 0.95, since these find it from below).
    max_iter : int
        Largest number of iterations; t of them cost t - 1 passes from 0 and t from a start.
    tol : float
        Stop when each column's residual is at most ``tol`` times the norm of its targets.
    start : ndarray of shape (n,) or (n, k), optional
        Coefficients to start from.
    nu : float, optional
        Parameter of the nu-method, positive (Bauer, Pereverzev, Rosasco 2007); 1 is usual. Its residuals are those of
        Jacobi polynomials, and it can exploit a smoothness of the function up to the order nu.

    Yields
    ------
    Iterate
        One for each iteration. Its residual is that of the iterate before, |W^(1/2) (y - K_nn alpha - penalty n W^-1
        alpha)|.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon import KernelOperator, solvers
    >>> X = np.random.default_rng(0).standard_normal((100, 2))
    >>> K, y = KernelOperator("gaussian", X, X), np.sin(X[:, 0])
    >>> first, *_, last = solvers.kernel_descent(K, y, step="auto", max_iter=20, nu=1.0)
    >>> bool(last.residual < 0.1 * first.residual)
    True
    """
    began, passes = time.perf_counter(), operator.passes
    n, columns = operator.shape
    if n != columns:
        raise ValueError(f"the operator has shape {operator.shape}, but kernel_descent needs every row as a center")
    Y = y.reshape(n, -1).astype(np.float64)
    k = Y.shape[1]
    W = np.ones((n, 1)) if weight is None else np.asarray(weight, dtype=np.float64)[:, None]
    root = np.sqrt(W)

    def largest() -> float:
        found = lanczos(lambda v: (root * operator.matmat(root * v[:, None]))[:, 0] / n, n, 10)[1] + penalty
        return found if nu is None else found / _BELOW

    def left(r: Vectors) -> Vectors:
        """Return the residuals with the penalty's part, relative to the targets."""
        penalised = np.divide(penalty * n * alpha, root, out=np.zeros_like(alpha), where=root > 0)
        return np.linalg.norm(root * r - penalised, axis=0) / size

    length = _length(step, largest)
    size = sizes(root * Y)
    watch = _Watch(length, operator.dtype, largest, longest=2.0 if nu is None else 1.0)
    alpha = np.zeros_like(Y) if start is None else np.array(start, dtype=np.float64).reshape(n, k)
    before = alpha
    r = Y if start is None else Y - operator.matmat(alpha)

    def record(iteration: int) -> Iterate:
        return Iterate.measured(
            iteration,
            residuals,
            tol,
            seconds=time.perf_counter() - began,
            passes=operator.passes - passes,
            step=np.full(k, length if iteration else 0.0),
            ratio=np.zeros(k),
            _coef=partial(alpha.reshape, (n, *y.shape[1:])),
        )

    residuals = left(r)
    if max_iter == 0 or (residuals <= tol).all():
        yield record(0)
        return
    for iteration in range(1, max_iter + 1):
        if iteration > 1:
            watch.coefficients(alpha)
            r = Y - operator.matmat(alpha)
            residuals = left(r)
        # the nu-method's residuals may grow again, but not beyond the first
        watch.residuals(residuals, noisy=nu is not None)
        again, factor = (0.0, 1.0) if nu is None else _nu_method(iteration, nu)
        gradient = W * r - penalty * n * alpha
        alpha, before = alpha + again * (alpha - before) + factor * length / n * gradient, alpha
        yield record(iteration)
        if (residuals <= tol).all():
            return


def _nu_method(k: int, nu: float) -> tuple[float, float]:
    """Return how much of the last step iteration k of the nu-method repeats, and the factor of its own step."""
    common = (k + 2 * nu - 1) * (2 * k + 4 * nu - 1)
    again = (k - 1) * (2 * k - 3) * (2 * k + 2 * nu - 1) / (common * (2 * k + 2 * nu - 3)) if k > 1 else 0.0
    return again, 4 * (2 * k + 2 * nu - 1) * (k + nu - 1) / common


def largest_eigenvalue(
    operator: Operator, coordinates: Coordinates, penalty: float, weight: NDArray[Any] | None = None, n_iter: int = 10
) -> float:
    """Return the largest eigenvalue of ``B'(K'WK + penalty n K_MM)B``, by Lanczos' method.

    The estimate is from below, and within a few percent after ten passes. Steps of gradient descent are stable up to
    2 / this, and 1 / this is safe.

    Parameters
    ----------
    operator, coordinates, penalty, weight
        As for `gradient_descent`.
    n_iter : int
        Largest number of passes.

    Examples
    --------
    >>> import numpy as np
    >>> from gyrfalcon import KernelOperator, preconditioners, solvers
    >>> X = np.random.default_rng(0).standard_normal((500, 3))
    >>> K = KernelOperator("linear", X, X[:10])  # B'K'K B has the eigenvalues of X'X / n
    >>> found = solvers.largest_eigenvalue(K, preconditioners.Whitening(K.centers_gram(), 500), penalty=0.0)
    >>> bool(np.isclose(found, np.linalg.eigvalsh(X.T @ X / 500)[-1]))
    True
    """
    n = operator.shape[0]
    system = make_system(operator, np.empty((n, 0)), coordinates, penalty, weight)
    return lanczos(lambda v: system.product(v[:, None])[:, 0], coordinates.rank, n_iter)[1]


def _largest_of_batches(whole: System, operator: Operator, batch_size: int, n_batches: int = 4) -> float:
    """Return the largest eigenvalue among the systems of a few batches."""
    n, B = operator.shape[0], whole.B
    rng, largest = np.random.default_rng(0), 0.0
    for _ in range(n_batches):
        rows = np.sort(rng.choice(n, min(batch_size, n), replace=False))
        batch = operator.on(operator.rows.take(rows))
        weight = n / len(rows) * (np.ones(len(rows)) if whole.weight is None else whole.weight[rows])

        def product(v: Vectors, batch: Operator = batch, weight: Vectors = weight) -> Vectors:
            alpha, halfway = B.forward(v[:, None])
            return B.backward(batch.sandwich(alpha, weight), halfway, whole.penalty)[:, 0]

        largest = max(largest, lanczos(product, B.rank, 6)[1])
    return largest


def _residual_beside_y(y: NDArray[Any], weight: NDArray[Any] | None, rows: slice, T: NDArray[Any]) -> NDArray[Any]:
    """Return W (y - T), and W y in the columns that T has beyond those of y."""
    k = y.shape[1]
    U = y[rows] - T if T.shape[1] == k else np.hstack([y[rows] - T[:, :k], y[rows]])
    return U if weight is None else weight[rows][:, None] * U


def _length(step: Step, largest: Callable[[], float]) -> float:
    """Return the length of a step, which for "auto" is 1 / `largest()`."""
    check_step("step", step)
    if step == "auto":
        eigenvalue = largest()
        return 1 / eigenvalue if eigenvalue > 0 else 1.0
    return float(step)


class _Watch:
    """Raise an error when a step turns out to be too long."""

    def __init__(self, step: float, dtype: np.dtype[Any], largest: Callable[[], float], longest: float = 2.0) -> None:
        self.step, self.largest, self.longest = step, largest, longest
        info = np.finfo(dtype)
        # A product with numbers above this could overflow, and no coefficient of use is so large.
        self.limit = float(np.sqrt(info.max))
        self.noise = float(np.sqrt(info.eps))
        self.smallest: Vectors | None = None

    def coefficients(self, x: Vectors) -> None:
        if not np.abs(x).max(initial=0.0) < self.limit:
            raise self._error()

    def residuals(self, norms: Vectors, noisy: bool = False) -> None:
        before = norms if self.smallest is None else self.smallest
        # Mini-batches may leave what they have reached, but not by more than they began with.
        bound = np.maximum(_GROWTH * before, _GROWTH if noisy else self.noise)
        if not (norms <= bound).all():
            raise self._error()
        self.smallest = np.minimum(before, norms)

    def _error(self) -> FloatingPointError:
        largest = self.largest()
        stable = self.longest / largest if largest > 0 else np.inf
        if self.step < 0.9 * stable:
            reason = "the system is not positive: choose a positive semidefinite kernel, or a shorter step"
        else:
            reason = "choose a shorter one, or 'auto'"
        return FloatingPointError(
            f"gradient descent diverges with step={self.step:g}, where the largest stable step is about {stable:.3g}: "
            f"{reason}"
        )
