"""Checkpoint: all that training needs to go on as if it had never stopped; plain containers and tensors."""

from __future__ import annotations

import dataclasses
import io
import math
import pickle
import struct
import warnings
import zipfile
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from onn_runner import storage
from onn_runner.errors import RunError
from onn_runner.plain import not_tensors, refuse_packed
from onn_runner.trainer.consumption import Usage

FORMAT = 3
LAST = "last.pt"
PREVIOUS = "last.previous.pt"
SEAL = b"onn-runner crc32 %08x"
SEALED_SINCE = 3
KINDS = {"dict": dict, "list": list, "int": int, "float": int | float, "str": str}
"""A field's type, as it is written -> what its value must be."""
MOST_THREADS = 4096
BLOCK = 2**20
UNREADABLE = (
    *(zipfile.BadZipFile, zlib.error, struct.error, pickle.UnpicklingError, OSError, EOFError),
    *(LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RuntimeError),
)
"""What reading a file of other content fails with."""


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
    """In checkpoints of format 2 and earlier."""
    usage: dict[str, Any] = field(default_factory=dict)
    """What training took until here: the fields of a `Usage`."""
    threads: int = field(default_factory=torch.get_num_threads)
    torch: str = field(default_factory=lambda: str(torch.__version__))
    format: int = FORMAT

    @property
    def used(self) -> Usage:
        return Usage(**self.usage) if self.usage else Usage(seconds=self.seconds, device="unknown")


class Damaged(RunError):
    """A checkpoint whose content is not what was written."""


def save(path: Path, checkpoint: Checkpoint, *, previous: Path | None = None) -> None:
    """Raises RunError when it cannot be written; the file before it is then intact."""
    content = io.BytesIO()
    torch.save({item.name: getattr(checkpoint, item.name) for item in dataclasses.fields(checkpoint)}, content)
    storage.write(path, sealed(content), previous=previous, often=True)


def load(path: Path) -> Checkpoint:
    """Raises Damaged, and RunError for a file that is missing, cannot be read or is of a later format."""
    try:
        whole = check_seal(path)
        refuse_packed(path)
        with warnings.catch_warnings():
            # Of pickles that torch never wrote, which are damaged in any case.
            warnings.simplefilter("ignore")
            plain = torch.load(path, map_location="cpu", weights_only=True)
        version = plain["format"]
        if version > FORMAT:
            raise RunError(f"checkpoint {path} has format {version}; this onn-runner reads up to {FORMAT}: update it.")
        if version >= SEALED_SINCE and not whole:
            raise Damaged(f"checkpoint {path} is damaged: its checksum is missing.")
        return _checked(Checkpoint(**plain))
    except FileNotFoundError:
        raise RunError(f"checkpoint {path} does not exist.") from None
    except (PermissionError, IsADirectoryError) as error:
        raise RunError(f"checkpoint {path} cannot be read: {error.strerror}.") from error
    except RunError:
        raise
    except UNREADABLE as error:
        raise Damaged(f"checkpoint {path} is damaged: {not_tensors(error)}") from error


def _checked(found: Checkpoint) -> Checkpoint:
    """Raises TypeError and ValueError for fields that are not what a checkpoint's are: in files that others made."""
    for item in dataclasses.fields(found):
        value, kind = getattr(found, item.name), KINDS[str(item.type).partition("[")[0]]
        if not isinstance(value, kind) or isinstance(value, bool):
            raise ValueError(f"{item.name} is no {item.type!s}")
    counts = {name: getattr(found, name) for name in ("seed", "fold", "start", "epoch", "step", "origin")}
    odd = [name for name, count in counts.items() if count < 0]
    if odd or not 1 <= found.threads <= MOST_THREADS:
        raise ValueError(f"{', '.join(odd) or 'threads'} cannot be")
    _check_epochs(found)
    return found


def _check_epochs(found: Checkpoint) -> None:
    """Raises ValueError and TypeError where the epochs that are told of are none."""
    rows = [*found.history, *found.best.values()]
    if not all(isinstance(row, dict) and all(isinstance(value, int | float) for value in row.values()) for row in rows):
        raise ValueError("its history is no table of numbers")
    told = [row.get("epoch", math.nan) for row in rows]
    if not all(0 < epoch <= max(found.epoch, len(found.history)) and epoch == int(epoch) for epoch in told):
        raise ValueError("its history has epochs that there are not")
    best = [candidate.get("value") for candidate in found.candidates.values()]
    if not all(isinstance(number, int) for number in (*found.averaged, *found.candidates)):
        raise ValueError("its best epochs are no numbers")
    if not all(isinstance(value, int | float) for value in best):
        raise ValueError("its best epochs have no values")


def sealed(content: io.BytesIO) -> bytes:
    """A zip file with a checksum of all its bytes as its comment: those that its own checksums leave out as well."""
    content.seek(-2, io.SEEK_END)
    content.write(len(SEAL % 0).to_bytes(2, "little"))
    content.write(SEAL % zlib.crc32(content.getbuffer()))
    return content.getvalue()


def check_seal(path: Path) -> bool:
    """Whether the file has a checksum, which fits; files of earlier versions have those of a zip file only.

    Raises Damaged where it does not fit.
    """
    length = len(SEAL % 0)
    with path.open("rb") as file:
        left = file.seek(0, io.SEEK_END) - length
        file.seek(max(left, 0))
        seal = file.read()
        if left < 0 or not seal.startswith(SEAL[: SEAL.index(b"%")]):
            _check_parts(path)
            return False
        file.seek(0)
        checksum = 0
        while left > 0:
            block = file.read(min(left, BLOCK))
            checksum, left = zlib.crc32(block, checksum), left - len(block)
    if seal != SEAL % checksum:
        raise Damaged(f"checkpoint {path} is damaged: its checksum does not fit.")
    return True


def _check_parts(path: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        broken = archive.testzip()
    if broken is not None:
        raise Damaged(f"checkpoint {path} is damaged: the checksum of {broken} does not fit.")


def save_last(folder: Path, checkpoint: Checkpoint) -> None:
    save(folder / LAST, checkpoint, previous=folder / PREVIOUS)


def load_last(folder: Path) -> Checkpoint | None:
    """The newest state of a folder; None where nothing was saved yet.

    Raises Damaged, which `mending.set_aside` prevents.
    """
    for path in (folder / LAST, folder / PREVIOUS):
        if path.exists():
            return load(path)
    return None
