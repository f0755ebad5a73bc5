"""Where patches are cut from a photograph: a grid without overlap or keyed random positions, no constant patch."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from onn_runner.data.photographs import Photograph
from onn_runner.errors import ConfigError
from onn_runner.seeding import generator

# A patch that spans less than two grey levels holds nothing to restore, and its SNR is not defined.
CONSTANT = 1.5 / 255
TRIES_PER_PATCH = 20

Position = tuple[int, int]


@dataclass(frozen=True)
class Cutting:
    """Patch size (height, width), at most how many a photograph (None: all of the grid), where, and the seed."""

    size: tuple[int, int]
    most: int | None
    placement: str
    seed: int
    leave_out: str
    """How the user leaves out a photograph that cannot be cut: "take its file out of data.path"."""

    def positions(self, photograph: Photograph) -> tuple[list[Position], int]:
        """(top, left) of each patch, sorted, and how many constant ones were left out.

        Raises: ConfigError where the photograph is smaller than a patch, or nothing but constant.
        """
        height, width = photograph.size
        if self.size[0] > height or self.size[1] > width:
            raise ConfigError(
                f"data.patch (={self.size[0]} x {self.size[1]}) is larger than photograph '{photograph.name}' "
                f"({height} x {width}): choose at most {min(height, width)}, or {self.leave_out}"
            )
        place = self._grid if self.placement == "grid" else self._random
        found, constant = place(photograph, generator("patches", self.seed, photograph.name))
        if not found:
            raise ConfigError(
                f"photograph '{photograph.name}' has no patch of {self.size[0]} x {self.size[1]} that is not constant: "
                f"{self.leave_out}, or choose a larger data.patch"
            )
        return sorted(found), constant

    def _grid(self, photograph: Photograph, source: Generator) -> tuple[list[Position], int]:
        (height, width), (h, w) = photograph.size, self.size
        rows, columns = height // h, width // w
        top, left = (height - rows * h) // 2, (width - columns * w) // 2
        cells = [(top + row * h, left + column * w) for row in range(rows) for column in range(columns)]
        kept = [cell for cell in cells if not self._constant(photograph.pixels, cell)]
        constant = len(cells) - len(kept)
        if self.most is not None and len(kept) > self.most:
            kept = [kept[i] for i in torch.randperm(len(kept), generator=source)[: self.most].tolist()]
        return kept, constant

    def _random(self, photograph: Photograph, source: Generator) -> tuple[list[Position], int]:
        (height, width), (h, w) = photograph.size, self.size
        assert self.most is not None
        tries = TRIES_PER_PATCH * self.most
        tops = torch.randint(height - h + 1, (tries,), generator=source).tolist()
        lefts = torch.randint(width - w + 1, (tries,), generator=source).tolist()
        kept: dict[Position, None] = {}
        constant = 0
        for position in zip(tops, lefts, strict=True):
            if len(kept) == self.most:
                break
            if self._constant(photograph.pixels, position):
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
