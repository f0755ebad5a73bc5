"""The image files of a folder, in the order of their names, and how many other files lie beside them."""

from __future__ import annotations

import unicodedata
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
    """All image files in and under a folder.

    Raises: ConfigError, naming the config's `key`, for what is no folder or has no image file.
    """
    if not isinstance(path, str | Path) or not str(path):
        raise refuse(key, path, "a folder of image files")
    folder = path_of(path)
    if not folder.is_dir():
        raise ConfigError(f"{key} (={path}) is not a folder: give one with image files ({', '.join(SUFFIXES)})")
    found, others = [], 0
    for file in folder.rglob("*"):
        if not file.is_file():
            continue
        below = file.relative_to(folder)
        if file.suffix.lower() in SUFFIXES and not any(part.startswith(".") for part in below.parts):
            found.append(File(unicodedata.normalize("NFC", below.as_posix()), file))
        else:
            others += 1
    if not found:
        raise ConfigError(f"{key} (={path}) holds no image file: expected {', '.join(SUFFIXES)}")
    return Found(sorted(found, key=lambda file: file.path), others)
