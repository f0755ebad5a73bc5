"""Real photographs as [C, H, W] in [0, 1]: the ones in scikit-image's wheel, or a folder of the user's own.

Nothing is ever downloaded: the files are read where the wheel put them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

import torch
from torch import Tensor

from onn_runner.checks import refuse
from onn_runner.data.files import find
from onn_runner.data.reading import read
from onn_runner.errors import ConfigError, unknown

SCENES: dict[str, tuple[str, ...]] = {
    "astronaut": ("astronaut.png",),
    "brick": ("brick.png",),
    "camera": ("camera.png",),
    "chelsea": ("chelsea.png",),
    "coffee": ("coffee.png",),
    "coins": ("coins.png",),
    "grass": ("grass.png",),
    "gravel": ("gravel.png",),
    "hubble": ("hubble_deep_field.jpg",),
    "immunohistochemistry": ("ihc.png",),
    "moon": ("moon.png",),
    "motorcycle": ("motorcycle_left.png", "motorcycle_right.png"),
    "page": ("page.png",),
    "retina": ("retina.jpg",),
    "rocket": ("rocket.jpg",),
    "text": ("text.png",),
}
LUMINANCE = (0.2125, 0.7154, 0.0721)


@dataclass(frozen=True)
class Photograph:
    """One picture; pictures of one scene (a stereo pair) share the group."""

    name: str
    group: str
    pixels: Tensor  # [C, H, W] float32 in [0, 1], C = 1 or 3

    @property
    def size(self) -> tuple[int, int]:
        return self.pixels.shape[1], self.pixels.shape[2]


Loaded = tuple[list[Photograph], list[str]]


@dataclass(frozen=True)
class File:
    name: str
    group: str
    path: Path


def shipped(chosen: Sequence[str] | None = None) -> list[File]:
    """The scenes of this name, in the catalogue's order; None: all."""
    names = list(SCENES) if chosen is None else _names(chosen)
    for name in names:
        if name not in SCENES:
            raise unknown("photograph in data.photographs", name, SCENES)
    folder = _wheel_folder()
    files = []
    for scene in SCENES:
        for file in SCENES[scene] if scene in names else ():
            name = scene if len(SCENES[scene]) == 1 else Path(file).stem
            files.append(File(name, scene, folder / file))
    return files


def in_folder(path: str | Path) -> list[File]:
    """Every image file in and under a folder, each its own group, sorted by name."""
    return [File(file.name, file.name, file.path) for file in find(path, "data.path").files]


def load(files: Sequence[File], *, colour: bool, max_side: int) -> Loaded:
    """The photographs, and the names of the grey ones left out where colour is asked for.

    A grey photograph repeated in three channels would carry three independent noises of one picture, and be far easier.
    """
    photographs, grey = [], []
    for file in files:
        pixels = decode(file.path, colour, max_side, _modified(file.path))
        if pixels is None:
            grey.append(file.name)
        else:
            photographs.append(Photograph(file.name, file.group, pixels))
    return photographs, grey


@lru_cache(maxsize=64)
def decode(path: Path, colour: bool, max_side: int, modified: int) -> Tensor | None:
    """[C, H, W]; None where colour is asked of a grey file. `modified`: a changed file is read anew."""
    values = torch.from_numpy(read(path, max_side=max_side).values)
    if values.ndim == 2:
        return None if colour else values[None]
    if colour:
        return values.permute(2, 0, 1).contiguous()
    return (values @ torch.tensor(LUMINANCE))[None]


def _names(chosen: object) -> list[str]:
    if isinstance(chosen, str) or not isinstance(chosen, Sequence) or not all(isinstance(name, str) for name in chosen):
        raise refuse("data.photographs", chosen, "null for all, or a list of names, such as [camera, coins]")
    if not chosen:
        raise ConfigError("data.photographs (=[]) is empty: null takes all, or name some, such as [camera, coins]")
    return list(chosen)


def _modified(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError as error:
        raise ConfigError(
            f"cannot read the image {path}: {error.strerror}. Is it, or scikit-image, still there?"
        ) from error


def _wheel_folder() -> Path:
    """Found without importing scikit-image, which takes a while."""
    spec = find_spec("skimage")
    if spec is None or not spec.submodule_search_locations:
        raise ConfigError("data=denoise reads scikit-image's photographs: pip install scikit-image, or set data.path")
    return Path(spec.submodule_search_locations[0]) / "data"
