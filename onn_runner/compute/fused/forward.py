"""The forward kernel: A_o sum_c P_t psi(w, x) + b_o. Shapes and conventions: `tiles`."""

from __future__ import annotations

import triton
import triton.language as tl

from onn_runner.compute.fused.psi import psi
from onn_runner.compute.fused.tiles import RUN, add, settled, tap_offset, window_offset


@triton.jit
def _exchange(wires: tl.tuple, I: tl.constexpr, J: tl.constexpr) -> tl.tuple:  # noqa: E741
    """Wires I < J in order; NaN goes to both."""
    low = tl.minimum(wires[I], wires[J], propagate_nan=tl.PropagateNan.ALL)
    high = tl.maximum(wires[I], wires[J], propagate_nan=tl.PropagateNan.ALL)
    return wires[:I] + (low,) + wires[I + 1 : J] + (high,) + wires[J + 1 :]  # noqa: RUF005


@triton.jit
def _and(values: tl.tuple, value: tl.tensor) -> tl.tuple:
    return values + (value,)  # noqa: RUF005


@triton.jit
def _middle(values: tl.tuple, STEPS: tl.constexpr) -> tl.tensor:
    """The lower median, by a network of comparators."""
    wires = values
    for s in tl.static_range(len(STEPS)):
        wires = _exchange(wires, STEPS[s][0], STEPS[s][1])
    return wires[(len(values) - 1) // 2]


@triton.jit
def forward(
    x: tl.tensor,
    w: tl.tensor,
    gain: tl.tensor,
    bias: tl.tensor,
    y: tl.tensor,
    index: tl.tensor,
    start: int,
    stop: int,
    first_group: int,
    group_tiles: int,  # tiles of neurons in a group
    tiles: int,  # in all groups that have such neurons
    group_size: int,  # O/G
    outputs: int,  # O
    channels: int,  # C
    inputs: int,  # C/G
    plane: int,  # prod(S)
    n1: int,
    n2: int,
    positions: int,  # L
    m1: int,
    m2: int,
    OP: tl.constexpr,
    P: tl.constexpr,
    POOL: tl.constexpr,
    GAIN: tl.constexpr,  # whether there is one
    BIAS: tl.constexpr,
    KEEP: tl.constexpr,  # the index
    FACTOR: tl.constexpr,
    KERNEL: tl.constexpr,
    STRIDE: tl.constexpr,
    DILATION: tl.constexpr,
    STEPS: tl.constexpr,  # comparators (i, j) of the median
    BO: tl.constexpr,
    BL: tl.constexpr,
) -> None:
    """y[b,o,p] = A_o FACTOR sum_c P_t psi(w[o,c,t], x[b,c,p+t]) + b_o, rounded once, for BO neurons of a group at BL
    positions of a sample."""
    T: tl.constexpr = KERNEL[0] * KERNEL[1] * KERNEL[2]
    tile = tl.program_id(0) % tiles
    where = tl.program_id(0) // tiles
    blocks = tl.cdiv(positions, BL)
    sample = (where // blocks).to(tl.int64)
    group = first_group + tile // group_tiles
    o = group * group_size + tile % group_tiles * BO + tl.arange(0, BO)
    mine = (o >= start) & (o < stop) & (o < (group + 1) * group_size)
    p = where % blocks * BL + tl.arange(0, BL)
    inside = p < positions
    x += (sample * channels + group * inputs) * plane + window_offset(p, n1, n2, m1, m2, STRIDE)
    w += o * inputs * T
    both = mine[:, None] & inside[None, :]
    out = (sample * outputs + o)[:, None]
    total = tl.zeros((BO, BL), y.dtype.element_ty)
    rest = tl.zeros((BO, BL), y.dtype.element_ty)
    for c in range(inputs):
        if POOL == "sum":
            for first in range(0, T, RUN):
                part = tl.zeros((BO, BL), y.dtype.element_ty)
                for t in range(first, tl.minimum(first + RUN, T)):
                    seen = tl.load(x + tap_offset(t, n1, n2, KERNEL, DILATION), mask=inside, other=0.0)
                    by = tl.load(w + t, mask=mine, other=0.0)
                    part += psi(by[:, None], seen[None, :], OP, P)
                total, rest = add(total, rest, part)
        else:
            if POOL == "median":
                values = ()
                for t in tl.static_range(T):
                    row = tap_offset(t // KERNEL[2] * KERNEL[2], n1, n2, KERNEL, DILATION)
                    seen = tl.load(x + row + t % KERNEL[2] * DILATION[2], mask=inside, other=0.0)
                    by = tl.load(w + t, mask=mine, other=0.0)
                    values = _and(values, psi(by[:, None], seen[None, :], OP, P))
                best = _middle(values, STEPS)
                chosen = tl.zeros((BO, BL), tl.int32)
                if KEEP:
                    for s in tl.static_range(T):
                        chosen = tl.where(values[T - 1 - s] == best, T - 1 - s, chosen)
            else:
                best = tl.full((BO, BL), float("inf") if POOL == "minimum" else -float("inf"), y.dtype.element_ty)
                chosen = tl.zeros((BO, BL), tl.int32)
                for t in range(T):
                    seen = tl.load(x + tap_offset(t, n1, n2, KERNEL, DILATION), mask=inside, other=0.0)
                    by = tl.load(w + t, mask=mine, other=0.0)
                    value = psi(by[:, None], seen[None, :], OP, P)
                    if POOL == "minimum":
                        chosen = tl.where(value < best, t, chosen)
                        best = tl.minimum(value, best, propagate_nan=tl.PropagateNan.ALL)
                    else:
                        chosen = tl.where(value > best, t, chosen)
                        best = tl.maximum(value, best, propagate_nan=tl.PropagateNan.ALL)
                # where a tap is NaN none equals the result, and the first one counts as the tap
                chosen = tl.where(best == best, chosen, 0)
            if KEEP:
                at = (out * inputs + c) * positions + p[None, :]
                tl.store(index + at, chosen.to(tl.uint8), mask=both)
            total, rest = add(total, rest, best)
        x += plane
        w += T
    value = settled(total, rest) * FACTOR
    if GAIN:
        value = value * tl.load(gain + o, mask=mine, other=0.0).to(tl.float64)[:, None]
    if BIAS:
        value = value + tl.load(bias + o, mask=mine, other=0.0).to(tl.float64)[:, None]
    tl.store(y + out * positions + p[None, :], value.to(y.dtype.element_ty), mask=both)
