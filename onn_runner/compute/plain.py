"""sum_r conv(E_r(x), a_r(w)) + bias composed of differentiable operations: for any derivative, transform and export.

The same polynomials, coefficients and order of summation as `convolution` has, without its savings: what autograd keeps
is of the size of the basis. Nothing here writes in place, depends on values or keeps tensors between calls, so that
torch.func, torch.export and autograd of any order can follow it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from onn_runner.compute.base import Block, Call
from onn_runner.compute.basis import Interval, Kind, degree, signs
from onn_runner.compute.expansion import Bank, Expansion, Series, banks, emphasis, factor, rows
from onn_runner.compute.geometry import pool_kind, taps

Gradients = tuple[Tensor | None, Tensor | None, Tensor | None]
"""To x, weight and bias; None where none is needed."""


def expanded(
    call: Call,
    x: Tensor,  # [B, C, *S], padded
    weight: Tensor,  # [O, C/G, *k]
    gain: Tensor | None,  # [O]
    bias: Tensor | None,  # [O]
    expansion: Expansion,
    *,
    limited: bool = False,
) -> Tensor:  # [B, O, *S']
    """The layer by its expansion, in the precision of x.

    `limited`: inputs beyond the interval count as its end, where polynomials would leave psi at once; for networks that
    run where nobody looks at their inputs.
    """
    scale = _scale(call, weight, gain)
    series = [
        _coefficients(block, weight[block.start : block.stop], scale[block.start : block.stop], one, expansion.interval)
        for block, one in zip(call.blocks, expansion.series, strict=True)
    ]
    y: Tensor | None = None
    constants = torch.cat([at_zero for _, at_zero in series])  # [O, *k], float64
    for bank in banks(expansion, call.groups):
        members = _members(call, x, bank, expansion.interval, limited)
        kernel = torch.cat([_share(series[index][0], bank, index, expansion, weight) for index in bank.blocks])
        if expansion.centred:
            members, means = _centre(members, call, len(kernel))
            means = means.view(*means.shape, *(1,) * (kernel.dim() - 2))
            constants = constants + _spread((kernel.double() * means).sum(1), bank, call)
        part = _spread(_convolution(members, kernel, call), bank, call, axis=1)
        y = part if y is None else y + part
    assert y is not None, "a layer has a block, and a block has a bank"
    return y + _offset(constants, bias, x, call)


def gradients(
    call: Call,
    x: Tensor,  # [B, C, *S], padded
    weight: Tensor,  # [O, C/G, *k]
    gain: Tensor | None,  # [O]
    expansion: Expansion,
    grad: Tensor,  # [B, O, *S']
    needs: tuple[bool, bool, bool],
    *,
    first: Callable[[], Gradients],
) -> Gradients:
    """The gradients to x, weight and bias with a graph, so that they can be differentiated again, to any order.

    Their values are those of `first`, which need no graph: asking for more derivatives does not change the first ones.
    """
    found: Gradients = _Again.apply(x, weight, grad, gain, (call, expansion, needs, first))
    return found


class _Again(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, grad: Tensor, gain: Tensor | None, rule: Any) -> Gradients:
        ctx.save_for_backward(x, weight, grad, gain)
        ctx.set_materialize_grads(False)
        *ctx.rule, first = rule
        found: Gradients = first()
        return found

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        call, expansion, needs = ctx.rule
        again = torch.is_grad_enabled()
        with torch.enable_grad(), torch.autocast(ctx.saved_tensors[0].device.type, enabled=False):
            x, weight, grad, gain = _aliases(*ctx.saved_tensors)
            leaves = [t for t, need in zip((x, weight, grad), ctx.needs_input_grad, strict=False) if need]
            firsts = _gradients(call, x, weight, gain, expansion, grad, needs)
            pairs = [(f, g) for f, g in zip(firsts, grads, strict=True) if f is not None and g is not None]
            outputs, upstream = [f for f, _ in pairs if f.requires_grad], [g for f, g in pairs if f.requires_grad]
            if not outputs:
                return (None,) * 5
            seconds = iter(torch.autograd.grad(outputs, leaves, upstream, create_graph=again, materialize_grads=True))
        return *(next(seconds) if need else None for need in ctx.needs_input_grad[:3]), None, None


def _gradients(
    call: Call,
    x: Tensor,
    weight: Tensor,
    gain: Tensor | None,
    expansion: Expansion,
    grad: Tensor,
    needs: tuple[bool, bool, bool],
) -> Gradients:
    """The same, composed of differentiable operations."""
    x, weight = _aliases(x, weight)
    wanted = [t for t, need in zip((x, weight), needs, strict=False) if need]
    y = expanded(call, x, weight, gain, None, expansion)
    # an operator may ignore its weight, or its input
    results: Sequence[Tensor] = [torch.zeros_like(t) for t in wanted]
    if y.requires_grad and wanted:
        results = torch.autograd.grad(y, wanted, grad, create_graph=True, materialize_grads=True)
    found = iter(results)
    to_x, to_weight = (next(found) if need else None for need in needs[:2])
    return to_x, to_weight, grad.sum((0, *range(2, grad.dim()))) if needs[2] else None


def _aliases(*tensors: Any) -> list[Any]:
    """The same tensors as others: derivatives by these follow no path through what they were computed from."""
    return [None if t is None else t.view_as(t) for t in tensors]


def _scale(call: Call, weight: Tensor, gain: Tensor | None) -> Tensor:
    """Gain and pool factor [O], float64."""
    count = taps(weight)
    pooled = call.pool(torch.ones((count, 1), dtype=torch.float64, device=weight.device), 0)
    scale = pooled.expand(weight.shape[0]) / (count if pool_kind(call.pool) in ("sum", "mean") else 1)
    return scale if gain is None else scale * gain.detach().double()


@lru_cache(maxsize=256)
def _nodes(kind: Kind, count: int, interval: Interval) -> tuple[list[float], list[list[float]]]:
    """What `basis.transform` gives, as numbers: tensors made inside a transform must not outlive it in a cache."""
    nodes = {"odd": 2 * count, "even": 2 * count + 1, "line": count + 1}[kind]
    angles = [(j + 0.5) * math.pi / nodes for j in range(nodes if kind == "line" else nodes // 2)]
    weight = 2 / nodes if kind == "line" else 4 / nodes
    matrix = [
        [sign * weight * math.cos(degree(kind, index) * angle) for angle in angles]
        for index, sign in enumerate(signs(kind, count))
    ]
    return [interval.centre + interval.half * math.cos(angle) for angle in angles], matrix


def _coefficients(
    block: Block,
    weight: Tensor,  # [o, C/G, *k]
    scale: Tensor,  # [o]
    series: Series,
    interval: Interval,
) -> tuple[Tensor, Tensor]:
    """The coefficients [R, o, C/G, *k] in ascending degree, and sum_c psi(w, 0) [o, *k], both float64 and scaled."""
    w = weight.double()
    over = scale.view(-1, *(1,) * (w.dim() - 1))
    if series.form == "product":
        return (w * over)[None], torch.zeros_like(w[:, 0])
    numbers, rows_of = _nodes(series.kind, series.count, interval)
    points = torch.tensor([*numbers, 0.0], dtype=torch.float64, device=w.device)
    matrix = torch.tensor(rows_of, dtype=torch.float64, device=w.device)
    flat = w.reshape(1, -1)
    values = block.nodal(flat, points[:, None]).double().expand(len(points), flat.shape[1])
    coefficients = (matrix @ (values[:-1] - values[-1:])).view(series.count, *w.shape)
    return coefficients * over, (values[-1].view(w.shape) * over).sum(1)


def _share(coefficients: Tensor, bank: Bank, index: int, expansion: Expansion, weight: Tensor) -> Tensor:
    """A block's part [o, R C/G, *k] of a bank's weights: mixed, or the highest degree first and zeros before it."""
    share = bank.shares[bank.blocks.index(index)]
    own = coefficients[:0]
    if share:
        where = rows(expansion.series[index], bank.form)
        own = where.signed(coefficients[where.take])
    if bank.mix is not None:
        numbers = torch.tensor(bank.mix.rows, dtype=torch.float64, device=weight.device)[:, :share]
        onto = numbers * emphasis(bank.mix.form, share).to(weight.device).square()
        own = (onto @ own.flatten(1)).view(-1, *own.shape[1:])
    else:
        own = torch.cat([own.new_zeros((bank.count - share, *own.shape[1:])), own.flip(0)])
    kernel = own.transpose(0, 1).reshape(own.shape[1], bank.count * weight.shape[1], *weight.shape[2:])
    return kernel.to(weight.dtype)


def _members(call: Call, x: Tensor, bank: Bank, interval: Interval, limited: bool) -> Tensor:
    """E_r(x), mixtures of them, or g(x), stacked on channels, [B, G R C/G, *S], in the order of the weights."""
    if bank.form == "product":
        (index,) = (index for index, share in zip(bank.blocks, bank.shares, strict=True) if share)
        return factor(call.blocks[index], x)
    z = (x.clamp(interval.low, interval.high) if limited else x) * (1 / interval.half)
    members = _odd(z, bank.members) if bank.form == "odd" else _line(z, bank, interval)
    if bank.mix is None:
        grouped = [m.reshape(m.shape[0], call.groups, -1, *m.shape[2:]) for m in reversed(members)]
        return torch.cat(grouped, 2).reshape(x.shape[0], bank.count * x.shape[1], *x.shape[2:])
    stacked = torch.stack([m.reshape(m.shape[0], call.groups, -1) for m in members], 2)
    matrix = torch.tensor(bank.mix.rows, dtype=x.dtype, device=x.device)
    return torch.matmul(matrix, stacked).reshape(x.shape[0], bank.count * x.shape[1], *x.shape[2:])


def _odd(z: Tensor, count: int) -> list[Tensor]:
    """T_1(z), T_3(z), ... with the signs of `basis`."""
    step = z.square() * 4 - 2
    sign, found = signs("odd", count), [z]
    for index in range(1, count):
        before = found[index - 2] if index > 1 else z
        found.append(torch.addcmul(before, step, found[-1], value=sign[index] * sign[index - 1]))
    return found


def _line(z: Tensor, bank: Bank, interval: Interval) -> list[Tensor]:
    """T_r(t) - T_r(t at x = 0) for r = 1, 2, ... (line), or in T_2 (even), with the signs of `basis`."""
    zero = -1.0 if bank.form == "even" else interval.zero
    first = z.square() * 2 if bank.form == "even" else z
    twice = (first + zero) * 2
    sign, found, pinned = signs("line", bank.members), [first], [1.0, zero]
    for index in range(1, bank.members):
        value = sign[index] * sign[index - 1]
        member = twice * found[-1] if index == 1 else torch.addcmul(found[-2], twice, found[-1], value=value)
        if pinned[index] != 0:
            member = member + first * (2 * sign[index] * pinned[index])
        found.append(member)
        pinned.append(2 * zero * pinned[-1] - pinned[-2])
    return found


def _centre(members: Tensor, call: Call, outputs: int) -> tuple[Tensor, Tensor]:
    """The members less their means, and the means as each output's weights meet them, [O_bank, R C/G] in float64.

    Whatever is taken out is put back with the constants, so that the means are constants to every derivative.
    """
    sparse = members.detach()
    for axis in range(2, members.dim()):
        sparse = sparse[(slice(None),) * axis + (slice(None, None, max(1, members.shape[axis] // 16)),)]
    means = sparse.mean((0, *range(2, members.dim())))
    spread = means.double().view(call.groups, 1, -1).expand(-1, outputs // call.groups, -1)
    return members - means.view(-1, *(1,) * (members.dim() - 2)), spread.reshape(outputs, -1)


def _convolution(members: Tensor, kernel: Tensor, call: Call) -> Tensor:
    none = [0] * len(call.stride)
    if call.transposed:
        # torch wants [G R C/G, O_bank/G, *k]
        split = kernel.view(call.groups, -1, *kernel.shape[1:]).transpose(1, 2)
        kernel = split.reshape(-1, *split.shape[2:])
    return torch.convolution(
        members, kernel, None, list(call.stride), none, list(call.dilation), call.transposed, none, call.groups
    )


def _spread(values: Tensor, bank: Bank, call: Call, axis: int = 0) -> Tensor:
    """A bank's values along the outputs `axis` [O_bank] at their places among all outputs [O], zeros elsewhere."""
    if len(bank.blocks) == len(call.blocks):
        return values
    parts, first = [], 0
    for index, block in enumerate(call.blocks):
        size = block.stop - block.start
        if index in bank.blocks:
            parts.append(values.narrow(axis, first, size))
            first += size
        else:
            shape = list(values.shape)
            shape[axis] = size
            parts.append(values.new_zeros(shape))
    return torch.cat(parts, axis)


def _offset(constants: Tensor, bias: Tensor | None, x: Tensor, call: Call) -> Tensor:
    """What does not depend on x, from [O, *k] in float64: a number per neuron, or per place where taps are missing."""
    shape = (1, -1, *(1,) * len(call.stride))
    if call.transposed:
        ones = torch.ones((1, 1, *x.shape[2:]), dtype=torch.float64, device=x.device)
        total = _convolution(ones, constants[:, None], replace(call, groups=1))
    else:
        total = constants.flatten(1).sum(1).view(shape)
    if bias is not None:
        total = total + bias.view(shape)
    return total.to(x.dtype)
