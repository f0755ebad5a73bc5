"""What the kernels share: sums in two words, and where taps and windows lie in a plane.

All kernels take contiguous tensors x [B, C, *S], w [O, C/G, T], y and its gradient [B, O, L], and for the pools that
select a tap which one it was, [B, O, C/G, L], one byte each. Space has three axes, the first ones of size 1 where there
are fewer: S = (n0, n1, n2), L = m0 m1 m2. One launch serves the neurons start..stop-1, which share an operator. Sums
run plainly over at most RUN terms and then go on in two words, so that their error does not grow with C, T or B L.
Offsets within one plane are 32 bits wide, those of planes 64.
"""

from __future__ import annotations

import triton
import triton.language as tl

RUN = tl.constexpr(32)


@triton.jit
def add(total: tl.tensor, rest: tl.tensor, part: tl.tensor) -> tl.tensor:
    """total + rest + part in two words, without loss: Knuth's two-sum."""
    new = total + part
    other = new - total
    return new, rest + ((total - (new - other)) + (part - other))


@triton.jit
def settled(total: tl.tensor, rest: tl.tensor) -> tl.tensor:
    """The sum of two words in double precision; an infinite sum has no rest."""
    return total.to(tl.float64) + tl.where(tl.abs(total) < float("inf"), rest, 0.0).to(tl.float64)


@triton.jit
def tap_offset(t: tl.tensor, n1: int, n2: int, KERNEL: tl.constexpr, DILATION: tl.constexpr) -> tl.tensor:
    """How far tap t lies behind its window's first one, in a plane with rows of n2 and slices of n1 rows."""
    k0 = t // (KERNEL[1] * KERNEL[2])
    k1 = t // KERNEL[2] % KERNEL[1]
    return (k0 * DILATION[0] * n1 + k1 * DILATION[1]) * n2 + t % KERNEL[2] * DILATION[2]


@triton.jit
def window_offset(p: tl.tensor, n1: int, n2: int, m1: int, m2: int, STRIDE: tl.constexpr) -> tl.tensor:
    """Where the window of output p begins."""
    p0 = p // (m1 * m2)
    p1 = p // m2 % m1
    return (p0 * STRIDE[0] * n1 + p1 * STRIDE[1]) * n2 + p % m2 * STRIDE[2]
