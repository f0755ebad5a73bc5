"""Where a sweep stands, job by job, and the runs and sweeps that a folder holds."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from onn_runner.errors import ConfigError
from onn_runner.study import progress
from onn_runner.study.files import Files, entries, moment, now, number_of, whole
from onn_runner.study.progress import FINISHED, KILLED, RUNNING, STOPPED, WAITING, WRONG, RunProgress
from onn_runner.study.reading import EARLIER

DEEPEST = 4
"""Folders between the one that is named and a run in it."""
NO_JOBS = frozenset((EARLIER, "joined", "report"))
"""Folders of a sweep that are no jobs: set aside, joined of several, and reported."""
KILLED_REASON = "its process is gone without a word; the same command again goes on from what is saved"
DECIDING = ("trainer.monitor=", "metric=", "data=", "task=", "experiment=")
"""Overrides that change what is monitored."""
OVER = {"finished": FINISHED, "stopped": STOPPED}
"""Of a sweep.json."""


@dataclass(frozen=True, kw_only=True)
class SweepProgress:
    """All jobs of a sweep, planned ones too."""

    folder: Path
    status: str
    """running, killed, finished or stopped."""
    launcher: str
    jobs: tuple[RunProgress, ...]
    trials_left: int
    """Of a search: trials that are not yet jobs."""
    searching: bool
    seconds_left: float | None
    monitor: str = ""
    """What the scores are of; "" where the jobs differ in what they monitor, or nothing tells."""

    @property
    def counts(self) -> Mapping[str, int]:
        return Counter(job.status for job in self.jobs)


@dataclass(frozen=True)
class Look:
    """The sweeps and the single runs in some folders, at one moment."""

    sweeps: tuple[SweepProgress, ...]
    runs: tuple[RunProgress, ...]

    @property
    def running(self) -> bool:
        return any(status == RUNNING for status in (*(s.status for s in self.sweeps), *(r.status for r in self.runs)))

    @property
    def wrong(self) -> bool:
        """Whether a run failed, diverged or was killed; of a search, a training that diverges is an answer."""
        jobs = [job for sweep in self.sweeps for job in sweep.jobs if not (sweep.searching and job.diverged)]
        return any(run.status in WRONG for run in (*jobs, *self.runs))


def look(folders: Sequence[Path], files: Files) -> Look:
    """What is in the folders, each once. Raises ConfigError for a folder that holds neither run nor sweep."""
    sweeps: dict[Path, Path] = {}
    runs: dict[Path, Path] = {}
    for folder in folders:
        if not folder.is_dir():
            raise ConfigError(f"{folder}: there is no such folder; give a run's, a sweep's, or one that contains them")
        found_sweeps, found_runs = _inside(folder, files, DEEPEST)
        if not found_sweeps and not found_runs:
            raise ConfigError(f"{folder} holds neither a run nor a sweep (no run.json or sweep.json in it or below)")
        sweeps = {path.resolve(): path for path in found_sweeps} | sweeps
        runs = {path.resolve(): path for path in found_runs} | runs
    return Look(
        tuple(of_sweep(folder, files) for folder in sweeps.values()),
        tuple(of_job(folder, files) for folder in runs.values()),
    )


def _inside(folder: Path, files: Files, depth: int) -> tuple[list[Path], list[Path]]:
    if any((folder / name).is_file() for name in ("run.json", "job.json")):
        return [], [folder]
    below = [path for path in files.folders(folder) if path.name not in NO_JOBS and not path.name.startswith("fold_")]
    if (folder / "sweep.json").is_file() or any((path / "job.json").is_file() for path in below):
        return [folder], []
    sweeps: list[Path] = []
    runs: list[Path] = []
    for path in below if depth else ():
        more_sweeps, more_runs = _inside(path, files, depth - 1)
        sweeps, runs = sweeps + more_sweeps, runs + more_runs
    return sweeps, runs


def of_sweep(folder: Path, files: Files) -> SweepProgress:
    """Of the sweep in `folder`; one without a sweep.json has the jobs that were started, in their order."""
    record = files.json(folder / "sweep.json") or {}
    alive = (folder / "sweep.json").is_file() and progress.alive(folder / ".lock")
    planned = [job for job in entries(record, "jobs") if isinstance(job, dict) and _is_name(job.get("folder"))]
    jobs = [of_job(folder / job["folder"], files, _words(job.get("overrides"))) for job in planned]
    if not planned:
        # One of an earlier version, or whose plan cannot be read.
        others = [path for path in files.folders(folder) if path.name not in NO_JOBS and (path / "job.json").is_file()]
        jobs = sorted((of_job(path, files) for path in others), key=lambda job: _number(job.folder, files))
    trials = whole(record.get("trials"))
    sweep = SweepProgress(
        folder=folder,
        status=_status(record, jobs, alive=alive),
        launcher=str(record.get("launcher") or ""),
        jobs=tuple(jobs),
        trials_left=max(0, (trials or 0) - len(jobs)) if alive else 0,
        searching=trials is not None,
        seconds_left=None,
        monitor=_monitor(jobs, files),
    )
    return replace(sweep, seconds_left=_left(sweep) if sweep.status == RUNNING else None)


def _status(record: Mapping[str, Any], jobs: Sequence[RunProgress], *, alive: bool) -> str:
    if alive or any(job.status == RUNNING for job in jobs):
        return RUNNING
    if record:
        return OVER.get(str(record.get("status")), KILLED)
    return KILLED if any(job.status == KILLED for job in jobs) else FINISHED


def of_job(folder: Path, files: Files, overrides: tuple[str, ...] = ()) -> RunProgress:
    """Of a folder of a sweep, which holds a run once the job has begun; of a run folder where it is no job's."""
    record = files.json(folder / "job.json")
    if record is None:
        if (folder / "run.json").is_file() or not overrides:
            return replace(progress.of_run(folder, files), overrides=overrides)
        return RunProgress(folder=folder, name=folder.name, status=WAITING, overrides=overrides)
    status = progress.status_of(folder, files, "job.json", (".job.lock", ".lock"))
    record = files.json(folder / "job.json") or record
    told = RunProgress(
        folder=folder,
        name=folder.name,
        status=status,
        reason=str(record.get("error") or (KILLED_REASON if status == KILLED else "")),
        overrides=_words(record.get("overrides")) or overrides,
        score=number_of(record.get("score")),
        started=moment(record.get("started")),
        ended=moment(record.get("ended")),
    )
    return progress.with_training(told, files)


def _left(sweep: SweepProgress) -> float | None:
    """Seconds: what running jobs have left and waiting ones will take, shared among as many as run now."""
    at_work = [job for job in sweep.jobs if job.status == RUNNING]
    waiting = sum(job.status in (WAITING, KILLED, STOPPED) for job in sweep.jobs) + sweep.trials_left
    over = [j.ended - j.started for j in sweep.jobs if j.status == FINISHED and j.started and j.ended]
    expected = [
        now() - job.started + job.seconds_left for job in at_work if job.started and job.seconds_left is not None
    ]
    if not (over or expected):
        return None
    typical = statistics.fmean(over or expected)
    left = [_left_of(job, typical) for job in at_work]
    return max([(sum(left) + waiting * typical) / max(1, len(at_work)), *left])


def _left_of(job: RunProgress, typical: float) -> float:
    if job.seconds_left is not None:
        return job.seconds_left
    return max(0.0, typical - (now() - job.started)) if job.started else typical


def _monitor(jobs: Sequence[RunProgress], files: Files) -> str:
    """Of one job that tells, where none differs from another in what decides it."""
    deciding = [tuple(text for text in job.overrides if text.lstrip("+").startswith(DECIDING)) for job in jobs]
    if len(set(deciding)) > 1:
        return ""
    known = next((job.monitor for job in jobs if job.monitor), "")
    over = next((job.folder for job in jobs if job.status == FINISHED), None)
    if known or over is None:
        return known
    return str((files.json(over / "results.json") or {}).get("monitor") or "")


def _number(folder: Path, files: Files) -> tuple[int, str]:
    return whole((files.json(folder / "job.json") or {}).get("number")) or 0, folder.name


def _is_name(folder: Any) -> bool:
    """Of a folder right in the sweep's."""
    return isinstance(folder, str) and folder not in ("", "..") and "\0" not in folder and Path(folder).name == folder


def _words(texts: Any) -> tuple[str, ...]:
    return tuple(map(str, texts)) if isinstance(texts, list | tuple) else ()
