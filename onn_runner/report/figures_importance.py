"""How much each layer is missed, what it costs, and the indicator made of both: a row a layer, by rank."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter

from onn_runner.report.figures import BLUE, GREEN, GREY, ORANGE, axes_at, blank, plain_style, png, shortened, text_at
from onn_runner.report.importance import Importance, Reduction
from onn_runner.report.table import UNITS

MOST = 60
"""Rows: the first in rank."""
LABEL, PANEL, GAP, TOP, ROW = 1.6, 2.5, 0.55, 1.05, 0.24
"""Inches: a row's name, a panel's width, between panels, above the rows, a row's height."""


def importance_figure(reduction: Reduction, *, chosen: Collection[str]) -> bytes:
    """The PNG; `chosen`: names of what is to be left out."""
    shown = reduction.by_rank[:MOST]
    height = ROW * len(shown) + 0.1
    unit = UNITS.get(reduction.metric)
    name = reduction.metric.upper() + (f" [{unit}]" if unit else "")
    with plain_style():
        figure = blank(LABEL + 3 * (PANEL + GAP), TOP + height + 0.45)
        text_at(figure, 0.1, 0.1, shortened(f"Layer importance, {reduction.title}", 100), weight="bold")
        left_out = len(reduction.rows) - len(shown)
        more = f"; {left_out} more rows are in the table" if left_out else ""
        told = f"on {reduction.items}, each layer or block left out by itself (mask: {reduction.mask}){more}"
        text_at(figure, 0.1, 0.32, told, color="#555555")
        _legend(figure, shown, chosen)
        panels = [axes_at(figure, LABEL + n * (PANEL + GAP), TOP, PANEL, height) for n in range(3)]
        colours = [_colour(row, chosen) for row in shown]
        _draw_drops(panels[0], shown, colours)
        _draw_shares(panels[1], shown, colours)
        _draw_indicator(panels[2], shown, colours)
        titles = (f"drop of {name}", "share of parameters, MACs (pale) [%]", "RI (no bar: free, or stays)")
        for axes, title in zip(panels, titles, strict=True):
            axes.set_title(title, fontsize=8)
            axes.set_ylim(len(shown) - 0.45, -0.55)
            axes.grid(axis="x", color="#e8e8e8", linewidth=0.4)
            axes.set_axisbelow(True)
            axes.set_yticks([])
        names = [f"{'-' if row.rank is None else row.rank}  {shortened(row.name, 20)}" for row in shown]
        panels[0].set_yticks(range(len(shown)), names)
        return png(figure)


def _colour(row: Importance, chosen: Collection[str]) -> str:
    if row.rank is None:
        return GREY
    return ORANGE if row.name in chosen else BLUE


def _draw_drops(axes: Axes, rows: Sequence[Importance], colours: Sequence[str]) -> None:
    finite = [row.drop if math.isfinite(row.drop) else 0.0 for row in rows]
    axes.barh(range(len(rows)), finite, height=0.7, color=colours)
    axes.axvline(0, color="#555555", linewidth=0.6)
    for place, row in enumerate(rows):
        if not math.isfinite(row.drop):
            axes.text(0, place, " not finite without it", va="center", fontsize=6.5)
    axes.xaxis.set_major_locator(MaxNLocator(5))


def _draw_shares(axes: Axes, rows: Sequence[Importance], colours: Sequence[str]) -> None:
    places = range(len(rows))
    axes.barh([p - 0.2 for p in places], [100 * row.parameter_share for row in rows], height=0.36, color=colours)
    axes.barh([p + 0.2 for p in places], [100 * row.mac_share for row in rows], height=0.36, color=colours, alpha=0.45)
    axes.xaxis.set_major_locator(MaxNLocator(5))


def _draw_indicator(axes: Axes, rows: Sequence[Importance], colours: Sequence[str]) -> None:
    bars = [(n, row.importance) for n, row in enumerate(rows) if row.rank and 0 < row.importance < math.inf]
    axes.barh([n for n, _ in bars], [value for _, value in bars], height=0.7, color=[colours[n] for n, _ in bars])
    for place, row in enumerate(rows):
        if row.rank is not None and row.drop <= 0:
            axes.annotate("free", (0, place), xytext=(3, 0), textcoords="offset points", va="center", fontsize=6.5,
                          color=GREEN)  # fmt: skip
    if bars and max(value for _, value in bars) > 100 * min(value for _, value in bars):
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, place: f"{value:.3g}"))
        axes.xaxis.set_minor_formatter(NullFormatter())
    else:
        axes.xaxis.set_major_locator(MaxNLocator(4))


def _legend(figure: Figure, rows: Sequence[Importance], chosen: Collection[str]) -> None:
    known = {
        ORANGE: "left out in the proposal",
        BLUE: "could be left out",
        GREY: "stays",
    }
    used = {_colour(row, chosen) for row in rows}
    handles = [Patch(color=colour, label=label) for colour, label in known.items() if colour in used]
    top = 1 - 0.48 / figure.get_figheight()
    figure.legend(handles=handles, loc="upper left", bbox_to_anchor=(0.0, top), ncols=3)
