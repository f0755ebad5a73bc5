"""From the parts of a partition to folds: one part is tested (or trained on), validation is held from what trains."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.random import RandomState

from onn_runner.checks import choice, refuse
from onn_runner.errors import ConfigError
from onn_runner.partition.base import Fold, Partitionable
from onn_runner.partition.selecting import Selecting
from onn_runner.seeding import Part, derive

Unit = tuple[int, ...]
"""Items that stay together: a group's, or a single one."""


@dataclass(frozen=True, kw_only=True)
class Validating(Selecting):
    """What holds a validation part from the items that may train.

    `validation` is a fraction in (0, 1), a count, or 0 for none, of the groups (items where the partition goes by
    items) that are not tested; it is taken from them at random.

    Raises: ConfigError, with the numbers, for what cannot be carried out.
    """

    validation: float = 0.2

    unit: ClassVar[str] = "groups"
    """What is counted in messages, and kept together: "groups" or "items"."""
    stratified: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        share("partition.validation", self.validation, none=True)

    def fold(self, index: int, pool: Sequence[int], test: Sequence[int], items: Partitionable) -> Fold:
        """`pool` trains but for what validates."""
        units = self._units(pool, items)
        held = self._held(index, units, items)
        validation = sorted(item for number in held for item in units[number])
        chosen = set(validation)
        train = [item for item in pool if item not in chosen]
        return Fold(index, tuple(train), tuple(validation), tuple(test))

    def _units(self, pool: Sequence[int], items: Partitionable) -> list[Unit]:
        if self.unit == "items":
            return [(item,) for item in pool]
        return list(by_group(pool, items).values())

    def _held(self, index: int, units: Sequence[Unit], items: Partitionable) -> list[int]:
        """Numbers of the units that validate: at random, and in proportion to the classes where stratified."""
        available = len(units)
        if not self.validation:
            return []
        count = counted(self.validation, available)
        if count >= available:
            raise ConfigError(
                f"partition.validation (={self.validation}) is {count} of the {available} {self.unit} that fold "
                f"{index} may train on, which leaves none to train on: lower it (0 holds none), or change the folds"
            )
        order = random(self.seed, "validation", index).permutation(available)
        if self.stratified and items.labels is not None:
            classes = np.asarray(items.labels)[[units[number][0] for number in order]]
            order = order[np.argsort(classes, kind="stable")]
        return [int(order[int((place + 0.5) * available / count)]) for place in range(count)]


@dataclass(frozen=True, kw_only=True)
class Splitter(Validating):
    """What the partitions that make parts share.

    `train_on`: "rest" tests each part in turn and trains on the rest; "small" trains on each part and tests on all the
    rest, the ONN papers' protocol: validation is then held from the small part, and with validation=0 all of it trains.
    """

    train_on: str = "rest"

    def __post_init__(self) -> None:
        super().__post_init__()
        choice("partition.train_on", self.train_on, ("rest", "small"))

    @abstractmethod
    def parts(self, items: Partitionable) -> Iterator[Sequence[int]]:
        """The items of each part, in the order of the folds."""

    def every(self, items: Partitionable) -> list[Fold]:
        if len(items) < 2:
            raise ConfigError(f"a partition needs at least 2 items, and the data has {len(items)}")
        return [self._fold(index, part, items) for index, part in enumerate(self.parts(items))]

    def _fold(self, index: int, part: Sequence[int], items: Partitionable) -> Fold:
        inside = set(part)
        rest = [item for item in range(len(items)) if item not in inside]
        pool, test = (rest, sorted(inside)) if self.train_on == "rest" else (sorted(inside), rest)
        return self.fold(index, pool, test, items)


def random(*key: Part) -> RandomState:
    """Numpy's frozen legacy generator, whose streams are promised not to change between versions."""
    return RandomState(derive("partition", *key) % 2**32)


def by_group(pool: Sequence[int], items: Partitionable) -> dict[str, Unit]:
    """Group -> its items in `pool`, groups sorted by name."""
    found: dict[str, list[int]] = {}
    for item in pool:
        found.setdefault(items.groups[item], []).append(item)
    return {group: tuple(found[group]) for group in sorted(found)}


def share(key: str, value: object, *, none: bool = False) -> None:
    """A fraction in (0, 1) or a count from 1; 0 where `none`."""
    wanted = f"a fraction in (0, 1) or a count of at least 1{', or 0 for none' if none else ''}"
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise refuse(key, value, wanted)
    fits = value >= 1 if isinstance(value, int) else 0 < value < 1
    if not fits and not (none and value == 0):
        raise refuse(key, value, wanted)


def counted(value: float, available: int) -> int:
    """How many of the available a count or fraction is; a fraction is at least one, and not all of two or more."""
    if isinstance(value, int):
        return value
    return max(1, min(available - 1, int(value * available + 0.5)))
