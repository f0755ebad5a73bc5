"""What is taken for what, how far confidence can be trusted, and the most confident mistakes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from onn_runner.report.figures import (
    BLACK,
    BLUE,
    GREY,
    ORANGE,
    axes_at,
    blank,
    plain_style,
    png,
    shortened,
    text_at,
)
from onn_runner.report.pixels import picture

Array = npt.NDArray[np.float32]
Counts = npt.NDArray[np.int64]

WRITTEN, NAMED = 20, 120
"""Up to so many classes have numbers in their cells, and names at the borders."""
LISTED = 15
"""Confusions that are listed beside a matrix without numbers."""
COLUMNS = 4


@dataclass(frozen=True)
class Mistake:
    """An item that was taken for another class."""

    name: str
    input: Array  # [C, *S]
    predicted: str
    probability: float
    """Of the predicted class."""
    true: str
    left: float
    """The probability that the true class was given."""


def confusion_matrix(
    counts: Counts,  # [K, K]: rows true, columns predicted
    classes: Sequence[str],
    *,
    title: str,
) -> bytes:
    """The PNG: items and per cent of the row; of more than 20 classes colours and the most frequent confusions."""
    with plain_style():
        written = len(classes) <= WRITTEN
        return png(_written(counts, classes, title) if written else _coloured(counts, classes, title))


def _written(counts: Counts, classes: Sequence[str], title: str) -> Figure:
    names = [shortened(name, 16) for name in classes]
    margin = 0.45 + 0.075 * max(map(len, names))
    side = max(2.0, 0.52 * len(classes))
    width = max(margin + side + 0.85, 4.6)
    figure = blank(width, 0.65 + margin + side)
    text_at(figure, 0.1, 0.1, shortened(title, round(13 * width)), weight="bold")
    axes = axes_at(figure, margin, 0.6, side, side)
    shares = _draw_matrix(axes, counts)
    _name(axes, names, size=7.0)
    small = 6.5 if len(classes) <= 12 else 5.5
    for row, column in np.argwhere(counts):
        share = shares[row, column]
        text = f"{counts[row, column]}\n{100 * share:.0f} %" if share >= 0.005 else f"{counts[row, column]}"
        colour = "white" if share > 0.35 else BLACK
        axes.text(column, row, text, ha="center", va="center", fontsize=small, color=colour)
    for row, total in enumerate(counts.sum(1)):
        axes.text(len(classes) - 0.35, row, f"of {total}", va="center", fontsize=small, color="#555555")
    return figure


def _coloured(counts: Counts, classes: Sequence[str], title: str) -> Figure:
    named = len(classes) <= NAMED
    size = 6.5 if len(classes) <= 40 else 5.0
    names = [shortened(name, 18) for name in classes]
    margin = 0.45 + (0.011 * size * max(map(len, names)) if named else 0.2)
    side = max(5.0, 0.016 * size * len(classes)) if named else 6.5
    figure = blank(margin + side + 3.1, 0.65 + margin + side)
    text_at(figure, 0.1, 0.1, shortened(title, 120), weight="bold")
    axes = axes_at(figure, margin, 0.6, side, side)
    _draw_matrix(axes, counts)
    if named:
        _name(axes, names, size=size)
    else:
        axes.set(xlabel="predicted class", ylabel="true class")
    text_at(figure, margin + side + 0.2, 0.6, "Most frequent confusions", weight="bold")
    lines = _confusions(counts, classes) or ["none"]
    text_at(figure, margin + side + 0.2, 0.82, "\n".join(lines), fontsize=7.0, linespacing=1.5)
    return figure


def _draw_matrix(axes: Axes, counts: Counts) -> npt.NDArray[np.float64]:
    """The shares of each row, as colours that tell small ones apart."""
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    axes.imshow(shares, cmap="Blues", norm=PowerNorm(0.5, 0, 1), interpolation="nearest", aspect="auto")
    for spine in axes.spines.values():
        spine.set_visible(True)
    return shares


def _name(axes: Axes, names: Sequence[str], *, size: float) -> None:
    places = range(len(names))
    upright = max(map(len, names)) > 3 or len(names) > WRITTEN
    axes.set_xticks(places, names, rotation=90 if upright else 0, fontsize=size)
    axes.set_yticks(places, names, fontsize=size)
    axes.tick_params(length=0)
    axes.set(xlabel="predicted class", ylabel="true class")


def _confusions(counts: Counts, classes: Sequence[str]) -> list[str]:
    """`cat → dog: 34 of 100`, the most items first."""
    wrong = counts - np.diag(np.diag(counts))
    order = np.argsort(-wrong, axis=None, kind="stable")[:LISTED]
    pairs = [divmod(int(place), len(classes)) for place in order]
    short = [shortened(name, 16) for name in classes]
    return [
        f"{short[true]} → {short[guess]}: {wrong[true, guess]} of {counts[true].sum()}"
        for true, guess in pairs
        if wrong[true, guess]
    ]


def reliability(
    confidence: npt.NDArray[np.floating],  # [N]
    correct: npt.NDArray[np.bool_],  # [N]
    *,
    bins: int,
    error: float,
    title: str,
) -> bytes:
    """The PNG: accuracy over confidence, and how many items have it. `error`: the calibration error in per cent."""
    edges = np.linspace(0, 1, bins + 1)
    place = np.clip(np.digitize(confidence, edges[1:-1], right=True), 0, bins - 1)
    number = np.bincount(place, minlength=bins)
    with np.errstate(invalid="ignore"):
        accuracy = np.bincount(place, correct, bins) / number
        means = np.bincount(place, confidence, bins) / number
    with plain_style():
        figure = blank(4.4, 5.5)
        text_at(figure, 0.1, 0.1, shortened(title, 60), weight="bold")
        mean, share = float(np.mean(confidence)), float(np.mean(correct))
        told = f"calibration error {error:.1f} %, of {len(correct)} items in {bins} bins of confidence"
        text_at(figure, 0.1, 0.3, told, fontsize=7.0, color="#555555")
        upper = axes_at(figure, 0.65, 0.65, 3.55, 2.95)
        _draw_calibration(upper, edges, accuracy, means)
        lower = axes_at(figure, 0.65, 3.98, 3.55, 1.0)
        lower.bar(edges[:-1], number / len(correct), 1 / bins, align="edge", color=GREY, edgecolor="white")
        for value, colour, words in ((mean, ORANGE, "mean confidence"), (share, BLUE, "accuracy")):
            lower.axvline(value, color=colour, linewidth=1.4, linestyle="--", label=f"{words} {100 * value:.1f} %")
        lower.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, borderaxespad=0.1)
        lower.set(xlim=(0, 1), xlabel="confidence: probability of the predicted class", ylabel="items")
        for axis in (lower.xaxis, lower.yaxis, upper.yaxis):
            axis.set_major_formatter(PercentFormatter(1, decimals=0, symbol=" %"))
        return png(figure)


def _draw_calibration(axes: Axes, edges: Any, accuracy: Any, means: Any) -> None:
    """Bars as high as the bin's accuracy; from there to its mean confidence the gap."""
    known = np.flatnonzero(np.isfinite(accuracy))
    wide = edges[1] - edges[0]
    axes.bar(edges[known], accuracy[known], wide, align="edge", color=BLUE, edgecolor="white", label="accuracy")
    gap = means[known] - accuracy[known]
    options: dict[str, Any] = {"facecolor": "none", "edgecolor": ORANGE, "hatch": "////", "linewidth": 0.8}
    axes.bar(edges[known], gap, wide, bottom=accuracy[known], align="edge", label="gap to confidence", **options)
    axes.plot([0, 1], [0, 1], color=BLACK, linewidth=0.8, linestyle=":", label="calibrated")
    axes.set(xlim=(0, 1), ylim=(0, 1), ylabel="accuracy")
    axes.set_xticklabels([])
    axes.legend(loc="upper left")


def mistakes(items: Sequence[Mistake], *, title: str, data_range: tuple[float, float]) -> bytes:
    """The PNG, the most confident first: pictures in `data_range`, signals as lines."""
    side, words = 1.55, 0.62
    columns = min(COLUMNS, len(items))
    rows = -(-len(items) // columns)
    wide = side + 0.5
    with plain_style():
        figure = blank(max(0.2 + columns * wide, 4.2), 0.5 + rows * (side + words))
        text_at(figure, 0.1, 0.1, shortened(title, max(55, 24 * columns)), weight="bold")
        for number, item in enumerate(items):
            row, column = divmod(number, columns)
            left, top = 0.15 + column * wide, 0.42 + row * (side + words)
            axes = axes_at(figure, left, top, side, side)
            _draw_input(axes, item.input, data_range)
            lines = [
                f"taken for {shortened(item.predicted, 13)} ({100 * item.probability:.1f} %)",
                f"is {shortened(item.true, 18)} ({100 * item.left:.1f} %)",
            ]
            text_at(figure, left, top + side + 0.04, lines[0], color=ORANGE, fontsize=7.0)
            text_at(figure, left, top + side + 0.18, lines[1], fontsize=7.0)
            text_at(figure, left, top + side + 0.32, shortened(item.name, 27), fontsize=6.0, color="#555555")
        return png(figure)


def _draw_input(axes: Axes, values: Array, data_range: tuple[float, float]) -> None:
    axes.set_xticks([])
    axes.set_yticks([])
    if values.ndim == 2:
        axes.plot(values.T, linewidth=0.8)
        return
    axes.set_axis_off()
    axes.imshow(picture(values, data_range))
