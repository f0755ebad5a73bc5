"""Which expansion a layer may use: found for ranges of w and x, checked on real outputs, remembered, remade on leaving.

A plan holds for weights and inputs within its ranges, which are rounded up on a grid of factor 2^(1/4). A batch that
leaves the ranges of all remembered plans gets a new one, or the refusal that an exact kernel must serve it. Refusals
are remembered in the same way. Training steps use and make the plans under "train"; calls without gradients use these
too, but make their own under "evaluation", so that evaluating never changes how training goes on. Both are plain
containers in `Memory.plans` and thus part of checkpoints: a resumed run computes with the same polynomials.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from onn_runner.compute.base import Call, Memory
from onn_runner.compute.basis import Interval
from onn_runner.compute.expansion import Expansion, Series
from onn_runner.compute.geometry import pool_factor, taps
from onn_runner.compute.spot import errors, exact
from onn_runner.compute.truncation import MOST_NODES, Probe, fewest, form, probe
from onn_runner.seeding import generator

TOLERANCES = {torch.float32: (1e-6, 3e-6), torch.float64: (1e-13, 3e-13)}
"""Relative error of outputs and of gradients, against float64."""
ACCEPTED = (0.7, 0.5)
"""The parts of the tolerances that the spot check may find: its 32 outputs do not see everything."""
KEPT = 8
PIXELS = 60
SHRINKING = 4.0
"""A plan is left when values fall this far below its ranges: polynomials made for 1 are not as exact at 0.01."""
SMALLEST = 1e-30


@dataclass(frozen=True)
class Ranges:
    """What a call's values span: max|w| of each block, min x and max x."""

    weights: tuple[float, ...]
    low: float
    high: float

    @property
    def largest(self) -> float:
        return max(abs(self.low), abs(self.high))

    def finite(self) -> bool:
        return all(math.isfinite(value) for value in (*self.weights, self.low, self.high))


@dataclass(frozen=True)
class Choice:
    """The expansion to compute a batch with, or None; what to tell about it; whether that is a refusal for good."""

    expansion: Expansion | None
    reason: str
    refused: bool = False


@dataclass(frozen=True)
class Plan:
    """For which ranges, which series; without series it is a refusal. Stored as a dict of plain values."""

    dtype: str
    weights: list[float]
    largest: float
    low: float
    high: float
    series: list[list[Any]]
    reason: str

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
        # within a known bound the inputs may grow without leaving the interval
        rise = SHRINKING if bounded and not self.refused else growing
        return self.largest / shrinking <= ranges.largest <= self.largest * rise

    def choice(self) -> Choice:
        if self.refused:
            return Choice(None, self.reason, refused=True)
        series = tuple(Series(kind, count) for kind, count in self.series)
        return Choice(Expansion(Interval(self.low, self.high), series), self.reason)


def grid(value: float) -> float:
    """The next number on the grid 2^(n/4) that is not below `value` >= 0."""
    return 0.0 if value == 0 else 2.0 ** (math.ceil(4 * math.log2(value) - 1e-9) / 4) * (1 + 1e-12)


def measure(call: Call, x: Tensor, weight: Tensor) -> Ranges:
    """The ranges of a call, read from the device at once."""
    low, high = x.detach().aminmax()
    tops = [weight.detach()[block.start : block.stop].abs().amax() for block in call.blocks]
    values = torch.stack([low.to(weight.dtype), high.to(weight.dtype), *tops]).tolist()
    return Ranges(tuple(values[2:]), values[0], values[1])


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
    training = torch.is_grad_enabled()
    bounded = call.input_bound is not None
    kept: dict[str, list[dict[str, Any]]] = {key: memory.plans.get(key, []) for key in ("train", "evaluation")}
    for key in ("train",) if training else ("train", "evaluation"):
        for stored in kept[key]:
            plan = Plan(**stored)
            if plan.covers(ranges, x.dtype, bounded):
                return plan.choice()
    with torch.inference_mode(False), torch.no_grad():
        plan = make(call, _normal(x), _normal(weight), None if gain is None else _normal(gain), ranges)
    key = "train" if training else "evaluation"
    # a new list, since a checkpoint taken before may hold the old one
    memory.plans[key] = [*kept[key], asdict(plan)][-KEPT:]
    return plan.choice()


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
    low, high = _ends(call, ranges)
    wide = Interval(-max(-low, high), max(-low, high))
    factor = torch.ones(weight.shape[0], dtype=torch.float64, device=weight.device) if gain is None else gain.double()
    factor = factor * pool_factor(call.pool, taps(weight))
    inputs = _inputs(x, ranges, low, high)

    def plan(interval: Interval, series: Sequence[Series], reason: str) -> Plan:
        largest = grid(ranges.largest)
        stored = [[s.form, s.count] for s in series]
        return Plan(str(x.dtype), tops, largest, interval.low, interval.high, stored, reason)

    probes = []
    for block, top, reached in zip(call.blocks, tops, ranges.weights, strict=True):
        w = weight[block.start : block.stop].double().flatten(1) * (top / reached if reached else 1.0)
        seen = probe(block, w, inputs, factor[block.start : block.stop], PIXELS)
        if seen is None:
            return plan(wide, (), f"{block.name} gives values that are not finite or beyond 1e30")
        probes.append(seen)
    forms = [form(seen) for seen in probes]
    narrow = min(-low, high) < 0.8 * wide.high and "line" in forms
    interval = Interval(low, high) if narrow else wide
    shortest = []
    for seen, kind in zip(probes, forms, strict=True):
        series = fewest(seen, "line" if narrow and kind != "product" else kind, interval, TOLERANCES[x.dtype])
        if series is None:
            return plan(interval, (), _unreached(seen, interval, tops))
        shortest.append(series)
    truth = exact(call, x, weight, factor)
    worst, allowed = (math.inf, math.inf), TOLERANCES[x.dtype]
    for extra in range(3):
        longer = [s.longer(1 + extra / 4) for s in shortest]
        found = errors(call, x, weight, gain, Expansion(interval, tuple(longer)), truth)
        if all(error <= part * most for error, part, most in zip(found, ACCEPTED, allowed, strict=True)):
            return plan(interval, longer, _accepted(call, longer, interval, tops, found[0]))
        worst = min(worst, found)
    off = f"outputs were off by {worst[0]:.0e} and gradients by {worst[1]:.0e}"
    return plan(interval, (), f"{off} where {_ranges(interval, tops)}")


def _ends(call: Call, ranges: Ranges) -> tuple[float, float]:
    """The interval to expand in: the known bound, or the measured range on the grid; 0 is always in it."""
    if call.input_bound is not None:
        low, high = call.input_bound
        if low <= ranges.low and ranges.high <= high:
            return min(low, 0.0), max(high, 0.0)
    return -grid(max(-ranges.low, 0.0)), grid(max(ranges.high, 0.0))


def _inputs(x: Tensor, ranges: Ranges, low: float, high: float) -> Tensor:
    """64 inputs: random pixels, the smallest and the largest one, and the ends of the interval."""
    flat = x.reshape(-1)
    where = torch.randint(len(flat), (PIXELS,), generator=generator("pixels", len(flat))).to(x.device)
    ends = torch.tensor([ranges.low, ranges.high, low, high], dtype=torch.float64, device=x.device)
    return torch.cat([flat[where].double(), ends])


def _unreached(seen: Probe, interval: Interval, tops: list[float]) -> str:
    return f"{MOST_NODES} nodes are too few for {seen.block.name} where {_ranges(interval, tops)}"


def _accepted(call: Call, series: Sequence[Series], interval: Interval, tops: list[float], error: float) -> str:
    if len(series) == 1:
        terms = f"{series[0].count} term{'s' if series[0].count > 1 else ''}"
    else:
        terms = " + ".join(f"{b.name} {s.count}" for b, s in zip(call.blocks, series, strict=True)) + " terms"
    return f"{terms}, {_ranges(interval, tops)}, error {error:.0e}"


def _ranges(interval: Interval, tops: list[float]) -> str:
    symmetric = interval.low == -interval.high
    inputs = f"|x| <= {interval.high:.3g}" if symmetric else f"{interval.low:.3g} <= x <= {interval.high:.3g}"
    return f"|w| <= {max(tops):.3g}, {inputs}"
