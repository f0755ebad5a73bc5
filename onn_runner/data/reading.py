"""An image file as values in [0, 1], upright and without transparency, at the depth that the file has."""

from __future__ import annotations

import re
import struct
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from onn_runner.data.colours import BLACK_IS_ZERO, PHOTOMETRIC, Meaning, light
from onn_runner.errors import ConfigError

Array = NDArray[Any]

ORIENTATION = 0x0112
TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""Exif's orientation -> what sets the picture upright."""
WIDTH, HEIGHT, BITS_PER_SAMPLE, SAMPLES_PER_PIXEL, SAMPLE_FORMAT = 256, 257, 258, 277, 339
SIGNED = 2
DAMAGED = (
    OSError,
    ValueError,
    TypeError,
    SyntaxError,
    EOFError,
    LookupError,
    ArithmeticError,
    RuntimeError,
    MemoryError,
    struct.error,
    zlib.error,
    Image.DecompressionBombError,
)
"""What decoders raise for files that are damaged, cut off, or no image."""


class BadImage(ConfigError):
    """A file that cannot be used; `reason` says why, where several are listed."""

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True)
class Deep:
    """Numbers as a file has them, not yet upright."""

    values: Array  # [H, W, bands]
    meaning: Meaning | None = None
    """None: grey, grey and alpha, RGB, or RGB and alpha."""
    turn: int = 1
    """Exif's orientation."""


@dataclass(frozen=True)
class Picture:
    """One decoded file."""

    values: Array  # [H, W] grey or [H, W, 3] red, green, blue; float32 in [0, 1]
    note: str = ""
    """What the reader should know about it: bits that were lost."""


def read(
    path: Path,
    *,
    max_side: int | None = None,
) -> Picture:
    """The picture, reduced by area means to `max_side` where its longer side is larger.

    Transparency is dropped, not composited: the colours that the file holds count. Palettes, CMYK and other colour
    spaces become RGB; 16 bits and floats are never taken through 8.

    Raises: BadImage for what cannot be read, several pictures in one file, and values whose white is not known.
    """
    with _named(path):
        bands, note = _opened(path)
    # Means of 8 bits are rounded to 8 bits, as they would be on disk.
    white = 255 if bands[0].mode in ("L", "RGB") else 1
    planes = [np.asarray(_reduce(band, max_side), dtype=np.float32) / white for band in bands]
    return Picture(planes[0] if len(planes) == 1 else np.stack(planes, 2), note)


def size(path: Path) -> tuple[int, int]:
    """(height, width) of the upright picture, from the file's header. Raises: BadImage."""
    with _named(path):
        try:
            with Image.open(path) as file:
                turn = file.getexif().get(ORIENTATION, 1)
                # Of a TIFF, Pillow's own size is that of the upright picture already.
                tags = getattr(file, "tag_v2", {})
                width, height = tags.get(WIDTH, file.width), tags.get(HEIGHT, file.height)
        except UnidentifiedImageError:
            if not _may_be_tiff(path):
                raise
            deep = _tiff(path)
            turn = deep.turn
            height, width = deep.values.shape[:2]
    return (width, height) if turn >= 5 else (height, width)


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Errors of decoders as BadImage; their warnings about damage are not shown: what counts is what came out."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if path.stat().st_size == 0:
                raise ValueError("it is empty, 0 bytes")
            yield
    except BadImage:
        raise
    except DAMAGED as error:
        text = " ".join(str(error).split())
        for shown in (f" {str(path)!r}", f" <_io.BufferedReader name={str(path)!r}>"):
            text = text.replace(shown, "")
        text = text or type(error).__name__
        message = f"cannot read the image {path}: {text}. Repair it or take it out of the folder"
        raise BadImage(message, f"cannot be read: {text}") from error


def _opened(path: Path) -> tuple[list[Image.Image], str]:
    """The upright picture as one image of mode L, RGB or F, or as three of mode F (red, green, blue); and a note."""
    try:
        # As a stream: Pillow maps a file that it opened itself, with the sides of a turned TIFF exchanged.
        with path.open("rb") as stream, Image.open(stream) as file:
            # A telephone's MPO is one photograph: what follows it is a preview or a depth map.
            frames = 1 if file.format == "MPO" else getattr(file, "n_frames", 1)
            if frames != 1:
                raise _several(path, frames)
            turn = file.getexif().get(ORIENTATION, 1)
            deep, note = _deeper_than_pillow(file, path)
            if deep is not None:
                return _bands(deep, path, turn), ""
            tags = getattr(file, "tag_v2", {})
            if tags.get(SAMPLE_FORMAT, (0,))[0] == SIGNED and file.mode == "L":
                raise BadImage(
                    f"the image {path} holds signed integers: save it with 8 or 16 bits", "holds signed integers"
                )
            meaning = Meaning(tags.get(PHOTOMETRIC, BLACK_IS_ZERO))
            image = ImageOps.exif_transpose(file)
    except UnidentifiedImageError:
        # Pillow has no mode for colours or alpha in floats, which scientific TIFF files hold.
        if not _may_be_tiff(path):
            raise
        deep = _tiff(path)
        return _bands(deep, path, deep.turn), ""
    if image.mode.startswith(("I", "F")):
        # Of fewer bits Pillow has exchanged black and white already, where the file says so.
        return _bands(Deep(np.asarray(image)[..., None], meaning), path, 1), note
    if "transparency" in image.info and image.mode == "P":
        image = image.convert("RGBA")
    return [image.convert("L" if image.mode in ("1", "L", "LA", "La") else "RGB")], note


def _deeper_than_pillow(file: Image.Image, path: Path) -> tuple[Deep | None, str]:
    """What is in a file with several bands of more than 8 bits, which Pillow cuts to 8; a note where it must."""
    if file.format == "PNG":
        with path.open("rb") as stream:
            header = stream.read(26)
        if header[24] == 16 and header[25] in (2, 4, 6):
            return Deep(_png(path)), ""
    elif file.format == "TIFF":
        tags = getattr(file, "tag_v2", {})
        bits = max(tags.get(BITS_PER_SAMPLE, (1,)))
        if bits > 8 and tags.get(SAMPLES_PER_PIXEL, 1) > 1:
            try:
                return _tiff(path), ""
            except ValueError as error:
                # A compression that needs a package of its own.
                if "imagecodecs" not in str(error):
                    raise
                return None, f"read with 8 of {bits} bits, to be saved uncompressed"
    elif file.format == "PPM" and file.mode == "I":
        # Pillow has scaled the values to 16 bits, in integers of 32.
        return Deep(np.asarray(file).astype(np.uint16)[..., None]), ""
    elif file.format == "PPM" and _white_of_map(path) > 255:
        return None, "read with 8 bits, to be saved as PNG or TIFF"
    return None, ""


def _white_of_map(path: Path) -> int:
    """The largest value of a portable map, as its header says; 1 where it says none."""
    with path.open("rb") as stream:
        header = re.sub(rb"#[^\n]*\n", b"", stream.read(1024))
    found = re.match(rb"P[36]\s+\d+\s+\d+\s+(\d+)\s", header)
    return 1 if found is None else int(found[1])


def _may_be_tiff(path: Path) -> bool:
    return path.suffix.lower() in (".tif", ".tiff")


def _png(path: Path) -> Array:
    import torch
    from torchvision.io import ImageReadMode, decode_png

    data = torch.frombuffer(bytearray(path.read_bytes()), dtype=torch.uint8)
    return np.asarray(decode_png(data, mode=ImageReadMode.UNCHANGED).numpy().transpose(1, 2, 0))


def _tiff(path: Path) -> Deep:
    import tifffile

    with tifffile.TiffFile(path) as file:
        if len(file.pages) != 1:
            raise _several(path, len(file.pages))
        page = file.pages.first
        axes, values = page.axes, page.asarray()
        turn = int(page.tags.valueof(ORIENTATION, default=1))
        extra = tuple(int(sample) for sample in page.extrasamples)
        meaning = Meaning(int(page.photometric), extra)
    if axes == "SYX":
        values = values.transpose(1, 2, 0)
    elif axes == "YX":
        values = values[..., None]
    elif axes != "YXS":
        raise BadImage(f"the image {path} has axes {axes}: save it as one grey or RGB picture", f"has axes {axes}")
    return Deep(values, meaning, turn)


def _several(path: Path, count: int) -> BadImage:
    return BadImage(
        f"the image {path} holds {count} pictures: save each to a file of its own", f"holds {count} pictures"
    )


def _bands(deep: Deep, path: Path, turn: int) -> list[Image.Image]:
    """One or three float images in [0, 1], upright; alpha is left out."""
    unit = light(_in_unit_range(deep.values, path), deep.meaning)
    images = [Image.fromarray(np.ascontiguousarray(unit[..., band])) for band in range(unit.shape[2])]
    return [image.transpose(TURNS[turn]) for image in images] if turn in TURNS else images


def _in_unit_range(values: Array, path: Path) -> Array:
    """The same values as float32 in [0, 1].

    Raises: BadImage where the file does not say which value is white: 32-bit integers, floats beyond [0, 1].
    """
    if values.dtype.kind == "u" and values.dtype.itemsize <= 2:
        return values.astype(np.float32) / np.float32(np.iinfo(values.dtype).max)
    if values.dtype == np.bool_:
        return values.astype(np.float32)
    if values.dtype.kind == "c":
        raise BadImage(f"the image {path} holds complex numbers: save it with 8 or 16 bits", "holds complex numbers")
    low, high = float(values.min()), float(values.max())
    floating = np.issubdtype(values.dtype, np.floating)
    if not floating or not 0 <= low <= high <= 1:
        held = f"{'float' if floating else 'integer'} values from {low:g} to {high:g}"
        held = "values that are not numbers (NaN)" if np.isnan(low) else held
        wanted = "save it with 8 or 16 bits, or as float in [0, 1]"
        raise BadImage(f"the image {path} holds {held}: {wanted}", f"holds {held}")
    return values.astype(np.float32)


def _reduce(image: Image.Image, max_side: int | None) -> Image.Image:
    """Area means, so that nothing is aliased and the camera's own noise shrinks."""
    scale = 1 if max_side is None else max_side / max(image.size)
    if scale >= 1:
        return image
    width, height = (max(1, round(side * scale)) for side in image.size)
    return image.resize((width, height), Image.Resampling.BOX)
