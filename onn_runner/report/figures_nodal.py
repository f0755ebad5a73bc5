"""Learned nodal functions of a few neurons, and histograms of their arguments against the calibrated range."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from onn_runner.report.figures import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    axes_at,
    blank,
    plain_style,
    png,
    shortened,
    text_at,
)
from onn_runner.report.layer_use import Arguments, Connection, LayerUse, Neuron

MOST_LAYERS = 16
BINS = 60
BAND = "#e3e3e3"
LABEL = 1.35
"""Inches for the layer's name."""
_COLOURS, _DASHES = (BLUE, ORANGE, GREEN), ("-", "--", "-.")


def nodal_functions(layers: Sequence[LayerUse], *, title: str) -> bytes:
    """The PNG: a row a layer, a plot a neuron, a line a connection, over the x that the layer was given."""
    shown, note = _limited(layers)
    width, height, gap = 2.15, 1.2, 0.42
    words = 0.62
    columns = max(len(layer.neurons) for layer in shown)
    with plain_style():
        figure = blank(LABEL + columns * (width + gap) + 0.1, 0.75 + len(shown) * (height + words + 0.38))
        text_at(figure, 0.1, 0.1, shortened(title + note, 22 + columns * 30), weight="bold")
        powers = "" if all(layer.kind == "onn" for layer in shown) else ", for Self-ONN w1 x + w2 x² + ..."
        which = "the connections with the largest, middle and smallest weight over the x seen"
        told = f"psi(w, x){powers}: {which}; dotted: x = ±1"
        text_at(figure, 0.1, 0.32, told, color="#555555")
        for row, layer in enumerate(shown):
            top = 0.62 + row * (height + words + 0.38)
            text_at(figure, 0.1, top + words, shortened(layer.name, 22) + "\n" + shortened(layer.kind, 22))
            for column, neuron in enumerate(layer.neurons):
                left = LABEL + column * (width + gap)
                text_at(
                    figure,
                    left,
                    top,
                    f"neuron {neuron.number}: {shortened(neuron.operator, 20)}",
                    weight="bold",
                    fontsize=7.5,
                )
                for line, connection in enumerate(neuron.connections):
                    text_at(
                        figure, left, top + 0.16 + 0.14 * line, _described(connection),
                        color=_COLOURS[line], fontsize=6.5,
                    )  # fmt: skip
                axes = axes_at(figure, left, top + words, width, height)
                _draw_neuron(axes, neuron)
                if column == 0:
                    axes.set_ylabel("psi")
                if row == len(shown) - 1:
                    axes.set_xlabel("x")
        return png(figure)


def _draw_neuron(axes: Axes, neuron: Neuron) -> None:
    low, high = float(neuron.x[0]), float(neuron.x[-1])
    for edge in (-1.0, 1.0):
        if low < edge < high:
            axes.axvline(edge, color=GREY, linewidth=0.7, linestyle=":")
    for line, connection in enumerate(neuron.connections):
        style: dict[str, Any] = {"color": _COLOURS[line], "linestyle": _DASHES[line], "linewidth": 1.1}
        axes.plot(neuron.x, np.ma.masked_invalid(connection.values), **style)
    if low < high:
        axes.set_xlim(low, high)
    axes.grid(color="#e8e8e8", linewidth=0.4)


def _described(connection: Connection) -> str:
    tap = ",".join(map(str, connection.tap))
    weights = ", ".join(f"{w:.2g}" for w in connection.weights[:4]) + (", …" if len(connection.weights) > 4 else "")
    return f"channel {connection.channel}, tap {tap}: w = {weights}"


def arguments(layers: Sequence[LayerUse], *, before: Sequence[LayerUse], title: str) -> bytes:
    """The PNG: a row a layer, a histogram an operator. `before`: the same layers with the weights they started with."""
    shown, note = _limited(layers)
    earlier = {(layer.name, part.operator): part for layer in before for part in layer.arguments}
    width, height, gap = 3.0, 1.25, 0.6
    columns = max(len(layer.arguments) for layer in shown)
    with plain_style():
        figure = blank(max(LABEL + columns * (width + gap), 6.2), 0.95 + len(shown) * (height + 0.75))
        text_at(figure, 0.1, 0.1, shortened(title + note, 50 + columns * 12), weight="bold")
        _legend(figure, [part for layer in shown for part in layer.arguments])
        for row, layer in enumerate(shown):
            top = 1.05 + row * (height + 0.75)
            text_at(figure, 0.1, top, shortened(layer.name, 22) + "\n" + shortened(layer.kind, 22))
            for column, part in enumerate(layer.arguments):
                axes = axes_at(figure, LABEL + column * (width + gap), top, width, height)
                _draw_histogram(axes, part, earlier.get((layer.name, part.operator)))
        return png(figure)


def _draw_histogram(axes: Axes, part: Arguments, before: Arguments | None) -> None:
    reach = max(1.15 * part.calibrated, float(np.percentile(np.abs(part.values), 99.9)))
    edges = np.linspace(-reach, reach, BINS + 1).tolist()
    axes.axvspan(-part.calibrated, part.calibrated, color=BAND, linewidth=0)
    for mark, dashes in ((part.linear, ":"), (part.turning, "-.")):
        if mark is not None and mark < reach:
            for place in (-mark, mark):
                axes.axvline(place, color=BLACK, linewidth=0.8, linestyle=dashes)
    share = np.full(len(part.values), 1 / len(part.values))
    axes.hist(part.values, bins=edges, weights=share, histtype="stepfilled", color=BLUE)
    if before is not None:
        share = np.full(len(before.values), 1 / len(before.values))
        axes.hist(before.values, bins=edges, weights=share, histtype="step", color=ORANGE, linewidth=0.9)
    axes.set_xlim(-reach, reach)
    _mark_cut(axes, part.values, reach)
    axes.yaxis.set_major_locator(MaxNLocator(3))
    axes.set_xlabel(part.symbol, labelpad=1)
    axes.set_ylabel("share")
    neurons = f"{shortened(part.operator, 30)}, {part.neurons} neuron{'s' * (part.neurons != 1)}"
    axes.set_title(f"{neurons}\n{_summary(part, before)}", loc="left", fontsize=7.5)


def _mark_cut(axes: Axes, values: npt.NDArray[np.float64], reach: float) -> None:
    """`< 0.05 %` at the side on which so many values lie beyond the axis."""
    for side, sign, text in (("left", -1, "◂ {}"), ("right", 1, "{} ▸")):
        share = 100 * float(np.mean(sign * values > reach))
        if share > 0:
            told = f"{share:.2f} %" if share >= 0.005 else "< 0.01 %"
            place = 0.012 if sign < 0 else 1.0
            axes.text(place, 0.98, text.format(told), transform=axes.transAxes, ha=side, va="top", fontsize=6.0)


def _summary(part: Arguments, before: Arguments | None) -> str:
    """`non-linear 8.1 % -> 3.2 %`, and how much lies beyond the calibrated range."""
    started = "" if before is None else f"{100 * before.nonlinearity:.1f} → "
    beyond = 100 * float(np.mean(np.abs(part.values) > part.calibrated))
    return f"non-linear {started}{100 * part.nonlinearity:.1f} %, {beyond:.1f} % beyond the range"


def _legend(figure: Figure, parts: Sequence[Arguments]) -> None:
    handles: list[Patch | Line2D] = [
        Patch(color=BLUE, label="trained"),
        Patch(facecolor="none", edgecolor=ORANGE, label="at the start"),
        Patch(color=BAND, label="calibrated range"),
    ]
    if any(part.linear is not None for part in parts):
        handles.append(Line2D([], [], color=BLACK, linestyle=":", label="99 % linear within"))
    if any(part.turning is not None for part in parts):
        handles.append(Line2D([], [], color=BLACK, linestyle="-.", label="flat or turning beyond"))
    figure.legend(handles=handles, loc="upper left", bbox_to_anchor=(0.0, 1 - 0.27 / figure.get_figheight()), ncols=5)


def _limited(layers: Sequence[LayerUse]) -> tuple[Sequence[LayerUse], str]:
    """At most MOST_LAYERS of them, evenly from the first to the last, and a note where some are left out."""
    if len(layers) <= MOST_LAYERS:
        return layers, ""
    chosen = sorted({round(n * (len(layers) - 1) / (MOST_LAYERS - 1)) for n in range(MOST_LAYERS)})
    return [layers[n] for n in chosen], f" ({len(chosen)} of {len(layers)} layers)"
