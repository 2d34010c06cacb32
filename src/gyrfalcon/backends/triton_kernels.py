"""Products with K of distance kernels by one Triton kernel, which makes entries of K in registers and uses them there.

A program makes a tile of K once and multiplies it with all columns, so that K is never written to memory. Nothing is
added by two programs: sums have the same bits when they are made again. Importing this imports Triton.
"""

from __future__ import annotations

import triton
import triton.language as tl

__all__ = ["MEASURES", "PROFILES", "SUMMED", "TILE", "products"]

# Numbers of points that get a sum, and that are summed over, in a tile: each thread of 4 warps has 8 x 4 entries (8 x 2
# with wavefronts of 64) from three loads of four numbers. The sum over a tile is a tree with 9 roundings.
TILE, SUMMED = 8, 512


@triton.jit
def _square(t: tl.tensor) -> tl.tensor:
    return t * t


@triton.jit
def _size(t: tl.tensor) -> tl.tensor:
    return tl.abs(t)


@triton.jit
def _gaussian(s: tl.tensor, alpha: tl.tensor) -> tl.tensor:
    return tl.exp(-0.5 * s)


@triton.jit
def _exponential(s: tl.tensor, alpha: tl.tensor) -> tl.tensor:
    return tl.exp(-s)


@triton.jit
def _laplacian(s: tl.tensor, alpha: tl.tensor) -> tl.tensor:
    return tl.exp(-tl.sqrt(s))


@triton.jit
def _matern_3(s: tl.tensor, alpha: tl.tensor) -> tl.tensor:
    a = tl.sqrt(3.0 * s)
    return (1.0 + a) * tl.exp(-a)


@triton.jit
def _matern_5(s: tl.tensor, alpha: tl.tensor) -> tl.tensor:
    a = tl.sqrt(5.0 * s)
    return (1.0 + a + a * a / 3.0) * tl.exp(-a)


@triton.jit
def _rational_quadratic(s: tl.tensor, alpha: tl.tensor) -> tl.tensor:
    # Devices' logarithms near 1 are exact to 1e-7 but not to that share of themselves, and alpha may be large: below
    # 1/2, log(1 + x) = 2 artanh(x / (2 + x)) by its series
    x = s / (2.0 * alpha)
    y = x / (2.0 + x)
    q = y * y
    near = 2.0 * y * (1.0 + q * (1.0 / 3.0 + q * (1.0 / 5.0 + q * (1.0 / 7.0 + q * (1.0 / 9.0)))))
    return tl.exp(-alpha * tl.where(x < 0.5, near, tl.log(1.0 + x)))


MEASURES = {"distance": _square, "manhattan": _size}

PROFILES = {
    "gaussian": _gaussian,
    "exponential": _exponential,
    "laplacian": _laplacian,
    "matern_3": _matern_3,
    "matern_5": _matern_5,
    "rational_quadratic": _rational_quadratic,
}


@triton.jit(do_not_specialize=["k", "d"])
def products(
    A: tl.tensor,
    B: tl.tensor,
    W: tl.tensor,
    out: tl.tensor,
    I: tl.tensor,  # noqa: E741
    J: tl.tensor,
    k: tl.tensor,
    d: tl.tensor,
    alpha: tl.tensor,
    measure: tl.constexpr,
    profile: tl.constexpr,
    TI: tl.constexpr,
    TJ: tl.constexpr,
) -> None:
    """Compute out[t, c, i] = sum over j in tile t of k(a_i, b_j) W[c, j].

    A and B are points of shape (d, I) and (d, J), W is (k, J), and I and J are multiples of 16 that zeros fill up.
    """
    across = tl.cdiv(I, TI)
    tile = tl.program_id(0) // across  # programs of the same b come one after the other, and find them in the cache
    i = (tl.program_id(0) % across) * TI + tl.arange(0, TI)[:, None]
    j = tile * TJ + tl.arange(0, TJ)[None, :]
    s = tl.zeros((TI, TJ), tl.float32)
    for _ in range(d):
        s += measure(tl.load(A + i, mask=i < I, other=0.0) - tl.load(B + j, mask=j < J, other=0.0))
        A += I
        B += J
    K = profile(s, alpha)
    out += tile.to(tl.int64) * k * I  # which may have more than 2^31 entries
    for _ in range(k):
        w = tl.load(W + j, mask=j < J, other=0.0)
        tl.store(out + i, tl.sum(K * w, axis=1, keep_dims=True), mask=i < I)
        W += J
        out += I
