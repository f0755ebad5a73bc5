"""The image files of a folder, in the order of their names, and how many other files lie beside them."""

from __future__ import annotations

import os
import unicodedata
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from onn_runner.checks import path_of, refuse
from onn_runner.errors import ConfigError

SUFFIXES = (
    *(".png", ".jpg", ".jpeg", ".jpe", ".jfif", ".tif", ".tiff", ".bmp", ".webp"),
    *(".gif", ".pbm", ".pgm", ".ppm", ".pnm", ".jp2", ".avif", ".tga"),
)


@dataclass(frozen=True)
class File:
    """`name`: the path below the folder, with / and composed letters (an umlaut is one) on every system."""

    name: str
    path: Path

    @property
    def stem(self) -> str:
        """The name without its suffix."""
        return self.name[: -len(self.path.suffix)]


@dataclass(frozen=True)
class Found:
    files: list[File]
    others: int
    """Files that are no images by their suffix, and hidden ones such as macOS's ._a.png."""


def find(path: object, key: str) -> Found:
    """All image files in and under a folder; links are followed, each folder is read once.

    Raises: ConfigError, naming the config's `key`, for what is no folder or has no image file, and for two files whose
    names differ in how their letters are encoded only.
    """
    if not isinstance(path, str | Path) or not str(path):
        raise refuse(key, path, "a folder of image files")
    folder = path_of(path)
    if not folder.is_dir():
        raise ConfigError(f"{key} (={path}) is not a folder: give one with image files ({', '.join(SUFFIXES)})")
    found, others = [], 0
    for file in _below(folder):
        below = file.relative_to(folder)
        if file.suffix.lower() in SUFFIXES and not any(part.startswith(".") for part in below.parts):
            # Bytes that are no UTF-8 (names from old archives) cannot be written to tables as they are.
            name = below.as_posix().encode("utf-8", "backslashreplace").decode()
            found.append(File(unicodedata.normalize("NFC", name), file))
        else:
            others += 1
    if not found:
        raise ConfigError(f"{key} (={path}) holds no image file: expected {', '.join(SUFFIXES)}")
    names = Counter(file.name for file in found)
    if twice := [name for name, count in names.items() if count > 1]:
        raise ConfigError(
            f"{key} (={path}) holds files of the same name, {twice[0]}, its letters encoded in two ways: rename one"
        )
    return Found(sorted(found, key=lambda file: file.path), others)


def _below(folder: Path) -> Iterator[Path]:
    """Files in and under a folder, broken links too: they are named where they cannot be read."""
    seen: set[str] = set()
    for place, folders, files in os.walk(folder, followlinks=True):
        here = os.path.realpath(place)
        if here in seen:
            folders.clear()
            continue
        seen.add(here)
        # What a link leads to is read under its own name where it lies below too.
        folders.sort(key=lambda name: (os.path.islink(os.path.join(place, name)), name))
        yield from (
            Path(place, name) for name in files if Path(place, name).is_file() or Path(place, name).is_symlink()
        )
