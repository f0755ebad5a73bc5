"""From one resolved config to a cross-validated result: build the parts, train the folds, leave the run folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from omegaconf import DictConfig


@dataclass(frozen=True, kw_only=True)
class Request:
    """How a run was asked for; everything that the config itself does not say."""

    command: tuple[str, ...]
    """The command as typed, for the record: ("onn-run", "model=onn", ...)."""
    overrides: tuple[str, ...] = ()
    """Overrides in Hydra's grammar, without resume=: what a resumed run is composed from."""
    flags: tuple[str, ...] = ()
    """Flags that composing again needs (--config-dir ...)."""
    choices: Mapping[str, Any] = field(default_factory=dict)
    """Group -> chosen option (hydra.runtime.choices): {"model": "onn", "data": "denoise", ...}."""
    config_dirs: tuple[Path, ...] = ()
    """Folders that hold config groups, the product's own first, then --config-dir."""
    folder: Path | None = None
    """The run's folder where the caller fixes it (sweep job, hydra.run.dir); None: outputs/<name>/<time-stamp>."""
    resume: Path | None = None
    """The earlier run's folder to go on with."""


@dataclass(frozen=True)
class Outcome:
    """What a run came to: the process's exit code and, for sweepers, the monitored metric's mean over folds."""

    exit_code: int
    score: float | None
    folder: Path | None


def run(config: DictConfig, *, request: Request) -> Outcome:
    """Carry out one run, resumed run or dry run. Raises OnnRunnerError."""
    raise NotImplementedError
