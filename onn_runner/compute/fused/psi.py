"""psi(w, x) and its two slopes for every operator of the catalogue, as Triton device functions.

OP names the operator and P holds its parameters, as `catalogue.OPERATORS` gives them. Products are formed in the order
of `ops`, so that large arguments are rounded in the same way; slopes are what autograd finds there: none beyond a
clamp.
"""

from __future__ import annotations

import triton
import triton.language as tl

from onn_runner.compute.fused.elementary import at_least, between, cosh, exp, expm1, sinc, sinc_slope, sinh

LIMIT = tl.constexpr(10.0)
"""Of GOP's exponents."""
BELL = tl.constexpr(30.0)
"""Where exp(-u^2) is 0 in every precision."""


@triton.jit
def psi(w: tl.tensor, x: tl.tensor, OP: tl.constexpr, P: tl.constexpr) -> tl.tensor:
    if OP == "mul":
        value = w * x
    elif OP == "cubic":
        value = P[0] * w * x * x * x
    elif OP == "quadratic":
        value = P[0] * w * x * x
    elif OP == "sine":
        value = tl.sin(P[0] * w * x)
    elif OP == "exp":
        value = expm1(w * x)
    elif OP == "sinh":
        value = sinh(P[0] * w * x)
    elif OP == "sinc":
        value = P[1] * sinc(P[0] * w * x)
    elif OP == "chirp":
        value = tl.sin(P[0] * w * x * x)
    elif OP == "gaussian":
        u = between(P[0] * w * x, -BELL, BELL)
        value = w * exp(-(u * u))
    elif OP == "dog":
        u = between(P[0] * w * x, -BELL, BELL)
        value = u * exp(-(u * u)) / P[0]
    elif OP == "log":
        value = w * (tl.log(at_least(x + P[0], P[1])) + P[2])
    elif OP == "gop_exp":
        value = expm1(between(w * x, -LIMIT, LIMIT))
    elif OP == "gop_quadratic":
        u = P[0] * w * between(x, -LIMIT, LIMIT)
        value = u * u
    elif OP == "gop_gaussian":
        value = w * exp(-between(P[0] * w * x * x, -LIMIT, LIMIT))
    else:
        tl.static_assert(OP == "gop_dog")
        value = w * x * exp(-between(P[0] * w * x * x, -LIMIT, LIMIT))
    return value


@triton.jit
def slope_w(w: tl.tensor, x: tl.tensor, OP: tl.constexpr, P: tl.constexpr) -> tl.tensor:
    """d psi/dw."""
    if OP == "mul":
        slope = x
    elif OP == "cubic":
        slope = P[0] * x * x * x
    elif OP == "quadratic":
        slope = P[0] * x * x
    elif OP == "sine":
        slope = tl.cos(P[0] * w * x) * P[0] * x
    elif OP == "exp":
        slope = exp(w * x) * x
    elif OP == "sinh":
        slope = cosh(P[0] * w * x) * P[0] * x
    elif OP == "sinc":
        slope = P[1] * sinc_slope(P[0] * w * x) * P[0] * x
    elif OP == "chirp":
        slope = tl.cos(P[0] * w * x * x) * P[0] * x * x
    elif OP == "gaussian":
        slope = _bell_slope(P[0] * w * x)
    elif OP == "dog":
        slope = _bell_slope(P[0] * w * x) * x
    elif OP == "log":
        slope = tl.log(at_least(x + P[0], P[1])) + P[2]
    elif OP == "gop_exp":
        u = w * x
        slope = _inside(u, exp(between(u, -LIMIT, LIMIT)) * x)
    elif OP == "gop_quadratic":
        bounded = between(x, -LIMIT, LIMIT)
        slope = 2 * (P[0] * w * bounded) * P[0] * bounded
    elif OP == "gop_gaussian":
        u = P[0] * w * x * x
        slope = exp(-between(u, -LIMIT, LIMIT)) * (1 - _inside(u, u))
    else:
        tl.static_assert(OP == "gop_dog")
        u = P[0] * w * x * x
        slope = x * exp(-between(u, -LIMIT, LIMIT)) * (1 - _inside(u, u))
    return slope


@triton.jit
def slope_x(w: tl.tensor, x: tl.tensor, OP: tl.constexpr, P: tl.constexpr) -> tl.tensor:
    """d psi/dx."""
    if OP == "mul":
        slope = w
    elif OP == "cubic":
        slope = 3 * (P[0] * w * x * x)
    elif OP == "quadratic":
        slope = 2 * (P[0] * w * x)
    elif OP == "sine":
        slope = tl.cos(P[0] * w * x) * P[0] * w
    elif OP == "exp":
        slope = exp(w * x) * w
    elif OP == "sinh":
        slope = cosh(P[0] * w * x) * P[0] * w
    elif OP == "sinc":
        slope = P[1] * sinc_slope(P[0] * w * x) * P[0] * w
    elif OP == "chirp":
        slope = tl.cos(P[0] * w * x * x) * (2 * (P[0] * w * x))
    elif OP == "gaussian":
        u = P[0] * w * x
        bounded = between(u, -BELL, BELL)
        slope = w * (exp(-(bounded * bounded)) * -2 * bounded) * (P[0] * w)
    elif OP == "dog":
        slope = _bell_slope(P[0] * w * x) * w
    elif OP == "log":
        argument = x + P[0]
        slope = tl.where(argument >= P[1], w / argument, 0.0)
    elif OP == "gop_exp":
        u = w * x
        slope = _inside(u, exp(between(u, -LIMIT, LIMIT)) * w)
    elif OP == "gop_quadratic":
        slope = _inside(x, 2 * (P[0] * w * x) * P[0] * w)
    elif OP == "gop_gaussian":
        u = P[0] * w * x * x
        slope = _inside(u, w * exp(-between(u, -LIMIT, LIMIT)) * (-2 * (P[0] * w * x)))
    else:
        tl.static_assert(OP == "gop_dog")
        u = P[0] * w * x * x
        slope = w * exp(-between(u, -LIMIT, LIMIT)) * (1 - 2 * _inside(u, u))
    return slope


@triton.jit
def _inside(u: tl.tensor, value: tl.tensor) -> tl.tensor:
    """`value` where |u| <= LIMIT, else 0."""
    return tl.where(tl.abs(u) <= LIMIT, value, 0.0)


@triton.jit
def _bell_slope(u: tl.tensor) -> tl.tensor:
    """The derivative of u exp(-u^2), which is 0 beyond BELL."""
    square = between(u, -BELL, BELL)
    square = square * square
    return exp(-square) * (1 - 2 * square)
