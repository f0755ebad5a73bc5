"""One run of a sweep, in whatever process a launcher puts it: what came of it stays in its folder as job.json."""

from __future__ import annotations

import math
import os
import platform
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from onn_runner import locking, plain, storage, targets
from onn_runner.cli import argv, check, resolvers, sweep_folder
from onn_runner.cli.catalogue import CONFIG_NAME, config_folder
from onn_runner.cli.orphans import ends_with_parent
from onn_runner.errors import Interrupted, OnnRunnerError, Pruned
from onn_runner.report.folder import now

resolvers.register()

RECORD, LOCK, LOG = "job.json", ".job.lock", "log.txt"
FINISHED, FAILED, RUNNING, STOPPED, PRUNED = "finished", "failed", "running", "stopped", "pruned"
ALONE = ("basic",)
"""Launchers that run one job after the other in the sweep's own process."""
HOW = ("sweep", "dry_run")
"""Keys that say how a job runs: no part of what its run is composed from later."""


@dataclass(frozen=True, kw_only=True)
class Record:
    """A job's overrides and what came of it."""

    number: int
    overrides: tuple[str, ...]
    folder: Path
    status: str = RUNNING
    exit_code: int = 1
    score: float | None = None
    objectives: Mapping[str, float | int | None] = field(default_factory=dict)
    """What a search may ask for: score, macs, parameters, seconds."""
    error: str = ""
    started: str | None = None
    ended: str | None = None
    host: str = ""
    pid: int = 0

    def write(self, **changes: Any) -> Record:
        """The changed record, which job.json holds now."""
        changed = replace(self, **changes)
        content = asdict(changed)
        del content["folder"]
        storage.write_json(self.folder / RECORD, content)
        return changed


def records(where: Path) -> list[Record]:
    """The records of all jobs of a sweep that were started: in the plan's order, then by number."""
    plan = sweep_folder.read(where)
    order = {job.folder: number for number, job in enumerate(plan.jobs)} if plan is not None else {}
    found = [read(path.parent) for path in where.glob(f"*/{RECORD}")]
    known = [record for record in found if record is not None and (not order or record.folder.name in order)]
    return sorted(known, key=lambda record: (order.get(record.folder.name, len(order)), record.number))


def read(folder: Path) -> Record | None:
    """The record in a job's folder; None where there is none or where it is not readable."""
    try:
        content = plain.read_json(folder / RECORD)
        content["overrides"] = tuple(map(str, content["overrides"]))
        record = Record(folder=folder, **content)
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return record if _sound(record) else None


def _sound(record: Record) -> bool:
    """Whether its fields are of their kinds: the file may have been written by anybody."""
    numbers = (record.number, record.exit_code, record.pid)
    texts = (record.status, record.error, record.host, record.started or "", record.ended or "")
    of_objectives = record.objectives.values() if isinstance(record.objectives, Mapping) else [""]
    scores = (record.score, *of_objectives)
    return (
        all(type(number) is int for number in numbers)
        and all(isinstance(text, str) for text in texts)
        and all(score is None or isinstance(score, int | float) for score in scores)
    )


def carry_out(config: DictConfig, *, modules: Sequence[str] = ()) -> float:
    """The score of one job for the sweeper, after the run. What was finished before is not done again.

    `modules`: the user's own that may be imported, as typed; a config cannot say so.
    """
    targets.allow(modules)
    settings: Any = HydraConfig.get()
    folder = Path(str(settings.runtime.output_dir))
    retry = bool(OmegaConf.select(config, "sweep.retry_failed", default=False))
    with ExitStack() as stack:
        if settings.runtime.choices.get("hydra/launcher") == "joblib":
            stack.enter_context(ends_with_parent())
        stack.enter_context(held(folder))
        record = Record(number=int(settings.job.num), overrides=lasting(as_typed(settings)), folder=folder)
        earlier = read(folder)
        state = prepare(folder, earlier, config, request_of(config, settings, folder), retry=retry)
        if earlier is not None and state in (FINISHED, FAILED):
            if state == FINISHED:
                print(f"onn-run: {folder.name} is finished already")
            return score_for_sweeper(earlier.score, settings, record)
        if not (folder / LOCK).exists():
            # The lock that we hold went aside with the folder.
            stack.enter_context(held(folder))
        boundary = Boundary(record)
        with logged(folder, settings), boundary:
            boundary.outcome = _run(config, request_of(config, settings, folder))
        outcome = boundary.outcome
        return score_for_sweeper(None if outcome is None else outcome.score, settings, record)


def prepare(folder: Path, earlier: Record | None, config: DictConfig, request: Any, *, retry: bool) -> str:
    """What is to be done with a job: "new", "half", FINISHED or FAILED; what does not fit is set aside, with a note.

    A failed job is tried again with `retry` only: from its checkpoints, or anew where its training diverged.
    """
    from onn_runner.cli.standing import standing

    try:
        found = standing(folder, earlier, config, request)
    except OnnRunnerError as error:
        if earlier is None or earlier.status not in (FINISHED, PRUNED):
            # The run itself tells it.
            return "half" if (folder / "run.json").is_file() else "new"
        print(f"onn-run: {folder.name} stays as it is, unchecked: {error}", file=sys.stderr)
        return FINISHED
    state: str = found.state
    if state == "failed" and not retry:
        return FAILED
    if state == "failed":
        state = "other" if diverged(folder) else "half" if (folder / "run.json").is_file() else "new"
    if state == "other":
        kept = sweep_folder.set_aside(folder)
        reason = found.reason or "it diverged"
        print(f"onn-run: {folder.name} is run anew: {reason}; what was there is kept in {kept}", file=sys.stderr)
        return "new"
    return state


def diverged(folder: Path) -> bool:
    try:
        return bool(plain.read_json(folder / "results.json")["status"] == "diverged")
    except (OSError, ValueError, LookupError, TypeError):
        return False


def what_diverged(folder: Path) -> str:
    """The first divergence of a run, and how many there are."""
    from onn_runner.report.results import divergences

    try:
        told = divergences(plain.read_json(folder / "results.json")["folds"])
    except (OSError, ValueError, LookupError, TypeError):
        told = []
    if not told:
        return "some folds failed; see the folder's results"
    return told[0] + (f", and {len(told) - 1} more" if len(told) > 1 else "")


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """The job's folder, held by this process; waits, and says so, while one of an earlier start computes it still."""
    folder.mkdir(parents=True, exist_ok=True)
    told = False

    def wait(seconds: float) -> bool:
        nonlocal told
        if seconds > 1 and not told:
            told = True
            print(f"onn-run: waiting for {folder.name}, which another process computes", file=sys.stderr, flush=True)
        return True

    with locking.hold(folder / LOCK, wait=wait):
        yield


@contextmanager
def logged(folder: Path, settings: Any) -> Iterator[None]:
    """Where jobs run side by side, what this one prints goes to log.txt in its folder."""
    if settings.runtime.choices.get("hydra/launcher", "basic") in ALONE:
        yield
        return
    try:
        stream = (folder / LOG).open("a", encoding="utf-8", buffering=1)
    except OSError as error:
        raise storage.failure(folder / LOG, error) from error
    with stream, redirect_stdout(stream), redirect_stderr(stream):
        yield


def _run(config: DictConfig, request: Any) -> Any:
    from onn_runner import experiment

    return experiment.run(config, request=request)


def request_of(config: DictConfig, settings: Any, folder: Path) -> Any:
    """How a job's run is asked for; `config` without Hydra's node, `settings` that node."""
    from onn_runner import experiment
    from onn_runner.cli.reopening import initial_of
    from onn_runner.cli.search_settings import fold_reports

    flags = (*composing_flags(settings), *(f"{argv.MODULE}{name}" for name in targets.allowed()))
    overrides = tuple(check.useful(config, lasting(as_typed(settings))))
    return experiment.Request(
        command=("onn-run", *flags, *overrides),
        overrides=overrides,
        flags=flags,
        choices=choices_of(settings),
        config_dirs=config_dirs(settings),
        folder=folder,
        resume=folder if (folder / "run.json").exists() else None,
        initial=initial_of(config),
        after_fold=fold_reports(settings, config),
    )


def lasting(overrides: Sequence[str]) -> tuple[str, ...]:
    """Without those that say how the sweep runs."""
    return tuple(text for text in overrides if text.lstrip("+~").partition("=")[0].partition(".")[0] not in HOW)


def composing_flags(settings: Any) -> tuple[str, ...]:
    """The flags without which the overrides would compose something else, from what the config came of."""
    flags = []
    for source in settings.runtime.config_sources:
        if source.provider == "command-line":
            flags.append(f"--config-dir={source.path}")
        elif source.provider == "main" and Path(source.path) != config_folder():
            flags.append(f"--config-path={source.path}")
    if settings.job.config_name != CONFIG_NAME:
        flags.append(f"--config-name={settings.job.config_name}")
    return tuple(flags)


def choices_of(settings: Any) -> dict[str, Any]:
    """Group -> chosen option, Hydra's own groups left out; `experiment` has a list, which only the overrides tell."""
    choices = OmegaConf.to_container(settings.runtime.choices)
    assert isinstance(choices, dict)
    chosen = {str(group): option for group, option in choices.items() if not str(group).startswith("hydra")}
    for override in map(argv.parse, as_typed(settings)):
        if override.key_or_group == "experiment":
            value = override.value()
            chosen["experiment"] = [str(name) for name in (value if isinstance(value, list) else [value])]
    return chosen


def as_typed(settings: Any) -> tuple[str, ...]:
    """The task's overrides, with their interpolations as interpolations."""
    texts = OmegaConf.to_container(settings.overrides.task, resolve=False)
    assert isinstance(texts, list)
    return tuple(str(text) for text in texts)


def config_dirs(settings: Any) -> tuple[Path, ...]:
    """The folders that the config was composed from."""
    return tuple(Path(source.path) for source in settings.runtime.config_sources if source.schema == "file")


class Boundary:
    """Keeps a job's failure in its folder, so that the other jobs go on; lets interruptions through."""

    def __init__(self, record: Record) -> None:
        self.record = record
        self.outcome: Any = None

    def __enter__(self) -> None:
        self.record = self.record.write(started=now(), host=platform.node(), pid=os.getpid())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if error is None:
            failed = self.outcome.exit_code != 0
            message = what_diverged(self.record.folder) if failed else ""
            known = {"score": self.outcome.score, "objectives": dict(self.outcome.objectives)}
            self._write(FAILED if failed else FINISHED, self.outcome.exit_code, message, **known)
            return True
        if isinstance(error, Pruned):
            self._write(PRUNED, error.exit_code, "")
            return True
        if isinstance(error, Interrupted | KeyboardInterrupt):
            self._write(STOPPED, Interrupted.exit_code, str(error))
            raise KeyboardInterrupt from error
        if not isinstance(error, Exception):
            return False
        if isinstance(error, OnnRunnerError):
            self._write(FAILED, error.exit_code, str(error))
        else:
            text = "".join(traceback.format_exception(error))
            (self.record.folder / "error.txt").write_text(text, encoding="utf-8")
            self._write(FAILED, 1, f"{type(error).__name__}: {error}; traceback in error.txt")
        return True

    def _write(self, status: str, code: int, error: str, **more: Any) -> None:
        """Also where the disk is full or the folder is gone: the other jobs go on, and the reader is told."""
        try:
            self.record.write(status=status, exit_code=code, error=error, ended=now(), **more)
        except OnnRunnerError as problem:
            print(f"onn-run: {self.record.folder.name} {status}: {error or 'done'}; {problem}", file=sys.stderr)


def score_for_sweeper(score: float | None, settings: Any, record: Record) -> float:
    """`score`; where there is none, the worst one in the sweeper's direction, and a line that says so."""
    if score is not None and math.isfinite(score):
        return score
    direction = OmegaConf.select(settings, "sweeper.direction")
    if direction is None:
        return math.nan
    first = direction[0] if OmegaConf.is_list(direction) else direction
    worst = math.inf if str(first).lower().endswith("minimize") else -math.inf
    print(
        f"onn-run: job {record.number} has no score; the sweeper is told {worst}, the worst there is", file=sys.stderr
    )
    return worst
