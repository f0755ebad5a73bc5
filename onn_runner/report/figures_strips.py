"""Image strips: input | output | target | error of chosen items, one scale of errors for all; signals as lines."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Colormap, Normalize
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from onn_runner.report.figures import (
    BAD,
    BLACK,
    BLUE,
    DPI,
    GREY,
    ORANGE,
    axes_at,
    blank,
    plain_style,
    png,
    shortened,
    text_at,
)

Array = npt.NDArray[np.float32]

TEXT, GAP, TITLE, BAR = 1.95, 0.08, 0.62, 0.85
"""Inches: the column of words, between panels, above the first row, right of the last panel."""
LARGEST = 256
"""Pixels of a side that are shown; larger images are averaged down."""
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


def strips(items: Sequence[Strip], *, title: str, data_range: tuple[float, float]) -> bytes:
    """The PNG. Images are shown in `data_range`, inputs of another size than the target enlarged or reduced."""
    with plain_style():
        if items[0].target.ndim == 2:
            return png(_signals(items, title))
        return png(_images(items, title, data_range))


def _images(items: Sequence[Strip], title: str, data_range: tuple[float, float]) -> Figure:
    errors = [_error(item) for item in items]
    limit, beyond = _scale(errors)
    sizes = [error.shape for error in errors]
    panel = float(np.clip(max(max(size) for size in sizes) / DPI, 1.55, LARGEST / DPI))
    heights = [panel * float(np.clip(size[0] / size[1], 0.3, 1.5)) for size in sizes]
    heights = [max(height, 1.3) for height in heights]
    figure = blank(TEXT + 4 * (panel + GAP) + BAR, TITLE + sum(heights) + GAP * len(items) + 0.3)
    text_at(figure, 0.1, 0.1, shortened(title, 110), weight="bold")
    colours = _error_colours()
    sheet = _sheet(figure)
    for column, words in enumerate(("input", "output", "target", "|output - target|")):
        sheet.text(TEXT + column * (panel + GAP) + panel / 2, TITLE - 0.06, words, ha="center", va="bottom")
    top = TITLE
    for item, error, height in zip(items, errors, heights, strict=True):
        _words(figure, item, top, _notes(item))
        panels = [picture(values, data_range) for values in (item.input, item.output, item.target)]
        for column, values in enumerate(panels):
            _place(sheet, values, (TEXT + column * (panel + GAP), top, panel, height))
        shown = np.ma.masked_invalid(_reduced(error[None])[0])
        place = (TEXT + 3 * (panel + GAP), top, panel, height)
        _place(sheet, shown, place, cmap=colours, norm=Normalize(0, limit))
        top += height + GAP
    _colour_bar(figure, colours, limit, beyond, left=TEXT + 4 * (panel + GAP) + 0.05, height=top - GAP - TITLE)
    low, high = data_range
    told = f"Values from {low:g} to {high:g} are shown; errors of colours are means of three; cyan: not finite."
    text_at(figure, 0.1, top + 0.05, told, color="#555555")
    return figure


def _sheet(figure: Figure) -> Axes:
    """Axes over the whole figure, in inches from its upper left corner: many small ones would take seconds."""
    width, height = figure.get_size_inches()
    sheet = figure.add_axes((0, 0, 1, 1))
    sheet.set_axis_off()
    sheet.set(xlim=(0, width), ylim=(height, 0), autoscale_on=False)
    return sheet


def _place(sheet: Axes, values: Any, place: tuple[float, float, float, float], **options: Any) -> None:
    """[H, W, ...] as large as fits into (left, top, width, height), in its middle."""
    left, top, width, height = place
    scale = min(width / values.shape[1], height / values.shape[0])
    x, y = left + (width - scale * values.shape[1]) / 2, top + (height - scale * values.shape[0]) / 2
    extent = (x, x + scale * values.shape[1], y + scale * values.shape[0], y)
    sheet.imshow(values, extent=extent, aspect="auto", **options)


def _colour_bar(figure: Figure, colours: Colormap, limit: float, beyond: bool, *, left: float, height: float) -> None:
    place = axes_at(figure, left, TITLE, 0.12, height)
    scale = ScalarMappable(Normalize(0, limit), colours)
    bar = figure.colorbar(scale, cax=place, extend="max" if beyond else "neither")
    bar.set_label("absolute error")
    bar.outline.set_linewidth(0.4)


def _words(figure: Figure, item: Strip, top: float, notes: Sequence[str]) -> None:
    text_at(figure, 0.1, top, item.rank, weight="bold")
    name = textwrap.wrap(shortened(item.name, 84), 28) or ["-"]
    lines = [*name, *item.scores, *notes]
    text_at(figure, 0.1, top + 0.16, "\n".join(lines), fontsize=7.0, linespacing=1.35)


def _notes(item: Strip) -> list[str]:
    """What is seen where it is not the whole item."""
    height, width = item.target.shape[-2:]
    size = f"{height} x {width}"
    if item.input.shape[1:] != item.target.shape[1:]:
        size = f"{' x '.join(map(str, item.input.shape[1:]))} to {size}"
    factor = _factor(*_shown(item.target).shape[1:])
    notes = [size + (f", shown at 1/{factor}" if factor > 1 else "")]
    if item.target.ndim == 4:
        notes.append("middle slice")
    for word, values in (("input", item.input), ("output", item.target)):
        channels = len(values)
        if channels not in (1, 3):
            notes.append(f"{word}: {channels} channels" + (f", 1-{TILES} shown" if channels > TILES else ""))
    if len(item.target) == 3 != len(item.input):
        notes.append("output: 3 channels as a colour")
    return notes


def picture(values: Array, data_range: tuple[float, float]) -> npt.NDArray[np.float64]:
    """[C, *S] -> [H, W, 3] in [0, 1]; values that are not finite are cyan."""
    low, high = data_range
    values = _reduced(_shown(values)).astype(np.float64)
    scaled = np.clip((values - low) / (high - low), 0, 1)
    picture = np.moveaxis(np.broadcast_to(scaled, (3, *values.shape[1:])), 0, -1).copy()
    picture[~np.isfinite(values).all(0)] = BAD
    return picture


def _shown(values: Array) -> Array:
    """[C, *S] -> [1 or 3, H, W]: other numbers of channels side by side in rows, of a volume the middle slice."""
    if values.ndim == 4:
        values = values[:, values.shape[1] // 2]
    if len(values) in (1, 3):
        return values
    count, (height, width) = min(len(values), TILES), values.shape[1:]
    columns = math.ceil(math.sqrt(count))
    tiles = np.zeros((-(-count // columns) * columns, height, width), values.dtype)
    tiles[:count] = values[:count]
    rows: Array = tiles.reshape(-1, columns, height, width).swapaxes(1, 2).reshape(1, -1, columns * width)
    return rows


def _error(item: Strip) -> Array:
    """[H, W]"""
    with np.errstate(invalid="ignore"):
        error: Array = np.abs(_shown(item.output) - _shown(item.target)).mean(0)
    return error


def _reduced(values: Array) -> Array:
    """[C, H, W], means over squares where a side is longer than LARGEST; the rest at the border falls away."""
    factor = _factor(*values.shape[1:])
    if factor == 1:
        return values
    channels, rows, columns = len(values), values.shape[1] // factor, values.shape[2] // factor
    if not rows or not columns:
        return values[:, ::factor, ::factor]
    squares = values[:, : rows * factor, : columns * factor].reshape(channels, rows, factor, columns, factor)
    means: Array = squares.mean((2, 4))
    return means


def _factor(height: int, width: int) -> int:
    return -(-max(height, width) // LARGEST)


def _scale(errors: Sequence[Array]) -> tuple[float, bool]:
    """The largest error of the colour scale, and whether there are larger ones."""
    finite = np.concatenate([error[np.isfinite(error)] for error in errors])
    if not finite.size or finite.max() == 0:
        return 1.0, False
    limit = float(np.percentile(finite, COVERED)) or float(finite.max())
    return limit, bool(finite.max() > limit)


def _error_colours() -> Colormap:
    return matplotlib.colormaps["magma"].with_extremes(bad=BAD)


def _signals(items: Sequence[Strip], title: str) -> Figure:
    """Lines over the samples, first channel; the errors below each other on one scale."""
    wide, height, between = 4.0, 1.25, 0.5
    figure = blank(TEXT + 2 * wide + 2 * between + 0.2, TITLE + len(items) * (height + 0.4) + 0.15)
    text_at(figure, 0.1, 0.1, shortened(title, 110), weight="bold")
    finite = np.concatenate([(error := item.output[0] - item.target[0])[np.isfinite(error)] for item in items])
    limit = 1.05 * float(np.abs(finite).max()) if finite.size and np.abs(finite).max() > 0 else 1.0
    for position, item in enumerate(items):
        top = TITLE + position * (height + 0.4)
        _words(figure, item, top, _signal_notes(item))
        lines = axes_at(figure, TEXT + between - 0.05, top, wide, height)
        _draw_lines(lines, item)
        errors = axes_at(figure, TEXT + wide + 2 * between, top, wide, height)
        errors.axhline(0, color=GREY, linewidth=0.6)
        errors.plot(item.output[0] - item.target[0], color=ORANGE, linewidth=0.8, **_marked(item.output))
        errors.set_ylim(-limit, limit)
        if position == 0:
            lines.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=3, borderaxespad=0.2)
            errors.set_title("output - target")
        for axes in (lines, errors):
            axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
        if position == len(items) - 1:
            lines.set_xlabel("sample")
            errors.set_xlabel("sample")
    return figure


def _draw_lines(axes: Axes, item: Strip) -> None:
    samples = np.arange(item.target.shape[1])
    # An input of another length covers the same span.
    spread = (np.arange(item.input.shape[1]) + 0.5) * len(samples) / item.input.shape[1] - 0.5
    axes.plot(spread, item.input[0], color=GREY, linewidth=0.7, label="input", **_marked(item.input))
    axes.plot(samples, item.target[0], color=BLACK, linewidth=0.9, label="target", **_marked(item.target))
    axes.plot(
        samples, item.output[0], color=BLUE, linewidth=0.9, linestyle="--", label="output", **_marked(item.output)
    )


def _marked(values: Array) -> dict[str, Any]:
    """One sample alone makes no line."""
    return {"marker": "."} if values.shape[1] == 1 else {}


def _signal_notes(item: Strip) -> list[str]:
    count = item.target.shape[1]
    notes = [f"{count} sample{'s' * (count != 1)}"]
    if len(item.target) > 1 or len(item.input) > 1:
        notes.append(f"channel 1 of {len(item.input)} in, {len(item.target)} out")
    if not np.isfinite(item.output).all():
        notes.append("gaps: not finite")
    return notes
