"""A layer under torch.func: one expansion for all elements of a stack of models or samples, or the definition."""

from __future__ import annotations

import math
from dataclasses import asdict, replace

import torch
from torch import Tensor

from onn_runner.compute import plain, plan, reference, transforms
from onn_runner.compute.base import Call, Memory
from onn_runner.compute.choice import check, refuse
from onn_runner.compute.expansion import Expansion
from onn_runner.compute.geometry import output_size, pool_factor, taps
from onn_runner.compute.probing import PRECISIONS
from onn_runner.compute.spot import errors, exact

CHECKED = 8
"""A new plan is run on so many elements of a stack at most, evenly spread over it."""


@torch.compiler.disable
def run(
    call: Call,
    x: Tensor,  # [B, C, *S], padded
    weight: Tensor,  # [O, C/G, *k]
    gain: Tensor | None,  # [O]
    bias: Tensor | None,  # [O]
    memory: Memory,
) -> Tensor:  # [B, O, *S']
    """By a remembered plan that covers the whole stack, or a new one; under any transforms, to any order."""
    requested = check(memory.requested)
    if x.shape[0] == 0:
        return x.new_zeros((0, weight.shape[0], *output_size(call, x, weight)))
    if requested not in ("auto", "chebyshev") or refuse(requested, call) is not None:
        return reference.run(call, x, weight, gain, bias, memory)
    choice = _find(call, x, weight, gain, memory)
    if choice.expansion is None:
        y = reference.run(call, x, weight, gain, bias, memory)
        memory.reason = choice.reason
        return y
    memory.chosen, memory.reason = "chebyshev", choice.reason
    return plain.expanded(call, x, weight, gain, bias, choice.expansion)


def _find(call: Call, x: Tensor, weight: Tensor, gain: Tensor | None, memory: Memory) -> plan.Choice:
    """As `plan.find`, for ranges that hold those of all elements; new plans are kept apart, under "stacked"."""
    with transforms.outside():
        xs, weights, gains = (None if t is None else _distinct(t) for t in transforms.stacks(x, weight, gain))
        assert xs is not None
        assert weights is not None
        sizes = torch.stack([weights[:, b.start : b.stop].abs().flatten(1).amax(1) for b in call.blocks])
        weight = _collected(call, weights, sizes, largest=True)
        largest = plan.measure(call, xs, weight)
        smallest = plan.measure(call, xs, _collected(call, weights, sizes, largest=False))
        if not largest.finite():
            return plan.Choice(None, "inputs or weights are not finite")
        if largest.largest < plan.SMALLEST:
            return plan.Choice(None, "the inputs are all zero: there is nothing to check an expansion on")
        bounded = call.input_bound is not None
        for key in ("stacked", "train") if memory.training else ("stacked", "train", "evaluation"):
            for stored in memory.plans.get(key, []):
                known = plan.Plan(**stored)
                wanted = (largest,) if known.refused else (largest, smallest)
                if all(known.covers(ranges, x.dtype, bounded) for ranges in wanted):
                    return known.choice()
        gain = None if gains is None else _collected(call, gains, sizes, largest=True)
        made = plan.make(call, xs[xs.flatten(1).abs().amax(1).argmax()], weight, gain, largest)
        expansion = made.choice().expansion
        if expansion is not None and not _hold(call, xs, weights, gains, expansion):
            made = _refusal(made, f"{made.reason} in one of the stacked models, but not in all of them")
        if not (made.refused or made.covers(smallest, x.dtype, bounded)):
            made = _refusal(made, "the weights of the stacked models are of too different sizes for one expansion")
    memory.plans["stacked"] = [*memory.plans.get("stacked", []), asdict(made)][-plan.KEPT :]
    return made.choice()


def _distinct(stack: Tensor) -> Tensor:
    """One element where all are the same."""
    return stack[:1] if stack.stride(0) == 0 else stack


def _collected(call: Call, stack: Tensor, sizes: Tensor, *, largest: bool) -> Tensor:
    """Of a stack [N, O, ...] the block's part of the element where `sizes` [blocks, N] is largest, or smallest."""
    where = sizes.argmax(1) if largest else sizes.argmin(1)
    if len(stack) == 1:
        return stack[0]
    return torch.cat([stack[n, b.start : b.stop] for n, b in zip(where, call.blocks, strict=True)])


def _hold(call: Call, xs: Tensor, weights: Tensor, gains: Tensor | None, expansion: Expansion) -> bool:
    """Whether the elements, CHECKED of them, are as exact as a plan has to be."""
    count = max(len(t) for t in (xs, weights, gains) if t is not None)
    for index in range(0, count, math.ceil(count / CHECKED)):
        x, weight = (t[index if len(t) > 1 else 0] for t in (xs, weights))
        gain = None if gains is None else gains[index if len(gains) > 1 else 0]
        if not _holds(call, x, weight, gain, expansion):
            return False
    return True


def _refusal(made: plan.Plan, reason: str) -> plan.Plan:
    return replace(made, series=[], mixes=[], costs="", cheaper=False, reason=reason)


def _holds(call: Call, x: Tensor, weight: Tensor, gain: Tensor | None, expansion: Expansion) -> bool:
    """Whether an element's outputs and gradients are as exact as a plan's have to be."""
    if not bool(x.any()):
        return True
    scale = torch.full((len(weight),), pool_factor(call.pool, taps(weight)), dtype=torch.float64, device=x.device)
    scale = scale if gain is None else scale * gain.double()
    precision = PRECISIONS[x.dtype]
    found = errors(call, x, weight, gain, expansion, exact(call, x, weight, scale))
    return found.accepted(precision.output, precision.gradient)
