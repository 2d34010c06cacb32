"""BBKB beside BKB: regret and time on California housing as a list of candidates.

    python benchmarks/papers/bbkb.py [--data DIR] [--quick]

Calandriello et al. (2020) play the 20,640 districts as arms, with the house value as reward. Regret is relative to that
of uniform play, summed up to t. The paper has 0.13 to 0.14 at t = 10,000, and at t = 2,000 times of 0.8 s (BBKB) and
18 s (BKB) on its machine. Here features are standardised, values brought to [0, 1], and the noise has deviation 0.1.
The bounds as the theorem has them (exploration=1) explore for longer; a tenth of their width is shown beside them.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from _data import load, options, table

from gyrfalcon import BBKB, BKB
from gyrfalcon.kernels import Gaussian

NOISE = 0.1
# some districts are far from all others: with a shorter length scale each of them would be visited
KERNEL = Gaussian(5.0)


def play(bandit: Any, values: np.ndarray, plays: int, at: list[int]) -> tuple[list[float], list[float], int, int]:
    """Cumulative regret relative to uniform play, and seconds, after some numbers of plays."""
    rng = np.random.default_rng(0)
    regrets: list[float] = []
    ratios, seconds, batches, spent = [], [], 0, 0.0
    uniform = values.max() - values.mean()
    while len(regrets) < plays:
        began = time.perf_counter()
        arms = bandit.ask()
        spent += time.perf_counter() - began
        y = values[arms] + NOISE * rng.standard_normal(len(arms))
        began = time.perf_counter()
        bandit.tell(arms, y)
        spent += time.perf_counter() - began
        regrets.extend(values.max() - values[arms])
        batches += 1
        while len(ratios) < len(at) and len(regrets) >= at[len(ratios)]:
            t = at[len(ratios)]
            ratios.append(float(np.sum(regrets[:t]) / (t * uniform)))
            seconds.append(spent)
    return ratios, seconds, batches, len(bandit.dictionary_)


def main() -> None:
    given = options(__doc__ or "")
    arrays = load(given.data, "california_housing", np.float64)
    if arrays is None:
        return
    X, y = arrays["X"], arrays["y"]
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    values = (y - y.min()) / (y.max() - y.min())
    at = [300, 1_000] if given.quick else [500, 2_000, 10_000]
    rows = []
    for name, cls, exploration, most in [
        ("BBKB", BBKB, 0.1, at[-1]),
        ("BKB", BKB, 0.1, at[-2]),
        ("BBKB, bounds of the theorem", BBKB, 1.0, at[0]),
    ]:
        bandit = cls(KERNEL, noise=NOISE, exploration=exploration, random_state=0).fit(X)
        ratios, seconds, batches, m = play(bandit, values, most, [t for t in at if t <= most])
        missing = ["-"] * (len(at) - len(ratios))
        cells = [f"{ratio:.3f}, {second:.1f} s" for ratio, second in zip(ratios, seconds, strict=True)]
        rows.append([name, *cells, *missing, batches, m])
    header = ["", *(f"t = {t:,}" for t in at), "batches", "dictionary"]
    table(f"{len(X):,} arms: regret beside uniform play, and seconds", header, rows)


if __name__ == "__main__":
    main()
