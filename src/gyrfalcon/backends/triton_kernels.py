"""Products with K by Triton, which makes entries of K in registers and uses them there.

A program makes tiles of K and multiplies them with all columns, so that K is never written to memory. Nothing is added
by two programs: sums have the same bits when they are made again. Importing this imports Triton.

Profiles are functions of h: -|x - z|^2 / 2 for kernels of distances and of angles, |x - z| in the 1-norm, or x'z, of
scaled points. Each takes two parameters, and `PTX`, which says that NVIDIA's instructions may be used.
"""

from __future__ import annotations

import triton
import triton.language as tl

__all__ = ["FEATURES", "PROFILES", "TILES", "products", "products_by_dots"]

# Points in a tile of K that get a sum, points that are summed over, and warps. Each thread of "float32" has 8 x 4
# entries (8 x 2 with wavefronts of 64) from three loads of four numbers for a feature.
TILES = {"float32": (8, 512, 4), "float64": (4, 256, 4), "dots": (128, 64, 8)}
FEATURES = 2  # that `products` takes at a time


# ---- profiles --------------------------------------------------------------------------------------------------------


@triton.jit
def _log2(x: tl.tensor, PTX: tl.constexpr) -> tl.tensor:
    """Return log2(x) of positive numbers; with PTX in one instruction, whose error is at most 2^-22 near 1."""
    if PTX:
        return tl.inline_asm_elementwise("lg2.approx.ftz.f32 $0, $1;", "=f,f", [x], tl.float32, is_pure=True, pack=1)
    return tl.log2(x)


@triton.jit
def _inverse(x: tl.tensor, PTX: tl.constexpr) -> tl.tensor:
    """Return 1 / x; with PTX in one instruction, whose error is one rounding."""
    if PTX:
        return tl.inline_asm_elementwise("rcp.approx.ftz.f32 $0, $1;", "=f,f", [x], tl.float32, is_pure=True, pack=1)
    return 1.0 / x


@triton.jit
def _over_root(h: tl.tensor, a: tl.tensor, b: tl.tensor, c: tl.tensor, PTX: tl.constexpr) -> tl.tensor:
    """Return h / sqrt(1 + a h + max(b + c h, 0) h^2), for b + c h < 1.

    With PTX these are five instructions, of which the first one also clips. They stay together and, as if they were not
    pure, in order: otherwise the compiler uses fewer registers for points, and more instructions to load them.
    """
    one = tl.full(h.shape, 1.0, h.dtype)
    if PTX:
        return tl.inline_asm_elementwise(
            """{
            .reg .f32 t;
            fma.rn.ftz.sat.f32 t, $4, $1, $3;
            fma.rn.ftz.f32 t, t, $1, $2;
            fma.rn.ftz.f32 t, t, $1, $5;
            rsqrt.approx.ftz.f32 t, t;
            mul.ftz.f32 $0, t, $1;
            }""",
            "=f,f,f,f,f,f",
            [h, a, b, c, one],
            tl.float32,
            is_pure=False,
            pack=1,
        )
    return h * tl.rsqrt(one + h * (a + h * tl.maximum(b + h * c, 0.0)))


@triton.jit
def _gaussian(h: tl.tensor, p: tl.tensor, q: tl.tensor, PTX: tl.constexpr) -> tl.tensor:
    return tl.exp2(h)  # points are scaled by sqrt(log2 e)


@triton.jit
def _exponential(h: tl.tensor, p: tl.tensor, q: tl.tensor, PTX: tl.constexpr) -> tl.tensor:
    return tl.exp2(-h)  # Laplacian in the 1-norm: points are scaled by log2 e


# Below, |h| stands for -h, which rounding can make negative where points are equal: it costs no instruction.


@triton.jit
def _laplacian(h: tl.tensor, p: tl.tensor, q: tl.tensor, PTX: tl.constexpr) -> tl.tensor:
    return tl.exp2(-tl.sqrt(tl.abs(h)))  # points are scaled by sqrt(2) log2 e


@triton.jit
def _matern_3(h: tl.tensor, p: tl.tensor, q: tl.tensor, PTX: tl.constexpr) -> tl.tensor:
    t = tl.sqrt(tl.abs(h))  # a log2 e, for the a of (1 + a) exp(-a): points are scaled by sqrt(6) log2 e
    return (1.0 + t * 0.693147180559945309417) * tl.exp2(-t)


@triton.jit
def _matern_5(h: tl.tensor, p: tl.tensor, q: tl.tensor, PTX: tl.constexpr) -> tl.tensor:
    t = tl.sqrt(tl.abs(h))  # the same for (1 + a + a^2 / 3) exp(-a), and sqrt(10)
    return tl.exp2(-t) * (1.0 + t * (0.693147180559945309417 + t * 0.160151004639400462))


@triton.jit
def _rational_quadratic(h: tl.tensor, alpha: tl.tensor, q: tl.tensor, PTX: tl.constexpr) -> tl.tensor:
    x = -h  # points are scaled by 1 / sqrt(alpha)
    u = 1.0 + x
    if h.dtype == tl.float32:
        return tl.exp2(-alpha * _log2(u, PTX))
    # log(u) with what 1 + x has lost
    return tl.exp(-alpha * tl.where(u == 1.0, x, tl.log(u) * x / tl.where(u == 1.0, 1.0, u - 1.0)))


@triton.jit
def _rational_quadratic_large(h: tl.tensor, p: tl.tensor, q: tl.tensor, PTX: tl.constexpr) -> tl.tensor:
    """Return the profile in float32 for a large alpha, which multiplies the errors of a logarithm.

    For h = -alpha log2(e) x, and so x = p h, log(1 + x) is x / sqrt(1 + x + x^2 / 12 - ...). The coefficients change
    entries by at most 1.2e-7 for all alpha from 16, and those above 1e-3 by less than 1e-5 of themselves: the root is
    good where x is small, and where x is not, entries are small.
    """
    return tl.exp2(_over_root(h, 0.99996835588 * p, 0.083807580963 * p * p, -0.0021797045741 * p * p * p, PTX))


@triton.jit
def _linear(h: tl.tensor, p: tl.tensor, q: tl.tensor, PTX: tl.constexpr) -> tl.tensor:
    return h


@triton.jit
def _polynomial(h: tl.tensor, degree: tl.tensor, q: tl.tensor, PTX: tl.constexpr) -> tl.tensor:
    value = h  # gamma x'z + coef0: points are scaled by sqrt(gamma)
    for _ in range(1, degree.to(tl.int32)):
        value *= h
    return value


@triton.jit
def _sigmoid(h: tl.tensor, p: tl.tensor, q: tl.tensor, PTX: tl.constexpr) -> tl.tensor:
    """Return tanh(x) from h = 2 log2(e) x; near 0, where 1 - 2 / (exp(2 x) + 1) would lose digits, by a polynomial."""
    v = h * h
    if h.dtype == tl.float32:  # to 4e-7 of x, for |x| < 1/4
        near = h * (0.3465734531 + v * (-0.01387127111 + v * 0.0006420914971))
        return tl.where(v < 0.52034222, near, 1.0 - 2.0 * _inverse(tl.exp2(h) + 1.0, PTX))
    x = h * 0.346573590279972654709
    v = tl.minimum(x * x, 0.25)  # Pade's approximant
    near = x * (135135.0 + v * (17325.0 + v * (378.0 + v))) / (135135.0 + v * (62370.0 + v * (3150.0 + v * 28.0)))
    return tl.where(x * x < 0.25, near, 1.0 - 2.0 / (tl.exp2(h) + 1.0))


@triton.jit
def _angle(h: tl.tensor) -> tl.tensor:
    """Return the angle between unit vectors, from -|u - v|^2 / 2, by an arcsine: fdlibm's, in float32 a polynomial."""
    t = tl.sqrt(tl.minimum(0.5 * tl.abs(h), 1.0))
    large = t > 0.5
    z = tl.where(large, 0.5 * (1.0 - t), t * t)
    s = tl.where(large, tl.sqrt(z), t)
    if h.dtype == tl.float32:  # to 9e-8
        rest = z * (0.1666558001 + z * (0.07540531236 + z * (0.04003498111 + z * 0.04995312357)))
    else:
        top = -4.00555345006794114027e-02 + z * (7.91534994289814532176e-04 + z * 3.47933107596021167570e-05)
        top = -3.25565818622400915405e-01 + z * (2.01212532134862925881e-01 + z * top)
        top = 1.66666666666666657415e-01 + z * top
        low = 2.02094576023350569471e00 + z * (-6.88283971605453293030e-01 + z * 7.70381505559019352791e-02)
        rest = z * top / (1.0 + z * (-2.40339491173441421878e00 + z * low))
    half = s + s * rest
    return 2.0 * tl.where(large, 1.57079632679489661923 - 2.0 * half, half)


@triton.jit
def _arc_cosine_0(h: tl.tensor, p: tl.tensor, q: tl.tensor, PTX: tl.constexpr) -> tl.tensor:
    return 1.0 - _angle(h) * 0.318309886183790671538


@triton.jit
def _arc_cosine_1(h: tl.tensor, p: tl.tensor, q: tl.tensor, PTX: tl.constexpr) -> tl.tensor:
    versine = tl.minimum(tl.abs(h), 2.0)  # 1 - cos(angle)
    sine = tl.sqrt(versine * (2.0 - versine))
    return (sine + (3.14159265358979323846 - _angle(h)) * (1.0 - versine)) * 0.318309886183790671538


PROFILES = {
    "gaussian": _gaussian,
    "exponential": _exponential,
    "laplacian": _laplacian,
    "matern_3": _matern_3,
    "matern_5": _matern_5,
    "rational_quadratic": _rational_quadratic,
    "rational_quadratic_large": _rational_quadratic_large,
    "linear": _linear,
    "polynomial": _polynomial,
    "sigmoid": _sigmoid,
    "arc_cosine_0": _arc_cosine_0,
    "arc_cosine_1": _arc_cosine_1,
}


# ---- products --------------------------------------------------------------------------------------------------------


@triton.jit(do_not_specialize=["k", "d", "n", "tiles"])
def products(
    A: tl.tensor,
    B: tl.tensor,
    NA: tl.tensor,
    NB: tl.tensor,
    W: tl.tensor,
    out: tl.tensor,
    P: tl.tensor,
    I: tl.tensor,  # noqa: E741
    J: tl.tensor,
    k: tl.tensor,
    d: tl.tensor,
    n: tl.tensor,
    tiles: tl.tensor,
    measure: tl.constexpr,
    profile: tl.constexpr,
    PTX: tl.constexpr,
    SINGLE: tl.constexpr,
    TI: tl.constexpr,
    TJ: tl.constexpr,
    C: tl.constexpr,
) -> None:
    """Compute out[t, c, i] = sum over j in part t of k(a_i, b_j) W[c, j], for i < n.

    A and B are points of shape (d, I) and (d, J), and W is (k, J); I, J and d are multiples of TI, TJ and C, filled up
    with zeros. A part is a number of tiles, which is 1 unless `SINGLE`, that is, k = 1. `measure` is "inner": the
    inner product plus NA[i] + NB[j]; or the sum over differences, as "squares" or "sizes".
    """
    across = tl.cdiv(n, TI)
    part = tl.program_id(0) // across  # programs of the same b come one after the other, and find them in the cache
    i = (tl.program_id(0) % across) * TI + tl.arange(0, TI)[:, None]
    p, q = tl.load(P), tl.load(P + 1)
    total = tl.zeros((TI, TJ), A.dtype.element_ty)
    start = part * tiles * TJ
    out += part.to(tl.int64) * k * I + i  # which may have more than 2^31 entries
    for first in range(start, tl.minimum(start + tiles * TJ, J), TJ):
        j = first + tl.arange(0, TJ)[None, :]
        a = A + i
        b = B + j
        if measure == "inner":
            h = tl.load(NA + i) + tl.load(NB + j)
        else:
            h = tl.zeros((TI, TJ), A.dtype.element_ty)
        for _ in range(0, d, C):
            for c in tl.static_range(C):
                x = tl.load(a + c * I)
                z = tl.load(b + c * J)
                if measure == "inner":
                    h += x * z
                elif measure == "squares":
                    h += (x - z) * (x - z)
                else:
                    h += tl.abs(x - z)
            a += C * I
            b += C * J
        K = profile(-0.5 * h if measure == "squares" else h, p, q, PTX)
        if SINGLE:
            total += K * tl.load(W + j)
        else:
            w = W + j
            for _ in range(k):
                tl.store(out, tl.sum(K * tl.load(w), axis=1, keep_dims=True))
                w += J
                out += I
    if SINGLE:
        tl.store(out, tl.sum(total, axis=1, keep_dims=True))


@triton.jit(do_not_specialize=["k", "n", "tiles"])
def products_by_dots(
    A: tl.tensor,
    B: tl.tensor,
    NA: tl.tensor,
    NB: tl.tensor,
    W: tl.tensor,
    out: tl.tensor,
    P: tl.tensor,
    I: tl.tensor,  # noqa: E741
    J: tl.tensor,
    k: tl.tensor,
    d: tl.tensor,
    n: tl.tensor,
    tiles: tl.tensor,
    profile: tl.constexpr,
    PTX: tl.constexpr,
    SINGLE: tl.constexpr,
    TI: tl.constexpr,
    TJ: tl.constexpr,
    C: tl.constexpr,
    WHOLE: tl.constexpr,
) -> None:
    """Compute what `products` does with "inner", by tensor cores: A and B are (I, d) and (J, d), of numbers of TF32.

    `WHOLE` says that d = C: the points of A are then loaded once.
    """
    across = tl.cdiv(n, TI)
    part = tl.program_id(0) // across
    lane = tl.arange(0, TI)
    i = (tl.program_id(0) % across) * TI + lane
    f = tl.arange(0, C)
    p, q = tl.load(P), tl.load(P + 1)
    norms = tl.load(NA + i)[:, None]
    width = C if WHOLE else d
    a = A + ((tl.program_id(0) % across) * TI).to(tl.int64) * width + (lane[:, None] * width + f[None, :])
    if WHOLE:
        x = tl.load(a)
    total = tl.zeros((TI, TJ), tl.float32)
    start = part * tiles * TJ
    out += part.to(tl.int64) * k * I + i
    b = B + start.to(tl.int64) * width + (tl.arange(0, TJ)[None, :] * width + f[:, None])
    for first in range(start, tl.minimum(start + tiles * TJ, J), TJ):
        j = first + tl.arange(0, TJ)
        if WHOLE:
            h = tl.dot(x, tl.load(b), input_precision="tf32")
        else:
            h = tl.zeros((TI, TJ), tl.float32)
            for c in range(0, d, C):
                h = tl.dot(tl.load(a + c), tl.load(b + c), h, input_precision="tf32")
        b += TJ * width
        K = profile(h + (norms + tl.load(NB + j)[None, :]), p, q, PTX)
        if SINGLE:
            total += K * tl.load(W + j)[None, :]
        else:
            w = W + j
            for _ in range(k):
                tl.store(out, tl.sum(K * tl.load(w)[None, :], axis=1))
                w += J
                out += I
    if SINGLE:
        tl.store(out, tl.sum(total, axis=1))
