"""The scores of a run's model, of its twin or of an untrained baseline: by fold, and by item."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from onn_runner.report.results import TABLES, best_start
from onn_runner.study.records import Kind, Method, Run

Scores = Mapping[str, float]
"""Score key -> value; NaN where it is not finite, as JSON has none."""
Items = Mapping[int, Mapping[str, Sequence[tuple[str, float]]]]
"""Fold -> score key -> (item, score), in the order of the part."""
FILES = {"model": "test_items.csv", "twin": "baseline/test_items.csv", "untrained": "baseline_items.csv"}


def fold_scores(run: Run, kind: Kind = "model", part: str = "") -> dict[int, Scores]:
    """Fold -> scores of the start that validation chose, for folds that have one."""
    if run.results is None:
        return {}
    if kind == "untrained":
        rows = run.results["baselines"].get(part, {"folds": ()})["folds"]
        return {int(row["fold"]): _numbers({key: row[key] for key in row if key != "fold"}) for row in rows}
    starts = best_starts(run, kind)
    return {fold: _numbers(start["test"]) for fold, start in starts.items() if start is not None}


def best_starts(run: Run, kind: Kind = "model") -> dict[int, Mapping[str, Any] | None]:
    """Fold -> the start that counts; None where every start diverged."""
    results = run.results or {"folds": ()}
    if kind == "twin":
        results = results.get("twin") or {"folds": ()}
    return {int(fold["fold"]): best_start(fold) for fold in results["folds"]}


def _numbers(scores: Mapping[str, Any]) -> Scores:
    return {str(key): math.nan if value is None else float(value) for key, value in scores.items()}


def whole(run: Run, kind: Kind = "model", part: str = "") -> bool:
    """Whether every fold of the run's split has a result; only of a run that came to its end."""
    if not run.whole or run.status not in ("done", "diverged") or run.split is None:
        return False
    folds = [int(fold["index"]) for fold in run.split["folds"]]
    return bool(folds) and sorted(fold_scores(run, kind, part)) == sorted(folds)


def item_scores(run: Run, method: Method) -> Items:
    """From the run's table. Raises ValueError, with the file's name, where it is missing or damaged."""
    path = run.folder / FILES[method.kind]
    try:
        return _read(path, method.part if method.kind == "untrained" else None)
    except FileNotFoundError as error:
        raise ValueError(f"{path} is gone") from error
    except (OSError, ValueError, csv.Error) as error:
        raise ValueError(f"{path} is damaged ({error})") from error


def _read(path: Path, of: str | None) -> dict[int, dict[str, list[tuple[str, float]]]]:
    """Rows of all folds; `of`: the untrained baseline."""
    found: dict[int, dict[str, list[tuple[str, float]]]] = {}
    with path.open(newline="", encoding="utf-8") as handle:
        rows = csv.reader(handle, strict=True)
        heading = tuple(next(rows, ()))
        if heading != TABLES[path.name]:
            raise ValueError("not the runner's heading")
        for row in rows:
            if len(row) != len(heading):
                raise ValueError(f"line {rows.line_num} has {len(row)} cells")
            fold, second, item, part, metric, value = row
            if of is None or second == of:
                score = float(value or "nan")
                found.setdefault(int(fold), {}).setdefault(f"{part}/{metric}", []).append((item, score))
    return found
