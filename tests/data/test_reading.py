"""Decoded files: the depth that the file has, upright, without transparency; damaged ones by name."""

from __future__ import annotations

import logging
import re
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import tifffile
from PIL import Image

from onn_runner.data import reading
from onn_runner.data.reading import BadImage, read, size

RNG = np.random.default_rng(3)
DEEP = RNG.integers(0, 65536, (6, 9, 4)).astype(np.uint16)
COLOUR_TYPE = {1: 0, 2: 4, 3: 2, 4: 6}


def deep_png(values: np.ndarray, *chunks: tuple[bytes, bytes]) -> bytes:
    """A PNG of 16 bits, which Pillow writes for grey only."""
    height, width, bands = values.shape

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 16, COLOUR_TYPE[bands], 0, 0, 0)
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in values)
    parts = [(b"IHDR", header), *chunks, (b"IDAT", zlib.compress(rows)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*part) for part in parts)


def expected(values: np.ndarray) -> np.ndarray:
    return values.astype(np.float32) / np.float32(65535)


@pytest.mark.parametrize("bands", [1, 2, 3, 4])
def test_sixteen_bits_of_a_png_are_read_alpha_is_dropped(bands: int, tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(deep_png(DEEP[..., :bands]))
    kept = DEEP[..., 0] if bands < 3 else DEEP[..., :3]
    assert np.array_equal(read(tmp_path / "a.png").values, expected(kept))
    assert read(tmp_path / "a.png").note == ""
    assert size(tmp_path / "a.png") == (6, 9)


def test_a_deep_png_held_sideways_is_set_upright(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    (tmp_path / "a.png").write_bytes(deep_png(DEEP[..., :3], (b"eXIf", exif.tobytes()[6:])))
    assert np.array_equal(read(tmp_path / "a.png").values, expected(np.rot90(DEEP[..., :3], -1)))
    assert size(tmp_path / "a.png") == (9, 6)


@pytest.mark.parametrize("turn", range(1, 9))
def test_every_orientation_is_pillows(turn: int, tmp_path: Path) -> None:
    plain = tmp_path / "a.tif"
    Image.fromarray((DEEP[..., :3] >> 8).astype(np.uint8)).save(plain, tiffinfo={0x0112: turn})
    tifffile.imwrite(tmp_path / "b.tif", (DEEP[..., :3] >> 8) * np.uint16(257), photometric="rgb",
                     extratags=[(0x0112, 3, 1, turn, True)])  # fmt: skip
    assert np.array_equal(read(tmp_path / "b.tif").values, read(plain).values)
    assert size(tmp_path / "b.tif") == size(plain) == read(plain).values.shape[:2]


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("bands", [2, 3, 4])
def test_sixteen_bits_of_a_tiff_are_read(bands: int, order: str, tmp_path: Path) -> None:
    extra = {"extrasamples": ["unassalpha"]} if bands != 3 else {}
    photometric = "minisblack" if bands == 2 else "rgb"
    values = DEEP[..., :bands]
    tifffile.imwrite(
        tmp_path / "a.tif", values, photometric=photometric, planarconfig="contig", byteorder=order, **extra
    )
    kept = values[..., 0] if bands == 2 else values[..., :3]
    assert np.array_equal(read(tmp_path / "a.tif").values, expected(kept))


def test_planes_deflation_and_floats_of_a_tiff_are_read(tmp_path: Path) -> None:
    path, rgb = tmp_path / "a.TIFF", DEEP[..., :3]
    tifffile.imwrite(path, np.ascontiguousarray(rgb.transpose(2, 0, 1)), photometric="rgb", planarconfig="separate")
    assert np.array_equal(read(path).values, expected(rgb))
    tifffile.imwrite(path, rgb, photometric="rgb", compression="zlib")
    assert np.array_equal(read(path).values, expected(rgb))
    for kind in (np.float16, np.float32, np.float64):
        unit = (rgb / 65535).astype(kind)
        tifffile.imwrite(path, unit, photometric="rgb")
        assert np.array_equal(read(path).values, unit.astype(np.float32))
        tifffile.imwrite(path, unit[..., 0])
        assert np.array_equal(read(path).values, unit[..., 0].astype(np.float32))
        assert size(path) == (6, 9)


def test_colours_of_a_palette_are_kept_where_they_are_transparent(tmp_path: Path) -> None:
    image = Image.fromarray(RNG.integers(0, 4, (5, 7)).astype(np.uint8), mode="P")
    colours = [10, 20, 30, 200, 100, 0, 0, 255, 9, 77, 78, 79]
    image.putpalette(colours)
    for transparent in (bytes([0, 128, 255, 0]), 2):
        image.save(tmp_path / "a.png", transparency=transparent)
        values = read(tmp_path / "a.png").values
        table = np.array(colours, np.float32).reshape(4, 3) / 255
        assert np.array_equal(values, table[np.asarray(image)])


@pytest.mark.parametrize(
    ("mode", "suffix"),
    [("CMYK", "jpg"), ("YCbCr", "tif"), ("LAB", "tif"), ("RGBX", "tif"), ("RGBA", "webp"), ("1", "bmp"), ("LA", "png")],
)
def test_every_other_mode_becomes_grey_or_colour(mode: str, suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"a.{suffix}"
    colours = Image.fromarray((DEEP[..., :3] >> 8).astype(np.uint8))
    if mode == "LAB":
        Image.new("LAB", (9, 6), (128, 100, 90)).save(path)
    else:
        colours.convert("L" if mode in ("1", "LA") else "RGB").convert(mode).save(path)
    values = read(path).values
    assert values.shape == ((6, 9) if mode in ("1", "LA") else (6, 9, 3))
    assert values.dtype == np.float32
    assert 0 <= values.min() <= values.max() <= 1


def test_a_compression_that_is_not_here_costs_bits_and_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, DEEP[..., :3], photometric="rgb")

    def without_package(path: Path) -> None:
        raise ValueError("<COMPRESSION.LZW: 5> requires the 'imagecodecs' package")

    monkeypatch.setattr(reading, "_tiff", without_package)
    picture = read(path)
    assert picture.note == "read with 8 of 16 bits, to be saved uncompressed"
    # Pillow keeps the upper byte.
    assert np.array_equal(picture.values, (DEEP[..., :3] >> 8).astype(np.float32) / 255)


@pytest.mark.parametrize("white", [65535, 60000, 1023])
def test_deep_portable_maps_are_read_grey_ones_with_all_bits(white: int, tmp_path: Path) -> None:
    values = (DEEP[..., :3].astype(np.int64) * white // 65535).astype(np.uint16)
    for kind, kept in ((b"P5", values[..., 0]), (b"P6", values)):
        path = tmp_path / "a.pnm"
        path.write_bytes(kind + f"\n9 6\n{white}\n".encode() + kept.astype(">u2").tobytes())
        picture = read(path)
        # Scaled to 16 and to 8 bits and rounded there.
        bits, note = (65535, "") if kind == b"P5" else (255, "read with 8 bits, to be saved as PNG or TIFF")
        np.testing.assert_allclose(picture.values, kept / white, rtol=0, atol=1.001 / bits)
        assert picture.note == note
    Image.fromarray((DEEP[..., :3] >> 8).astype(np.uint8)).save(path, format="PPM")
    assert read(path).note == ""


@pytest.mark.parametrize(
    ("values", "held"),
    [
        (np.full((4, 4, 3), np.nan, np.float32), "values that are not numbers (NaN)"),
        (np.full((4, 4, 3), 3, np.float64), "float values from 3 to 3"),
        (np.full((4, 4, 3), 3, np.uint32), "integer values from 3 to 3"),
        (np.full((4, 4), np.inf, np.float16), "float values from inf to inf"),
    ],
)
def test_values_whose_white_is_not_known_are_refused(values: np.ndarray, held: str, tmp_path: Path) -> None:
    tifffile.imwrite(tmp_path / "a.tif", values, photometric="rgb" if values.ndim == 3 else "minisblack")
    with pytest.raises(BadImage, match=re.escape(f"holds {held}: save it with 8 or 16 bits")) as caught:
        read(tmp_path / "a.tif")
    assert caught.value.reason == f"holds {held}"


def test_several_pictures_in_a_file_are_refused(tmp_path: Path) -> None:
    tifffile.imwrite(tmp_path / "a.tif", RNG.random((3, 5, 5, 3), np.float32), photometric="rgb")
    with pytest.raises(BadImage, match="holds 3 pictures") as caught:
        read(tmp_path / "a.tif")
    assert caught.value.reason == "holds 3 pictures"


def attempt(reader: Callable[[Path], object], path: Path) -> BadImage | None:
    try:
        reader(path)
    except BadImage as error:
        return error
    return None


@pytest.mark.parametrize("name", ["a.png", "a.tif", "f.tif", "b.jpg", "b.webp", "b.gif", "b.jp2", "b.tga", "b.ppm"])
def test_damaged_files_are_read_or_named(name: str, tmp_path: Path) -> None:
    logging.getLogger("tifffile").setLevel(logging.CRITICAL)
    path = tmp_path / name
    if name == "a.png":
        path.write_bytes(deep_png(DEEP))
    elif name.endswith("tif"):
        values = DEEP[..., :3] if name == "a.tif" else DEEP[..., :3].astype(np.float32) / 65535
        tifffile.imwrite(path, values, photometric="rgb")
    else:
        Image.fromarray((DEEP[..., :3] >> 8).astype(np.uint8)).save(path)
    whole = path.read_bytes()
    for number in range(60):
        content = bytearray(whole[: int(RNG.integers(len(whole)))] if number % 2 else whole)
        for _ in range(number % 3):
            content[int(RNG.integers(len(content)))] = int(RNG.integers(256))
        path.write_bytes(content)
        for reader in (read, size):
            failed = attempt(reader, path)
            assert failed is None or (failed.reason and name in str(failed))


@pytest.mark.parametrize("kind", [np.uint8, np.uint16, np.float32])
@pytest.mark.parametrize("turn", range(1, 9))
def test_a_turned_grey_tiff_is_set_upright(turn: int, kind: type, tmp_path: Path) -> None:
    stored = (DEEP[..., 0] / 65535).astype(kind) if kind is np.float32 else DEEP[..., 0].astype(kind)
    tifffile.imwrite(tmp_path / "a.tif", stored, photometric="minisblack", extratags=[(0x0112, 3, 1, turn, True)])
    upright = {
        **{1: stored, 2: stored[:, ::-1], 3: stored[::-1, ::-1], 4: stored[::-1], 5: stored.T},
        **{6: np.rot90(stored, -1), 7: np.rot90(stored, 2).T, 8: np.rot90(stored, 1)},
    }[turn]
    white = np.float32(1 if kind is np.float32 else np.iinfo(kind).max)
    assert np.array_equal(read(tmp_path / "a.tif").values, upright.astype(np.float32) / white)
    assert size(tmp_path / "a.tif") == upright.shape


@pytest.mark.parametrize("kind", [np.uint8, np.uint16, np.float32])
def test_a_tiff_whose_white_is_zero_is_no_negative(kind: type, tmp_path: Path) -> None:
    unit = (DEEP[..., 0] >> 8) / 255
    stored = unit.astype(kind) if kind is np.float32 else np.round(unit * np.iinfo(kind).max).astype(kind)
    tifffile.imwrite(tmp_path / "a.tif", stored, photometric="miniswhite")
    # Rounding of float32.
    assert np.allclose(read(tmp_path / "a.tif").values, 1 - unit, rtol=0, atol=2e-7)


@pytest.mark.parametrize(("kind", "rounding"), [(np.uint8, 1.01 / 255), (np.uint16, 1e-6)])
def test_a_cmyk_tiff_becomes_rgb_at_its_depth(kind: type, rounding: float, tmp_path: Path) -> None:
    stored = DEEP.astype(kind)
    tifffile.imwrite(tmp_path / "a.tif", stored, photometric="separated")
    ink = stored / np.iinfo(kind).max
    wanted = (1 - ink[..., :3]) * (1 - ink[..., 3:])
    assert np.abs(read(tmp_path / "a.tif").values - wanted).max() < rounding


def test_colours_multiplied_by_alpha_are_divided_by_it(tmp_path: Path) -> None:
    alpha = (DEEP[..., 3:] / 65535).astype(np.float32)
    alpha[0, 0] = 0
    colours = DEEP[..., :3] / np.float32(65535)
    tifffile.imwrite(
        tmp_path / "a.tif", np.concatenate([colours * alpha, alpha], 2), photometric="rgb", extrasamples=["assocalpha"]
    )
    values = read(tmp_path / "a.tif").values
    assert np.array_equal(values[0, 0], [0, 0, 0])
    colours[0, 0] = 0
    # Rounding of the product and of the quotient.
    assert np.allclose(values, colours, rtol=3e-7, atol=0)


@pytest.mark.parametrize(
    ("values", "photometric", "said"),
    [
        (DEEP[..., :3], "cielab", "its colours are CIELab, to be saved as RGB"),
        (DEEP[..., :3], "ycbcr", "its colours are YCbCr"),
        (DEEP[..., :3], "minisblack", "it has 3 bands, to be saved as one grey or RGB picture"),
        (DEEP[..., 0].astype(np.int8), "minisblack", "holds signed integers"),
        (DEEP[..., 0].astype(np.complex64), "minisblack", "holds complex numbers"),
    ],
)
def test_numbers_of_another_meaning_are_refused(
    values: np.ndarray, photometric: str, said: str, tmp_path: Path
) -> None:
    tifffile.imwrite(tmp_path / "a.tif", values, photometric=photometric, planarconfig="contig")
    with pytest.raises(BadImage, match=re.escape(said)):
        read(tmp_path / "a.tif")
