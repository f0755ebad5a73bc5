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
    of_classes: bool | None = None
    """Whether logits [B, K] are scored against classes [B]; False: pictures and signals; None: either."""
    full_state_update = False
    values: list[Tensor]

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.add_state("values", default=[], dist_reduce_fx="cat")

    def score(self, prediction: Tensor, target: Tensor) -> Tensor:
        """[B, C, *S], [B, C, *S] -> [B]; of classes [B, K], [B] int64 -> [B]"""
        raise NotImplementedError

    def update(self, prediction: Tensor, target: Tensor) -> None:
        self.values.append(self.score(prediction.float(), _exact(target)).double().cpu())

    def kept(self) -> Tensor:
        """[N, ...]: what the updates have left, from which a metric that is loaded with it goes on."""
        gathered: object = self.values
        if isinstance(gathered, Tensor):
            return gathered
        return torch.cat(self.values) if self.values else torch.empty(0, dtype=torch.float64)

    def load(self, kept: Tensor) -> None:
        """Go on from what another one's `kept` gave."""
        self.reset()
        if len(kept):
            self.values.append(kept)

    def items(self) -> Tensor:
        """[N] float64, NaN where the score is not defined."""
        return self.kept()

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

    Subclasses implement `rows` and `whole`.
    """

    def rows(self, prediction: Tensor, target: Tensor) -> Tensor:
        """What the items of a batch contribute, [B, M]."""
        raise NotImplementedError

    def whole(self, rows: Tensor) -> float:
        """The score of a part, from the rows of all its items, [N, M]; NaN where it is not defined."""
        raise NotImplementedError

    def update(self, prediction: Tensor, target: Tensor) -> None:
        self.values.append(self.rows(prediction.float(), _exact(target)).cpu())

    def items(self) -> Tensor:
        """[0]: there is nothing by item."""
        return torch.empty(0, dtype=torch.float64)

    def value(self) -> float:
        rows = self.kept()
        return self.whole(rows) if len(rows) else math.nan


def _exact(target: Tensor) -> Tensor:
    """float32; classes stay whole numbers."""
    return target.float() if target.is_floating_point() else target
