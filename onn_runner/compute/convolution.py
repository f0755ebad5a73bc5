"""y = sum over banks of conv(E(x), a(w)) + bias as one autograd function that keeps x and w only."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from onn_runner.compute import basis
from onn_runner.compute.base import Call
from onn_runner.compute.expansion import Bank, Expansion, banks, factor, kernels, kernels_pull_back
from onn_runner.compute.geometry import output_size, pool_factor, taps
from onn_runner.compute.once import once

TILE = 1 << 19
"""Basis values of as many samples as this holds are formed at a time: they stay in the cache, and the peak is low."""
POSITIONS = 4096
"""Gradients to weights are sums over positions, one after another: so many at a time, the rest in float64."""
FEW = 64
"""With so few weights per neuron those sums are in float64 throughout, which costs little there."""


def convolve(
    x: Tensor,  # [B, C, *S], padded
    weight: Tensor,  # [O, C/G, *k]
    gain: Tensor | None,  # [O]
    bias: Tensor | None,  # [O]
    call: Call,
    expansion: Expansion,
) -> Tensor:  # [B, O, *S']
    """The layer by its expansion, in the precision of x; it can be differentiated once."""
    output: Tensor = _Convolution.apply(x.contiguous(), weight, gain, bias, call, expansion)
    return output


class _Convolution(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        gain: Tensor | None,
        bias: Tensor | None,
        call: Call,
        expansion: Expansion,
    ) -> Tensor:
        ctx.save_for_backward(x, weight, gain)
        ctx.call, ctx.expansion = call, expansion
        plan = banks(expansion, call.groups)
        weights, constant = kernels(call, expansion, weight, _scale(call, weight, gain))
        if bias is not None:
            constant = constant + bias
        y = x.new_empty((x.shape[0], weight.shape[0], *output_size(call, x, weight)))
        for start, stop in _tiles(x, plan, call):
            seen: set[int] = set()
            for bank, kernel in zip(plan, weights, strict=True):
                members = _members(x[start:stop], bank, call, expansion)
                fresh = [index for index in bank.blocks if index not in seen]
                inner = torch.cat([_part(constant, call, index, index in fresh) for index in bank.blocks])
                if expansion.centred:
                    members, means = _centre(members, call, len(kernel))
                    inner = inner + (kernel.double().flatten(2).sum(2) * means).sum(1)
                _add(y[start:stop], _conv(members, kernel, inner.to(x.dtype), call), bank, call, seen)
                seen.update(fresh)
        return y

    @staticmethod
    @once
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, gain = ctx.saved_tensors
        call, expansion = ctx.call, ctx.expansion
        need_x, need_weight, _, need_bias = ctx.needs_input_grad[:4]
        plan = banks(expansion, call.groups)
        scale = _scale(call, weight, gain)
        with torch.autocast(x.device.type, enabled=False):
            grad = grad.contiguous()
            weights, _ = kernels(call, expansion, weight, scale)
            # in float64, since a batch may be cut into many tiles
            to_weights = [torch.zeros_like(kernel, dtype=torch.float64) for kernel in weights] if need_weight else []
            to_x = torch.empty_like(x) if need_x else None
            for start, stop in _tiles(x, plan, call) if need_x or need_weight else ():
                for position, (bank, kernel) in enumerate(zip(plan, weights, strict=True)):
                    tile = x[start:stop]
                    members = _members(tile, bank, call, expansion)
                    seen = _take(grad[start:stop], bank, call)
                    means = None
                    if expansion.centred:
                        members, means = _centre(members, call, len(kernel))
                    if need_weight:
                        _add_weight_part(to_weights[position], seen, members, kernel, call)
                        if means is not None:
                            total = seen.sum((0, *range(2, seen.dim())), dtype=torch.float64)[:, None] * means
                            to_weights[position] += total.view(*total.shape, *(1,) * (kernel.dim() - 2))
                    if to_x is not None:
                        to_members = _conv_backward(seen, members, kernel, call, [True, False, False])[0]
                        found = _pull_back(tile, to_members, bank, call, expansion)
                        to_x[start:stop] = found if position == 0 else to_x[start:stop] + found
            to_bias = grad.sum((0, *range(2, grad.dim())))
            to_weight = kernels_pull_back(call, expansion, weight, scale, to_weights, to_bias) if need_weight else None
        return to_x, to_weight, None, to_bias if need_bias else None, None, None


def _scale(call: Call, weight: Tensor, gain: Tensor | None) -> Tensor:
    """Gain and pool factor [O], float64."""
    factor = pool_factor(call.pool, taps(weight))
    if gain is None:
        return torch.full((weight.shape[0],), factor, dtype=torch.float64, device=weight.device)
    return gain.detach().to(torch.float64) * factor


def _tiles(x: Tensor, plan: tuple[Bank, ...], call: Call) -> list[tuple[int, int]]:
    """Ranges of samples whose basis values are about TILE at most."""
    if x.shape[0] == 0:
        return []
    size = max(1, TILE // (x[0].numel() * max(bank.count for bank in plan)))
    return [(start, min(x.shape[0], start + size)) for start in range(0, x.shape[0], size)]


def _slots(values: Tensor, bank: Bank, call: Call, channels: int) -> list[Tensor]:
    """Views [b, G, C/G, *S] of [b, G R C/G, *S] by ascending degree; the highest degree comes first in memory."""
    split = values.view(values.shape[0], call.groups, bank.count, channels // call.groups, *values.shape[2:])
    return [split[:, :, index] for index in reversed(range(bank.count))]


def _grouped(x: Tensor, call: Call) -> Tensor:
    return x.view(x.shape[0], call.groups, x.shape[1] // call.groups, *x.shape[2:])


def _members(x: Tensor, bank: Bank, call: Call, expansion: Expansion) -> Tensor:
    """E_r(x), or g(x), stacked on channels, [b, G R C/G, *S]."""
    if bank.form == "product":
        return _product(x, bank, call)
    values = x.new_empty((x.shape[0], bank.count * x.shape[1], *x.shape[2:]))
    basis.evaluate(_grouped(x, call), expansion.interval, bank.form, _slots(values, bank, call, x.shape[1]))
    return values


def _centre(members: Tensor, call: Call, outputs: int) -> tuple[Tensor, Tensor]:
    """The members less their means, and the means as each output's weights meet them, [O_bank, R C/G] in float64.

    Any number near the mean would do: a sparse grid of positions gives it.
    """
    sparse = members
    for axis in range(2, members.dim()):
        sparse = sparse[(slice(None),) * axis + (slice(None, None, max(1, members.shape[axis] // 16)),)]
    means = sparse.mean((0, *range(2, members.dim())))
    spread = means.double().view(call.groups, 1, -1).expand(-1, outputs // call.groups, -1)
    return members - means.view(-1, *(1,) * (members.dim() - 2)), spread.reshape(outputs, -1)


def _product(x: Tensor, bank: Bank, call: Call) -> Tensor:
    """g(x) of the one block that reads the bank."""
    (index,) = (index for index, share in zip(bank.blocks, bank.shares, strict=True) if share)
    return factor(call.blocks[index], x)


def _pull_back(x: Tensor, grad: Tensor, bank: Bank, call: Call, expansion: Expansion) -> Tensor:
    """The gradient to x [b, C, *S] from that to the members."""
    if bank.form == "product":
        leaf = x.detach().requires_grad_()
        with torch.enable_grad():
            value = _product(leaf, bank, call)
        return torch.autograd.grad(value, leaf, grad)[0] if value.requires_grad else torch.zeros_like(x)
    slots = _slots(grad.contiguous(), bank, call, x.shape[1])
    return basis.pull_back(_grouped(x, call), expansion.interval, bank.form, slots).view_as(x)


def _part(constant: Tensor, call: Call, index: int, fresh: bool) -> Tensor:
    """A block's constant, once: zeros where an earlier bank has added it."""
    block = call.blocks[index]
    part = constant[block.start : block.stop]
    return part if fresh else torch.zeros_like(part)


def _add(y: Tensor, values: Tensor, bank: Bank, call: Call, seen: set[int]) -> None:
    """Put a bank's outputs [b, O_bank, *S'] where they belong: written first, added later."""
    first = 0
    for index in bank.blocks:
        block = call.blocks[index]
        part = values[:, first : first + block.stop - block.start]
        target = y[:, block.start : block.stop]
        if index in seen:
            target.add_(part)
        else:
            target.copy_(part)
        first += block.stop - block.start


def _take(grad: Tensor, bank: Bank, call: Call) -> Tensor:
    """The gradient [b, O_bank, *S'] to a bank's outputs."""
    if len(bank.blocks) == len(call.blocks):
        return grad
    return torch.cat([grad[:, call.blocks[i].start : call.blocks[i].stop] for i in bank.blocks], 1)


def _conv(members: Tensor, kernel: Tensor, offset: Tensor, call: Call) -> Tensor:
    none = [0] * len(call.stride)
    return torch.convolution(
        members, kernel, offset, list(call.stride), none, list(call.dilation), False, none, call.groups
    )


def _add_weight_part(total: Tensor, grad: Tensor, members: Tensor, kernel: Tensor, call: Call) -> None:
    """Add the gradient to a bank's weights to `total`, in float64."""
    if kernel[0].numel() <= FEW:
        grad, members, kernel = grad.double(), members.double(), kernel.double()
    for seen, part in [(grad, members)] if kernel.dtype == torch.float64 else _parts(grad, members, kernel, call):
        total += _conv_backward(seen, part, kernel, call, [False, True, False])[1]


def _parts(grad: Tensor, members: Tensor, kernel: Tensor, call: Call) -> Iterator[tuple[Tensor, Tensor]]:
    """Outputs at about POSITIONS positions and what they see: several samples, or rows of one of them."""
    row = math.prod(grad.shape[3:])
    samples = max(1, POSITIONS // (grad.shape[2] * row))
    rows = min(grad.shape[2], max(1, POSITIONS // row))
    halo = call.dilation[0] * (kernel.shape[2] - 1) + 1
    for first in range(0, len(grad), samples):
        batch = slice(first, first + samples)
        for start in range(0, grad.shape[2], rows):
            stop = min(grad.shape[2], start + rows)
            below = slice(start * call.stride[0], (stop - 1) * call.stride[0] + halo)
            yield grad[batch, :, start:stop], members[batch, :, below]


def _conv_backward(
    grad: Tensor, members: Tensor, kernel: Tensor, call: Call, wanted: list[bool]
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients to members, weights and offset, those that are wanted."""
    none = [0] * len(call.stride)
    stride, dilation = list(call.stride), list(call.dilation)
    found: tuple[Tensor, Tensor, Tensor] = torch.ops.aten.convolution_backward(
        grad, members, kernel, None, stride, none, dilation, False, none, call.groups, wanted
    )
    return found
