"""Learning curves of all methods of a study over one another: the mean over folds, and how far folds are apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from onn_runner.report.figures import axes_at
from onn_runner.report.figures_study_base import (
    Mark,
    empty,
    grid,
    legend,
    logarithmic_ticks,
    named,
    page_style,
    svg,
    worth_showing,
)

Array = npt.NDArray[np.float64]

POINTS = 160
"""Of a curve that are drawn; of more epochs evenly spread ones, the first and the last among them."""
WIDTH, SIDE = 9.2, 0.72
"""Inches: the figure's width, and what the axis labels of a panel take."""


@dataclass(frozen=True)
class MethodCurve:
    """One quantity of one method over the epochs."""

    mark: Mark
    epochs: Array  # [E]
    mean: Array  # [E]
    low: Array  # [E] the smallest of the folds
    high: Array  # [E]


@dataclass(frozen=True)
class Panel:
    """One quantity of all methods."""

    label: str
    """Of the vertical axis."""
    curves: Sequence[MethodCurve]
    higher: bool | None
    logarithmic: bool = False


def learning_curves(panels: Sequence[Panel], *, alternative: str) -> str:
    """SVG: panels side by side, one key of the methods above."""
    marks = list({curve.mark: None for panel in panels for curve in panel.curves})
    with page_style():
        entries = _entries(marks)
        columns = max(1, min(4, 120 // max(12, *(len(str(entry.get_label())) + 6 for entry in entries))))
        rows = -(-len(entries) // columns)
        top = 0.12 + 0.21 * rows + 0.12
        figure = empty(WIDTH, top + 3.45)
        wide = WIDTH / len(panels)
        for number, panel in enumerate(panels):
            axes = axes_at(figure, number * wide + SIDE, top, wide - SIDE - 0.12, 3.0)
            _draw(axes, panel)
        legend(figure, entries, top=0.05, columns=columns)
        return svg(figure, alternative)


def _entries(marks: Sequence[Mark]) -> list[Line2D]:
    own = [mark for mark in marks if mark.place is not None]
    entries = [
        Line2D([], [], color=m.colour, linestyle=m.dashes, linewidth=1.8, marker=m.marker, markersize=4.5,
               label=f"{m.number} {named(m.label, 44)}")
        for m in sorted(own, key=lambda mark: mark.number)
    ]  # fmt: skip
    others = len(marks) - len(own)
    if others:
        faint = next(mark for mark in marks if mark.place is None)
        entries.append(Line2D([], [], color=faint.colour, linewidth=0.8, alpha=0.6, label=f"{others} others"))
    return entries


def _draw(axes: Axes, panel: Panel) -> None:
    longest = 1.0
    for curve in sorted(panel.curves, key=lambda c: (c.mark.place is not None, -c.mark.number)):
        chosen = _spread(len(curve.epochs))
        epochs, mean, low, high = (v[chosen] for v in (curve.epochs, curve.mean, curve.low, curve.high))
        longest = max(longest, float(epochs[-1]) if len(epochs) else 1.0)
        mark = curve.mark
        if mark.place is None:
            axes.plot(
                epochs, mean, color=mark.colour, linewidth=0.7, alpha=0.55, marker="." if len(epochs) == 1 else ""
            )
            continue
        axes.fill_between(epochs, low, high, color=mark.colour, alpha=0.13, linewidth=0)
        every = max(1, len(epochs) // 6)
        start = mark.place * every // 8
        axes.plot(epochs, mean, color=mark.colour, linestyle=mark.dashes, linewidth=1.6, marker=mark.marker,
                  markersize=4, markevery=(start, every))  # fmt: skip
    logarithmic = panel.logarithmic and _all_positive(panel)
    if logarithmic:
        axes.set_yscale("log")
    _limit(axes, panel, logarithmic)
    if logarithmic:
        logarithmic_ticks(axes.yaxis, lambda value: f"{value:.4g}")
    margin = max(0.5, 0.02 * longest)
    axes.set_xlim(1 - margin, longest + margin)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1, steps=[1, 2, 5, 10]))
    axes.set_xlabel("epoch")
    axes.set_ylabel(named(panel.label, 44))
    grid(axes, "both")


def _limit(axes: Axes, panel: Panel, logarithmic: bool) -> None:
    """Curves that end far worse than the others may leave the panel."""
    ends = np.array([[curve.mean[-1], curve.low[-1], curve.high[-1]] for curve in panel.curves])
    values = np.log10(ends) if logarithmic else ends
    limits = worth_showing(values[:, 0].tolist(), higher=panel.higher, within=(values[:, 2] - values[:, 1]).tolist())
    if limits is None:
        return
    low, high = (10.0 ** limits[0], 10.0 ** limits[1]) if logarithmic else limits
    shown = [curve for curve in panel.curves if low <= curve.mean[-1] <= high]
    axes.set_ylim(
        min(low, *(float(curve.low.min()) for curve in shown)), max(high, *(float(curve.high.max()) for curve in shown))
    )


def _spread(count: int) -> list[int]:
    if count <= POINTS:
        return list(range(count))
    return sorted({round(number * (count - 1) / (POINTS - 1)) for number in range(POINTS)})


def _all_positive(panel: Panel) -> bool:
    return all((curve.low[np.isfinite(curve.low)] > 0).all() for curve in panel.curves)
