"""Maps of where layers respond, a row an item and network, a column a layer, beside the input."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import matplotlib
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Colormap, Normalize

from onn_runner.analysis.attention import LayerAttention
from onn_runner.report.figures import BAD, BLACK, axes_at, blank, plain_style, png, shortened, text_at

MOST_LAYERS = 8
"""Columns; of more layers evenly from the first to the last."""
TEXT, PANEL, GAP, TOP, NAME, BAR = 1.5, 1.25, 0.08, 0.62, 0.17, 0.75
"""Inches: the column of words, a panel's width, between panels, above the first row, a layer's name, the colour bar."""
COLOURS = "magma"


@dataclass(frozen=True)
class Row:
    """One network's maps."""

    label: str
    layers: Sequence[LayerAttention]


def attention_figure(
    names: Sequence[str],
    inputs: npt.NDArray[np.float32],  # [B, C, *S]
    rows: Sequence[Row],
    *,
    title: str,
    data_range: tuple[float, float],
) -> bytes:
    """The PNG of images or signals; each map from its own least to its own most."""
    shown = [(row.label, _limited(row.layers)) for row in rows]
    columns = max(len(layers) for _, layers in shown)
    height = PANEL * float(np.clip(inputs.shape[2] / inputs.shape[3], 0.4, 1.6)) if inputs.ndim == 4 else 0.6
    step = height + NAME + GAP
    with plain_style():
        whole = TOP + len(names) * (len(rows) * step + 0.14) + 0.1
        figure = blank(TEXT + (columns + 1) * (PANEL + GAP) + BAR, whole)
        text_at(figure, 0.1, 0.1, shortened(title, 30 + 14 * columns), weight="bold")
        left_out = max(len(row.layers) for row in rows) - columns
        told = "mean over channels of the squared outputs of each layer, from its least to its most"
        text_at(figure, 0.1, 0.32, told + (f"; {left_out} layers between are left out" if left_out else ""),
                color="#555555")  # fmt: skip
        for item, name in enumerate(names):
            for number, (label, layers) in enumerate(shown):
                top = TOP + item * (len(rows) * step + 0.14) + number * step + NAME
                if number == 0:
                    text_at(figure, 0.1, top, shortened(name, 20))
                    text_at(figure, TEXT, top - 0.15, "input", fontsize=6.5)
                    _draw_input(axes_at(figure, TEXT, top, PANEL, height), inputs[item], data_range)
                text_at(figure, 0.1, top + height / 2, shortened(label, 20), weight="bold")
                for column, layer in enumerate(layers, start=1):
                    left = TEXT + column * (PANEL + GAP)
                    text_at(figure, left, top - 0.15, shortened(layer.name, 22), fontsize=6.5)
                    _draw_map(axes_at(figure, left, top, PANEL, height), layer.maps[item])
        bar = axes_at(figure, TEXT + (columns + 1) * (PANEL + GAP) + 0.1, TOP + NAME, 0.12, min(2.0, whole - 1.2))
        figure.colorbar(ScalarMappable(Normalize(0, 1), _colours()), cax=bar, ticks=[0, 1]).set_ticklabels(
            ["least", "most"]
        )
        return png(figure)


def _limited(layers: Sequence[LayerAttention]) -> list[LayerAttention]:
    if len(layers) <= MOST_LAYERS:
        return list(layers)
    chosen = sorted({round(n * (len(layers) - 1) / (MOST_LAYERS - 1)) for n in range(MOST_LAYERS)})
    return [layers[n] for n in chosen]


def _colours() -> Colormap:
    return matplotlib.colormaps[COLOURS].with_extremes(bad=BAD)


def _bare(axes: Axes) -> None:
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_visible(False)


def _draw_input(axes: Axes, values: npt.NDArray[np.float32], data_range: tuple[float, float]) -> None:
    """Three channels as a colour image, others by their mean; of a signal the first channel."""
    if values.ndim == 2:
        axes.plot(values[0], color=BLACK, linewidth=0.7)
        axes.set_xlim(0, max(1, values.shape[1] - 1))
        _bare(axes)
        return
    low, high = data_range
    scaled = np.clip((values - low) / (high - low), 0, 1)
    if len(values) == 3:
        axes.imshow(np.moveaxis(scaled, 0, -1))
    else:
        axes.imshow(scaled.mean(0), cmap="gray", vmin=0, vmax=1)
    _bare(axes)


def _draw_map(axes: Axes, values: npt.NDArray[np.float64]) -> None:
    picture = np.ma.masked_invalid(values if values.ndim == 2 else values[None])
    axes.imshow(picture, cmap=_colours(), vmin=0, vmax=1, aspect="equal" if values.ndim == 2 else "auto")
    _bare(axes)
