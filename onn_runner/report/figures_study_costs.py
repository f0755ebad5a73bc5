"""Quality against cost: which methods no other one beats in both, the Pareto front, and which are dominated."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.transforms import Bbox

from onn_runner.report.figures import axes_at
from onn_runner.report.figures_study_base import (
    FAINT,
    HUES,
    INK,
    PAPER,
    empty,
    grid,
    legend,
    logarithmic_ticks,
    named,
    page_style,
    svg,
    worth_showing,
)

WIDTH, TALL = 9.2, 3.9
OFFSETS = (
    *((7, 0, "left", "center"), (-7, 0, "right", "center"), (0, 7, "center", "bottom"), (0, -7, "center", "top")),
    *((6, 6, "left", "bottom"), (6, -6, "left", "top"), (-6, 6, "right", "bottom"), (-6, -6, "right", "top")),
)
"""Where a name may stand beside its point: points to the right and up, and how it is aligned there."""


@dataclass(frozen=True)
class Point:
    """A method's score and cost, both finite, the cost above 0."""

    number: int
    label: str
    cost: float
    score: float
    within: float = 0.0
    """How far the method's folds are apart in the score."""


def front(points: Sequence[Point], *, higher: bool) -> list[Point]:
    """From the cheapest on, those that no other one equals or beats in score and cost, and beats in one of them."""
    sign = 1 if higher else -1
    found: list[Point] = []
    for point in sorted(points, key=lambda p: (p.cost, -sign * p.score)):
        best = found[-1] if found else None
        if best is None or sign * point.score > sign * best.score or (
            point.cost == best.cost and point.score == best.score
        ):  # fmt: skip
            found.append(point)
    return found


def quality_and_cost(points: Sequence[Point], *, higher: bool, score: str, cost: str, alternative: str) -> str:
    """SVG; `score` and `cost` are the axes' labels. Methods that are far worse than the others are not drawn."""
    limits = worth_showing([point.score for point in points], higher=higher, within=[point.within for point in points])
    points = [point for point in points if limits is None or limits[0] <= point.score <= limits[1]]
    best = front(points, higher=higher)
    with page_style():
        figure = empty(WIDTH, TALL + 0.9)
        axes = axes_at(figure, 0.75, 0.4, WIDTH - 0.95, TALL)
        axes.set_xscale("log")
        costs = [point.cost for point in best]
        axes.plot(costs, [point.score for point in best], drawstyle="steps-post", color=HUES[0], linewidth=1.2)
        for point in sorted(points, key=lambda point: point in best):
            _draw_point(axes, point, point in best)
        axes.margins(0.1, 0.12)
        logarithmic_ticks(axes.xaxis, plain)
        axes.set_xlabel(named(cost, 90))
        axes.set_ylabel(named(score, 60))
        grid(axes, "both")
        _name(axes, points, best)
        legend(figure, _entries(points, best), top=0.04, columns=4)
        return svg(figure, alternative)


def _draw_point(axes: Axes, point: Point, best: bool) -> None:
    colour = HUES[0] if best else FAINT
    face = colour if best else PAPER
    axes.plot([point.cost], [point.score], marker="o", color=colour, markersize=6.5 if best else 5.5,
              markerfacecolor=face, linestyle="none")  # fmt: skip


def _entries(points: Sequence[Point], best: Sequence[Point]) -> list[Line2D]:
    words = "on the Pareto front: none is better and cheaper"
    entries = [Line2D([], [], color=HUES[0], marker="o", markersize=6.5, linewidth=1.2, label=words)]
    if len(best) < len(points):
        entries.append(
            Line2D([], [], color=FAINT, marker="o", markerfacecolor=PAPER, linestyle="none", markersize=5.5,
                   label="dominated")
        )  # fmt: skip
    return entries


def plain(value: float) -> str:
    """`1.2 M`, `350 k`, `0.5`"""
    for limit, letter in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= limit:
            return f"{value / limit:.4g} {letter}"
    return f"{value:.3g}"


def _name(axes: Axes, points: Sequence[Point], best: Sequence[Point]) -> None:
    """Numbers, of the front names too, where they cover no point and no other name; numbers alone where none fits."""
    inside = axes.get_window_extent()
    taken = [_around(axes, point) for point in points] + _steps(axes, best)
    for point in [*best, *(point for point in points if point not in best)]:
        text = f"{point.number} {named(point.label, 32)}" if point in best else str(point.number)
        for words in dict.fromkeys((text, str(point.number))):
            placed = _placed(axes, point, words, point in best, inside, taken)
            if placed is not None:
                taken.append(placed)
                break


def _around(axes: Axes, point: Point) -> Bbox:
    x, y = axes.transData.transform((point.cost, point.score))
    return Bbox.from_bounds(x - 4, y - 4, 8, 8)


def _steps(axes: Axes, best: Sequence[Point]) -> list[Bbox]:
    """Around the line of the front."""
    places = [axes.transData.transform((point.cost, point.score)) for point in best]
    boxes = []
    for (x, y), (right, end) in itertools.pairwise(places):
        boxes.append(Bbox.from_extents(x, y - 1.5, right, y + 1.5))
        boxes.append(Bbox.from_extents(right - 1.5, min(y, end), right + 1.5, max(y, end)))
    return boxes


def _placed(axes: Axes, point: Point, words: str, strong: bool, inside: Bbox, taken: Sequence[Bbox]) -> Bbox | None:
    for right, up, horizontal, vertical in OFFSETS:
        text = axes.annotate(
            words, (point.cost, point.score), (right, up), textcoords="offset points", ha=horizontal, va=vertical,
            fontsize=8.5, color=INK if strong else FAINT,
        )  # fmt: skip
        box = text.get_window_extent()
        fits = inside.x0 <= box.x0 and box.x1 <= inside.x1 and inside.y0 <= box.y0 and box.y1 <= inside.y1
        if fits and not any(box.overlaps(other) for other in taken):
            return box
        text.remove()
    return None
