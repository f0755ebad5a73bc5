"""Single images of a study as PNG or SVG: inputs, outputs, errors on one scale, signals as lines, confusions."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import matplotlib
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.colors import PowerNorm
from matplotlib.image import imsave

from onn_runner.report.figures import BAD, axes_at
from onn_runner.report.figures_study_base import FAINT, HUES, INK, empty, grid, named, page_style, svg

Array = npt.NDArray[np.floating[Any]]
Counts = npt.NDArray[np.int64]

ERRORS = "magma"
WRITTEN, NAMED = 12, 30
"""Up to so many classes have numbers in their cells, and names at the borders."""


def picture_png(values: Array) -> bytes:
    """[1 or 3, H, W] in 0 to 1 -> PNG of the same size; what is not finite is cyan."""
    values = values.astype(np.float32)
    shown = np.moveaxis(np.broadcast_to(np.clip(values, 0, 1), (3, *values.shape[1:])), 0, -1).copy()
    shown[~np.isfinite(values).all(0)] = BAD
    return _png(shown)


def error_png(error: Array, limit: float) -> bytes:
    """[H, W], at least 0 -> PNG; black is 0, the lightest colour `limit` and more, cyan not finite."""
    with np.errstate(invalid="ignore"):
        shown = matplotlib.colormaps[ERRORS](np.clip(error.astype(np.float64) / limit, 0, 1))[..., :3]
    shown[~np.isfinite(error)] = BAD
    return _png(shown)


def scale_png() -> bytes:
    """The colours of errors from none to the largest, one row."""
    return _png(matplotlib.colormaps[ERRORS](np.linspace(0, 1, 128))[None, :, :3])


def _png(values: npt.NDArray[Any]) -> bytes:
    buffer, without_version = io.BytesIO(), dict[str, Any](Software=None)
    imsave(buffer, np.round(255 * values).astype(np.uint8), format="png", metadata=without_version)
    return buffer.getvalue()


def signal_svg(
    given: Array,  # [S]
    output: Array | None,  # [T]
    target: Array,  # [T]
    *,
    span: tuple[float, float],
    alternative: str,
) -> str:
    """SVG of lines over the samples, values from `span`; without an output input and target alone."""
    with page_style():
        figure = empty(4.4, 1.35)
        axes = axes_at(figure, 0.42, 0.08, 3.9, 1.02)
        samples = np.arange(len(target))
        # An input of another length covers the same span.
        spread = (np.arange(len(given)) + 0.5) * len(samples) / len(given) - 0.5
        mark = "." if len(samples) == 1 else ""
        axes.plot(spread, given, color=FAINT, linewidth=0.6, marker=mark)
        axes.plot(samples, target, color=INK, linewidth=0.9, marker=mark)
        if output is not None:
            axes.plot(samples, output, color=HUES[0], linewidth=1.0, linestyle="--", marker=mark)
        axes.set_xlim(-0.5, len(samples) - 0.5)
        axes.set_ylim(*span)
        axes.locator_params(axis="y", nbins=4)
        grid(axes, "y")
        return svg(figure, alternative)


def confusions_svg(counts: Counts, classes: Sequence[str], *, alternative: str) -> str:
    """SVG of [K, K] counts, rows true: per cent of the row in each cell, colours where there are many classes."""
    with page_style():
        names = [named(name, 14) for name in classes]
        few = len(classes) <= NAMED
        margin = 0.4 + (0.066 * max(map(len, names)) if few else 0.0)
        side = 2.9
        figure = empty(margin + side + 0.08, margin + side + 0.08)
        axes = axes_at(figure, margin, 0.06, side, side)
        shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
        axes.imshow(shares, cmap="Blues", norm=PowerNorm(0.5, 0, 1), interpolation="nearest", aspect="auto")
        if len(classes) <= WRITTEN:
            _write(axes, counts, shares)
        axes.set_xticks(range(len(names)) if few else [], names if few else [])
        axes.set_yticks(range(len(names)) if few else [], names if few else [])
        size = 8.0 if len(names) <= WRITTEN else 6.0
        upright = max(map(len, names)) > 2 or len(names) > WRITTEN
        axes.tick_params(axis="x", length=0, labelsize=size, rotation=90 if upright else 0)
        axes.tick_params(axis="y", length=0, labelsize=size)
        axes.set(xlabel="predicted class", ylabel="true class")
        for spine in axes.spines.values():
            spine.set_visible(True)
        return svg(figure, alternative)


def _write(axes: Axes, counts: Counts, shares: npt.NDArray[np.float64]) -> None:
    size = 8.0 if len(counts) <= 6 else 6.2
    for row, column in np.argwhere(counts):
        share = shares[row, column]
        text = f"{100 * share:.0f}" if share >= 0.005 else "<1"
        axes.text(
            column, row, text, ha="center", va="center", fontsize=size, color="white" if share > 0.35 else "#1a1a1a"
        )
