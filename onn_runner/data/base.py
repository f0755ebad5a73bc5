"""Source: the items of an experiment, and how they look to training and to testing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypedDict

from torch import Tensor
from torch.utils.data import Dataset

from onn_runner.seeding import Part


class Item(TypedDict):
    """One training or test pair; `index` is the item's number in the source."""

    input: Tensor  # [C, *S] float32
    target: Tensor  # [C', *S'] float32; where items have classes, the class's number, an int64 without axes
    index: int


@dataclass(frozen=True)
class Shape:
    """Channels and spatial sizes of one item's input and target."""

    input: tuple[int, ...]  # (C, *S)
    target: tuple[int, ...]  # (C', *S'), or (classes,)


class Source(Protocol):
    """The items, their groups, and views on them. A view is cheap: training makes a new one for every epoch."""

    groups: Sequence[str]
    labels: Sequence[int] | None
    """The class of each item, by which folds can be stratified; sources with classes also have `classes`, their names,
    and those with a test part of their own have `test_items`, its numbers."""
    names: Sequence[str]
    """A stable name of each item, for per-item score tables (`camera[12,30]`)."""
    shape: Shape
    data_range: tuple[float, float]
    """The range of target values, (0, 1) for photographs."""

    def __len__(self) -> int: ...

    def training(self, indices: Sequence[int], key: tuple[Part, ...]) -> Dataset[Item]:
        """Noise and augmentation drawn from (`key`, item): a fresh key each epoch, the same key the same data."""

    def fixed(self, indices: Sequence[int]) -> Dataset[Item]:
        """Items for validation and test: identical whenever asked, whatever else was drawn."""

    def whole(self, groups: Sequence[str]) -> Dataset[Item] | None:
        """Whole originals (photographs) of these groups, each item of its own size; None where there are none."""

    def describe(self) -> list[str]:
        """One line each of what the reader should know: sizes, noise, its level in the data's units."""

    def fingerprint(self) -> str:
        """A hash that changes whenever an item would: data, cutting, noise and its seed."""
