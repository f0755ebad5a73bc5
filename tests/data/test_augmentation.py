"""Random changes: the same for a key and an item whatever else is drawn, and one sentence for what cannot be."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf
from torch import Tensor
from torch.utils.data import DataLoader
from torchvision.transforms import v2

from onn_runner.construct import make
from onn_runner.data.augmentation import Augmentation
from onn_runner.data.digits import Digits
from onn_runner.data.held import Held
from onn_runner.data.labelled import Labelled, Labels
from onn_runner.errors import ConfigError, RunError

TRANSFORMS = [v2.RandomCrop(6, padding=2), v2.RandomHorizontalFlip(), v2.ColorJitter(brightness=0.5)]


def from_python(picture: Tensor) -> Tensor:
    """Draws as users' own transforms do."""
    return picture.roll(random.randrange(6), -1).roll(int(np.random.randint(6)), -2)


def source(*transforms: Any, count: int = 24) -> Labelled:
    pictures = torch.randint(0, 256, (count, 3, 6, 6), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    names = [f"picture[{index}]" for index in range(count)]
    about = Labels([index % 2 for index in range(count)], ["a", "b"], names, "a test")
    return Labelled(Held(pictures), about, standardise=[0.5, 0.25], transforms=list(transforms))


def inputs(data: Labelled, places: list[int], key: tuple[int | str, ...]) -> dict[int, Tensor]:
    items = data.training(range(len(data)), key).__getitems__(places)  # type: ignore[attr-defined]
    return {item["index"]: item["input"] for item in items}


@pytest.mark.parametrize("transforms", [TRANSFORMS, [from_python]], ids=["torchvision", "own"])
def test_a_draw_is_a_function_of_key_and_item(transforms: list[Any]) -> None:
    data = source(*transforms)
    first = inputs(data, list(range(24)), ("run", 0))
    torch.manual_seed(5)
    random.seed(5)
    np.random.seed(5)
    again = inputs(data, [17, 3, 20], ("run", 0))
    assert all(torch.equal(again[index], first[index]) for index in (3, 17, 20))
    alone = data.training([3], ("run", 0))[0]
    assert torch.equal(alone["input"], first[3])
    other = inputs(data, list(range(24)), ("run", 1))
    assert sum(torch.equal(first[index], other[index]) for index in range(24)) < 6


def test_workers_draw_the_same() -> None:
    data = source(*TRANSFORMS)
    view = data.training(range(24), ("run", 0))
    alone = torch.cat([part["input"] for part in DataLoader(view, batch_size=5)])
    shared = torch.cat([part["input"] for part in DataLoader(view, batch_size=5, num_workers=2)])
    assert torch.equal(alone, shared)


def test_generators_of_the_process_are_left_as_they_were() -> None:
    data = source(*TRANSFORMS, from_python)
    torch.manual_seed(1)
    random.seed(1)
    np.random.seed(1)
    wanted = torch.rand(3), random.random(), np.random.rand()
    torch.manual_seed(1)
    random.seed(1)
    np.random.seed(1)
    inputs(data, [0, 1], ("run", 0))
    found = torch.rand(3), random.random(), np.random.rand()
    assert torch.equal(wanted[0], found[0])
    assert wanted[1:] == found[1:]


def test_validation_and_test_see_pictures_as_they_are() -> None:
    plain, changed = source(), source(*TRANSFORMS)
    for index in range(3):
        assert torch.equal(plain.fixed([index])[0]["input"], changed.fixed([index])[0]["input"])
    assert plain.fingerprint() == changed.fingerprint()
    assert changed.describe()[-1] == "training: RandomCrop, RandomHorizontalFlip, ColorJitter fresh each epoch"


def test_bytes_are_changed_before_they_are_standardised() -> None:
    inverted = source(v2.RandomInvert(p=1.0))
    assert isinstance(inverted.pictures, Held)
    wanted = ((255 - inverted.pictures.values[2].double()) / 255 - 0.5) / 0.25
    assert (inverted.training([2], ("key",))[0]["input"].double() - wanted).abs().max() < 1e-6


def test_floats_in_the_unit_range_may_come_out() -> None:
    scaled = source(v2.ToDtype(torch.float32, scale=True))
    # torchvision multiplies by 1 / 255, which rounds otherwise.
    assert (scaled.training([2], ("key",))[0]["input"] - scaled.fixed([2])[0]["input"]).abs().max() < 1e-6


@pytest.mark.parametrize(
    ("transform", "message"),
    [
        (v2.RandomCrop(4), r"RandomCrop\) make 3 x 4 x 4 of 3 x 6 x 6: the size must stay"),
        (v2.RandomCrop(8), r"RandomCrop fails on a picture of 3 x 6 x 6 \(torch.uint8\): Required crop size"),
        (v2.Normalize([0.5], [0.5]), r"Normalize fails on a picture"),
        (v2.ToPILImage(), r"make Image, not a tensor"),
        (v2.ToDtype(torch.float32), r"make values from .* where floats must be in \[0, 1\]"),
        (v2.ToDtype(torch.int32), r"make torch.int32: leave uint8"),
        ({"size": 4}, r"data.transforms\[0\] .* is no transform"),
        ("flip", r"data.transforms\[0\] \(='flip'\) is no transform"),
    ],
    ids=repr,
)
def test_what_cannot_be_is_refused(transform: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        source(transform)


def test_a_failure_on_a_later_item_is_named() -> None:
    calls: list[int] = []

    def sometimes(picture: Tensor) -> Tensor:
        calls.append(1)
        if len(calls) > 1:
            raise ValueError("not twice")
        return picture

    augmentation = Augmentation([sometimes], torch.zeros(1, 2, 2))
    with pytest.raises(RunError, match=r"data.transforms: sometimes fails on a picture of 1 x 2 x 2 .*: not twice"):
        augmentation([torch.zeros(1, 2, 2)], [("key",)])


def test_a_config_names_them() -> None:
    crop = {"_target_": "torchvision.transforms.v2.RandomCrop", "size": 8, "padding": 1}
    flip = {"_target_": "torchvision.transforms.v2.RandomHorizontalFlip", "p": 0.25}
    node = OmegaConf.create({"_target_": "onn_runner.data.digits.Digits", "items": 20, "transforms": [crop, flip]})
    data = make(node, "data")
    assert isinstance(data, Digits)
    assert [type(transform) for transform in data.augmentation.transforms] == [v2.RandomCrop, v2.RandomHorizontalFlip]
    single = OmegaConf.create({"_target_": "onn_runner.data.digits.Digits", "items": 20, "transforms": crop})
    assert len(make(single, "data").augmentation.transforms) == 1


def test_none_are_none() -> None:
    for nothing in (None, [], ()):
        assert not Augmentation(nothing, torch.zeros(1, 2, 2))
