"""Correlations with few neurons: one matrix product to a map for each tap, and the maps shifted and added.

Convolutions compute 16 neurons at once or more, which is waste where there are 1 to 4 of them, as in the last layer of
a network that restores images. Stride 1, one group, any number of axes.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from onn_runner.compute.base import Call
from onn_runner.compute.geometry import at, tap_slices

NEURONS, MAPS = 4, 64
"""With more neurons or more maps a convolution is as fast."""
POSITIONS = 1024
"""Gradients to weights are sums over so many positions at a time; the sum over these is in float64."""


def serves(call: Call, kernel: tuple[int, ...]) -> bool:
    """Whether it is the faster way for a kernel [O, C, *k]; on CPUs, whose convolutions this is about."""
    few = kernel[0] <= NEURONS and kernel[0] * math.prod(kernel[2:]) <= MAPS
    return few and call.groups == 1 and not call.transposed and set(call.stride) == {1}


def forward(
    x: Tensor,  # [B, C, *S]
    weight: Tensor,  # [O, C, *k]
    call: Call,
) -> Tensor:  # [B, O, *S']
    """sum over c, t of w[o,c,t] x[c,p+t]."""
    maps = torch.matmul(_rows(weight), x.flatten(2)).view(len(x), len(weight), -1, *x.shape[2:])
    total: Tensor | None = None
    for tap, where in enumerate(tap_slices(call, tuple(weight.shape[2:]), _sizes(x, weight, call))):
        part = at(maps, slice(None), slice(None), tap, *where)
        total = part.clone() if total is None else total.add_(part)
    assert total is not None
    return total


def to_input(
    grad: Tensor,  # [B, O, *S']
    weight: Tensor,  # [O, C, *k]
    like: Tensor,  # [B, C, *S]
    call: Call,
) -> Tensor:
    """The gradient to x."""
    return torch.matmul(_rows(weight).T, _shifted(grad, like, weight, call)).view_as(like)


def to_weight(
    grad: Tensor,  # [B, O, *S']
    x: Tensor,  # [B, C, *S]
    like: Tensor,  # [O, C, *k]
    call: Call,
) -> Tensor:
    """The gradient to the weights, in float64."""
    shifted, flat = _shifted(grad, x, like, call), x.flatten(2)
    total = x.new_zeros((shifted.shape[1], x.shape[1]), dtype=torch.float64)
    for start in range(0, flat.shape[2], POSITIONS):
        part = slice(start, start + POSITIONS)
        for one, other in zip(shifted[..., part], flat[..., part], strict=True):
            total += one @ other.T
    return total.view(len(like), *like.shape[2:], like.shape[1]).movedim(-1, 1)


def _rows(weight: Tensor) -> Tensor:
    """[O T, C]"""
    return weight.flatten(2).transpose(1, 2).reshape(-1, weight.shape[1])


def _shifted(grad: Tensor, like: Tensor, weight: Tensor, call: Call) -> Tensor:
    """For each tap the gradient where that tap saw the input, [B, O T, prod(S)]."""
    maps = grad.new_zeros((*grad.shape[:2], math.prod(weight.shape[2:]), *like.shape[2:]))
    for tap, where in enumerate(tap_slices(call, tuple(weight.shape[2:]), tuple(grad.shape[2:]))):
        at(maps, slice(None), slice(None), tap, *where).copy_(grad)
    return maps.view(len(grad), -1, math.prod(like.shape[2:]))


def _sizes(x: Tensor, weight: Tensor, call: Call) -> tuple[int, ...]:
    axes = zip(x.shape[2:], weight.shape[2:], call.dilation, strict=True)
    return tuple(size - dilation * (taps - 1) for size, taps, dilation in axes)
