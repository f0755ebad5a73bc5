"""value -> a + (b - a)(value - low)/(high - low): stored values in the network's range, and which range they have."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from onn_runner.checks import refuse
from onn_runner.data.arrays_items import Found, Items
from onn_runner.data.arrays_stored import Array
from onn_runner.errors import ConfigError

Range = tuple[float, float]

BY_TYPE: dict[str, Range] = {"bool": (0, 1), "uint8": (0, 255), "uint16": (0, 65535)}
UNIT: Range = (0.0, 1.0)
SIGNED: Range = (-1.0, 1.0)
OUTSIDE = ("refuse", "keep", "clip")
LITTLE = 1.0
"""Values that reach beyond [0, 1] or [-1, 1] by at most this much are noisy ones of that range, not grey levels."""
FILLED = 0.02
"""Values that span less than this share of their range are hardly of it."""


@dataclass(frozen=True)
class Scale:
    """Takes `source` to `to`, linearly; values outside follow the line unless `clip`."""

    source: Range
    to: Range
    clip: bool = False

    def __call__(self, values: Array) -> Tensor:
        """Contiguous, rounded to float32 once, at the end."""
        (low, high), (a, b) = self.source, self.to
        scaled = (values.astype(np.float64) - low) * ((b - a) / (high - low)) + a
        if self.clip:
            scaled = scaled.clip(a, b)
        return torch.from_numpy(np.ascontiguousarray(scaled, dtype=np.float32))


def stated(key: str, value: object) -> Range | None:
    """[low, high] of a config; None where it says null."""
    if value is None:
        return None
    wanted = "null, to go by the type, or [low, high], such as [0, 255]"
    if isinstance(value, str) or not isinstance(value, Sequence) or len(value) != 2:
        raise refuse(key, value, wanted)
    numbers = [
        end for end in value if isinstance(end, int | float) and not isinstance(end, bool) and math.isfinite(end)
    ]
    if len(numbers) != 2 or not 0 < numbers[1] - numbers[0] < math.inf:
        raise refuse(key, list(value), wanted)
    return float(numbers[0]), float(numbers[1])


def destination(value: object) -> Range:
    """`data.scale_to`: [0, 1] or [-1, 1]."""
    found = stated("data.scale_to", value)
    if found not in (UNIT, SIGNED):
        raise refuse("data.scale_to", value, "[0, 1] or [-1, 1]")
    return found


def by_type(items: Items, what: str) -> Range | None:
    """The range that an array's type means; None for float, whose values must say.

    Raises ConfigError for the other types, of which nothing is known.
    """
    name = items.stored.dtype.name
    if name.startswith("float"):
        return None
    if name not in BY_TYPE:
        raise ConfigError(f"{what} is {name}, whose range is not known: state it, such as data.range=[0,4095]")
    return BY_TYPE[name]


def by_values(found: Sequence[Found], what: str, kept: Sequence[int]) -> Range:
    """[0, 1] or [-1, 1] of arrays that are float, all looked at together.

    Raises ConfigError where the values are beyond both, or where one array is in [0, 1] and another is not.
    """
    lows = [float(one.low[kept].min()) for one in found]
    highs = [float(one.high[kept].max()) for one in found]
    spans = f"{what}: values from {min(lows):g} to {max(highs):g}"
    if min(lows) < -1 or max(highs) > 1:
        remedy = _range_for(list(zip(lows, highs, strict=True)))
        raise ConfigError(f"{spans} are in neither [0, 1] nor [-1, 1]: {remedy}")
    if min(lows) < 0 <= max(lows):
        raise ConfigError(
            f"{spans}, negative in one array only: state data.range=[0,1] data.outside=keep, or data.range=[-1,1]"
        )
    return UNIT if min(lows) >= 0 else SIGNED


def _range_for(spans: Sequence[Range]) -> str:
    """What to state for arrays that are in neither range, the target's values last."""
    low, high = min(span[0] for span in spans), max(span[1] for span in spans)
    clean = spans[-1]
    for name, (a, b) in (("[0,1]", UNIT), ("[-1,1]", SIGNED)):
        if a <= clean[0] and clean[1] <= b and a - LITTLE <= low and high <= b + LITTLE:
            return f"inputs that reach beyond it a little are kept by data.range={name} data.outside=keep"
    if low >= -LITTLE and high <= 1 + LITTLE:
        a, b = math.floor(100 * clean[0]) / 100, math.ceil(100 * clean[1]) / 100
        return f"state what the targets fill, such as data.range=[{a:g},{b:g}] data.outside=keep"
    return f"state the range, such as data.range={'[0,255]' if low >= 0 and high <= 255 else f'[{low:g},{high:g}]'}"


def hardly_filled(span: Range, source: Range) -> bool:
    """Whether values from `span` are a small part of the range only: most likely another one is meant."""
    return span[1] - span[0] < FILLED * (source[1] - source[0])


def check_within(found: Found, limits: Range, what: str, key: str, kept: Sequence[int], *, remedy: str = "") -> None:
    """Raises ConfigError naming the items with values outside."""
    low, high = limits
    outside = [index for index in kept if found.low[index] < low or found.high[index] > high]
    if outside:
        least, most = float(found.low[outside].min()), float(found.high[outside].max())
        raise ConfigError(
            f"{what} has values from {least:g} to {most:g} in item{'s' * (len(outside) > 1)} {listed(outside)}, "
            f"outside {key} (=[{low:g}, {high:g}]): state the range that holds them{remedy}"
        )


def listed(numbers: Sequence[int], most: int = 20) -> str:
    """3, 17, 40 and 12 more"""
    shown = ", ".join(map(str, numbers[:most]))
    return shown if len(numbers) <= most else f"{shown} and {len(numbers) - most} more"
