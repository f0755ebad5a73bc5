"""images: a folder as people have it; patches that are the same from memory, from files and from workers."""

from __future__ import annotations

import inspect
import pickle
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
import torch
import yaml
from PIL import Image
from skimage import data
from torch.utils.data import DataLoader

from onn_runner.cli.run import main
from onn_runner.data.base import Source
from onn_runner.data.denoise import Denoise
from onn_runner.data.images import Images
from onn_runner.errors import ConfigError, RunError

PHOTO = data.astronaut()[:70, 60:150]
GREY = data.camera()[:61, 20:100]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three pictures of different sizes, one of them grey, one below."""
    root = tmp_path_factory.mktemp("photos")
    (root / "sub").mkdir()
    Image.fromarray(PHOTO).save(root / "a.png")
    Image.fromarray(GREY).save(root / "b.png")
    Image.fromarray(PHOTO[::-1, :40]).save(root / "sub" / "c.png")
    return root


def source(folder: Path, **options: Any) -> Images:
    return Images(**{"path": str(folder), "patch": 20, "patches": 5} | options)


def test_it_is_a_source_of_all_pictures(folder: Path) -> None:
    found: Source = source(folder)
    assert found.shape.input == found.shape.target == (3, 20, 20)
    assert list(dict.fromkeys(found.groups)) == ["a.png", "b.png", "sub/c.png"]
    assert len(found) == len(found.names) == len(set(found.names)) == 15
    assert found.data_range == (0, 1)
    lines = found.describe()
    assert lines[0] == f"3 colour images of 3 groups from {folder}, sides 40 to 90"
    assert "grey, repeated in three channels: b.png (data.colour=false makes all grey)" in lines
    assert any(line.endswith("at most 5 a photograph; patches kept in memory, 0.1 MB") for line in lines)


def test_grey_pictures_are_those_of_denoise(folder: Path) -> None:
    ours = source(folder, colour=False, seed=3)
    theirs = Denoise(path=str(folder), patch=20, patches=5, seed=3)
    assert ours.names == theirs.names
    for index in (0, 7, 14):
        for one, two in (
            (ours.fixed([index])[0], theirs.fixed([index])[0]),
            (ours.training([index], (1, 2))[0], theirs.training([index], (1, 2))[0]),
        ):
            assert torch.equal(one["input"], two["input"])
            assert torch.equal(one["target"], two["target"])


def test_items_are_patches_of_the_file(folder: Path) -> None:
    found = source(folder, augmentation=False, placement="random")
    values = {"a.png": PHOTO, "b.png": np.stack([GREY] * 3, 2), "sub/c.png": PHOTO[::-1, :40]}
    for index in range(len(found)):
        name, corner = found.names[index].rstrip("]").split("[")
        top, left = map(int, corner.split(","))
        patch = values[name][top : top + 20, left : left + 20].astype(np.float32) / 255
        for item in (found.fixed([index])[0], found.training([index], (0,))[0]):
            assert np.array_equal(item["target"].permute(1, 2, 0), patch)
            assert item["input"].shape == (3, 20, 20)


@pytest.mark.parametrize("colour", [None, False])
def test_memory_files_and_workers_give_the_same(folder: Path, colour: bool | None) -> None:
    kept, read = (source(folder, in_memory=choice, colour=colour) for choice in (True, False))
    assert "read from the files as they are needed" in " ".join(read.describe())
    assert kept.fingerprint() == read.fingerprint()
    assert kept.names == read.names
    views: list[Callable[[Images], Any]] = [
        lambda one: one.fixed(range(15)),
        lambda one: one.training(range(15), (4, 1)),
        lambda one: one.whole(["a.png", "b.png", "sub/c.png"]),
    ]
    for view in views:
        for workers in (0, 2):
            loader = DataLoader(view(read), batch_size=1, num_workers=workers)
            for one, two in zip(DataLoader(view(kept), batch_size=1), loader, strict=True):
                assert torch.equal(one["input"], two["input"])
                assert torch.equal(one["target"], two["target"])
                assert one["index"] == two["index"]
    assert pickle.loads(pickle.dumps(read)).fingerprint() == read.fingerprint()


def test_patches_are_read_from_files_where_memory_does_not_hold_them(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = source(folder).survey.size
    assert size == 5 * 20 * 20 * 4 * (3 + 1 + 3)
    for free, held in ((2 * size, True), (2 * size - 2, False)):
        monkeypatch.setattr("onn_runner.data.memory.free_bytes", lambda free=free: free)
        assert (source(folder).survey.held is not None) is held


def test_whole_images_are_scored_or_not(folder: Path) -> None:
    whole = source(folder).whole(["sub/c.png", "b.png"])
    assert whole is not None
    assert whole.names == ["b.png", "sub/c.png"]
    assert np.array_equal(whole[1]["target"].permute(1, 2, 0), PHOTO[::-1, :40].astype(np.float32) / 255)
    assert source(folder, whole=False).whole(["b.png"]) is None


def test_groups_are_folders_patterns_or_tables(folder: Path, tmp_path: Path) -> None:
    assert set(source(folder, groups="folder").groups) == {".", "sub"}
    assert set(source(folder, groups=r"(\w)\.").groups) == set("abc")
    (tmp_path / "g.csv").write_text("file,group\na.png,1\nb,2\nsub/c.png,1\n")
    found = source(folder, groups=str(tmp_path / "g.csv"))
    assert {name.split("[")[0]: group for name, group in zip(found.names, found.groups, strict=True)} == {
        "a.png": "1",
        "b.png": "2",
        "sub/c.png": "1",
    }


def test_the_fingerprint_follows_everything_that_changes_an_item(folder: Path, tmp_path: Path) -> None:
    first = source(folder).fingerprint()
    copy = tmp_path / "elsewhere"
    shutil.copytree(folder, copy)
    assert source(copy).fingerprint() == first
    for options in (
        {"colour": False},
        {"max_side": 60},
        {"patch": 21},
        {"patches": 4},
        {"placement": "random"},
        {"noise": "speckle"},
        {"sigma": 26},
        {"clip": True},
        {"augmentation": False},
        {"groups": "folder"},
        {"seed": 1},
    ):
        assert source(folder, **options).fingerprint() != first
    changed = PHOTO.copy()
    changed[-1, -1, 2] ^= 1
    Image.fromarray(changed).save(copy / "a.png")
    assert source(copy).fingerprint() != first


def test_grey_stays_grey_and_colour_can_be_asked_for(folder: Path, tmp_path: Path) -> None:
    Image.fromarray(GREY).save(tmp_path / "b.png")
    assert source(tmp_path).shape.input == (1, 20, 20)
    with pytest.raises(ConfigError, match=r"data.colour \(=True\) needs images in colour, and all of these are grey"):
        source(tmp_path, colour=True)
    assert source(folder, colour=True).shape.input == (3, 20, 20)


def test_larger_images_are_reduced_where_that_is_asked(folder: Path) -> None:
    found = source(folder, max_side=50)
    assert found.photographs[0].size == found.photographs[0].pixels.shape[1:] == (39, 50)
    assert "reduced to sides of at most 50" in found.describe()[0]


def test_a_file_that_changes_or_goes_is_named(folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "photos"
    shutil.copytree(folder, copy)
    found = source(copy, in_memory=False)
    Image.fromarray(PHOTO[:, ::-1]).save(copy / "a.png")
    with pytest.raises(RunError, match=r"the image .*a.png was changed while the run was using it"):
        found.fixed([0])[0]
    (copy / "a.png").unlink()
    with pytest.raises(RunError, match=r"the image .*a.png can no longer be read"):
        found.fixed([0])[0]


def test_twelve_bits_in_a_file_of_sixteen_are_told(tmp_path: Path) -> None:
    values = np.arange(60 * 60, dtype=np.uint16).reshape(60, 60)
    tifffile.imwrite(tmp_path / "dark.tif", values)
    told = "no value above 0.0625 of white in dark.tif: 12-bit values must be scaled to 16 bits"
    assert told in source(tmp_path).describe()
    tifffile.imwrite(tmp_path / "dark.tif", values // 100)
    with pytest.raises(ConfigError, match=r"dark.tif has no patch of 20 x 20 .* and no value above 0.0625 of white"):
        source(tmp_path)


BAD = {
    "blank.png": "has no patch of 48 x 48 that is not constant",
    "cut off.png": "cannot be read: image file is truncated",
    "empty.JPG": "cannot be read: it is empty, 0 bytes",
    "film.gif": "holds 2 pictures",
    "nan.tif": "holds values that are not numbers (NaN)",
    "one.png": "is 1 x 1, smaller than a patch of 48 x 48",
}


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as people have it: every kind of file, and names that shells and grammars trip over."""
    root = tmp_path_factory.mktemp("data") / "my = photos, (Größe)"
    root.mkdir()
    large = data.astronaut()[:110, 40:170]
    grey = data.camera()[:100, :90]
    Image.fromarray(grey.astype(np.uint16) * np.uint16(257)).save(root / "sixteen.png")
    tifffile.imwrite(root / "deep colours.TIF", large * np.uint16(257), photometric="rgb")
    Image.fromarray(large).convert("CMYK").save(root / "ink.JPG")
    Image.fromarray(large).quantize(32).save(root / "palette.png", transparency=bytes(range(32)))
    Image.fromarray(large).convert("RGBA").save(root / "über, (1) = gut.png")
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(large).save(root / "turned.jpeg", exif=exif)
    Image.new("L", (64, 64), 99).save(root / "blank.png")
    Image.new("RGB", (1, 1), "red").save(root / "one.png")
    (root / "empty.JPG").touch()
    content = (root / "über, (1) = gut.png").read_bytes()
    (root / "cut off.png").write_bytes(content[: len(content) // 2])
    tifffile.imwrite(root / "nan.tif", np.where(grey == grey[5, 5], np.nan, grey / 255).astype(np.float32))
    frames = [Image.effect_noise((50, 50), level) for level in (20, 90)]
    frames[0].save(root / "film.gif", save_all=True, append_images=frames[1:])
    for other in ("Thumbs.db", "readme.txt", "._one.png"):
        (root / other).touch()
    return root


def test_every_file_of_peoples_folders_is_handled_or_named(
    people: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    command = ["data=images", f"data.path={people}", "model=conv", "dry_run=true", "network.channels=[2]"]
    assert main(command) == 2
    reasons = "; ".join(f"{name} {reason}" for name, reason in BAD.items())
    told = " ".join(capsys.readouterr().err.split())
    assert f"data.path (={people}): 6 of 12 images cannot be used: {reasons}. Repair them or take them out" in told
    assert main([*command, "data.skip_bad=true"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert f"6 colour images of 6 groups from {people}, sides 90 to 130" in told
    assert f"6 left out (data.skip_bad=true): {reasons}" in told
    assert "3 other files passed over" in told
    assert "grey, repeated in three channels: sixteen.png" in told


def test_what_was_read_of_peoples_folders_is_the_picture(people: Path) -> None:
    found = Images(path=str(people), skip_bad=True)
    pixels = {photograph.name: photograph.pixels for photograph in found.photographs}
    large = torch.from_numpy(data.astronaut()[:110, 40:170].copy()).permute(2, 0, 1) / 255
    assert torch.equal(pixels["über, (1) = gut.png"], large)
    # 257 / 65535 and 1 / 255 are the same number, rounded once each.
    torch.testing.assert_close(pixels["deep colours.TIF"], large, rtol=2**-22, atol=0)
    assert pixels["turned.jpeg"].shape == (3, 130, 110)
    for name, level in (("ink.JPG", 8), ("palette.png", 16), ("turned.jpeg", 8)):
        upright = pixels[name].rot90(1, (1, 2)) if name == "turned.jpeg" else pixels[name]
        # Losses of JPEG at its default quality and of 32 colours, in grey levels on average.
        assert (upright - large).abs().mean() * 255 < level


def test_nothing_but_bad_files_is_refused_even_where_they_are_left_out(tmp_path: Path) -> None:
    Image.new("L", (1, 1)).save(tmp_path / "a.png")
    told = re.escape(
        "data.patch (=20 x 20) is larger than the only image, a.png (1 x 1): choose data.patch of at most 1"
    )
    with pytest.raises(ConfigError, match=told):
        source(tmp_path, skip_bad=True)


def test_at_most_ten_bad_files_are_named(tmp_path: Path) -> None:
    for number in range(13):
        (tmp_path / f"{number:02}.png").touch()
    with pytest.raises(ConfigError, match=r"none of its 13 images can be used: 00.png .*; 09.png [^;]*; and 3 more$"):
        source(tmp_path)


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"path": None}, "data=images needs data.path: a folder of clean images"),
    ({"path": 3}, r"data.path \(=3\) must be a folder of image files"),
    ({"path": "nowhere"}, r"data.path \(=nowhere\) is not a folder"),
    ({"groups": None}, r"data.groups \(=None\) must be file, folder, a pattern"),
    ({"groups": r"(\d)"}, "finds nothing in a.png, b.png, sub/c.png"),
    ({"colour": "yes"}, r"data.colour \(='yes'\) must be true or false"),
    ({"max_side": 0}, r"data.max_side \(=0\) must be a whole number"),
    ({"patch": 0}, r"data.patch \(=0\)"),
    (
        {"patch": 65},
        r"data.patch \(=65 x 65\) is larger than 2 of 3 images \(the smallest, sub/c.png, is 70 x 40\): choose "
        "data.patch of at most 40, or leave them out with data.skip_bad=true$",
    ),
    ({"patches": None, "placement": "random"}, r"data.patches \(=None\)"),
    ({"placement": "gird"}, "unknown data.placement 'gird'"),
    ({"noise": "gausian"}, "unknown data.noise 'gausian'"),
    ({"sigma": float("nan")}, r"data.sigma \(=nan\)"),
    ({"whole": 1}, r"data.whole \(=1\) must be true or false"),
    ({"skip_bad": "no"}, r"data.skip_bad \(='no'\) must be true or false"),
    ({"in_memory": "auto"}, r"data.in_memory \(='auto'\) must be true or false"),
    ({"augmentation": None}, r"data.augmentation \(=None\) must be true or false"),
    ({"seed": -1}, r"data.seed \(=-1\)"),
]


@pytest.mark.parametrize(("options", "message"), REFUSED, ids=[str(options) for options, _ in REFUSED])
def test_bad_values_are_refused_by_name(folder: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        source(folder, **options)


def test_the_option_is_the_signature() -> None:
    option = yaml.safe_load((Path(__file__).parents[2] / "conf" / "data" / "images.yaml").read_text())
    assert option.pop("defaults") == [{"override /task@_global_.task": "restore"}]
    assert option.pop("_target_") == f"{Images.__module__}.{Images.__name__}"
    parameters = inspect.signature(Images).parameters
    assert list(option.items()) == [(key, parameter.default) for key, parameter in parameters.items()]
