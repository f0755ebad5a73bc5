"""What enlarges and deblurs without training: better than what it was given, exact where it can be, any shape."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from onn_runner.data.blur import Disk, Gaussian, Motion, blurred
from onn_runner.data.deblur import Deblur
from onn_runner.data.super_resolution import SuperResolution
from onn_runner.metric.base import ItemMetric
from onn_runner.metric.image import Psnr
from onn_runner.partition.base import Fold
from onn_runner.partition.kfold import GroupKFold
from onn_runner.task.baseline import measure
from onn_runner.task.deconvolution import AROUND, richardson_lucy, surrounded, wiener

SMALL: dict[str, Any] = {"photographs": ["camera", "coins", "page"], "patches": 4, "max_side": 120, "patch": 36}


def metrics() -> dict[str, ItemMetric]:
    return {"psnr": Psnr()}


def fold_of(source: Any) -> Fold:
    return GroupKFold(folds=3, validation=0).split(source)[0]


KERNELS = pytest.mark.parametrize("kernel", [Gaussian(1.2), Motion(7, 30), Disk(2.5)], ids=repr)


@KERNELS
def test_a_blur_without_noise_is_mostly_undone(kernel: Any) -> None:
    clean = Deblur(**SMALL).photographs[1].pixels.numpy()
    given = blurred(clean, kernel.weights())
    inner = (0, slice(10, -10), slice(10, -10))
    before = np.mean((given - clean)[inner] ** 2)
    for restored in (wiener(given, kernel.weights(), 1e-3), richardson_lucy(given, kernel.weights(), 30)):
        # 3 dB at least, away from the border, where the blur hides what lies beyond.
        assert np.mean((restored - clean)[inner] ** 2) < before / 2


@KERNELS
@pytest.mark.parametrize("shape", [(1, 41, 30), (3, 8, 25), (1, 1, 1)])
def test_any_size_keeps_its_shape(kernel: Any, shape: tuple[int, ...]) -> None:
    given = np.random.RandomState(0).normal(0.5, 0.5, shape).astype(np.float32)
    for restored in (wiener(given, kernel.weights(), 1e-2), richardson_lucy(given, kernel.weights(), 3)):
        assert restored.shape == shape
        assert restored.dtype == np.float32
        assert np.isfinite(restored).all()


def test_the_surrounding_has_no_jump_where_it_is_closed() -> None:
    channel = np.linspace(0, 1, 30 * 40, dtype=np.float32).reshape(30, 40)
    kernel = Gaussian(2).weights()
    around = surrounded(channel, kernel)
    margin = AROUND * len(kernel)
    assert around.shape == (30 + 2 * margin, 40 + 2 * margin)
    assert np.allclose(around[margin:-margin, margin:-margin], channel)
    # Plainly mirrored, the rows that meet there differ by up to 0.87.
    assert np.abs(around[0] - around[-1]).max() < 0.2


def test_deblurring_baselines_know_the_kernel() -> None:
    source = Deblur(**SMALL, sigma=1)
    results = measure(source, fold_of(source), metrics)
    assert list(results) == ["untouched input", "wiener filter", "richardson-lucy"]
    untouched = results["untouched input"].means
    for name in ("wiener filter", "richardson-lucy"):
        for split in ("test/psnr", "photo/psnr"):
            assert results[name].means[split] > untouched[split]
    assert results["wiener filter"].note.startswith("balance ")


@pytest.mark.parametrize("enlarge", [True, False])
def test_enlarging_baselines_are_the_same_from_either_input(enlarge: bool) -> None:
    source = SuperResolution(**SMALL, factor=2, enlarge=enlarge)
    results = measure(source, fold_of(source), metrics)
    assert list(results) == ["bicubic", "bicubic, sharpened"]
    whole = source.whole([source.groups[fold_of(source).test[0]]])
    assert whole is not None
    assert results["bicubic, sharpened"].means["photo/psnr"] > results["bicubic"].means["photo/psnr"]
    other = SuperResolution(**SMALL, factor=2, enlarge=not enlarge)
    again = measure(other, fold_of(other), metrics)
    # Whole photographs are enlarged alike; patches that are enlarged alone do not know their surroundings.
    assert again["bicubic"].means["photo/psnr"] == pytest.approx(results["bicubic"].means["photo/psnr"], abs=1e-4)
    assert again["bicubic"].means["test/psnr"] == pytest.approx(results["bicubic"].means["test/psnr"], abs=1)
