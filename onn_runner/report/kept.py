"""kept.npz: a few test items of a fold with the network's outputs, and its confusions, to be set beside other runs'.

Which items is a matter of their places alone, so that runs on the same split keep the same ones, and none was chosen
for its score.
"""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from onn_runner.report.closeup import Window
from onn_runner.report.pixels import middle_slice

Array = npt.NDArray[np.floating[Any]]
Counts = npt.NDArray[np.int64]

FILE = "kept.npz"
SCHEMA = 1
ITEMS = 4
"""Of a fold that are kept."""
SIDE, SAMPLES = 128, 1024
"""Pixels of a side and samples of a signal that are kept, from the middle of larger items."""
MOST_BYTES = 64 * 1024 * 1024
"""Of a file's unpacked content; a larger one was not written here."""


@dataclass(frozen=True)
class KeptItem:
    """An item of the part that was scored; values are float16, scaled so that the data's range is 0 to 1."""

    name: str
    place: int
    """In the part, as the rows of test_items.csv count."""
    input: Array  # [C, *S], C 1 or 3; *S of at most two axes
    output: Array  # [C', *S']
    target: Array  # [C', *S']
    size: tuple[int, ...] = ()
    """Of the whole target, where what is kept is its middle; a volume's is its middle slice's."""


@dataclass(frozen=True)
class Kept:
    """Of one fold, with the best weights of its best start."""

    part: str
    """`test`, or `fitted`: training items, where nothing is tested."""
    items: tuple[KeptItem, ...] = ()
    classes: tuple[str, ...] = ()
    confusions: Counts = field(default_factory=lambda: np.zeros((0, 0), np.int64))  # [K, K]: rows true
    overflowing: int = 0
    """Items that are not among the confusions, since their scores were not finite."""


def places(count: int) -> list[int]:
    """Of the items to keep among so many, evenly spread."""
    kept = min(ITEMS, count)
    return [(2 * number + 1) * count // (2 * kept) for number in range(kept)]


def reduced_item(
    name: str,
    place: int,
    given: Array,  # [C, *S]
    output: Array,  # [C', *S']
    target: Array,  # [C', *S']
    *,
    data_range: tuple[float, float],
) -> KeptItem:
    """What is kept of it: the middle, one or three channels (the first of any other number), half precision."""
    full = middle_slice(target).shape[1:]
    low, high = data_range
    parts = [_middle(values, full).astype(np.float64) for values in (given, output, target)]
    with np.errstate(over="ignore"):
        first, second, third = (((part - low) / (high - low)).astype(np.float16) for part in parts)
    cut = third.shape[1:] != full
    return KeptItem(name, place, first, second, third, size=tuple(map(int, full)) if cut else ())


def _middle(values: Array, size: Sequence[int]) -> Array:
    """The part of an image or signal that belongs to the middle of a target of `size`."""
    values = middle_slice(values)
    values = values if len(values) in (1, 3) else values[:1]
    if values.ndim == 2:
        wide = min(SAMPLES, size[0])
        window = Window(0, (size[0] - wide) // 2, 1, wide)
        row: Array = window.of(values[:, None], (1, size[0]))[:, 0]
        return row
    height, width = (min(SIDE, side) for side in size)
    window = Window((size[0] - height) // 2, (size[1] - width) // 2, height, width)
    return window.of(values, (size[0], size[1]))


def to_bytes(kept: Kept) -> bytes:
    """The file's content, the same for the same values: no date inside."""
    arrays: dict[str, Any] = {"schema": np.array(SCHEMA), "part": np.array(kept.part)}
    for number, item in enumerate(kept.items):
        arrays |= {f"{word}_{number}": getattr(item, word) for word in ("input", "output", "target")}
        arrays[f"name_{number}"] = np.array(item.name.encode("utf-8", "replace"))
        arrays[f"place_{number}"] = np.array(item.place)
        arrays[f"size_{number}"] = np.array(item.size, np.int64)
    if kept.classes:
        names = [name.encode("utf-8", "replace") for name in kept.classes]
        arrays |= {"classes": np.array(names), "confusions": kept.confusions, "overflowing": np.array(kept.overflowing)}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, array in arrays.items():
            # Without a date of its own an entry is of 1980.
            entry = zipfile.ZipInfo(f"{name}.npy")
            entry.compress_type = zipfile.ZIP_DEFLATED
            with archive.open(entry, "w") as file:
                np.lib.format.write_array(file, np.asarray(array), allow_pickle=False)
    return buffer.getvalue()


def read(path: Path) -> Kept | None:
    """None where there is none. Raises ValueError, in words, for a file that is damaged or not of this version."""
    try:
        with zipfile.ZipFile(path) as archive:
            if sum(entry.file_size for entry in archive.infolist()) > MOST_BYTES:
                raise ValueError("its content is too large to have been written by a run")
        with np.load(path, allow_pickle=False) as arrays:
            return _read(arrays)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, IndexError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"{path.name} cannot be read ({error})") from error


def _read(arrays: Any) -> Kept:
    if int(arrays["schema"]) != SCHEMA:
        raise ValueError(f"it has schema {int(arrays['schema'])}, this version reads {SCHEMA}")
    items = []
    for number in range(sum(name.startswith("target_") for name in arrays.files)):
        given, output, target = (np.asarray(arrays[f"{word}_{number}"]) for word in ("input", "output", "target"))
        for v in (given, output, target):
            if v.dtype != np.float16 or v.ndim not in (2, 3) or len(v) not in (1, 3) or not v.size:
                raise ValueError(f"item {number} is neither an image nor a signal")
        if output.shape != target.shape or given.ndim != target.ndim:
            raise ValueError(f"item {number} has an output of another shape than its target")
        name = bytes(arrays[f"name_{number}"][()]).decode("utf-8", "replace")
        size = tuple(int(side) for side in arrays[f"size_{number}"])
        items.append(KeptItem(name, int(arrays[f"place_{number}"]), given, output, target, size=size))
    part = str(arrays["part"][()])
    if "classes" not in arrays.files:
        return Kept(part, tuple(items))
    classes = tuple(bytes(name).decode("utf-8", "replace") for name in arrays["classes"])
    confusions = np.asarray(arrays["confusions"])
    if confusions.shape != (len(classes), len(classes)) or confusions.dtype != np.int64 or (confusions < 0).any():
        raise ValueError("its confusions are not counts of pairs of classes")
    return Kept(part, tuple(items), classes, confusions, int(arrays["overflowing"]))
