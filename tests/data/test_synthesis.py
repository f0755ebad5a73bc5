"""Synthesis: fixed noise of its deviation, targets that are patches of photographs, each of them once."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
import torch

from onn_runner.data.base import Source
from onn_runner.data.synthesis import Synthesis
from onn_runner.errors import ConfigError

SMALL: dict[str, Any] = {"photographs": ["camera", "coins", "moon"], "max_side": 100, "patch": [20, 24], "inputs": 5}


def test_few_inputs_have_many_targets() -> None:
    source: Source = Synthesis(**SMALL, targets=3)
    assert (source.shape.input, source.shape.target) == ((1, 20, 24), (3, 20, 24))
    assert len(source) == len(set(source.groups)) == len(set(source.names)) == 5
    assert source.whole(source.groups) is None
    items = [source.fixed(range(5))[place] for place in range(5)]
    targets = torch.cat([item["target"] for item in items])
    assert len({target.numpy().tobytes() for target in targets}) == 15
    assert targets.min() >= -1
    assert targets.max() <= 1
    # Photographs use much of their range, and more than that of [0, 1].
    assert targets.min() < -0.5
    for place, item in enumerate(items):
        again = source.training([place], (3, place))[0]
        assert torch.equal(again["input"], item["input"])
        assert torch.equal(again["target"], item["target"])


@pytest.mark.parametrize(("scale_to", "middle", "half"), [([-1, 1], 0.0, 1.0), ([0, 1], 0.5, 0.5)])
def test_noise_is_white_and_of_its_deviation(scale_to: list[int], middle: float, half: float) -> None:
    source = Synthesis(**SMALL, targets=1, deviation=0.2, scale_to=scale_to)
    noise = torch.stack([source.item(index)["input"] for index in range(5)]).flatten()
    assert source.data_range == tuple(scale_to)
    # 2400 values: five standard errors of the mean and of the deviation.
    assert noise.mean().item() == pytest.approx(middle, abs=5 * 0.2 * half / 2400**0.5)
    assert noise.std().item() == pytest.approx(0.2 * half, rel=5 / 4800**0.5)


def test_the_targets_are_patches_of_the_photographs() -> None:
    source = Synthesis(**SMALL, targets=2, scale_to=[0, 1])
    assert source.pictures.shape == (5, 2, 20, 24)
    assert len(set(source._places)) == 10
    names = [place.partition("[")[0] for place in source._places[:3]]
    assert sorted(names) == ["camera", "coins", "moon"]
    assert torch.equal(pickle.loads(pickle.dumps(source.fixed([2])))[0]["target"], source.pictures[2])


def test_fingerprint_changes_with_everything_that_changes_an_item() -> None:
    options: list[dict[str, Any]] = [
        {}, {"seed": 1}, {"deviation": 0.4}, {"scale_to": [0, 1]}, {"targets": 2}, {"inputs": 4}, {"patch": 20},
    ]  # fmt: skip
    prints = [Synthesis(**{**SMALL, **option}).fingerprint() for option in options]
    assert len(set(prints)) == len(prints)
    assert Synthesis(**SMALL).fingerprint() == prints[0]


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"inputs": 0}, r"data.inputs \(=0\) must be a whole number of at least 1"),
    ({"targets": 1.5}, r"data.targets \(=1.5\)"),
    ({"deviation": 0}, r"data.deviation \(=0\) must be a share of half the span"),
    ({"scale_to": [0, 255]}, r"data.scale_to \(=\[0, 255\]\) must be \[-1, 1\] or \[0, 1\]"),
    ({"scale_to": [False, True]}, r"data.scale_to \(=\[False, True\]\)"),
    ({"scale_to": "01"}, r"data.scale_to \(='01'\)"),
    ({"inputs": 50, "targets": 50, "patch": 98}, r"data.inputs \(=50\) times data.targets \(=50\) needs 2500 patches"),
    ({"path": 4}, r"data.path \(=4\) must be a folder"),
]


@pytest.mark.parametrize(("options", "message"), REFUSED, ids=[str(options) for options, _ in REFUSED])
def test_bad_values_are_refused_by_name(options: dict[str, Any], message: str) -> None:
    small = {**SMALL, "photographs": ["camera"]} if "path" not in options else {}
    with pytest.raises(ConfigError, match=message):
        Synthesis(**{**small, **options})
