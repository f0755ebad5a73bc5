"""Baselines of classes: on clouds that are told apart, against scikit-learn's own, and only from the training part."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.neighbors import KNeighborsClassifier, NearestCentroid

from onn_runner.data.base import Shape
from onn_runner.data.digits import Digits
from onn_runner.metric import classification
from onn_runner.partition.base import Fold
from onn_runner.task import baseline_classes
from onn_runner.task.baseline import item_rows
from onn_runner.task.baseline_classes import majority, measure, nearest_mean, neighbours, values


def metrics() -> dict[str, Any]:
    return {"accuracy": classification.Accuracy(), "f1": classification.F1(), "ce": classification.CrossEntropy()}


class Clouds:
    """Signals around one point for each class; `labels` may lack classes."""

    def __init__(self, labels: list[int], classes: int = 3, channels: int = 1) -> None:
        random = torch.Generator().manual_seed(0)
        self.labels, self.classes = labels, [str(each) for each in range(classes)]
        self.items = torch.randn(len(labels), channels, 5, generator=random) + 4 * torch.tensor(labels)[:, None, None]
        self.shape = Shape((channels, 5), (classes,))
        self.names = self.groups = [str(index) for index in range(len(labels))]

    def fixed(self, part: Any) -> Any:
        return [{"input": self.items[index]} for index in part]

    def whole(self, groups: Any) -> None:
        return None


def fold_of(count: int) -> Fold:
    return Fold(0, tuple(range(0, count, 2)), (), tuple(range(1, count, 2)))


def test_clouds_are_told_apart_and_the_majority_is_the_share_of_training() -> None:
    labels = [0, 0, 1, 1, 2, 2, 0, 0] * 15
    source = Clouds(labels)
    results = measure(source, fold_of(120), metrics)  # type: ignore[arg-type]
    assert list(results) == ["majority class", "nearest class mean", "nearest neighbours", "logistic regression"]
    assert results["majority class"].means["test/accuracy"] == 50
    wanted = -(30 * math.log(31 / 63) + 30 * math.log(16 / 63)) / 60
    assert results["majority class"].means["test/ce"] == pytest.approx(wanted, rel=1e-6)
    for name in ("nearest class mean", "nearest neighbours", "logistic regression"):
        assert results[name].means["test/accuracy"] > 97, name
        assert results[name].means["test/ce"] < 0.2, name
        assert len(results[name].items["test/accuracy"]) == 60
        assert results[name].items["test/f1"] == ()
    rows = item_rows(0, results, source, fold_of(120))  # type: ignore[arg-type]
    assert {row[4] for row in rows} == {"accuracy", "ce"}
    assert len(rows) == 4 * 2 * 60


def test_against_scikit_learn() -> None:
    source, fold = Digits(items=600), fold_of(600)
    seen, classes = values(source, fold.train), np.array([source.labels[index] for index in fold.train])
    asked = values(source, fold.test)
    with warnings.catch_warnings():
        # Corners of the digits are always empty.
        warnings.simplefilter("ignore", UserWarning)
        centroid = NearestCentroid().fit(seen, classes).predict(asked)
    assert (nearest_mean(seen, classes, 10, 1.0)(asked).argmax(1) == centroid).all()
    votes = KNeighborsClassifier(5).fit(seen, classes).predict_proba(asked)
    np.testing.assert_allclose(neighbours(seen, classes, 10, 5)(asked), votes)
    assert majority(seen, classes, 10, 0)(asked).sum(1) == pytest.approx(1)
    # The public figure of five neighbours on these digits is about 98 %; here 300 items are learned from.
    assert measure(source, fold, metrics)["nearest neighbours"].means["test/accuracy"] > 90


def test_classes_that_do_not_train_are_possible_and_one_alone_is_no_trouble() -> None:
    source = Clouds([0, 2] * 12 + [0, 1] * 12)
    for result in measure(source, fold_of(48), metrics).values():  # type: ignore[arg-type]
        assert math.isfinite(result.means["test/ce"])


def test_the_test_part_chooses_nothing() -> None:
    source, other = Clouds([0, 1, 2, 0, 1] * 20), Clouds([0, 1, 2, 0, 1] * 20)
    fold = fold_of(100)
    other.items[1::2] = 0
    notes = [{n: r.note for n, r in measure(each, fold, metrics).items()} for each in (source, other)]  # type: ignore[arg-type]
    assert notes[0] == notes[1]
    assert notes[0]["nearest neighbours"].endswith("neighbours")


def test_large_parts_are_thinned_out_and_what_takes_too_long_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(baseline_classes, "LEARNED_FROM", 20)
    monkeypatch.setattr(baseline_classes, "LARGEST", 200)
    told: list[str] = []
    results = measure(Clouds([0, 1, 2] * 40), fold_of(120), metrics, told.append, most={"test": 8})  # type: ignore[arg-type]
    assert told == ["logistic regression left out: 20 items of 5 values in 3 classes take too long"]
    assert len(results["nearest neighbours"].items["test/ce"]) == 8


def test_pictures_are_reduced_by_means() -> None:
    source = Clouds([0])
    source.items = torch.arange(64 * 33.0).reshape(1, 1, 64, 33)
    seen = values(source, [0])  # type: ignore[arg-type]
    assert seen.shape == (1, 32 * 32)
    assert seen.mean() == pytest.approx(float(source.items.mean()), rel=1e-2)
