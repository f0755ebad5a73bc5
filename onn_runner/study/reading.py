"""Run folders as records: every file is text of unknown origin, and what cannot be read is said, never raised."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from onn_runner import locking, plain
from onn_runner.errors import ConfigError
from onn_runner.report import results as reporting
from onn_runner.study import validity
from onn_runner.study.records import Run, Status

PLAN, JOB, RECORD = "sweep.json", "job.json", "run.json"
OF_A_SWEEP = (PLAN, "multirun.yaml")
OF_A_RUN = (RECORD, JOB, "results.json", "split.json")
EARLIER = "earlier"
"""In a sweep: jobs of another config, code or data, set aside."""
DEEPEST = 6
"""Levels below a given folder that are searched."""


class Unreadable(Exception):
    """A file of a run folder that is not what the runner writes; the text says which and why."""


def read(folders: Sequence[Path | str]) -> tuple[Run, ...]:
    """Every run in `folders`, each once, in the order of sweeps and names.

    Raises ConfigError where a folder is missing or where none holds a run.
    """
    found: dict[Path, Run] = {}
    for folder in map(Path, folders):
        if not folder.is_dir():
            raise ConfigError(f"{folder}: there is no such folder; give run folders, sweeps, or what contains them")
        for run in _below(folder, None, 0):
            found.setdefault(run.folder.resolve(), run)
    if not found:
        places = ", ".join(map(str, folders))
        raise ConfigError(
            f"{places}: no run in there; give run folders, sweeps (multirun/<name>), or what contains them"
        )
    return tuple(found.values())


def _below(folder: Path, sweep: Path | None, depth: int) -> Iterator[Run]:
    if _has(folder, OF_A_RUN):
        yield read_run(folder, sweep=sweep)
        return
    if _has(folder, OF_A_SWEEP):
        yield from _of_sweep(folder, depth)
    elif depth < DEEPEST:
        for child in _children(folder):
            yield from _below(child, sweep, depth + 1)


def _of_sweep(folder: Path, depth: int) -> Iterator[Run]:
    """The planned jobs in their order, then what else lies there: joined runs, jobs that an older plan had."""
    planned = planned_jobs(folder)
    for name, overrides in planned.items():
        job = folder / name
        if _has(job, OF_A_RUN) and not job.is_symlink():
            yield read_run(job, sweep=folder)
        else:
            yield Run(
                folder=job, name=name, status="waiting", reason="not started", overrides=overrides,
                command=shlex.join(["onn-run", *overrides]), seed=_seed_of(overrides), sweep=folder,
            )  # fmt: skip
    for child in _children(folder):
        if child.name not in planned and child.name != EARLIER:
            yield from _below(child, folder, depth + 1)


def planned_jobs(folder: Path) -> dict[str, tuple[str, ...]]:
    """Folder's name -> overrides, of sweep.json; empty where there is none. Names that lead elsewhere are left out."""
    try:
        jobs = _json(folder / PLAN).get("jobs", [])
    except Unreadable:
        return {}
    planned = {}
    for job in jobs if isinstance(jobs, list) else []:
        name = job.get("folder") if isinstance(job, dict) else None
        if isinstance(name, str) and name not in ("", ".", "..") and Path(name).name == name and "\\" not in name:
            planned[name] = _words(job.get("overrides"))
    return planned


def read_run(folder: Path, *, sweep: Path | None = None) -> Run:
    """What a run folder tells; its status is "unreadable" where a file that it should have is damaged."""
    run = Run(folder=folder, name=folder.resolve().name, status="unreadable", sweep=sweep)
    try:
        record, job = _json(folder / RECORD, missing_ok=True), _json(folder / JOB, missing_ok=True)
        if not record and not job:
            raise Unreadable(f"{RECORD} is missing")
    except Unreadable as error:
        return replace(run, reason=str(error))
    overrides = _words(record.get("overrides")) or _words(job.get("overrides"))
    run = replace(
        run,
        overrides=overrides,
        command=shlex.join(["onn-run", *_words(record.get("flags")), *overrides]),
        code=_text(record.get("code") or job.get("code")) or None,
        started=_text(record.get("started") or job.get("started")),
        seed=_seed_of(overrides),
    )
    for step in (_with_config, _with_split, _with_results) if record else ():
        try:
            run = step(run)
        except Unreadable as error:
            return replace(run, reason=str(error))
    status, reason = _status(run, record, job)
    return replace(run, status=status, reason=reason)


def _with_config(run: Run) -> Run:
    config = _yaml(run.folder / "config.yaml")
    seed = config.get("seed")
    return replace(run, config=config, seed=seed if isinstance(seed, int) else run.seed)


def _with_split(run: Run) -> Run:
    split = _json(run.folder / "split.json")
    if trouble := validity.of_split(split):
        raise Unreadable(f"split.json {trouble}")
    return replace(run, split=split, fingerprint=split["fingerprint"], folds_planned=len(split["folds"]))


def _with_results(run: Run) -> Run:
    """A run that has just begun has none."""
    results = _json(run.folder / "results.json", missing_ok=True)
    if not results:
        return run
    if trouble := validity.of_results(results):
        raise Unreadable(f"results.json {trouble}")
    finished = [fold for fold in results["folds"] if fold.get("best_start") is not None]
    return replace(run, name=_text(results["name"]) or run.name, results=results, folds_done=len(finished))


def _status(run: Run, record: Mapping[str, Any], job: Mapping[str, Any]) -> tuple[Status, str]:
    told, of_job = _text(record.get("status")), _text(job.get("status"))
    error = " ".join(_text(job.get("error")).split())
    if locking.held(run.folder / ".lock") or locking.held(run.folder / ".job.lock"):
        return "running", _progress(run)
    if "pruned" in (told, of_job):
        return "pruned", error or _progress(run)
    if of_job == "failed" and told not in ("done", "diverged"):
        return ("refused" if not record and job.get("exit_code") == 2 else "failed"), error or _progress(run)
    if told == "running" or (not record and of_job == "running"):
        return "killed", f"its process is gone; {_progress(run)}"
    if told == "interrupted" or (not record and of_job == "stopped"):
        return "interrupted", _progress(run)
    if told == "diverged":
        return "diverged", _diverged(run)
    if told == "failed":
        return "failed", error or _progress(run)
    if told == "done" and run.results is not None:
        return "done", ""
    return (
        "unreadable",
        "results.json is missing" if told == "done" else f"run.json has no status that is known: {told!r}",
    )


def _progress(run: Run) -> str:
    return f"{run.folds_done} of {run.folds_planned or '?'} folds done"


def _diverged(run: Run) -> str:
    told = reporting.divergences(run.results["folds"]) if run.results else []
    twin = run.results.get("twin") if run.results else None
    if not told and twin:
        told = [f"{twin['name']}, {text}" for text in reporting.divergences(twin["folds"])]
    return "; ".join(told)


def _json(path: Path, *, missing_ok: bool = False) -> dict[str, Any]:
    """The object in a file. Raises Unreadable."""
    if missing_ok and not path.exists():
        return {}
    content = _content(path, plain.read_json)
    if not isinstance(content, dict):
        raise Unreadable(f"{path.name} is damaged (no object in it)")
    return content


def _yaml(path: Path) -> dict[str, Any]:
    content = _content(path, plain.read_yaml)
    if not isinstance(content, dict) or "network" not in content:
        raise Unreadable(f"{path.name} is damaged (no config of a run in it)")
    return {str(key): value for key, value in content.items()}


def _content(path: Path, parse: Callable[[Path], Any]) -> Any:
    """Raises Unreadable, with the file's name alone: the folder stands beside it."""
    if not path.exists():
        raise Unreadable(f"{path.name} is missing")
    try:
        return parse(path)
    except ConfigError as error:
        raise Unreadable(str(error).replace(str(path), path.name, 1)) from error


def _has(folder: Path, names: Sequence[str]) -> bool:
    return any((folder / name).is_file() for name in names)


def _children(folder: Path) -> list[Path]:
    """Folders in it that may hold runs, by name; links are not followed, so that nothing is read twice or elsewhere."""
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return []
    return [folder / name for name in sorted(names) if not name.startswith(".")]


def _words(value: Any) -> tuple[str, ...]:
    return tuple(map(str, value)) if isinstance(value, list) else ()


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _seed_of(overrides: Sequence[str]) -> int | None:
    values = [text.removeprefix("seed=") for text in overrides if text.startswith("seed=")]
    return int(values[-1]) if values and values[-1].isdecimal() else None
