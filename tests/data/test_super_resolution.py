"""SuperResolution: PIL's reduction, patches with the photograph's own borders, noise of the reduced picture."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from onn_runner.data.super_resolution import SuperResolution, resized
from onn_runner.errors import ConfigError

SMALL: dict[str, Any] = {"photographs": ["camera", "coins"], "patches": 6, "max_side": 130, "patch": 24}


@pytest.mark.parametrize("factor", [2, 3, 4])
def test_reducing_and_enlarging_are_pils(factor: int) -> None:
    values = np.random.RandomState(factor).rand(factor * 11, factor * 17).astype(np.float32)
    small = Image.fromarray(values).resize((17, 11), Image.Resampling.BICUBIC)
    large = small.resize((17 * factor, 11 * factor), Image.Resampling.BICUBIC)
    ours = resized(torch.from_numpy(values)[None], 1 / factor)
    # Both compute in float32 at best; values are at most about 1.
    assert np.allclose(ours[0].numpy(), np.asarray(small), atol=1e-5)
    assert np.allclose(resized(ours, factor)[0].numpy(), np.asarray(large), atol=1e-5)


@pytest.mark.parametrize("factor", [2, 3, 4])
@pytest.mark.parametrize("enlarge", [True, False])
def test_items_are_cut_from_the_whole(factor: int, enlarge: bool) -> None:
    source = SuperResolution(**SMALL, factor=factor, enlarge=enlarge)
    shrink = 1 if enlarge else factor
    assert source.shape.target == (1, 24, 24)
    assert source.shape.input == (1, 24 // shrink, 24 // shrink)
    whole = source.whole(["coins"])
    assert whole is not None
    item = whole[0]
    height, width = item["target"].shape[1:]
    assert (height % factor, width % factor) == (0, 0)
    small = resized(item["target"], 1 / factor).clamp(0, 1)
    assert torch.equal(item["input"], resized(small, factor) if enlarge else small)
    for index in [number for number, group in enumerate(source.groups) if group == "coins"]:
        top, left = source.places[index][1]
        patch = source.fixed([index])[0]
        inside = item["input"][:, top // shrink : (top + 24) // shrink, left // shrink : (left + 24) // shrink]
        assert torch.equal(patch["input"], inside)
        assert torch.equal(patch["target"], item["target"][:, top : top + 24, left : left + 24])


def test_noise_of_the_reduced_picture_is_enlarged_with_it() -> None:
    clean, noisy = (SuperResolution(**SMALL, factor=3, sigma=sigma) for sigma in (0, 20))
    residue = torch.stack([noisy.fixed([i])[0]["input"] - clean.fixed([i])[0]["input"] for i in range(len(clean))])
    small = torch.randn(200, 30, 30, generator=torch.Generator().manual_seed(0)) * 20 / 255
    expected = resized(small, 3)[:, 12:-12, 12:-12].std()
    # 12 patches of 64 small pixels: the deviation's standard error is 1/sqrt(2 x 768) = 2.6 %, four times that.
    assert residue.std().item() == pytest.approx(expected.item(), rel=0.1)
    assert not torch.equal(residue[0], residue[1])
    assert torch.equal(noisy.fixed([3])[0]["input"], noisy.fixed([3])[0]["input"])
    first, second = (noisy.training([3], (epoch,))[0] for epoch in (0, 0))
    assert torch.equal(first["input"], second["input"])
    raw = SuperResolution(**SMALL, factor=3, sigma=20, enlarge=False)
    quiet = SuperResolution(**SMALL, factor=3, enlarge=False)
    noise = torch.stack([raw.fixed([i])[0]["input"] - quiet.fixed([i])[0]["input"] for i in range(12)])
    assert noise.std().item() == pytest.approx(20 / 255, rel=0.1)


def test_views_are_picklable_and_described() -> None:
    source = SuperResolution(**SMALL, factor=2, colour=False)
    for view in (source.training([1], (2,)), source.fixed([1]), source.whole(["coins"])):
        assert view is not None
        assert torch.equal(pickle.loads(pickle.dumps(view))[0]["input"], view[0]["input"])
    assert any("reduced by 2 (bicubic, antialiased), enlarged again" in line for line in source.describe())
    assert source.describe()[-1].startswith("training: flips and turns fresh each epoch")


def test_fingerprint_changes_with_everything_that_changes_an_item() -> None:
    options: list[dict[str, Any]] = [
        {}, {"factor": 3}, {"enlarge": False}, {"sigma": 3}, {"seed": 1}, {"augmentation": False}, {"patch": 12},
    ]  # fmt: skip
    prints = [SuperResolution(**{**SMALL, **option}).fingerprint() for option in options]
    assert len(set(prints)) == len(prints)
    assert SuperResolution(**SMALL).fingerprint() == prints[0]


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"factor": 5}, r"data.factor \(=5\) must be 2, 3 or 4"),
    ({"factor": 2.0}, r"data.factor \(=2.0\)"),
    ({"factor": True}, r"data.factor \(=True\)"),
    ({"sigma": -1}, r"data.sigma \(=-1\) must be a number of grey levels .* or 0 for no noise"),
    ({"sigma": float("nan")}, r"data.sigma \(=nan\)"),
    ({"enlarge": 1}, r"data.enlarge \(=1\) must be true or false"),
    ({"patch": 25}, r"data.patch \(=25 x 25\) must be a multiple of 2, as data.factor=2 needs it: such as 24"),
]


@pytest.mark.parametrize(("options", "message"), REFUSED, ids=[str(options) for options, _ in REFUSED])
def test_bad_values_are_refused_by_name(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        SuperResolution(**{**SMALL, **options})
