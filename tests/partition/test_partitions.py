"""Each partition's own numbers, what its seed changes, and every impossible request."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from onn_runner.errors import ConfigError
from onn_runner.partition.base import Fold
from onn_runner.partition.hold_out import HoldOut
from onn_runner.partition.kfold import GroupKFold, KFold, StratifiedKFold
from onn_runner.partition.leave_one_group_out import LeaveOneGroupOut
from onn_runner.partition.split import as_plain, describe, from_plain, shared_groups, whole_groups
from onn_runner.partition.splitter import Splitter


@dataclass(frozen=True)
class Items:
    groups: Sequence[str]
    labels: Sequence[int] | None = None

    def __len__(self) -> int:
        return len(self.groups)


TWELVE = Items([name for name in "abcdefghijkl" for _ in range(5)])
ALONE = Items(["a"] * 7)


@pytest.mark.parametrize("kind", [KFold, GroupKFold, HoldOut])
def test_the_seed_changes_the_folds(kind: type[Splitter]) -> None:
    first, other = (kind(seed=seed).split(TWELVE) for seed in (0, 1))
    assert [fold.test for fold in first] != [fold.test for fold in other]


def test_the_seed_of_leave_one_group_out_changes_validation_only() -> None:
    first, other = (LeaveOneGroupOut(seed=seed).split(TWELVE) for seed in (0, 1))
    assert [fold.test for fold in first] == [fold.test for fold in other]
    assert [fold.validation for fold in first] != [fold.validation for fold in other]


def test_leave_one_group_out_tests_each_group_alone() -> None:
    folds = LeaveOneGroupOut().split(TWELVE)
    assert [{TWELVE.groups[item] for item in fold.test} for fold in folds] == [{name} for name in "abcdefghijkl"]


def test_repeats_are_new_partitions() -> None:
    folds = GroupKFold(folds=3, repeats=2).split(TWELVE)
    assert [fold.index for fold in folds] == list(range(6))
    assert {fold.test for fold in folds[:3]} != {fold.test for fold in folds[3:]}
    assert folds[:3] == GroupKFold(folds=3).split(TWELVE)


def test_hold_out_by_fraction_and_by_count() -> None:
    assert len(HoldOut(test=0.25).split(TWELVE)[0].test) == 3 * 5
    assert len(HoldOut(test=5).split(TWELVE)[0].test) == 5 * 5
    assert len(HoldOut(test=0.01).split(TWELVE)[0].test) == 5
    assert len({fold.test for fold in HoldOut(repeats=4).split(TWELVE)}) > 1


def test_validation_by_fraction_count_or_none() -> None:
    assert len(GroupKFold(validation=0.25).split(TWELVE)[0].validation) == 2 * 5
    assert len(GroupKFold(validation=3).split(TWELVE)[0].validation) == 3 * 5
    assert GroupKFold(validation=0).split(TWELVE)[0].validation == ()
    # A fraction holds at least one group, and leaves at least one.
    assert len(GroupKFold(validation=0.001).split(TWELVE)[0].validation) == 5
    assert len(GroupKFold(validation=0.999).split(TWELVE)[0].train) == 5


def test_small_trains_on_one_part_and_tests_on_the_rest() -> None:
    rest = GroupKFold(validation=0).split(TWELVE)
    small = GroupKFold(validation=0, train_on="small").split(TWELVE)
    assert [(fold.train, fold.test) for fold in small] == [(fold.test, fold.train) for fold in rest]
    held = GroupKFold(validation=1, train_on="small").split(TWELVE)
    assert [fold.test for fold in held] == [fold.test for fold in small]
    assert all(set(fold.validation) < set(whole.train) for fold, whole in zip(held, small, strict=True))


def test_ten_folds_of_forty_pairs_train_on_four_of_them() -> None:
    folds = KFold(folds=10, validation=0, train_on="small").split(Items([str(pair) for pair in range(40)]))
    assert [(len(fold.train), len(fold.test)) for fold in folds] == [(4, 36)] * 10


def test_another_process_splits_alike() -> None:
    program = (
        "from types import SimpleNamespace as N\n"
        "from onn_runner.partition.kfold import GroupKFold\n"
        "class I(N):\n    def __len__(self): return 60\n"
        "print([(f.train, f.validation, f.test) for f in"
        " GroupKFold().split(I(groups=[n for n in 'abcdefghijkl' for _ in range(5)], labels=None))])"
    )
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.strip()
    assert printed == str([(fold.train, fold.validation, fold.test) for fold in GroupKFold().split(TWELVE)])


def test_the_folds_of_seed_0_stay_as_published() -> None:
    """Numbers that scores were reported on: a change of these groups makes old and new runs incomparable."""
    folds = GroupKFold().split(TWELVE)
    assert ["".join(sorted({TWELVE.groups[item] for item in fold.test})) for fold in folds] == ["bgkl", "afhj", "cdei"]


IMPOSSIBLE: list[tuple[Splitter, Items, str]] = [
    (
        GroupKFold(folds=13),
        TWELVE,
        r"partition.folds \(=13\) is more than the 12 groups of the data: choose at most 12",
    ),
    (GroupKFold(folds=2), ALONE, r"partition.folds \(=2\) is more than the 1 group of the data"),
    (KFold(folds=8), ALONE, r"partition.folds \(=8\) is more than the 7 items: choose at most 7"),
    (LeaveOneGroupOut(), ALONE, r"leave_one_group_out needs at least 2 groups, and the data has 1"),
    (HoldOut(), ALONE, r"partition.test \(=0.2\) is 1 of the 1 group, which leaves nothing.*needs a second group"),
    (HoldOut(test=12), TWELVE, r"partition.test \(=12\) is 12 of the 12 groups.*choose at most 11"),
    (StratifiedKFold(), TWELVE, r"partition=stratified_kfold needs classes, and this data has none"),
    (
        StratifiedKFold(folds=4),
        Items("abcdefgh", [0] * 5 + [7] * 3),
        r"folds \(=4\) is more than the 3 items of class 7",
    ),
    (
        GroupKFold(validation=8),
        TWELVE,
        r"validation \(=8\) is 8 of the 8 groups that fold 0 may train on, which leaves none",
    ),
    (
        GroupKFold(folds=12, train_on="small"),
        TWELVE,
        r"validation \(=0.2\) is 1 of the 1 groups that fold 0 may train on",
    ),
    (KFold(), Items(["a"]), r"a partition needs at least 2 items, and the data has 1"),
]


@pytest.mark.parametrize(("partition", "items", "message"), IMPOSSIBLE, ids=[message for _, _, message in IMPOSSIBLE])
def test_impossible_requests_are_refused_with_the_numbers(partition: Splitter, items: Items, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        partition.split(items)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"folds": 1}, r"partition.folds \(=1\) must be a whole number of at least 2"),
    ({"folds": "3"}, r"partition.folds \(='3'\)"),
    ({"folds": 2.5}, r"partition.folds \(=2.5\)"),
    ({"folds": True}, r"partition.folds \(=True\)"),
    ({"repeats": 0}, r"partition.repeats \(=0\) must be a whole number of at least 1"),
    ({"seed": -1}, r"partition.seed \(=-1\)"),
    ({"seed": None}, r"partition.seed \(=None\)"),
    ({"validation": 1.0}, r"partition.validation \(=1.0\) must be a fraction in \(0, 1\) or a count"),
    ({"validation": -0.1}, r"partition.validation \(=-0.1\)"),
    ({"validation": 1.5}, r"partition.validation \(=1.5\)"),
    ({"validation": True}, r"partition.validation \(=True\)"),
    ({"validation": "0.2"}, r"partition.validation \(='0.2'\)"),
    ({"validation": float("nan")}, r"partition.validation \(=nan\)"),
    ({"train_on": "rset"}, r"unknown partition.train_on 'rset'. Did you mean rest\?"),
]


@pytest.mark.parametrize(("options", "message"), WRONG, ids=[str(options) for options, _ in WRONG])
def test_wrong_values_are_refused_by_name(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        GroupKFold(**options)


@pytest.mark.parametrize("test", [0, 1.0, -1, True, "half", 0.0])
def test_hold_out_needs_a_share(test: Any) -> None:
    with pytest.raises(
        ConfigError, match=r"partition.test \(=.*\) must be a fraction in \(0, 1\) or a count of at least 1$"
    ):
        HoldOut(test=test)


def test_a_stored_split_for_other_data_is_refused() -> None:
    plain = as_plain(GroupKFold().split(TWELVE), fingerprint="one")
    with pytest.raises(ConfigError, match=r"the stored split was made for other data .* start a new run"):
        from_plain(plain, fingerprint="two")
    assert from_plain(plain)


@pytest.mark.parametrize(
    "plain", [{}, {"schema": 1}, {"schema": 1, "folds": [{"index": 0}]}, [], {"schema": 1, "folds": 3}]
)
def test_a_broken_split_is_refused(plain: Any) -> None:
    with pytest.raises(ConfigError, match=r"the stored split cannot be read"):
        from_plain(plain)


def test_a_split_of_another_schema_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"the stored split has schema 9, this version reads 1"):
        from_plain({"schema": 9, "folds": []})


def test_description_and_shared_groups() -> None:
    fold = Fold(0, (0, 1, 2), (), (3, 4, 10))
    (line,) = describe([fold], TWELVE)
    assert line.startswith("fold 0: train 3 items of 1 group, no validation, test 3 items of 2 groups, 1 of the test ")
    assert "group_kfold" in line
    assert describe([replace(fold, test=(10,))], TWELVE)[0].endswith("test 1 item of 1 group")
    assert whole_groups(fold, TWELVE) == ["c"]
    assert shared_groups(fold, TWELVE) == {"a"}
    assert shared_groups(replace(fold, test=(5, 10)), TWELVE) == set()
