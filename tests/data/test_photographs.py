"""Shipped photographs are there, decode as they should, and a user's folder is read with the same care."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
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
