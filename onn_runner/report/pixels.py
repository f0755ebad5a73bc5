"""What of an item is shown, as pixels: averaged down where it is large, channels side by side, its error."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from onn_runner.report.closeup import Window, worst_window
from onn_runner.report.figures import BAD

Array = npt.NDArray[np.float32]

LARGEST = 256
"""Pixels of a side that are shown; larger images are averaged down."""
CLOSE = 128
"""Pixels of a side of the part that is shown at full size too, of images that are averaged down."""
TILES = 9
"""Channels that are shown side by side, where they are not one or a colour's three."""
COVERED = 99.5
"""Per cent of all errors that the colour scale covers: single pixels shall not darken all others."""


@dataclass(frozen=True)
class Strip:
    """One item. Its error is that of the channels that are shown of an image, of the first of a signal."""

    rank: str
    """`worst`, `median`, `best`."""
    name: str
    scores: Sequence[str]
    """A line of text each."""
    input: Array  # [C, *S]
    output: Array  # [C', *S']
    target: Array  # [C', *S']


def picture(values: Array, data_range: tuple[float, float]) -> npt.NDArray[np.float64]:
    """[C, *S] -> [H, W, 3] in [0, 1]; values that are not finite are cyan."""
    low, high = data_range
    values = reduced(shown(values)).astype(np.float64)
    scaled = np.clip((values - low) / (high - low), 0, 1)
    picture = np.moveaxis(np.broadcast_to(scaled, (3, *values.shape[1:])), 0, -1).copy()
    picture[~np.isfinite(values).all(0)] = BAD
    return picture


def shown(values: Array) -> Array:
    """[C, *S] -> [1 or 3, H, W]: other numbers of channels side by side in rows, of a volume the middle slice."""
    values = middle_slice(values)
    if len(values) in (1, 3):
        return values
    count, (height, width) = min(len(values), TILES), values.shape[1:]
    columns = tile_columns(count)
    tiles = np.zeros((-(-count // columns) * columns, height, width), values.dtype)
    tiles[:count] = values[:count]
    rows: Array = tiles.reshape(-1, columns, height, width).swapaxes(1, 2).reshape(1, -1, columns * width)
    return rows


def middle_slice(values: Array) -> Array:
    """[C, *S] -> [C, H, W]: of a volume the middle slice."""
    return values[:, values.shape[1] // 2] if values.ndim == 4 else values


def tile_columns(channels: int) -> int:
    """Tiles side by side."""
    return math.ceil(math.sqrt(min(channels, TILES)))


def error_of(item: Strip) -> Array:
    """[H, W]"""
    with np.errstate(invalid="ignore"):
        error: Array = np.abs(shown(item.output) - shown(item.target)).mean(0)
    return error


def reduced(values: Array) -> Array:
    """[C, H, W], means over squares where a side is longer than LARGEST; the rest at the border falls away."""
    factor = factor_of(*values.shape[1:])
    if factor == 1:
        return values
    channels, rows, columns = len(values), values.shape[1] // factor, values.shape[2] // factor
    if not rows or not columns:
        return values[:, ::factor, ::factor]
    squares = values[:, : rows * factor, : columns * factor].reshape(channels, rows, factor, columns, factor)
    means: Array = squares.mean((2, 4))
    return means


def factor_of(height: int, width: int) -> int:
    return -(-max(height, width) // LARGEST)


def error_scale(errors: Sequence[Array]) -> tuple[float, bool]:
    """The largest error of the colour scale, and whether there are larger ones."""
    finite = np.concatenate([error[np.isfinite(error)] for error in errors])
    if not finite.size or finite.max() == 0:
        return 1.0, False
    limit = float(np.percentile(finite, COVERED)) or float(finite.max())
    return limit, bool(finite.max() > limit)


def window_of(item: Strip) -> Window | None:
    """What is worth seeing at full size; None where all of the item is."""
    if factor_of(*shown(item.target).shape[1:]) == 1:
        return None
    target, output = middle_slice(item.target), middle_slice(item.output)
    side = CLOSE if len(target) in (1, 3) else LARGEST // tile_columns(len(target))
    with np.errstate(invalid="ignore"):
        return worst_window(np.abs(output - target).mean(0), side=side)


def part_of(item: Strip, window: Window) -> Strip:
    size = item.target.shape[-2:]
    given, output, target = (window.of(middle_slice(values), size) for values in (item.input, item.output, item.target))
    return replace(item, input=given, output=output, target=target)
