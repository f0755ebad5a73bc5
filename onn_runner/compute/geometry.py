"""Where the taps of a window lie: sizes, slices and neuron ranges that the kernels share."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from onn_runner.compute.base import Block, Call
from onn_runner.errors import ConfigError
from onn_runner.ops.base import Pool
from onn_runner.ops.pool import POOLS


def taps(weight: Tensor) -> int:
    """The number of taps T of a weight [O, C/G, *k]."""
    return math.prod(weight.shape[2:])


def output_size(
    call: Call,
    x: Tensor,  # [B, C, *S]
    weight: Tensor,  # [O, C/G, *k]
) -> tuple[int, ...]:
    """The number of valid positions per axis, or of those that a transposed layer fills.

    Raises ConfigError where the window does not fit into the padded input.
    """
    sizes = []
    for size, kernel, stride, dilation in zip(x.shape[2:], weight.shape[2:], call.stride, call.dilation, strict=True):
        span = dilation * (kernel - 1) + 1
        if call.transposed:
            sizes.append((size - 1) * stride + span)
            continue
        if span > size:
            raise ConfigError(
                f"a kernel that spans {span} positions (size {kernel}, dilation {dilation}) does not fit into a padded "
                f"input of {size}; use a smaller kernel or dilation, more padding or larger inputs"
            )
        sizes.append((size - span) // stride + 1)
    return tuple(sizes)


def tap_slices(
    call: Call,
    kernel: tuple[int, ...],
    sizes: tuple[int, ...],
) -> Iterator[tuple[slice, ...]]:
    """For each tap in raster order, the slices of the spatial axes that its window positions see."""
    for tap in itertools.product(*(range(k) for k in kernel)):
        yield tuple(
            slice(t * dilation, t * dilation + stride * (size - 1) + 1, stride)
            for t, dilation, stride, size in zip(tap, call.dilation, call.stride, sizes, strict=True)
        )


def patches(
    call: Call,
    x: Tensor,  # [..., *S]
    kernel: tuple[int, ...],
    sizes: tuple[int, ...],
) -> Tensor:
    """The values that each tap sees, [T, ..., L], contiguous per tap."""
    return torch.stack([at(x, ..., *where).flatten(-len(kernel)) for where in tap_slices(call, kernel, sizes)])


def refuse_transposed(call: Call) -> str | None:
    """Why no kernel serves a transposed layer with such a pool: there each output sees taps in a number of its own."""
    if call.transposed and pool_kind(call.pool) not in ("sum", "mean"):
        name = call.pool.name or type(call.pool).__name__
        return f"the pool {name} is not a sum, which is what a transposed layer takes"
    return None


def inserted(
    call: Call,
    kernel: tuple[int, ...],
    size: tuple[int, ...],  # *S of the input
    device: torch.device,
) -> tuple[Tensor, Tensor]:
    """Which position of a transposed layer's input each tap brings to each output, and whether there is one: [T, L'].

    Position 0 stands where there is none.
    """
    index = torch.zeros((1, 1), dtype=torch.long, device=device)
    mask = torch.ones((1, 1), dtype=torch.bool, device=device)
    for length, k, stride, dilation in zip(size, kernel, call.stride, call.dilation, strict=True):
        outputs = (length - 1) * stride + dilation * (k - 1) + 1
        # p = i stride + t dilation
        ahead = torch.arange(outputs, device=device) - dilation * torch.arange(k, device=device)[:, None]
        here = (ahead % stride == 0) & (ahead >= 0) & (ahead < length * stride)
        axis = torch.where(here, ahead // stride, 0)
        index = (index[:, None, :, None] * length + axis[None, :, None, :]).flatten(2).flatten(0, 1)
        mask = (mask[:, None, :, None] & here[None, :, None, :]).flatten(2).flatten(0, 1)
    return torch.where(mask, index, 0), mask


def at(values: Tensor, *where: Any) -> Tensor:
    """values[where], for an index of any mixture and length."""
    return values[where]


def neurons(call: Call, outputs: int, most: int) -> Iterator[tuple[Block, int, int, int]]:
    """Ranges of at most `most` neurons with one operator and one group: (block, group, start, stop)."""
    per_group = outputs // call.groups
    for block in call.blocks:
        start = block.start
        while start < block.stop:
            group = start // per_group
            stop = min(block.stop, (group + 1) * per_group, start + most)
            yield block, group, start, stop
            start = stop


def pool_kind(pool: Pool) -> str:
    """Its name if it is one of the catalogue's own, else nothing: what derives from them may compute anything."""
    return pool.name if type(pool) in POOLS.values() else ""


def pool_factor(pool: Pool, count: int) -> float:
    """The factor that a named pool applies on top of its plain definition (1/T for mean as a sum)."""
    ones = torch.ones(count, 1, dtype=torch.float64)
    value = float(pool(ones, 0))
    return value / count if pool_kind(pool) in ("sum", "mean") else value
