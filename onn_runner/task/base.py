"""Task: the loss, the steps and the pictures of one kind of problem; the seam between one loop and many tasks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor, nn


class Step(Protocol):
    """Given by the trainer: backward, unscale, clip and one update of the named optimizer.

    A task with one optimizer calls it once; an adversarial one calls it per player.
    """

    def __call__(self, loss: Tensor, optimizer: str = "main") -> None: ...


@dataclass(frozen=True)
class StepOutput:
    loss: Tensor  # scalar, detached
    prediction: Any  # Tensor [B, C, *S], or a list where sizes differ
    target: Any
    scored: int | None = None
    """Items that the loss is a mean of; None: all of the batch. The others have no finite answer."""


class Task(Protocol):
    def train_step(self, network: nn.Module, batch: dict[str, Any], step: Step) -> StepOutput: ...

    def eval_step(self, network: nn.Module, batch: dict[str, Any]) -> StepOutput: ...

    def preview(self, batch: dict[str, Any], output: StepOutput) -> dict[str, Tensor]:
        """Pictures [N, C, H, W] in [0, 1] for TensorBoard: name -> images."""
