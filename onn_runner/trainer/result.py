"""What training a fold gave: status, scores and, for a fold that diverged, where. Plain JSON and back."""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from onn_runner import storage
from onn_runner.errors import RunError

Status = Literal["running", "done", "diverged", "interrupted"]
FORMAT = 1
STATUS = "status.json"


@dataclass(frozen=True)
class Divergence:
    """Where the first value arose that is not finite."""

    epoch: int
    step: int
    """Step of that epoch, from 1; 0: after its last step, in validation or testing."""
    layer: str
    what: str

    def __str__(self) -> str:
        where = f"epoch {self.epoch}" + (f", step {self.step}" if self.step else "")
        return f"{self.what} at {where}; first in {self.layer}"


@dataclass(frozen=True, kw_only=True)
class StartResult:
    start: int
    status: Status
    epochs_run: int
    stopped_early: bool = False
    seconds_per_epoch: float = 0.0
    seconds: float | None = None
    """This and the next: what training took, without scoring the test part; see `Usage`. None: of earlier versions."""
    peak_memory: int | None = None
    energy: float | None = None
    energy_of: str = ""
    device: str = ""
    best_epoch: int | None = None
    """Epoch of the best weights by the monitor; None where no epoch had a finite one."""
    averaged: list[int] = field(default_factory=list)
    """Epochs whose mean the scored weights are (trainer.average); empty: they are those of `best_epoch`."""
    best: dict[str, float] = field(default_factory=dict)
    """Best value of every monitored key."""
    validation: dict[str, float] = field(default_factory=dict)
    """`train/` and `val/` values of the best epoch; `val/` ones of the mean where that is scored."""
    test: dict[str, float] = field(default_factory=dict)
    """`test/`, `photo/` and `fitted/` (training items) values of the best weights."""
    left_out: dict[str, int] = field(default_factory=dict)
    """Items without a defined score, by key; only those above 0."""
    diverged: Divergence | None = None

    def as_plain(self) -> dict[str, Any]:
        return {key: _strict(value) for key, value in dataclasses.asdict(self).items()}

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> StartResult:
        scores = ("best", "validation", "test")
        values = {name: {key: float(value) for key, value in plain[name].items()} for name in scores}
        diverged = Divergence(**plain["diverged"]) if plain["diverged"] else None
        return cls(**{**plain, **values, "diverged": diverged})


@dataclass(frozen=True, kw_only=True)
class FoldResult:
    fold: int
    status: Status
    """`diverged` only where every start diverged; `any_diverged` tells of single ones."""
    monitor: str
    starts: tuple[StartResult, ...] = ()
    best_start: int | None = None
    """Number of the best finished start, by the monitor."""

    @property
    def best(self) -> StartResult | None:
        return next((start for start in self.starts if start.start == self.best_start), None)

    @property
    def any_diverged(self) -> bool:
        return any(start.status == "diverged" for start in self.starts)

    def as_plain(self) -> dict[str, Any]:
        starts = [start.as_plain() for start in self.starts]
        return {
            "format": FORMAT,
            "fold": self.fold,
            "status": self.status,
            "monitor": self.monitor,
            "best_start": self.best_start,
            "starts": starts,
        }

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> FoldResult:
        fields = {key: value for key, value in plain.items() if key != "format"}
        result = cls(**{**fields, "starts": tuple(StartResult.from_plain(start) for start in plain["starts"])})
        _refuse_odd(result)
        return result


def _refuse_odd(result: FoldResult) -> None:
    """Raises ValueError for what no training gives: numbers that are none, a best start that there is not."""
    for start in result.starts:
        counts = (start.start, start.epochs_run, start.best_epoch or 0, *start.averaged, *start.left_out.values())
        if any(type(count) is not int or count < 0 for count in counts):
            raise ValueError(f"start {start.start!s:.40} has counts that are none")
    if result.best_start is not None and result.best is None:
        raise ValueError(f"best_start (={result.best_start!s:.40}) is none of its starts")
    statuses = (result.status, *(start.status for start in result.starts))
    if any(status not in get_args(Status) for status in statuses) or type(result.fold) is not int:
        raise ValueError("its status or fold is none")


def write_status(folder: Path, result: FoldResult) -> None:
    storage.write(folder / STATUS, (json.dumps(result.as_plain(), indent=1) + "\n").encode())


def read_status(folder: Path) -> FoldResult | None:
    """None where there is none yet. Raises RunError for one that cannot be read."""
    path = folder / STATUS
    try:
        return FoldResult.from_plain(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, LookupError, AttributeError, OSError, RecursionError) as error:
        raise RunError(f"{path} cannot be read ({error}): the fold goes on from its checkpoints.") from error


def _strict(value: Any) -> Any:
    """JSON knows no nan and inf: they become words that float() reads."""
    if isinstance(value, dict):
        return {key: _strict(item) for key, item in value.items()}
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
