"""PSNR, SSIM, SNR, MSE and MAE of each image or signal of a batch."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torchmetrics.functional.image import peak_signal_noise_ratio, structural_similarity_index_measure

from onn_runner.checks import positive
from onn_runner.errors import ConfigError
from onn_runner.metric.base import ItemMetric

# The window of Wang et al. 2004: Gaussian of deviation 1.5, cut off at 3.5 deviations: 11 x 11.
WINDOW_RADIUS = 5
WINDOW_CUT = 3.5


def squared_error(prediction: Tensor, target: Tensor) -> Tensor:
    """[B, C, *S], [B, C, *S] -> [B]"""
    return (prediction - target).square().flatten(1).mean(1)


class Mse(ItemMetric):
    """mean (prediction - target)^2"""

    higher_is_better = False
    of_classes = False

    def score(self, prediction: Tensor, target: Tensor) -> Tensor:
        return squared_error(prediction, target)


class Mae(ItemMetric):
    """mean |prediction - target|"""

    higher_is_better = False
    of_classes = False

    def score(self, prediction: Tensor, target: Tensor) -> Tensor:
        return (prediction - target).abs().flatten(1).mean(1)


class Snr(ItemMetric):
    """10 log10(var(target) / mse) in dB, as the ONN papers report it; a constant target has none and is left out.

    torchmetrics' SignalNoiseRatio is energy over energy: another number.
    """

    higher_is_better = True
    of_classes = False

    def score(self, prediction: Tensor, target: Tensor) -> Tensor:
        flat = target.flatten(1)
        constant = flat.amax(1) == flat.amin(1)
        ratio = flat.var(1, correction=0) / squared_error(prediction, target)
        return torch.where(constant, torch.nan, 10 * ratio.log10())


class _Ranged(ItemMetric):
    """`data_range`: the span of target values, 1 for photographs in [0, 1]."""

    higher_is_better = True
    of_classes = False

    def __init__(self, data_range: float = 1.0, **options: Any) -> None:
        super().__init__(**options)
        wanted = "the span of the target's values, greater than 0, such as 1.0"
        self.data_range = positive(f"data_range of {type(self).__name__}", data_range, wanted)


class Psnr(_Ranged):
    """10 log10(range^2 / mse) in dB. A perfect prediction scores infinity, and then so does the mean: not hidden."""

    def score(self, prediction: Tensor, target: Tensor) -> Tensor:
        dims = tuple(range(1, target.ndim))
        return peak_signal_noise_ratio(prediction, target, data_range=self.data_range, reduction="none", dim=dims)


class Ssim(_Ranged):
    """Structural similarity, Gaussian window of 11 x 11 (deviation 1.5); signals with a window of 11.

    Only windows inside the image count, as in Wang et al. and scikit-image; torchmetrics' own mean also has mirrored
    borders. Sides under 11 get the largest odd window that fits, its deviation in proportion; under 3: left out.
    """

    def score(self, prediction: Tensor, target: Tensor) -> Tensor:
        if target.ndim not in (3, 4):
            raise ConfigError(
                f"metric ssim scores signals and images, not {target.ndim - 2}-D items: leave it out of metric=[...]"
            )
        radius = min(WINDOW_RADIUS, (min(target.shape[2:]) - 1) // 2)
        if radius < 1:
            return target.new_full((len(target),), torch.nan)
        deviation = 1.5 if radius == WINDOW_RADIUS else radius / WINDOW_CUT
        if target.ndim == 3:
            prediction, target = (_rows(values, 2 * radius + 1) for values in (prediction, target))
        _, similarity = structural_similarity_index_measure(
            prediction, target, sigma=deviation, data_range=self.data_range, reduction="none", return_full_image=True
        )
        return similarity[..., radius:-radius, radius:-radius].flatten(1).mean(1)


def _rows(signals: Tensor, count: int) -> Tensor:
    """[B, C, L] -> [B, C, count, L] of equal rows, over which a two-dimensional window is the one-dimensional one."""
    return signals[:, :, None].expand(-1, -1, count, -1).contiguous()
