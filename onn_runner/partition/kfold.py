"""k parts, each tested once: over items, over groups, or with the classes in proportion; repeated where asked."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.random import RandomState

from onn_runner.checks import whole_number
from onn_runner.errors import ConfigError
from onn_runner.partition.base import Partitionable
from onn_runner.partition.splitter import Splitter, by_group, random


@dataclass(frozen=True, kw_only=True)
class _Folded(Splitter):
    """`repeats`: so many independent k-fold partitions, one after the other: folds x repeats folds."""

    folds: int = 3
    repeats: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        whole_number("partition.folds", self.folds, least=2)
        whole_number("partition.repeats", self.repeats, least=1)

    def parts(self, items: Partitionable) -> Iterator[Sequence[int]]:
        self.check(items)
        for repeat in range(self.repeats):
            yield from self.deal(items, random(self.seed, "repeat", repeat))

    @abstractmethod
    def check(self, items: Partitionable) -> None:
        """Raises ConfigError where the items cannot be split into so many folds."""

    @abstractmethod
    def deal(self, items: Partitionable, state: RandomState) -> Iterator[Sequence[int]]:
        """`folds` parts that are disjoint and hold all items."""


@dataclass(frozen=True, kw_only=True)
class KFold(_Folded):
    """Items at random, whatever their groups: patches of one photograph then lie on both sides."""

    unit: ClassVar[str] = "items"

    def check(self, items: Partitionable) -> None:
        if self.folds > len(items):
            raise ConfigError(
                f"partition.folds (={self.folds}) is more than the {len(items)} items: choose at most {len(items)}"
            )

    def deal(self, items: Partitionable, state: RandomState) -> Iterator[Sequence[int]]:
        from sklearn.model_selection import KFold as Splits

        for _, test in Splits(self.folds, shuffle=True, random_state=state).split(np.zeros(len(items))):
            yield test.tolist()


@dataclass(frozen=True, kw_only=True)
class GroupKFold(_Folded):
    """Whole groups, dealt so that folds differ by at most one group, and by no more items than the largest group has.

    scikit-learn's GroupKFold balances the items without a seed or shuffles without balance; this does both: groups
    sorted by size are dealt in rounds, one to each fold in random order.
    """

    def check(self, items: Partitionable) -> None:
        groups = len(set(items.groups))
        if self.folds > groups:
            raise ConfigError(
                f"partition.folds (={self.folds}) is more than the {groups} group{'s' * (groups != 1)} of the data: "
                f"choose at most {groups}{'' if groups > 1 else ', or more data'}"
            )

    def deal(self, items: Partitionable, state: RandomState) -> Iterator[Sequence[int]]:
        units = list(by_group(range(len(items)), items).values())
        order = sorted(state.permutation(len(units)).tolist(), key=lambda number: -len(units[number]))
        parts: list[list[int]] = [[] for _ in range(self.folds)]
        for start in range(0, len(order), self.folds):
            for fold, number in zip(
                state.permutation(self.folds).tolist(), order[start : start + self.folds], strict=False
            ):
                parts[fold] += units[number]
        yield from parts


@dataclass(frozen=True, kw_only=True)
class StratifiedKFold(_Folded):
    """Items at random with every class in proportion, whatever their groups."""

    unit: ClassVar[str] = "items"
    stratified: ClassVar[bool] = True

    def check(self, items: Partitionable) -> None:
        if items.labels is None:
            raise ConfigError(
                "partition=stratified_kfold needs classes, and this data has none: choose group_kfold or kfold"
            )
        label, members = min(Counter(items.labels).items(), key=lambda entry: (entry[1], entry[0]))
        if members < self.folds:
            names = getattr(items, "classes", None)
            remedy = f"choose at most {members}" if members > 1 else "take the class out, or add to it"
            raise ConfigError(
                f"partition.folds (={self.folds}) is more than the {members} item{'s' * (members != 1)} of class "
                f"{names[label] if names else label}: {remedy}"
            )

    def deal(self, items: Partitionable, state: RandomState) -> Iterator[Sequence[int]]:
        from sklearn.model_selection import StratifiedKFold as Splits

        splits = Splits(self.folds, shuffle=True, random_state=state)
        for _, test in splits.split(np.zeros(len(items)), np.asarray(items.labels)):
            yield test.tolist()
