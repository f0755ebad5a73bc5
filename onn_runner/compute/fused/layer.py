"""A layer by the fused kernels and its gradients.

It keeps x and w, and for maximum, minimum and median which tap it was, one byte each: finding it again would cost all
T values of psi for each of the T windows that see an input.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from onn_runner.compute.base import Call, Memory
from onn_runner.compute.fused.catalogue import pooling
from onn_runner.compute.fused.refusal import why_not
from onn_runner.compute.geometry import output_size
from onn_runner.compute.twice import twice
from onn_runner.errors import ConfigError

INDEX_BYTES = 1 << 28
"""A larger index of taps is not kept but found again, for some samples at a time."""


def run(
    call: Call,
    x: Tensor,  # [B, C, *S], padded
    weight: Tensor,  # [O, C/G, *k]
    gain: Tensor | None,  # [O]
    bias: Tensor | None,  # [O]
    memory: Memory,
) -> Tensor:  # [B, O, *S']
    """The layer by the fused kernels; it can be differentiated any number of times, and repeats bit by bit.

    Of equal taps the first one has the gradient, and where a tap is NaN so is the result, as in `tapwise`. Derivatives
    after the first are those of `twice`.

    Raises ConfigError where `refuse`, `refuse_shape` or `refuse_values` has a reason.
    """
    reason = why_not(call, x, weight)
    if reason is not None:
        raise ConfigError(f"compute=fused cannot serve this layer: {reason}; use compute=auto")
    memory.chosen, memory.reason = "fused", "exact, by fused kernels"
    # asked here, since a Function is told that gradients are wanted under no_grad too
    learns = torch.is_grad_enabled() and (x.requires_grad or weight.requires_grad)
    y: Tensor = _Fused.apply(x, weight, gain, bias, call, learns)
    return y


class _Fused(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, gain: Tensor | None, bias: Tensor | None, call: Call, learns: bool
    ) -> Tensor:
        sizes = output_size(call, x, weight)
        y = x.new_empty((x.shape[0], weight.shape[0], *sizes))
        size = (x.shape[0], *weight.shape[:2], math.prod(sizes))
        keep = learns and _selects(call) and math.prod(size) <= INDEX_BYTES
        index = torch.empty(size, dtype=torch.uint8, device=x.device) if keep else None
        _forward(call, x.contiguous(), weight.contiguous(), gain, bias, y, index)
        ctx.save_for_backward(x, weight, gain, index)
        ctx.call = call
        return y

    @staticmethod
    @twice
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, gain, index = ctx.saved_tensors
        call: Call = ctx.call
        to_bias = grad.sum((0, *range(2, grad.dim()))) if ctx.needs_input_grad[3] else None
        if gain is not None:
            grad = grad * gain.view(-1, *(1,) * len(call.stride))
        to_x, to_weight = _backward(call, x, weight, grad, index, ctx.needs_input_grad)
        return to_x, to_weight, None, to_bias, None, None


def _forward(
    call: Call,
    x: Tensor,
    weight: Tensor,
    gain: Tensor | None,
    bias: Tensor | None,
    y: Tensor,
    index: Tensor | None,
) -> None:
    """Fill y and the index; x and the weight are contiguous."""
    from onn_runner.compute.fused.launch import Layer, device_of

    if x.shape[0] == 0:
        return
    layer = Layer.of(call, x, weight)
    gain, bias = (None if t is None else t.to(x.dtype).contiguous() for t in (gain, bias))
    with device_of(x):
        for block in call.blocks:
            layer.forward(block, gain, bias, y, index).run()


def _backward(
    call: Call, x: Tensor, weight: Tensor, grad: Tensor, index: Tensor | None, needs: tuple[bool, ...]
) -> tuple[Tensor | None, Tensor | None]:
    """The gradients to x and to w, as far as they are needed."""
    from onn_runner.compute.fused.launch import Layer, device_of

    x, weight, grad = x.contiguous(), weight.contiguous(), grad.contiguous()
    to_x = torch.zeros_like(x) if needs[0] else None
    to_weight = torch.zeros_like(weight, dtype=torch.float64) if needs[1] else None
    with device_of(x):
        for rows, found in _parts(call, x, weight, grad, index):
            layer = Layer.of(call, x[rows], weight)
            for block in call.blocks:
                if to_x is not None:
                    layer.backward_x(block, grad[rows], found, to_x[rows]).run()
                if to_weight is not None:
                    launch, partial = layer.backward_w(block, grad[rows], found)
                    launch.run()
                    here = to_weight[block.start : block.stop]
                    here += partial.sum(0).mul_(layer.factor).view_as(here)
    return to_x, None if to_weight is None else to_weight.to(weight.dtype)


def _parts(
    call: Call, x: Tensor, weight: Tensor, grad: Tensor, index: Tensor | None
) -> Iterator[tuple[slice, Tensor | None]]:
    """Samples with their index, which is found again where it was not kept."""
    batch = x.shape[0]
    if batch == 0:
        return
    if index is not None or not _selects(call):
        yield slice(0, batch), index
        return
    size = (*weight.shape[:2], math.prod(grad.shape[2:]))
    step = max(1, INDEX_BYTES // math.prod(size))
    for start in range(0, batch, step):
        rows = slice(start, min(batch, start + step))
        found = torch.empty((rows.stop - start, *size), dtype=torch.uint8, device=x.device)
        _forward(call, x[rows], weight, None, None, torch.empty_like(grad[rows]), found)
        yield rows, found


def _selects(call: Call) -> bool:
    return pooling(call.pool) != "sum"
