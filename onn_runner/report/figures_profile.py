"""What networks cost: bars by layer, and lines over the size of the input."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

from onn_runner.analysis.costs import Cost, LayerCost, NetworkCost
from onn_runner.report.costs import Profile, by
from onn_runner.report.figures import BLUE, ORANGE, axes_at, blank, plain_style, png, shortened, text_at

MOST_LAYERS = 40
"""Layers that get a bar; of more, the costliest by time."""
COLOURS = (BLUE, ORANGE)
ROW, LABEL, PANEL, GAP, TOP, PLOT = 0.21, 1.75, 2.05, 0.35, 1.0, 1.9
"""Inches: a layer's row, its name, a panel's width, between panels, above the bars, a plot's height."""
BARS: tuple[tuple[str, Callable[[Cost], float]], ...] = (
    ("parameters [thousands]", lambda cost: cost.parameters / 1e3),
    ("computed MACs [millions]", lambda cost: cost.computed_macs / 1e6),
    ("kept for backward [MiB]", lambda cost: cost.kept / 2**20),
    ("forward, backward (pale) [ms]", lambda cost: 1e3 * cost.forward),
)
LINES: tuple[tuple[str, Callable[[NetworkCost], float]], ...] = (
    ("computed MACs [millions]", lambda cost: cost.total.computed_macs / 1e6),
    ("kept for backward [MiB]", lambda cost: cost.total.kept / 2**20),
    ("peak of a step [MiB]", lambda cost: cost.peak / 2**20),
    ("forward + backward [ms]", lambda cost: 1e3 * (cost.total.forward + cost.total.backward)),
)


def profile_figure(profiles: Sequence[Profile], *, device: str) -> bytes:
    """The PNG: a row a layer with its costs, then each cost of the whole network over the input's size."""
    names = _names(profiles)
    height = ROW * len(names) * max(1.0, 0.8 * len(profiles)) + 0.1
    with plain_style():
        lower = TOP + height + 0.95
        figure = blank(LABEL + len(BARS) * (PANEL + GAP), lower + PLOT + 0.55)
        own = profiles[0].own
        title = f"Costs of {' and '.join(one.label for one in profiles)}"
        batch = f"inputs of {by(own.size)}, batch of {own.batch}, {device}"
        told = f"{batch}; counts of one sample, memory and time of the batch"
        text_at(figure, 0.1, 0.1, shortened(title, 120), weight="bold")
        text_at(figure, 0.1, 0.32, told, color="#555555")
        handles = [Patch(color=colour, label=one.label) for colour, one in zip(COLOURS, profiles, strict=False)]
        figure.legend(
            handles=handles, loc="upper left", bbox_to_anchor=(0.0, 1 - 0.48 / figure.get_figheight()), ncols=2
        )
        for column, (words, value) in enumerate(BARS):
            axes = axes_at(figure, LABEL + column * (PANEL + GAP), TOP, PANEL, height)
            _draw_bars(axes, profiles, names, value, timed=column == len(BARS) - 1)
            axes.set_title(words, fontsize=8)
            if column == 0:
                axes.set_yticks(range(len(names)), [shortened(name, 26) for name in names])
            else:
                axes.set_yticks([])
        _draw_growth(figure, profiles, lower)
        return png(figure)


def _names(profiles: Sequence[Profile]) -> list[str]:
    """Layers in their order; of too many, the costliest."""
    names = list(dict.fromkeys(row.name for one in profiles for row in one.own.layers))
    if len(names) <= MOST_LAYERS:
        return names
    costs = [_by_name(one) for one in profiles]

    def seconds(name: str) -> float:
        return sum(own[name].cost.forward + own[name].cost.backward for own in costs if name in own)

    kept = set(sorted(names, key=seconds, reverse=True)[:MOST_LAYERS])
    return [name for name in names if name in kept]


def _by_name(profile: Profile) -> dict[str, LayerCost]:
    return {row.name: row for row in profile.own.layers}


def _draw_bars(
    axes: Axes, profiles: Sequence[Profile], names: Sequence[str], value: Callable[[Cost], float], *, timed: bool
) -> None:
    thick = 0.8 / len(profiles)
    for number, (one, colour) in enumerate(zip(profiles, COLOURS, strict=False)):
        rows = _by_name(one)
        places = [position - 0.4 + (number + 0.5) * thick for position, name in enumerate(names) if name in rows]
        costs = [rows[name].cost for name in names if name in rows]
        widths = [value(cost) for cost in costs]
        axes.barh(places, widths, height=0.9 * thick, color=colour)
        if timed:
            backward = [1e3 * cost.backward for cost in costs]
            axes.barh(places, backward, left=widths, height=0.9 * thick, color=colour, alpha=0.45)
    axes.set_ylim(len(names) - 0.45, -0.55)
    axes.set_xlim(left=0)
    axes.xaxis.set_major_locator(MaxNLocator(4))
    axes.grid(axis="x", color="#e8e8e8", linewidth=0.4)
    axes.set_axisbelow(True)


def _draw_growth(figure: Figure, profiles: Sequence[Profile], top: float) -> None:
    text_at(figure, 0.1, top - 0.38, "By size of the input (side of a square of as many positions)", weight="bold")
    width, between = PANEL - 0.12, 0.66
    for column, (words, value) in enumerate(LINES):
        axes = axes_at(figure, 0.62 + column * (width + between), top, width, PLOT)
        sides: list[float] = []
        for one, colour, dashes in zip(profiles, COLOURS, ("-", "--"), strict=False):
            x, y = [_side(cost) for cost in one.growth], [value(cost) for cost in one.growth]
            # Dashed, so that equal lines are seen as two.
            axes.plot(x, y, color=colour, linestyle=dashes, marker="o", markersize=3.5, linewidth=1.2)
            sides += x
        axes.set_title(words, fontsize=8)
        positive = all(value(cost) > 0 for one in profiles for cost in one.growth)
        _make_logarithmic(axes, sorted(set(sides)), profiles[0], both=positive)


def _side(cost: NetworkCost) -> float:
    return math.prod(cost.size) ** (1 / len(cost.size))


def _make_logarithmic(axes: Axes, sides: Sequence[float], profile: Profile, *, both: bool) -> None:
    """Plain numbers on both axes, the sizes that were measured below; zeros have no place on the other one."""
    axes.set_xscale("log")
    axes.xaxis.set_minor_locator(NullLocator())
    names = {_side(cost): by(cost.size) for cost in profile.growth}
    axes.set_xticks(sides, [names.get(side, f"{side:.0f}") for side in sides])
    if both:
        axes.set_yscale("log")
        low, high = axes.get_ylim()
        decades = math.log10(high / low)
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0,) if decades > 2 else (1.0, 2.0, 5.0), numticks=12))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, place: f"{value:.4g}"))
        axes.yaxis.set_minor_formatter(NullFormatter())
    else:
        axes.set_ylim(bottom=0)
    axes.grid(color="#dddddd", linewidth=0.4)
