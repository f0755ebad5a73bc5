"""Sampling between layers by word: `none`, `max2` and `avg2` (pooling), `up2` (nearest neighbour), any factor."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch.nn.functional as F
from torch import Tensor

from onn_runner.errors import ConfigError

Method = Literal["none", "max", "avg", "up"]

_POOLS: dict[tuple[str, int], Callable[..., Tensor]] = {
    ("max", 1): F.max_pool1d,
    ("max", 2): F.max_pool2d,
    ("max", 3): F.max_pool3d,
    ("avg", 1): F.avg_pool1d,
    ("avg", 2): F.avg_pool2d,
    ("avg", 3): F.avg_pool3d,
}


@dataclass(frozen=True)
class Sampling:
    """One change of size; values stay in the range they were in."""

    method: Method
    factor: int

    @property
    def down(self) -> int:
        return self.factor if self.method in ("max", "avg") else 1

    @property
    def up(self) -> int:
        return self.factor if self.method == "up" else 1

    def size(self, size: tuple[int, ...]) -> tuple[int, ...]:
        """The spatial size afterwards; pooling drops what does not fill a window."""
        return tuple(length // self.down * self.up for length in size)

    def __call__(
        self,
        x: Tensor,  # [B, C, *S]
    ) -> Tensor:
        if self.factor == 1:
            return x
        if self.method == "up":
            return F.interpolate(x, scale_factor=float(self.factor), mode="nearest")
        return _POOLS[self.method, x.dim() - 2](x, self.factor)

    def __str__(self) -> str:
        return "none" if self.factor == 1 else f"{self.method}{self.factor}"


def parse(word: object) -> Sampling:
    """`max2` -> Sampling("max", 2). Raises ConfigError for anything that is not such a word."""
    if word is None or word == "none":
        return Sampling("none", 1)
    match = re.fullmatch(r"(max|avg|up)([1-9][0-9]*)", str(word))
    if match is None:
        raise ConfigError(
            f"network.sampling holds '{word}'; write none, max2 or avg2 (down by pooling) or up2 (nearest neighbour), "
            "with any factor"
        )
    method: Method = "max" if match[1] == "max" else "avg" if match[1] == "avg" else "up"
    return Sampling(method, int(match[2]))
