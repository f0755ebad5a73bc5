"""The image files of a folder: names that people give, other files beside them, what is refused."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import pytest

from onn_runner.data.files import find
from onn_runner.errors import ConfigError


def test_names_that_people_give_are_found_in_order(tmp_path: Path) -> None:
    folder = tmp_path / "my = photos, (best)"
    names = ["Größe.JPG", "a b=c.png", "sub/x (1),y.TIFF", "z.Jpeg"]
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    for other in ("Thumbs.db", "notes.txt", "._z.png", ".cache/a.png", "png"):
        (folder / other).parent.mkdir(exist_ok=True)
        (folder / other).touch()
    found = find(str(folder), "data.path")
    assert [file.name for file in found.files] == names
    assert [file.stem for file in found.files] == ["Größe", "a b=c", "sub/x (1),y", "z"]
    assert found.others == 5


def test_a_name_has_the_letters_composed(tmp_path: Path) -> None:
    (tmp_path / unicodedata.normalize("NFD", "Größe.png")).touch()
    (found,) = find(tmp_path, "data.path").files
    assert found.name == "Größe.png"
    assert found.path.is_file()


def test_a_name_that_is_no_text_is_written_out(tmp_path: Path) -> None:
    try:
        (tmp_path / "Gr\udcf6.png").touch()
    except (OSError, UnicodeError):
        pytest.skip("this file system takes text only")
    (found,) = find(tmp_path, "data.path").files
    assert found.name == r"Gr\udcf6.png"
    assert found.path.is_file()


def test_a_hidden_folder_above_hides_nothing(tmp_path: Path) -> None:
    folder = tmp_path / ".mine"
    folder.mkdir()
    (folder / "a.png").touch()
    assert len(find(folder, "data.path").files) == 1


@pytest.mark.parametrize("path", [None, 3, "", ["a"]])
def test_what_is_no_path_is_refused(path: object) -> None:
    with pytest.raises(ConfigError, match=r"data.inputs \(=.*\) must be a folder of image files"):
        find(path, "data.inputs")


def test_what_is_no_folder_of_images_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").touch()
    with pytest.raises(ConfigError, match=r"data.targets \(=.*\) holds no image file: expected .png, .jpg"):
        find(tmp_path, "data.targets")
    for wrong in (tmp_path / "a.txt", tmp_path / "nowhere"):
        with pytest.raises(ConfigError, match=r"data.targets \(=.*\) is not a folder"):
            find(wrong, "data.targets")


def test_links_are_followed_and_broken_ones_named(tmp_path: Path) -> None:
    real, photos = tmp_path / "real", tmp_path / "photos"
    real.mkdir()
    photos.mkdir()
    for file in (real / "a.png", photos / "b.png"):
        file.touch()
    (photos / "more").symlink_to(real)
    (photos / "again").symlink_to(photos)
    (photos / "gone.png").symlink_to(tmp_path / "nowhere.png")
    assert [file.name for file in find(photos, "data.path").files] == ["b.png", "gone.png", "more/a.png"]


def test_one_name_encoded_in_two_ways_is_refused(tmp_path: Path) -> None:
    for form in ("NFC", "NFD"):
        (tmp_path / unicodedata.normalize(form, "ü.png")).touch()
    if len(list(tmp_path.iterdir())) == 1:
        pytest.skip("this file system takes both for one name")
    with pytest.raises(ConfigError, match=r"of the same name, ü.png"):
        find(tmp_path, "data.path")
