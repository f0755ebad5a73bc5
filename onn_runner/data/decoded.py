"""Image files brought to one size: every one decoded once, then kept in memory where all fit, or decoded anew."""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

import torch
from rich.progress import track
from torch import Tensor

from onn_runner import terminal
from onn_runner.checks import choice, pair
from onn_runner.data.files import File
from onn_runner.data.held import CHUNK, with_channels
from onn_runner.data.memory import megabytes
from onn_runner.data.reading import BadImage, read
from onn_runner.errors import RunError

THREADS = 8
FITS = ("crop", "stretch")


@dataclass(frozen=True)
class Form:
    """What becomes of a picture when it is decoded."""

    grey: bool
    """Colours become luminance."""
    size: tuple[int, int] | None
    """(height, width); None: as it is."""
    fit: str
    """`crop`: scaled until it covers the size, and the middle taken; `stretch`: each side by itself."""


@dataclass(frozen=True)
class Found:
    """A file that can be used, and what was found in it."""

    file: File
    modified: int
    """The file's time stamp in nanoseconds when it was first read."""
    shape: tuple[int, ...]  # (1 or 3, H, W)
    digest: str
    note: str
    """What the reader should know: bits that were lost."""


@dataclass
class Reading:
    found: list[Found] = field(default_factory=list)
    bad: list[tuple[str, str]] = field(default_factory=list)
    """Names and why they cannot be used."""
    held: list[Tensor] | None = field(default_factory=list)
    """The pictures; None where they take more than may be kept."""
    size: int = 0
    """Bytes of all pictures."""


@dataclass(frozen=True)
class Decoded:
    """Pictures of one size (see `held.Pictures`)."""

    found: Sequence[Found]
    held: Sequence[Tensor] | None
    form: Form
    channels: int
    size: int
    """Bytes of all pictures."""

    @property
    def shape(self) -> tuple[int, int, int]:
        _, height, width = self.found[0].shape
        return self.channels, height, width

    def __len__(self) -> int:
        return len(self.found)

    def take(self, indices: Sequence[int]) -> list[Tensor]:
        """Raises: RunError where a file is not what it was."""
        return [with_channels(self._picture(index), self.channels) for index in indices]

    def _picture(self, index: int) -> Tensor:
        if self.held is not None:
            return self.held[index]
        found = self.found[index]
        path = found.file.path
        try:
            if path.stat().st_mtime_ns != found.modified:
                raise RunError(f"the image {path} was changed while the run was using it: start again")
            return decoded(found.file, self.form)[0]
        except (OSError, BadImage) as error:
            raise RunError(f"the image {path} can no longer be read ({error}): resume when it is there") from error

    def subset(self, indices: Sequence[int]) -> Decoded:
        held = None if self.held is None else [self.held[index] for index in indices]
        size = self.size * len(indices) // len(self)
        return replace(self, found=[self.found[index] for index in indices], held=held, size=size)

    def coloured(self, channels: int) -> Decoded:
        return replace(self, channels=channels)

    def digest(self) -> str:
        texts = " ".join(found.digest for found in self.found)
        return hashlib.blake2b(f"{self.shape} {texts}".encode(), digest_size=16).hexdigest()

    def describe(self) -> str:
        if self.held is not None:
            return f"kept in memory, {megabytes(self.size)}"
        return f"{megabytes(self.size)}, read from the files as they are needed: trainer.workers read ahead"


def form(*, colour: bool | None, size: object, fit: object) -> Form:
    """Raises: ConfigError naming data.size or data.fit."""
    sides = None if size is None else pair("data.size", size, least=1)
    return Form(colour is False, sides, choice("data.fit", fit, FITS))


def decoded(file: File, form: Form) -> tuple[Tensor, str]:
    """[C, H, W], uint8 where the file has 8 bits, else float32 in [0, 1]; and a note. Raises: BadImage."""
    picture = read(file.path)
    values = torch.from_numpy(picture.values)
    pixels = values[None] if values.ndim == 2 else values.permute(2, 0, 1)
    in_bytes = bool((pixels.mul(255).round().div(255) == pixels).all())
    if form.grey:
        pixels = with_channels(pixels, 1)
    if form.size is not None:
        pixels = _resized(pixels, form.size, form.fit)
    if in_bytes:
        return pixels.mul(255).round_().clamp_(0, 255).to(torch.uint8).contiguous(), picture.note
    return pixels.contiguous(), picture.note


def _resized(
    pixels: Tensor,  # [C, H, W] float
    size: tuple[int, int],
    fit: str,
) -> Tensor:
    """[C, *size], without aliasing."""
    from torchvision.transforms.v2 import functional

    height, width = pixels.shape[1:]
    covering = list(size)
    if fit == "crop":
        scale = max(size[0] / height, size[1] / width)
        covering = [max(wanted, round(side * scale)) for wanted, side in zip(size, (height, width), strict=True)]
    if covering != [height, width]:
        pixels = functional.resize(pixels, covering, antialias=True).clamp_(0, 1)
    top, left = ((side - wanted) // 2 for side, wanted in zip(covering, size, strict=True))
    return pixels[:, top : top + size[0], left : left + size[1]]


def read_all(files: Sequence[File], form: Form, *, budget: float) -> Reading:
    """Every file decoded once; pictures are kept where all together take at most `budget` bytes."""
    reading = Reading()
    # Threads exchange the warning filters that each sets while it decodes; here they are set back.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, result in _shown(_first_reads(files, form), len(files)):
            if isinstance(result, str):
                reading.bad.append((name, result))
                continue
            found, pixels = result
            reading.found.append(found)
            reading.size += pixels.numel() * pixels.element_size()
            if reading.size > budget:
                reading.held = None
            if reading.held is not None:
                reading.held.append(pixels)
    return reading


First = tuple[Found, Tensor] | str
"""What was found in a file and its picture, or why it cannot be used."""


def _shown(reads: Iterable[tuple[str, First]], total: int) -> Iterable[tuple[str, First]]:
    """With a bar on terminals."""
    console = terminal.console(stderr=True)
    hidden = not console.is_terminal
    return track(reads, "Reading images", total=total, console=console, transient=True, disable=hidden)


def _first_reads(files: Sequence[File], form: Form) -> Iterator[tuple[str, First]]:
    """In the order of the files; decoders work side by side, which Pillow's do without Python's lock."""
    with ThreadPoolExecutor(min(THREADS, os.cpu_count() or 1)) as pool:
        for first in range(0, len(files), CHUNK):
            some = files[first : first + CHUNK]
            yield from zip(
                (file.name for file in some), pool.map(lambda file: _first_read(file, form), some), strict=True
            )


def _first_read(file: File, form: Form) -> First:
    try:
        modified = file.path.stat().st_mtime_ns
        pixels, note = decoded(file, form)
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    except BadImage as error:
        return error.reason
    digest = hashlib.blake2b(f"{pixels.dtype} {tuple(pixels.shape)}".encode(), digest_size=16)
    digest.update(pixels.numpy().tobytes())
    return Found(file, modified, tuple(pixels.shape), digest.hexdigest(), note), pixels
