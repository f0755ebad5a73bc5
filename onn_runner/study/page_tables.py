"""The tables of a study's page as cells of text: scores, costs and comparisons, a row a method."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

from onn_runner.report.table import decimals, heading
from onn_runner.study.page_figures import mebibytes, shown_p
from onn_runner.study.page_view import Row, View
from onn_runner.study.records import Comparison, Summary, Test

COLUMNS = 4
"""Scores beside one another in a table."""
TITLES = {"model": "", "twin": "Twins, trained with the same settings", "untrained": "Without training"}
BY_ITEM, CORRECTED_T, _ = get_args(Test)
Known = Mapping[tuple[str, str], Comparison]
SHORT = 14
"""Rows of a table that is not divided between sheets of paper."""
MOST_PLACES, LARGEST = 7, 1e7
"""Decimals and size of a number that is written out."""


@dataclass(frozen=True)
class Cell:
    text: str
    below: str = ""
    """In small print under it."""
    best: bool = False


@dataclass(frozen=True)
class Line:
    """A row of a table that belongs to a method."""

    number: str
    """In the figures; empty for a method that is in none."""
    label: str
    cells: tuple[Cell, ...]
    baseline: bool = False


@dataclass(frozen=True)
class Section:
    """Lines below one heading of their own, which may be empty."""

    title: str
    lines: tuple[Line, ...]


@dataclass(frozen=True)
class MethodTable:
    caption: str
    headings: tuple[str, ...]
    sections: tuple[Section, ...]

    @property
    def short(self) -> bool:
        """Whether it is best printed on one sheet."""
        return sum(len(section.lines) for section in self.sections) <= SHORT


def score_tables(view: View) -> list[MethodTable]:
    """Mean, deviation and interval of all scores, a few scores a table, the first one first."""
    tables = []
    count = -(-len(view.keys) // COLUMNS)
    # As many in one table as in another, or one more.
    borders = [number * len(view.keys) // count for number in range(count + 1)] if count else []
    for first, end in itertools.pairwise(borders):
        keys = view.keys[first:end]
        best = {key: _best(view, key) for key in keys}
        headings = tuple(heading(key, view.higher(key)) for key in keys)

        def cells(row: Row, keys: Sequence[str] = keys, best: dict[str, str | None] = best) -> tuple[Cell, ...]:
            return tuple(_score(view.summaries.get((row.label, key)), key, best[key] == row.label) for key in keys)

        caption = _caption(view) if first == 0 else "More scores"
        sections = [*_sections(view, cells), *_without_runs(view, len(keys))]
        tables.append(MethodTable(caption, headings, tuple(sections)))
    return tables


def _caption(view: View) -> str:
    found = list(view.summaries.values())
    if all(one.std is None for one in found):
        return "Means" if any(len(one.folds) > 1 for one in found) else "Scores of one fold"
    interval = ", 95 % interval" if any(one.low is not None for one in found) else ""
    return f"Mean ± standard deviation over folds{interval}"


def _without_runs(view: View, columns: int) -> list[Section]:
    """What was begun and has no whole run."""
    lines = tuple(Line("", method.label, (Cell("-"),) * columns) for method in view.study.empty)
    return [Section("Without a whole run: see the failures", lines)] if lines else []


def _best(view: View, key: str) -> str | None:
    """The trained method with the best mean; None where nothing is better or there is one only."""
    higher = view.higher(key)
    means = {row.label: s.mean for row in view.trained() if (s := view.summaries.get((row.label, key))) is not None}
    known = {label: mean for label, mean in means.items() if mean is not None and math.isfinite(mean)}
    if higher is None or len(known) < 2:
        return None
    return (max if higher else min)(known, key=lambda label: known[label])


def _score(summary: Summary | None, key: str, best: bool) -> Cell:
    if summary is None or summary.mean is None:
        return Cell("-", "not finite" if summary is not None and summary.values else "")
    places = decimals(summary.mean, key.partition("/")[2])
    text = _value(summary.mean, places)
    if summary.std is not None:
        text += f" ± {_value(summary.std, places)}"
    return Cell(text, _interval(summary.low, summary.high, places), best)


def _value(value: float, places: int, sign: str = "") -> str:
    """With a true minus sign; what would be a long row of digits or zeros has a power of ten."""
    long = places > MOST_PLACES or abs(value) >= LARGEST
    return re.sub(r"-(?=\d)", "−", f"{value:{sign}.2e}" if long else f"{value:{sign}.{places}f}")


def _interval(low: float | None, high: float | None, places: int) -> str:
    return "" if low is None or high is None else f"[{_value(low, places)}, {_value(high, places)}]"


def cost_table(view: View) -> MethodTable:
    """Of trained methods; columns that nobody has are left out."""
    columns: list[tuple[str, Callable[[Row], str]]] = [
        ("seeds", lambda row: str(len(row.method.runs))),
        ("folds", lambda row: str(len(next((s.folds for s in _of(view, row) if s.folds), ())) or "-")),
    ]
    costs = view.costs
    optional: list[tuple[str, Callable[[Row], str]]] = [
        ("parameters", lambda row: _count(costs[row.label].parameters)),
        ("MACs", lambda row: _count(costs[row.label].macs)),
        ("training [s]", lambda row: _number(costs[row.label].seconds)),
        ("peak memory [MiB]", lambda row: _number(mebibytes(costs[row.label]))),
        ("energy [J]", lambda row: _number(costs[row.label].energy)),
        ("device", lambda row: ", ".join(costs[row.label].devices) or "-"),
    ]
    rows = view.trained()
    columns += [(name, cell) for name, cell in optional if any(row.label in costs and cell(row) != "-" for row in rows)]

    def cells(row: Row) -> tuple[Cell, ...]:
        own = row.label in costs
        return tuple(Cell(cell(row) if own or name in ("seeds", "folds") else "-") for name, cell in columns)

    sections = tuple(section for section in _sections(view, cells) if section.title != TITLES["untrained"])
    return MethodTable("Costs", tuple(name for name, _ in columns), sections)


def _of(view: View, row: Row) -> list[Summary]:
    return [summary for key in view.keys if (summary := view.summaries.get((row.label, key))) is not None]


def comparison_tables(view: View) -> list[MethodTable]:
    """One for each score: every test of every method against the baseline method."""
    tables = []
    for key in view.keys:
        found = [one for one in view.comparisons if one.key == key]
        tests = list(dict.fromkeys(one.test for one in found))
        if not found:
            continue
        by_label: Known = {(one.label, one.test): one for one in found}
        headings = tuple(text for test in tests for text in _test_headings(test, found))

        def cells(row: Row, key: str = key, tests: Sequence[str] = tests, known: Known = by_label) -> tuple[Cell, ...]:
            return tuple(cell for test in tests for cell in _comparison(known.get((row.label, test)), test, key))

        labels = {one.label for one in found}
        sections = tuple(
            Section(section.title, lines)
            for section in _sections(view, cells)
            if (lines := tuple(line for line in section.lines if line.label in labels))
        )
        title = heading(key, view.higher(key))
        tables.append(MethodTable(title, headings, sections))
    return tables


def _test_headings(test: str, found: Sequence[Comparison]) -> tuple[str, ...]:
    units = "/".join(sorted({one.unit for one in found if one.test == test and one.n}))
    return {
        BY_ITEM: (f"difference by {units or 'item'}", "signed-rank p (Holm)"),
        CORRECTED_T: ("difference by fold", "corrected t p (Holm)"),
    }.get(test, (f"{test} p (Holm)",))


def _comparison(found: Comparison | None, test: str, key: str) -> tuple[Cell, ...]:
    """Difference and p; by the last test the p alone, since the difference is that of the one before."""
    cells = (Cell("-"), Cell("-"))
    if found is not None and found.mean is None:
        cells = (Cell("not paired", found.not_paired), Cell("-"))
    elif found is not None and found.mean is not None:
        metric = key.partition("/")[2]
        places = max(decimals(found.mean, metric), decimals(found.high - found.mean, metric) if found.high else 0)
        counts = f", {found.better} better, {found.worse} worse" if found.better is not None else ""
        interval = _interval(found.low, found.high, places)
        below = "\n".join(filter(None, (interval, f"n = {found.n}{counts}")))
        told = found.attainable is not None and found.attainable >= 0.001
        limit = f"at best {shown_p(found.attainable)}" if told else ""
        adjusted = f"{shown_p(found.p)} ({shown_p(found.p_holm)})" if found.p is not None else "-"
        cells = (Cell(_value(found.mean, places, "+"), below), Cell(adjusted, limit if found.p is not None else ""))
    return cells if test in (BY_ITEM, CORRECTED_T) else cells[1:]


def _sections(view: View, cells: Callable[[Row], tuple[Cell, ...]]) -> tuple[Section, ...]:
    return tuple(
        Section(title, lines)
        for kind, title in TITLES.items()
        if (
            lines := tuple(
                Line(str(row.number), row.label, cells(row), baseline=row.label == view.baseline)
                for row in view.rows
                if row.method.kind == kind
            )
        )
    )


def _count(value: int | None) -> str:
    return "-" if value is None else f"{value:,}".replace(",", "\u202f")


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}".replace(",", "\u202f") if abs(value) >= 100 else f"{value:.3g}"
