"""(degraded picture, picture) pairs: patches for training and testing, whole pictures for testing."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.utils.data import Dataset

from onn_runner.checks import amount
from onn_runner.data.base import Item, Shape
from onn_runner.data.patches import Cutting, Picture, Position
from onn_runner.seeding import Part, generator

SQUARE = tuple(range(8))
"""Codes of the square's orientations: bit 1 flips rows, 2 flips columns, 4 then swaps the axes."""


class Degraded(ABC):
    """Pictures and what was made of them; the group of a patch is its picture's.

    A subclass says what is made of a picture: `prepared` (once, whole: a blur, a reduction; of another size or with
    other channels, or a second picture) and `degrade` (anew for each item: noise). Both are cut at the same place and
    turned alike, then degraded.

    Training noise and augmentation come from the key that training gives (run seed, fold, start, epoch). Patch
    positions and the noise of validation and test come from `seed`, which is the data's own, so that models and run
    seeds are compared on the same items.
    """

    data_range = (0.0, 1.0)
    labels: Sequence[int] | None = None
    factor = 1
    """Side of the target over side of the input."""
    orientations: Sequence[int] = SQUARE
    """Codes of `_turned` that leave the degradation as it is, for square patches."""

    def __init__(self, photographs: Sequence[Picture], cutting: Cutting, *, augmentation: bool, seed: int) -> None:
        """`cutting.step` is a multiple of `factor`; what degrades is set before, since one input is made here."""
        self.photographs, self.cutting = photographs, cutting
        self.augmentation, self.seed = augmentation, seed
        self.places: list[tuple[int, Position]] = []
        self.constant_left_out = 0
        cutting.check_sizes(photographs)
        for number, photograph in enumerate(photographs):
            positions, constant = cutting.positions(photograph)
            self.places += [(number, position) for position in positions]
            self.constant_left_out += constant
        self.groups = [photographs[number].group for number, _ in self.places]
        self.names = [f"{photographs[number].name}[{top},{left}]" for number, (top, left) in self.places]
        channels, inputs = self.picture(0).shape[0], self.prepared(0).shape[0]
        height, width = cutting.size
        self.shape = Shape(
            input=(inputs, height // self.factor, width // self.factor), target=(channels, height, width)
        )

    @abstractmethod
    def degrade(self, prepared: Tensor, *key: Part) -> Tensor:
        """[C', *S] -> [C', *S], a new tensor: what differs from item to item and from epoch to epoch."""

    @abstractmethod
    def settings(self) -> tuple[object, ...]:
        """Everything besides pictures and places that changes an item, with a stable repr."""

    @abstractmethod
    def describe(self) -> list[str]: ...

    def prepared(self, number: int) -> Tensor:
        """[C', H / factor, W / factor]: the picture of this number as far as its degradation is always the same."""
        return self.picture(number)

    def picture(self, number: int) -> Tensor:
        """[C, H, W] in the data's range, cropped at the lower right to multiples of `cutting.step`."""
        pixels = self.photographs[number].pixels
        if self.cutting.step == 1:
            return pixels
        height, width = self.cutting.multiple((pixels.shape[1], pixels.shape[2]))
        return pixels[:, :height, :width]

    def __len__(self) -> int:
        return len(self.places)

    def clean(self, index: int) -> Tensor:
        """[C, h, w], a view of the picture."""
        number, position = self.places[index]
        return self.cutting.cut(self.picture(number), position)

    def patch(self, index: int) -> Tensor:
        """[C', h / factor, w / factor], a view of the prepared picture."""
        number, (top, left) = self.places[index]
        top, left = top // self.factor, left // self.factor
        height, width = (side // self.factor for side in self.cutting.size)
        return self.prepared(number)[:, top : top + height, left : left + width]

    def training(self, indices: Sequence[int], key: tuple[Part, ...]) -> Dataset[Item]:
        return _Training(self, tuple(indices), key)

    def fixed(self, indices: Sequence[int]) -> Dataset[Item]:
        return _Fixed(self, tuple(indices))

    def whole(self, groups: Sequence[str]) -> WholePictures | None:
        """Every picture of these groups, of its own size; `index` is its number in `photographs`."""
        wanted = set(groups)
        return WholePictures(self, tuple(n for n, photo in enumerate(self.photographs) if photo.group in wanted))

    def describe_cutting(self) -> str:
        h, w = self.cutting.size
        where = "on a grid without overlap" if self.cutting.placement == "grid" else "at random positions"
        most = "" if self.cutting.most is None else f", at most {self.cutting.most} a photograph"
        constant = f", {self.constant_left_out} constant left out" if self.constant_left_out else ""
        return f"{amount(len(self), 'patch', several='patches')} of {h} x {w} {where}{most}{constant}"

    def describe_draws(self, fresh: str) -> str:
        """What is drawn anew in each epoch and what is fixed; `fresh`: what `degrade` draws, empty for nothing."""
        turns = self._describe_turns() if self.augmentation else ""
        drawn = " and ".join(word for word in (fresh, turns) if word)
        training = f"{drawn} fresh each epoch" if drawn else "the same in each epoch"
        fixed = f"{fresh} fixed by data.seed={self.seed}" if fresh else "always the same"
        return f"training: {training}; validation and test: {fixed}"

    def _describe_turns(self) -> str:
        codes = self.turns()
        known = {1: "", 2: "half turns", 8: "flips and turns"}
        return known.get(len(codes), "flips" if max(codes) < 4 else f"flips and turns ({len(codes)} of 8)")

    def turns(self) -> list[int]:
        """The orientations among which a training patch is drawn."""
        square = self.cutting.size[0] == self.cutting.size[1]
        return [code for code in self.orientations if square or code < 4]

    def fingerprint(self) -> str:
        digest = hashlib.blake2b(digest_size=16)
        digest.update(repr(self.settings()).encode())
        for photograph in self.photographs:
            pixels = photograph.pixels
            digest.update(f"{photograph.name} {photograph.group} {tuple(pixels.shape)}".encode())
            digest.update(pixels.contiguous().numpy().tobytes())
        digest.update(repr(self.places).encode())
        return digest.hexdigest()


class _Training(Dataset[Item]):
    def __init__(self, source: Degraded, indices: tuple[int, ...], key: tuple[Part, ...]) -> None:
        self.source, self.indices, self.key = source, indices, key

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, place: int) -> Item:
        source, index = self.source, self.indices[place]
        key = (*self.key, source.names[index])
        target, prepared = source.clean(index), source.patch(index)
        if source.augmentation:
            codes = source.turns()
            code = codes[int(torch.randint(len(codes), (), generator=generator("symmetry", *key)))]
            target, prepared = turned(target, code), turned(prepared, code)
        else:
            target = target.clone()
        return Item(input=source.degrade(prepared, *key), target=target, index=index)


class _Fixed(Dataset[Item]):
    def __init__(self, source: Degraded, indices: tuple[int, ...]) -> None:
        self.source, self.indices = source, indices

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, place: int) -> Item:
        source, index = self.source, self.indices[place]
        degraded = source.degrade(source.patch(index), source.seed, source.names[index])
        return Item(input=degraded, target=source.clean(index).clone(), index=index)


class WholePictures(Dataset[Item]):
    """Sizes differ: load them one at a time."""

    def __init__(self, source: Degraded, numbers: tuple[int, ...]) -> None:
        self.source, self.numbers = source, numbers
        self.names = [source.photographs[number].name for number in numbers]
        self.groups = [source.photographs[number].group for number in numbers]

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, place: int) -> Item:
        source, number = self.source, self.numbers[place]
        key = (source.seed, "whole", source.photographs[number].name)
        degraded = source.degrade(source.prepared(number), *key)
        return Item(input=degraded, target=source.picture(number).clone(), index=number)


def turned(
    patch: Tensor,  # [C, h, w]
    code: int,
) -> Tensor:
    """A copy in one of the square's 8 orientations, codes 0 to 3 for rectangles."""
    dims = [dim for dim, bit in ((1, 1), (2, 2)) if code & bit]
    flipped = patch.flip(dims) if dims else patch.clone()
    return flipped.transpose(1, 2).contiguous() if code & 4 else flipped
