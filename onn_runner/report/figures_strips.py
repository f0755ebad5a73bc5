"""Image strips: input | output | target | error of chosen items, one scale of errors for all; signals as lines."""

from __future__ import annotations

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
from matplotlib.patches import Rectangle
from matplotlib.ticker import MaxNLocator

from onn_runner.report.closeup import Window
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
from onn_runner.report.pixels import (
    LARGEST,
    TILES,
    Strip,
    error_of,
    error_scale,
    factor_of,
    part_of,
    picture,
    reduced,
    shown,
    tile_columns,
    window_of,
)

Array = npt.NDArray[np.float32]
Extent = tuple[float, float, float, float]
"""(left, right, bottom, top) in inches."""

TEXT, GAP, TITLE, BAR = 1.95, 0.08, 0.62, 0.85
"""Inches: the column of words, between panels, above the first row, right of the last panel."""
FRAME = "#00b3ff"


def strips(items: Sequence[Strip], *, title: str, data_range: tuple[float, float]) -> bytes:
    """The PNG. Images are shown in `data_range`, inputs of another size than the target enlarged or reduced."""
    with plain_style():
        if items[0].target.ndim == 2:
            return png(_signals(items, title))
        return png(_images(items, title, data_range))


def _images(items: Sequence[Strip], title: str, data_range: tuple[float, float]) -> Figure:
    windows = [window_of(item) for item in items]
    errors = [error_of(item) for item in items]
    limit, beyond = error_scale(errors)
    sizes = [error.shape for error in errors]
    panel = float(np.clip(max(max(size) for size in sizes) / DPI, 1.55, LARGEST / DPI))
    heights = [panel * float(np.clip(size[0] / size[1], 0.3, 1.5)) for size in sizes]
    heights = [max(height, 1.3) for height in heights]
    close = [0.0 if one is None else panel * float(np.clip(one.height / one.width, 0.3, 1.0)) for one in windows]
    below = sum(height + GAP for height in close if height)
    figure = blank(TEXT + 4 * (panel + GAP) + BAR, TITLE + sum(heights) + GAP * len(items) + below + 0.3)
    text_at(figure, 0.1, 0.1, shortened(title, 110), weight="bold")
    look = _Look(data_range, _error_colours(), Normalize(0, limit), panel)
    sheet = _sheet(figure)
    for column, words in enumerate(("input", "output", "target", "|output - target|")):
        sheet.text(TEXT + column * (panel + GAP) + panel / 2, TITLE - 0.06, words, ha="center", va="bottom")
    top = TITLE
    for item, window, height, own_height in zip(items, windows, heights, close, strict=True):
        _words(figure, item, top, _notes(item))
        _draw_row(sheet, item, look, (top, height), window)
        top += height + GAP
        if window is not None:
            where = f"{window.height} x {window.width} at {window.top}, {window.left}:\nlargest mean error, full size"
            text_at(figure, 0.1, top, where, fontsize=7.0, linespacing=1.35, color=FRAME)
            _draw_row(sheet, part_of(item, window), look, (top, own_height))
            top += own_height + GAP
    _colour_bar(figure, look, beyond, left=TEXT + 4 * (panel + GAP) + 0.05, height=top - GAP - TITLE)
    text_at(figure, 0.1, top + 0.05, _explained(items, data_range), color="#555555")
    return figure


@dataclass(frozen=True)
class _Look:
    data_range: tuple[float, float]
    colours: Colormap
    errors: Normalize
    panel: float
    """Inches of a panel's width."""


def _draw_row(sheet: Axes, item: Strip, look: _Look, place: tuple[float, float], window: Window | None = None) -> None:
    """Input, output, target and error at (top, height), with the window's frame where there is one."""
    top, height = place
    arrays = (item.input, item.output, item.target, item.target)
    for column, values in enumerate(arrays):
        where = (TEXT + column * (look.panel + GAP), top, look.panel, height)
        if column < 3:
            extent = _place(sheet, picture(values, look.data_range), where)
        else:
            errors = np.ma.masked_invalid(reduced(error_of(item)[None])[0])
            extent = _place(sheet, errors, where, cmap=look.colours, norm=look.errors)
        _divide_tiles(sheet, values, extent)
        if window is not None:
            _frame(sheet, window, values, item.target.shape[-1], extent)


def _explained(items: Sequence[Strip], data_range: tuple[float, float]) -> str:
    """The line below: of what is to be seen."""
    arrays = [values for item in items for values in (item.input, item.output, item.target)]
    parts = [f"Values from {data_range[0]:g} to {data_range[1]:g} are shown"]
    if any(len(item.target) == 3 for item in items):
        parts.append("errors of colours are means of three")
    if not all(np.isfinite(values).all() for values in arrays):
        parts.append("cyan: not finite")
    return "; ".join(parts) + "."


def _frame(sheet: Axes, window: Window, values: Array, across: int, extent: Extent) -> None:
    """Around the window of an image whose target has `across` columns, in the first of several tiles."""
    left, right, _, top = extent
    height, width = shown(values).shape[1:]
    factor = factor_of(height, width)
    scale = (right - left) / max(width // factor * factor, 1) * values.shape[-1] / across
    corner = (left + window.left * scale, top + window.top * scale)
    sheet.add_patch(
        Rectangle(corner, window.width * scale, window.height * scale, fill=False, edgecolor=FRAME, linewidth=0.9)
    )


def _sheet(figure: Figure) -> Axes:
    """Axes over the whole figure, in inches from its upper left corner: many small ones would take seconds."""
    width, height = figure.get_size_inches()
    sheet = figure.add_axes((0, 0, 1, 1))
    sheet.set_axis_off()
    sheet.set(xlim=(0, width), ylim=(height, 0), autoscale_on=False)
    return sheet


def _place(sheet: Axes, values: Any, place: tuple[float, float, float, float], **options: Any) -> Extent:
    """[H, W, ...] as large as fits into (left, top, width, height), in its middle; gives its extent."""
    left, top, width, height = place
    scale = min(width / values.shape[1], height / values.shape[0])
    x, y = left + (width - scale * values.shape[1]) / 2, top + (height - scale * values.shape[0]) / 2
    extent = (x, x + scale * values.shape[1], y + scale * values.shape[0], y)
    sheet.imshow(values, extent=extent, aspect="auto", **options)
    return extent


def _colour_bar(figure: Figure, look: _Look, beyond: bool, *, left: float, height: float) -> None:
    place = axes_at(figure, left, TITLE, 0.12, height)
    scale = ScalarMappable(look.errors, look.colours)
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
    factor = factor_of(*shown(item.target).shape[1:])
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


def _divide_tiles(sheet: Axes, values: Array, extent: Extent) -> None:
    """White lines between channels that are shown side by side."""
    if len(values) in (1, 3):
        return
    left, right, bottom, top = extent
    columns = tile_columns(len(values))
    rows = -(-min(len(values), TILES) // columns)
    style: dict[str, Any] = {"color": "white", "linewidth": 1.5, "solid_capstyle": "butt"}
    for column in range(1, columns):
        sheet.plot([left + (right - left) * column / columns] * 2, [top, bottom], **style)
    for row in range(1, rows):
        sheet.plot([left, right], [top + (bottom - top) * row / rows] * 2, **style)


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
