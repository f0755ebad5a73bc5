"""Members less the common part of them, and what that part is due: where neurons cancel a large common part of their
inputs, its rounding would be what is left of them.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from onn_runner.compute import correlation
from onn_runner.compute.base import Call

COMMON = 0.5
"""Means are taken out where they are at least that part of the spread: a smaller one costs few digits where it stays,
and where most inputs are 0 taking it out would blur what neurons see that meet nothing else.
"""


def means(members: Tensor) -> Tensor:
    """Near each channel's mean, or 0 where that is small. Any would do: a sparse grid of positions gives it."""
    for axis in range(2, members.dim()):
        members = members[(slice(None),) * axis + (slice(None, None, max(1, members.shape[axis] // 16)),)]
    axes = (0, *range(2, members.dim()))
    mean, square = members.mean(axes), members.square().mean(axes)
    # |mean| > COMMON spread, with spread^2 = square - mean^2
    return torch.where(mean.square() * (1 + COMMON**2) > square * COMMON**2, mean, 0.0)


def met(means: Tensor, kernel: Tensor, call: Call) -> Tensor:
    """The means as each output's weights meet them, [O_bank, R C/G] in float64."""
    return means.double().view(call.groups, 1, -1).expand(-1, len(kernel) // call.groups, -1).reshape(len(kernel), -1)


def add_shift(total: Tensor, grad: Tensor, means: Tensor, x: Tensor, kernel: Tensor, call: Call) -> None:
    """Add to the gradient to a bank's weights [O_bank, R C/G, *k] what the means that were taken out are due."""
    due = met(means, kernel, call)
    if call.transposed:
        seen = per_tap(grad, x, kernel, call)
    else:
        seen = grad.sum((0, *range(2, grad.dim())), dtype=torch.float64).view(-1, *(1,) * (kernel.dim() - 2))
    total += due.view(*due.shape, *(1,) * (kernel.dim() - 2)) * seen[:, None]


def everywhere(constants: Tensor, x: Tensor, call: Call) -> Tensor:
    """Constants per tap [O, *k] at the outputs of a transposed layer that those taps reach, [1, O, *S'], float64."""
    ones = torch.ones((1, 1, *x.shape[2:]), dtype=torch.float64, device=x.device)
    return correlation.forward(ones, constants[:, None], constants.new_zeros(len(constants)), replace(call, groups=1))


def per_tap(grad: Tensor, x: Tensor, kernel: Tensor, call: Call) -> Tensor:
    """The gradients to constants per tap, [O, *k] in float64, of a transposed layer."""
    ones = torch.ones((len(x), 1, *x.shape[2:]), dtype=torch.float64, device=x.device)
    total = grad.new_zeros((grad.shape[1], 1, *kernel.shape[2:]), dtype=torch.float64)
    correlation.backward(grad.double(), ones, total, replace(call, groups=1), total=total, need_members=False)
    return total[:, 0]
