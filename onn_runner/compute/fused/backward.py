"""The two backward kernels: the gradients of sum_c P_t psi(w, x) to x and to w. Shapes and conventions: `tiles`."""

from __future__ import annotations

import triton
import triton.language as tl

from onn_runner.compute.fused.psi import slope_w, slope_x
from onn_runner.compute.fused.tiles import RUN, add, settled, tap_offset, window_offset


@triton.jit
def backward_x(
    x: tl.tensor,
    w: tl.tensor,
    grad: tl.tensor,
    index: tl.tensor,
    to_x: tl.tensor,
    start: int,
    stop: int,
    first_group: int,
    group_tiles: int,  # tiles of channels in a group
    tiles: int,  # in all groups that have such neurons
    group_size: int,
    outputs: int,
    channels: int,
    inputs: int,
    plane: int,
    n0: int,
    n1: int,
    n2: int,
    positions: int,
    m0: int,
    m1: int,
    m2: int,
    OP: tl.constexpr,
    P: tl.constexpr,
    SELECTS: tl.constexpr,
    FACTOR: tl.constexpr,
    KERNEL: tl.constexpr,
    STRIDE: tl.constexpr,
    DILATION: tl.constexpr,
    BC: tl.constexpr,
    BI: tl.constexpr,
) -> None:
    """Add to to_x what the windows that see BI inputs of BC channels send back to them.

    Inputs i = q stride + r of one remainder r are seen by the same taps, so that nothing is computed for the others.
    """
    T: tl.constexpr = KERNEL[0] * KERNEL[1] * KERNEL[2]
    s0 = tl.cdiv(n0, STRIDE[0])
    s1 = tl.cdiv(n1, STRIDE[1])
    s2 = tl.cdiv(n2, STRIDE[2])
    blocks = tl.cdiv(s0 * s1 * s2, BI)
    tile = tl.program_id(0) % tiles
    where = tl.program_id(0) // tiles
    phase = where // blocks % (STRIDE[0] * STRIDE[1] * STRIDE[2])
    sample = (where // blocks // (STRIDE[0] * STRIDE[1] * STRIDE[2])).to(tl.int64)
    r0 = phase // (STRIDE[1] * STRIDE[2])
    r1 = phase // STRIDE[2] % STRIDE[1]
    r2 = phase % STRIDE[2]
    q = where % blocks * BI + tl.arange(0, BI)
    q0 = q // (s1 * s2)
    q1 = q // s2 % s1
    q2 = q % s2
    i0 = q0 * STRIDE[0] + r0
    i1 = q1 * STRIDE[1] + r1
    i2 = q2 * STRIDE[2] + r2
    group = first_group + tile // group_tiles
    c = tile % group_tiles * BC + tl.arange(0, BC)
    real = c < inputs
    both = real[:, None] & ((i0 < n0) & (i1 < n1) & (i2 < n2))[None, :]
    at = (sample * channels + group * inputs + c)[:, None] * plane + ((i0 * n1 + i1) * n2 + i2)[None, :]
    value = tl.load(x + at, mask=both, other=0.0)
    total = tl.zeros((BC, BI), x.dtype.element_ty)
    rest = tl.zeros((BC, BI), x.dtype.element_ty)
    for o in range(tl.maximum(start, group * group_size), tl.minimum(stop, (group + 1) * group_size)):
        out = sample * outputs + o
        for first in range(0, T, RUN):
            part = tl.zeros((BC, BI), x.dtype.element_ty)
            for t in range(first, tl.minimum(first + RUN, T)):
                a0 = r0 - t // (KERNEL[1] * KERNEL[2]) * DILATION[0]
                a1 = r1 - t // KERNEL[2] % KERNEL[1] * DILATION[1]
                a2 = r2 - t % KERNEL[2] * DILATION[2]
                if (a0 % STRIDE[0] == 0) & (a1 % STRIDE[1] == 0) & (a2 % STRIDE[2] == 0):
                    p0 = q0 + a0 // STRIDE[0]
                    p1 = q1 + a1 // STRIDE[1]
                    p2 = q2 + a2 // STRIDE[2]
                    sees = (p0 >= 0) & (p0 < m0) & (p1 >= 0) & (p1 < m1) & (p2 >= 0) & (p2 < m2)
                    p = (p0 * m1 + p1) * m2 + p2
                    by = tl.load(w + (o * inputs + c) * T + t, mask=real, other=0.0)
                    sent = tl.load(grad + out * positions + p, mask=sees, other=0.0)
                    slope = slope_x(by[:, None], value, OP, P)
                    takes = both & sees[None, :]
                    if SELECTS:
                        kept = index + (out * inputs + c)[:, None] * positions + p[None, :]
                        takes = takes & (tl.load(kept, mask=takes, other=0) == t)
                    part += tl.where(takes, slope * sent[None, :], 0.0)
            total, rest = add(total, rest, part)
    before = tl.load(to_x + at, mask=both, other=0.0)
    tl.store(to_x + at, before + (settled(total, rest) * FACTOR).to(x.dtype.element_ty), mask=both)


@triton.jit
def backward_w(
    x: tl.tensor,
    w: tl.tensor,
    grad: tl.tensor,
    index: tl.tensor,
    partial: tl.tensor,  # [chunks, stop - start, C/G T], float64
    start: int,
    stop: int,
    chunk: int,  # blocks of positions of one program
    all_blocks: int,  # of all samples
    tiles: int,
    group_size: int,
    outputs: int,
    channels: int,
    inputs: int,
    plane: int,
    n1: int,
    n2: int,
    positions: int,
    m1: int,
    m2: int,
    OP: tl.constexpr,
    P: tl.constexpr,
    SELECTS: tl.constexpr,
    KERNEL: tl.constexpr,
    STRIDE: tl.constexpr,
    DILATION: tl.constexpr,
    BK: tl.constexpr,
    BL: tl.constexpr,
) -> None:
    """The gradient to BK of a neuron's weights (c, t) over one chunk of the samples' blocks of BL positions."""
    T: tl.constexpr = KERNEL[0] * KERNEL[1] * KERNEL[2]
    k = tl.program_id(0) % tiles * BK + tl.arange(0, BK)
    row = tl.program_id(0) // tiles % (stop - start)
    piece = tl.program_id(0) // tiles // (stop - start)
    o = start + row
    real = k < inputs * T
    c = k // T
    t = k % T
    by = tl.load(w + o * inputs * T + k, mask=real, other=0.0)[:, None]
    blocks = tl.cdiv(positions, BL)
    to_tap = c.to(tl.int64) * plane + tap_offset(t, n1, n2, KERNEL, DILATION)
    total = tl.zeros((BK, BL), x.dtype.element_ty)
    rest = tl.zeros((BK, BL), x.dtype.element_ty)
    last = tl.minimum((piece + 1) * chunk, all_blocks)
    for first in range(piece * chunk, last, RUN):
        part = tl.zeros((BK, BL), x.dtype.element_ty)
        for block in range(first, tl.minimum(first + RUN, last)):
            sample = (block // blocks).to(tl.int64)
            p = block % blocks * BL + tl.arange(0, BL)
            inside = p < positions
            out = sample * outputs + o
            takes = real[:, None] & inside[None, :]
            plane_of = (sample * channels + o // group_size * inputs) * plane
            at = plane_of + to_tap[:, None] + window_offset(p, n1, n2, m1, m2, STRIDE)[None, :]
            seen = tl.load(x + at, mask=takes, other=0.0)
            sent = tl.load(grad + out * positions + p, mask=inside, other=0.0)[None, :]
            if SELECTS:
                kept = index + (out * inputs + c)[:, None] * positions + p[None, :]
                takes = takes & (tl.load(kept, mask=takes, other=0) == t[:, None])
            part += tl.where(takes, slope_w(by, seen, OP, P) * sent, 0.0)
        total, rest = add(total, rest, part)
    found = tl.sum(settled(total, rest), 1)
    tl.store(partial + (piece * (stop - start) + row).to(tl.int64) * (inputs * T) + k, found, mask=real)
