"""Deblur: kernels that sum to one and mean what they say, mirrored borders, turns that keep the kernel."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import torch
from scipy.ndimage import convolve, gaussian_filter

from onn_runner.data import blur as blurs
from onn_runner.data.deblur import Deblur
from onn_runner.errors import ConfigError

SMALL: dict[str, Any] = {"photographs": ["camera", "coins"], "patches": 5, "max_side": 100, "patch": 20}
BLURS = [
    blurs.Gaussian(0.4), blurs.Gaussian(2.3), blurs.Motion(9, 30), blurs.Motion(4, 90), blurs.Motion(15, -45),
    blurs.Motion(2, 179.9), blurs.Disk(0.3), blurs.Disk(3.5), blurs.Disk(7.2),
]  # fmt: skip


@pytest.mark.parametrize("blur", BLURS, ids=repr)
def test_kernels_sum_to_one_and_lie_in_the_middle(blur: blurs.Blur) -> None:
    kernel = blur.weights()
    assert kernel.min() >= 0
    assert kernel.sum() == pytest.approx(1, abs=1e-12)
    assert all(side % 2 for side in kernel.shape)
    # A half turn only changes the order in which some weights were added.
    assert np.allclose(kernel, kernel[::-1, ::-1], rtol=0, atol=1e-13)


def test_kernels_by_hand() -> None:
    assert np.allclose(blurs.Motion(5, 0).weights(), np.full((1, 5), 0.2))
    assert np.allclose(blurs.Motion(4, 90).weights(), np.array([[0.5], [1], [1], [1], [0.5]]) / 4)
    # 45 degrees: up and to the right, a unit step is 0.707 of a pixel each way.
    diagonal = blurs.Motion(9, 45).weights()
    assert diagonal[0, -1] + diagonal[0, -2] + diagonal[1, -1] > 0
    assert diagonal[0, 0] == 0
    disk = blurs.Disk(3).weights()
    assert disk[3, 3] == pytest.approx(1 / (np.pi * 9), rel=1e-3)
    assert blurs.Disk(0.3).weights().shape == (1, 1)


def test_the_deviation_of_a_gaussian_is_its_own() -> None:
    kernel = blurs.Gaussian(2.3).weights()
    places = np.arange(len(kernel)) - len(kernel) // 2
    # Cut off at four deviations, which takes a thousandth.
    assert (kernel.sum(1) * places**2).sum() == pytest.approx(2.3**2, rel=2e-3)


@pytest.mark.parametrize("blur", BLURS, ids=repr)
def test_borders_are_mirrored(blur: blurs.Blur) -> None:
    picture = np.random.RandomState(1).rand(2, 23, 17).astype(np.float32)
    expected = np.stack([convolve(channel.astype(np.float64), blur.weights(), mode="reflect") for channel in picture])
    # The Fourier transform in float64, the result in float32.
    assert np.allclose(blurs.blurred(picture, blur.weights()), expected, atol=1e-6)


def test_items_are_cut_from_the_blurred_whole() -> None:
    source = Deblur(**SMALL, sigma=0, kernel="gaussian", blur=1.5)
    photograph = source.photographs[1].pixels.numpy()
    blurred = torch.from_numpy(gaussian_filter(photograph.astype(np.float64), (0, 1.5, 1.5), mode="reflect"))
    whole = source.whole(["coins"])
    assert whole is not None
    assert torch.allclose(whole[0]["input"], blurred.float(), atol=1e-5)
    for index in range(5, 10):
        top, left = source.places[index][1]
        item = source.fixed([index])[0]
        assert torch.equal(item["input"], whole[0]["input"][:, top : top + 20, left : left + 20])
        assert torch.equal(item["target"], source.clean(index))


@pytest.mark.parametrize(
    ("options", "turns"),
    [
        ({"kernel": "gaussian"}, 8),
        ({"kernel": "disk"}, 8),
        ({"kernel": "motion", "angle": 0}, 4),
        ({"kernel": "motion", "angle": 45}, 4),
        ({"kernel": "motion", "angle": 30}, 2),
        ({"kernel": "gaussian", "patch": [20, 24]}, 4),
        ({"kernel": "motion", "angle": 45, "patch": [20, 24]}, 2),
    ],
)
def test_only_turns_that_keep_the_kernel(options: dict[str, Any], turns: int) -> None:
    source = Deblur(**{**SMALL, "photographs": ["camera"], "sigma": 0, **options})
    seen = set()
    for epoch in range(60):
        item = source.training([2], (epoch,))[0]
        seen.add(item["target"].numpy().tobytes())
        again = blurs.blurred(item["target"].numpy(), source.kernel)
        # Away from the patch's border its own blur is that of the photograph, whichever way it was turned.
        inner = (slice(None), *(slice(side // 2, size - side // 2) for side, size in zip(
            source.kernel.shape, item["target"].shape[1:], strict=True)))  # fmt: skip
        assert np.allclose(again[inner], item["input"].numpy()[inner], atol=1e-5)
    assert len(seen) == turns


def test_noise_is_keyed_and_of_its_level() -> None:
    noisy, quiet = Deblur(**SMALL), Deblur(**SMALL, sigma=0)
    residue = torch.stack([noisy.fixed([i])[0]["input"] - quiet.fixed([i])[0]["input"] for i in range(10)])
    # 4000 values: the standard error of their deviation is 1.1 %, five times that.
    assert residue.std().item() == pytest.approx(2.55 / 255, rel=0.056)
    view = pickle.loads(pickle.dumps(noisy.training([4], (7,))))
    assert torch.equal(view[0]["input"], noisy.training([4], (7,))[0]["input"])


def test_fingerprint_changes_with_everything_that_changes_an_item() -> None:
    options: list[dict[str, Any]] = [
        {}, {"blur": 2}, {"kernel": "motion"}, {"kernel": "motion", "angle": 31}, {"kernel": "motion", "length": 8},
        {"kernel": "disk"}, {"kernel": "disk", "radius": 2}, {"sigma": 3}, {"seed": 1}, {"augmentation": False},
    ]  # fmt: skip
    prints = [Deblur(**{**SMALL, **option}).fingerprint() for option in options]
    assert len(set(prints)) == len(prints)
    assert Deblur(**SMALL, radius=2).fingerprint() == prints[0]


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"kernel": "box"}, r"unknown data.kernel 'box'. Options: disk, gaussian, motion"),
    ({"blur": 0}, r"data.blur \(=0\) must be the deviation in pixels"),
    ({"blur": 51}, r"data.blur \(=51\)"),
    ({"kernel": "motion", "length": 1}, r"data.length \(=1\) must be a whole number of at least 2"),
    ({"kernel": "motion", "length": 500}, r"data.length \(=500\) must be at most 400 pixels"),
    ({"kernel": "motion", "angle": float("inf")}, r"data.angle \(=inf\) must be an angle in degrees"),
    ({"kernel": "disk", "radius": -1}, r"data.radius \(=-1\)"),
    ({"sigma": "1"}, r"data.sigma \(='1'\)"),
    ({"blur": 20}, r"the blur's kernel \(161 x 161 pixels\) is larger than photograph 'camera' \(100 x 100\)"),
]  # fmt: skip


@pytest.mark.parametrize(("options", "message"), REFUSED, ids=[str(options) for options, _ in REFUSED])
def test_bad_values_are_refused_by_name(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Deblur(**{**SMALL, **options})
