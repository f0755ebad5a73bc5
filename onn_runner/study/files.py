"""What run folders hold, read while others write there: half-written, vanished and foreign files are None."""

from __future__ import annotations

import csv
import datetime
import json
import math
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from stat import S_ISREG
from typing import Any, TypeVar

import yaml

Found = TypeVar("Found")
Stamp = tuple[int, int, int]
LARGEST = 200 * 2**20
"""Bytes of a file that is still read."""
LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The one in C reads a config ten times as fast, where it is there."""


@dataclass(frozen=True)
class Curve:
    """The epochs of one start, as metrics.csv has them."""

    epochs: int
    values: Mapping[str, tuple[float, ...]]
    """"val/psnr" -> its value after every epoch."""


@dataclass
class Files:
    """Reads a file again only where it has changed, so that a view of thousands of runs can be refreshed."""

    known: dict[Path, tuple[Stamp, Any]] = field(default_factory=dict)

    def json(self, path: Path) -> dict[str, Any] | None:
        """The object in a JSON file."""
        return self._read(path, _json)

    def yaml(self, path: Path) -> dict[str, Any] | None:
        """The mapping in a YAML file."""
        return self._read(path, _yaml)

    def curves(self, path: Path) -> Mapping[int, Curve]:
        """Start -> its epochs so far."""
        return self._read(path, _curves) or {}

    def changed(self, path: Path) -> float | None:
        """When a file was written last, in seconds since 1970."""
        try:
            return path.stat().st_mtime
        except OSError:
            return None

    def folders(self, path: Path) -> list[Path]:
        """The folders in a folder by name, hidden ones left out; empty where it cannot be read."""
        try:
            with os.scandir(path) as entries:
                found = [
                    entry.name
                    for entry in entries
                    if not entry.name.startswith(".") and entry.is_dir(follow_symlinks=False)
                ]
        except OSError:
            return []
        return [path / name for name in sorted(found)]

    def _read(self, path: Path, parse: Callable[[Path], Found | None]) -> Found | None:
        try:
            stat = path.stat()
        except (OSError, ValueError):
            self.known.pop(path, None)
            return None
        # A pipe would be waited for.
        if not S_ISREG(stat.st_mode) or stat.st_size > LARGEST:
            return None
        stamp = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
        if path not in self.known or self.known[path][0] != stamp:
            try:
                self.known[path] = (stamp, parse(path))
            except (OSError, ValueError, RecursionError, yaml.YAMLError, csv.Error):
                self.known[path] = (stamp, None)
        found: Found | None = self.known[path][1]
        return found


def _json(path: Path) -> dict[str, Any] | None:
    content = json.loads(path.read_text(encoding="utf-8"))
    return content if isinstance(content, dict) else None


def _yaml(path: Path) -> dict[str, Any] | None:
    content = yaml.load(path.read_text(encoding="utf-8"), Loader=LOADER)
    return content if isinstance(content, dict) else None


def _curves(path: Path) -> dict[int, Curve]:
    """Rows of training and validation; the last one may be half-written, those of tests are no epochs."""
    epochs: dict[int, int] = {}
    values: dict[int, dict[str, dict[int, float]]] = {}
    with path.open(newline="", encoding="utf-8", errors="replace") as file:
        for row in csv.reader(file):
            try:
                _, start, epoch, split, metric, value = row
                at, after, number = int(start), int(epoch), float(value)
            except ValueError:
                continue
            if split not in ("train", "val"):
                continue
            epochs[at] = max(epochs.get(at, 0), after)
            values.setdefault(at, {}).setdefault(f"{split}/{metric}", {})[after] = number
    return {
        start: Curve(last, {key: tuple(by_epoch.values()) for key, by_epoch in values[start].items()})
        for start, last in epochs.items()
    }


def entries(content: Mapping[str, Any], key: str) -> list[Any]:
    """The list under a key; empty for anything else."""
    found = content.get(key)
    return found if isinstance(found, list) else []


def whole(value: Any) -> int | None:
    """A whole number; None for anything else."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def number_of(value: Any) -> float | None:
    """A finite number, also one in words as status.json has it; None for anything else."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) and not isinstance(value, bool) else None


def moment(text: Any) -> float | None:
    """Seconds since 1970 of a time in ISO 8601."""
    try:
        return datetime.datetime.fromisoformat(str(text)).timestamp()
    except (ValueError, OverflowError, OSError):
        return None


def now() -> float:
    """Seconds since 1970."""
    return time.time()
