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
from onn_runner.compute.shortest import Ranges
from onn_runner.compute.spot import errors, exact
from onn_runner.compute.truncation import PRECISIONS

CHECKED = 8
"""A new plan is run on so many elements of a stack at most, evenly spread over it."""


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
        largest, smallest = _measure(call, xs, weights)
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
        made = _make(call, xs, weights, gains, largest)
        if not (made.refused or made.covers(smallest, x.dtype, bounded)):
            made = _refusal(made, "the weights of the stacked models are of too different sizes for one expansion")
    memory.plans["stacked"] = [*memory.plans.get("stacked", []), asdict(made)][-plan.KEPT :]
    return made.choice()


def _distinct(stack: Tensor) -> Tensor:
    """One element where all are the same."""
    return stack[:1] if stack.stride(0) == 0 else stack


def _measure(call: Call, xs: Tensor, weights: Tensor) -> tuple[Ranges, Ranges]:
    """The ranges of all elements together, and those with each block's smallest max|w|; read at once."""
    tops = torch.stack([weights[:, b.start : b.stop].abs().flatten(1).amax(1) for b in call.blocks])
    inputs = torch.stack([*xs.aminmax(), *plan.moments(xs)]).to(tops.dtype)
    low, high, deviation, *reached = torch.cat([inputs, tops.amax(1), tops.amin(1)]).tolist()
    count = len(call.blocks)
    largest = Ranges(tuple(reached[:count]), low, high, deviation)
    return largest, replace(largest, weights=tuple(reached[count:]))


def _make(call: Call, xs: Tensor, weights: Tensor, gains: Tensor | None, ranges: Ranges) -> plan.Plan:
    """A plan from the largest weights of each block and the element with the largest input, checked on others."""
    biggest = xs[xs.flatten(1).abs().amax(1).argmax()]
    parts, scales = [], []
    for block in call.blocks:
        own = slice(block.start, block.stop)
        where = weights[:, own].abs().flatten(1).amax(1).argmax()
        parts.append(weights[where, own])
        scales.append(None if gains is None else gains[where if len(gains) > 1 else 0, own])
    gain = None if gains is None else torch.cat([scale for scale in scales if scale is not None])
    made = plan.make(call, biggest, torch.cat(parts), gain, ranges)
    expansion = made.choice().expansion
    if expansion is None:
        return made
    count = max(len(t) for t in (xs, weights, gains) if t is not None)
    for index in range(0, count, math.ceil(count / CHECKED)):
        x, weight, gain = (None if t is None else t[index if len(t) > 1 else 0] for t in (xs, weights, gains))
        assert x is not None
        assert weight is not None
        if not _holds(call, x, weight, gain, expansion):
            reason = f"{made.reason} in one of the stacked models, but not in all of them"
            return _refusal(made, reason)
    return made


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
