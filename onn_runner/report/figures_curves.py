"""Learning curves of a run: training and validation over the epochs, a thin line a fold, their mean bold."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from onn_runner.report.figures import BLUE, ORANGE, axes_at, blank, plain_style, png, shortened, text_at

COLOURS = {"train": BLUE, "val": ORANGE}
WORDS = {"train": "training", "val": "validation"}


@dataclass(frozen=True)
class Curve:
    """One start of one fold."""

    fold: int
    start: int
    values: Mapping[str, Mapping[int, float]]
    """`val/psnr` -> epoch -> value."""
    best_epoch: int | None
    diverged: bool
    chosen: bool
    """Whether it is the fold's best start, the one that counts."""


def learning_curves(curves: Sequence[Curve], *, metric: str, label: str, title: str) -> bytes:
    """The PNG: the loss on a logarithmic scale, and `metric`, labelled `label`, unless it is the loss itself."""
    panels = [("loss", "loss")] + ([(metric, label)] if metric != "loss" else [])
    with plain_style():
        figure = blank(0.3 + 4.6 * len(panels), 3.9)
        text_at(figure, 0.15, 0.1, shortened(title, 48 * len(panels)), weight="bold")
        for position, (name, words) in enumerate(panels):
            axes = axes_at(figure, 0.75 + position * 4.6, 0.85, 3.75, 2.55)
            axes.set_xlabel("epoch")
            axes.set_ylabel(words)
            _draw(axes, curves, name)
        _legend(figure, curves, columns=3 * len(panels))
        return png(figure)


def _draw(axes: Axes, curves: Sequence[Curve], metric: str) -> None:
    longest = 0
    for split, colour in COLOURS.items():
        key = f"{split}/{metric}"
        for curve in curves:
            points = _finite(curve.values.get(key, {}))
            if not points:
                continue
            longest = max(longest, *points)
            style: dict[str, Any] = (
                {"linewidth": 0.8, "alpha": 0.6} if curve.chosen else {"linewidth": 0.5, "alpha": 0.3}
            )
            dashes = ":" if curve.diverged else "-"
            if len(points) == 1:
                style["marker"] = "."
            axes.plot(list(points), list(points.values()), color=colour, linestyle=dashes, **style)
            if curve.diverged:
                last = max(points)
                axes.plot([last], [points[last]], color=colour, marker="x", markersize=6)
            elif curve.chosen and curve.best_epoch in points:
                best = [curve.best_epoch], [points[curve.best_epoch]]
                axes.plot(*best, color=colour, marker="o", markersize=4, markeredgecolor="white", markeredgewidth=0.5)
        _draw_mean(axes, [_finite(c.values.get(key, {})) for c in curves if c.chosen], colour)
    if metric == "loss" and _all_positive(curves):
        _make_logarithmic(axes)
        axes.set_ylabel("loss (logarithmic)")
    margin = max(0.5, 0.02 * longest)
    axes.set_xlim(1 - margin, max(longest, 1) + margin)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1, steps=[1, 2, 5, 10]))
    axes.grid(color="#dddddd", linewidth=0.4)


def _make_logarithmic(axes: Axes) -> None:
    """With plain numbers at the ticks, more of them within one decade."""
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    decades = math.log10(high / low)
    digits = (1.0,) if decades > 3 else (1.0, 2.0, 5.0) if decades > 1 else (1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0)
    axes.yaxis.set_major_locator(LogLocator(subs=digits, numticks=12))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, place: f"{value:.4g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def _draw_mean(axes: Axes, folds: Sequence[Mapping[int, float]], colour: str) -> None:
    """Over the epochs that all folds have: a mean over fewer would jump where one stops."""
    folds = [fold for fold in folds if fold]
    if len(folds) < 2:
        return
    shared = sorted(set.intersection(*(set(fold) for fold in folds)))
    means = [float(np.mean([fold[epoch] for fold in folds])) for epoch in shared]
    axes.plot(shared, means, color=colour, linewidth=2.2)


def _legend(figure: Figure, curves: Sequence[Curve], *, columns: int) -> None:
    """What the lines are, as far as there are such lines."""
    entries: list[Line2D] = []
    for split, colour in COLOURS.items():
        lengths = [
            len(_finite(points)) for c in curves for key, points in c.values.items() if key.startswith(f"{split}/")
        ]
        if lengths:
            # One epoch alone is a dot.
            style: dict[str, Any] = {"linewidth": 2.2} if max(lengths) > 1 else {"linestyle": "none", "marker": "."}
            entries.append(Line2D([], [], color=colour, label=WORDS[split], **style))
    chosen = sum(curve.chosen for curve in curves)
    if chosen > 1:
        longest = max(len(points) for curve in curves for points in curve.values.values())
        if longest > 1:
            entries.append(Line2D([], [], color="#555555", linewidth=0.8, label="one fold (bold: mean)"))
    if any(not curve.chosen and not curve.diverged for curve in curves):
        entries.append(Line2D([], [], color="#bbbbbb", linewidth=0.5, label="other starts"))
    if chosen:
        entries.append(Line2D([], [], color="#555555", marker="o", markersize=4, linestyle="none", label="best epoch"))
    if any(curve.diverged for curve in curves):
        entries.append(Line2D([], [], color="#555555", marker="x", linestyle=":", label="diverged"))
    top = 1 - 0.28 / figure.get_figheight()
    figure.legend(handles=entries, loc="upper left", bbox_to_anchor=(0.0, top), ncols=columns)


def _finite(values: Mapping[int, float]) -> dict[int, float]:
    return {epoch: value for epoch, value in sorted(values.items()) if math.isfinite(value)}


def _all_positive(curves: Sequence[Curve]) -> bool:
    losses = [v for c in curves for s in COLOURS for v in _finite(c.values.get(f"{s}/loss", {})).values()]
    return bool(losses) and min(losses) > 0
