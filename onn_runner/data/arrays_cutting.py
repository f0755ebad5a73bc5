"""Patches on a grid that lie on the same part of input and target, whatever their sizes; flips and turns of both."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import product

import torch
from torch import Tensor

from onn_runner.checks import pair, whole_number
from onn_runner.errors import ConfigError
from onn_runner.seeding import Part, generator

Ratios = Sequence[Fraction]
"""Target size over input size, per axis."""


def patch_size(patch: object, size: Sequence[int], ratios: Ratios) -> tuple[int, ...]:
    """`data.patch` in input positions. Raises ConfigError where it does not fit the item, or its target's positions."""
    if len(size) == 2:
        wanted: tuple[int, ...] = pair("data.patch", patch, least=1)
    else:
        wanted = (whole_number("data.patch", patch, least=1),)
    if any(p > s for p, s in zip(wanted, size, strict=True)):
        raise ConfigError(
            f"data.patch (={by(wanted)}) is larger than an item's input ({by(size)}): choose less, or null"
        )
    if any((p * r).denominator > 1 for p, r in zip(wanted, ratios, strict=True)):
        steps = [r.denominator for r in ratios]
        raise ConfigError(
            f"data.patch (={by(wanted)}) must be a multiple of {by(steps)}, so that its part of the target (sizes in "
            f"the ratio {by(ratios)}) is whole"
        )
    return wanted


def grid(size: Sequence[int], patch: Sequence[int], ratios: Ratios) -> list[tuple[int, ...]]:
    """Corners of patches without overlap, the rest shared by both borders, in whole positions of the target."""
    along = []
    for length, p, ratio in zip(size, patch, ratios, strict=True):
        count = length // p
        first = (length - count * p) // 2 // ratio.denominator * ratio.denominator
        along.append([first + number * p for number in range(count)])
    return list(product(*along))


def scaled(positions: Sequence[int], ratios: Ratios) -> tuple[int, ...]:
    return tuple(int(position * ratio) for position, ratio in zip(positions, ratios, strict=True))


def turned(
    given: Tensor,  # [C, *S]
    wanted: Tensor,  # [C', *S']
    *key: Part,
) -> tuple[Tensor, Tensor]:
    """Both in the same one of the square's 8 orientations, the rectangle's 4, the line's 2; copies."""
    axes = given.ndim - 1
    square = axes == 2 and given.shape[1] == given.shape[2]
    code = int(torch.randint(8 if square else 2**axes, (), generator=generator("symmetry", *key)))
    dims = [axis + 1 for axis in range(axes) if code >> axis & 1]
    flipped = [values.flip(dims) if dims else values for values in (given, wanted)]
    if square and code & 4:
        flipped = [values.transpose(1, 2).contiguous() for values in flipped]
    return flipped[0], flipped[1]


def by(sizes: Sequence[object]) -> str:
    return "x".join(map(str, sizes))
