"""ItemMetric: a torchmetrics metric that also keeps the score of every item; a mean over items, never over batches."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric


class ItemMetric(Metric):
    """Mean over items of a per-item score; items without a defined score (NaN) are left out and counted.

    Subclasses implement `score`. `items` gives the scores in the order of the updates, `left_out` how many were NaN.
    """

    higher_is_better: bool | None = True
    full_state_update = False
    values: list[Tensor]

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.add_state("values", default=[], dist_reduce_fx="cat")

    def score(self, prediction: Tensor, target: Tensor) -> Tensor:
        """[B, C, *S], [B, C, *S] -> [B]"""
        raise NotImplementedError

    def update(self, prediction: Tensor, target: Tensor) -> None:
        self.values.append(self.score(prediction.float(), target.float()).double().cpu())

    def items(self) -> Tensor:
        """[N] float64, NaN where the score is not defined."""
        gathered: object = self.values
        if isinstance(gathered, Tensor):
            return gathered
        return torch.cat(self.values) if self.values else torch.empty(0, dtype=torch.float64)

    def value(self) -> float:
        """The score of all items: the mean of those that have one; NaN where none has."""
        values = self.items()
        defined = values[~values.isnan()]
        return float(defined.mean()) if defined.numel() else math.nan

    @property
    def left_out(self) -> int:
        return int(self.items().isnan().sum())

    def compute(self) -> Tensor:
        return torch.tensor(self.value(), dtype=torch.float64)


class PartMetric(ItemMetric):
    """A score that only a whole part has (F1, AUROC, calibration error): no item has one of its own.

    Subclasses implement `update`, `reset` and `value`.
    """

    def update(self, prediction: Tensor, target: Tensor) -> None:
        raise NotImplementedError

    def items(self) -> Tensor:
        """[0]: there is nothing by item."""
        return torch.empty(0, dtype=torch.float64)

    def value(self) -> float:
        raise NotImplementedError
