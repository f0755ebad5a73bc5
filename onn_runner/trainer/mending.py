"""Damaged files of a start are set aside, and training goes on from what is whole: a state before, a copy, or anew."""

from __future__ import annotations

import os
from pathlib import Path

from onn_runner import storage
from onn_runner.errors import RunError
from onn_runner.trainer import checkpoint, weights
from onn_runner.trainer.checkpoint import LAST, PREVIOUS, Checkpoint, Damaged
from onn_runner.trainer.monitor import Monitor

DAMAGED = ".damaged"
"""What is added to the name of a damaged file, which is kept."""
GONE = " is gone."
UNUSED = ".unused"
"""What is added to the name of a whole one, where a start has to be trained anew all the same."""


def mend(folder: Path, monitors: tuple[Monitor, ...], *, finished: bool) -> tuple[str, bool]:
    """(what was damaged and what comes of it, whether the start has to be looked at again: its result counts no more).

    An empty text where all is whole, as of a start that was not begun. `finished`: the whole fold is, and needs its
    best weights only. Raises RunError where a file cannot be read or renamed, or is of a later version.
    """
    told = _mend_last(folder, finished=finished)
    state = checkpoint.load_last(folder)
    again = bool(told) and state is None and not finished
    for monitor in monitors if finished or state is not None else ():
        text, anew = _mend_best(folder / monitor.file, monitor, state)
        told, again = " ".join(filter(None, (told, text))), again or anew
    return told, again


def _mend_last(folder: Path, *, finished: bool) -> str:
    told: list[str] = []
    for path in (folder / LAST, folder / PREVIOUS):
        try:
            if path.exists():
                state = checkpoint.load(path)
                then = f"Going on from {path.name}, saved after epoch {state.epoch}."
                return " ".join([*told, then]) if told else ""
        except Damaged as error:
            _rename(path, DAMAGED)
            told.append(f"{error} It is kept as {path.name}{DAMAGED}.")
    then = "its results stay" if finished else "this start is trained anew"
    return " ".join([*told, f"There is no earlier one: {then}."]) if told else ""


def _mend_best(path: Path, monitor: Monitor, state: Checkpoint | None) -> tuple[str, bool]:
    """As `mend`, of the weights that are the best by one monitor; `state`: that of the newest checkpoint."""
    best = {} if state is None else state.best.get(monitor.key)
    if best is None or (state is None and not path.exists()):
        return "", False
    try:
        if path.exists():
            checkpoint.load(path)
            return "", False
        fault = f"{path}{GONE}"
    except Damaged as error:
        _rename(path, DAMAGED)
        fault = f"{error} It is kept as {path.name}{DAMAGED}."
    if state is not None and best["epoch"] == state.epoch and not state.step and not state.origin:
        # It may be missing because the process ended between the two.
        return "" if fault.endswith(GONE) else f"{fault} It is written again from the last checkpoint.", True
    try:
        copy = weights.read(path.with_suffix(weights.SUFFIX))
    except RunError:
        copy = None
    if copy is not None and copy.epoch == best.get("epoch", copy.epoch):
        weights.save_best(path, copy)
        return f"{fault} It is written again from {path.stem}{weights.SUFFIX}.", False
    for other in (LAST, PREVIOUS):
        if (path.parent / other).exists():
            _rename(path.parent / other, UNUSED)
    return f"{fault} There is no copy: this start is trained anew (its other checkpoints are kept as *{UNUSED}).", True


def _rename(path: Path, suffix: str) -> None:
    try:
        os.replace(path, path.with_name(f"{path.name}{suffix}"))
    except OSError as error:
        raise storage.failure(path, error) from error
