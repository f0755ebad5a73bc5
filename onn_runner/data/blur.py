"""Kernels that sum to one, [k, l] in float64: Gaussian, motion along a line, disk of a lens out of focus."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from onn_runner.checks import choice, positive, refuse, whole_number

Kernel = npt.NDArray[np.float64]
Picture = npt.NDArray[np.float32]

# A Gaussian's weight outside of so many deviations is below one grey level.
CUT = 4
# Points a pixel and axis by which the disk's share of a pixel is counted: exact to a thousandth of a pixel.
POINTS = 64


class Blur(Protocol):
    def weights(self) -> Kernel: ...

    def describe(self) -> str: ...


@dataclass(frozen=True)
class Gaussian:
    """exp(-r^2 / 2 deviation^2), out to four deviations."""

    deviation: float

    def __post_init__(self) -> None:
        positive("data.blur", self.deviation, "the deviation in pixels, greater than 0 and at most 50", most=50)

    def weights(self) -> Kernel:
        reach = math.ceil(CUT * self.deviation)
        line = np.exp(-0.5 * (np.arange(-reach, reach + 1) / self.deviation) ** 2)
        line /= line.sum()
        return np.outer(line, line)

    def describe(self) -> str:
        return f"gaussian blur of deviation {self.deviation:g} pixels"


@dataclass(frozen=True)
class Motion:
    """The mean of `length` pictures, each one pixel further along `angle` (degrees from right, counterclockwise).

    Between pixels by bilinear weights; the middle of the motion is the picture's place.
    """

    length: int
    angle: float

    def __post_init__(self) -> None:
        whole_number("data.length", self.length, least=2)
        if self.length > 400:
            raise refuse("data.length", self.length, "at most 400 pixels")
        if isinstance(self.angle, bool) or not isinstance(self.angle, int | float) or not math.isfinite(self.angle):
            raise refuse("data.angle", self.angle, "an angle in degrees, such as 45")

    def weights(self) -> Kernel:
        turn = math.radians(self.angle % 180)
        along = np.arange(self.length) - (self.length - 1) / 2
        # Rounded, so that multiples of 45 degrees give the symmetric kernels that they are.
        rows, columns = (np.round(along * part, 9) for part in (-math.sin(turn), math.cos(turn)))
        high, wide = (math.ceil(np.abs(places).max()) for places in (rows, columns))
        found = np.zeros((2 * high + 1, 2 * wide + 1))
        for row, column in zip(rows + high, columns + wide, strict=True):
            top, left = math.floor(row), math.floor(column)
            for i, down in ((top, 1 - (row - top)), (top + 1, row - top)):
                for j, right in ((left, 1 - (column - left)), (left + 1, column - left)):
                    if down * right > 0:
                        found[i, j] += down * right
        return (found + found[::-1, ::-1]) / (2 * self.length)

    def describe(self) -> str:
        return f"motion blur of {self.length} pixels at {self.angle:g} degrees"


@dataclass(frozen=True)
class Disk:
    """Equal weights within `radius` of the middle; a pixel on the rim counts by its share inside."""

    radius: float

    def __post_init__(self) -> None:
        positive("data.radius", self.radius, "the disk's radius in pixels, greater than 0 and at most 200", most=200)

    def weights(self) -> Kernel:
        reach = math.ceil(self.radius - 0.5)
        side = 2 * reach + 1
        places = (np.arange(side * POINTS) + 0.5) / POINTS - side / 2
        found = np.empty((side, side))
        for row in range(side):
            near = places[row * POINTS : (row + 1) * POINTS, None]
            inside = near**2 + places**2 <= self.radius**2
            found[row] = inside.sum(0).reshape(side, POINTS).sum(1)
        return found / found.sum()

    def describe(self) -> str:
        return f"disk blur (out of focus) of radius {self.radius:g} pixels"


def named(kernel: object, *, blur: float, length: int, angle: float, radius: float) -> Blur:
    """The blur of this name, which reads its own keys only; all are checked."""
    kinds: dict[str, Blur] = {"gaussian": Gaussian(blur), "motion": Motion(length, angle), "disk": Disk(radius)}
    return kinds[choice("data.kernel", kernel, kinds)]


def blurred(
    picture: Picture,  # [C, H, W]
    kernel: Kernel,
) -> Picture:
    """Convolved in float64, borders mirrored."""
    from scipy.signal import fftconvolve

    high, wide = (side // 2 for side in kernel.shape)
    mirrored = np.pad(picture.astype(np.float64), ((0, 0), (high, high), (wide, wide)), mode="symmetric")
    return np.asarray(fftconvolve(mirrored, kernel[None], mode="valid", axes=(1, 2)), dtype=np.float32)
