"""Checkpoint: all that training needs to go on as if it had never stopped; plain containers and tensors."""

from __future__ import annotations

import dataclasses
import io
import pickle
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from onn_runner import storage
from onn_runner.errors import RunError

FORMAT = 2
LAST = "last.pt"
PREVIOUS = "last.previous.pt"


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """State after `epoch` whole epochs and `step` steps of the next. `optimizers` and below are empty in best.pt."""

    config: dict[str, Any]
    seed: int
    fold: int
    start: int
    epoch: int
    network: dict[str, Any]
    step: int = 0
    optimizers: dict[str, Any] = field(default_factory=dict)
    schedules: dict[str, Any] = field(default_factory=dict)
    scaler: dict[str, Any] = field(default_factory=dict)
    average: dict[str, Any] = field(default_factory=dict)
    """The running mean of the weights (trainer.ema)."""
    gradients: dict[str, Any] = field(default_factory=dict)
    """Of an update whose batches are not all done (trainer.accumulate), by parameter."""
    running: dict[str, Any] = field(default_factory=dict)
    """Sums over the steps of the unfinished epoch."""
    origin: int = 0
    """Epoch whose weights the next one begins with; 0: `epoch`. Another one after trainer.restore_best_on_rise."""
    best_state: dict[str, Any] = field(default_factory=dict)
    """Network, optimizers and average of the best epoch, to go back to."""
    candidates: dict[int, Any] = field(default_factory=dict)
    """Epoch -> network, of the best epochs by the monitor (trainer.average)."""
    averaged: list[int] = field(default_factory=list)
    """In best.pt: epochs whose mean the network is; empty: it is that of `epoch`."""
    best: dict[str, dict[str, float]] = field(default_factory=dict)
    """Monitored key -> {epoch, value}."""
    history: list[dict[str, float]] = field(default_factory=list)
    """One row per finished epoch: epoch, train/loss, val/psnr, ..."""
    seconds: float = 0.0
    threads: int = field(default_factory=torch.get_num_threads)
    torch: str = field(default_factory=lambda: str(torch.__version__))
    format: int = FORMAT


def save(path: Path, checkpoint: Checkpoint, *, previous: Path | None = None) -> None:
    """Raises RunError when it cannot be written; the file before it is then intact."""
    content = io.BytesIO()
    torch.save({item.name: getattr(checkpoint, item.name) for item in dataclasses.fields(checkpoint)}, content)
    storage.write(path, content.getvalue(), previous=previous, often=True)


def load(path: Path) -> Checkpoint:
    """Raises RunError for a file that is missing, damaged or of a later format."""
    try:
        with zipfile.ZipFile(path) as archive:
            broken = archive.testzip()
        if broken is not None:
            raise RunError(f"checkpoint {path} is damaged: the checksum of {broken} does not fit.")
        plain = torch.load(path, map_location="cpu", weights_only=True)
        version = plain["format"]
        if version > FORMAT:
            raise RunError(f"checkpoint {path} has format {version}; this onn-runner reads up to {FORMAT}: update it.")
        return Checkpoint(**plain)
    except FileNotFoundError:
        raise RunError(f"checkpoint {path} does not exist.") from None
    except (zipfile.BadZipFile, pickle.UnpicklingError, OSError, EOFError, LookupError, TypeError, ValueError) as error:
        raise RunError(f"checkpoint {path} is damaged: {_first_line(error)}") from error
    except RuntimeError as error:
        if isinstance(error, RunError):
            raise
        raise RunError(f"checkpoint {path} is damaged: {_first_line(error)}") from error


def save_last(folder: Path, checkpoint: Checkpoint) -> None:
    save(folder / LAST, checkpoint, previous=folder / PREVIOUS)


def load_last(folder: Path) -> tuple[Checkpoint | None, str]:
    """The newest whole state of a folder (None where nothing was saved yet), and a note when it is not the newest.

    Raises RunError when there are states and all of them are damaged.
    """
    last, previous = folder / LAST, folder / PREVIOUS
    if not last.exists() and not previous.exists():
        return None, ""
    try:
        return load(last), ""
    except RunError as error:
        if not previous.exists():
            raise RunError(f"{error} There is no earlier one: remove {folder} to train this fold anew.") from error
        checkpoint = load(previous)
        return checkpoint, f"{error} Going on from {PREVIOUS}, saved after epoch {checkpoint.epoch}."


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
