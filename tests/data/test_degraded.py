"""Degraded: input and target are cut and turned together, in proportion, whatever was made of the picture."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from onn_runner.data.degraded import SQUARE, Degraded, turned
from onn_runner.data.patches import Cutting, cutting
from onn_runner.errors import ConfigError
from onn_runner.seeding import Part, generator


@dataclass
class Lazy:
    """A picture that counts how often it is decoded."""

    name: str
    height: int
    width: int
    decoded: int = 0

    @property
    def group(self) -> str:
        return self.name[0]

    @property
    def size(self) -> tuple[int, int]:
        return self.height, self.width

    @property
    def pixels(self) -> Tensor:
        self.decoded += 1
        return torch.rand(2, self.height, self.width, generator=generator("lazy", self.name))


class Coarse(Degraded):
    """Means over blocks, in one channel: what lies where is easily checked."""

    factor = 3

    def prepared(self, number: int) -> Tensor:
        return torch.nn.functional.avg_pool2d(self.picture(number).mean(0, keepdim=True), 3)

    def degrade(self, prepared: Tensor, *key: Part) -> Tensor:
        return prepared.clone()

    def settings(self) -> tuple[object, ...]:
        return ("coarse",)

    def describe(self) -> list[str]:
        return [self.describe_cutting(), self.describe_draws("")]


def coarse(*, placement: str = "grid", patch: tuple[int, int] = (6, 6), augmentation: bool = True) -> Coarse:
    pictures = [Lazy("a1", 20, 31), Lazy("a2", 7, 8), Lazy("b", 13, 12)]
    cuts = Cutting(patch, 9, placement, 0, "leave it out", 3)
    return Coarse(pictures, cuts, augmentation=augmentation, seed=0)


@pytest.mark.parametrize("placement", ["grid", "random"])
@pytest.mark.parametrize("patch", [(6, 6), (6, 3)])
def test_a_smaller_input_is_of_the_same_place(placement: str, patch: tuple[int, int]) -> None:
    source = coarse(placement=placement, patch=patch)
    assert source.shape.input == (1, patch[0] // 3, patch[1] // 3)
    assert source.shape.target == (2, *patch)
    assert all(top % 3 == left % 3 == 0 for _, (top, left) in source.places)
    for view in (source.fixed(range(len(source))), source.training(range(len(source)), (1, 2))):
        for place in range(len(source)):
            item = view[place]
            again = torch.nn.functional.avg_pool2d(item["target"].mean(0, keepdim=True), 3)
            # The same nine values are added in another order after a turn.
            assert torch.allclose(again, item["input"], atol=1e-6)


def test_wholes_are_cropped_to_multiples() -> None:
    view = coarse().whole(["a"])
    assert view is not None
    sizes = [(tuple(view[place]["input"].shape), tuple(view[place]["target"].shape)) for place in range(2)]
    assert sizes == [((1, 6, 10), (2, 18, 30)), ((1, 2, 2), (2, 6, 6))]


def test_a_picture_is_decoded_once_to_be_cut() -> None:
    pictures = [Lazy("a", 30, 30), Lazy("b", 30, 33)]
    Coarse(pictures, Cutting((6, 6), None, "grid", 0, "", 3), augmentation=False, seed=0)
    assert pictures[1].decoded == 1


def test_what_is_drawn_is_said() -> None:
    assert coarse().describe()[1] == "training: flips and turns fresh each epoch; validation and test: always the same"
    still = coarse(augmentation=False).describe()[1]
    assert still == "training: the same in each epoch; validation and test: always the same"


def test_the_orientations_are_eight_and_undone_by_their_inverses() -> None:
    patch = torch.arange(9.0).reshape(1, 3, 3)
    seen = {tuple(turned(patch, code).flatten().tolist()) for code in SQUARE}
    assert len(seen) == 8
    assert all(any(torch.equal(turned(turned(patch, code), other), patch) for other in SQUARE) for code in SQUARE)


def test_a_patch_must_be_a_multiple() -> None:
    with pytest.raises(
        ConfigError, match=r"data.patch \(=20 x 21\) must be a multiple of 3, as data.factor=3 needs it"
    ):
        cutting([20, 21], 5, "grid", 0, leave_out="", step=3, why="data.factor=3")
