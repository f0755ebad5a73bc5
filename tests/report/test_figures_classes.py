"""Figures of classes are drawn for few and many classes, sure and unsure networks; they were looked at as well."""

from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

from onn_runner.report import figures_classes as figures
from onn_runner.report.figures_classes import Mistake, confusion_matrix, mistakes, reliability


def size(picture: bytes) -> tuple[int, int]:
    image = Image.open(io.BytesIO(picture))
    image.load()
    return image.size


@pytest.mark.parametrize("count", [2, 10, 20, 21, 100, 150])
def test_matrices_of_few_and_many_classes(count: int) -> None:
    random = np.random.default_rng(0)
    names = [f"a class with a long name {each} $x$" for each in range(count)]
    width, height = size(confusion_matrix(random.integers(0, 9, (count, count)), names, title="Confusions, fold 0"))
    assert min(width, height) > 300
    assert max(width, height) < 1700


def test_a_matrix_of_nothing_and_of_no_mistakes() -> None:
    for counts in (np.zeros((3, 3), np.int64), np.diag([4, 0, 2]), np.diag(np.arange(30))):
        size(confusion_matrix(counts, [str(each) for each in range(len(counts))], title="t"))
    assert figures._confusions(np.diag([4, 0, 2]), ["a", "b", "c"]) == []


def test_the_most_frequent_confusions_come_first() -> None:
    counts = np.array([[5, 0, 2], [7, 1, 0], [0, 2, 0]])
    assert figures._confusions(counts, ["cat", "dog", "frog"]) == [
        "dog → cat: 7 of 8",
        "cat → frog: 2 of 7",
        "frog → dog: 2 of 2",
    ]


@pytest.mark.parametrize("confidence", [[1.0], [0.0, 1.0], [0.1, 0.5, 0.5, 0.99, 1 / 15, 2 / 15]])
def test_any_confidence_can_be_drawn(confidence: list[float]) -> None:
    for right in (True, False):
        correct = np.full(len(confidence), right)
        size(reliability(np.array(confidence), correct, bins=15, error=3.0, title="Calibration"))


@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 40, 20), (5, 6, 6), (1, 30), (2, 1)])
@pytest.mark.parametrize("count", [1, 5, 12])
def test_mistakes_of_pictures_and_signals(shape: tuple[int, ...], count: int) -> None:
    values = np.random.default_rng(0).random(shape, dtype=np.float32)
    values.flat[0] = np.nan
    item = Mistake("a/folder/$1_2$.png", values, "a very long name of a class", 0.999, "frog", 1e-9)
    width, height = size(mistakes([item] * count, title="The most confident mistakes", data_range=(-1, 1)))
    assert max(width, height) < 1000
