"""The worst, median and best items of a part, from the scores that test_items.csv has of each."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from onn_runner.metric.base import ItemMetric

Scored = tuple[str, Mapping[str, float]]
"""An item's name and its scores by metric."""


@dataclass(frozen=True)
class Choice:
    """One item of a part, by its place there."""

    rank: str
    """`worst`, `median`, `best`, or `the only one`."""
    place: int
    name: str
    scores: Mapping[str, float]


def read_items(path: Path) -> dict[str, list[Scored]]:
    """test_items.csv: split -> items in the order of the part; scores that are not defined are left out."""
    columns: dict[str, dict[str, list[tuple[str, str]]]] = {}
    with path.open(encoding="utf-8", newline="") as handle:
        for row in csv.DictReader(handle):
            columns.setdefault(row["split"], {}).setdefault(row["metric"], []).append((row["item"], row["value"]))
    tables: dict[str, list[Scored]] = {}
    for split, metrics in columns.items():
        # Several items may share a name, so that rows are told apart by their place.
        names = [name for name, _ in next(iter(metrics.values()))]
        scores = [{m: float(rows[at][1]) for m, rows in metrics.items() if rows[at][1]} for at in range(len(names))]
        tables[split] = list(zip(names, scores, strict=True))
    return tables


def ranking(rows: Sequence[Scored], monitored: str, metrics: Mapping[str, ItemMetric]) -> str | None:
    """The metric that orders the items: the monitored one, else the first with a direction; None without scores."""
    known = {name for _, scores in rows for name in scores}
    usable = known & {name for name, metric in metrics.items() if metric.higher_is_better is not None}
    return next((name for name in (monitored, *metrics) if name in usable), None)


def chosen(rows: Sequence[Scored], metric: str, *, higher: bool) -> list[Choice]:
    """From the worst to the best of the items that have a score: both ends and the two in the middle, each once."""
    places = [place for place, (_, scores) in enumerate(rows) if metric in scores]
    places.sort(key=lambda place: rows[place][1][metric], reverse=not higher)
    if len(places) < 2:
        return [Choice("the only one", place, *rows[place]) for place in places]
    last, middle = len(places) - 1, len(places) // 2
    ranks = dict.fromkeys((middle - 1, middle), "median") | {0: "worst", last: "best"}
    return [Choice(ranks[at], places[at], *rows[places[at]]) for at in sorted(ranks)]
