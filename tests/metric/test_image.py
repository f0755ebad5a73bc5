"""Item metrics against scikit-image and numpy in float64, and what has no score."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from skimage import metrics as oracle
from torch import Tensor

from onn_runner.errors import ConfigError
from onn_runner.metric.base import ItemMetric
from onn_runner.metric.image import Mae, Mse, Psnr, Snr, Ssim

IMAGES = [(3, 1, 48, 48), (2, 3, 11, 17), (1, 1, 33, 12)]
SIGNALS = [(2, 1, 100), (1, 3, 11)]


def pair(shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(5)
    target = torch.rand(shape, generator=generator)
    return target + 0.1 * torch.randn(shape, generator=generator), target


def scores(metric: ItemMetric, prediction: Tensor, target: Tensor) -> list[float]:
    metric.update(prediction, target)
    return metric.items().tolist()


def each(prediction: Tensor, target: Tensor) -> list[tuple[np.ndarray, np.ndarray]]:
    return list(zip(prediction.double().numpy(), target.double().numpy(), strict=True))


@pytest.mark.parametrize("shape", IMAGES + SIGNALS)
def test_psnr_mse_and_mae_are_scikit_images(shape: tuple[int, ...]) -> None:
    prediction, target = pair(shape)
    pairs = each(prediction, target)
    # Float32 means of at most 2304 values: relative error below 1e-5.
    psnr = [oracle.peak_signal_noise_ratio(clean, noisy, data_range=1) for noisy, clean in pairs]
    assert scores(Psnr(), prediction, target) == pytest.approx(psnr, rel=1e-5)
    assert scores(Mse(), prediction, target) == pytest.approx(
        [oracle.mean_squared_error(noisy, clean) for noisy, clean in pairs], rel=1e-5
    )
    assert scores(Mae(), prediction, target) == pytest.approx(
        [np.abs(noisy - clean).mean() for noisy, clean in pairs], rel=1e-5
    )


@pytest.mark.parametrize("shape", IMAGES + SIGNALS)
def test_snr_is_the_targets_variance_over_the_error(shape: tuple[int, ...]) -> None:
    prediction, target = pair(shape)
    expected = [10 * np.log10(clean.var() / ((noisy - clean) ** 2).mean()) for noisy, clean in each(prediction, target)]
    assert scores(Snr(), prediction, target) == pytest.approx(expected, abs=1e-4)


def reference_ssim(
    noisy: np.ndarray, clean: np.ndarray, *, sigma: float, window: int, data_range: float = 1.0
) -> float:
    return oracle.structural_similarity(
        noisy, clean, gaussian_weights=True, sigma=sigma, win_size=window, use_sample_covariance=False,
        data_range=data_range, channel_axis=0,
    )  # fmt: skip


@pytest.mark.parametrize("shape", IMAGES + SIGNALS)
def test_ssim_is_scikit_images(shape: tuple[int, ...]) -> None:
    prediction, target = pair(shape)
    expected = [reference_ssim(*one, sigma=1.5, window=11) for one in each(prediction, target)]
    # Variances as differences of float32 means: absolute error of some 1e-6 over c2 = 9e-4.
    assert scores(Ssim(), prediction, target) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize(
    ("shape", "window"), [((2, 1, 8, 9), 7), ((2, 1, 3, 20), 3), ((1, 2, 10, 10), 9), ((2, 1, 6), 5)]
)
def test_ssim_of_small_items_takes_the_largest_window_that_fits(shape: tuple[int, ...], window: int) -> None:
    prediction, target = pair(shape)
    sigma = (window // 2) / 3.5
    expected = [reference_ssim(*one, sigma=sigma, window=window) for one in each(prediction, target)]
    assert scores(Ssim(), prediction, target) == pytest.approx(expected, abs=1e-4)


def test_ssim_leaves_out_what_has_no_window() -> None:
    metric = Ssim()
    metric.update(*pair((2, 1, 2, 40)))
    assert metric.left_out == 2
    assert metric.compute().isnan()


def test_ssim_of_volumes_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"metric ssim scores signals and images, not 3-D items"):
        Ssim().update(*pair((1, 1, 12, 12, 12)))


def test_data_range_scales_psnr_and_ssim() -> None:
    prediction, target = pair((2, 1, 24, 24))
    for kind in (Psnr, Ssim):
        expected = scores(kind(), prediction, target)
        assert scores(kind(data_range=255), prediction * 255, target * 255) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("value", [0, -1, "1", True, None])
def test_a_data_range_that_is_none_is_refused(value: object) -> None:
    with pytest.raises(ConfigError, match=r"data_range of Psnr \(=.*\) must be the span"):
        Psnr(data_range=value)  # type: ignore[arg-type]


def test_perfect_predictions() -> None:
    _, target = pair((2, 1, 16, 16))
    assert scores(Psnr(), target, target) == [math.inf] * 2
    assert scores(Snr(), target, target) == [math.inf] * 2
    assert scores(Mse(), target, target) == [0, 0]
    assert scores(Ssim(), target, target) == pytest.approx([1, 1])


def test_constant_targets_have_no_snr_and_are_left_out_and_counted() -> None:
    prediction, target = pair((3, 1, 8, 8))
    target[1] = 0.4
    metric = Snr()
    metric.update(prediction, target)
    values = metric.items()
    assert values.isnan().tolist() == [False, True, False]
    assert metric.left_out == 1
    assert metric.compute().item() == pytest.approx(values[[0, 2]].mean().item())
    perfect = Snr()
    perfect.update(target[1:2], target[1:2])
    assert perfect.left_out == 1


@pytest.mark.parametrize("kind", [Psnr, Ssim, Snr, Mse, Mae])
def test_the_mean_is_over_items_whatever_the_batches(kind: type[ItemMetric]) -> None:
    prediction, target = pair((7, 1, 16, 16))
    whole, pieces = kind(), kind()
    whole.update(prediction, target)
    for part in (slice(0, 3), slice(3, 6), slice(6, 7)):
        pieces.update(prediction[part], target[part])
    assert pieces.compute().item() == pytest.approx(whole.compute().item(), rel=1e-6)
    assert pieces.compute().item() == pytest.approx(pieces.items().mean().item(), rel=1e-12)
    pieces.reset()
    assert len(pieces.items()) == 0


@pytest.mark.parametrize(("kind", "better"), [(Psnr, True), (Ssim, True), (Snr, True), (Mse, False), (Mae, False)])
def test_each_knows_its_better_direction(kind: type[ItemMetric], better: bool) -> None:
    _, target = pair((1, 1, 16, 16))
    noise = torch.randn(target.shape, generator=torch.Generator().manual_seed(1))
    good, bad = (scores(kind(), target + level * noise, target)[0] for level in (0.05, 0.2))
    assert kind().higher_is_better is better
    assert (good > bad) is better


def test_half_precision_predictions_are_scored_in_float32() -> None:
    prediction, target = pair((1, 1, 16, 16))
    half = prediction.to(torch.bfloat16)
    assert scores(Mse(), half, target) == pytest.approx(scores(Mse(), half.float(), target))
