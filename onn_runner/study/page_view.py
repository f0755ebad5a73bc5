"""A study in the order and with the numbers and looks that its page gives to methods, best first."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from onn_runner.report.figures_study_base import MOST, Mark
from onn_runner.study.records import Comparison, Costs, Method, Run, Study, Summary

KINDS = ("model", "twin", "untrained")


@dataclass(frozen=True)
class Row:
    """A method of the page."""

    method: Method
    mark: Mark

    @property
    def number(self) -> int:
        return self.mark.number

    @property
    def label(self) -> str:
        return self.method.label


@dataclass(frozen=True)
class View:
    """Everything that the page shows, before it is put into words and pictures."""

    study: Study
    rows: tuple[Row, ...]
    keys: tuple[str, ...]
    """Scores, the monitored one first."""
    baseline: str | None
    summaries: Mapping[tuple[str, str], Summary]
    """By label and key."""
    comparisons: Sequence[Comparison]
    costs: Mapping[str, Costs]

    @property
    def key(self) -> str | None:
        """The score by which methods are ordered."""
        return self.keys[0] if self.keys else None

    def higher(self, key: str) -> bool | None:
        return self.study.metrics.get(key)

    def trained(self) -> list[Row]:
        return [row for row in self.rows if row.method.kind != "untrained"]

    def runs(self) -> list[tuple[Row, Run]]:
        """The runs that are counted, each once."""
        return [(row, run) for row in self.rows if row.method.kind == "model" for run in row.method.runs]


def view(
    study: Study,
    summaries: Sequence[Summary],
    comparisons: Sequence[Comparison],
    costs: Sequence[Costs],
    *,
    baseline: str | None,
) -> View:
    """Models first, then twins, then what needs no training; within each the best first by the first score."""
    found = {(summary.label, summary.key): summary for summary in summaries}
    keys = tuple(study.metrics)
    key = keys[0] if keys else ""
    higher = study.metrics.get(key)

    def place(method: Method) -> tuple[int, float]:
        summary = found.get((method.label, key))
        mean = summary.mean if summary is not None else None
        # Without a direction they stay in the study's order.
        worth = 0.0 if higher is None else math.inf if mean is None or math.isnan(mean) else -mean if higher else mean
        return KINDS.index(method.kind), worth

    ordered = sorted(study.methods, key=place)
    coloured = [method for method in ordered if method.kind != "untrained"][:MOST]
    reference = [method for method in ordered if method.label == baseline and method.kind != "untrained"]
    if reference and reference[0] not in coloured:
        coloured[-1:] = reference
    rows = tuple(
        Row(method, Mark(number, method.label, coloured.index(method) if method in coloured else None))
        for number, method in enumerate(ordered, start=1)
    )
    by_label = {one.label: one for one in costs}
    return View(study, rows, keys, baseline, found, tuple(comparisons), by_label)
