"""Where patches are cut from a photograph: a grid without overlap or keyed random positions, no constant patch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Generator, Tensor

from onn_runner.checks import amount, choice, pair, whole_number
from onn_runner.errors import ConfigError
from onn_runner.seeding import generator

# A patch that spans less than two grey levels holds nothing to restore, and its SNR is not defined.
CONSTANT = 1.5 / 255
TRIES_PER_PATCH = 20

Position = tuple[int, int]


class Picture(Protocol):
    """One picture; pictures of one scene (a stereo pair) share the group."""

    @property
    def name(self) -> str: ...

    @property
    def group(self) -> str: ...

    @property
    def size(self) -> tuple[int, int]:
        """(height, width), known without decoding."""

    @property
    def pixels(self) -> Tensor:
        """[C, H, W] float32 in the data's range; may be decoded each time."""


@dataclass(frozen=True)
class Cutting:
    """Patch size (height, width), at most how many a photograph (None: all of the grid), where, and the seed.

    `step`: positions are multiples of it, so that a picture reduced by it has a patch at the same place; it divides
    the patch size, and of a picture only the part counts that it divides too.
    """

    size: tuple[int, int]
    most: int | None
    placement: str
    seed: int
    leave_out: str
    """How the user leaves out a photograph that cannot be cut: "take its file out of data.path"."""
    step: int = 1

    def positions(self, photograph: Picture) -> tuple[list[Position], int]:
        """(top, left) of each patch, sorted, and how many constant ones were left out; the photograph is large enough.

        Raises: ConfigError where the photograph is nothing but constant.
        """
        height, width = photograph.size
        place = self._grid if self.placement == "grid" else self._random
        whole = self.multiple((height, width))
        found, constant = place(photograph.pixels, whole, generator("patches", self.seed, photograph.name))
        if not found:
            raise ConfigError(
                f"photograph '{photograph.name}' has no patch of {self.size[0]} x {self.size[1]} that is not constant: "
                f"{self.leave_out}, or choose a larger data.patch"
            )
        return sorted(found), constant

    def fits(self, size: tuple[int, int]) -> bool:
        return self.size[0] <= size[0] and self.size[1] <= size[1]

    def at_most(self, small: Sequence[tuple[int, int]]) -> str:
        """The largest patch that fits into pictures of these sizes, which are too small for this one: `96`."""
        height, width = (min(self.size[axis], *(size[axis] for size in small)) for axis in (0, 1))
        if self.size[0] == self.size[1]:
            height = width = min(height, width)
        h, w = (max(side, self.step) for side in self.multiple((height, width)))
        return f"{h}" if h == w else f"[{h},{w}]"

    def check_sizes(self, photographs: Sequence[Picture]) -> None:
        """Raises: ConfigError where a photograph is smaller than a patch."""
        small = [photograph for photograph in photographs if not self.fits(photograph.size)]
        if not small:
            return
        least = min(small, key=lambda photograph: min(photograph.size))
        first = f"'{least.name}' ({least.size[0]} x {least.size[1]})"
        alone = len(small) == 1 < len(photographs)
        many = f"{len(small)} of {amount(len(photographs), 'photograph')}, the smallest of them {first}"
        which = f"photograph {first}" if len(small) == 1 else many
        raise ConfigError(
            f"data.patch (={self.size[0]} x {self.size[1]}) is larger than {which}: choose at most "
            f"{self.at_most([one.size for one in small])}{f', or {self.leave_out}' if alone else ''}"
        )

    def multiple(self, size: tuple[int, int]) -> tuple[int, int]:
        """The largest multiples of `step` that fit into a picture of this size."""
        return size[0] // self.step * self.step, size[1] // self.step * self.step

    def _grid(self, pixels: Tensor, size: tuple[int, int], source: Generator) -> tuple[list[Position], int]:
        (height, width), (h, w) = size, self.size
        rows, columns = height // h, width // w
        top, left = self.multiple(((height - rows * h) // 2, (width - columns * w) // 2))
        cells = [(top + row * h, left + column * w) for row in range(rows) for column in range(columns)]
        kept = [cell for cell in cells if not self._constant(pixels, cell)]
        constant = len(cells) - len(kept)
        if self.most is not None and len(kept) > self.most:
            kept = [kept[i] for i in torch.randperm(len(kept), generator=source)[: self.most].tolist()]
        return kept, constant

    def _random(self, pixels: Tensor, size: tuple[int, int], source: Generator) -> tuple[list[Position], int]:
        (height, width), (h, w), step = size, self.size, self.step
        assert self.most is not None
        tries = TRIES_PER_PATCH * self.most
        tops = torch.randint((height - h) // step + 1, (tries,), generator=source).mul_(step).tolist()
        lefts = torch.randint((width - w) // step + 1, (tries,), generator=source).mul_(step).tolist()
        kept: dict[Position, None] = {}
        constant = 0
        for position in zip(tops, lefts, strict=True):
            if len(kept) == self.most:
                break
            if self._constant(pixels, position):
                constant += 1
            else:
                kept[position] = None
        return list(kept), constant

    def _constant(self, pixels: Tensor, position: Position) -> bool:
        patch = self.cut(pixels, position)
        return float(patch.amax() - patch.amin()) < CONSTANT

    def cut(self, pixels: Tensor, position: Position) -> Tensor:
        """[C, H, W] -> [C, h, w], a view."""
        top, left = position
        return pixels[:, top : top + self.size[0], left : left + self.size[1]]


def cutting(
    patch: object, patches: object, placement: object, seed: int, *, leave_out: str, step: int = 1, why: str = ""
) -> Cutting:
    """The Cutting of checked values; `why`: what asks for multiples of `step`: "data.factor=3".

    Raises: ConfigError for each value that cannot be carried out.
    """
    where = choice("data.placement", placement, ("grid", "random"))
    wanted = "a whole number of at least 1" + (", or null for the whole grid" if where == "grid" else "")
    whole_grid = patches is None and where == "grid"
    most = None if whole_grid else whole_number("data.patches", patches, least=1, wanted=wanted)
    size = pair("data.patch", patch, least=1)
    if any(side % step for side in size):
        near = max(step, size[0] // step * step)
        raise ConfigError(
            f"data.patch (={size[0]} x {size[1]}) must be a multiple of {step}, as {why} needs it: such as {near}"
        )
    return Cutting(size, most, where, seed, leave_out, step)
