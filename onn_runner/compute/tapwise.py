"""A_o sum_c P_t psi(w[o,c,t], x[c,p+t]) + b_o tap by tap over small tiles, recomputed in backward. Exact.

It keeps x and w, and for maximum, minimum and median which tap it was, one byte each. Tiles hold so few samples,
positions, channels and neurons that their values stay in the cache.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from onn_runner.compute.base import Call, Memory
from onn_runner.compute.geometry import at, output_size, patches, refuse_transposed, tap_slices, taps
from onn_runner.compute.strategy import Strategy, strategy
from onn_runner.compute.tiles import Tile, Window, batches, tiles, windows
from onn_runner.compute.twice import twice
from onn_runner.errors import ConfigError

VALUES = 1 << 16
"""Values of psi in a tile, per tap."""
INDEX_BYTES = 1 << 28
"""A larger index of taps is not kept but found again."""


def refuse(call: Call) -> str | None:
    """Why it cannot serve the call: a transposed layer with a pool that is not a sum."""
    return refuse_transposed(call)


def run(
    call: Call,
    x: Tensor,  # [B, C, *S], padded
    weight: Tensor,  # [O, C/G, *k]
    gain: Tensor | None,  # [O]
    bias: Tensor | None,  # [O]
    memory: Memory,
) -> Tensor:  # [B, O, *S']
    """Exact for every operator and pool, any number of derivatives included.

    Of equal taps the first one has the gradient of maximum and minimum, as in torch; with the median it may be any one
    of them in torch, and is the first one here.
    """
    if (reason := refuse(call)) is not None:
        raise ConfigError(f"no kernel can compute this layer: {reason}; use the pool sum or mean")
    memory.chosen, memory.reason = "tapwise", "exact, tap by tap"
    # inside of a function autograd says that inputs need gradients even where nobody will ask for them
    asked = torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad)
    y: Tensor = _Tapwise.apply(x, weight, gain, bias, call, asked)
    return y


class _Tapwise(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        gain: Tensor | None,
        bias: Tensor | None,
        call: Call,
        asked: bool,
    ) -> Tensor:
        sizes = output_size(call, x, weight)
        plan = strategy(call.pool, taps(weight))
        index = _Index(_room(x, weight, plan, sizes) if asked else None)
        ctx.save_for_backward(x, weight, gain, index.values)
        ctx.call = call
        y = x.new_empty((len(x), len(weight), *sizes))
        values = VALUES // plan.buffers
        for samples in batches(call, x, weight, values):
            # long sums in one order lose digits
            total = torch.zeros_like(y[samples].transpose(0, 1), dtype=torch.float64)
            for window in windows(call, x, weight, samples, values):
                seen = _seen(call, window.of(x), weight)
                for tile in tiles(call, len(weight), window, values):
                    w = _weights(tile, weight)
                    target = total[tile.neurons, :, window.rows]
                    for some, place in _views(call, x, weight, window):
                        chosen = index.part(*w.shape[1:3], seen.shape[2])
                        part = at(target, ..., *place)
                        part += plan.summed(tile.block.nodal, w[some], seen, chosen).view_as(part)
            shape = (-1, 1, *(1,) * len(sizes))
            if gain is not None:
                total *= gain.view(shape)
            if bias is not None:
                total += bias.view(shape)
            y[samples] = total.transpose(0, 1)
        return y

    @staticmethod
    @twice
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, gain, kept = ctx.saved_tensors
        call: Call = ctx.call
        need_x, need_weight, _, need_bias = ctx.needs_input_grad[:4]
        to_bias = grad.sum((0, *range(2, grad.dim()))) if need_bias else None
        if gain is not None:
            grad = grad * gain.view(-1, *(1,) * (grad.dim() - 2))
        to_x = torch.zeros_like(x) if need_x else None
        to_weight = torch.zeros_like(weight, dtype=torch.float64) if need_weight else None
        plan = strategy(call.pool, taps(weight))
        index = _Index(kept)
        with torch.autocast(x.device.type, enabled=False):
            values = VALUES // plan.buffers
            for samples in batches(call, x, weight, values) if need_x or need_weight else ():
                for window in windows(call, x, weight, samples, values):
                    seen = _seen(call, window.of(x), weight)
                    to_seen = torch.zeros_like(seen)
                    for tile in tiles(call, len(weight), window, values):
                        w = _weights(tile, weight)
                        to_w = torch.empty_like(w)
                        for some, place in _views(call, x, weight, window):
                            chosen = index.part(*w.shape[1:3], seen.shape[2])
                            upstream = at(tile.of("y", grad), ..., *place).flatten(1)[:, None]
                            to_w[some] = plan.pull_back(tile.block.nodal, w[some], seen, upstream, chosen, to_seen)
                        if to_weight is not None:
                            part = tile.of("w", to_weight)
                            part += to_w[..., 0].permute(1, 2, 0).view_as(part)
                    if to_x is not None:
                        _fold(call, window.of(to_x), to_seen, weight)
        return to_x, None if to_weight is None else to_weight.to(weight.dtype), None, to_bias, None, None


class _Index:
    """Which tap each value took, in the order in which tiles are computed; none without `values`."""

    def __init__(self, values: Tensor | None) -> None:
        self.values = values
        self._start = 0

    def part(self, *size: int) -> Tensor | None:
        """That of the next tile."""
        if self.values is None:
            return None
        start, self._start = self._start, self._start + math.prod(size)
        return self.values[start : self._start].view(size)


def _room(x: Tensor, weight: Tensor, plan: Strategy, sizes: tuple[int, ...]) -> Tensor | None:
    """For which tap each output took, B O C/G L bytes, where the pool takes one."""
    count = len(x) * math.prod(weight.shape[:2]) * math.prod(sizes)
    if not plan.selects or taps(weight) > 256 or count > INDEX_BYTES:
        return None
    return torch.empty(count, dtype=torch.uint8, device=x.device)


def _seen(call: Call, x: Tensor, weight: Tensor) -> Tensor:
    """What the taps see of a window [c, b, *S]: [T, c, L], L of all samples; all of it, [1, c, L], if transposed."""
    if call.transposed:
        return x.flatten(1)[None].contiguous()
    return patches(call, x, tuple(weight.shape[2:]), output_size(call, x, weight)).flatten(2)


def _fold(call: Call, to_x: Tensor, to_seen: Tensor, weight: Tensor) -> None:
    """Add the gradients to what the taps saw to a window's inputs [c, b, *S] where they saw it."""
    if call.transposed:
        to_x += to_seen[0].view(to_x.shape)
        return
    sizes = output_size(call, to_x, weight)
    for part, where in zip(to_seen, tap_slices(call, tuple(weight.shape[2:]), sizes), strict=True):
        target = at(to_x, ..., *where)
        target += part.view(target.shape)


def _views(call: Call, x: Tensor, weight: Tensor, window: Window) -> Iterator[tuple[slice, tuple[slice, ...]]]:
    """Taps that are pooled, and where in the window's outputs the result belongs: all; if transposed, one by one."""
    if not call.transposed:
        yield slice(None), ()
        return
    size = (window.seen.stop - window.seen.start, *x.shape[3:])
    for tap, where in enumerate(tap_slices(call, tuple(weight.shape[2:]), size)):
        yield slice(tap, tap + 1), where


def _weights(tile: Tile, weight: Tensor) -> Tensor:
    """[T, o, c, 1]"""
    return tile.of("w", weight).flatten(2).permute(2, 0, 1)[..., None].contiguous()
