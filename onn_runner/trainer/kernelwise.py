"""CGD and AdamFast: gradient descent and Adam, the gradient of each kernel scaled down where it is large.

A kernel is what one neuron does to one map: the axes of a weight behind the first two, the last two of [O, C, h, w]
and the last one of [O, C, k]. Biases and other parameters without such axes keep their gradients.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.optim import SGD, Adam, Optimizer
from torch.optim.optimizer import ParamsT

from onn_runner.checks import positive


def rescale(gradient: Tensor, largest: float) -> None:
    """In place: each kernel's gradient times min(1, largest / max|g|)."""
    if gradient.dim() > 2:
        size = gradient.abs().amax(tuple(range(2, gradient.dim())), keepdim=True)
        gradient.mul_(largest / size.clamp_min(largest))


@torch.no_grad()
def _before_step(optimizer: Optimizer, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter.grad is not None:
                rescale(parameter.grad, group["max_gradient"])


def _prepare(optimizer: Optimizer, max_gradient: float) -> None:
    """Every group, also one added later, has the limit; it is saved and restored with the other values of a group."""
    limit = positive("optimizer.max_gradient", max_gradient, "a positive number")
    optimizer.defaults["max_gradient"] = limit
    for group in optimizer.param_groups:
        group.setdefault("max_gradient", limit)
    optimizer.register_step_pre_hook(_before_step)


class CGD(SGD):
    """Plain gradient descent without momentum, max|g| of each kernel at most `max_gradient`. Source: FastONN."""

    def __init__(
        self, params: ParamsT, lr: float = 1e-3, *, weight_decay: float = 0.0, max_gradient: float = 10.0
    ) -> None:
        super().__init__(params, lr, weight_decay=weight_decay)
        _prepare(self, max_gradient)


class AdamFast(Adam):
    """Adam, max|g| of each kernel at most `max_gradient` before the moments see it. Source: FastONN."""

    def __init__(
        self,
        params: ParamsT,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        *,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        max_gradient: float = 10.0,
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay)
        _prepare(self, max_gradient)
