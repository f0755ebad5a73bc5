"""Shipped photographs are there, decode as they should, and a user's folder is read with the same care."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import tifffile
import torch
from PIL import Image, ImageOps
from skimage.color import rgb2gray
from skimage.io import imread

from onn_runner.data import photographs
from onn_runner.errors import ConfigError


def test_every_catalogued_photograph_is_in_the_wheel() -> None:
    files = photographs.shipped()
    assert len(files) == 17
    assert len({file.group for file in files}) == 16
    assert all(file.path.is_file() for file in files)


def test_the_stereo_pair_is_one_group() -> None:
    files = photographs.shipped(["motorcycle", "camera"])
    assert [(file.name, file.group) for file in files] == [
        ("camera", "camera"),
        ("motorcycle_left", "motorcycle"),
        ("motorcycle_right", "motorcycle"),
    ]


def test_pixels_are_scikit_images_own() -> None:
    camera, astronaut = photographs.load(photographs.shipped(["camera", "astronaut"]), colour=False, max_side=512)[0][
        ::-1
    ]
    files = {file.name: file.path for file in photographs.shipped()}
    assert torch.equal(camera.pixels[0], torch.from_numpy(imread(files["camera"]).astype(np.float32) / 255))
    # Three float32 products and sums of values in [0, 1]: 4 ulp.
    np.testing.assert_allclose(astronaut.pixels[0], rgb2gray(imread(files["astronaut"])), atol=4 * 2**-24)


def test_colour_leaves_the_grey_ones_out_by_name() -> None:
    found, grey = photographs.load(photographs.shipped(["coins", "rocket"]), colour=True, max_side=512)
    assert [photo.name for photo in found] == ["rocket"]
    assert found[0].pixels.shape[0] == 3
    assert grey == ["coins"]


def test_large_photographs_are_reduced_by_area_means(tmp_path: Path) -> None:
    values = np.random.RandomState(0).randint(0, 256, (40, 80)).astype(np.uint8)
    Image.fromarray(values).save(tmp_path / "a.png")
    pixels = photographs.load(photographs.in_folder(tmp_path), colour=False, max_side=20)[0][0].pixels
    assert pixels.shape == (1, 10, 20)
    means = values.reshape(10, 4, 20, 4).mean((1, 3)) / 255
    # Rounded to whole grey levels after the rows and again after the columns: half a level each.
    np.testing.assert_allclose(pixels[0], means, atol=1.001 / 255)


def test_sixteen_bit_palette_and_transparent_files_are_read(tmp_path: Path) -> None:
    deep = (np.arange(64, dtype=np.uint16).reshape(8, 8) * 1000).astype(np.uint16)
    Image.fromarray(deep).save(tmp_path / "deep.png")
    colours = Image.fromarray(np.random.RandomState(1).randint(0, 256, (8, 8, 3)).astype(np.uint8))
    colours.convert("P").save(tmp_path / "palette.png")
    colours.convert("RGBA").save(tmp_path / "transparent.png")
    files = photographs.in_folder(tmp_path)
    grey = photographs.load(files, colour=False, max_side=512)[0]
    np.testing.assert_allclose(grey[0].pixels[0], deep / 65535, atol=2**-24)
    assert [photo.pixels.shape for photo in grey] == [(1, 8, 8)] * 3
    found, left_out = photographs.load(files, colour=True, max_side=512)
    assert [photo.name for photo in found] == ["palette.png", "transparent.png"]
    assert left_out == ["deep.png"]


def read(folder: Path, *, max_side: int = 512) -> torch.Tensor:
    ((photograph,), _) = photographs.load(photographs.in_folder(folder), colour=False, max_side=max_side)
    return photograph.pixels


RAMP = np.linspace(0, 1, 48, dtype=np.float32).reshape(6, 8)


@pytest.mark.parametrize("order", ["<", ">"])
def test_sixteen_bits_are_read_in_either_byte_order(order: str, tmp_path: Path) -> None:
    deep = (RAMP * 65535).astype(np.uint16)
    tifffile.imwrite(tmp_path / "a.tif", deep, byteorder=order)
    assert torch.equal(read(tmp_path)[0], torch.from_numpy(deep.astype(np.float32) / 65535))


def test_floats_in_the_unit_range_are_read_as_they_are(tmp_path: Path) -> None:
    Image.fromarray(RAMP).save(tmp_path / "a.tif")
    assert torch.equal(read(tmp_path)[0], torch.from_numpy(RAMP))


@pytest.mark.parametrize("values", [RAMP / 100, (RAMP * 600).astype(np.uint16)], ids=["float", "16 bits"])
def test_reduction_keeps_more_than_eight_bits(values: np.ndarray, tmp_path: Path) -> None:
    tifffile.imwrite(tmp_path / "a.tif", values)
    white = 1 if values.dtype == np.float32 else 65535
    means = values.reshape(3, 2, 4, 2).mean((1, 3), dtype=np.float64) / white
    # Values below 0.01, rounded to float32 after the rows and again after the columns: far below 1/255.
    np.testing.assert_allclose(read(tmp_path, max_side=4)[0], means, atol=4e-9)


@pytest.mark.parametrize(
    ("values", "held"),
    [
        (RAMP * 65535, "float values from 0 to 65535"),
        (RAMP - 0.5, "float values from -0.5 to 0.5"),
        (np.where(RAMP > 0.5, np.inf, RAMP), "float values from 0 to inf"),
        (np.where(RAMP > 0.5, np.nan, RAMP), "values that are not numbers (NaN)"),
        ((RAMP * 1e6).astype(np.int32), "integer values from 0 to 1e+06"),
        ((RAMP * 4000 - 50).astype(np.int16), "integer values from -50 to 3950"),
    ],
)
def test_values_whose_white_is_not_known_are_refused(values: np.ndarray, held: str, tmp_path: Path) -> None:
    tifffile.imwrite(tmp_path / "a.tif", values)
    remedy = ": save it with 8 or 16 bits, or as float in [0, 1]"
    with pytest.raises(ConfigError, match=re.escape(f"the image {tmp_path / 'a.tif'} holds {held}{remedy}")):
        read(tmp_path)


def test_bilevel_transparent_and_printed_pictures_are_read(tmp_path: Path) -> None:
    grey = Image.fromarray((RAMP * 255).astype(np.uint8))
    grey.convert("1", dither=Image.Dither.NONE).save(tmp_path / "bilevel.png")
    Image.merge("LA", (grey, grey)).save(tmp_path / "grey.png")
    # Ink only: black at 255.
    Image.merge("CMYK", (*[Image.new("L", grey.size)] * 3, ImageOps.invert(grey))).save(tmp_path / "ink.tif")
    bilevel, transparent, ink = photographs.load(photographs.in_folder(tmp_path), colour=False, max_side=512)[0]
    assert bilevel.pixels.unique().tolist() == [0, 1]
    expected = torch.from_numpy(np.asarray(grey).astype(np.float32) / 255)
    assert torch.equal(transparent.pixels[0], expected)
    # Three float32 products and sums of values in [0, 1]: 4 ulp.
    np.testing.assert_allclose(ink.pixels[0], expected, atol=4 * 2**-24)


@pytest.mark.parametrize("mode", ["RGB", "I;16"])
def test_a_camera_held_sideways_is_set_upright(mode: str, tmp_path: Path) -> None:
    image = Image.fromarray((RAMP * 65535).astype(np.uint16)) if mode == "I;16" else Image.new(mode, (8, 6), "red")
    exif = Image.Exif()
    exif[0x0112] = 6
    image.save(tmp_path / "a.png", exif=exif)
    pixels = read(tmp_path)
    assert pixels.shape == (1, 8, 6)
    if mode == "I;16":
        np.testing.assert_allclose(pixels[0], np.rot90(RAMP, -1), atol=1 / 65535)


@pytest.mark.parametrize("name", ["stack.tif", "film.webp", "film.png"])
def test_a_file_of_several_pictures_is_refused(name: str, tmp_path: Path) -> None:
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "blue", "green")]
    frames[0].save(tmp_path / name, save_all=True, append_images=frames[1:])
    with pytest.raises(ConfigError, match=rf"the image .*{name} holds 3 pictures: save each to a file of its own"):
        read(tmp_path)


def test_a_telephones_photograph_is_its_first_picture(tmp_path: Path) -> None:
    frames = [Image.new("L", (8, 8), level).convert("RGB") for level in (200, 10)]
    frames[0].save(tmp_path / "a.jpg", format="MPO", save_all=True, append_images=frames[1:])
    assert read(tmp_path).min() > 0.7


@pytest.mark.filterwarnings("ignore:Corrupt EXIF data")
@pytest.mark.filterwarnings("ignore:Truncated File Read")
@pytest.mark.parametrize("name", ["a.png", "a.jpg", "a.tif", "a.bmp", "a.webp"])
def test_empty_and_truncated_files_are_named(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    Image.effect_noise((64, 64), 80).save(path)
    content = path.read_bytes()
    for length in (0, 1, 9, 40, len(content) // 2):
        path.write_bytes(content[:length])
        with pytest.raises(ConfigError, match=f"cannot read the image .*{name}"):
            photographs.decode(path, False, 512, length)


def test_a_folder_is_read_in_order_each_file_its_own_group(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    for name in ("b.png", "a.PNG", "sub/c.bmp"):
        Image.new("L", (9, 8), 77).save(tmp_path / name)
    (tmp_path / "notes.txt").write_text("no image")
    files = photographs.in_folder(tmp_path)
    assert [file.group for file in files] == ["a.PNG", "b.png", "sub/c.bmp"]


def test_a_changed_file_is_read_anew(tmp_path: Path) -> None:
    Image.new("L", (8, 8), 10).save(tmp_path / "a.png")
    first = photographs.load(photographs.in_folder(tmp_path), colour=False, max_side=9)[0][0].pixels
    Image.new("L", (8, 8), 20).save(tmp_path / "a.png")
    second = photographs.load(photographs.in_folder(tmp_path), colour=False, max_side=9)[0][0].pixels
    assert (first[0, 0, 0] * 255).round() == 10
    assert (second[0, 0, 0] * 255).round() == 20


def test_bad_folders_and_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"data.path \(=.*nowhere\) is not a folder"):
        photographs.in_folder(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match=r"holds no image file: expected .png"):
        photographs.in_folder(tmp_path)
    (tmp_path / "broken.png").write_bytes(b"\x89PNG not really")
    with pytest.raises(ConfigError, match=r"cannot read the image .*broken.png"):
        photographs.load(photographs.in_folder(tmp_path), colour=False, max_side=512)


@pytest.mark.parametrize("chosen", ["camera", [3], 5])
def test_photographs_must_be_a_list_of_names(chosen: object) -> None:
    with pytest.raises(ConfigError, match="must be null for all, or a list of names"):
        photographs.shipped(chosen)  # type: ignore[arg-type]


def test_unknown_and_empty_choices() -> None:
    with pytest.raises(ConfigError, match=r"unknown photograph in data.photographs 'camra'. Did you mean camera"):
        photographs.shipped(["camra"])
    with pytest.raises(ConfigError, match=r"data.photographs \(=\[\]\) is empty"):
        photographs.shipped([])
