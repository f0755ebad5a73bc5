"""Pieces of a layer that are computed one after another: some samples, channels, rows and neurons at a time."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor

from onn_runner.compute.base import Block, Call
from onn_runner.compute.geometry import output_size

POSITIONS = 1 << 12
"""Positions of a window, about, where there are neurons enough; at least one row."""


@dataclass(frozen=True)
class Window:
    """Samples and channels of one group over some rows, which are ranges of the first spatial axis."""

    samples: slice
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
    """Channels times positions of all samples."""

    def of(self, x: Tensor) -> Tensor:
        """Its part of something shaped as x, [c, b, *S]."""
        return x[self.samples, self.inputs, self.seen].transpose(0, 1)


@dataclass(frozen=True)
class Tile:
    """A window and neurons of one operator that see it."""

    window: Window
    block: Block
    neurons: slice

    def of(self, kind: str, values: Tensor) -> Tensor:
        """Its part of something shaped as input "x", weight "w" or output "y": [c, b, *S], [o, c, *k], [o, b, *S']."""
        window = self.window
        if kind == "w":
            return values[self.neurons, window.channels]
        return window.of(values) if kind == "x" else values[window.samples, self.neurons, window.rows].transpose(0, 1)


def batches(call: Call, x: Tensor, weight: Tensor, values: int) -> Iterator[slice]:
    """Samples that are computed together, several where they are small; see `windows`."""
    step = _even(len(x), max(1, values // max(1, _together(call, weight) * math.prod(_sizes(call, x, weight)))))
    for start in range(0, len(x), step):
        yield slice(start, min(len(x), start + step))


def windows(
    call: Call,
    x: Tensor,  # [B, C, *S]
    weight: Tensor,  # [O, C/G, *k]
    samples: slice,
    values: int,  # neurons times channels times positions that are wanted at a time
) -> Iterator[Window]:
    """All windows of these samples; each (output, channel, position) is in one of them.

    Of few channels, so that the tiles have many neurons: what psi computes of x alone it does once for all of them.
    """
    sizes = _sizes(call, x, weight)
    row = max(1, math.prod(sizes[1:]) * (samples.stop - samples.start))
    neurons, inputs = _together(call, weight), weight.shape[1]
    height = _even(sizes[0], max(1, max(POSITIONS, values // max(1, neurons * inputs)) // row))
    step = _even(inputs, max(1, values // max(1, neurons * height * row)))
    for group in range(call.groups):
        for first in range(0, sizes[0], height):
            last = min(sizes[0], first + height)
            seen, rows = _rows(call, weight, first, last)
            for start in range(0, inputs, step):
                stop = min(inputs, start + step)
                own = slice(group * inputs + start, group * inputs + stop)
                yield Window(samples, group, slice(start, stop), own, seen, rows, (stop - start) * (last - first) * row)


def _sizes(call: Call, x: Tensor, weight: Tensor) -> tuple[int, ...]:
    """The positions that are cut: those of y, or of x in a transposed layer."""
    return tuple(x.shape[2:]) if call.transposed else output_size(call, x, weight)


def _together(call: Call, weight: Tensor) -> int:
    """How many neurons of one operator and group there are at most."""
    return min(len(weight) // call.groups, max(block.stop - block.start for block in call.blocks))


def _even(count: int, most: int) -> int:
    """The size of as many parts as parts of at most `most` would be, but about equal ones."""
    return max(1, math.ceil(count / max(1, math.ceil(count / most))))


def _rows(call: Call, weight: Tensor, start: int, stop: int) -> tuple[slice, slice]:
    """Rows of x and of y, where `start` to `stop` are those of y, or of x in a transposed layer."""
    stride = call.stride[0]
    reach = slice(start * stride, (stop - 1) * stride + call.dilation[0] * (weight.shape[2] - 1) + 1)
    return (slice(start, stop), reach) if call.transposed else (reach, slice(start, stop))


def tiles(call: Call, outputs: int, window: Window, values: int) -> Iterator[Tile]:
    """All neurons that see the window, so many at a time that they have at most `values` values together."""
    per_group = outputs // call.groups
    for block in call.blocks:
        first = max(block.start, window.group * per_group)
        last = min(block.stop, (window.group + 1) * per_group)
        step = _even(last - first, max(1, values // max(1, window.size)))
        for start in range(first, last, step):
            yield Tile(window, block, slice(start, min(last, start + step)))
