"""Losses between prediction and target by name, means over all values; and mixes of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from onn_runner.errors import ConfigError, unknown
from onn_runner.metric.image import Ssim

Loss = Callable[[Tensor, Tensor], Tensor]


def mse(prediction: Tensor, target: Tensor) -> Tensor:
    return functional.mse_loss(prediction, target)


def l1(prediction: Tensor, target: Tensor) -> Tensor:
    return functional.l1_loss(prediction, target)


def charbonnier(prediction: Tensor, target: Tensor, *, epsilon: float = 1e-3) -> Tensor:
    """mean sqrt(d^2 + epsilon^2): l1 with a round bottom, epsilon wide. Source: Charbonnier et al. 1994."""
    return torch.sqrt((prediction - target).square() + epsilon**2).mean()


def huber(prediction: Tensor, target: Tensor, *, delta: float = 0.1) -> Tensor:
    """d^2 / 2 up to |d| = delta, a straight line beyond; delta is a tenth of the range of [0, 1] photographs."""
    return functional.huber_loss(prediction, target, delta=delta)


def ssim(prediction: Tensor, target: Tensor, *, span: float = 1.0) -> Tensor:
    """1 - mean SSIM of images or signals, with the window of the metric; `span` of the target's values.

    Raises ConfigError for items with another number of axes, and with a side under 3.
    """
    if target.ndim not in (3, 4) or min(target.shape[2:]) < 3:
        size = " x ".join(map(str, target.shape[2:]))
        raise ConfigError(
            f"task.loss: ssim compares signals and images with sides of at least 3, not items of {size}: "
            "choose mse, l1, charbonnier or huber."
        )
    return 1 - Ssim(span).score(prediction, target).mean()


def l1_ssim(prediction: Tensor, target: Tensor, *, span: float = 1.0) -> Tensor:
    """0.84 (1 - SSIM) + 0.16 l1 / span.

    The weights of Zhao et al. 2017, Loss Functions for Image Restoration, who used MS-SSIM and a windowed l1: their
    five scales need sides of 176.
    """
    return 0.84 * ssim(prediction, target, span=span) + 0.16 * l1(prediction, target) / span


LOSSES: dict[str, Loss] = {
    "mse": mse,
    "l1": l1,
    "charbonnier": charbonnier,
    "huber": huber,
    "ssim": ssim,
    "l1_ssim": l1_ssim,
}
RELATIVE = ("ssim", "l1_ssim")
"""Those that ask for the span of the target's values."""


def build(loss: Any, *, span: float) -> Loss:
    """`loss` is a name of LOSSES, a mapping name -> weight for the sum of such, or a function already.

    Raises ConfigError for anything else.
    """
    if isinstance(loss, str):
        return named(loss, **({"span": span} if loss in RELATIVE else {}))
    if isinstance(loss, Mapping):
        return _mixed(loss, span)
    if callable(loss):
        function: Loss = loss
        return function
    raise ConfigError(
        f"task.loss (={loss!r}) must be a name, a mapping of names to weights such as {{mse: 0.8, ssim: 0.2}}, or a "
        "function of prediction and target."
    )


def named(name: str, **parameters: float) -> Loss:
    """Raises ConfigError for a name that is not in LOSSES."""
    if name not in LOSSES:
        raise unknown("task.loss", name, LOSSES)
    return partial(LOSSES[name], **parameters) if parameters else LOSSES[name]


def _mixed(weights: Mapping[Any, Any], span: float) -> Loss:
    """The weighted sum; the weights need not sum to one."""
    if not weights:
        raise ConfigError("task.loss is an empty mapping: give names with weights, such as {mse: 0.8, ssim: 0.2}.")
    for name, weight in weights.items():
        numeric = isinstance(weight, int | float) and not isinstance(weight, bool) and math.isfinite(weight)
        if not numeric or weight <= 0:
            raise ConfigError(f"task.loss.{name} (={weight!r}) must be a positive number, the weight of this loss.")
    parts = [(build(str(name), span=span), float(weight)) for name, weight in weights.items()]

    def mixed(prediction: Tensor, target: Tensor) -> Tensor:
        return torch.stack([weight * part(prediction, target) for part, weight in parts]).sum()

    return mixed
