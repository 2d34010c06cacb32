"""Newton's method for any smooth convex loss, with FALKON's preconditioner inside: logistic FALKON, without schedules.

Minimises, over f = offset + K alpha with k columns,

    sum_i w_i loss(y_i, f_i) + n penalty / 2 tr(alpha'K_MM alpha)

as Marteau-Ferey, Bach and Rudi, "Globally convergent Newton methods for ill-conditioned generalized self-concordant
losses" (2019), do: approximate Newton steps, while the penalty falls from a large one, for which any start is near
enough, to the one asked for. All vectors are in the coordinates of `Whitening`, alpha = D Q T^-1 u / sqrt(n), where the
penalty is |u|^2 / 2. A Newton step is

    one pass      f = K alpha (kept, so that nothing drifts) and the gradient g = B'K'W loss' + penalty u
    no pass       A'A = T W T' / M + penalty I made again, with W = w loss'' at the centers, the columns' mean
    a few passes  conjugate gradient on H d = -g with H = B'K' W loss'' K B + penalty I, preconditioned with A, until the
                  residual is a fraction of what it was. K d is put together from the products that CG makes anyway
    no pass       a line search along d, on f + t K d

so that t steps of CG cost t + 1 passes. Columns that a loss does not couple (several quantiles, one class against the
rest) take part in the same passes, each with its own CG and its own step; those it couples (softmax) are one vector.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gyrfalcon.losses import Loss
from gyrfalcon.preconditioner import Preconditioner, Whitening
from gyrfalcon.preconditioner.coordinates import Halfway
from gyrfalcon.solvers.base import Iterate, Operator, Vectors

Array = NDArray[Any]

OPTS = {
    "fall": 10.0,
    "near": 0.5,
    "eta": 0.3,
    "etafinal": 0.3,
    "ls": "armijo",
    "rel": False,
    "mu0": 0.4,
    "verbose": False,
}
_MOST_CG_STEPS = 20


@dataclass
class NewtonIterate(Iterate):
    """The record of one Newton step; `step` is its length and `ratio` what CG left of the residual, for each column.

    Attributes
    ----------
    residual : float
        The decrease that the step's quadratic model predicted, relative to the objective: what `tol` is for.
    penalty : float
        The one that the step was made for.
    objective : float
        After the step: mean loss + penalty / 2 |f|^2, with the penalty asked for and not that of the step.
    decrement : float
        Newton's, of the mean: the square root of twice the predicted decrease over n.
    cg_steps : int
        Steps of conjugate gradient.
    """

    penalty: float = 0.0
    objective: float = float("nan")
    decrement: float = 0.0
    cg_steps: int = 0


def newton(
    operator: Operator,
    y: Array,
    loss: Loss,
    coordinates: Preconditioner,
    penalty: float,
    *,
    max_iter: int,
    tol: float,
    weight: Array | None = None,
    start: Array | None = None,
    offset: Array | None = None,
    center_rows: Array | None = None,
    path: Sequence[float] | None = None,
    cg_steps: int | None = None,
    decrease=None,
) -> Iterator[NewtonIterate]:
    """Minimise mean(w loss(y, offset + K alpha)) + penalty / 2 tr(alpha'K_MM alpha)."""
    began, passes = time.perf_counter(), operator.passes
    model = _Model(operator, y, loss, weight, coordinates, offset, start)
    n, k = y.shape
    lam = max(penalty, coordinates.least_penalty)
    mu = None
    near = False
    pred_best = np.inf
    for iteration in range(1, max_iter + 1):
        model.pass_for_gradient()
        h = model.hessian()
        if mu is None:
            scale = coordinates.least_penalty * 8 / np.finfo(operator.dtype).eps
            mu = max(lam, OPTS["mu0"] * h.mean() * scale) if start is None else lam
        elif near:
            mu = max(lam, mu / OPTS["fall"])
        g = model.gradient(mu)
        wM = h.mean() * np.ones(coordinates.M) if center_rows is None else h[center_rows]
        th = OPTS.get("theta", 0.0)
        ess = wM.sum()**2/(wM**2).sum()/len(wM)
        if OPTS["verbose"]: print("ess", ess, end=" ")
        if th == "ess": th = 1 - min(1, OPTS["c"] * ess)
        wM = (1 - th) * wM + th * h.mean()
        if OPTS.get("smooth"):
            if not hasattr(model, "K1"): model.K1 = operator.rmatmat(np.ones(n))
            wM = operator.rmatmat(h)/model.K1; operator.passes -= 1
        imp = OPTS.get("imp")
        if imp and iteration > OPTS.get("after", 3):
            from gyrfalcon.preconditioner.two_factors import checked_penalty
            m = int(imp * coordinates.M); rng = np.random.default_rng(0)
            q = h / h.sum(); q = 0.8 * q + 0.2 / n
            rows = rng.choice(n, m, p=q)
            S = operator._kept[rows] * np.sqrt(h[rows] / (m * q[rows]))[:, None].astype(np.float32)
            C = coordinates.solve_Tt(coordinates.restrict(S.T))  # rank x m, /sqrt(n)
            coordinates.ridge = mu; 
            full = C @ C.T
            def fill():
                T1 = coordinates._T1
                il = np.tril_indices(coordinates.rank)
                T1[il] = full[il]
            coordinates._fill_A = fill
            coordinates._factor_A()
            del coordinates._fill_A
        else:
            coordinates.update(mu, wM)
        final = mu == lam
        eta = OPTS["etafinal"] if final else OPTS["eta"]
        d, Kd, steps, red = model.cg(g, mu, eta, cg_steps or _MOST_CG_STEPS)
        slope = model.total(g * d)
        t, F0, F1 = model.line_search(d, Kd, slope, mu, OPTS["ls"])
        pred = -0.5 * slope.sum() / F0.sum()
        dec = float(np.sqrt(max(-slope.sum(), 0) / n))
        near = (pred < OPTS["near"]) if OPTS["rel"] else dec < OPTS["near"]
        model.u = model.u + t * d
        obj = (F1.sum() - (mu - lam) * 0.5 * model.norm2()) / n
        done = final and pred <= tol
        if OPTS["verbose"]:
            print(
                f"it {iteration} mu {mu:.1e} F0 {F0.sum() / n:.8f} obj {obj:.8f} pred {pred:.2e} dec {dec:.2e} cg {steps} red {red:.2f} t {np.round(t, 3)} passes {operator.passes - passes}"
            )
        yield NewtonIterate(
            iteration,
            pred,
            slope,
            time.perf_counter() - began,
            operator.passes - passes,
            done,
            t,
            t,
            penalty=mu,
            objective=obj,
            decrement=dec,
            cg_steps=steps,
            _coef=partial(lambda m, u: Whitening.forward(m.B, u)[0], model, model.u),
        )
        if done:
            return


class _Model:
    def __init__(self, operator, y, loss, weight, B, offset, start):
        self.op, self.y, self.loss, self.B = operator, y, loss, B
        self.w = None if weight is None else weight.astype(operator.dtype)[:, None]
        k = y.shape[1]
        self.offset = np.zeros(k, operator.dtype) if offset is None else offset.astype(operator.dtype)
        self.u = np.zeros((B.rank, k)) if start is None else Whitening.invert(B, start)
        self.f = np.empty(y.shape, operator.dtype)
        self.axis = None if loss.coupled else 0

    def total(self, x):
        return np.atleast_1d(np.sum(x, axis=self.axis, dtype=np.float64))

    def weighted(self, rows, x):
        return x if self.w is None else self.w[rows] * x

    def pass_for_gradient(self):
        alpha, self.half = Whitening.forward(self.B, self.u)

        def weight(rows, T):
            self.f[rows] = T + self.offset
            return self.weighted(rows, self.loss.gradient(self.y[rows], self.f[rows]))

        self.s = self.op.sandwich(alpha, weight)

    def gradient(self, mu):
        return Whitening.backward(self.B, self.s, self.half, mu)

    def norm2(self):
        return np.square(self.u).sum()

    def hessian(self):
        h = self.loss.hessian(self.y, self.f)
        return self.weighted(slice(None), h).mean(axis=1)

    def cg(self, g, mu, eta, most):
        B = self.B
        Kp, Kd = np.empty_like(self.f), np.zeros_like(self.f)
        d = np.zeros_like(g)
        r = -g
        z = B.solve_A(B.solve_At(r))
        p, rz = z, self.total(r * z)
        rz0 = rz

        def weight(rows, T):
            Kp[rows] = T
            return self.weighted(rows, self.loss.curvature(self.y[rows], self.f[rows], T))

        for t in range(1, most + 1):
            v, half = Whitening.forward(B, p)
            Hp = Whitening.backward(B, self.op.sandwich(v, weight), half, mu)
            a = rz / self.total(p * Hp)
            d += a * p
            Kd += (a * Kp).astype(Kd.dtype)
            r = r - a * Hp
            z = B.solve_A(B.solve_At(r))
            new = self.total(r * z)
            if (new <= eta**2 * rz0).all():
                break
            p = z + new / rz * p
            rz = new
        return d, Kd, t, np.sqrt((new / rz0).max())

    def line_search(self, d, Kd, slope, mu, how):
        uu, ud, dd = self.total(self.u**2), self.total(self.u * d), self.total(d * d)

        def F(t):
            return self.total(
                self.weighted(slice(None), self.loss.value(self.y, self.f + t.astype(self.f.dtype) * Kd))
            ) + mu / 2 * (uu + 2 * t * ud + t * t * dd)

        t = np.ones_like(slope)
        F0 = F(0 * t)
        if how == "exact":
            # 1-D Newton on phi'(t)
            t = np.zeros_like(slope)
            for _ in range(4):
                ft = self.f + t.astype(self.f.dtype) * Kd
                p1 = self.total(self.weighted(slice(None), self.loss.gradient(self.y, ft) * Kd)) + mu * (ud + t * dd)
                p2 = self.total(self.weighted(slice(None), self.loss.curvature(self.y, ft, Kd) * Kd)) + mu * dd
                step = -p1 / p2
                t = t + step
                t = np.clip(t, 0.01, 4)
                if (abs(step) < 0.05).all():
                    break
        while True:
            F1 = F(t)
            bad = ~(F1 <= F0 + 1e-4 * t * slope + 1e-7 * F0)
            if not bad.any() or t.min() < 1e-8:
                break
            t = np.where(bad, t / 2, t)
        return t, F0, F1
