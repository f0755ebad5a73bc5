"""argmax over windows of the mean error: the part of a large image that is worth seeing at full size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Window:
    """A part of an image, in its pixels."""

    top: int
    left: int
    height: int
    width: int

    def of(self, values: Array, size: tuple[int, int]) -> Array:
        """[C, H, W] -> [C, h, w]: this part of an image of `size`, at its own resolution where that is another one."""
        rows, columns = values.shape[1] / size[0], values.shape[2] / size[1]
        top, left = int(self.top * rows), int(self.left * columns)
        bottom = max(top + 1, round((self.top + self.height) * rows))
        right = max(left + 1, round((self.left + self.width) * columns))
        part: Array = values[:, top:bottom, left:right]
        return part


def worst_window(
    error: Array,  # [H, W], at least 0
    *,
    side: int,
) -> Window:
    """The window of at most `side` pixels a side with the largest mean; what is not finite counts as the largest error.

    The first from above and from the left where several are equal.
    """
    height, width = min(side, error.shape[0]), min(side, error.shape[1])
    finite = np.isfinite(error)
    known = np.where(finite, error, 0.0).astype(np.float64)
    known[~finite] = known.max(initial=0.0) or 1.0
    # Sums over everything above and to the left: a window's sum is four of them.
    sums = np.pad(known.cumsum(0).cumsum(1), ((1, 0), (1, 0)))
    inside = sums[height:, width:] - sums[:-height, width:] - sums[height:, :-width] + sums[:-height, :-width]
    # Differences of sums are off by their last digits: a flat error shall not choose a place by them.
    top, left = np.unravel_index(int((inside >= inside.max() * (1 - 1e-9)).argmax()), inside.shape)
    return Window(int(top), int(left), height, width)
