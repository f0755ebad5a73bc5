"""results.json: every fold, start and baseline of a run with mean and standard deviation over folds.

Schema 1, all numbers finite or null:

    schema, name, status            "running" | "done" | "diverged" | "interrupted" | "pruned" | "failed"
    monitor, higher_is_better       "val/psnr"; {"psnr": true, "mse": false, ...}
    part                            null, or of a run that trains some of the partition's folds: {folds: [0, 2], of: 3}
    network                         layers, parameters, MACs as printed at the start; matched: what network.match did
    folds                           per fold: fold, status, best_start, starts [{start, status, best_epoch, epochs_run,
                                    seconds_per_epoch, seconds, peak_memory, energy, energy_of, device: what training
                                    it took (trainer/consumption.py), validation {"val/psnr"}, test {"test/psnr",
                                    "photo/psnr"}, ...}]
    cv                              "test/psnr": {mean, std, folds}: the best start of every fold that has one
    cv_starts                       the same over the mean of each fold's starts, where there are several
    cost                            what training the best starts of all folds took: {seconds and energy: sums,
                                    peak_memory: the largest, energy_of, device}; null where one of them does not know
    twin                            null, or of baseline=<model>: {name, network, folds, cv, cv_starts, cost}
    baselines                       of what needs no training: name -> {folds: [{"test/psnr"}], cv}
    comparison                      {unit, to: name of twin or baseline -> "test/psnr" -> see report/paired.py}
    left_out                        "test/snr": items without a defined score
    warnings, seconds
"""

from __future__ import annotations

import csv
import io
import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from onn_runner import storage
from onn_runner.errors import RunError

RESULTS_SCHEMA = 1
TABLES = {
    "metrics.csv": ("fold", "start", "epoch", "split", "metric", "value"),
    "test_items.csv": ("fold", "start", "item", "split", "metric", "value"),
    "baseline_items.csv": ("fold", "baseline", "item", "split", "metric", "value"),
}
"""Tidy tables of a fold, joined in the run's folder: name -> heading."""


def spread(values: Sequence[float]) -> dict[str, Any]:
    """Mean and sample standard deviation (n - 1) over folds; std is None for a single fold.

    A value that is not finite (the PSNR of a perfect prediction is infinite) makes the mean so, it is not left out.
    """
    if not values:
        return {"mean": None, "std": None, "folds": 0}
    known = all(math.isfinite(value) for value in values)
    return {
        "mean": statistics.fmean(values),
        "std": statistics.stdev(values) if known and len(values) > 1 else None,
        "folds": len(values),
    }


def best_start(fold: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The start that validation chose, None where every start diverged or none is finished."""
    if fold.get("best_start") is None:
        return None
    return next(start for start in fold["starts"] if start["start"] == fold["best_start"])


def cross_validated(folds: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Mean and std over folds of each score of the best start; validation and test."""
    chosen = [start for start in map(best_start, folds) if start is not None]
    return _spreads([{**start["validation"], **start["test"]} for start in chosen])


def over_starts(folds: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Mean and std over folds of the mean over a fold's finished starts; empty where there is one start only."""
    if all(len(fold["starts"]) < 2 for fold in folds):
        return {}
    means = []
    for fold in folds:
        finished = [start["test"] for start in fold["starts"] if start["test"]]
        means.append({key: statistics.fmean(scores[key] for scores in finished) for key in (finished or [{}])[0]})
    return _spreads(means)


def _spreads(scores: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    keys = list(dict.fromkeys(key for score in scores for key in score))
    return {key: spread([score[key] for score in scores if key in score]) for key in keys}


def cost(folds: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What training the best starts took; None for what is not known of each of them, as in earlier versions."""
    chosen = [start for start in map(best_start, folds) if start is not None]

    def known(key: str) -> list[Any]:
        values = [start.get(key) for start in chosen]
        return [] if None in values else values

    def words(key: str) -> str:
        return ", ".join(dict.fromkeys(start[key] for start in chosen if start.get(key)))

    kinds = words("energy_of")
    energy = known("energy") if "," not in kinds else []
    return {
        "seconds": sum(known("seconds")) if known("seconds") else None,
        "peak_memory": max(known("peak_memory"), default=None),
        "energy": sum(energy) if energy else None,
        "energy_of": kinds if energy else "",
        "device": words("device"),
    }


def divergences(folds: Sequence[Mapping[str, Any]]) -> list[str]:
    """Every start that diverged, one line each."""
    return [divergence(fold, start) for fold in folds for start in fold["starts"] if start.get("diverged")]


def divergence(fold: Mapping[str, Any], start: Mapping[str, Any]) -> str:
    """Where a start diverged, in one line."""
    where = start["diverged"]
    step = f", step {where['step']}" if where["step"] else ""
    return (
        f"fold {fold['fold']} start {start['start']} diverged at epoch {where['epoch']}{step}: "
        f"{where['what']}; first in {where['layer']}"
    )


def collect(
    *,
    name: str,
    status: str,
    monitor: str,
    higher_is_better: Mapping[str, bool | None],
    network: Mapping[str, Any],
    folds: Sequence[Mapping[str, Any]],
    twin: Mapping[str, Any] | None = None,
    baselines: Mapping[int, Mapping[str, Mapping[str, float]]],
    comparison: Mapping[str, Any] | None = None,
    part: Mapping[str, Any] | None = None,
    warnings: Sequence[str],
    seconds: float,
) -> dict[str, Any]:
    """The content of results.json; `baselines`: fold index -> baseline -> scores; `twin`: name, network, folds."""
    names = list(dict.fromkeys(name for scores in baselines.values() for name in scores))
    rows = {name: [{"fold": index, **baselines[index][name]} for index in sorted(baselines)] for name in names}
    left_out: dict[str, int] = {}
    for start in filter(None, map(best_start, folds)):
        for key, count in start.get("left_out", {}).items():
            left_out[key] = left_out.get(key, 0) + count
    told = divergences(folds)
    if twin is not None:
        told += [f"{twin['name']}, {text}" for text in divergences(twin["folds"])]
        others = twin["folds"]
        twin = {**twin, "cv": cross_validated(others), "cv_starts": over_starts(others), "cost": cost(others)}
    return {
        "schema": RESULTS_SCHEMA,
        "name": name,
        "status": status,
        "monitor": monitor,
        "higher_is_better": dict(higher_is_better),
        "part": None if part is None else dict(part),
        "network": dict(network),
        "folds": list(folds),
        "cv": cross_validated(folds),
        "cv_starts": over_starts(folds),
        "cost": cost(folds),
        "twin": twin,
        "baselines": {
            name: {"folds": scores, "cv": _spreads([{k: v for k, v in row.items() if k != "fold"} for row in scores])}
            for name, scores in rows.items()
        },
        "comparison": comparison or {"unit": "items", "to": {}},
        "left_out": {key: count for key, count in left_out.items() if count},
        "warnings": list(dict.fromkeys([*told, *warnings])),
        "seconds": seconds,
    }


def write_table(path: Path, header: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """A CSV file, whole or not at all."""
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows([header, *rows])
    storage.write_text(path, buffer.getvalue())


def join_tables(parts: Sequence[Path], whole: Path) -> None:
    """One CSV file of the folds' files, the heading once; none where no fold has one.

    Raises RunError for a damaged one.
    """
    texts = [_checked_table(part) for part in parts if part.is_file()]
    if texts:
        heading = texts[0].partition("\n")[0] + "\n"
        storage.write_text(whole, heading + "".join(text.partition("\n")[2] for text in texts))
    else:
        storage.remove(whole)


def _checked_table(path: Path) -> str:
    """Its text. Raises RunError, with the remedy, for a file that was damaged from outside."""
    try:
        text = path.read_text(encoding="utf-8")
        rows = list(csv.reader(text.splitlines(), strict=True))
        whole = bool(rows) and tuple(rows[0]) == TABLES[path.name] and all(len(r) == len(rows[0]) for r in rows)
    except (UnicodeDecodeError, csv.Error):
        whole = False
    if not whole:
        raise RunError(
            f"{path} is damaged: remove it together with status.json beside it, then resume: the fold is scored again"
        )
    return text
