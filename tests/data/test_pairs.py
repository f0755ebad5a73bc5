"""pairs: which input belongs to which target, patches at the same place, targets that are larger."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from PIL import Image
from torch.utils.data import DataLoader

from onn_runner.cli.run import main
from onn_runner.data.base import Source
from onn_runner.data.pairing import paired
from onn_runner.data.pairs import Pairs
from onn_runner.errors import ConfigError

RNG = np.random.default_rng(11)


def picture(path: Path, height: int, width: int, channels: int = 3) -> np.ndarray:
    """Random values, saved there."""
    values = RNG.integers(0, 256, (height, width, channels)).astype(np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(values[..., 0] if channels == 1 else values).save(path)
    return values.astype(np.float32) / 255


def empty(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    return folder


def names_of(found: Any) -> list[tuple[str, str]]:
    return [(one.name, two.name) for one, two in zip(found.inputs, found.targets, strict=True)]


def test_names_agree_below_the_folders_up_to_the_suffix(tmp_path: Path) -> None:
    inputs = empty(tmp_path / "in", "a.png", "sub/a.JPG", "b c=1.tif", "lone.png", "Thumbs.db")
    targets = empty(tmp_path / "out", "a.bmp", "sub/a.png", "b c=1.png", "other/a.png", "notes.txt", "more.txt")
    found = paired(str(inputs), str(targets), None, None)
    assert names_of(found) == [("a.png", "a.bmp"), ("b c=1.tif", "b c=1.png"), ("sub/a.JPG", "sub/a.png")]
    assert found.bad == [("lone.png", "has no target"), ("other/a.png", "has no input")]
    assert found.others == 3


SIDD = ["0001_x/0001_NOISY_SRGB_010.PNG", "0001_x/0001_GT_SRGB_010.PNG", "0002/0002_NOISY_SRGB_011.PNG",
        "0002/0002_GT_SRGB_011.PNG", "0003/0003_GT_SRGB_010.PNG", "0002/mask.png"]  # fmt: skip


def test_marks_tell_inputs_and_targets_of_one_folder_apart(tmp_path: Path) -> None:
    tree = str(empty(tmp_path, *SIDD))
    found = paired(tree, tree, "NOISY", "GT")
    assert names_of(found) == [(SIDD[0], SIDD[1]), (SIDD[2], SIDD[3])]
    assert found.bad == [(SIDD[4], "has no input")]
    assert found.others == 1


def test_one_mark_is_enough_and_the_longer_one_counts(tmp_path: Path) -> None:
    one = str(empty(tmp_path / "one", "a.png", "a_noisy.png", "noisy/b_noisy.png", "noisy/b.png"))
    assert names_of(paired(one, one, "_noisy", None)) == [
        ("a_noisy.png", "a.png"),
        ("noisy/b_noisy.png", "noisy/b.png"),
    ]
    two = str(empty(tmp_path / "two", "a_noisy.png", "a_noisy_gt.png"))
    assert names_of(paired(two, two, "_noisy", "_noisy_gt")) == [("a_noisy.png", "a_noisy_gt.png")]
    three = str(empty(tmp_path / "three", "a.png", "a_gt.png"))
    assert names_of(paired(three, three, None, "_gt")) == [("a.png", "a_gt.png")]


def test_marks_work_in_two_folders_and_as_numbers(tmp_path: Path) -> None:
    small = str(empty(tmp_path / "x2", "0801x2.png", "0802x2.png", "readme.png"))
    large = str(empty(tmp_path / "hr", "0801.png", "0802.png"))
    found = paired(small, large, "x2", None)
    assert names_of(found) == [("0801x2.png", "0801.png"), ("0802x2.png", "0802.png")]
    assert (found.bad, found.others) == ([], 1)
    tree = str(empty(tmp_path / "numbers", "a1.png", "a2.png"))
    assert names_of(paired(tree, tree, 1, 2)) == [("a1.png", "a2.png")]


def test_names_that_are_not_unique_are_listed(tmp_path: Path) -> None:
    inputs = str(empty(tmp_path / "in", "a.png", "a.jpg", "b.png"))
    targets = str(empty(tmp_path / "out", "a.png", "b.png"))
    found = paired(inputs, targets, None, None)
    assert names_of(found) == [("b.png", "b.png")]
    assert found.bad == [("a.jpg, a.png, a.png", "have one name for several inputs or targets")]


@pytest.mark.parametrize(
    ("names", "marks", "message"),
    [
        (["a.png"], (None, None), "are the same folder: say by data.input_mark and data.target_mark"),
        (["a.png"], ("GT", "GT"), "are the same folder"),
        (["a_GT.png"], ("NOISY", "GT"), r"data.inputs \(=.*\) holds no input: no path has data.input_mark \(=NOISY\)"),
        (["a_x.png"], ("x", "GT"), r"data.targets \(=.*\) holds no target: .*\(=GT\) in it; there are a_x.png"),
        (["a_x.png", "b_y.png"], ("x", "y"), "no file in data.inputs has a partner .* a_x.png, targets b_y.png"),
        (["a.png"], ("", "y"), r"data.input_mark \(=''\) must be the part of the file names that differs"),
        (["a.png"], ("x", True), r"data.target_mark \(=True\) must be"),
    ],
)
def test_what_gives_no_pairs_is_refused(
    names: list[str], marks: tuple[object, object], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=message):
        paired(str(empty(tmp_path, *names)), str(tmp_path), *marks)


@pytest.fixture
def folders(tmp_path: Path) -> dict[str, np.ndarray]:
    """Pairs of different sizes and kinds."""
    kept = {}
    for name, (height, width) in {"a": (30, 41), "sub/b": (25, 33), "c (1)=ü": (47, 26)}.items():
        kept[f"in/{name}.png"] = picture(tmp_path / "in" / f"{name}.png", height, width)
        kept[f"out/{name}.png"] = picture(tmp_path / "out" / f"{name}.png", height, width)
    return kept


def pairs(root: Path, **options: Any) -> Pairs:
    return Pairs(**{"inputs": str(root / "in"), "targets": str(root / "out"), "patch": 12, "patches": 3} | options)


def test_patches_of_both_are_cut_at_the_same_place(tmp_path: Path, folders: dict[str, np.ndarray]) -> None:
    found: Source = pairs(tmp_path, augmentation=False)
    assert found.shape.input == found.shape.target == (3, 12, 12)
    assert list(dict.fromkeys(found.groups)) == ["a.png", "c (1)=ü.png", "sub/b.png"]
    for index in range(len(found)):
        name, corner = found.names[index].rstrip("]").split("[")
        top, left = map(int, corner.split(","))
        for item in (found.fixed([index])[0], found.training([index], (0,))[0]):
            for side, values in (("input", folders[f"in/{name}"]), ("target", folders[f"out/{name}"])):
                patch = values[top : top + 12, left : left + 12]
                assert np.array_equal(item[side].permute(1, 2, 0), patch)
    whole = found.whole(["sub/b.png"])
    assert np.array_equal(whole[0]["input"].permute(1, 2, 0), folders["in/sub/b.png"])
    assert np.array_equal(whole[0]["target"].permute(1, 2, 0), folders["out/sub/b.png"])
    assert "training: the same in each epoch; validation and test: always the same" in found.describe()


def test_both_are_turned_alike(tmp_path: Path) -> None:
    values = RNG.integers(0, 256, (20, 20)).astype(np.uint8)
    for side, image in (("in", values), ("out", 255 - values)):
        (tmp_path / side).mkdir()
        Image.fromarray(image).save(tmp_path / side / "a.png")
    found = pairs(tmp_path)
    seen = set()
    for epoch in range(60):
        item = found.training([0], (epoch,))[0]
        # Each rounded to float32.
        torch.testing.assert_close(item["input"], 1 - item["target"], rtol=0, atol=2**-23)
        seen.add(item["target"].numpy().tobytes())
    assert len(seen) == 8
    assert "training: flips and turns fresh each epoch; validation and test: always the same" in found.describe()


@pytest.mark.parametrize("in_memory", [True, False])
@pytest.mark.parametrize("placement", ["grid", "random"])
def test_larger_targets_are_cut_in_proportion(in_memory: bool, placement: str, tmp_path: Path) -> None:
    small = {name: picture(tmp_path / "in" / f"{name}.png", *size) for name, size in SIZES.items()}
    for name, values in small.items():
        repeated = values.repeat(3, 0).repeat(3, 1) * 255
        (tmp_path / "out").mkdir(exist_ok=True)
        Image.fromarray(repeated.round().astype(np.uint8)).save(tmp_path / "out" / f"{name}.png")
    found = pairs(tmp_path, patch=[12, 15], patches=4, in_memory=in_memory, placement=placement)
    assert (found.shape.input, found.shape.target) == ((3, 4, 5), (3, 12, 15))
    assert "targets are 3 times as large as inputs" in found.describe()
    loader = DataLoader(found.training(range(len(found)), (1,)), num_workers=0 if in_memory else 2)
    for item in [*loader, *DataLoader(found.fixed(range(len(found))))]:
        enlarged = item["input"].repeat_interleave(3, 2).repeat_interleave(3, 3)
        assert torch.equal(enlarged, item["target"])
    whole = found.whole(["a.png"])[0]
    assert (whole["input"].shape, whole["target"].shape) == ((3, 9, 20), (3, 27, 60))


SIZES = {"a": (9, 20), "b": (17, 11)}


def test_memory_and_files_give_the_same(tmp_path: Path, folders: dict[str, np.ndarray]) -> None:
    kept, read = (pairs(tmp_path, in_memory=choice) for choice in (True, False))
    assert kept.fingerprint() == read.fingerprint()
    for view in (lambda one: one.training(range(9), (3,)), lambda one: one.fixed(range(9))):
        for one, two in zip(view(kept), DataLoader(view(read), batch_size=None, num_workers=2), strict=True):
            assert torch.equal(one["input"], two["input"])
            assert torch.equal(one["target"], two["target"])


def test_sides_have_their_own_colours(tmp_path: Path) -> None:
    for name, channels in (("a", 1), ("b", 1)):
        picture(tmp_path / "in" / f"{name}.png", 20, 20, channels)
        picture(tmp_path / "out" / f"{name}.png", 20, 20)
    found = pairs(tmp_path)
    assert (found.shape.input[0], found.shape.target[0]) == (1, 3)
    assert found.describe()[0].startswith("2 grey to colour pairs of images of 2 groups")
    assert [pairs(tmp_path, colour=colour).shape.input[0] for colour in (True, False)] == [3, 1]
    assert pairs(tmp_path, colour=False).shape.target[0] == 1
    picture(tmp_path / "in" / "b.png", 20, 20)
    found = pairs(tmp_path)
    assert found.shape.input[0] == 3
    assert torch.equal(*found.fixed([0])[0]["input"][:2])


def test_pairs_that_cannot_be_used_are_listed_or_left_out(tmp_path: Path, folders: dict[str, np.ndarray]) -> None:
    picture(tmp_path / "in" / "small.png", 20, 21)
    picture(tmp_path / "out" / "small.png", 20, 20)
    picture(tmp_path / "out" / "broken.png", 20, 20)
    (tmp_path / "in" / "broken.png").write_bytes(b"\x89PNG nothing")
    picture(tmp_path / "in" / "lone.png", 20, 20)
    reasons = [
        "lone.png has no target",
        "broken.png has an input (broken.png) that cannot be read: cannot identify image file",
        "small.png is 20 x 20, which is not the size of its input, 20 x 21",
    ]
    told = rf"data.inputs \(=.*in and .*out\): 3 of 6 images cannot be used: {re.escape('; '.join(reasons))}. Repair"
    with pytest.raises(ConfigError, match=told):
        pairs(tmp_path)
    found = pairs(tmp_path, skip_bad=True)
    assert set(found.groups) == {"a.png", "sub/b.png", "c (1)=ü.png"}
    assert f"3 left out (data.skip_bad=true): {'; '.join(reasons)}" in found.describe()


def test_the_fingerprint_follows_inputs_and_targets(tmp_path: Path, folders: dict[str, np.ndarray]) -> None:
    seen = {pairs(tmp_path).fingerprint(), pairs(tmp_path, patch=13).fingerprint()}
    for side in ("in", "out"):
        picture(tmp_path / side / "a.png", 30, 41)
        seen.add(pairs(tmp_path).fingerprint())
    assert len(seen) == 4


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"inputs": None}, "data=pairs needs data.inputs and data.targets"),
        ({"targets": None}, "data=pairs needs data.inputs and data.targets"),
        ({"targets": "nowhere"}, r"data.targets \(=nowhere\) is not a folder"),
        ({"inputs": 3}, r"data.inputs \(=3\) must be a folder"),
        (
            {"patch": 100},
            r"is larger than 3 of 3 images \(.*sub/b.png, is 25 x 33\): choose data.patch of at most 25$",
        ),
    ],
)
def test_bad_values_are_refused_by_name(
    options: dict[str, Any], message: str, tmp_path: Path, folders: dict[str, np.ndarray]
) -> None:
    with pytest.raises(ConfigError, match=message):
        pairs(tmp_path, **options)


def test_sizes_and_patches_must_fit_larger_targets(tmp_path: Path) -> None:
    picture(tmp_path / "in" / "a.png", 20, 20)
    picture(tmp_path / "out" / "a.png", 40, 40)
    with pytest.raises(ConfigError, match=r"data.patch \(=13 x 13\) must be a multiple of 2, as images in"):
        pairs(tmp_path, patch=13)
    with pytest.raises(ConfigError, match=r"data.max_side \(=30\) reduces pairs of equal sizes only"):
        pairs(tmp_path, max_side=30)


def test_a_run_on_one_folder_with_marks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    tree = tmp_path / "SIDD = small, (sRGB)"
    for scene in ("0001", "0002", "0003"):
        for kind in ("NOISY", "GT"):
            picture(tree / scene / f"{scene}_{kind}_SRGB_010.PNG", 26, 30)
    command = ["data=pairs", f"data.inputs={tree}", f"data.targets={tree}", "data.input_mark=NOISY", "model=conv"]
    command += ["data.target_mark=GT", r"data.groups=^(\d+)/", "data.patch=12", "data.patches=2", "dry_run=true"]
    assert main([*command, "network.channels=[2]", "trainer.workers=2", "data.in_memory=false"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert f"3 colour pairs of images of 3 groups from {tree}, sides 26 to 30" in told


def test_the_option_is_the_signature() -> None:
    option = yaml.safe_load((Path(__file__).parents[2] / "conf" / "data" / "pairs.yaml").read_text())
    assert option.pop("defaults") == [{"override /task@_global_.task": "restore"}]
    assert option.pop("_target_") == f"{Pairs.__module__}.{Pairs.__name__}"
    parameters = inspect.signature(Pairs).parameters
    assert list(option.items()) == [(key, parameter.default) for key, parameter in parameters.items()]
