"""Scores of a network on a part: the loss and every metric, by item and as means over items."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils.data import Dataset

from onn_runner.errors import Interrupted
from onn_runner.task.base import StepOutput, Task
from onn_runner.trainer import batches
from onn_runner.trainer.batches import Batch
from onn_runner.trainer.divergence import NonFiniteError
from onn_runner.trainer.engine import Engine
from onn_runner.trainer.interrupt import StopRequest

if TYPE_CHECKING:
    from onn_runner.metric.base import ItemMetric


@dataclass(frozen=True)
class Scores:
    """Keys are `<split>/<metric>`."""

    means: dict[str, float]
    items: dict[str, Tensor]
    """[N] float64 of every metric, in the order of the part; NaN where a score is not defined."""
    left_out: dict[str, int]
    """Items without a score; `<split>/loss`: those of classes whose logits are not all finite."""


class BadBatchError(NonFiniteError):
    """An evaluation loss that is not finite, with the batch that has it."""

    def __init__(self, what: str, batch: Batch) -> None:
        super().__init__(what)
        self.batch = batch


@dataclass
class _Loss:
    """Mean over the items of a part that have an answer."""

    split: str
    total: float = 0.0
    scored: int = 0
    unanswered: int = 0
    worst: Batch | None = None
    """The first batch with an item that has no answer."""

    def add(self, output: StepOutput, batch: Batch) -> None:
        """Raises BadBatchError for a loss that is not finite though items have an answer."""
        items = len(batch["index"])
        scored = items if output.scored is None else output.scored
        if scored:
            loss = float(output.loss)
            if not math.isfinite(loss):
                raise BadBatchError(f"{self.split}/loss is {loss}", batch)
            self.total += loss * scored
        self.scored += scored
        self.unanswered += items - scored
        if scored < items and self.worst is None:
            self.worst = batch

    def mean(self) -> float:
        """Raises BadBatchError where half of the items or more have no answer."""
        if self.worst is not None and self.unanswered >= self.scored:
            told = f"{self.unanswered} of {self.unanswered + self.scored} items have no finite scores"
            raise BadBatchError(f"{self.split}/loss is nan ({told})", self.worst)
        return self.total / self.scored


@dataclass(frozen=True, kw_only=True)
class Evaluator:
    engine: Engine
    task: Task
    metrics: Mapping[str, ItemMetric]
    stop: StopRequest
    inspect: Callable[[str, Batch], None] = lambda split, batch: None
    """Looks at every batch before it is scored, told of its split."""

    def score(self, split: str, dataset: Dataset[Any], positions: Sequence[list[int]]) -> Scores:
        """Raises BadBatchError for a loss that is not finite, Interrupted when asked to stop."""
        engine = self.engine
        engine.scored.eval()
        for metric in self.metrics.values():
            metric.reset()
        loss = _Loss(split)
        workers = engine.settings.workers
        # Not inference mode: what layers remember between calls must be usable in training.
        with torch.no_grad():
            for batch in batches.load(dataset, positions, device=engine.device, stop=self.stop, workers=workers):
                if self.stop.requested:
                    raise Interrupted(f"stopped by {self.stop.reason}")
                self.inspect(split, batch)
                output = self.task.eval_step(engine.evaluating, batch)
                loss.add(output, batch)
                for metric in self.metrics.values():
                    metric.update(output.prediction, output.target)
        by_item = {f"{split}/{name}": metric.items() for name, metric in self.metrics.items()}
        means = {f"{split}/loss": loss.mean()}
        means |= {f"{split}/{name}": metric.value() for name, metric in self.metrics.items()}
        left_out = {f"{split}/loss": loss.unanswered}
        left_out |= {f"{split}/{name}": metric.left_out for name, metric in self.metrics.items()}
        return Scores(
            means,
            {key: scores for key, scores in by_item.items() if len(scores)},
            {key: count for key, count in left_out.items() if count},
        )
