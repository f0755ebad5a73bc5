"""Restore: bring the input back to the target, pixel by pixel; denoising, deblurring, inpainting, any regression."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from onn_runner.errors import ConfigError
from onn_runner.task.base import Step, StepOutput
from onn_runner.task.loss import Loss, build


@dataclass(frozen=True, kw_only=True)
class Restore:
    """Raises ConfigError for an unknown loss, and for a prediction of another shape than its target."""

    loss: str | Mapping[str, float] | Loss = "mse"
    """A name of task/loss.py, names with their weights in a sum, or a function (prediction, target) -> scalar."""
    clip: Sequence[float] | None = None
    """Range to which predictions are clipped before they are scored; None: scored as they are. Losses never are."""
    data_range: Sequence[float] = (0.0, 1.0)
    """Of the targets' values: what SSIM refers to, and what pictures show from black to white."""
    criterion: Loss = field(init=False, repr=False)
    of_classes: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not _is_range(self.data_range):
            raise ConfigError(f"task.data_range (={self.data_range}) must be [low, high], such as [0, 1].")
        object.__setattr__(self, "criterion", build(self.loss, span=float(self.data_range[1] - self.data_range[0])))
        if self.clip is not None and not _is_range(self.clip):
            raise ConfigError(f"task.clip (={self.clip}) must be [low, high], such as [0, 1], or null.")

    @property
    def clip_range(self) -> tuple[float, float] | None:
        """`clip` as (low, high), for whatever is compared with the predictions."""
        return None if self.clip is None else (float(self.clip[0]), float(self.clip[1]))

    def train_step(self, network: nn.Module, batch: dict[str, Any], step: Step) -> StepOutput:
        prediction, target = self._predict(network, batch)
        loss = self.criterion(prediction, target)
        step(loss)
        return StepOutput(loss.detach(), prediction.detach(), target)

    def eval_step(self, network: nn.Module, batch: dict[str, Any]) -> StepOutput:
        prediction, target = self._predict(network, batch)
        loss = self.criterion(prediction, target)
        if self.clip_range is not None:
            prediction = prediction.clamp(*self.clip_range)
        return StepOutput(loss.detach(), prediction, target)

    def preview(self, batch: dict[str, Any], output: StepOutput) -> dict[str, Tensor]:
        """Input | output | target side by side; nothing for signals, and for sizes that do not fit together."""
        panels = [batch["input"], output.prediction, output.target]
        if any(panel.ndim != 4 or panel.shape[-2] != panels[0].shape[-2] for panel in panels):
            return {}
        channels = 3 if all(panel.shape[1] == 3 for panel in panels) else 1
        low, high = self.data_range
        shown = [((panel[:, :channels] - low) / (high - low)).clamp(0, 1) for panel in panels]
        return {"input_output_target": torch.cat(shown, dim=-1)}

    def _predict(self, network: nn.Module, batch: dict[str, Any]) -> tuple[Tensor, Tensor]:
        prediction, target = network(batch["input"]), batch["target"]
        if prediction.shape != target.shape:
            raise ConfigError(
                f"the network gives {tuple(prediction.shape)} where the target is {tuple(target.shape)}: "
                "choose channels and sampling of the network so that its output has the target's shape."
            )
        return prediction, target


def _is_range(value: Any) -> bool:
    """Whether it is two finite numbers, the lower one first."""
    if isinstance(value, str) or not isinstance(value, Sequence) or len(value) != 2:
        return False
    numbers = all(isinstance(end, int | float) and not isinstance(end, bool) and math.isfinite(end) for end in value)
    return numbers and value[0] < value[1]
