"""Sampling between layers by word: by a factor (`max2`, `up2`, `strided2`) or to a size (`to64`, `to_input`)."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, cast

import torch.nn.functional as F
from torch import Tensor

from onn_runner.errors import ConfigError
from onn_runner.model.base import LayerSpec

Method = Literal["none", "max", "avg", "up", "bilinear", "bicubic", "strided", "transposed", "to"]
Size = tuple[int, ...]
Bound = tuple[float, float]

DOWN = ("max", "avg", "strided")
UP = ("up", "bilinear", "bicubic", "transposed")
IN_LAYER = ("strided", "transposed")
"""Methods that are the stride of the layer itself, not a step behind it."""

_POOLS: dict[tuple[str, int], Callable[..., Tensor]] = {
    ("max", 1): F.max_pool1d,
    ("max", 2): F.max_pool2d,
    ("max", 3): F.max_pool3d,
    ("avg", 1): F.avg_pool1d,
    ("avg", 2): F.avg_pool2d,
    ("avg", 3): F.avg_pool3d,
    ("to", 1): F.adaptive_avg_pool1d,
    ("to", 2): F.adaptive_avg_pool2d,
    ("to", 3): F.adaptive_avg_pool3d,
}
_LINEAR = {1: "linear", 2: "bilinear", 3: "trilinear"}

OVERSHOOT = 0.1875
"""The negative weights of cubic interpolation (a = -0.75) sum to a t (1 - t), at most this at t = 1/2, on each axis."""


@dataclass(frozen=True)
class Sampling:
    """One change of size. Values stay in the range they were in, but for `bicubic`, which overshoots at edges."""

    method: Method
    factor: int = 1
    target: Size = ()
    """Of `to`: the size afterwards, one number for all axes; empty for the size of the network's input."""

    @property
    def down(self) -> int:
        return self.factor if self.method in DOWN else 1

    @property
    def up(self) -> int:
        return self.factor if self.method in UP else 1

    def size(self, size: Size, whole: Size = ()) -> Size:
        """The spatial size afterwards, `whole` being that of the network's input; pooling drops parts of windows."""
        if self.method == "to":
            return self._target(len(size), whole)
        if self.method in IN_LAYER:
            return size
        return tuple(length // self.down * self.up for length in size)

    def in_layer(self, spec: LayerSpec) -> LayerSpec:
        """The layer before this sampling: with its stride, where that is what samples."""
        if self.method not in IN_LAYER:
            return spec
        stride = (self.factor,) * spec.dims
        if self.method == "strided":
            return replace(spec, stride=stride)
        return replace(spec, stride=stride, transposed=True, padding_mode="zeros")

    def bound(self, bound: Bound | None, dims: int) -> Bound | None:
        """The range of values afterwards."""
        if bound is None or self.method != "bicubic" or self.factor == 1:
            return bound
        centre, radius = (bound[0] + bound[1]) / 2, (bound[1] - bound[0]) / 2
        radius *= (1 + 2 * OVERSHOOT) ** dims
        return centre - radius, centre + radius

    def check(self, dims: int) -> None:
        """Raises ConfigError for a word that means nothing on that many axes."""
        if self.method == "bicubic" and dims != 2:
            raise ConfigError(f"network.sampling={self} is for images, the data has {dims} axes; use bilinear or up")
        if len(self.target) not in (0, 1, dims):
            raise ConfigError(f"network.sampling={self} names {len(self.target)} axes, the data has {dims}")

    def __call__(
        self,
        x: Tensor,  # [B, C, *S]
        whole: Size = (),
    ) -> Tensor:
        if self.method == "to":
            return resize(x, self._target(x.dim() - 2, whole))
        if self.factor == 1 or self.method in IN_LAYER:
            return x
        if self.method in UP:
            return enlarge(x, self.factor, self.method)
        return _POOLS[self.method, x.dim() - 2](x, self.factor)

    def _target(self, dims: int, whole: Size) -> Size:
        return (self.target * dims if len(self.target) == 1 else self.target) or whole

    def __str__(self) -> str:
        if self.method == "to":
            return f"to{'x'.join(map(str, self.target)) or '_input'}"
        return "none" if self.factor == 1 else f"{self.method}{self.factor}"


def halve(
    x: Tensor,  # [B, C, *S]
    window: int = 2,
) -> Tensor:  # [B, C, *ceil(S / 2)]
    """Max pooling of stride 2 that drops nothing: the last window of 2 may be cut, those of 3 begin one before."""
    pool = _POOLS["max", x.dim() - 2]
    return pool(x, 2, ceil_mode=True) if window == 2 else pool(x, window, 2, (window - 1) // 2)


def enlarge(
    x: Tensor,  # [B, C, *S]
    factor: int,
    method: str,  # up (nearest neighbour), bilinear (linear on any axes) or bicubic (images)
) -> Tensor:  # [B, C, *factor S]
    if method == "up":
        return F.interpolate(x, scale_factor=float(factor), mode="nearest")
    mode = method if method == "bicubic" else _LINEAR[x.dim() - 2]
    return F.interpolate(x, scale_factor=float(factor), mode=mode, align_corners=False)


def resize(
    x: Tensor,  # [B, C, *S]
    size: Size,
) -> Tensor:  # [B, C, *size]
    """Axes that shrink by averages of what falls together, axes that grow by linear interpolation."""
    dims = x.dim() - 2
    smaller = tuple(min(length, wanted) for length, wanted in zip(x.shape[2:], size, strict=True))
    if smaller != tuple(x.shape[2:]):
        x = _POOLS["to", dims](x, smaller)
    return x if smaller == size else F.interpolate(x, size=size, mode=_LINEAR[dims], align_corners=False)


def parse(word: object) -> Sampling:
    """`max2` -> Sampling("max", 2). Raises ConfigError for anything that is not such a word."""
    if word is None or word == "none":
        return Sampling("none")
    if word == "to_input":
        return Sampling("to")
    if match := re.fullmatch(r"to([1-9][0-9]*(?:x[1-9][0-9]*)*)", str(word)):
        return Sampling("to", target=tuple(map(int, match[1].split("x"))))
    if match := re.fullmatch(rf"({'|'.join(DOWN + UP)})([1-9][0-9]*)", str(word)):
        return Sampling(cast(Method, match[1]), int(match[2]))
    raise ConfigError(
        f"network.sampling holds '{word}'; write none, max2 or avg2 (down by pooling), up2 (nearest neighbour), "
        "bilinear2, bicubic2, strided2 or transposed2 (by the layer itself), with any factor, or to64, to64x48 or "
        "to_input (to a size)"
    )
