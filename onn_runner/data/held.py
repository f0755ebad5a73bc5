"""Pictures of one size, [C, H, W] each: held as one tensor of bytes, or decoded when they are asked for."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from onn_runner.data.photographs import LUMINANCE

CHUNK = 1000
"""Pictures that are looked at together, so that what is computed of them stays small."""


class Pictures(Protocol):
    """What a source with classes reads its items from; each is uint8 up to 255, or float32 in [0, 1]."""

    @property
    def shape(self) -> tuple[int, int, int]: ...

    def __len__(self) -> int: ...

    def take(self, indices: Sequence[int]) -> Tensor | list[Tensor]:
        """[B, C, H, W], or B of [C, H, W] where types differ. Not to be written to."""

    def subset(self, indices: Sequence[int]) -> Pictures:
        """These pictures alone, in this order."""

    def coloured(self, channels: int) -> Pictures:
        """The same with 1 channel (luminance) or 3 (grey repeated)."""

    def digest(self) -> str: ...

    def describe(self) -> str:
        """What the reader should know of where they are kept."""


@dataclass(frozen=True)
class Held:
    """In memory, all in one type."""

    values: Tensor  # [N, C, H, W] uint8, or float32 in [0, 1]

    @property
    def shape(self) -> tuple[int, int, int]:
        _, channels, height, width = self.values.shape
        return channels, height, width

    def __len__(self) -> int:
        return len(self.values)

    def take(self, indices: Sequence[int]) -> Tensor:
        return self.values[torch.as_tensor(indices, dtype=torch.int64)]

    def subset(self, indices: Sequence[int]) -> Held:
        return Held(self.take(indices))

    def coloured(self, channels: int) -> Held:
        parts = [with_channels(part, channels) for part in self.values.split(CHUNK)]
        # Repeated channels stay a view.
        return Held(torch.cat(parts) if channels < self.shape[0] else with_channels(self.values, channels))

    def digest(self) -> str:
        digest = hashlib.blake2b(f"{self.values.dtype} {tuple(self.values.shape)}".encode(), digest_size=16)
        for part in self.values.split(CHUNK):
            digest.update(part.contiguous().numpy().tobytes())
        return digest.hexdigest()

    def describe(self) -> str:
        return "kept in memory"


def with_channels(
    pictures: Tensor,  # [..., C, H, W] uint8 or float32
    channels: int,
) -> Tensor:
    """Three channels as their luminance, rounded where they are bytes; one channel three times, a view."""
    held = pictures.shape[-3]
    if held == channels:
        return pictures
    if held == 1:
        return pictures.expand(*pictures.shape[:-3], channels, *pictures.shape[-2:])
    weights = torch.tensor(LUMINANCE)[:, None, None]
    grey = (pictures.float() * weights).sum(-3, keepdim=True)
    return grey.round_().clamp_(0, 255).to(torch.uint8) if pictures.dtype == torch.uint8 else grey


def unit(
    pictures: Tensor,  # [..., C, H, W] uint8 or float
) -> Tensor:
    """A copy in [0, 1], float32."""
    if pictures.dtype == torch.uint8:
        return pictures.to(torch.float32).div_(255)
    return pictures.to(torch.float32, copy=True)
