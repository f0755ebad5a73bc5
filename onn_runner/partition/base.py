"""Fold and Partition: which items train, choose the epoch, and are tested. A pure function of the items and a seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Fold:
    """Item indices of one fold; the three parts are disjoint. `validation` may be empty, `test` never chooses."""

    index: int
    train: tuple[int, ...]
    validation: tuple[int, ...]
    test: tuple[int, ...]


class Partitionable(Protocol):
    """What a partition looks at; every data source has it."""

    groups: Sequence[str]
    """The group of each item (its photograph, its patient): items of one group never lie on both sides."""
    labels: Sequence[int] | None
    """The class of each item, for stratification; None where there is none."""

    def __len__(self) -> int: ...


class Partition(Protocol):
    """Splits items into folds. Raises ConfigError, with the numbers, when the request is impossible."""

    seed: int

    def split(self, items: Partitionable) -> list[Fold]: ...
