"""A picture that stays in its file and is decoded when it is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import torch
from torch import Tensor

from onn_runner.data.files import File
from onn_runner.data.photographs import LUMINANCE
from onn_runner.data.reading import BadImage, read
from onn_runner.errors import RunError

KEPT = 2
"""Decoded pictures that a process keeps: a pair, for patches in the order of their pictures."""


@dataclass(frozen=True)
class Manner:
    """How files are decoded."""

    grey: bool
    """Colours become luminance."""
    max_side: int | None
    """Larger ones are reduced by area means."""


@dataclass(frozen=True)
class Stored:
    path: Path
    modified: int
    """The file's time stamp in nanoseconds when it was first read."""
    manner: Manner
    channels: int
    """1 or 3, as decoded."""
    size: tuple[int, int]
    note: str
    """What the reader should know: bits that were lost."""

    def pixels(self, channels: int) -> Tensor:
        """[channels, H, W] in [0, 1]; grey is repeated where three channels are asked for. Not to be written to.

        Raises: RunError where the file is not what it was.
        """
        try:
            if self.path.stat().st_mtime_ns != self.modified:
                raise RunError(f"the image {self.path} was changed while the run was using it: start again")
            return repeated(_decoded(self.path, self.modified, self.manner)[0], channels)
        except (OSError, BadImage) as error:
            raise RunError(f"the image {self.path} can no longer be read ({error}): resume when it is there") from error


def repeated(
    pixels: Tensor,  # [..., C, H, W]
    channels: int,
) -> Tensor:
    """One channel as `channels`, a view; what has as many already, as it is."""
    return pixels if pixels.shape[-3] == channels else pixels.expand(*pixels.shape[:-3], channels, *pixels.shape[-2:])


def first_read(file: File, manner: Manner) -> tuple[Stored, Tensor]:
    """The file and its picture [C, H, W]. Raises: BadImage."""
    try:
        modified = file.path.stat().st_mtime_ns
    except OSError as error:
        raise BadImage(f"cannot read the image {file.path}: {error}", f"cannot be read: {error.strerror}") from error
    pixels, note = _decoded(file.path, modified, manner)
    size = (pixels.shape[1], pixels.shape[2])
    return Stored(file.path, modified, manner, pixels.shape[0], size, note), pixels


@lru_cache(maxsize=KEPT)
def _decoded(path: Path, modified: int, manner: Manner) -> tuple[Tensor, str]:
    """[C, H, W] float32 and a note. `modified`: a changed file is read anew."""
    picture = read(path, max_side=manner.max_side)
    values = torch.from_numpy(picture.values)
    if values.ndim == 2:
        return values[None], picture.note
    if manner.grey:
        return (values @ torch.tensor(LUMINANCE))[None], picture.note
    return values.permute(2, 0, 1).contiguous(), picture.note
