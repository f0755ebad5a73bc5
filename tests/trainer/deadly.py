"""Training that kills its own process at a chosen moment. Without pytest: many are started, they must start fast."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import torch
from tiny_fold import make_job
from torch import nn

from onn_runner.task.restore import Restore
from onn_runner.trainer import QuietReporter, StopRequest, train_fold


class Deadly(Restore):
    """Kills its own process before training step number `step` of the run."""

    def __init__(self, step: int) -> None:
        super().__init__()
        object.__setattr__(self, "left", step)

    def train_step(self, network: nn.Module, batch: dict[str, Any], step: Any) -> Any:
        object.__setattr__(self, "left", self.left - 1)  # type: ignore[attr-defined]
        if self.left < 0:  # type: ignore[attr-defined]
            os.kill(os.getpid(), signal.SIGKILL)
        return super().train_step(network, batch, step)


def die_in_step(folder: Path, step: int, changes: dict[str, Any]) -> None:
    _train(make_job(folder, task=Deadly(step), **changes))


def die_in_file(folder: Path, call: int, changes: dict[str, Any]) -> None:
    """Dies before the `call`-th renaming or linking of a file."""
    left = [call]

    def counted(name: str) -> Any:
        original = getattr(os, name)

        def run(*arguments: Any) -> Any:
            left[0] -= 1
            if left[0] < 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return original(*arguments)

        return run

    os.replace, os.link = counted("replace"), counted("link")
    _train(make_job(folder, **changes))


def _train(job: Any) -> None:
    torch.set_num_threads(1)
    train_fold(job, reporter=QuietReporter(), stop=StopRequest(), resume=True)
