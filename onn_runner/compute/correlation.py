"""The linear map of a layer, y[o,p] = sum over c, t of a[o,c,t] e[c,p+t], and its gradients, as accurate as it is fast.

Directly by torch's convolution, by `fourier` where a kernel is large and channels are few, or by `few_outputs`. Sums
are cut, since a long one in single precision loses digits: the forward one over taps, by rows of the kernel; the one
over positions, of gradients to weights; and that one over tiles, in float64.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from functools import lru_cache

import torch
from torch import Tensor

from onn_runner.compute import few_outputs, fourier
from onn_runner.compute.base import Call

TAPS = 32
"""torch sums 16 channels of all taps in one chain: so many of them leave 3e-7 of an output, 49 leave 5e-7."""
POSITIONS = 2560
"""Gradients to weights are sums over positions, one after another: so many at a time, the rest in float64."""
FEW = 256
"""With so few weights per neuron those sums are in float64 throughout, which costs little there."""

DIRECT, FOURIER = 0.028, 10.0
"""Nanoseconds of forward and backward together on one CPU core: a multiply-add of 16 by 16 channels; a complex one."""
SPECTRUM = 1 << 22
"""The most complex numbers that the transform of a bank's weights may have."""


def forward(members: Tensor, kernel: Tensor, offset: Tensor, call: Call) -> Tensor:
    """[b, O, *S'] from members [b, G C', *S], kernel [O, C', *k] and offset [O]."""
    if call.transposed:
        none = [0] * len(call.stride)
        return torch.convolution(
            members, swapped(kernel, call), offset, list(call.stride), none, list(call.dilation), True, none,
            call.groups
        )  # fmt: skip
    if _few(members, kernel, call):
        return few_outputs.forward(members, kernel, call).add_(offset.view(-1, *(1,) * len(call.stride)))
    if by_fourier(call, tuple(members.shape), tuple(kernel.shape)):
        return fourier.forward(members, kernel).add_(offset.view(-1, 1, 1))
    total: Tensor | None = None
    for start, stop in _rows(tuple(kernel.shape[2:])):
        first = start * call.dilation[0]
        last = members.shape[2] - (kernel.shape[2] - stop) * call.dilation[0]
        part = _convolution(
            members[:, :, first:last], kernel[:, :, start:stop], offset if total is None else None, call
        )
        total = part if total is None else total.add_(part)
    assert total is not None
    return total


def backward(
    grad: Tensor,  # [b, O, *S']
    members: Tensor,  # [b, G C', *S]
    kernel: Tensor,  # [O, C', *k]
    call: Call,
    *,
    total: Tensor | None,  # [O, C', *k], float64
    need_members: bool,
) -> Tensor | None:
    """The gradient to the members, if it is needed; that to the kernel is added to `total`, if there is one."""
    few_weights = total is not None and kernel[0].numel() <= FEW
    if _few(members, kernel, call):
        if total is not None:
            exact = grad.double(), members.double(), kernel.double()
            total += few_outputs.to_weight(*(exact if few_weights else (grad, members, kernel)), call)
        return few_outputs.to_input(grad, kernel, members, call) if need_members else None
    if by_fourier(call, tuple(members.shape), tuple(kernel.shape)):
        needs = need_members, total is not None and not few_weights
        to_members, to_weight = fourier.backward(grad, members, kernel, needs)
        if total is not None and to_weight is not None:
            total += to_weight
        if not few_weights:
            return to_members
    elif need_members:
        to_members = _backward(grad, members, kernel, call, [True, False, False])[0]
    else:
        to_members = None
    if total is not None:
        _add_to_weight(total, grad, members, kernel, call)
    return to_members


def _add_to_weight(total: Tensor, grad: Tensor, members: Tensor, kernel: Tensor, call: Call) -> None:
    """Add the gradient to the kernel by torch's convolution, as many positions at a time as may be."""
    if kernel[0].numel() <= FEW or kernel.dtype == torch.float64:
        pairs = iter([(grad.double(), members.double())])
        kernel = kernel.double()
    elif call.transposed:
        pairs = ((seen, part) for part, seen in _parts(members, grad, kernel, call))
    else:
        pairs = _parts(grad, members, kernel, call)
    for seen, part in pairs:
        total += _backward(seen, part, kernel, call, [False, True, False])[1]


def _few(members: Tensor, kernel: Tensor, call: Call) -> bool:
    return members.device.type == "cpu" and few_outputs.serves(call, tuple(kernel.shape))


@lru_cache(maxsize=1024)
def by_fourier(call: Call, members: tuple[int, ...], kernel: tuple[int, ...]) -> bool:
    """Whether the transform is estimated to be faster, from the shapes [b, G C', *S] and [O, C', *k]."""
    plain = call.groups == 1 and not call.transposed and {*call.stride, *call.dilation} == {1}
    if len(kernel) != 4 or not plain or 0 in members:
        return False
    rows, columns = (fourier.fast_size(n) for n in members[2:])
    spectrum = rows * (columns // 2 + 1) * kernel[0] * kernel[1]
    if spectrum > SPECTRUM:
        return False
    outputs = math.prod(n - k + 1 for n, k in zip(members[2:], kernel[2:], strict=True))
    padded = math.prod(16 * math.ceil(channels / 16) for channels in kernel[:2])
    return FOURIER * spectrum < DIRECT * padded * math.prod(kernel[2:]) * outputs


def swapped(kernel: Tensor, call: Call) -> Tensor:
    """[O, C', *k] as transposed convolutions take it, [G C', O/G, *k]."""
    split = kernel.view(call.groups, -1, *kernel.shape[1:])
    return split.transpose(1, 2).flatten(0, 1)


@lru_cache(maxsize=256)
def _rows(kernel: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    """Ranges of rows of a kernel of at most TAPS taps each, as equal as can be."""
    parts = min(kernel[0], math.ceil(math.prod(kernel) / TAPS))
    edges = [round(kernel[0] * part / parts) for part in range(parts + 1)]
    return tuple(itertools.pairwise(edges))


def _convolution(members: Tensor, kernel: Tensor, offset: Tensor | None, call: Call) -> Tensor:
    none = [0] * len(call.stride)
    return torch.convolution(
        members, kernel, offset, list(call.stride), none, list(call.dilation), False, none, call.groups
    )


def _parts(small: Tensor, large: Tensor, kernel: Tensor, call: Call) -> Iterator[tuple[Tensor, Tensor]]:
    """About POSITIONS positions and what their windows cover in `large`: several samples, or rows of one of them.

    The small one is the output of a layer, or the input of a transposed one.
    """
    row = math.prod(small.shape[3:])
    samples = max(1, POSITIONS // (small.shape[2] * row))
    parts = math.ceil(small.shape[2] * row / POSITIONS)
    rows = max(1, math.ceil(small.shape[2] / parts))
    halo = call.dilation[0] * (kernel.shape[2] - 1) + 1
    for first in range(0, len(small), samples):
        batch = slice(first, first + samples)
        for start in range(0, small.shape[2], rows):
            stop = min(small.shape[2], start + rows)
            below = slice(start * call.stride[0], (stop - 1) * call.stride[0] + halo)
            yield small[batch, :, start:stop], large[batch, :, below]


def _backward(
    grad: Tensor, members: Tensor, kernel: Tensor, call: Call, wanted: list[bool]
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients to members, weights and offset, those that are wanted."""
    none = [0] * len(call.stride)
    stride, dilation = list(call.stride), list(call.dilation)
    weight = swapped(kernel, call) if call.transposed else kernel
    found: tuple[Tensor, Tensor, Tensor] = torch.ops.aten.convolution_backward(
        grad, members, weight, None, stride, none, dilation, call.transposed, none, call.groups, wanted
    )
    if call.transposed and wanted[1]:
        split = found[1].view(call.groups, -1, *found[1].shape[1:])
        return found[0], split.transpose(1, 2).flatten(0, 1), found[2]
    return found
