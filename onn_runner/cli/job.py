"""One run of a sweep, in whatever process a launcher puts it: what came of it stays in its folder as job.json."""

from __future__ import annotations

import json
import math
import os
import sys
import traceback
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from onn_runner import storage
from onn_runner.cli import argv, check, resolvers
from onn_runner.cli.catalogue import CONFIG_NAME, config_folder
from onn_runner.errors import Interrupted, OnnRunnerError

resolvers.register()

RECORD = "job.json"
FINISHED, FAILED, RUNNING, STOPPED = "finished", "failed", "running", "stopped"


@dataclass(frozen=True, kw_only=True)
class Record:
    """A job's overrides and what came of it."""

    number: int
    overrides: tuple[str, ...]
    folder: Path
    status: str = RUNNING
    exit_code: int = 1
    score: float | None = None
    error: str = ""

    def write(self, **changes: Any) -> None:
        content = asdict(self) | changes
        del content["folder"]
        storage.write_json(self.folder / RECORD, content)


def records(where: Path) -> list[Record]:
    """The records of all jobs of a sweep that were started, by number."""
    found = [read(path.parent) for path in where.glob(f"*/{RECORD}")]
    return sorted((record for record in found if record is not None), key=lambda record: record.number)


def read(folder: Path) -> Record | None:
    """The record in a job's folder; None where there is none or where it is not readable."""
    try:
        content = json.loads((folder / RECORD).read_text(encoding="utf-8"))
        content["overrides"] = tuple(content["overrides"])
        return Record(folder=folder, **content)
    except (OSError, ValueError, TypeError, KeyError):
        return None


def carry_out(config: DictConfig) -> float:
    """The score of one job for the sweeper, after the run. What was finished before is not done again."""
    settings: Any = HydraConfig.get()
    folder = Path(str(settings.runtime.output_dir))
    overrides = as_typed(settings)
    record = Record(number=int(settings.job.num), overrides=overrides, folder=folder)
    earlier = read(folder)
    if earlier is not None and earlier.status == FINISHED and earlier.overrides == overrides:
        print(f"onn-run: job {record.number} is finished already ({folder})")
        return score_for_sweeper(earlier.score, settings, record)
    boundary = Boundary(record)
    with boundary:
        boundary.outcome = _run(config, settings, folder, overrides)
    outcome = boundary.outcome
    return score_for_sweeper(None if outcome is None else outcome.score, settings, record)


def _run(config: DictConfig, settings: Any, folder: Path, overrides: tuple[str, ...]) -> Any:
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    from onn_runner import experiment
    from onn_runner.cli.reopening import initial_of

    flags = composing_flags(settings)
    overrides = tuple(check.useful(config, overrides))
    request = experiment.Request(
        command=("onn-run", *flags, *overrides),
        overrides=overrides,
        flags=flags,
        choices=choices_of(settings),
        config_dirs=config_dirs(settings),
        folder=folder,
        resume=folder if (folder / "run.json").exists() else None,
        initial=initial_of(config),
    )
    return experiment.run(config, request=request)


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
        self.record.write()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        record = self.record
        if error is None:
            failed = self.outcome.exit_code != 0
            message = "some folds failed; see the folder's results" if failed else ""
            record.write(
                status=FAILED if failed else FINISHED,
                exit_code=self.outcome.exit_code,
                score=self.outcome.score,
                error=message,
            )
            return True
        if isinstance(error, Interrupted | KeyboardInterrupt):
            record.write(status=STOPPED, exit_code=Interrupted.exit_code, error=str(error))
            raise KeyboardInterrupt from error
        if not isinstance(error, Exception):
            return False
        if isinstance(error, OnnRunnerError):
            record.write(status=FAILED, exit_code=error.exit_code, error=str(error))
        else:
            text = "".join(traceback.format_exception(error))
            (record.folder / "error.txt").write_text(text, encoding="utf-8")
            record.write(status=FAILED, exit_code=1, error=f"{type(error).__name__}: {error}; traceback in error.txt")
        return True


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
