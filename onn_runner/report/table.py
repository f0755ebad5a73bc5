"""The final tables: a row per fold, mean and deviation, twin and baselines; and the paired differences to them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from onn_runner.report.results import best_start, divergences

SHARES = ("accuracy", "top5", "f1", "balanced_accuracy", "ece")
"""Metrics in per cent."""
UNITS = {"psnr": "dB", "snr": "dB"} | dict.fromkeys(SHARES, "%")
PARTS = {"test": "", "photo": "whole ", "fitted": "train "}


@dataclass(frozen=True)
class Table:
    """Headings and rows of text; `sections` holds the first row of each part after the first."""

    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    sections: tuple[int, ...]
    notes: tuple[str, ...]


def decimals(value: float, metric: str) -> int:
    """Two for decibels and per cent, else four, or as many as three significant digits need: 0.8012, 0.00271."""
    if metric in UNITS or value == 0 or not math.isfinite(value):
        return 2
    return max(4, 2 - math.floor(math.log10(abs(value)))) if abs(value) < 100 else 1


def figure(value: float | None, metric: str, *, places: int | None = None) -> str:
    """The value with `places` decimals, as many as suit it by default; "-" where there is no value."""
    if value is None or math.isnan(value):
        return "-"
    if math.isinf(value):
        return "inf" if value > 0 else "-inf"
    return f"{value:.{decimals(value, metric) if places is None else places}f}"


def with_spread(entry: Mapping[str, Any] | None, metric: str) -> str:
    """`29.31 ± 0.22`, both to the same decimal; without the second part where there is one fold."""
    if not entry or entry["mean"] is None:
        return "-"
    places = decimals(entry["mean"], metric)
    mean = figure(entry["mean"], metric, places=places)
    return mean if entry["std"] is None else f"{mean} ± {figure(entry['std'], metric, places=places)}"


def columns(results: Mapping[str, Any]) -> list[str]:
    """Score keys to show: all metrics on test items, then the monitor's and SSIM on whole originals, then on training
    items the monitor's; without a test part all metrics on training items.
    """
    monitor = results["monitor"].partition("/")[2]
    metrics = list(results["higher_is_better"])
    metrics.sort(key=lambda metric: metric != monitor)
    keys = [f"test/{metric}" for metric in metrics]
    keys += [f"photo/{metric}" for metric in metrics if metric in (monitor, "ssim")]
    known = set(results["cv"]) | {key for row in results["baselines"].values() for key in row["cv"]}
    fitted = [f"fitted/{metric}" for metric in metrics]
    tested = [key for key in keys if key in known]
    return tested + [key for key in (fitted[:1] if tested else fitted) if key in known]


def heading(key: str, better: bool | None) -> str:
    """`PSNR [dB] up-arrow`; whole originals are marked."""
    part, _, metric = key.partition("/")
    unit = f" [{UNITS[metric]}]" if metric in UNITS else ""
    arrow = "" if better is None else (" ↑" if better else " ↓")
    return f"{PARTS.get(part, part + ' ')}{words(metric)}{unit}{arrow}"


def words(metric: str) -> str:
    """`BALANCED ACCURACY`"""
    return metric.upper().replace("_", " ")


def build(results: Mapping[str, Any]) -> Table:
    """The table of a results.json."""
    keys = columns(results)
    better = results["higher_is_better"]
    first = ("", "epoch", *(heading(key, better.get(key.partition("/")[2])) for key in keys), "s/epoch")
    rows = [_fold_row(fold, keys) for fold in results["folds"]]
    sections = [len(rows)]
    label = "mean ± std" + _of_folds(results)
    rows.append((label, "", *_spread_cells(results["cv"], keys), _seconds(results["folds"])))
    if results["cv_starts"]:
        rows.append(("mean over starts", "", *_spread_cells(results["cv_starts"], keys), ""))
    twin = results.get("twin")
    if twin:
        sections.append(len(rows))
        label = f"{twin['name']}, mean ± std" + _of_folds(twin)
        rows.append((label, "", *_spread_cells(twin["cv"], keys), _seconds(twin["folds"])))
    if twin and twin["cv_starts"]:
        rows.append((f"{twin['name']}, mean over starts", "", *_spread_cells(twin["cv_starts"], keys), ""))
    if results["baselines"]:
        sections.append(len(rows))
    rows += [(name, "", *_spread_cells(row["cv"], keys), "") for name, row in results["baselines"].items()]
    return Table(_title(results), first, tuple(rows), tuple(sections), _notes(results))


def _fold_row(fold: Mapping[str, Any], keys: Sequence[str]) -> tuple[str, ...]:
    start = best_start(fold)
    label = f"fold {fold['fold']}"
    diverged = sum(start["status"] == "diverged" for start in fold["starts"])
    if fold["status"] == "done" and diverged:
        label += f" ({diverged} of {len(fold['starts'])} starts diverged)"
    elif fold["status"] != "done":
        label += f" {fold['status']}"
    if start is None:
        return (label, "-", *("-" for _ in keys), "-")
    scores = [figure(start["test"].get(key), key.partition("/")[2]) for key in keys]
    epoch = start["best_epoch"]
    return (label, "-" if epoch is None else str(epoch), *scores, f"{start['seconds_per_epoch']:.2f}")


def _of_folds(results: Mapping[str, Any]) -> str:
    """` (2 of 3 folds)` where a fold has no result: such a mean must not look like the baselines' over all."""
    counted = sum(best_start(fold) is not None for fold in results["folds"])
    total = len(results["folds"])
    return "" if counted == total else f" ({counted} of {total} folds)"


def _spread_cells(entries: Mapping[str, Any], keys: Sequence[str]) -> list[str]:
    return [with_spread(entries.get(key), key.partition("/")[2]) for key in keys]


def _seconds(folds: Sequence[Mapping[str, Any]]) -> str:
    seconds = [start["seconds_per_epoch"] for start in map(best_start, folds) if start is not None]
    return f"{sum(seconds) / len(seconds):.2f}" if seconds else "-"


def _title(results: Mapping[str, Any]) -> str:
    tested = any(not key.startswith("fitted/") for key in columns(results))
    kind = "test scores" if tested or not columns(results) else "training scores"
    return f"{results['name']}: {kind}, {_folds(results)}{_size(results['network'])}{_twin_size(results)}"


def _folds(results: Mapping[str, Any]) -> str:
    if part := results.get("part"):
        return part_words(part)
    count = len(results["folds"])
    return f"{count} fold{'s' * (count != 1)}"


def part_words(part: Mapping[str, Any]) -> str:
    """`folds 0 and 2 of 3`: a run that leaves the other folds of its partition out."""
    numbers = [str(number) for number in part["folds"]]
    several = f"{', '.join(numbers[:-1])} and {numbers[-1]}" if len(numbers) > 1 else numbers[0]
    return f"fold{'s' * (len(numbers) > 1)} {several} of {part['of']}"


def _size(network: Mapping[str, Any]) -> str:
    parameters = network.get("parameters")
    return f", {parameters:,} parameters" if isinstance(parameters, int) else ""


def _twin_size(results: Mapping[str, Any]) -> str:
    twin = results.get("twin")
    size = _size(twin["network"]) if twin else ""
    return f" ({twin['name']}: {size.removeprefix(', ')})" if twin and size else ""


def _notes(results: Mapping[str, Any]) -> tuple[str, ...]:
    notes = ["std: sample standard deviation over folds; the epoch is chosen by " + results["monitor"]]
    notes += divergences(results["folds"])
    twin = results.get("twin")
    if twin:
        notes += [f"{twin['name']}, {text}" for text in divergences(twin["folds"])]
    return (*notes, *_left_out(results["left_out"]))


def _left_out(counts: Mapping[str, int]) -> list[str]:
    """What items have no score of; of those of classes that overflow, one line for all scores."""
    notes = []
    for key, count in counts.items():
        split, _, name = key.partition("/")
        overflowing = counts.get(f"{split}/loss")
        if name == "loss":
            items = f"{count} item{'s' * (count != 1)}"
            notes.append(
                f"{split}: the network's scores of {items} are not finite: wrong in accuracy, F1 and the like, "
                "left out of loss, likelihood, AUROC and calibration"
            )
        elif count != overflowing:
            notes.append(f"{key}: {count} items without a defined score (constant target) are left out")
    return notes


def markdown(table: Table) -> str:
    """The table as GitHub Markdown, notes below."""
    lines = [f"**{table.title}**", "", _line(table.headings), _line(["---"] * len(table.headings))]
    lines += [_line(row) for row in table.rows]
    return "\n".join([*lines, "", *(f"- {note}" for note in table.notes)]) + "\n"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
