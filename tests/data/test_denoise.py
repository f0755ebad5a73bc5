"""Denoise: noise that depends on its key alone, patches that cover, groups that are photographs, refusals that help."""

from __future__ import annotations

import pickle
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader

from onn_runner.data.base import Source
from onn_runner.data.denoise import Denoise
from onn_runner.errors import ConfigError

FEW = ["camera", "coins", "motorcycle"]


@pytest.fixture(scope="module")
def source() -> Denoise:
    return Denoise(photographs=FEW, patches=12, patch=32)


def test_default_is_an_epoch_of_a_useful_size() -> None:
    source: Source = Denoise()
    assert len(set(source.groups)) == 16
    assert 1000 < len(source) < 1300
    assert len(source) == len(source.groups) == len(source.names) == len(set(source.names))
    assert source.shape.input == source.shape.target == (1, 48, 48)
    assert "gaussian noise, sigma 25 of 255 grey levels, noisy values not clipped" in source.describe()


def test_items_are_patches_of_their_photograph(source: Denoise) -> None:
    photographs = {photo.name: photo for photo in source.photographs}
    view = source.fixed(range(len(source)))
    for index in (0, 13, 30, len(source) - 1):
        item = view[index]
        name, corner = source.names[index].rstrip("]").split("[")
        top, left = map(int, corner.split(","))
        assert torch.equal(item["target"], photographs[name].pixels[:, top : top + 32, left : left + 32])
        assert source.groups[index] == photographs[name].group
        assert item["index"] == index
        assert item["input"].shape == item["target"].shape == (1, 32, 32)
        assert item["input"].dtype == item["target"].dtype == torch.float32


def test_fixed_noise_is_the_same_whenever_whatever_was_drawn(source: Denoise) -> None:
    first = source.fixed([5])[0]["input"]
    torch.manual_seed(99)
    source.training([5, 6], ("other",))[0]
    assert torch.equal(source.fixed([9, 5])[1]["input"], first)
    assert torch.equal(Denoise(photographs=FEW, patches=12, patch=32).fixed([5])[0]["input"], first)


def test_data_seed_changes_the_noise_and_the_positions(source: Denoise) -> None:
    other = Denoise(photographs=FEW, patches=12, patch=32, seed=1)
    assert other.names != source.names
    whole, again = (one.whole(["camera"])[0]["input"] for one in (source, other))
    assert not torch.equal(whole, again)


def test_training_noise_is_a_function_of_key_and_item(source: Denoise) -> None:
    key = (0, 1, 2, 3)
    first = [source.training([4, 7], key)[place] for place in (0, 1)]
    again = [source.training([7, 4], key)[place] for place in (1, 0)]
    for one, two in zip(first, again, strict=True):
        assert torch.equal(one["input"], two["input"])
        assert torch.equal(one["target"], two["target"])
    noise = first[0]["input"] - first[0]["target"]
    for changed in ((0, 1, 2, 4), (1, 1, 2, 3), (0, 1, 0, 3)):
        item = source.training([4], changed)[0]
        assert not torch.equal(item["input"] - item["target"], noise)
    assert not torch.equal(first[1]["input"] - first[1]["target"], noise)


def test_noise_does_not_follow_the_augmentation(source: Denoise) -> None:
    residues = [item["input"] - item["target"] for item in map(source.training(range(8), (1,)).__getitem__, range(8))]
    flat = torch.stack(residues).flatten(1)
    # Independent patches of 1024 values: correlations of 1/32, five times that bounds them.
    assert (torch.corrcoef(flat) - torch.eye(8)).abs().max() < 5 / 32


def test_augmentation_gives_all_eight_orientations_and_only_these(source: Denoise) -> None:
    clean = source.clean(3)
    orientations = [torch.rot90(side, k, (1, 2)) for side in (clean, clean.flip(2)) for k in range(4)]
    seen = set()
    for epoch in range(100):
        target = source.training([3], (epoch,))[0]["target"]
        matches = [number for number, turned in enumerate(orientations) if torch.equal(turned, target)]
        assert len(matches) == 1
        seen.add(matches[0])
    assert seen == set(range(8))


def test_rectangles_are_flipped_but_not_turned() -> None:
    source = Denoise(photographs=["camera"], patch=[24, 40], patches=3)
    clean = source.clean(1)
    seen = set()
    for epoch in range(60):
        target = source.training([1], (epoch,))[0]["target"]
        flips = ([], [1], [2], [1, 2])
        seen |= {number for number, dims in enumerate(flips) if torch.equal(clean.flip(dims), target)}
    assert seen == {0, 1, 2, 3}


def test_augmentation_off_keeps_the_patch() -> None:
    source = Denoise(photographs=["camera"], augmentation=False, patches=2)
    assert all(torch.equal(source.training([1], (epoch,))[0]["target"], source.clean(1)) for epoch in range(5))


def test_clip_keeps_noisy_values_in_range() -> None:
    values = {clip: Denoise(photographs=["page"], clip=clip).fixed(range(20)) for clip in (False, True)}
    stacked = {clip: torch.stack([view[i]["input"] for i in range(20)]) for clip, view in values.items()}
    assert stacked[False].max() > 1
    assert stacked[True].min() >= 0
    assert stacked[True].max() <= 1
    assert torch.equal(stacked[False].clamp(0, 1), stacked[True])


def test_whole_photographs_have_names_sizes_and_fixed_noise(source: Denoise) -> None:
    view = source.whole(["motorcycle", "coins"])
    assert view.names == ["coins", "motorcycle_left", "motorcycle_right"]
    assert view.groups == ["coins", "motorcycle", "motorcycle"]
    assert [tuple(view[place]["target"].shape) for place in range(3)] == [(1, 303, 384), (1, 345, 512), (1, 345, 512)]
    assert torch.equal(view[0]["input"], source.whole(["coins"])[0]["input"])
    residue = (view[0]["input"] - view[0]["target"]).std().item()
    # The deviation of n values has standard error 1/sqrt(2n) of itself.
    assert residue == pytest.approx(25 / 255, rel=5 / np.sqrt(2 * 303 * 384))
    assert [view[place]["index"] for place in range(3)] == [1, 2, 3]


def test_grid_does_not_overlap_and_the_whole_grid_is_there() -> None:
    source = Denoise(photographs=["coins"], patch=48, patches=None)
    covered = torch.zeros(303, 384)
    for _, (top, left) in source.places:
        covered[top : top + 48, left : left + 48] += 1
    assert covered.max() == 1
    assert len(source) == (303 // 48) * (384 // 48)


def test_random_positions_are_distinct_and_inside() -> None:
    source = Denoise(photographs=["text"], patch=48, patches=50, placement="random")
    assert len(source) == len(set(source.places)) == 50
    assert all(0 <= top <= 172 - 48 and 0 <= left <= 448 - 48 for _, (top, left) in source.places)
    assert len({top for _, (top, _) in source.places}) > 10


def test_constant_patches_are_left_out_and_counted(tmp_path: Path) -> None:
    half = np.zeros((64, 128), dtype=np.uint8)
    half[:, 64:] = np.random.RandomState(0).randint(0, 256, (64, 64))
    Image.fromarray(half).save(tmp_path / "half.png")
    for placement in ("grid", "random"):
        source = Denoise(path=str(tmp_path), patch=32, patches=16, placement=placement)
        assert source.constant_left_out > 0
        assert all(float(source.clean(index).std()) > 0 for index in range(len(source)))
    assert len(Denoise(path=str(tmp_path), patch=32)) == 4


def test_a_users_folder_in_colour(tmp_path: Path) -> None:
    state = np.random.RandomState(0)
    for name in ("a.png", "b.png"):
        Image.fromarray(state.randint(0, 256, (50, 60, 3)).astype(np.uint8)).save(tmp_path / name)
    source = Denoise(path=str(tmp_path), colour=True, patch=20)
    assert source.shape.input == (3, 20, 20)
    assert source.describe()[0] == f"2 colour photographs of 2 scenes from {tmp_path}, sides at most 512"
    assert set(source.groups) == {"a.png", "b.png"}
    assert len(source) == 2 * 2 * 3


def test_workers_and_order_do_not_change_an_item(source: Denoise) -> None:
    view = source.training(range(12), (0, 0, 0, 5))
    alone = {item["index"]: item["input"] for item in (view[place] for place in range(12))}
    loader = DataLoader(view, batch_size=5, shuffle=True, num_workers=2, generator=torch.Generator().manual_seed(3))
    seen = 0
    for batch in loader:
        for index, value in zip(batch["index"].tolist(), batch["input"], strict=True):
            assert torch.equal(alone[index], value)
            seen += 1
    assert seen == 12


def test_views_are_picklable(source: Denoise) -> None:
    for view in (source.training([1], (2,)), source.fixed([1]), source.whole(["coins"])):
        assert torch.equal(pickle.loads(pickle.dumps(view))[0]["input"], view[0]["input"])


def test_another_process_gives_the_same_numbers(source: Denoise) -> None:
    program = (
        "from onn_runner.data.denoise import Denoise\n"
        f"s = Denoise(photographs={FEW}, patches=12, patch=32)\n"
        "items = s.fixed([5])[0], s.training([5], (0, 1))[0], s.whole(['coins'])[0]\n"
        "print(s.fingerprint(), *(repr(i['input'].double().sum().item()) for i in items))"
    )
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    items = source.fixed([5])[0], source.training([5], (0, 1))[0], source.whole(["coins"])[0]
    assert printed == [source.fingerprint(), *(repr(item["input"].double().sum().item()) for item in items)]


def test_fingerprint_changes_with_everything_that_changes_an_item() -> None:
    options: list[dict[str, Any]] = [
        {}, {"sigma": 26}, {"noise": "poisson"}, {"seed": 1}, {"patch": 40}, {"clip": True}, {"augmentation": False},
        {"patches": 9}, {"placement": "random"}, {"max_side": 256}, {"photographs": ["coins"]},
    ]  # fmt: skip
    base: dict[str, Any] = {"photographs": ["camera"], "patches": 10}
    prints = [Denoise(**{**base, **option}).fingerprint() for option in options]
    assert len(set(prints)) == len(prints)
    assert Denoise(**base).fingerprint() == prints[0]
    # The level of a noise that is not in use changes no item.
    assert Denoise(**base, peak=99).fingerprint() == prints[0]


def test_a_users_own_noise_is_taken_as_it_is() -> None:
    class Dimmer:
        def __call__(self, clean: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
            return clean * 0.5

        def describe(self) -> str:
            return "half the light"

    source = Denoise(photographs=["camera"], noise=Dimmer())
    item = source.fixed([0])[0]
    assert torch.equal(item["input"], item["target"] * 0.5)
    assert any("half the light" in line for line in source.describe())


def test_items_are_quick(source: Denoise) -> None:
    view = Denoise(photographs=FEW).training(range(100), (0,))
    best = float("inf")
    for _ in range(5):
        started = time.perf_counter()
        for place in range(100):
            view[place]
        best = min(best, (time.perf_counter() - started) / 100)
    # 30 microseconds where measured; the bound leaves room for a loaded machine.
    assert best < 300e-6


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"sigma": -3}, r"data.sigma \(=-3\) must be a number of grey levels"),
    ({"sigma": "25"}, r"data.sigma \(='25'\) must be"),
    ({"noise": "uniform"}, r"unknown data.noise 'uniform'.*Options: gaussian, poisson, salt_and_pepper, speckle"),
    ({"patch": 0}, r"data.patch \(=0\) must be a whole number of at least 1, or two: \[height, width\]"),
    ({"patch": -5}, r"data.patch \(=-5\)"),
    ({"patch": True}, r"data.patch \(=True\)"),
    ({"patch": "48"}, r"data.patch \(='48'\)"),
    ({"patch": 4.5}, r"data.patch \(=4.5\)"),
    ({"patch": [3, 4, 5]}, r"data.patch \(=\[3, 4, 5\]\)"),
    ({"patch": 200, "photographs": ["text"]}, r"\(=200 x 200\) is larger than photograph 'text' \(172 x 448\)"),
    ({"patches": 0}, r"data.patches \(=0\) must be a whole number of at least 1, or null"),
    ({"patches": None, "placement": "random"}, r"data.patches \(=None\) must be a whole number of at least 1$"),
    ({"placement": "gird"}, r"unknown data.placement 'gird'. Did you mean grid\?"),
    ({"max_side": 0}, r"data.max_side \(=0\) must be a whole number"),
    ({"max_side": 40}, r"data.patch \(=48 x 48\) is larger than 17 of 17 photographs, .* choose at most 15$"),
    ({"colour": "yes"}, r"data.colour \(='yes'\) must be true or false"),
    ({"colour": 1}, r"data.colour \(=1\) must be true or false"),
    ({"clip": None}, r"data.clip \(=None\) must be true or false"),
    ({"augmentation": "flip"}, r"data.augmentation \(='flip'\) must be true or false"),
    ({"seed": -1}, r"data.seed \(=-1\) must be a whole number of at least 0"),
    ({"seed": True}, r"data.seed \(=True\)"),
    ({"seed": 1.5}, r"data.seed \(=1.5\)"),
    ({"photographs": []}, r"data.photographs \(=\[\]\) is empty"),
    ({"photographs": ["camera"], "colour": True}, r"data.colour \(=True\) needs .* these are grey: camera"),
    ({"path": 3}, r"data.path \(=3\) must be a folder of image files, or null"),
    ({"path": ".", "photographs": ["camera"]}, r"give it or data.path, not both"),
]  # fmt: skip


@pytest.mark.parametrize(("options", "message"), REFUSED, ids=[str(options) for options, _ in REFUSED])
def test_bad_values_are_refused_by_name(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Denoise(**options)


def test_a_photograph_of_one_value_is_named(tmp_path: Path) -> None:
    Image.new("L", (60, 60), 128).save(tmp_path / "blank.png")
    held = r"photograph 'blank.png' has no patch of 48 x 48 that is not constant: take its file out of data.path, or"
    with pytest.raises(ConfigError, match=held):
        Denoise(path=str(tmp_path))


def test_how_to_leave_out_a_small_photograph_depends_on_where_it_is_from(tmp_path: Path) -> None:
    Image.new("L", (60, 60), 128).save(tmp_path / "small.png")
    with pytest.raises(ConfigError, match=r"\(60 x 60\): choose at most 60$"):
        Denoise(path=str(tmp_path), patch=61)
    Image.new("L", (80, 70), 128).save(tmp_path / "larger.png")
    with pytest.raises(ConfigError, match=r"\(60 x 60\): choose at most 60, or take its file out of data.path$"):
        Denoise(path=str(tmp_path), patch=61)
    with pytest.raises(ConfigError, match=r"2 of 2 photographs, .* 'small.png' \(60 x 60\): choose at most 60$"):
        Denoise(path=str(tmp_path), patch=81)
    with pytest.raises(ConfigError, match=r": choose at most 172, or leave it out with data.photographs$"):
        Denoise(photographs=["text", "camera"], patch=200)


def test_twelve_bits_in_a_file_of_sixteen_are_told(tmp_path: Path) -> None:
    values = np.arange(60 * 60, dtype=np.uint16).reshape(60, 60)
    for name, scale in (("dark", 1), ("right", 16)):
        Image.fromarray(values * np.uint16(scale)).save(tmp_path / f"{name}.png")
    told = Denoise(path=str(tmp_path), patch=30).describe()
    assert "no value above 0.0625 of white in dark.png: 12-bit values must be scaled to 16 bits" in told
