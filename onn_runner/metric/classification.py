"""Scores of logits against classes: accuracy, likelihood, F1, AUROC and how far confidence can be trusted.

Shares are in per cent. What an item has of its own is a mean over items; the others are scores of a whole part.
An item without an answer counts as wrong wherever right and wrong are counted, and is left out where its probabilities
would be: products of many layers overflow for single items where the rest is fine.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from scipy.stats import rankdata
from torch import Tensor
from torch.nn import functional
from torchmetrics.functional.classification import binary_calibration_error, multiclass_f1_score

from onn_runner.errors import ConfigError
from onn_runner.metric.base import ItemMetric, PartMetric

BINS = 15
"""Of confidence, equally wide: Guo et al., On calibration of modern neural networks, 2017."""


def answered(
    prediction: Tensor,  # [B, K]
) -> Tensor:  # [B]
    """Whether all logits are numbers: an item that overflows on its way through the network has no answer."""
    return prediction.isfinite().all(1)


def another_class(
    target: Tensor,  # [B]
    classes: int,
) -> Tensor:  # [B]
    """What items without an answer are taken for."""
    return (target + 1) % classes


class Accuracy(ItemMetric):
    """Per cent of items whose largest logit is that of their class."""

    of_classes = True

    def score(
        self,
        prediction: Tensor,  # [B, K]
        target: Tensor,  # [B]
    ) -> Tensor:
        return 100.0 * ((prediction.argmax(1) == target) & answered(prediction))


class Top5(ItemMetric):
    """Per cent of items whose class is among the five of the largest logits. Raises ConfigError below six classes."""

    of_classes = True

    def __init__(self, num_classes: int | None = None) -> None:
        super().__init__()
        if num_classes is not None and num_classes < 6:
            raise ConfigError(f"metric=top5 is always 100 % of {num_classes} classes: leave it out of metric=[...]")

    def score(self, prediction: Tensor, target: Tensor) -> Tensor:
        return 100.0 * ((prediction.topk(5, 1).indices == target[:, None]).any(1) & answered(prediction))


class CrossEntropy(ItemMetric):
    """-log of the probability that the item's class was given."""

    higher_is_better = False
    of_classes = True

    def score(self, prediction: Tensor, target: Tensor) -> Tensor:
        losses = functional.cross_entropy(prediction, target, reduction="none")
        return losses.where(answered(prediction), torch.nan)


class Brier(ItemMetric):
    """Squared error of the probabilities, summed over classes: 0 to 2. Source: Brier, 1950."""

    higher_is_better = False
    of_classes = True

    def score(self, prediction: Tensor, target: Tensor) -> Tensor:
        wanted = functional.one_hot(target, prediction.shape[1])
        errors = (prediction.softmax(1) - wanted).square().sum(1)
        return errors.where(answered(prediction), torch.nan)


class _Predicted(PartMetric):
    """What needs the predicted class and the true one."""

    of_classes = True

    def rows(self, prediction: Tensor, target: Tensor) -> Tensor:
        another = another_class(target, prediction.shape[1])
        return torch.stack([prediction.argmax(1).where(answered(prediction), another), target], 1)


class F1(_Predicted):
    """Mean over classes of the harmonic mean of precision and recall, in per cent; classes that do not occur apart."""

    def whole(self, rows: Tensor) -> float:
        predicted, target = rows.unbind(1)
        classes = max(2, int(rows.max()) + 1)
        return 100 * float(multiclass_f1_score(predicted, target, num_classes=classes, average="macro"))


class BalancedAccuracy(_Predicted):
    """Mean over the classes of the items of the share that was found, in per cent."""

    def whole(self, rows: Tensor) -> float:
        predicted, target = rows.unbind(1)
        count = target.bincount()
        found = target[predicted == target].bincount(minlength=len(count))
        return 100 * float((found[count > 0] / count[count > 0].double()).mean())


class Auroc(PartMetric):
    """Mean over classes of the area under the curve of one class against the rest, 0.5 for chance.

    A class that no item or every item has is left out. By ranks, exact, ties count half.
    Source: Hanley and McNeil, 1982; macro average.
    """

    of_classes = True

    def rows(self, prediction: Tensor, target: Tensor) -> Tensor:
        rows = torch.cat([log_odds(prediction), target[:, None].to(prediction.dtype)], 1)
        return rows[answered(prediction)]

    def whole(self, rows: Tensor) -> float:
        scores, target = rows[:, :-1].numpy(), rows[:, -1].numpy()
        areas = []
        for each in range(scores.shape[1]):
            inside = target == each
            count, others = int(inside.sum()), int((~inside).sum())
            if count and others:
                ranks = rankdata(scores[:, each])[inside].sum()
                areas.append((ranks - count * (count + 1) / 2) / (count * others))
        return float(np.mean(areas)) if areas else math.nan


def log_odds(logits: Tensor) -> Tensor:
    """log p / (1 - p) of each class, [B, K]: in the order of the probabilities, also of those that round to 1."""
    largest = logits.argmax(1, keepdim=True)
    others = logits.scatter(1, largest, -torch.inf).logsumexp(1, keepdim=True)
    chances = logits.log_softmax(1)
    return (chances - torch.log1p(-chances.exp())).scatter(1, largest, logits.gather(1, largest) - others)


class Ece(PartMetric):
    """Expected calibration error in per cent: mean over items of |accuracy - confidence| of their confidence bin."""

    higher_is_better = False
    of_classes = True

    def rows(self, prediction: Tensor, target: Tensor) -> Tensor:
        confidence, predicted = prediction.softmax(1).max(1)
        rows = torch.stack([confidence.clamp(max=1), (predicted == target).to(confidence.dtype)], 1)
        return rows[answered(prediction)]

    def whole(self, rows: Tensor) -> float:
        confidence, correct = rows.T.contiguous()
        return 100 * float(binary_calibration_error(confidence, correct.long(), n_bins=BINS, norm="l1"))
