"""The run folder: made without collisions, with the config, the command, the versions and the git state in it."""

from __future__ import annotations

import contextlib
import datetime
import importlib.metadata
import os
import platform
import stat
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from onn_runner import __version__, locking, plain, storage
from onn_runner.errors import ConfigError, RunError

RUN_SCHEMA = 1
KINDS: Mapping[str, type] = {"command": list, "overrides": list, "flags": list, "resumed": list, "versions": dict}
"""Of what run.json says besides words."""
MOST_THREADS = 4096
PACKAGES = (
    *("torch", "torchvision", "torchmetrics", "tensorboard", "hydra-core", "omegaconf"),
    *("rich", "scikit-image", "scikit-learn", "numpy", "scipy"),
)


@dataclass(frozen=True)
class RunFolder:
    """Paths of one run, and its `run.json`."""

    path: Path

    @property
    def config(self) -> Path:
        return self.path / "config.yaml"

    @property
    def split(self) -> Path:
        return self.path / "split.json"

    @property
    def results(self) -> Path:
        return self.path / "results.json"

    @property
    def record(self) -> Path:
        return self.path / "run.json"

    def fold(self, index: int) -> Path:
        """`fold_00`, made where it is missing."""
        folder = self.path / f"fold_{index:02d}"
        make(folder)
        return folder

    def refuse_links(self) -> None:
        """Raises ConfigError where the folder leads elsewhere: what is written into a run must stay in it."""
        root = self.path.resolve()
        for parent, folders, files in os.walk(root):
            for place in (Path(parent, name) for name in (*folders, *files)):
                kind, name = place.lstat().st_mode, plain.printable(str(place.relative_to(root)))
                if stat.S_ISLNK(kind) and not place.resolve().is_relative_to(root):
                    raise ConfigError(f"{self.path}: {name} is a link to what lies outside the run")
                if not (stat.S_ISLNK(kind) or stat.S_ISREG(kind) or stat.S_ISDIR(kind)):
                    raise ConfigError(f"{self.path}: {name} is neither a file nor a folder")

    def read_record(self) -> dict[str, Any]:
        """The content of run.json. Raises ConfigError where the folder is not a run's."""
        if not self.record.exists():
            raise ConfigError(f"resume={self.path}: not a run folder (it has no run.json)")
        record = plain.read_json(self.record)
        if not isinstance(record, dict) or record.get("schema") != RUN_SCHEMA:
            raise ConfigError(f"resume={self.path}: run.json is not of this version (schema {RUN_SCHEMA})")
        for key, kind in KINDS.items():
            if not isinstance(record.get(key, kind()), kind):
                raise ConfigError(f"resume={self.path}: {key} in run.json is no {kind.__name__}")
        threads = record.get("threads", 1)
        if type(threads) is not int or not 1 <= threads <= MOST_THREADS:
            raise ConfigError(f"resume={self.path}: threads in run.json must be from 1 to {MOST_THREADS}")
        return {"resumed": [], "versions": {}, **record}

    def update_record(self, **changes: Any) -> None:
        storage.write_json(self.record, self.read_record() | changes)

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other processes out while this one trains here; the system releases it however the process ends.

        Raises ConfigError where another process holds it.
        """
        try:
            with locking.hold(self.path / ".lock"):
                yield
        except locking.Busy as error:
            raise ConfigError(f"{self.path} is being trained by another process: wait for it, or stop it") from error


def make(folder: Path) -> None:
    """`folder` and its parents. Raises RunError with the remedy."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise storage.failure(folder, error) from error


def create(name: str, *, root: Path, fixed: Path | None = None) -> RunFolder:
    """A new folder `root/name/<time-stamp>`, with -2, -3, ... when several start in one second; or `fixed`.

    Raises ConfigError when `fixed` already holds a run.
    """
    if fixed is not None:
        if (fixed / "run.json").exists():
            raise ConfigError(f"the folder {fixed} already holds a run: go on with resume={fixed}, or choose another")
        make(fixed)
        return RunFolder(fixed)
    parent = root / name
    make(parent)
    stamp = datetime.datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
    for attempt in range(1, 1000):
        path = parent / (stamp if attempt == 1 else f"{stamp}-{attempt}")
        try:
            path.mkdir()
        except FileExistsError:
            continue
        except OSError as error:
            raise storage.failure(path, error) from error
        return RunFolder(path)
    raise RunError(f"cannot make a new folder in {parent}: 999 runs started in one second")


def describe(
    *, command: Sequence[str], overrides: Sequence[str], flags: Sequence[str], code: str, threads: int
) -> dict[str, Any]:
    """What run.json says at the start of a run."""
    return {
        "schema": RUN_SCHEMA,
        "status": "running",
        "command": list(command),
        "overrides": list(overrides),
        "flags": list(flags),
        "code": code,
        "threads": threads,
        "started": now(),
        "resumed": [],
        "versions": versions(),
        "git": git_state(Path.cwd()),
    }


def resumption(record: Mapping[str, Any], command: Sequence[str], *, code: str) -> tuple[dict[str, Any], str | None]:
    """(the entry for `resumed`, a warning where the software is not the one that the run began with)."""
    current, began = versions(), record.get("versions", {})
    changed = [
        f"{name} {began.get(name, 'absent')} -> {version}"
        for name, version in current.items()
        if name in ("onn-runner", "python", "torch") and began.get(name) != version
    ]
    if not changed and record.get("code") != code:
        changed = [f"code {record.get('code', 'unknown')} -> {code}"]
    warning = f"resumed with other versions ({', '.join(changed)}): last digits may differ" if changed else None
    return {"at": now(), "command": list(command), "versions": dict(current), "code": code}, warning


def now() -> str:
    """Local time with its offset, to the second."""
    return datetime.datetime.now().astimezone().isoformat(timespec="seconds")


def versions() -> Mapping[str, str]:
    """This package, Python, the system and the libraries that numbers depend on."""
    found = {"onn-runner": __version__, "python": platform.python_version(), "system": platform.platform()}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def git_state(folder: Path) -> Mapping[str, Any] | None:
    """Commit and cleanliness of the repository around `folder`; None outside one or without git."""
    try:
        commit = _git(folder, "rev-parse", "HEAD")
        return {"commit": commit, "modified": bool(_git(folder, "status", "--porcelain", "--untracked-files=no"))}
    except (OSError, subprocess.SubprocessError):
        return None


def _git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, timeout=10, check=True)
    return done.stdout.strip()
