"""What methods made of the same items, side by side with their errors; and their confusions, of what folds keep."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from onn_runner.report.figures_study_images import (
    confusions_svg,
    error_png,
    picture_png,
    scale_png,
    signal_svg,
)
from onn_runner.report.kept import Kept, KeptItem, read
from onn_runner.report.pixels import error_scale
from onn_runner.report.table import UNITS, figure, words
from onn_runner.study.page_view import Row, View
from onn_runner.study.records import Run
from onn_runner.study.scores import Items, best_starts, item_scores

MOST = 24
"""Methods whose outputs or confusions are shown; of more the best ones and the baseline method."""
Place = tuple[int, int, str]
"""Of an item: its fold, its place in the fold's part, its name."""


@dataclass(frozen=True)
class Tile:
    """A picture of an item, or a signal's lines: input, target, or a method's output with its error."""

    title: str
    caption: str = ""
    png: str = ""
    """As a data URI."""
    svg: str = ""
    error: str = ""
    """As a data URI; empty for the input and the target."""
    size: tuple[int, int] = (0, 0)
    """Width and height, pixels."""


@dataclass(frozen=True)
class ItemStrip:
    """One item as all methods have it."""

    rank: str
    name: str
    where: str
    tiles: tuple[Tile, ...]


@dataclass(frozen=True)
class Strips:
    items: tuple[ItemStrip, ...]
    limit: str
    """The largest error of the colour scale."""
    scale: str
    """The colours as a data URI, from 0 to the limit."""
    beyond: bool
    """Whether some errors are larger than the limit."""
    signals: bool
    kept: int
    """Items from which those shown were chosen."""
    seed: str
    left_out: tuple[str, ...]
    """Methods without outputs of these items."""
    beyond_most: int
    """Methods that are not shown since there are so many."""


@dataclass(frozen=True)
class Confusions:
    """Counts of all folds and seeds of one method."""

    title: str
    svg: str
    caption: str


@dataclass(frozen=True)
class _Found:
    """What a method's folds keep."""

    row: Row
    run: Run
    folds: Mapping[int, Kept]
    scores: Items


def _shown(view: View) -> list[Row]:
    rows = view.trained()
    if len(rows) <= MOST:
        return rows
    kept = rows[:MOST]
    reference = [row for row in rows if row.label == view.baseline and row not in kept]
    return [*kept[: MOST - len(reference)], *reference]


def _folds(row: Row, run: Run) -> tuple[dict[int, Kept], list[str]]:
    """Fold -> what it keeps; and what could not be read."""
    found, trouble = {}, []
    for fold in best_starts(run, row.method.kind):
        folder = run.folder / f"fold_{fold:02d}"
        path = (folder / "baseline" if row.method.kind == "twin" else folder) / "pictures" / "kept.npz"
        try:
            kept = read(path)
        except ValueError as error:
            trouble.append(f"{run.folder.name}, fold {fold}: {error}")
            continue
        if kept is not None:
            found[fold] = kept
    return found, trouble


def confusions(view: View) -> tuple[list[Confusions], list[str]]:
    """Of each method that has such, in the order of the page; and what could not be read."""
    found, trouble = [], []
    for row in _shown(view):
        kept: list[Kept] = []
        for run in row.method.runs:
            folds, wrong = _folds(row, run)
            trouble += wrong
            kept += [one for one in folds.values() if one.classes]
        if not kept or any(one.classes != kept[0].classes for one in kept):
            continue
        counts = np.sum([one.confusions for one in kept], axis=0)
        right, total = int(counts.trace()), int(counts.sum())
        lost = sum(one.overflowing for one in kept)
        caption = f"{right} of {total} right ({100 * right / max(total, 1):.1f} %)"
        caption += f", {lost} overflowing left out" if lost else ""
        told = f"Confusions of {row.label}: {caption}, {len(kept[0].classes)} classes."
        svg = confusions_svg(counts, kept[0].classes, alternative=told)
        found.append(Confusions(f"{row.number} {row.label}", svg, caption))
    return found, trouble


def strips(view: View) -> tuple[Strips | None, list[str]]:
    """The worst, the median and the best of the items that the methods' folds keep, the same for all methods."""
    found, trouble = _kept_items(view)
    if not found:
        return None, trouble
    items = [_by_place(one) for one in found]
    # A method on other folds or data has other items, or the same under another target: most methods' ones are shown.
    alike = [[other for other in range(len(items)) if _alike(items[other], own)] for own in items]
    most = max(alike, key=len)
    found, items = [found[n] for n in most], [items[n] for n in most]
    shown = {one.row.label for one in found}
    chosen = _chosen(items)
    if not chosen:
        return None, trouble
    errors = [_error(own[place]) for place in chosen.values() for own in items]
    limit, beyond = error_scale(errors)
    signals = errors[0].ndim == 1
    seeds = {one.run.seed for one in found}
    return Strips(
        items=tuple(_strip(rank, place, found, items, limit, view) for rank, place in chosen.items()),
        limit=f"{limit:.2g}",
        scale="" if signals else _uri(scale_png()),
        beyond=beyond,
        signals=signals,
        kept=len(items[0]),
        seed=", ".join(sorted(str(seed) for seed in seeds)),
        left_out=tuple(row.label for row in _shown(view) if row.label not in shown),
        beyond_most=max(0, len(view.trained()) - MOST),
    ), trouble


def _kept_items(view: View) -> tuple[list[_Found], list[str]]:
    """Of the first seed of each method."""
    found, trouble = [], []
    for row in _shown(view):
        for run in row.method.runs[:1]:
            folds, wrong = _folds(row, run)
            trouble += wrong
            if any(kept.items for kept in folds.values()):
                found.append(_Found(row, run, folds, _item_scores(row, run)))
    return found, trouble


def _item_scores(row: Row, run: Run) -> Items:
    """Nothing where the table cannot be read: pictures need no scores."""
    try:
        return item_scores(run, row.method)
    except ValueError:
        return {}


def _by_place(found: _Found) -> dict[Place, KeptItem]:
    return {(fold, item.place, item.name): item for fold, kept in sorted(found.folds.items()) for item in kept.items}


def _alike(one: Mapping[Place, KeptItem], other: Mapping[Place, KeptItem]) -> bool:
    """Whether they are the same items with the same targets."""
    if one.keys() != other.keys():
        return False
    return all(
        one[place].input.shape == other[place].input.shape
        and np.array_equal(one[place].target, other[place].target, equal_nan=True)
        for place in one
    )


def _error(item: KeptItem) -> Any:
    """[H, W] or [S]: the mean over channels of the absolute error, in units of the data's range."""
    with np.errstate(invalid="ignore"):
        return np.abs(item.output.astype(np.float64) - item.target.astype(np.float64)).mean(0)


def _mean_error(item: KeptItem) -> float:
    """A value that is not finite counts as the whole range of the data."""
    error = _error(item)
    return float(np.where(np.isfinite(error), error, 1.0).mean())


def _chosen(items: Sequence[Mapping[Place, KeptItem]]) -> dict[str, Place]:
    """Rank -> item, by the mean over methods of the mean error."""
    places = list(items[0]) if items else []
    ordered = sorted(places, key=lambda place: -sum(_mean_error(own[place]) for own in items))
    if len(ordered) < 3:
        return dict(zip(("worst", "best") if len(ordered) == 2 else ("the only one",), ordered, strict=False))
    return {"worst": ordered[0], "median": ordered[len(ordered) // 2], "best": ordered[-1]}


def _strip(
    rank: str,
    place: Place,
    found: Sequence[_Found],
    items: Sequence[Mapping[Place, KeptItem]],
    limit: float,
    view: View,
) -> ItemStrip:
    fold, number, name = place
    first = items[0][place]
    span = _span([own[place] for own in items])
    tiles = [*_given(first, span)]
    for one, own in zip(found, items, strict=True):
        caption = _score(one, fold, number, view)
        tiles.append(_output(f"{one.row.number} {one.row.label}", caption, own[place], limit, span))
    sides = first.target.shape[1:]
    where = f"fold {fold}, {' x '.join(map(str, sides))}"
    if first.size:
        where += f" from the middle of {' x '.join(map(str, first.size))}"
    return ItemStrip(rank, name, where, tuple(tiles))


def _span(items: Sequence[KeptItem]) -> tuple[float, float]:
    values = np.concatenate([v.astype(np.float64).ravel() for item in items for v in (item.output, item.target)])
    finite = values[np.isfinite(values)]
    low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
    margin = 0.05 * (high - low) or 0.5
    return low - margin, high + margin


def _given(item: KeptItem, span: tuple[float, float]) -> list[Tile]:
    if item.target.ndim == 2:
        svg = signal_svg(
            item.input[0], None, item.target[0], span=span, alternative="Input and target over the samples."
        )
        return [Tile("input and target", svg=svg)]
    return [
        Tile(word, png=_uri(picture_png(values)), size=_size(values))
        for word, values in (("input", item.input), ("target", item.target))
    ]


def _output(title: str, caption: str, item: KeptItem, limit: float, span: tuple[float, float]) -> Tile:
    if item.target.ndim == 2:
        told = f"Output of {title}, target and input over the samples."
        svg = signal_svg(item.input[0], item.output[0], item.target[0], span=span, alternative=told)
        return Tile(title, caption, svg=svg)
    error = _uri(error_png(_error(item), limit))
    return Tile(title, caption, png=_uri(picture_png(item.output)), error=error, size=_size(item.output))


def _size(values: Any) -> tuple[int, int]:
    return int(values.shape[2]), int(values.shape[1])


def _score(found: _Found, fold: int, place: int, view: View) -> str:
    """`PSNR 23.41 dB` as the run's table has it, of the whole item."""
    metric = (view.key or "").partition("/")[2]
    try:
        value = found.scores[fold][f"{found.folds[fold].part}/{metric}"][place][1]
    except LookupError:
        return ""
    unit = f" {UNITS[metric]}" if metric in UNITS else ""
    return "" if math.isnan(value) else f"{words(metric)} {figure(value, metric)}{unit}"


def _uri(png: bytes) -> str:
    return "data:image/png;base64," + base64.b64encode(png).decode()
