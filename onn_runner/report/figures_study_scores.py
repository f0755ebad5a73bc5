"""Scores of all methods of a study by fold: every value a point, quartiles behind, the mean as a line."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from onn_runner.report.figures import axes_at, text_at
from onn_runner.report.figures_study_base import (
    FAINT,
    HUES,
    INK,
    LINES,
    MARKERS,
    MOST,
    empty,
    grid,
    legend,
    named,
    page_style,
    svg,
    worth_showing,
)

WIDTH, ROW = 9.2, 0.3
FEWEST = 5
"""Values that have a box; of fewer their range is a line."""


@dataclass(frozen=True)
class MethodScores:
    """One score of one method."""

    number: int
    label: str
    values: Sequence[Sequence[float]]
    """Seed, then fold; a value that is not finite is not drawn."""
    mean: float | None
    seeds: Sequence[int | None] = ()
    """None: of no seed in particular."""
    baseline: bool = False


@dataclass(frozen=True)
class MethodDifference:
    """A method minus the baseline method in one score."""

    number: int
    label: str
    mean: float | None
    low: float | None
    high: float | None
    words: str = ""
    """Beside it: a p-value, or why there is no difference."""


def box_plots(methods: Sequence[MethodScores], *, label: str, higher: bool | None, alternative: str) -> str:
    """SVG: a row a method, in the order given; what is far worse than the others is a number at the border."""
    seeds = sorted({seed for method in methods for seed in method.seeds if seed is not None})
    with page_style():
        left, top = _margin([m.label for m in methods]), 0.42
        tall = max(1.0, ROW * len(methods))
        figure = empty(WIDTH, top + tall + 0.52)
        axes = axes_at(figure, left, top, WIDTH - left - 0.15, tall)
        for row, method in enumerate(methods):
            _draw_row(axes, row, method, seeds)
        _name_rows(axes, methods, [m.baseline for m in methods])
        axes.set_xlabel(named(label, 90))
        axes.xaxis.set_major_locator(MaxNLocator(nbins=8))
        _leave_out(axes, methods, higher)
        legend(figure, _entries(seeds, methods), top=0.02, columns=12)
        return svg(figure, alternative)


def _leave_out(axes: Axes, methods: Sequence[MethodScores], higher: bool | None) -> None:
    """Limit the axis where that is worth it, and write the means of the methods beyond."""
    finite = [[v for one in method.values for v in one if math.isfinite(v)] for method in methods]
    within = [max(values) - min(values) for values in finite if values]
    means = [method.mean for method in methods if method.mean is not None]
    limits = worth_showing(means, higher=higher, within=within)
    if limits is None:
        return
    # Single values of methods that are shown have room.
    shown = [m for m in methods if m.mean is not None and limits[0] <= m.mean <= limits[1]]
    values = [v for m in shown for one in m.values for v in one if math.isfinite(v)]
    low, high = min(limits[0], *values), max(limits[1], *values)
    room = 0.02 * (high - low)
    low, high = low - room, high + room
    axes.set_xlim(low, high)
    for row, method in enumerate(methods):
        if method.mean is None or low <= method.mean <= high:
            continue
        left = method.mean < low
        text = f"← {method.mean:.4g}" if left else f"{method.mean:.4g} →"
        place, side = (low, "left") if left else (high, "right")
        axes.text(place, row, f" {text} ", ha=side, va="center", fontsize=8, color=FAINT)


def differences(methods: Sequence[MethodDifference], *, label: str, higher: bool | None, alternative: str) -> str:
    """SVG: intervals of the difference to the baseline method, the line of no difference, which side is better."""
    with page_style():
        left, right, top = _margin([m.label for m in methods]), 2.35, 0.32
        tall = max(0.6, ROW * len(methods))
        figure = empty(WIDTH, top + tall + 0.52)
        axes = axes_at(figure, left, top, WIDTH - left - right, tall)
        axes.axvline(0, color=FAINT, linewidth=1)
        for row, method in enumerate(methods):
            text_at(figure, WIDTH - right + 0.15, top + (row + 0.5) * tall / len(methods) - 0.07,
                    named(method.words, 40), fontsize=8.5)  # fmt: skip
            if method.mean is None:
                continue
            if method.low is not None and method.high is not None:
                ends = [method.low, method.high]
                axes.plot(ends, [row, row], color=HUES[0], linewidth=1.8, marker="|", markersize=8)
            axes.plot([method.mean], [row], color=HUES[0], marker="o", markersize=5)
        _name_rows(axes, methods, [False] * len(methods))
        axes.set_xlabel(named(label, 90))
        axes.xaxis.set_major_locator(MaxNLocator(nbins=7))
        _centre(axes, methods)
        if higher is not None:
            words = ("worse", "better") if higher else ("better", "worse")
            middle = left + (WIDTH - left - right) / 2
            text_at(figure, middle - 0.1, 0.08, f"← {words[0]}", ha="right", color=FAINT)
            text_at(figure, middle + 0.1, 0.08, f"{words[1]} →", ha="left", color=FAINT)
        return svg(figure, alternative)


def _centre(axes: Axes, methods: Sequence[MethodDifference]) -> None:
    """No difference in the middle, and room for most intervals; an arrow where a mean lies beyond."""
    means = [method.mean for method in methods if method.mean is not None]
    within = [method.high - method.low for method in methods if method.high is not None and method.low is not None]
    limits = worth_showing([abs(mean) for mean in means], higher=False, within=within)
    low, high = axes.get_xlim()
    widest = max(abs(low), abs(high)) or 1.0
    if limits is not None:
        near = [m for m in methods if m.mean is not None and abs(m.mean) <= limits[1]]
        widest = 1.1 * max(abs(v) for m in near for v in (m.mean, m.low, m.high) if v is not None) or widest
    axes.set_xlim(-widest, widest)
    for row, method in enumerate(methods):
        if method.mean is not None and abs(method.mean) > widest:
            left = method.mean < 0
            text = f"← {method.mean:.4g}" if left else f"{method.mean:.4g} →"
            axes.text(-widest if left else widest, row, f" {text} ", ha="left" if left else "right", va="center",
                      fontsize=8, color=FAINT)  # fmt: skip


def _margin(labels: Sequence[str]) -> float:
    """Inches for names of rows."""
    return 0.55 + 0.068 * min(46, max(map(len, labels), default=0))


def _draw_row(axes: Axes, row: int, method: MethodScores, seeds: Sequence[int]) -> None:
    flat = [value for values in method.values for value in values if math.isfinite(value)]
    if len(flat) >= FEWEST:
        low, middle, high = np.percentile(flat, [25, 50, 75])
        reach = 1.5 * (high - low)
        ends = min(v for v in flat if v >= low - reach), max(v for v in flat if v <= high + reach)
        axes.plot([ends[0], low], [row, row], color=FAINT, linewidth=0.9)
        axes.plot([high, ends[1]], [row, row], color=FAINT, linewidth=0.9)
        axes.fill_betweenx([row - 0.3, row + 0.3], low, high, facecolor=LINES, edgecolor=FAINT, linewidth=0.9)
        axes.plot([middle, middle], [row - 0.3, row + 0.3], color=FAINT, linewidth=1.2)
    elif len(flat) > 1:
        axes.plot([min(flat), max(flat)], [row, row], color=FAINT, linewidth=0.9)
    if method.mean is not None and math.isfinite(method.mean):
        axes.plot([method.mean] * 2, [row - 0.36, row + 0.36], color=INK, linewidth=1.8, solid_capstyle="butt")
    for seed, values in zip(method.seeds, method.values, strict=True):
        place = None if seed is None else seeds.index(seed)
        # Seeds lie below one another, so that equal values do not hide each other.
        shift = 0.0 if place is None or len(seeds) == 1 else 0.44 * (place / (len(seeds) - 1) - 0.5)
        finite = [value for value in values if math.isfinite(value)]
        axes.plot(finite, [row + shift] * len(finite), linestyle="none", alpha=0.9, **_look(place, len(seeds)))


def _look(place: int | None, count: int) -> dict[str, Any]:
    if place is None:
        return {"color": INK, "marker": ".", "markersize": 7, "markeredgewidth": 0}
    if count > MOST:
        return {"color": HUES[0], "marker": ".", "markersize": 4}
    return {"color": HUES[place], "marker": MARKERS[place], "markersize": 4.2, "markeredgewidth": 0}


def _entries(seeds: Sequence[int], methods: Sequence[MethodScores]) -> list[Line2D | Patch]:
    entries: list[Line2D | Patch] = []
    if len(seeds) <= MOST:
        for place, seed in enumerate(seeds):
            words = f"a fold, seed {seed}" if place == 0 else f"seed {seed}"
            entries.append(Line2D([], [], linestyle="none", label=words, **_look(place, len(seeds))))
    else:
        entries.append(Line2D([], [], linestyle="none", label="a fold of a seed", **_look(0, len(seeds))))
    if any(None in method.seeds for method in methods):
        entries.append(Line2D([], [], linestyle="none", label="a fold", **_look(None, 0)))
    entries.append(Line2D([], [], color=INK, linewidth=1.8, label="mean"))
    if any(sum(len(values) for values in method.values) >= FEWEST for method in methods):
        entries.append(Patch(facecolor=LINES, edgecolor=FAINT, label="quartiles, median"))
    return entries


def _name_rows(axes: Axes, methods: Sequence[MethodScores] | Sequence[MethodDifference], bold: Sequence[bool]) -> None:
    names = [f"{method.number} {named(method.label, 46)}" for method in methods]
    axes.set_yticks(range(len(names)), names)
    for text, strong in zip(axes.get_yticklabels(), bold, strict=True):
        text.set_fontweight("bold" if strong else "normal")
    axes.set_ylim(len(names) - 0.5, -0.5)
    grid(axes, "x")
    axes.tick_params(axis="y", length=0)
