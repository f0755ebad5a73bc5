"""Any torchmetrics metric, evaluated item by item."""

from __future__ import annotations

from copy import deepcopy

import torch
from torch import Tensor
from torchmetrics import Metric

from onn_runner.errors import ConfigError
from onn_runner.metric.base import ItemMetric


def adapt(metric: Metric) -> ItemMetric:
    """The metric itself where it scores items already; else a copy of it that is reset for every item."""
    if isinstance(metric, ItemMetric):
        return metric
    if not isinstance(metric, Metric):
        raise ConfigError(f"a metric must be a torchmetrics.Metric, not {type(metric).__name__}: check its _target_")
    return Adapted(metric)


class Adapted(ItemMetric):
    """The score of an item is what the metric computes over that item alone."""

    def __init__(self, metric: Metric) -> None:
        super().__init__()
        self.metric = deepcopy(metric)
        # torchmetrics forbids the assignment, for what it takes as a constant of the class.
        self.__dict__["higher_is_better"] = metric.higher_is_better

    def score(self, prediction: Tensor, target: Tensor) -> Tensor:
        return torch.stack([self._single(prediction[i : i + 1], target[i : i + 1]) for i in range(len(target))])

    def _single(self, prediction: Tensor, target: Tensor) -> Tensor:
        self.metric.reset()
        self.metric.update(prediction, target)
        value = torch.as_tensor(self.metric.compute())
        self.metric.reset()
        if value.numel() != 1:
            name = type(self.metric).__name__
            raise ConfigError(
                f"metric {name} gives {tuple(value.shape)} numbers for one item: set its options so that it gives one"
            )
        return value.reshape(()).float()
