"""Fit: parts that are disjoint, hold everything, keep groups together, and test nothing."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from onn_runner.errors import ConfigError
from onn_runner.partition.fit import Fit
from onn_runner.partition.split import as_plain, describe, from_plain


@dataclass
class Items:
    groups: list[str]
    labels: list[int] | None = None

    def __len__(self) -> int:
        return len(self.groups)


ITEMS = Items([f"g{number // 3}" for number in range(21)])


def test_one_fold_trains_on_everything() -> None:
    [fold] = Fit().split(ITEMS)
    assert fold.train == tuple(range(21))
    assert fold.validation == fold.test == ()
    [alone] = Fit().split(Items(["only"]))
    assert alone.train == (0,)


@pytest.mark.parametrize("folds", [2, 5, 7])
def test_parts_are_disjoint_and_whole_groups(folds: int) -> None:
    found = Fit(folds=folds).split(ITEMS)
    assert [fold.index for fold in found] == list(range(folds))
    assert sorted(item for fold in found for item in fold.train) == list(range(21))
    groups = [{ITEMS.groups[item] for item in fold.train} for fold in found]
    assert sum(map(len, groups)) == 7
    assert all(fold.train == tuple(sorted(fold.train)) and not fold.test for fold in found)


def test_the_seed_deals_anew_and_nothing_else_does() -> None:
    assert Fit(folds=3).split(ITEMS) == Fit(folds=3).split(ITEMS)
    assert Fit(folds=3, seed=1).split(ITEMS) != Fit(folds=3).split(ITEMS)


def test_it_is_stored_and_described() -> None:
    folds = Fit(folds=7).split(ITEMS)
    assert from_plain(as_plain(folds)) == folds
    assert describe(folds, ITEMS)[0] == "fold 0: train 3 items of 1 group, no validation, no test"


def test_what_cannot_be_split_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"partition.folds \(=8\) is more than the 7 groups"):
        Fit(folds=8).split(ITEMS)
    with pytest.raises(ConfigError, match=r"partition.folds \(=0\) must be a whole number of at least 1"):
        Fit(folds=0)
    with pytest.raises(ConfigError, match=r"partition.seed \(=-1\)"):
        Fit(seed=-1)
    with pytest.raises(ConfigError, match="at least 1 item"):
        Fit().split(Items([]))
