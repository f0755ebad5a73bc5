"""(picture, class) items: as they are for validation and test, with random changes for training."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils.data import Dataset

from onn_runner.checks import flag, whole_number
from onn_runner.data.augmentation import Augmentation
from onn_runner.data.base import Item, Shape
from onn_runner.data.held import Pictures
from onn_runner.data.selection import select
from onn_runner.data.standardisation import standardisation
from onn_runner.errors import ConfigError
from onn_runner.seeding import Part

SHOWN = 10
"""At most so many classes are counted in a description."""


@dataclass(frozen=True)
class Labels:
    """What a data set says about its pictures, in their order."""

    labels: Sequence[int]
    classes: Sequence[str]
    """The names of the classes 0, 1, ..."""
    names: Sequence[str]
    origin: str
    """For the reader: "Fashion-MNIST"."""
    groups: Sequence[str] | None = None
    """None: each picture by itself."""
    test: Sequence[int] | None = None
    """Numbers of the data set's own test part, where it has one."""


class Labelled:
    """Pictures of one size with one class each.

    What training draws comes from the key that it gives (run seed, fold, start, epoch) and the item. Which items are
    used comes from `seed`, the data's own, so that models and run seeds are compared on the same ones.

    Raises: ConfigError for each value that cannot be carried out, and for fewer than two classes.
    """

    def __init__(
        self,
        pictures: Pictures,
        about: Labels,
        *,
        part: object = "all",
        items: object = None,
        colour: object = None,
        standardise: object = None,
        transforms: object = (),
        seed: object = 0,
    ) -> None:
        self.seed = whole_number("data.seed", seed, least=0)
        numbers = select(about.labels, test=about.test, part=part, items=items, seed=self.seed)
        if len(numbers) < len(pictures):
            pictures = pictures.subset(numbers)
        if colour is not None:
            pictures = pictures.coloured(3 if flag("data.colour", colour) else 1)
        self.pictures, self.origin, self.part = pictures, about.origin, part
        self.labels = [int(about.labels[number]) for number in numbers]
        self.classes = list(about.classes)
        _refuse_one_class(self.labels, self.classes)
        self.names = [about.names[number] for number in numbers]
        self.groups = self.names if about.groups is None else [about.groups[number] for number in numbers]
        tested = set(about.test or ())
        places = tuple(place for place, number in enumerate(numbers) if number in tested)
        self.test_items = places if part == "all" and about.test is not None else None
        self.standardise = standardisation(standardise, pictures, self._trained_on())
        self.augmentation = Augmentation(transforms, pictures.take([0])[0])
        self.data_range = self.standardise.data_range
        self.shape = Shape(input=pictures.shape, target=(len(self.classes),))

    def _trained_on(self) -> list[int]:
        """All but the test part."""
        tested = set(self.test_items or ())
        return [index for index in range(len(self)) if index not in tested]

    def __len__(self) -> int:
        return len(self.labels)

    def training(self, indices: Sequence[int], key: tuple[Part, ...]) -> Dataset[Item]:
        return _View(self, tuple(indices), key if self.augmentation else None)

    def fixed(self, indices: Sequence[int]) -> Dataset[Item]:
        return _View(self, tuple(indices), None)

    def whole(self, groups: Sequence[str]) -> Dataset[Item] | None:
        return None

    def items(self, indices: Sequence[int], key: tuple[Part, ...] | None) -> list[Item]:
        """Several at once, which is much faster than one by one; `key`: None for pictures as they are."""
        pictures = self.pictures.take(indices)
        if key is not None:
            pictures = self.augmentation(list(pictures), [(*key, self.names[index]) for index in indices])
        if not isinstance(pictures, Tensor) and len({picture.dtype for picture in pictures}) == 1:
            pictures = torch.stack(pictures)
        inputs = self.standardise(pictures) if isinstance(pictures, Tensor) else list(map(self.standardise, pictures))
        targets = torch.tensor([self.labels[index] for index in indices], dtype=torch.int64)
        return [
            Item(input=value, target=target, index=index)
            for value, target, index in zip(inputs, targets, indices, strict=True)
        ]

    def describe(self) -> list[str]:
        channels, height, width = self.shape.input
        counts = Counter(self.labels)
        kind = {1: "grey", 3: "colour"}.get(channels, f"{channels}-channel")
        lines = [
            f"{len(self)} {kind} pictures of {height} x {width} in {len(self.classes)} classes from {self.origin}",
            f"items of a class: {self._describe_classes(counts)}",
        ]
        if self.test_items is not None:
            lines.append(
                f"{len(self.test_items)} of them are the data's own test part (partition=given tests on these alone)"
            )
        changes = f"{self.augmentation.describe()} fresh each epoch" if self.augmentation else "no random changes"
        return [*lines, f"{self.standardise.describe()}; {self.pictures.describe()}", f"training: {changes}"]

    def _describe_classes(self, counts: Counter[int]) -> str:
        numbers = [counts[label] for label in range(len(self.classes))]
        if len(set(numbers)) == 1:
            return f"{numbers[0]} each"
        if len(numbers) <= SHOWN:
            return ", ".join(f"{name} {number}" for name, number in zip(self.classes, numbers, strict=True))
        return f"{min(numbers)} to {max(numbers)}"

    def fingerprint(self) -> str:
        """Without what training draws: the folds are the same with it."""
        digest = hashlib.blake2b(digest_size=16)
        digest.update(repr((self.shape, self.standardise, self.classes, self.test_items)).encode())
        digest.update(repr((self.names, self.groups, self.labels)).encode())
        digest.update(self.pictures.digest().encode())
        return digest.hexdigest()


class _View(Dataset[Item]):
    def __init__(self, source: Labelled, indices: tuple[int, ...], key: tuple[Part, ...] | None) -> None:
        self.source, self.indices, self.key = source, indices, key

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, place: int) -> Item:
        return self.source.items([self.indices[place]], self.key)[0]

    def __getitems__(self, places: Sequence[int]) -> list[Item]:
        """A batch, as torch's loader asks for it."""
        return self.source.items([self.indices[place] for place in places], self.key)


def _refuse_one_class(labels: Sequence[int], classes: Sequence[str]) -> None:
    held = sorted(set(labels))
    if len(held) < 2:
        only = f"class {classes[held[0]]} alone" if held else "no class"
        raise ConfigError(f"classification needs items of at least 2 classes, and the data has {only}")
