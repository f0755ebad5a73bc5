"""Real photographs as [C, H, W] in [0, 1]: the ones in scikit-image's wheel, or a folder of the user's own.

Nothing is ever downloaded: the files are read where the wheel put them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

from onn_runner.checks import refuse
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
SUFFIXES = (".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp", ".webp")
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
    folder = Path(path).expanduser()
    if not folder.is_dir():
        raise ConfigError(f"data.path (={path}) is not a folder: give one with image files ({', '.join(SUFFIXES)})")
    found = sorted(file for file in folder.rglob("*") if file.suffix.lower() in SUFFIXES and file.is_file())
    if not found:
        raise ConfigError(f"data.path (={path}) holds no image file: expected {', '.join(SUFFIXES)}")
    names = [file.relative_to(folder).as_posix() for file in found]
    return [File(name, name, file) for name, file in zip(names, found, strict=True)]


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
    image = _opened(path)
    is_grey = image.mode != "RGB"
    if is_grey and colour:
        return None
    white = 255
    if image.mode not in ("L", "RGB"):
        image, white = _in_unit_range(image, path), 1
    values = torch.from_numpy(np.asarray(_reduce(image, max_side), dtype=np.float32) / white)
    if is_grey:
        return values[None]
    if colour:
        return values.permute(2, 0, 1).contiguous()
    return (values @ torch.tensor(LUMINANCE))[None]


def _opened(path: Path) -> Image.Image:
    """The upright picture without transparency: RGB, or grey as L (8 bits), I;16 in either byte order, I or F."""
    try:
        with Image.open(path) as file:
            # A telephone's MPO is one photograph: what follows it is a preview or a depth map.
            frames = 1 if file.format == "MPO" else getattr(file, "n_frames", 1)
            image = ImageOps.exif_transpose(file)
            if file.format == "PNG" and image.mode == "I":
                # Pillow before 10.3 opens the 16 bits of a PNG as 32.
                image = image.convert("I;16")
            if not image.mode.startswith(("I", "F")):
                image = image.convert("L" if image.mode in ("1", "L", "LA") else "RGB")
    except (OSError, ValueError, TypeError, SyntaxError, EOFError, Image.DecompressionBombError) as error:
        raise ConfigError(f"cannot read the image {path}: {error}. Repair it or take it out of the folder") from error
    if frames != 1:
        raise ConfigError(f"the image {path} holds {frames} pictures: save each to a file of its own")
    return image


def _in_unit_range(
    image: Image.Image,  # I;16, I or F
    path: Path,
) -> Image.Image:
    """The same picture as floats in [0, 1], never through 8 bits.

    Raises: ConfigError where the file does not say which value is white: 32-bit integers, floats beyond [0, 1].
    """
    values = np.asarray(image).astype(np.float32)
    if image.mode.startswith("I;16"):
        return Image.fromarray(values / 65535)
    low, high = float(values.min()), float(values.max())
    if image.mode != "F" or not 0 <= low <= high <= 1:
        kind = "float" if image.mode == "F" else "integer"
        held = "values that are not numbers (NaN)" if np.isnan(low) else f"{kind} values from {low:g} to {high:g}"
        raise ConfigError(f"the image {path} holds {held}: save it with 8 or 16 bits, or as float in [0, 1]")
    return image


def _reduce(image: Image.Image, max_side: int) -> Image.Image:
    """Area means, so that nothing is aliased and the camera's own noise shrinks."""
    scale = max_side / max(image.size)
    if scale >= 1:
        return image
    width, height = (max(1, round(side * scale)) for side in image.size)
    return image.resize((width, height), Image.Resampling.BOX)


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
        raise ConfigError(f"cannot read the image {path}: {error.strerror}. Reinstall scikit-image") from error


def _wheel_folder() -> Path:
    """Found without importing scikit-image, which takes a while."""
    spec = find_spec("skimage")
    if spec is None or not spec.submodule_search_locations:
        raise ConfigError("data=denoise reads scikit-image's photographs: pip install scikit-image, or set data.path")
    return Path(spec.submodule_search_locations[0]) / "data"
