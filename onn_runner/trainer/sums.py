"""Sums over the steps of one epoch: what a mid-epoch checkpoint needs to go on with the same means."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from onn_runner.errors import RunError
from onn_runner.task.base import StepOutput

if TYPE_CHECKING:
    from onn_runner.metric.base import ItemMetric

NUMBERS = ("step", "loss", "items", "norm", "norms", "rate")


@dataclass
class Sums:
    metrics: Mapping[str, ItemMetric]
    step: int = 0
    loss: float = 0.0
    items: int = 0
    norm: float = 0.0
    norms: int = 0
    rate: float = 0.0
    """Learning rate of the newest step."""

    def add(self, output: StepOutput, *, loss: float, norms: Sequence[float], rate: float, items: int) -> None:
        self.step, self.rate = self.step + 1, rate
        self.loss, self.items = self.loss + loss * items, self.items + items
        self.norm, self.norms = self.norm + sum(norms), self.norms + len(norms)
        for metric in self.metrics.values():
            metric.update(output.prediction, output.target)

    def means(self) -> dict[str, float]:
        """`train/` values: the loss and metrics over items, the gradient norm over steps."""
        values = {"train/loss": self.loss / self.items}
        values |= {f"train/{name}": metric.value() for name, metric in self.metrics.items()}
        norm = self.norm / self.norms if self.norms else math.nan
        return values | {"train/gradient_norm": norm, "train/learning_rate": self.rate}

    def clear(self) -> None:
        self.step, self.loss, self.items, self.norm, self.norms, self.rate = 0, 0.0, 0, 0.0, 0, 0.0
        for metric in self.metrics.values():
            metric.reset()

    def state(self) -> dict[str, Any]:
        if not self.step:
            return {}
        plain: dict[str, Any] = {name: getattr(self, name) for name in NUMBERS}
        return plain | {"metrics": {name: metric.kept().clone() for name, metric in self.metrics.items()}}

    def load(self, state: dict[str, Any]) -> None:
        self.clear()
        if not state:
            return
        try:
            for name in NUMBERS:
                setattr(self, name, state[name])
            for name, values in state["metrics"].items():
                self.metrics[name].load(values)
        except (LookupError, TypeError, ValueError, AttributeError, RuntimeError) as error:
            raise RunError(f"the checkpoint's unfinished epoch does not fit ({error!r}): other code made it") from error
