"""(photograph + noise, photograph) pairs: patches for training and testing, whole photographs for testing."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import is_dataclass

import torch
from torch import Tensor
from torch.utils.data import Dataset

from onn_runner.checks import choice, flag, pair, refuse, whole_number
from onn_runner.data import noise as noises
from onn_runner.data import photographs as photos
from onn_runner.data.base import Item, Shape
from onn_runner.data.patches import Cutting
from onn_runner.errors import ConfigError
from onn_runner.seeding import Part, generator

# A picture below this share of white is hardly one: more likely it has 12 bits in a file of 16.
DARK = 1 / 16


class Denoise:
    """Photographs in [0, 1] and their noisy copies; the group of a patch is its photograph.

    Training noise and augmentation come from the key that training gives (run seed, fold, start, epoch). Patch
    positions and the noise of validation and test come from `seed`, which is the data's own, so that models and run
    seeds are compared on the same items.

    Raises: ConfigError for each value that cannot be carried out.
    """

    data_range = (0.0, 1.0)
    labels: Sequence[int] | None = None

    def __init__(
        self,
        *,
        path: str | None = None,
        photographs: Sequence[str] | None = None,
        colour: bool = False,
        max_side: int = 512,
        patch: int | Sequence[int] = 48,
        patches: int | None = 80,
        placement: str = "grid",
        noise: str | noises.Noise = "gaussian",
        sigma: float = 25.0,
        amount: float = 0.1,
        peak: float = 30.0,
        spread: float = 0.2,
        clip: bool = False,
        augmentation: bool = True,
        seed: int = 0,
    ) -> None:
        self.seed = whole_number("data.seed", seed, least=0)
        self.clip = flag("data.clip", clip)
        self.augmentation = flag("data.augmentation", augmentation)
        self.noise = _noise(noise, sigma=sigma, amount=amount, peak=peak, spread=spread)
        self.cutting = _cutting(patch, patches, placement, self.seed, folder=path is not None)
        self.max_side = whole_number("data.max_side", max_side, least=1)
        self.origin = "scikit-image" if path is None else str(path)
        self.photographs, self.grey_left_out = _load(path, photographs, flag("data.colour", colour), self.max_side)
        self._cut()

    def _cut(self) -> None:
        self.places: list[tuple[int, tuple[int, int]]] = []
        self.constant_left_out = 0
        for number, photograph in enumerate(self.photographs):
            positions, constant = self.cutting.positions(photograph)
            self.places += [(number, position) for position in positions]
            self.constant_left_out += constant
        self.groups = [self.photographs[number].group for number, _ in self.places]
        self.names = [f"{self.photographs[number].name}[{top},{left}]" for number, (top, left) in self.places]
        size = (self.photographs[0].pixels.shape[0], *self.cutting.size)
        self.shape = Shape(input=size, target=size)

    def __len__(self) -> int:
        return len(self.places)

    def clean(self, index: int) -> Tensor:
        """[C, h, w], a view of the photograph."""
        number, position = self.places[index]
        return self.cutting.cut(self.photographs[number].pixels, position)

    def noisy(self, clean: Tensor, *key: Part) -> Tensor:
        """[C, *S] with the noise of this key; clipped only where `data.clip` says so."""
        noisy = self.noise(clean, generator("noise", *key))
        return noisy.clamp_(0, 1) if self.clip else noisy

    def training(self, indices: Sequence[int], key: tuple[Part, ...]) -> Dataset[Item]:
        return _Training(self, tuple(indices), key)

    def fixed(self, indices: Sequence[int]) -> Dataset[Item]:
        return _Fixed(self, tuple(indices))

    def whole(self, groups: Sequence[str]) -> WholePhotographs:
        """Every photograph of these groups, of its own size; `index` is its number in `photographs`."""
        wanted = set(groups)
        return WholePhotographs(self, tuple(n for n, photo in enumerate(self.photographs) if photo.group in wanted))

    def describe(self) -> list[str]:
        scenes = len({photograph.group for photograph in self.photographs})
        kind = "colour" if self.shape.input[0] == 3 else "grey"
        sides = f"sides at most {self.max_side}"
        left_out = f", {len(self.grey_left_out)} grey ones left out" if self.grey_left_out else ""
        h, w = self.cutting.size
        where = "on a grid without overlap" if self.cutting.placement == "grid" else "at random positions"
        most = "" if self.cutting.most is None else f", at most {self.cutting.most} a photograph"
        constant = f", {self.constant_left_out} constant ones left out" if self.constant_left_out else ""
        clipping = "noisy values clipped to [0, 1]" if self.clip else "noisy values not clipped"
        turned = "" if not self.augmentation else " and flips and turns" if h == w else " and flips"
        dark = [photograph.name for photograph in self.photographs if float(photograph.pixels.amax()) < DARK]
        told = f"no value above {DARK:g} of white in {', '.join(dark)}: 12-bit values must be scaled to 16 bits"
        return [
            f"{len(self.photographs)} {kind} photographs of {scenes} scenes from {self.origin}, {sides}{left_out}",
            *([told] if dark else []),
            f"{len(self)} patches of {h} x {w} {where}{most}{constant}",
            f"{self.noise.describe()}, {clipping}",
            f"training: noise{turned} fresh each epoch; validation and test: noise fixed by data.seed={self.seed}",
        ]

    def fingerprint(self) -> str:
        digest = hashlib.blake2b(digest_size=16)
        noise = repr(self.noise) if is_dataclass(self.noise) else self.noise.describe()
        settings = (noise, self.clip, self.augmentation, self.seed, self.cutting.size)
        digest.update(repr(settings).encode())
        for photograph in self.photographs:
            digest.update(f"{photograph.name} {photograph.group} {tuple(photograph.pixels.shape)}".encode())
            digest.update(photograph.pixels.numpy().tobytes())
        digest.update(repr(self.places).encode())
        return digest.hexdigest()


class _Training(Dataset[Item]):
    def __init__(self, source: Denoise, indices: tuple[int, ...], key: tuple[Part, ...]) -> None:
        self.source, self.indices, self.key = source, indices, key

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, place: int) -> Item:
        index = self.indices[place]
        key = (*self.key, self.source.names[index])
        target = self.source.clean(index)
        target = _symmetry(target, *key) if self.source.augmentation else target.clone()
        return Item(input=self.source.noisy(target, *key), target=target, index=index)


class _Fixed(Dataset[Item]):
    def __init__(self, source: Denoise, indices: tuple[int, ...]) -> None:
        self.source, self.indices = source, indices

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, place: int) -> Item:
        index = self.indices[place]
        target = self.source.clean(index).clone()
        noisy = self.source.noisy(target, self.source.seed, self.source.names[index])
        return Item(input=noisy, target=target, index=index)


class WholePhotographs(Dataset[Item]):
    """Sizes differ: load them one at a time."""

    def __init__(self, source: Denoise, numbers: tuple[int, ...]) -> None:
        self.source, self.numbers = source, numbers
        self.names = [source.photographs[number].name for number in numbers]
        self.groups = [source.photographs[number].group for number in numbers]

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, place: int) -> Item:
        number = self.numbers[place]
        photograph = self.source.photographs[number]
        target = photograph.pixels.clone()
        noisy = self.source.noisy(target, self.source.seed, "whole", photograph.name)
        return Item(input=noisy, target=target, index=number)


def _symmetry(patch: Tensor, *key: Part) -> Tensor:
    """[C, h, w] in one of the square's 8 orientations, or the rectangle's 4; a copy."""
    square = patch.shape[1] == patch.shape[2]
    code = int(torch.randint(8 if square else 4, (), generator=generator("symmetry", *key)))
    dims = [dim for dim, bit in ((1, 1), (2, 2)) if code & bit]
    turned = patch.flip(dims) if dims else patch.clone()
    return turned.transpose(1, 2).contiguous() if code & 4 else turned


def _noise(noise: object, **levels: float) -> noises.Noise:
    if callable(noise) and hasattr(noise, "describe"):
        return noise
    return noises.named(noise, **levels)


def _cutting(patch: object, patches: object, placement: object, seed: int, *, folder: bool) -> Cutting:
    where = choice("data.placement", placement, ("grid", "random"))
    wanted = "a whole number of at least 1" + (", or null for the whole grid" if where == "grid" else "")
    whole_grid = patches is None and where == "grid"
    most = None if whole_grid else whole_number("data.patches", patches, least=1, wanted=wanted)
    leave_out = "take its file out of data.path" if folder else "leave it out with data.photographs"
    return Cutting(pair("data.patch", patch, least=1), most, where, seed, leave_out)


def _load(path: object, chosen: Sequence[str] | None, colour: bool, max_side: int) -> photos.Loaded:
    if path is None:
        files = photos.shipped(chosen)
    elif not isinstance(path, str):
        raise refuse("data.path", path, "a folder of image files, or null for scikit-image's photographs")
    elif chosen is not None:
        raise ConfigError("data.photographs chooses among scikit-image's photographs: give it or data.path, not both")
    else:
        files = photos.in_folder(path)
    loaded, grey = photos.load(files, colour=colour, max_side=max_side)
    if not loaded or (chosen is not None and grey):
        raise ConfigError(f"data.colour (=True) needs photographs in colour, and these are grey: {', '.join(grey)}")
    return loaded, grey
