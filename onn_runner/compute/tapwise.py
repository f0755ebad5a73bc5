"""A_o sum_c P_t psi(w[o,c,t], x[c,p+t]) + b_o tap by tap over small blocks of neurons, recomputed in backward. Exact.

It keeps x and w, and for maximum, minimum and median which tap it was, one byte each. Blocks hold one sample and so
many neurons and channels that their values stay in the cache.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from onn_runner.compute.base import Block, Call, Memory
from onn_runner.compute.geometry import neurons, output_size, patches, tap_slices, taps
from onn_runner.compute.once import once
from onn_runner.compute.strategy import Strategy, strategy

VALUES = 1 << 17
"""Values of psi in a block, per tap."""
INDEX_BYTES = 1 << 28
"""A larger index of taps is not kept but found again."""


def refuse(call: Call) -> str | None:
    """None: it serves every call."""
    return None


def run(
    call: Call,
    x: Tensor,  # [B, C, *S], padded
    weight: Tensor,  # [O, C/G, *k]
    gain: Tensor | None,  # [O]
    bias: Tensor | None,  # [O]
    memory: Memory,
) -> Tensor:  # [B, O, *S']
    """Exact for every operator and pool; it can be differentiated once.

    Of equal taps the first one has the gradient of maximum and minimum, as in torch; with the median it may be any one
    of them in torch, and is the first one here.
    """
    memory.chosen, memory.reason = "tapwise", "exact, tap by tap"
    total: Tensor = _Tapwise.apply(x, weight, call)
    shape = (-1, *(1,) * len(call.stride))
    if gain is not None:
        total = total * gain.view(shape)
    return total if bias is None else total + bias.view(shape)


@dataclass(frozen=True)
class _Tile:
    """One sample's channels start..stop-1 of a group."""

    sample: int
    group: int
    start: int
    stop: int
    first: bool
    """Of this sample."""


def _tiles(call: Call, x: Tensor, positions: int, plan: Strategy) -> Iterator[_Tile]:
    inputs = x.shape[1] // call.groups
    step = max(1, min(inputs, VALUES // positions))
    for sample in range(x.shape[0]):
        for group in range(call.groups):
            for start in range(0, inputs, step):
                yield _Tile(sample, group, start, min(inputs, start + step), first=group == start == 0)


def _seen(call: Call, x: Tensor, tile: _Tile, weight: Tensor, sizes: tuple[int, ...]) -> Tensor:
    """What the taps of a tile see, [T, c, L]."""
    first = tile.group * weight.shape[1]
    return patches(call, x[tile.sample, first + tile.start : first + tile.stop], tuple(weight.shape[2:]), sizes)


def _weights(weight: Tensor, tile: _Tile, start: int, stop: int) -> Tensor:
    """[T, o, c, 1] of a tile's channels and the neurons start..stop-1."""
    return weight[start:stop, tile.start : tile.stop].flatten(2).permute(2, 0, 1)[..., None].contiguous()


class _Tapwise(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, call: Call) -> Tensor:
        sizes = output_size(call, x, weight)
        positions = math.prod(sizes)
        plan = strategy(call.pool, taps(weight))
        y = x.new_empty((x.shape[0], weight.shape[0], positions))
        index = _index(ctx, x, weight, plan, positions)
        total = y.new_zeros(y.shape[1:], dtype=torch.float64)
        for tile in _tiles(call, x, positions, plan):
            if tile.first:
                total.zero_()
            seen = _seen(call, x, tile, weight, sizes)
            for block, start, stop in _neurons(call, weight, seen, plan, tile):
                w = _weights(weight, tile, start, stop)
                part, chosen = plan.summed(block.nodal, w, seen, keep=index is not None)
                total[start:stop] += part
                if index is not None and chosen is not None:
                    index[tile.sample, start:stop, tile.start : tile.stop] = chosen
            y[tile.sample] = total
        ctx.save_for_backward(x, weight, index)
        ctx.call = call
        return y.view(x.shape[0], weight.shape[0], *sizes)

    @staticmethod
    @once
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, index = ctx.saved_tensors
        call: Call = ctx.call
        need_x, need_weight = ctx.needs_input_grad[:2]
        sizes = tuple(grad.shape[2:])
        plan = strategy(call.pool, taps(weight))
        to_x = torch.zeros_like(x) if need_x else None
        to_weight = torch.zeros_like(weight) if need_weight else None
        flat = grad.flatten(2)
        with torch.autocast(x.device.type, enabled=False):
            for tile in _tiles(call, x, flat.shape[2], plan):
                seen = _seen(call, x, tile, weight, sizes)
                to_seen = torch.zeros_like(seen)
                for block, start, stop in _neurons(call, weight, seen, plan, tile):
                    w = _weights(weight, tile, start, stop)
                    chosen = None if index is None else index[tile.sample, start:stop, tile.start : tile.stop]
                    upstream = flat[tile.sample, start:stop, None]
                    to_w = plan.pull_back(block.nodal, w, seen, upstream, chosen, to_seen=to_seen, rows=sizes[0])
                    if to_weight is not None:
                        part = to_weight[start:stop, tile.start : tile.stop]
                        part += to_w[..., 0].permute(1, 2, 0).view_as(part)
                if to_x is not None:
                    _fold(to_x, to_seen, call, tile, weight, sizes)
        return to_x, to_weight, None


def _index(ctx: Any, x: Tensor, weight: Tensor, plan: Strategy, positions: int) -> Tensor | None:
    """Room for which tap each output took, [B, O, C/G, L], where the pool takes one and a gradient will ask."""
    size = (x.shape[0], *weight.shape[:2], positions)
    if not any(ctx.needs_input_grad) or not plan.selects or taps(weight) > 256 or math.prod(size) > INDEX_BYTES:
        return None
    return torch.empty(size, dtype=torch.uint8, device=x.device)


def _neurons(call: Call, weight: Tensor, seen: Tensor, plan: Strategy, tile: _Tile) -> Iterator[tuple[Block, int, int]]:
    """The neurons that read a tile, so few at a time that their values fit: (block, start, stop)."""
    most = max(1, VALUES // (plan.buffers * seen[0].numel()))
    for block, group, start, stop in neurons(call, weight.shape[0], most):
        if group == tile.group:
            yield block, start, stop


def _fold(to_x: Tensor, to_seen: Tensor, call: Call, tile: _Tile, weight: Tensor, sizes: tuple[int, ...]) -> None:
    """Add the gradients to what the taps saw to the inputs where they saw it."""
    first = tile.group * weight.shape[1]
    target = to_x[tile.sample, first + tile.start : first + tile.stop]
    for part, where in zip(to_seen, tap_slices(call, tuple(weight.shape[2:]), sizes), strict=True):
        target[(slice(None), *where)] += part.view(-1, *sizes)
