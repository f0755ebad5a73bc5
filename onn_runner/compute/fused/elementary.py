"""exp, expm1, sinh, cosh and sin(u)/u for Triton, to a few units in the last place in single and double precision.

Triton's own sine, cosine and logarithm are CUDA's accurate ones; its exponential is the hardware's, whose error grows
with |u|, and there is no expm1 or sinh outside of libdevice, which the interpreter does not have. Here
exp(u) = 2^n (1 + p) with n = round(u / log 2), log 2 in two parts so that u - n log 2 is exact to rounding, and p by
the Taylor series of expm1 in |r| <= 0.35: its rest is below 1e-9 of r after 8 terms and 1e-17 after 14. The power of
two is put together from its bits, in two factors, so that results overflow and underflow only where they should.
"""

from __future__ import annotations

import math

import triton
import triton.language as tl

PER_LOG_2 = tl.constexpr(1 / math.log(2))


@triton.jit
def polynomial(u: tl.tensor, coefficients: tl.tuple) -> tl.tensor:
    """Coefficients of the highest power first."""
    value = tl.full(u.shape, coefficients[0], u.dtype)
    for i in tl.static_range(1, len(coefficients)):
        value = value * u + coefficients[i]
    return value


@triton.jit
def between(u: tl.tensor, LOW: tl.constexpr, HIGH: tl.constexpr) -> tl.tensor:
    """u within LOW..HIGH; NaN stays."""
    return tl.minimum(at_least(u, LOW), tl.full(u.shape, HIGH, u.dtype), propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def at_least(u: tl.tensor, LOW: tl.constexpr) -> tl.tensor:
    """u, or LOW where it is smaller; NaN stays. A bare number would be rounded to single precision."""
    return tl.maximum(u, tl.full(u.shape, LOW, u.dtype), propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def _exponential_single(r: tl.tensor) -> tl.tensor:
    """(exp(r) - 1 - r)/r^2."""
    return polynomial(r, (1 / 40320, 1 / 5040, 1 / 720, 1 / 120, 1 / 24, 1 / 6, 1 / 2))


@triton.jit
def _exponential_double(r: tl.tensor) -> tl.tensor:
    """(exp(r) - 1 - r)/r^2."""
    high = polynomial(r, (1 / 87178291200, 1 / 6227020800, 1 / 479001600, 1 / 39916800, 1 / 3628800, 1 / 362880))
    power = r * r * r * r * r * r * r
    return high * power + _exponential_single(r)


@triton.jit
def _reduced(u: tl.tensor) -> tl.tensor:
    """(p, n) with exp(u) = 2^n (1 + p), -0.3 < p < 0.42; beyond the bounds on u it is 0 or infinity anyway."""
    if u.dtype == tl.float64:
        u = between(u, -760.0, 720.0)
        n = tl.floor(u * PER_LOG_2 + 0.5)
        r = (u - n * 6.93147180369123816490e-01) - n * 1.90821492927058770002e-10
        p = r + r * r * _exponential_double(r)
    else:
        u = between(u, -110.0, 100.0)
        n = tl.floor(u * PER_LOG_2 + 0.5)
        r = (u - n * 0.693359375) - n * -2.12194440054690583e-4
        p = r + r * r * _exponential_single(r)
    return p, n.to(tl.int32)


@triton.jit
def _power_of_two(n: tl.tensor, like: tl.tensor) -> tl.tensor:
    if like.dtype == tl.float64:
        return ((n.to(tl.int64) + 1023) << 52).to(tl.float64, bitcast=True)
    else:
        return ((n + 127) << 23).to(tl.float32, bitcast=True)


@triton.jit
def _scaled(value: tl.tensor, n: tl.tensor) -> tl.tensor:
    """2^n value; each half of n is within the range of normal numbers."""
    half = n >> 1
    return value * _power_of_two(half, value) * _power_of_two(n - half, value)


@triton.jit
def exp(u: tl.tensor) -> tl.tensor:
    p, n = _reduced(u)
    return _scaled(1 + p, n)


@triton.jit
def expm1(u: tl.tensor) -> tl.tensor:
    p, n = _reduced(u)
    power = _scaled(tl.full(p.shape, 1.0, p.dtype), n)
    # beyond 2^60 the one is lost, and the power alone may overflow before the result does
    return tl.where(n > 60, _scaled(1 + p, n), power * p + (power - 1))


@triton.jit
def sinh(u: tl.tensor) -> tl.tensor:
    size = tl.abs(u)
    p, n = _reduced(size)
    half = _scaled(1 + p, n - 1)
    power = _scaled(tl.full(p.shape, 1.0, p.dtype), n)
    e = power * p + (power - 1)
    value = tl.where(size < 1, 0.5 * (e + e / (e + 1)), half - 0.25 / half)
    return tl.where(u < 0, -value, value)


@triton.jit
def cosh(u: tl.tensor) -> tl.tensor:
    p, n = _reduced(tl.abs(u))
    half = _scaled(1 + p, n - 1)
    return half + 0.25 / half


@triton.jit
def _finite(u: tl.tensor) -> tl.tensor:
    """u within the finite numbers: a product that overflowed still has the quotient 0."""
    if u.dtype == tl.float64:
        return between(u, -1.7976931348623157e308, 1.7976931348623157e308)
    else:
        return between(u, -3.4028234663852886e38, 3.4028234663852886e38)


@triton.jit
def _sinc_series(square: tl.tensor) -> tl.tensor:
    """sin(u)/u for |u| < 1/2, to 1e-17."""
    return polynomial(
        square,
        (-1 / 1307674368000, 1 / 6227020800, -1 / 39916800, 1 / 362880, -1 / 5040, 1 / 120, -1 / 6, 1.0),
    )


@triton.jit
def _sinc_slope_series(square: tl.tensor) -> tl.tensor:
    """The derivative of the same to u^2."""
    return polynomial(
        square,
        (-7 / 1307674368000, 6 / 6227020800, -5 / 39916800, 4 / 362880, -3 / 5040, 2 / 120, -1 / 6),
    )


@triton.jit
def sinc(u: tl.tensor) -> tl.tensor:
    """sin(u)/u, 1 at 0."""
    near = tl.abs(u) < 0.5
    square = tl.where(near, u * u, 0.0)
    away = _finite(tl.where(near, 1.0, u))
    return tl.where(near, _sinc_series(square), tl.sin(away) / away)


@triton.jit
def sinc_slope(u: tl.tensor) -> tl.tensor:
    """(u cos u - sin u)/u^2; near 0, where it cancels, the derivative of the series."""
    near = tl.abs(u) < 0.5
    small = tl.where(near, u, 0.0)
    away = _finite(tl.where(near, 1.0, u))
    far = (tl.cos(away) - tl.sin(away) / away) / away
    return tl.where(near, 2 * small * _sinc_slope_series(small * small), far)
