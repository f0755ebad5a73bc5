"""The table of paired differences: what the model scores above its twin and the baselines, with intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from onn_runner.report.table import UNITS, Table, columns, heading, words

MOST_DECIMALS = 10


def differences(results: Mapping[str, Any]) -> Table | None:
    """The table of a results.json: over photographs and over folds for the twin, over photographs for the baselines.

    None where nothing is compared.
    """
    comparison = results["comparison"]
    keys = [key for key in columns(results) if any(key in scores for scores in comparison["to"].values())]
    if not keys:
        return None
    twin = (results.get("twin") or {}).get("name")
    rows, sections = [], []
    for name, scores in comparison["to"].items():
        parts = {"groups": comparison["unit"]} | ({"folds": "folds"} if name == twin else {})
        # The same mean to the same digit in both rows of the twin.
        digits = {key: max(places(scores[key][part], key) for part in parts) for key in keys if key in scores}
        rows += [_row(name, scores, digits, keys, part, unit) for part, unit in parts.items()]
        if name == twin:
            sections.append(len(rows))
    better = results["higher_is_better"]
    titles = [heading(key, better.get(key.partition("/")[2])) for key in keys]
    first = words(keys[0].partition("/")[2])
    title = f"{results['name']}, difference to the others on the same items: mean [95 % interval]"
    notes = _notes(comparison, keys, first, twin)
    headings = ("", titles[0], f"{first} better on", "p", *titles[1:])
    return Table(title, headings, tuple(rows), tuple(sections), notes)


def _row(
    name: str, scores: Mapping[str, Any], digits: Mapping[str, int], keys: Sequence[str], part: str, unit: str
) -> tuple[str, ...]:
    entries = {key: scores[key][part] for key in keys if key in scores}
    first = entries.get(keys[0], {"n": 0, "better": None})
    count = first["n"] or max((entry["n"] for entry in entries.values()), default=0)
    better = _counts(first) if first["n"] and first["better"] is not None else "-"
    main, *others = (_cell(entries.get(key), digits.get(key, 0), count) for key in keys)
    return (f"to {name} ({_counted(count, unit)})", main, better, _probability(first.get("p")), *others)


def _cell(entry: Mapping[str, Any] | None, digits: int, count: int) -> str:
    """With its own `n = 5` where it is over others than the row says: training scores, items without a score."""
    text = with_interval(entry, digits)
    return text if text == "-" or entry is None or entry["n"] == count else f"{text}, n = {entry['n']}"


def _counts(entry: Mapping[str, Any]) -> str:
    """`14 of 17`; where some are equal (a class is right or wrong) `92, worse on 59 of 1797`."""
    better, count = entry["better"], entry["n"]
    # Results of earlier versions do not count both.
    worse = entry.get("worse", count - better)
    return f"{better} of {count}" if better + worse == count else f"{better}, worse on {worse} of {count}"


def _counted(count: int, unit: str) -> str:
    """`17 photographs`, `1 fold`."""
    return f"{count} {unit.removesuffix('s') if count == 1 else unit}"


def _probability(p: float | None) -> str:
    if p is None:
        return "-"
    return "< 0.0001" if p < 1e-4 else f"{p:.2g}" if p < 0.1 else f"{p:.2f}"


def places(entry: Mapping[str, Any], key: str) -> int:
    """Decimals that show two digits of the interval's half (one of decibels and per cent), at least four (two)."""
    unit = key.partition("/")[2] in UNITS
    least = 2 if unit else 4
    if entry["mean"] is None:
        return least
    size = abs(entry["mean"]) if entry["low"] is None else (entry["high"] - entry["low"]) / 2
    if not 0 < size < math.inf:
        return least
    return min(max(least, (not unit) - math.floor(math.log10(size))), MOST_DECIMALS)


def with_interval(entry: Mapping[str, Any] | None, digits: int) -> str:
    """`+0.12 [-0.05, +0.29]`; the mean alone where there is no interval, "-" where there is nothing."""
    if not entry or entry["mean"] is None:
        return "-"
    values = (entry[name] for name in ("mean", "low", "high"))
    mean, *ends = (f"{value:+.{digits}f}" for value in values if value is not None)
    return f"{mean} [{', '.join(ends)}]" if ends else mean


def _notes(comparison: Mapping[str, Any], keys: Sequence[str], first: str, twin: str | None) -> tuple[str, ...]:
    unit = comparison["unit"]
    one = unit.removesuffix("s")
    averaged = "" if unit == "items" else f"; a {one}'s items are averaged first, so that it counts once"
    every = [scores[key] for scores in comparison["to"].values() for key in keys if key in scores]
    # The twin alone has a row over folds.
    of_twin = comparison["to"].get(twin, {})
    over_folds = [of_twin[key]["folds"] for key in keys if key in of_twin]
    notes = [
        f"over {unit}: Student's interval of the mean difference{averaged}",
        f"p: signed-rank test of {first} over {unit}; p and intervals are not adjusted for several comparisons",
    ]
    if any(entry["low"] is not None and entry["ratio"] for entry in over_folds):
        notes.append("over folds: the interval is widened for training sets that overlap (Nadeau and Bengio, 2003)")
    if any(entry["low"] is not None and entry["ratio"] == 0 for entry in over_folds):
        notes.append("over folds: Student's interval, as the training sets share no items")
    if any(entry["ratio"] is None for entry in over_folds):
        notes.append("training scores over folds that share training items have no interval")
    if any(entry["groups"]["n"] == 1 for entry in every):
        notes.append(f"one {one} has no interval")
    if any(entry["groups"]["n"] == 0 < entry["folds"]["n"] for entry in every):
        notes.append(f"scores that only a whole part has, and no {one}, are compared over folds alone (results.json)")
    if any(entry["n"] == 1 for entry in over_folds):
        notes.append("one fold has no interval")
    for name, scores in comparison["to"].items():
        for key in keys:
            left_out = scores[key]["left_out"] if key in scores else 0
            if left_out:
                notes.append(f"difference to {name}, {key}: {left_out} items without a finite one are left out")
    return tuple(notes)
