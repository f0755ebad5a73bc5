"""Mean over all values of a pointwise loss of prediction - target, by name."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from onn_runner.errors import unknown

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


LOSSES: dict[str, Loss] = {"mse": mse, "l1": l1, "charbonnier": charbonnier, "huber": huber}


def named(name: str, **parameters: float) -> Loss:
    """Raises ConfigError for a name that is not in LOSSES."""
    if name not in LOSSES:
        raise unknown("task.loss", name, LOSSES)
    return partial(LOSSES[name], **parameters) if parameters else LOSSES[name]
