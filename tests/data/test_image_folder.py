"""Class folders: which files count, their classes, names and groups, one size for all, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader

from onn_runner.data.image_folder import ImageFolder
from onn_runner.errors import ConfigError, RunError


def save(path: Path, size: tuple[int, ...] = (6, 8, 3), *, seed: int = 0, dtype: Any = np.uint8) -> Any:
    """Random values up to the type's largest; [H, W] or [H, W, 3]."""
    path.parent.mkdir(parents=True, exist_ok=True)
    values = np.random.default_rng(seed).integers(0, np.iinfo(dtype).max, size=size, dtype=dtype, endpoint=True)
    Image.fromarray(values).save(path)
    return values


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Cats of two rooms and dogs, 6 x 8, in colour."""
    root = tmp_path / "pets"
    for number in range(3):
        save(root / "cats" / f"room {number % 2}" / f"{number}.png", seed=number)
        save(root / "dogs" / f"{number}.png", seed=10 + number)
    return root


def inputs(data: ImageFolder) -> torch.Tensor:
    return torch.cat([batch["input"] for batch in DataLoader(data.fixed(range(len(data))), batch_size=4)])


def test_folders_are_classes_and_files_keep_their_names(folder: Path) -> None:
    (folder / "cats" / ".hidden.png").write_bytes(b"")
    (folder / ".cache").mkdir()
    (folder / "notes.txt").write_text("seen")
    data = ImageFolder(path=str(folder))
    assert data.classes == ["cats", "dogs"]
    assert data.names[:4] == ["cats/room 0/0.png", "cats/room 0/2.png", "cats/room 1/1.png", "dogs/0.png"]
    assert data.labels == [0, 0, 0, 1, 1, 1]
    assert data.groups == data.names
    assert data.test_items is None
    assert np.array_equal(inputs(data)[3].permute(1, 2, 0).numpy() * 255, save(folder / "dogs/0.png", seed=10))
    assert "2 other files passed over" in data.describe()


@pytest.mark.parametrize("in_memory", [True, False])
@pytest.mark.parametrize("keys", [{}, {"size": 5}, {"size": [4, 9], "fit": "stretch", "colour": False}])
def test_numbers_are_the_same_in_memory_and_from_files(folder: Path, in_memory: bool, keys: dict[str, Any]) -> None:
    wanted, data = ImageFolder(path=str(folder), **keys), ImageFolder(path=str(folder), in_memory=in_memory, **keys)
    assert torch.equal(inputs(data), inputs(wanted))
    assert data.fingerprint() == wanted.fingerprint()
    subset = ImageFolder(path=str(folder), in_memory=in_memory, items=4, **keys)
    places = [data.names.index(name) for name in subset.names]
    assert torch.equal(inputs(subset), inputs(data)[places])
    assert ("read from the files" in " ".join(data.describe())) is not in_memory


def test_pictures_are_cropped_to_one_size_or_stretched(tmp_path: Path) -> None:
    wide = np.zeros((10, 30, 3), np.uint8)
    wide[:, 10:20] = 255
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        Image.fromarray(wide).save(tmp_path / name / "wide.png")
    Image.fromarray(wide[:, :10]).save(tmp_path / "a" / "square.png")
    cropped = ImageFolder(path=str(tmp_path), size=10)
    assert cropped.shape.input == (3, 10, 10)
    # The middle of the wide one, white; the square one as it is, black.
    assert [float(picture.mean()) for picture in inputs(cropped)] == [0, 1, 1]
    stretched = inputs(ImageFolder(path=str(tmp_path), size=10, fit="stretch"))
    assert [float(picture.mean()) for picture in stretched] == pytest.approx([0, 1 / 3, 1 / 3], abs=0.01)
    assert float(stretched[1][:, :, 5].mean()) > 0.9


@pytest.mark.parametrize("size", [1, 3, 7, 17, (1, 20), (13, 2)])
@pytest.mark.parametrize("fit", ["crop", "stretch"])
def test_any_size_can_be_asked_for(folder: Path, size: Any, fit: str) -> None:
    data = ImageFolder(path=str(folder), size=size, fit=fit)
    values = inputs(data)
    assert tuple(values.shape[2:]) == ((size, size) if isinstance(size, int) else size)
    assert 0 <= float(values.min()) <= float(values.max()) <= 1


def test_colour_is_kept_where_one_file_has_it(tmp_path: Path) -> None:
    grey = save(tmp_path / "a" / "grey.png", (6, 8))
    save(tmp_path / "b" / "colour.png")
    both = ImageFolder(path=str(tmp_path))
    assert both.shape.input == (3, 6, 8)
    assert np.array_equal(inputs(both)[0].numpy() * 255, np.broadcast_to(grey, (3, 6, 8)))
    assert ImageFolder(path=str(tmp_path), colour=False).shape.input == (1, 6, 8)
    save(tmp_path / "b" / "colour.png", (6, 8))
    assert ImageFolder(path=str(tmp_path)).shape.input == (1, 6, 8)
    assert ImageFolder(path=str(tmp_path), colour=True).shape.input == (3, 6, 8)


@pytest.mark.parametrize("in_memory", [True, False])
def test_more_than_8_bits_are_kept(tmp_path: Path, in_memory: bool) -> None:
    deep = save(tmp_path / "a" / "deep.png", (6, 8), dtype=np.uint16)
    plain = save(tmp_path / "b" / "plain.png", (6, 8))
    values = inputs(ImageFolder(path=str(tmp_path), in_memory=in_memory)).double().numpy()
    # Rounding to float32, far below a step of 16 bits.
    assert np.abs(values[0, 0] - deep / 65535.0).max() < 1e-7
    assert np.abs(values[1, 0] - plain / 255.0).max() < 1e-7


def test_a_second_folder_is_the_test_part(folder: Path, tmp_path: Path) -> None:
    save(tmp_path / "held" / "dogs" / "0.png", seed=10)
    data = ImageFolder(path=str(folder), test_path=str(tmp_path / "held"))
    assert data.test_items == (6,)
    assert data.labels[6] == 1
    assert data.names[5:] == ["train/dogs/2.png", "test/dogs/0.png"]
    assert "pictures that are the same as another one, which flatters on two sides of a fold: 1" in data.describe()
    save(tmp_path / "held" / "birds" / "0.png")
    with pytest.raises(ConfigError, match=r"data\.test_path has class folders that data.path has not: birds"):
        ImageFolder(path=str(folder), test_path=str(tmp_path / "held"))


def test_groups_come_from_names(folder: Path) -> None:
    data = ImageFolder(path=str(folder), groups=r"(\d)\.png")
    assert data.groups == ["0", "2", "1", "0", "1", "2"]
    assert ImageFolder(path=str(folder), groups="folder").groups[0] == "cats/room 0"


def test_what_cannot_be_used_is_listed_or_left_out(folder: Path) -> None:
    (folder / "cats" / "broken.jpg").write_bytes(b"no picture")
    (folder / "dogs" / "nothing.png").write_bytes(b"")
    (folder / "empty").mkdir()
    save(folder / "top.png")
    with pytest.raises(ConfigError) as caught:
        ImageFolder(path=str(folder))
    for part in (
        "4 of 10 entries cannot be used",
        "top.png lies in no class folder",
        "empty is a class folder without images",
        "cats/broken.jpg cannot be read",
        "dogs/nothing.png cannot be read: it is empty, 0 bytes",
        "data.skip_bad=true",
    ):
        assert part in str(caught.value)
    data = ImageFolder(path=str(folder), skip_bad=True)
    assert (len(data), data.classes) == (6, ["cats", "dogs"])
    assert any(line.startswith("4 left out (data.skip_bad=true): top.png") for line in data.describe())


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"path": None}, "needs data.path"),
        ({"path": "/does/not/exist"}, "is not a folder"),
        ({"size": 0}, r"data.size \(=0\) must be"),
        ({"size": [4, 5, 6]}, r"data.size"),
        ({"fit": "pad"}, r"unknown data.fit 'pad'"),
        ({"skip_bad": 1}, r"data.skip_bad \(=1\) must be true or false"),
        ({"colour": 1}, r"data.colour \(=1\) must be true or false"),
        ({"groups": "x"}, r"data.groups"),
        ({"test_path": "/does/not/exist"}, r"data.test_path .* is not a folder"),
    ],
)
def test_bad_values_are_refused(folder: Path, keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ImageFolder(**({"path": str(folder)} | keys))


def test_different_sizes_need_one(folder: Path) -> None:
    save(folder / "dogs" / "large.png", (9, 9, 3))
    with pytest.raises(ConfigError, match=r"2 sizes, from 6 x 8 to 9 x 9, .* data.size=64"):
        ImageFolder(path=str(folder))


def test_nothing_but_bad_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x.png").write_bytes(b"")
    with pytest.raises(ConfigError, match="none of its 1 entries can be used"):
        ImageFolder(path=str(tmp_path), skip_bad=True)
    save(tmp_path / "a" / "x.png")
    with pytest.raises(ConfigError, match="at least 2 classes, and the data has class a alone"):
        ImageFolder(path=str(tmp_path))


def test_files_that_change_or_vanish_stop_the_run(folder: Path) -> None:
    data = ImageFolder(path=str(folder), in_memory=False)
    save(folder / "dogs" / "0.png", seed=99)
    with pytest.raises(RunError, match="was changed while the run was using it"):
        data.fixed([3])[0]
    (folder / "dogs" / "0.png").unlink()
    with pytest.raises(RunError, match="can no longer be read"):
        data.fixed([3])[0]
