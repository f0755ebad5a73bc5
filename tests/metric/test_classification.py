"""Scores of classes by hand and against scikit-learn; what is not defined; how they are kept and gone on with."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from sklearn import metrics as sklearn
from torch import Tensor
from torchmetrics.classification import (
    MulticlassAccuracy,
    MulticlassAUROC,
    MulticlassConfusionMatrix,
    MulticlassF1Score,
)

from onn_runner.errors import ConfigError
from onn_runner.metric import classification as ours
from onn_runner.metric.adapt import adapt
from onn_runner.metric.base import ItemMetric, PartMetric

LOGITS = torch.tensor([[0.9, 0.1, 0.0], [0.2, 0.3, 0.5], [0.6, 0.3, 0.1], [0.1, 0.8, 0.1]]).log()
LOGITS[0] = torch.tensor([0.9, 0.1, 1e-9]).log()
TARGET = torch.tensor([0, 2, 1, 1])


def drawn(count: int, classes: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Logits that know something of the classes."""
    random = torch.Generator().manual_seed(seed)
    target = torch.randint(classes, (count,), generator=random)
    logits = 2 * torch.randn(count, classes, generator=random) + 2 * torch.nn.functional.one_hot(target, classes)
    return logits, target


def scored(metric: ItemMetric, logits: Tensor, target: Tensor, *, batch: int = 7) -> ItemMetric:
    for start in range(0, len(target), batch):
        metric.update(logits[start : start + batch], target[start : start + batch])
    return metric


def test_by_hand() -> None:
    accuracy = scored(ours.Accuracy(), LOGITS, TARGET)
    assert accuracy.items().tolist() == [100, 100, 0, 100]
    assert accuracy.value() == 75
    likelihood = scored(ours.CrossEntropy(), LOGITS, TARGET)
    assert likelihood.items().tolist() == pytest.approx([-math.log(p) for p in (0.9, 0.5, 0.3, 0.8)], rel=1e-6)
    brier = scored(ours.Brier(), LOGITS, TARGET)
    by_hand = [0.01 + 0.01, 0.04 + 0.09 + 0.25, 0.36 + 0.49 + 0.01, 0.01 + 0.04 + 0.01]
    assert brier.items().tolist() == pytest.approx(by_hand, rel=1e-5)
    # Recall of the classes: 1, 1 / 2, 1.
    assert scored(ours.BalancedAccuracy(), LOGITS, TARGET).value() == pytest.approx(100 * 2.5 / 3)
    # F1 of the classes: 2 / 3, 2 / 3, 1.
    assert scored(ours.F1(), LOGITS, TARGET).value() == pytest.approx(100 * 7 / 9)
    # Confidences 0.9, 0.5, 0.6, 0.8 in four bins: right, right, wrong, right.
    assert scored(ours.Ece(), LOGITS, TARGET).value() == pytest.approx(100 * (0.1 + 0.5 + 0.6 + 0.2) / 4, rel=1e-5)
    # Class 0: 0.9 above 0.2, 0.6, 0.1. Class 1: 0.3, 0.8 above 0.1, and 0.3 = 0.3 counts half. Class 2: above all.
    assert scored(ours.Auroc(), LOGITS, TARGET).value() == pytest.approx((1 + 3.5 / 4 + 1) / 3)


@pytest.mark.parametrize(("count", "classes"), [(200, 2), (301, 10), (97, 33)])
def test_against_scikit_learn(count: int, classes: int) -> None:
    logits, target = drawn(count, classes)
    chances = logits.double().softmax(1).numpy()
    true, guess = target.numpy(), logits.argmax(1).numpy()
    wanted = {
        "Accuracy": 100 * sklearn.accuracy_score(true, guess),
        "CrossEntropy": sklearn.log_loss(true, chances, labels=range(classes)),
        "F1": 100 * sklearn.f1_score(true, guess, average="macro"),
        "BalancedAccuracy": 100 * sklearn.recall_score(true, guess, average="macro", labels=np.unique(true)),
        "Auroc": np.mean([sklearn.roc_auc_score(true == k, chances[:, k]) for k in np.unique(true)]),
    }
    if classes > 5:
        wanted["Top5"] = 100 * sklearn.top_k_accuracy_score(true, chances, k=5, labels=range(classes))
    for name, value in wanted.items():
        # Sums of single precision.
        assert scored(getattr(ours, name)(), logits, target).value() == pytest.approx(value, rel=1e-5), name


def test_the_calibration_error_is_that_of_its_definition() -> None:
    logits, target = drawn(500, 4)
    confidence, guess = logits.softmax(1).double().max(1)
    right = (guess == target).double()
    error = 0.0
    for low in range(15):
        inside = (confidence > low / 15) & (confidence <= (low + 1) / 15)
        if inside.any():
            error += float(inside.double().mean() * (right[inside].mean() - confidence[inside].mean()).abs())
    assert scored(ours.Ece(), logits, target).value() == pytest.approx(100 * error, rel=1e-4)


def test_classes_that_do_not_occur_have_no_area_and_one_class_alone_has_none() -> None:
    logits, _ = drawn(20, 4)
    target = torch.tensor([0, 1] * 10)
    areas = [sklearn.roc_auc_score((target == k).numpy(), logits.softmax(1)[:, k].numpy()) for k in (0, 1)]
    assert scored(ours.Auroc(), logits, target).value() == pytest.approx(np.mean(areas))
    assert math.isnan(scored(ours.Auroc(), logits, torch.zeros(20, dtype=torch.int64)).value())


def test_confidence_that_rounds_to_one_still_ranks() -> None:
    logits = torch.tensor([[40.0, 0.0], [30.0, 0.0], [35.0, 0.0]])
    assert scored(ours.Auroc(), logits, torch.tensor([0, 1, 0])).value() == 1.0
    assert scored(ours.Ece(), logits, torch.tensor([0, 0, 0])).value() == pytest.approx(0, abs=1e-5)


def test_five_of_few_classes_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"metric=top5 is always 100 % of 5 classes: leave it out of metric=\[...\]"):
        ours.Top5(num_classes=5)
    assert ours.Top5(num_classes=6).value() is not None


@pytest.mark.parametrize("kind", [ours.F1, ours.Auroc, ours.Ece, ours.BalancedAccuracy, ours.Accuracy])
def test_going_on_from_what_was_kept_changes_nothing(kind: Any) -> None:
    logits, target = drawn(50, 6)
    whole = scored(kind(), logits, target)
    half = scored(kind(), logits[:21], target[:21])
    other = kind()
    other.load(half.kept())
    assert scored(other, logits[21:], target[21:]).value() == whole.value()
    assert len(whole.items()) == (0 if isinstance(whole, PartMetric) else 50)
    whole.reset()
    assert math.isnan(whole.value())


def test_a_users_metric_of_classes_is_one_of_the_part() -> None:
    logits, target = drawn(60, 5)
    adapted = adapt(MulticlassF1Score(5), classes=True)
    assert isinstance(adapted, PartMetric)
    assert adapted.higher_is_better is True
    assert scored(adapted, logits, target).value() == pytest.approx(scored(ours.F1(), logits, target).value() / 100)
    area = scored(adapt(MulticlassAUROC(5), classes=True), logits, target).value()
    assert area == pytest.approx(scored(ours.Auroc(), logits, target).value(), rel=1e-5)
    with pytest.raises(ConfigError, match=r"metric MulticlassConfusionMatrix gives \(5, 5\) numbers for one part"):
        scored(adapt(MulticlassConfusionMatrix(5), classes=True), logits, target).value()


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_items_without_a_finite_answer_count_as_wrong(bad: float) -> None:
    """Whatever the other logits say; where probabilities would be compared they are left out."""
    logits, target = drawn(40, 7)
    broken = logits.clone()
    # the largest one, so that it would be the answer; the others would be right
    broken[::8, 3], broken[1::8, :] = bad, bad
    target[::8] = 3
    lost = ~broken.isfinite().all(1)
    for metric in (ours.Accuracy(), ours.Top5()):
        whole = scored(type(metric)(), logits, target).items()
        assert scored(metric, broken, target).items().tolist() == whole.where(~lost, 0.0).tolist()
    for metric in (ours.CrossEntropy(), ours.Brier()):
        found = scored(metric, broken, target)
        assert found.left_out == int(lost.sum())
        assert found.value() == pytest.approx(scored(type(metric)(), logits[~lost], target[~lost]).value())
    for metric in (ours.Auroc(), ours.Ece()):
        alone = scored(type(metric)(), logits[~lost], target[~lost]).value()
        assert scored(metric, broken, target).value() == pytest.approx(alone)
    guesses = logits.argmax(1).where(~lost, (target + 1) % 7)
    expected = 100 * sklearn.f1_score(target, guesses, average="macro")
    assert scored(ours.F1(), broken, target).value() == pytest.approx(expected, abs=1e-4)
    expected = 100 * sklearn.balanced_accuracy_score(target, guesses)
    assert scored(ours.BalancedAccuracy(), broken, target).value() == pytest.approx(expected, abs=1e-4)


def test_items_without_a_finite_answer_are_wrong_by_a_users_metric_too() -> None:
    logits, target = torch.eye(3), torch.arange(3)
    logits[0, 0] = torch.nan
    assert scored(adapt(MulticlassAccuracy(3), classes=True), logits, target).value() == pytest.approx(2 / 3)


def test_no_answers_at_all_are_no_scores() -> None:
    logits, target = torch.full((5, 3), math.nan), torch.tensor([0, 1, 2, 0, 1])
    assert scored(ours.Accuracy(), logits, target).value() == 0
    for metric in (ours.CrossEntropy(), ours.Auroc(), ours.Ece()):
        assert math.isnan(scored(metric, logits, target).value())
