"""One pass over image files: which can be used, where they are cut, and their patches as far as memory holds them.

Everything that training needs to know of a file is found here, so that a bad one is named before anything is trained.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from rich.progress import track
from torch import Tensor

from onn_runner import terminal
from onn_runner.data.files import File
from onn_runner.data.patches import Cutting, Position
from onn_runner.data.photographs import Photograph
from onn_runner.data.reading import BadImage
from onn_runner.data.stored import Manner, Stored, first_read
from onn_runner.errors import ConfigError

# A picture below this share of white is hardly one: more likely it has 12 bits in a file of 16.
DARK = 1 / 16


@dataclass(frozen=True)
class Candidate:
    """A picture, or an input with its target, before it is known whether the files can be used."""

    name: str
    group: str
    target: File
    input: File | None = None


@dataclass(frozen=True)
class Surveyed:
    """A picture whose files can be used, and what was found in them."""

    name: str
    group: str
    target: Stored
    input: Stored | None
    positions: list[Position]
    constant: int
    """Patches left out because they hold one value."""
    digest: str
    dark: bool

    def notes(self) -> list[tuple[str, str]]:
        """(file, what the reader should know of it)."""
        stored = [self.target] if self.input is None else [self.target, self.input]
        return [(one.path.name, one.note) for one in stored if one.note]


Patches = tuple[Tensor, Tensor | None]
"""[N, C, h, w] of the target, [N, C', h / factor, w / factor] of the input where there is one."""


@dataclass
class Survey:
    pictures: list[Surveyed] = field(default_factory=list)
    bad: list[tuple[str, str]] = field(default_factory=list)
    """Names and why they cannot be used."""
    small: list[tuple[str, tuple[int, int]]] = field(default_factory=list)
    """Those of `bad` that are smaller than a patch, and their sizes."""
    held: list[Patches] | None = field(default_factory=list)
    """Of each picture; None where the files are read as items are needed."""
    size: int = 0
    """Bytes of all patches."""


class SmallImage(BadImage):
    """A picture that is smaller than a patch."""

    def __init__(self, size: tuple[int, int], patch: tuple[int, int]) -> None:
        reason = f"is {size[0]} x {size[1]}, smaller than a patch of {patch[0]} x {patch[1]}"
        super().__init__(f"the image {reason}", reason)
        self.size = size


def survey(
    candidates: Sequence[Candidate],
    *,
    cutting: Cutting,
    factor: int,
    manner: Manner,
    budget: float,
) -> Survey:
    """Every candidate decoded once; patches are kept where all together take at most `budget` bytes.

    `factor`: sides of a target over those of its input.
    """
    found = Survey()
    console = terminal.console(stderr=True)
    reading = "Reading images"
    for candidate in track(candidates, reading, console=console, transient=True, disable=not console.is_terminal):
        try:
            picture, patches = _examined(candidate, cutting, factor, manner)
        except BadImage as error:
            found.bad.append((candidate.name, error.reason))
            if isinstance(error, SmallImage):
                found.small.append((candidate.name, error.size))
            continue
        found.pictures.append(picture)
        found.size += sum(part.numel() * part.element_size() for part in patches if part is not None)
        if found.size > budget:
            found.held = None
        if found.held is not None:
            found.held.append(patches)
    return found


def _examined(candidate: Candidate, cutting: Cutting, factor: int, manner: Manner) -> tuple[Surveyed, Patches]:
    """Raises: BadImage."""
    target, pixels = first_read(candidate.target, manner)
    input, given = None, None
    if candidate.input is not None:
        input, given = _input(candidate.input, manner)
        _refuse_sizes(target.size, input.size, factor)
    positions, constant = _positions(Photograph(candidate.name, candidate.group, pixels), cutting)
    patches = torch.stack([cutting.cut(pixels, position) for position in positions])
    digest = hashlib.blake2b(pixels.numpy().tobytes(), digest_size=16)
    cut_alike = None
    if given is not None:
        digest.update(given.numpy().tobytes())
        cut_alike = torch.stack([cut_reduced(given, position, cutting.size, factor) for position in positions])
    found = Surveyed(
        candidate.name, candidate.group, target, input, positions, constant, digest.hexdigest(), _dark(pixels)
    )
    return found, (patches, cut_alike)


def _input(file: File, manner: Manner) -> tuple[Stored, Tensor]:
    try:
        return first_read(file, manner)
    except BadImage as error:
        raise _unusable(f"has an input ({file.name}) that {error.reason}") from error


def cut_reduced(
    pixels: Tensor,  # [C, H / factor, W / factor]
    position: Position,
    size: tuple[int, int],
    factor: int,
) -> Tensor:
    """[C, h / factor, w / factor], a view: the place of the target's patch in its input."""
    top, left = (place // factor for place in position)
    height, width = (side // factor for side in size)
    return pixels[:, top : top + height, left : left + width]


def _dark(pixels: Tensor) -> bool:
    return float(pixels.amax()) < DARK


def _positions(picture: Photograph, cutting: Cutting) -> tuple[list[Position], int]:
    h, w = cutting.size
    if not cutting.fits(picture.size):
        raise SmallImage(picture.size, cutting.size)
    try:
        return cutting.positions(picture)
    except ConfigError as error:
        dark = f" and no value above {DARK:g} of white" if _dark(picture.pixels) else ""
        raise _unusable(f"has no patch of {h} x {w} that is not constant{dark}") from error


def _refuse_sizes(target: tuple[int, int], input: tuple[int, int], factor: int) -> None:
    if target != (factor * input[0], factor * input[1]):
        (height, width), (h, w) = target, input
        wanted = "" if factor == 1 else f" times {factor}"
        raise _unusable(f"is {height} x {width}, which is not the size of its input{wanted}, {h} x {w}")


def _unusable(reason: str) -> BadImage:
    return BadImage(f"the image {reason}", reason)
