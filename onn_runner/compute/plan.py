"""Which expansion a layer may use: found for ranges of w and x, checked on real outputs, remembered, remade on leaving.

A plan holds for weights and inputs within its ranges, which are rounded up on a grid of factor 2^(1/4). A batch that
leaves the ranges of all remembered plans gets a new one, or the refusal that an exact kernel must serve it. Refusals
are remembered in the same way. Layers in training mode use and make the plans under "train"; in evaluation mode they
use these too, but make their own under "evaluation", so that evaluating never changes how training goes on, with
gradients or without. Both are plain containers in `Memory.plans` and thus part of checkpoints: a resumed run computes
with the same polynomials.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from onn_runner.compute import cost
from onn_runner.compute.base import Call, Memory
from onn_runner.compute.basis import Interval
from onn_runner.compute.expansion import Expansion, Mix, Series, banks
from onn_runner.compute.shortest import NoExpansionError, Ranges, ends, grid, shortest

KEPT = 16
SHRINKING = 4.0
"""A plan is left when values fall this far below its ranges: polynomials made for 1 are not as exact at 0.01."""
SMALLEST = 1e-30
CONTRAST = 2.0
"""A plan is left by batches whose standard deviation is that many times smaller or larger, or whose mean is so many
standard deviations away.
"""
SEEN = 8192
"""Inputs whose mean and standard deviation are taken, evenly spread over a batch."""


@dataclass(frozen=True)
class Choice:
    """The expansion to compute a batch with, or None; what to tell about it; whether that is a refusal for good."""

    expansion: Expansion | None
    reason: str
    refused: bool = False
    cheaper: str = ""
    """Why the exact kernel should serve although there is an expansion."""


@dataclass(frozen=True)
class Plan:
    """For which ranges, which series; without series it is a refusal. Stored as a dict of plain values."""

    dtype: str
    weights: list[float]
    largest: float
    low: float
    high: float
    centred: bool
    series: list[list[Any]]
    reason: str
    mixes: list[list[Any]] = field(default_factory=list)
    """[form, [[...], ...]] of each basis that is mixed."""
    costs: str = ""
    """What it and the exact kernel are estimated to take for a batch of `size` numbers."""
    cheaper: bool = False
    """Whether the exact kernel takes clearly less, and serves."""
    size: int = 0
    spread: float = math.inf
    """The standard deviation of the inputs that it was made for; infinite where they were of many kinds."""
    mean: float = 0.0

    @property
    def refused(self) -> bool:
        return not self.series

    def covers(self, ranges: Ranges, dtype: torch.dtype, bounded: bool) -> bool:
        """Whether values of those ranges may be computed with it."""
        if self.dtype != str(dtype):
            return False
        # a refusal is looked at again sooner: values that shrink may come within reach
        shrinking = math.sqrt(2) if self.refused else SHRINKING
        growing = math.sqrt(2) if self.refused else 1.0
        pairs = [*zip(ranges.weights, self.weights, strict=True)]
        if not all(top / shrinking <= value <= top * growing for value, top in pairs):
            return False
        if not self.refused and not (self.low <= ranges.low and ranges.high <= self.high):
            return False
        # what is exact enough for contrasts need not be for the small differences of a smooth or dark batch
        if not self.spread / CONTRAST <= ranges.spread <= self.spread * CONTRAST:
            return False
        if abs(ranges.mean - self.mean) > CONTRAST * self.spread:
            return False
        # within a known bound the inputs may grow without leaving the interval
        rise = SHRINKING if bounded and not self.refused else growing
        return self.largest / shrinking <= ranges.largest <= self.largest * rise

    def choice(self) -> Choice:
        if self.refused:
            return Choice(None, self.reason, refused=True)
        series = tuple(Series(kind, count) for kind, count in self.series)
        mixes = tuple(Mix(form, tuple(tuple(row) for row in rows)) for form, rows in self.mixes)
        expansion = Expansion(Interval(self.low, self.high), series, self.centred, mixes)
        reason = f"{self.reason}, {self.costs}" if self.costs else self.reason
        return Choice(expansion, reason, cheaper=f"exact and faster than {reason}" if self.cheaper else "")


def measure(call: Call, x: Tensor, weight: Tensor) -> Ranges:
    """The ranges of a call, read from the device at once."""
    low, high = x.detach().aminmax()
    tops = [weight.detach()[block.start : block.stop].abs().amax() for block in call.blocks]
    values = torch.stack([value.to(weight.dtype) for value in (low, high, *moments(x), *tops)]).tolist()
    return Ranges(tuple(values[4:]), *values[:4])


def moments(x: Tensor) -> tuple[Tensor, Tensor]:
    """The standard deviation and the mean of about SEEN values."""
    flat = x.detach().reshape(-1)
    found: tuple[Tensor, Tensor] = torch.std_mean(flat[:: len(flat) // SEEN | 1], correction=0)
    return found


def find(
    call: Call,
    x: Tensor,  # [B, C, *S], padded
    weight: Tensor,  # [O, C/G, *k]
    gain: Tensor | None,  # [O]
    memory: Memory,
) -> Choice:
    """What to compute this batch with."""
    ranges = measure(call, x, weight)
    if not ranges.finite():
        return Choice(None, "inputs or weights are not finite")
    if ranges.largest < SMALLEST:
        return Choice(None, "the inputs are all zero: there is nothing to check an expansion on")
    bounded = call.input_bound is not None
    kept: dict[str, list[dict[str, Any]]] = {key: memory.plans.get(key, []) for key in ("train", "evaluation")}
    for key in ("train",) if memory.training else ("train", "evaluation"):
        for stored in kept[key]:
            plan = Plan(**stored)
            if plan.covers(ranges, x.dtype, bounded):
                # what is cheaper for a small batch need not be for a large one
                grown = plan.cheaper and x.numel() > plan.size
                return (_weighed(plan, call, x, weight) if grown else plan).choice()
    with torch.inference_mode(False), torch.no_grad():
        plan = make(call, _normal(x), _normal(weight), None if gain is None else _normal(gain), ranges)
    key = "train" if memory.training else "evaluation"
    # a new list, since a checkpoint taken before may hold the old one
    memory.plans[key] = [*kept[key], asdict(plan)][-KEPT:]
    return plan.choice()


def newest(memory: Memory, dtype: torch.dtype) -> Choice | None:
    """The accepted plan that was made last, in training if there is one; else a refusal; None without either."""
    plans = [Plan(**stored) for key in ("evaluation", "train") for stored in memory.plans.get(key, [])]
    plans = sorted((plan for plan in plans if plan.dtype == str(dtype)), key=lambda plan: not plan.refused)
    return plans[-1].choice() if plans else None


def _normal(values: Tensor) -> Tensor:
    """The values outside of autograd, and outside of inference mode, whose tensors autograd does not take."""
    return values.clone() if values.is_inference() else values.detach()


def make(
    call: Call,
    x: Tensor,  # [B, C, *S]
    weight: Tensor,  # [O, C/G, *k]
    gain: Tensor | None,  # [O]
    ranges: Ranges,
) -> Plan:
    """The plan, or refusal, for values like these."""
    tops = [grid(top) for top in ranges.weights]
    try:
        accepted = shortest(call, x, weight, gain, ranges)
    except NoExpansionError as error:
        bounds = *ends(call, ranges), False
        return Plan(
            str(x.dtype), tops, grid(ranges.largest), *bounds, [], str(error), spread=ranges.spread, mean=ranges.mean
        )
    interval = accepted.expansion.interval
    series = [[s.form, s.count] for s in accepted.expansion.series]
    mixes = [[mix.form, [list(row) for row in mix.rows]] for mix in accepted.expansion.mixes]
    bounds = interval.low, interval.high, accepted.expansion.centred
    made = Plan(
        str(x.dtype),
        tops,
        grid(ranges.largest),
        *bounds,
        series,
        accepted.reason,
        mixes,
        spread=ranges.spread,
        mean=ranges.mean,
    )
    return _weighed(made, call, x, weight)


def _weighed(plan: Plan, call: Call, x: Tensor, weight: Tensor) -> Plan:
    """With the estimated costs for a batch like this one; a function of shapes alone."""
    expansion = plan.choice().expansion
    assert expansion is not None, "a refusal costs nothing"
    terms = [
        (bank.count, sum(call.blocks[index].stop - call.blocks[index].start for index in bank.blocks))
        for bank in banks(expansion, call.groups)
    ]
    found = {
        kernel: cost.estimate(kernel, call, x.shape, weight.shape, terms, x.device.type)
        for kernel in ("chebyshev", "tapwise")
    }
    cheaper = found["tapwise"] < cost.CLEARLY * found["chebyshev"]
    told = cost.describe("tapwise" if cheaper else "chebyshev", found)
    told += f" for {len(x)} sample{'s' * (len(x) != 1)}"
    return replace(plan, costs=told, cheaper=cheaper, size=x.numel())
