"""Items [C, *S] out of one stored array of any layout, with what a look at every value finds."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from onn_runner.data.arrays_base import by
from onn_runner.data.arrays_stored import Array, InMemory, Lengthened, Stored
from onn_runner.data.memory import budget, megabytes
from onn_runner.errors import ConfigError

LAYOUTS = ("HW", "CHW", "HWC", "L", "CL", "LC")
BLOCK = 1 << 24
"""Bytes that are read and looked at together."""
FEW_CHANNELS = (1, 3, 4)


@dataclass(frozen=True)
class Found:
    """What a look at every value of an array finds; per item, non-finite values left out of `low` and `high`."""

    low: Array  # [N] float64
    high: Array  # [N] float64
    bad: tuple[int, ...]
    """Items that hold NaN or infinity."""
    digest: str
    """Of values, type and shape, whatever file holds them."""


@dataclass(frozen=True, kw_only=True)
class Items:
    """`stored` seen as N items of [C, *S]; `letters`: the axes of one item, `axis`: that of the items."""

    stored: Stored
    letters: str
    axis: int

    @property
    def count(self) -> int:
        return self.stored.shape[self.axis]

    @property
    def size(self) -> tuple[int, ...]:
        """(C, *S)"""
        sizes = dict(zip(self.letters, _without(self.stored.shape, self.axis), strict=True))
        return (sizes.pop("C", 1), *sizes.values())

    def part(self, index: int, corner: Sequence[int], size: Sequence[int]) -> Array:
        """[C, *size] of one item from `corner` on; nothing else is read."""
        spatial = [slice(start, start + length) for start, length in zip(corner, size, strict=True)]
        return self.block(index, index + 1, spatial)[0]

    def block(self, first: int, last: int, spatial: Sequence[slice] | None = None) -> Array:
        """[n, C, *S] in the array's own type."""
        wanted = iter(spatial or (slice(None),) * len(self.letters.replace("C", "")))
        index = [slice(None) if letter == "C" else next(wanted) for letter in self.letters]
        index.insert(self.axis, slice(first, last))
        found = np.moveaxis(self.stored.read(tuple(index)), self.axis, 0)
        if "C" not in self.letters:
            return found[:, None]
        return np.moveaxis(found, 1 + self.letters.index("C"), 1)

    def in_memory(self) -> Items:
        array = np.ascontiguousarray(self.block(0, self.count))
        return Items(stored=InMemory(array), letters="C" + self.letters.replace("C", ""), axis=0)

    def look(self) -> Found:
        low, high = np.empty(self.count), np.empty(self.count)
        bad: list[int] = []
        native = self.stored.dtype.newbyteorder("<")
        digest = hashlib.blake2b(f"{native.name} {self.count} {self.size}".encode(), digest_size=16)
        for first, last in self._blocks():
            values = np.ascontiguousarray(self.block(first, last), dtype=native)
            digest.update(values.tobytes())
            rows = values.reshape(last - first, -1)
            finite = np.isfinite(rows)
            whole = finite.all(axis=1)
            bad += [first + int(place) for place in np.flatnonzero(~whole)]
            if not whole.all():
                rows = np.where(finite, rows, np.where(finite.any(axis=1), _first_finite(rows, finite), 0)[:, None])
            low[first:last], high[first:last] = rows.min(axis=1), rows.max(axis=1)
        return Found(low, high, tuple(bad), digest.hexdigest())

    def _blocks(self) -> Iterator[tuple[int, int]]:
        step = max(1, BLOCK * self.count // max(1, self.stored.nbytes))
        for first in range(0, self.count, step):
            yield first, min(first + step, self.count)


def arrange(
    stored: Stored,
    *,
    layout: str,
    item_axis: int,
    what: str,  # "data.input (=noisy)"
    key: str,  # of the layout
    from_matlab: bool,
) -> Items:
    """Raises ConfigError where the array has other axes than the layout names, or where both readings look wrong."""
    wanted = len(layout) + 1
    axis = item_axis + wanted if item_axis < 0 else item_axis
    if from_matlab:
        # MATLAB does not keep last axes of length 1: of a single item, of a single channel.
        missing = f"{layout[:axis]}N{layout[axis:]}"[len(stored.shape) :]
        stored = Lengthened(stored, len(missing)) if missing and set(missing) <= {"N", "C"} else stored
    shape = stored.shape
    if len(shape) != wanted:
        others = [name for name in LAYOUTS if len(name) + 1 == len(shape)]
        advice = f"choose {' or '.join(others)}" if others else "save one image or signal per item"
        raise ConfigError(
            f"{what} has {len(shape)} axes ({by(shape)}), and {key} (={layout}) with the items' axis makes {wanted}: "
            f"{advice}"
        )
    if not 0 <= axis < wanted:
        raise ConfigError(
            f"data.item_axis (={item_axis}) must be from {-wanted} to {wanted - 1}: {what} is {by(shape)}"
        )
    items = Items(stored=stored, letters=layout, axis=axis)
    channels, *sides = items.size
    if layout == "CHW" and sides[1] in FEW_CHANNELS and channels > 4 and sides[0] > 4:
        raise ConfigError(
            f"{key} (=CHW) reads {channels} channels of {sides[0]} x {sides[1]} from {what}: choose HWC, or put "
            "channels first in the file"
        )
    if layout == "HWC" and sides[0] in FEW_CHANNELS and channels > 4 and sides[1] > 4:
        raise ConfigError(
            f"{key} (=HWC) reads {channels} channels of {sides[0]} x {sides[1]} from {what}: choose CHW, or put "
            "channels last in the file"
        )
    return items


def _without(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return shape[:axis] + shape[axis + 1 :]


def _first_finite(rows: Array, finite: Array) -> Array:
    return rows[np.arange(len(rows)), finite.argmax(axis=1)]


def where_to_keep(both: Sequence[Items], in_memory: object) -> tuple[list[Items], str]:
    """The arrays in memory where that was said or where they fit, and a sentence on it."""
    allowed = budget(in_memory)
    size = sum(items.stored.nbytes for items in both)
    on_disk = all(items.stored.on_disk for items in both)
    if in_memory is False and not on_disk:
        raise ConfigError(
            "data.in_memory (=False) needs files that can be read in parts, .h5, .npy or .mat of version 7.3: others "
            "are read whole, set data.in_memory=null"
        )
    if not on_disk or size <= allowed:
        try:
            return [items.in_memory() for items in both], f"{megabytes(size)} in memory"
        except MemoryError as error:
            raise ConfigError(
                f"no memory for {megabytes(size)} of arrays: save them as .h5 and set data.in_memory=false"
            ) from error
    return list(both), f"{megabytes(size)} read from disk item by item"
