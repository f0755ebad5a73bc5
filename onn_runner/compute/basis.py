"""E_r(x) = T_r(t) - T_r(t0), t = (x - centre)/half, t0 = t(x = 0): Chebyshev polynomials pinned at zero, and E_r'(x).

Pinned by their own recurrence, so that they are as exact beside x = 0 as x itself. Three kinds:

    odd    r = 1, 3, 5, ...  in steps of T_2 (symmetric intervals)
    even   r = 2, 4, 6, ...  as the line kind in T_2 (symmetric intervals)
    line   r = 1, 2, 3, ...  any interval that holds 0

Members come in ascending degree with signs that make each recurrence step one fused multiply-add; the transform to
coefficients carries the same signs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import torch
from torch import Tensor

Kind = Literal["odd", "even", "line"]


@dataclass(frozen=True)
class Interval:
    """The range of x that the polynomials are made for; it holds 0."""

    low: float
    high: float

    @property
    def half(self) -> float:
        return (self.high - self.low) / 2

    @property
    def centre(self) -> float:
        return (self.high + self.low) / 2

    @property
    def zero(self) -> float:
        """t at x = 0, in [-1, 1]."""
        return -self.centre / self.half


def sign(index: int) -> float:
    """The sign of member `index`: + - - + + - - ... for odd, + + - - + + ... for the others (see `signs`)."""
    return -1.0 if index % 4 in (1, 2) else 1.0


def signs(kind: Kind, count: int) -> list[float]:
    """Member i is signs[i] E_r: each differs from the one two before, which turns the recurrence's minus into plus."""
    shift = 0 if kind == "odd" else 3
    return [sign(index + shift) for index in range(count)]


def degree(kind: Kind, index: int) -> int:
    """The degree r of member `index`."""
    return {"odd": 2 * index + 1, "even": 2 * index + 2, "line": index + 1}[kind]


def evaluate(
    x: Tensor,
    interval: Interval,
    kind: Kind,
    out: Sequence[Tensor],  # R buffers shaped as x
) -> None:
    """Write the first R members at x into `out`."""
    z = x * (1 / interval.half)
    if kind == "odd":
        _odd_members(z, out)
    elif kind == "even":
        square = z.square().mul_(2)
        _line_members(square, square - 1, -1.0, out)
    else:
        _line_members(z, z + interval.zero, interval.zero, out)


def _odd_members(z: Tensor, out: Sequence[Tensor]) -> None:
    factor = z.square().mul_(4).sub_(2)
    out[0].copy_(z)
    before, step = z, -1.0
    for index in range(1, len(out)):
        torch.addcmul(before, factor, out[index - 1], value=step, out=out[index])
        before, step = out[index - 1], -step


def _line_members(z: Tensor, t: Tensor, zero: float, out: Sequence[Tensor]) -> None:
    twice = t * 2
    out[0].copy_(z)
    pinned = _values(zero, len(out) + 1)
    sign_of = signs("line", len(out))
    for index in range(1, len(out)):
        if index == 1:
            torch.mul(twice, out[0], out=out[1])
        else:
            value = sign_of[index] * sign_of[index - 1]
            torch.addcmul(out[index - 2], twice, out[index - 1], value=value, out=out[index])
        if pinned[index] != 0:
            out[index].add_(z, alpha=2 * sign_of[index] * pinned[index])


def _values(t: float, count: int) -> list[float]:
    """T_0(t) ... T_{count-1}(t)."""
    values = [1.0, t]
    while len(values) < count:
        values.append(2 * t * values[-1] - values[-2])
    return values[:count]


def pull_back(
    x: Tensor,
    interval: Interval,
    kind: Kind,
    grads: Sequence[Tensor],  # R gradients to the members, shaped as x
) -> Tensor:
    """sum_r grads[r] E_r'(x), with the members' signs."""
    z = x * (1 / interval.half)
    scale = 1 / interval.half
    if kind == "odd":
        factor = z.square().mul_(4).sub_(2)
        return _second_kind(grads, factor, kind, factor + 1).mul_(scale)
    if kind == "even":
        factor = z.square().mul_(4).sub_(2)
        return _second_kind(grads, factor, kind, factor).mul_(z).mul_(4 * scale)
    factor = (z + interval.zero).mul_(2)
    return _second_kind(grads, factor, kind, factor).mul_(scale)


def _second_kind(grads: Sequence[Tensor], factor: Tensor, kind: Kind, first: Tensor) -> Tensor:
    """sum_n weight_n grads[n] V_n with V_0 = 1, V_1 = first, V_{n+1} = factor V_n - V_{n-1}."""
    sign_of = signs(kind, len(grads))
    weight = [sign_of[n] * (degree(kind, n) if kind != "even" else n + 1) for n in range(len(grads))]
    total = grads[0] * weight[0]
    if len(grads) == 1:
        return total
    total.addcmul_(grads[1], first, value=weight[1])
    # V is kept up to the signs of `sign`, for the same reason as the members
    before, current, flip = torch.ones_like(first), first, 1.0
    for n in range(2, len(grads)):
        # with V_0 = +, V_1 = +, the next are -, -, +, +, ...
        step = -1.0 if n % 2 == 0 else 1.0
        before, current = current, torch.addcmul(before, factor, current, value=step)
        flip = sign(n + 3)
        total.addcmul_(grads[n], current, value=weight[n] * flip)
    return total


@lru_cache(maxsize=256)
def transform(
    kind: Kind,
    count: int,
    interval: Interval,
    device: torch.device,
) -> tuple[Tensor, Tensor]:
    """Nodes x_j [P + 1], the last one 0, and the matrix [R, P] from psi(., x_j) - psi(., 0) to coefficients.

    `kind` is odd or even where psi is; that halves the nodes, since the others repeat them.
    """
    nodes = {"odd": 2 * count, "even": 2 * count + 1, "line": count + 1}[kind]
    half = nodes if kind == "line" else nodes // 2
    # the cached tensors outlive an inference mode that they may be made in
    with torch.inference_mode(False):
        angle = (torch.arange(half, dtype=torch.float64) + 0.5) * (math.pi / nodes)
        degrees = torch.tensor([degree(kind, index) for index in range(count)], dtype=torch.float64)
        matrix = torch.cos(degrees[:, None] * angle) * (2 / nodes * (1 if kind == "line" else 2))
        matrix *= torch.tensor(signs(kind, count), dtype=torch.float64)[:, None]
        points = interval.centre + interval.half * torch.cos(angle)
        return torch.cat([points, points.new_zeros(1)]).to(device), matrix.to(device)
