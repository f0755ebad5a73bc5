"""The files of a report: table.csv, scores.csv, comparisons.csv, table.md and table.tex, safe for what opens them."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from onn_runner import storage
from onn_runner.plain import printable
from onn_runner.report import table as tables_of_runs
from onn_runner.report.table import Table
from onn_runner.study import latex, tables
from onn_runner.study.records import Comparison, Costs, Study, Summary
from onn_runner.study.scores import fold_scores

LATEX_SCORES = 3
"""Scores beside one another in a LaTeX table, which a page has room for."""
FORMULA = ("=", "+", "-", "@")
"""What a spreadsheet takes for a formula where a cell of text begins with it."""


@dataclass(frozen=True, kw_only=True)
class Findings:
    """A study with everything that was computed of it."""

    study: Study
    baseline: str
    summaries: tuple[Summary, ...]
    comparisons: tuple[Comparison, ...]
    costs: tuple[Costs, ...]

    def tables(self, *, most: int | None = None) -> list[Table]:
        """Scores, and where there are any differences and costs. `most`: methods in the table of differences."""
        others = (
            tables.comparison_table(self.study, self.comparisons, most=most),
            tables.cost_table(self.study, self.costs),
        )
        return [tables.score_table(self.study, self.summaries), *(one for one in others if one is not None)]

    def with_scores(self, keys: Sequence[str]) -> Findings:
        """Of these scores alone."""
        return replace(
            self,
            study=replace(self.study, metrics={key: self.study.metrics[key] for key in keys}),
            summaries=tuple(one for one in self.summaries if one.key in keys),
            comparisons=tuple(one for one in self.comparisons if one.key in keys),
        )


def write(folder: Path, findings: Findings) -> list[Path]:
    """All files but the page. Raises RunError where one cannot be written."""
    contents = {
        "table.csv": as_csv(method_rows(findings)),
        "scores.csv": as_csv(score_rows(findings.study)),
        "comparisons.csv": as_csv(comparison_rows(findings.comparisons)),
        "table.md": markdown([*findings.tables(), *filter(None, [tables.left_out_table(findings.study)])]),
        "table.tex": latex.document(latex_tables(findings)),
    }
    for name, text in contents.items():
        storage.write_text(folder / name, text)
    return [folder / name for name in contents]


def as_csv(rows: Iterable[Sequence[Any]]) -> str:
    """Numbers as they are, None as an empty cell, text so that no spreadsheet computes it."""
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows([[_plain(cell) for cell in row] for row in rows])
    return buffer.getvalue()


def _plain(cell: Any) -> Any:
    if not isinstance(cell, str):
        return cell
    line = printable(" ".join(cell.split()))
    return f"'{line}" if line.startswith(FORMULA) else line


def method_rows(findings: Findings) -> list[list[Any]]:
    """A row a method: what was counted, costs, and of each score mean, deviations and interval."""
    keys = list(findings.study.metrics)
    parts = ("mean", "std", "low", "high", "std_seeds")
    heading = ["method", "kind", "seeds", "folds", "left_out", "parameters", "macs", "seconds", "peak_memory", "energy"]
    rows: list[list[Any]] = [[*heading, "device", *(f"{key} {part}" for key in keys for part in parts)]]
    costs = {one.label: one for one in findings.costs}
    found = {(one.label, one.key): one for one in findings.summaries}
    for method in findings.study.methods:
        cost = costs[method.label]
        seeds = "" if method.kind == "untrained" else " ".join(map(str, method.seeds))
        row = [method.label, method.kind, seeds, len((method.runs[0].split or {})["folds"]), len(method.left_out)]
        row += [cost.parameters, cost.macs, cost.seconds, cost.peak_memory, cost.energy, ", ".join(cost.devices)]
        rows.append(row + [getattr(found[method.label, key], part) for key in keys for part in parts])
    for method in findings.study.empty:
        rows.append([method.label, "no whole run", "", "", len(method.left_out)] + [None] * (len(rows[0]) - 5))
    return rows


def score_rows(study: Study) -> list[list[Any]]:
    """A row a score of a fold of a run, for statistics of one's own."""
    rows: list[list[Any]] = [["method", "kind", "run", "seed", "fold", "split", "metric", "value"]]
    for method in study.methods:
        for run in method.runs:
            seed = None if method.kind == "untrained" else run.seed
            for fold, scores in sorted(fold_scores(run, method.kind, method.part).items()):
                for key in (key for key in study.metrics if key in scores):
                    part, _, metric = key.partition("/")
                    rows.append([method.label, method.kind, str(run.folder), seed, fold, part, metric, scores[key]])
    return rows


def comparison_rows(found: Sequence[Comparison]) -> list[list[Any]]:
    """A row a test."""
    heading = (
        *("method", "baseline", "score", "test", "unit", "n", "difference", "low", "high", "p", "p_holm"),
        *("smallest_p", "better", "worse", "left_out", "not_paired"),
    )
    fields = (
        *("label", "baseline", "key", "test", "unit", "n", "mean", "low", "high", "p", "p_holm"),
        *("attainable", "better", "worse", "left_out", "not_paired"),
    )
    return [list(heading), *([getattr(one, name) for name in fields] for one in found)]


def markdown(found: Sequence[Table]) -> str:
    return "\n".join(tables_of_runs.markdown(_for_markdown(one)) for one in found)


def _for_markdown(table: Table) -> Table:
    return replace(
        table,
        title=markdown_text(table.title),
        headings=tuple(map(markdown_text, table.headings)),
        rows=tuple(tuple(map(markdown_text, row)) for row in table.rows),
        notes=tuple(map(markdown_text, table.notes)),
    )


def markdown_text(text: str) -> str:
    """Without anything that Markdown or HTML would read as more; `|` is the table's own matter."""
    one_line = " ".join(text.split())
    marked = re.sub(r"([\\`*~])", r"\\\1", one_line).replace("](", "]\\(").replace("][", "]\\[")
    marked = re.sub(r"(?<![^\W_])_|_(?![^\W_])", r"\\_", marked)
    return marked.replace("&", "&amp;").replace("<", "&lt;")


def latex_tables(findings: Findings) -> list[tuple[str, Table]]:
    """Scores a few a table, differences a table each, costs."""
    study, keys = findings.study, list(findings.study.metrics)
    found: list[tuple[str, Table]] = []
    for first in range(0, len(keys), LATEX_SCORES):
        some = findings.with_scores(keys[first : first + LATEX_SCORES])
        table = tables.score_table(some.study, some.summaries, over_seeds=first == 0)
        found.append((_numbered("scores", first // LATEX_SCORES), table if first == 0 else replace(table, notes=())))
    for number, key in enumerate(dict.fromkeys(one.key for one in findings.comparisons)):
        some = findings.with_scores([key])
        compared = tables.comparison_table(some.study, some.comparisons)
        if compared is not None:
            named = replace(compared, title=f"{compared.title}, {key}", notes=compared.notes if number == 0 else ())
            found.append((_numbered("differences", number), named))
    costs = tables.cost_table(study, findings.costs)
    return found if costs is None else [*found, ("costs", costs)]


def _numbered(name: str, number: int) -> str:
    return name if number == 0 else f"{name}-{number + 1}"
