"""What an interrupted start left, and what the reader is told about going on from it."""

from __future__ import annotations

from pathlib import Path

import torch

from onn_runner import storage
from onn_runner.errors import ConfigError
from onn_runner.trainer import checkpoint
from onn_runner.trainer.checkpoint import Checkpoint
from onn_runner.trainer.progress import Reporter
from onn_runner.trainer.settings import Settings


def earlier_state(folder: Path, settings: Settings, reporter: Reporter) -> Checkpoint | None:
    """The state to go on from, with the number of threads that it was computed with; None for a fresh start.

    Raises ConfigError where it has more epochs than are asked for.
    """
    state = checkpoint.load_last(folder)
    if state is None:
        return None
    if state.epoch > settings.epochs:
        raise ConfigError(
            f"trainer.epochs={settings.epochs} is less than the {state.epoch} epochs that {folder} "
            "already has: ask for as many or more."
        )
    if settings.threads is None and state.threads != torch.get_num_threads():
        reporter.note(f"computing with {state.threads} threads, as before the interruption.")
        torch.set_num_threads(state.threads)
    return state


def publish_last(folder: Path, fold: Path) -> None:
    """Show the newest state of a start in the fold's folder too."""
    last = folder / checkpoint.LAST
    if folder != fold and last.exists():
        storage.publish(last, fold / checkpoint.LAST, often=True)


def tell(reporter: Reporter, where: str, *, epoch: int, step: int, finished: bool) -> None:
    """At which epoch and step a start goes on that is not new."""
    if epoch or step:
        scored = f"is trained already ({epoch} epochs), the best weights are scored"
        reporter.note(f"{where}: {scored if finished else f'goes on with epoch {epoch + 1}, step {step + 1}'}")
