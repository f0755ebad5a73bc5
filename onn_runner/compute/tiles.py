"""Pieces of a layer that are computed one after another: one sample, some channels, rows and neurons at a time."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor

from onn_runner.compute.base import Block, Call
from onn_runner.compute.geometry import at, neurons, output_size


@dataclass(frozen=True)
class Window:
    """Channels of one group over some rows, which are ranges of the first spatial axis."""

    group: int
    channels: slice
    """Of the weight's second axis."""
    inputs: slice
    """The same of x."""
    seen: slice
    """Rows of x."""
    rows: slice
    """Rows of y that they give; in a transposed layer, to which they contribute."""
    size: int
    """Channels times positions."""


@dataclass(frozen=True)
class Tile:
    """A window and neurons of one operator that see it."""

    window: Window
    block: Block
    neurons: slice

    def of(self, kind: str, values: Tensor, sample: int = 0) -> Tensor:
        """Its part of something shaped as the input "x", weight "w" or output "y": [c, *S], [o, c, *k], [o, *S']."""
        window = self.window
        if kind == "w":
            return values[self.neurons, window.channels]
        if kind == "x":
            return at(values, sample, window.inputs, window.seen)
        return at(values, sample, self.neurons, window.rows)


def windows(
    call: Call,
    x: Tensor,  # [B, C, *S]
    weight: Tensor,  # [O, C/G, *k]
    positions: int,  # about how many are wanted at a time
    values: int,  # channels times positions, at most
) -> Iterator[Window]:
    """All windows of a sample; each (output, channel, position) is in one of them."""
    sizes = tuple(x.shape[2:]) if call.transposed else output_size(call, x, weight)
    row = max(1, math.prod(sizes[1:]))
    inputs = weight.shape[1]
    parts = max(1, math.ceil(sizes[0] * row / max(positions, row)))
    height = max(1, math.ceil(sizes[0] / parts))
    step = max(1, min(inputs, values // (height * row)))
    for group in range(call.groups):
        for first in range(0, sizes[0], height):
            last = min(sizes[0], first + height)
            seen, rows = _rows(call, weight, first, last)
            for start in range(0, inputs, step):
                stop = min(inputs, start + step)
                own = slice(group * inputs + start, group * inputs + stop)
                yield Window(group, slice(start, stop), own, seen, rows, (stop - start) * (last - first) * row)


def _rows(call: Call, weight: Tensor, start: int, stop: int) -> tuple[slice, slice]:
    """Rows of x and of y, where `start` to `stop` are those of y, or of x in a transposed layer."""
    stride = call.stride[0]
    reach = slice(start * stride, (stop - 1) * stride + call.dilation[0] * (weight.shape[2] - 1) + 1)
    return (slice(start, stop), reach) if call.transposed else (reach, slice(start, stop))


def tiles(call: Call, outputs: int, window: Window, most: int) -> Iterator[Tile]:
    """At most `most` neurons at a time that see the window."""
    for block, group, start, stop in neurons(call, outputs, most):
        if group == window.group:
            yield Tile(window, block, slice(start, stop))
