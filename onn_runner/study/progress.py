"""Where a run stands: folds, starts and epochs done, the best value so far, the time that is left."""

from __future__ import annotations

import math
import shlex
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from onn_runner import locking
from onn_runner.study.files import Curve, Files, entries, moment, number_of, whole

WAITING, RUNNING, KILLED = "waiting", "running", "killed"
FINISHED, FAILED, STOPPED, PRUNED = "finished", "failed", "stopped", "pruned"
WRONG = (FAILED, KILLED)
"""What makes the exit code 1."""
OF_RUN = {
    "done": FINISHED,
    "running": RUNNING,
    "interrupted": STOPPED,
    "diverged": FAILED,
    "failed": FAILED,
    "pruned": PRUNED,
}
"""The status in run.json -> the word for it here, which is that of job.json."""
LOWER = ("loss", "mse", "mae")
"""Metrics that are better the lower they are, where the run has not written yet which are."""


@dataclass(frozen=True, kw_only=True)
class FoldProgress:
    """One fold's training of one network."""

    fold: int
    of: str
    """"" for the model, the baseline's name for its twin."""
    status: str
    """waiting, running, done, diverged or interrupted."""
    start: int
    starts: int
    epoch: int
    """Epochs done of the start that is trained now or was trained last."""
    epochs: int
    best: float | None
    """Of the monitored value, over all starts."""
    seconds_per_epoch: float | None
    epochs_left: int
    """Over all starts; what patience will save is not known."""


@dataclass(frozen=True, kw_only=True)
class RunProgress:
    """One run, or one job of a sweep."""

    folder: Path
    name: str
    status: str
    reason: str = ""
    overrides: tuple[str, ...] = ()
    monitor: str = ""
    score: float | None = None
    """The monitored value's mean over the folds that are done."""
    folds_done: int = 0
    folds: int | None = None
    """Planned; None where the run has not come so far as to say it."""
    parts: tuple[FoldProgress, ...] = ()
    seconds_left: float | None = None
    """Of training."""
    started: float | None = None
    """Seconds since 1970."""
    ended: float | None = None
    diverged: bool = False
    """A fold did: an error of a run, but an answer to a search."""

    @property
    def current(self) -> FoldProgress | None:
        """What is trained now, or was when the run was killed or stopped."""
        open_ = [part for part in self.parts if part.status not in (WAITING, "done", "diverged")]
        return open_[-1] if open_ else None


def of_run(folder: Path, files: Files) -> RunProgress:
    """Of the run that began in `folder`."""
    status = status_of(folder, files, "run.json", (".lock",))
    record = files.json(folder / "run.json") or {}
    told = RunProgress(folder=folder, name=folder.name, status=status, started=moment(record.get("started")))
    if status in (KILLED, STOPPED):
        began = "its process is gone without a word; " if status == KILLED else ""
        told = replace(told, reason=f"{began}go on with  onn-run resume={shlex.quote(str(folder))}")
    return with_training(told, files)


def status_of(folder: Path, files: Files, record: str, locks: Sequence[str]) -> str:
    """Of a run or a job by its record, and by whether a process works there."""
    status = _recorded(files.json(folder / record))
    if status in (FINISHED, PRUNED, WAITING):
        return status
    if alive(*(folder / lock for lock in locks)):
        return RUNNING
    # It may have ended while we looked.
    status = _recorded(files.json(folder / record))
    if status == RUNNING:
        return RUNNING if locking.fcntl is None else KILLED
    return status


def alive(*locks: Path) -> bool:
    """Whether a process holds one of them."""
    return any(map(locking.held, locks))


def _recorded(record: Mapping[str, Any] | None) -> str:
    told = (record or {}).get("status")
    words = {**{word: word for word in OF_RUN.values()}, **OF_RUN}
    return words.get(told, WAITING) if isinstance(told, str) else WAITING


def with_training(told: RunProgress, files: Files) -> RunProgress:
    """The same with what the folds' folders tell."""
    folder = told.folder
    if told.status == FINISHED:
        # What is over needs no closer look; there may be thousands.
        done = sum(path.name.startswith("fold_") for path in files.folders(folder))
        told = replace(told, folds_done=done, folds=done)
        if told.score is not None:
            return told
    results = files.json(folder / "results.json") or {}
    monitor = str(results.get("monitor") or "")
    score = _score(results) if told.score is None else told.score
    if told.status == FAILED and results.get("status") == "diverged":
        # Where, comes first among the warnings.
        told = replace(told, diverged=True, reason=next(map(str, entries(results, "warnings")), told.reason))
    if told.status == FINISHED:
        return replace(told, monitor=monitor, score=score)
    config = files.yaml(folder / "config.yaml") or {}
    trainer = config.get("trainer")
    trainer = trainer if isinstance(trainer, dict) else {}
    monitor = monitor or str(trainer.get("monitor") or "")
    plan = _Plan(
        monitor=monitor,
        lower=_lower(monitor, results),
        starts=whole(trainer.get("starts")) or 1,
        epochs=whole(trainer.get("epochs")) or 0,
        resumed=_resumed(files.json(folder / "run.json") or {}),
    )
    numbers = _fold_numbers(files.json(folder / "split.json"))
    kinds = ["", *(["baseline"] if config.get("baseline") is not None else [])]
    parts = [
        _fold(folder / f"fold_{number:02d}" / kind, number, kind, plan, files) for number in numbers for kind in kinds
    ]
    parts = _named(parts, results)
    done = sum(all(part.status in ("done", "diverged") for part in parts if part.fold == number) for number in numbers)
    return replace(
        told, monitor=monitor, score=score, folds_done=done, folds=len(numbers) or None, parts=tuple(parts),
        seconds_left=_left(parts) if told.status in (RUNNING, KILLED, STOPPED) else None,
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class _Plan:
    """What a run's config says of every fold."""

    monitor: str
    lower: bool | None
    starts: int
    epochs: int
    resumed: float | None


def _fold(folder: Path, number: int, kind: str, plan: _Plan, files: Files) -> FoldProgress:
    record = files.json(folder / "status.json") or {}
    results = [start for start in entries(record, "starts") if isinstance(start, dict)]
    curves = files.curves(folder / "metrics.csv")
    over = {whole(start.get("start")) for start in results}
    start = next((n for n in range(plan.starts) if n not in over), plan.starts - 1)
    curve = curves.get(start, Curve(0, {}))
    finished = record.get("status") in ("done", "diverged")
    left = 0 if finished else max(0, plan.epochs * (plan.starts - len(over)) - (0 if start in over else curve.epochs))
    return FoldProgress(
        fold=number,
        of=kind,
        status=str(record.get("status", WAITING)),
        start=start,
        starts=plan.starts,
        epoch=curve.epochs,
        epochs=plan.epochs,
        best=_best(curves, results, plan),
        seconds_per_epoch=_pace(folder, results, curve.epochs, plan, files),
        epochs_left=left,
    )


def _best(curves: Mapping[int, Curve], starts: Sequence[Mapping[str, Any]], plan: _Plan) -> float | None:
    """By the direction of the monitor, of all epochs; the last epoch's where the direction is not known."""
    found = [value for curve in curves.values() for value in curve.values.get(plan.monitor, ()) if math.isfinite(value)]
    for start in starts:
        best = start.get("best")
        value = number_of(best.get(plan.monitor)) if isinstance(best, dict) else None
        found += [] if value is None else [value]
    if not found:
        return None
    return found[-1] if plan.lower is None else min(found) if plan.lower else max(found)


def _pace(folder: Path, starts: Sequence[Mapping[str, Any]], epochs: int, plan: _Plan, files: Files) -> float | None:
    """Seconds of an epoch: of the starts that are over, else of those since this one began, else of the last one."""
    known = [number_of(start.get("seconds_per_epoch")) for start in starts]
    taken = [seconds for seconds in known if seconds]
    if taken:
        return statistics.fmean(taken)
    began, newest = files.changed(folder / "status.json"), files.changed(folder / "metrics.csv")
    if began is None or newest is None or not epochs:
        return None
    if plan.resumed is None or began > plan.resumed + 60:
        return max(0.0, newest - began) / epochs
    # A start that was resumed has epochs of an earlier process; the last two checkpoints are an epoch apart.
    base = folder if plan.starts == 1 else folder / f"start_{len(starts):02d}"
    last, before = files.changed(base / "last.pt"), files.changed(base / "last.previous.pt")
    return last - before if last is not None and before is not None and before > plan.resumed else None


def _left(parts: Sequence[FoldProgress]) -> float | None:
    """Seconds of training; a network that was not trained yet is taken to be as fast as the other one."""
    paces = {
        kind: [p.seconds_per_epoch for p in parts if p.of == kind and p.seconds_per_epoch]
        for kind in {p.of for p in parts}
    }
    known = [seconds for taken in paces.values() for seconds in taken]
    if not known:
        return None
    return sum(part.epochs_left * statistics.fmean(paces[part.of] or known) for part in parts)


def _named(parts: Sequence[FoldProgress], results: Mapping[str, Any]) -> list[FoldProgress]:
    """The twin under its name, which the results tell."""
    twin = results.get("twin")
    name = str(twin.get("name") or "baseline") if isinstance(twin, dict) else "baseline"
    return [replace(part, of=name) if part.of else part for part in parts]


def _lower(monitor: str, results: Mapping[str, Any]) -> bool | None:
    metric, higher = monitor.partition("/")[2], results.get("higher_is_better")
    if isinstance(higher, dict) and isinstance(higher.get(metric), bool):
        return not higher[metric]
    return True if metric in LOWER else None if metric == "" else False


def _score(results: Mapping[str, Any]) -> float | None:
    cv = results.get("cv")
    entry = cv.get(results.get("monitor")) if isinstance(cv, dict) else None
    return number_of(entry.get("mean")) if isinstance(entry, dict) else None


def _fold_numbers(split: Mapping[str, Any] | None) -> list[int]:
    found = [whole(fold.get("index")) for fold in entries(split or {}, "folds") if isinstance(fold, dict)]
    return [number for number in found if number is not None]


def _resumed(record: Mapping[str, Any]) -> float | None:
    """When the run was resumed last."""
    found = [entry for entry in entries(record, "resumed") if isinstance(entry, dict)]
    return moment(found[-1].get("at")) if found else None
