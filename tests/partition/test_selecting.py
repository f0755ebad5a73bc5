"""partition.only: the same folds with the same numbers, for every partition; what is no fold is refused by name."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from onn_runner.errors import ConfigError
from onn_runner.partition.fit import Fit
from onn_runner.partition.given import Given
from onn_runner.partition.hold_out import HoldOut
from onn_runner.partition.kfold import GroupKFold, KFold, StratifiedKFold
from onn_runner.partition.leave_one_group_out import LeaveOneGroupOut
from onn_runner.partition.selecting import Selecting
from onn_runner.partition.split import as_plain, from_plain, part_of


@dataclass
class Items:
    groups: list[str] = field(default_factory=lambda: [f"g{number // 4}" for number in range(24)])
    labels: list[int] = field(default_factory=lambda: [number % 2 for number in range(24)])
    test_items: tuple[int, ...] = (22, 23)

    def __len__(self) -> int:
        return len(self.groups)


KINDS: list[Selecting] = [
    KFold(repeats=2),
    GroupKFold(),
    StratifiedKFold(folds=4),
    LeaveOneGroupOut(),
    HoldOut(repeats=3),
    Fit(folds=3),
]
by_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: type(kind).__name__)


@by_kind
def test_a_fold_is_the_same_whether_others_are_trained_or_not(kind: Selecting) -> None:
    every = kind.split(Items())
    assert every == kind.every(Items())
    for fold in every:
        assert replace(kind, only=fold.index).split(Items()) == [fold]
    assert replace(kind, only=[2, 0]).split(Items()) == [every[0], every[2]]
    assert replace(kind, only=range(len(every))).split(Items()) == every


def test_the_one_fold_of_a_given_part() -> None:
    assert Given(only=0).split(Items()) == Given().split(Items())
    with pytest.raises(ConfigError, match=r"only \(=1\): there is no fold 1; this partition has fold 0 only"):
        Given(only=1).split(Items())


@pytest.mark.parametrize(
    ("only", "message"),
    [
        (3, "partition.only (=3): there is no fold 3; this partition has folds 0 to 2"),
        ([0, 7, 5], "partition.only (=[0,7,5]): there is no fold 5; this partition has folds 0 to 2"),
        ([0, 2, 0], "partition.only (=[0,2,0]) names fold 0 twice"),
        (-1, "partition.only (=-1) must be a fold's number, from 0, or a list of them such as [0,2]; null: all"),
        ([], "partition.only (=[]) must be"),
        (True, "partition.only (=True) must be"),
        ([0, False], "partition.only (=[0, False]) must be"),
        (0.0, "partition.only (=0.0) must be"),
        ("0", "partition.only (='0') must be"),
        ([[0]], "partition.only (=[[0]]) must be"),
    ],
)
def test_what_is_no_fold_is_refused(only: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        GroupKFold(only=only).split(Items())


def test_a_stored_split_knows_whether_it_is_the_whole() -> None:
    every = GroupKFold().split(Items())
    stored = as_plain(every[::2], of=3)
    assert from_plain(stored) == every[::2]
    assert part_of(stored, every[::2]) == {"folds": [0, 2], "of": 3}
    assert part_of(as_plain(every, of=3), every) is None
    # Of earlier versions.
    assert part_of(as_plain(every), every) is None
