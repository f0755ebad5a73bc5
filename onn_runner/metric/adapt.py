"""Any torchmetrics metric, evaluated item by item; of classes over the whole part."""

from __future__ import annotations

from copy import deepcopy

import torch
from torch import Tensor
from torch.nn import functional
from torchmetrics import Metric

from onn_runner.errors import ConfigError
from onn_runner.metric.base import ItemMetric, PartMetric
from onn_runner.metric.classification import another_class, answered


def adapt(metric: Metric, *, classes: bool = False) -> ItemMetric:
    """The metric itself where it is one of ours; else a copy of it that is reset for every item.

    `classes`: the data has some, so that it scores the part: F1 and AUROC of a single item mean nothing.
    """
    if isinstance(metric, ItemMetric):
        return metric
    if not isinstance(metric, Metric):
        raise ConfigError(f"a metric must be a torchmetrics.Metric, not {type(metric).__name__}: check its _target_")
    return AdaptedPart(metric) if classes else Adapted(metric)


class Adapted(ItemMetric):
    """The score of an item is what the metric computes over that item alone."""

    def __init__(self, metric: Metric) -> None:
        super().__init__()
        self.metric = _taken_over(metric, self)

    def score(self, prediction: Tensor, target: Tensor) -> Tensor:
        scores = [_alone(self.metric, prediction[i : i + 1], target[i : i + 1], "item") for i in range(len(target))]
        return torch.stack(scores)


class AdaptedPart(PartMetric):
    """What the metric computes over all logits [N, K] and classes [N] of a part.

    An item without a finite answer is 1 for another class than its own and 0 for the others, logits or probabilities.
    """

    def __init__(self, metric: Metric) -> None:
        super().__init__()
        self.metric = _taken_over(metric, self)

    def rows(self, prediction: Tensor, target: Tensor) -> Tensor:
        wrong = functional.one_hot(another_class(target, prediction.shape[1]), prediction.shape[1])
        known = prediction.where(answered(prediction)[:, None], wrong.to(prediction.dtype))
        return torch.cat([known, target[:, None].to(prediction.dtype)], 1)

    def whole(self, rows: Tensor) -> float:
        rows = rows.to(self.metric.device)
        return float(_alone(self.metric, rows[:, :-1], rows[:, -1].long(), "part"))


def _taken_over(metric: Metric, by: ItemMetric) -> Metric:
    """A copy, whose direction `by` has from now on."""
    # torchmetrics forbids the assignment, for what it takes as a constant of the class.
    by.__dict__["higher_is_better"] = metric.higher_is_better
    return deepcopy(metric)


def _alone(metric: Metric, prediction: Tensor, target: Tensor, of: str) -> Tensor:
    """A scalar: the metric over these items and no others."""
    metric.reset()
    metric.update(prediction, target)
    value = torch.as_tensor(metric.compute())
    metric.reset()
    if value.numel() != 1:
        name = type(metric).__name__
        raise ConfigError(
            f"metric {name} gives {tuple(value.shape)} numbers for one {of}: set its options so that it gives one"
        )
    return value.reshape(()).float()
