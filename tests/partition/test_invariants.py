"""What holds for every partition of any items: disjoint parts, each item tested once, no group on both sides."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from onn_runner.errors import ConfigError
from onn_runner.partition.base import Fold
from onn_runner.partition.hold_out import HoldOut
from onn_runner.partition.kfold import GroupKFold, KFold, StratifiedKFold
from onn_runner.partition.leave_one_group_out import LeaveOneGroupOut
from onn_runner.partition.split import as_plain, from_plain, shared_groups
from onn_runner.partition.splitter import Splitter

# The first example imports scikit-learn.
relaxed = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@dataclass(frozen=True)
class Items:
    groups: Sequence[str]
    labels: Sequence[int] | None = None

    def __len__(self) -> int:
        return len(self.groups)


@st.composite
def grouped(draw: st.DrawFn) -> Items:
    """4 to 12 groups of 1 to 9 items, in any order, with 2 classes of at least 4 members."""
    sizes = draw(st.lists(st.integers(1, 9), min_size=8, max_size=12))
    groups = draw(st.permutations([f"g{number}" for number, size in enumerate(sizes) for _ in range(size)]))
    labels = [place % 2 for place in range(len(groups))]
    return Items(groups, draw(st.permutations(labels)))


KINDS: list[Splitter] = [
    KFold(),
    GroupKFold(),
    StratifiedKFold(),
    LeaveOneGroupOut(),
    HoldOut(),
    KFold(repeats=2),
    GroupKFold(repeats=2, folds=2),
]
by_kind = pytest.mark.parametrize("kind", KINDS, ids=repr)
requests = st.tuples(st.integers(0, 2**40), st.sampled_from([0, 0.1, 0.3, 1]), st.sampled_from(["rest", "small"]))


def split(kind: Splitter, items: Items, request: tuple[int, float, str]) -> list[Fold]:
    """Without validation where the request leaves nothing to train on: that is refused, and tested elsewhere."""
    seed, validation, train_on = request
    partition = replace(kind, seed=seed, validation=validation, train_on=train_on)
    try:
        return partition.split(items)
    except ConfigError as error:
        if "leaves none to train on" not in str(error):
            raise
        return replace(partition, validation=0).split(items)


@by_kind
@relaxed
@given(items=grouped(), request=requests)
def test_parts_are_disjoint_and_cover_everything(kind: Splitter, items: Items, request: tuple[int, float, str]) -> None:
    for number, fold in enumerate(split(kind, items, request)):
        assert fold.index == number
        assert sorted((*fold.train, *fold.validation, *fold.test)) == list(range(len(items)))
        assert fold.train
        assert fold.test
        assert all(list(part) == sorted(part) for part in (fold.train, fold.validation, fold.test))


@pytest.mark.parametrize("kind", [kind for kind in KINDS if not isinstance(kind, HoldOut)], ids=repr)
@relaxed
@given(items=grouped(), request=requests)
def test_each_item_is_tested_once_a_repeat(kind: Splitter, items: Items, request: tuple[int, float, str]) -> None:
    folds = split(kind, items, request)
    repeats = getattr(kind, "repeats", 1)
    times = repeats if request[2] == "rest" else len(folds) - repeats
    assert Counter(item for fold in folds for item in fold.test) == dict.fromkeys(range(len(items)), times)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.unit == "groups"], ids=repr)
@relaxed
@given(items=grouped(), request=requests)
def test_no_group_lies_on_two_sides(kind: Splitter, items: Items, request: tuple[int, float, str]) -> None:
    for fold in split(kind, items, request):
        sides = [{items.groups[item] for item in part} for part in (fold.train, fold.validation, fold.test)]
        assert sum(map(len, sides)) == len(set(items.groups))
        assert not shared_groups(fold, items)


@by_kind
@relaxed
@given(items=grouped(), request=requests)
def test_a_split_is_a_function_of_items_and_seed(kind: Splitter, items: Items, request: tuple[int, float, str]) -> None:
    assert split(kind, items, request) == split(kind, items, request)


@relaxed
@given(items=grouped(), request=requests, folds=st.integers(2, 6))
def test_group_folds_are_balanced(items: Items, request: tuple[int, float, str], folds: int) -> None:
    parts = split(GroupKFold(folds=folds), items, (request[0], 0, "rest"))
    counts = [len({items.groups[item] for item in fold.test}) for fold in parts]
    sizes = [len(fold.test) for fold in parts]
    assert max(counts) - min(counts) <= 1
    assert max(sizes) - min(sizes) <= max(Counter(items.groups).values())


@relaxed
@given(items=grouped(), request=requests)
def test_classes_are_in_proportion(items: Items, request: tuple[int, float, str]) -> None:
    assert items.labels is not None
    whole = Counter(items.labels)
    for fold in split(StratifiedKFold(folds=3), items, (request[0], 0.25, "rest")):
        test = Counter(items.labels[item] for item in fold.test)
        held = Counter(items.labels[item] for item in fold.validation)
        pool = Counter(items.labels[item] for item in (*fold.train, *fold.validation))
        for label, count in whole.items():
            assert abs(test[label] - count / 3) < 1
            # Evenly spaced places in an order sorted by class: at most one off at either end of a class.
            assert abs(held[label] - len(fold.validation) * pool[label] / sum(pool.values())) <= 1


@relaxed
@given(items=grouped(), request=requests)
def test_a_stored_split_is_read_back(items: Items, request: tuple[int, float, str]) -> None:
    folds = split(GroupKFold(), items, request)
    assert from_plain(json.loads(json.dumps(as_plain(folds, fingerprint="f"))), fingerprint="f") == folds
