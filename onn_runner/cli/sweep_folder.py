"""The folder of a sweep: named by the command, one process at a time, with the plan of its jobs in sweep.json.

multirun/<name>/sweep.json        command, what all jobs share, the jobs; see `Plan`
multirun/<name>/<job>/            a run folder with job.json, named by the values that the sweep varies
multirun/<name>/earlier/          runs that were set aside: of another config, code or data
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import shutil
import tempfile
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from onn_runner import locking, plain, storage
from onn_runner.cli import argv
from onn_runner.cli.argv import Command
from onn_runner.cli.resolvers import slug
from onn_runner.errors import ConfigError
from onn_runner.experiment import checked_name
from onn_runner.report import folder as folders

PLAN, SCHEMA, LOCK, EARLIER = "sweep.json", 1, ".lock", "earlier"
LONGEST_NAME = 70
"""Characters of a sweep's name before its digest."""
HOW = ("sweep", "dry_run", "name")
"""Keys that say how a sweep runs or what it is called, not what its jobs compute."""


@dataclass(frozen=True)
class Job:
    folder: str
    """Its folder's name, made of what the sweep varies."""
    overrides: tuple[str, ...]
    """Everything that composes it."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What sweep.json says. A search adds jobs while it runs; `trials` is how many it may have."""

    command: tuple[str, ...]
    constants: tuple[str, ...]
    launcher: str
    jobs: tuple[Job, ...] = ()
    trials: int | None = None
    started: str = ""
    status: str = "running"
    schema: int = SCHEMA

    def write(self, folder: Path) -> None:
        storage.write_json(folder / PLAN, asdict(self))


def read(folder: Path) -> Plan | None:
    """None where there is none. Raises ConfigError for one that cannot be read."""
    try:
        if not (folder / PLAN).exists():
            return None
        content = plain.read_json(folder / PLAN)
        jobs = tuple(Job(str(job["folder"]), tuple(map(str, job["overrides"]))) for job in content.pop("jobs"))
        plan = Plan(**{**content, "jobs": jobs})
        words = replace(plan, command=tuple(map(str, plan.command)), constants=tuple(map(str, plan.constants)))
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"{folder / PLAN} is no plan of a sweep, it is damaged: remove it; finished jobs stay finished"
        ) from error
    if words.schema != SCHEMA:
        raise ConfigError(
            f"{folder / PLAN} has schema {words.schema}, this version reads {SCHEMA}: choose another folder"
        )
    return words


def swept_keys(overrides: Sequence[str]) -> set[str]:
    """Keys that are given several values."""
    parsed = [argv.parse(text) for text in overrides]
    return {argv.key_of(one) for one in parsed if one.is_sweep_override() and not one.is_hydra_override()}


def constants(overrides: Sequence[str], swept: Collection[str]) -> tuple[str, ...]:
    """What all jobs of a sweep share: overrides without those that vary and those that say how, sorted."""
    kept = []
    for text in overrides:
        override = argv.parse(text)
        key = argv.key_of(override)
        if not override.is_hydra_override() and key not in swept and key.partition(".")[0] not in HOW:
            kept.append(text)
    return tuple(sorted(kept))


def job_name(overrides: Sequence[str], swept: Collection[str]) -> str:
    """`model-onn_seed-0`: the values of the keys that vary, as one safe folder name, whatever their order."""
    varying = sorted(text for text in overrides if argv.key_of(argv.parse(text)) in swept)
    name = slug("_".join(text.lstrip("+").replace("=", "-") for text in varying)) or "run"
    return f"run-{name}" if name in (EARLIER, "joined") else name


def name_of(command: Command) -> str | None:
    """What name= gives. Raises ConfigError for several, and for what would lie elsewhere."""
    named = [argv.parse(text) for text in command.overrides if text.startswith("name=")]
    if named and named[-1].is_sweep_override():
        raise ConfigError(f"{named[-1].input_line}: a sweep has one name, that of its folder; leave out the others")
    return checked_name(named[-1].value()) if named else None


def default_folder(command: Command) -> Path:
    """multirun/<name>, the same for the same command; its name is that of name=, or made of all overrides."""
    name = name_of(command)
    if name is not None:
        return Path("multirun") / slug(name)
    swept = swept_keys(command.overrides)
    shared = constants(command.overrides, swept)
    varying = sorted(text for text in constants(command.overrides, ()) if text not in shared)
    words = [*varying, *shared]
    text = "_".join(word.lstrip("+").replace("=", "-") for word in words) or "run"
    if slug(text) == text and not command.composing_flags:
        return Path("multirun") / text
    digest = hashlib.blake2b("\n".join([*command.composing_flags, *words]).encode(), digest_size=4).hexdigest()
    readable = re.sub(r"[^A-Za-z0-9._+]+", "-", text)[:LONGEST_NAME].strip("-._+")
    return Path("multirun") / f"{readable}-{digest}"


@contextlib.contextmanager
def opened(command: Command) -> Iterator[Path]:
    """The sweep's folder, held by this process; of a dry run one that vanishes at the end.

    Raises ConfigError where another process computes there, and for a name that is none.
    """
    name_of(command)
    if any(text.lower() == "dry_run=true" for text in command.overrides):
        with tempfile.TemporaryDirectory(prefix="onn-run-") as vanishing:
            yield Path(vanishing)
        return
    typed = [argv.parse(text).value() for text in command.overrides if text.startswith("hydra.sweep.dir=")]
    folder = (Path(str(typed[-1])) if typed else default_folder(command)).expanduser()
    if (folder / "run.json").exists():
        raise ConfigError(
            f"{folder} holds a run: a sweep needs a folder of its own, such as hydra.sweep.dir=multirun/<name>"
        )
    folders.make(folder)
    try:
        with locking.hold(folder / LOCK):
            yield folder.resolve()
    except locking.Busy as error:
        raise ConfigError(
            f"{folder} is being computed by another process: wait for it, or give this sweep a folder of its own with "
            f"name=<word> (onn status {folder} shows how far it is)"
        ) from error


def varied(plan: Plan | None) -> set[str]:
    """Keys that the commands given in a folder so far varied."""
    if plan is None:
        return set()
    shared = {_key(text) for text in plan.constants}
    keys = {_key(text) for job in plan.jobs for text in job.overrides}
    return {key for key in keys - shared if key.partition(".")[0] not in HOW}


def _key(text: str) -> str:
    return argv.key_of(argv.parse(text))


def begin(folder: Path, plan: Plan) -> Plan:
    """Write the plan, with the jobs that earlier commands planned in the folder.

    Raises ConfigError where it holds a sweep with other constants, or a file where a job's folder is to be.
    """
    earlier = read(folder)
    if earlier is not None and earlier.constants != plan.constants:
        mine, theirs = (
            " ".join(sorted(set(one.constants) - set(other.constants))) or "none of these"
            for one, other in ((plan, earlier), (earlier, plan))
        )
        raise ConfigError(
            f"{folder} holds another sweep: what all jobs share is {mine} here and {theirs} there; choose another "
            "folder with name=<word> or hydra.sweep.dir=<folder>"
        )
    for job in plan.jobs:
        if (folder / job.folder).exists() and not (folder / job.folder).is_dir():
            raise ConfigError(f"{folder / job.folder} is a file, and a job's folder is to be there: move it away")
    if earlier is not None:
        planned = {job.folder for job in plan.jobs}
        others = tuple(job for job in earlier.jobs if job.folder not in planned)
        plan = replace(plan, started=earlier.started, jobs=(*others, *plan.jobs))
    else:
        plan = replace(plan, started=folders.now())
    plan.write(folder)
    return plan


def set_aside(folder: Path) -> Path:
    """Move a job's folder to <sweep>/earlier/<job>-<n>, where nothing reads it as a part of the sweep.

    Its event files get names that TensorBoard does not take for events (events.out.tf_events...).
    """
    kept = folder.parent / EARLIER
    folders.make(kept)
    number = 1
    while (kept / f"{folder.name}-{number}").exists():
        number += 1
    destination = kept / f"{folder.name}-{number}"
    try:
        shutil.move(folder, destination)
        for events in destination.rglob("*tfevents*"):
            events.rename(events.with_name(events.name.replace("tfevents", "tf_events")))
    except OSError as error:
        raise storage.failure(destination, error) from error
    return destination
