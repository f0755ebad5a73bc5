"""ItemMetric: a torchmetrics metric that also keeps the score of every item; a mean over items, never over batches."""

from __future__ import annotations

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

    @property
    def left_out(self) -> int:
        return int(self.items().isnan().sum())

    def compute(self) -> Tensor:
        values = self.items()
        return values[~values.isnan()].mean()
