"""The data's own test part as the one fold, and classes in proportion with real labels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from sklearn.datasets import load_digits

from onn_runner.errors import ConfigError
from onn_runner.partition.given import Given
from onn_runner.partition.kfold import StratifiedKFold


@dataclass(frozen=True)
class Items:
    labels: Sequence[int]
    test_items: Sequence[int] | None = None
    classes: Sequence[str] = tuple("abcdefghij")
    groups: Sequence[str] = field(default=())

    def __len__(self) -> int:
        return len(self.labels)


DIGITS = load_digits().target.tolist()
TEST = range(1500, len(DIGITS))


def proportions(indices: Sequence[int]) -> dict[int, float]:
    return {label: count / len(indices) for label, count in Counter(DIGITS[index] for index in indices).items()}


def test_the_own_test_part_is_tested_and_the_rest_trains() -> None:
    [fold] = Given().split(Items(DIGITS, TEST))
    assert fold.index == 0
    assert fold.test == tuple(TEST)
    assert sorted((*fold.train, *fold.validation)) == list(range(1500))
    assert len(fold.validation) == 300
    whole = proportions(range(1500))
    # One item of 300.
    assert all(abs(share - whole[label]) <= 1 / 300 for label, share in proportions(fold.validation).items())
    assert Given().split(Items(DIGITS, TEST)) == [fold]
    assert Given(seed=1).split(Items(DIGITS, TEST)) != [fold]
    [all_train] = Given(validation=0).split(Items(DIGITS, TEST))
    assert all_train.validation == ()
    assert all_train.train == tuple(range(1500))


@pytest.mark.parametrize("test", [None, ()])
def test_data_without_a_test_part_is_refused(test: Sequence[int] | None) -> None:
    with pytest.raises(ConfigError, match="partition=given needs data with a test part of its own"):
        Given().split(Items(DIGITS, test))


def test_nothing_to_train_on_is_refused() -> None:
    with pytest.raises(ConfigError, match="leaves none to train on"):
        Given().split(Items(DIGITS, range(len(DIGITS))))
    with pytest.raises(ConfigError, match=r"partition.validation \(=1500\) is 1500 of the 1500 items"):
        Given(validation=1500).split(Items(DIGITS, TEST))


@pytest.mark.parametrize("kwargs", [{"seed": -1}, {"validation": 1.5}, {"validation": True}])
def test_bad_values_are_refused(kwargs: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(kwargs))):
        Given(**kwargs)  # type: ignore[arg-type]


@pytest.mark.parametrize("folds", [2, 3, 10])
def test_folds_of_real_labels_have_the_classes_in_proportion(folds: int) -> None:
    whole = proportions(range(len(DIGITS)))
    for fold in StratifiedKFold(folds=folds).split(Items(DIGITS)):
        for part in (fold.train, fold.validation, fold.test):
            found = proportions(part)
            # Up to two items: one of the fold's share and one of the validation's.
            assert all(abs(found[label] - share) <= 2 / len(part) for label, share in whole.items())


def test_a_class_with_fewer_items_than_folds_is_named() -> None:
    with pytest.raises(ConfigError, match=r"folds \(=3\) is more than the 2 items of class b: choose at most 2"):
        StratifiedKFold().split(Items([0] * 9 + [1] * 2))
    with pytest.raises(ConfigError, match="the 1 item of class b: take the class out, or add to it"):
        StratifiedKFold().split(Items([0] * 9 + [1]))
