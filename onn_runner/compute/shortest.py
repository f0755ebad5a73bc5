"""The shortest expansion that is accurate for values like those at hand, and what it is good for in words."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from onn_runner.compute.base import Call
from onn_runner.compute.basis import Interval
from onn_runner.compute.expansion import Expansion, Form, Series, banks
from onn_runner.compute.geometry import pool_factor, taps
from onn_runner.compute.mixing import mixed
from onn_runner.compute.probing import PRECISIONS, Inputs, Precision, Probe, form, probe, symmetry
from onn_runner.compute.spot import errors, exact
from onn_runner.compute.truncation import fewest
from onn_runner.seeding import generator

PIXELS = 60
SHADES = (1 / 4, 1 / 16)
"""A plan also serves batches whose inputs are mostly that much smaller than those it was made from."""
LOW = 2
"""Members that a product may take in a basis that others need."""
MANY = 4096
"""A feature of psi that is narrower in x than the interval over this may be overlooked."""


class NoExpansionError(Exception):
    """Why there is none, as half a sentence."""


@dataclass(frozen=True)
class Ranges:
    """What a call's values span: max|w| of each block, min x and max x, and the standard deviation and mean of x."""

    weights: tuple[float, ...]
    low: float
    high: float
    deviation: float = math.inf
    """Infinite where a plan may be used whatever it is."""
    mean: float = 0.0

    @property
    def spread(self) -> float:
        """The standard deviation; a tiny one is as good as another."""
        return max(self.deviation, 1e-3 * self.largest)

    @property
    def largest(self) -> float:
        return max(abs(self.low), abs(self.high))

    def finite(self) -> bool:
        return all(math.isfinite(value) for value in (*self.weights, self.low, self.high))


@dataclass(frozen=True)
class Accepted:
    """An expansion that passed, and a description: terms, ranges, error."""

    expansion: Expansion
    reason: str


def grid(value: float) -> float:
    """The next number on the grid 2^(n/4) that is not below `value` >= 0."""
    if value == 0:
        return 0.0
    # single precision values of the grid itself must not be above it
    return 2.0 ** (math.ceil(4 * math.log2(value) - 1e-6) / 4) * (1 + 1e-6)


def shortest(
    call: Call,
    x: Tensor,  # [B, C, *S], padded
    weight: Tensor,  # [O, C/G, *k]
    gain: Tensor | None,  # [O]
    ranges: Ranges,
) -> Accepted:
    """The expansion with the fewest terms whose truncation and real outputs are exact to working precision.

    It is chosen for weights scaled up to the grid, and then run on the values at hand.
    Raises NoExpansionError where none of them is good enough.
    """
    precision = PRECISIONS[x.dtype]
    scale = torch.full((len(weight),), pool_factor(call.pool, taps(weight)), dtype=torch.float64, device=x.device)
    scale = scale if gain is None else scale * gain.double()
    low, high = ends(call, ranges)
    probes = _probes(call, weight, scale, ranges, *_inputs(x, ranges, low, high))
    truth = exact(call, x, weight, scale)
    for expansion in _attempts(call, tuple(weight.shape), probes, low, high, ranges, precision):
        found = errors(call, x, weight, gain, expansion, truth)
        where = describe(expansion.interval, ranges)
        off = float(found.output.max()), float(torch.cat([found.to_weight, found.to_x, found.rounding]).max())
        if found.accepted(precision.output, precision.gradient):
            return Accepted(expansion, f"{_terms(call, expansion)}, {where}, error {off[0]:.0e}")
    raise NoExpansionError(f"outputs were off by {off[0]:.0e} and gradients by {off[1]:.0e} where {where}")


def _attempts(
    call: Call,
    weight_shape: tuple[int, ...],
    probes: list[Probe],
    low: float,
    high: float,
    ranges: Ranges,
    precision: Precision,
) -> Iterator[Expansion]:
    """What to try in turn: mixtures where they pay, as few terms as may do, then more of them.

    All are centred: the batch that a plan is made from need not show what others lose without.
    """
    forms = [form(seen) for seen in probes]
    largest = max(-low, high)
    # parity halves the terms, unless an operator without it makes a one-sided interval worth more
    narrow = min(-low, high) < 0.8 * largest and "line" in forms
    interval = Interval(low, high) if narrow else Interval(-largest, largest)
    series = _fewest(probes, forms, interval, precision, narrow)
    plain = Expansion(interval, series, centred=True)
    for more in (0, 1):
        merged = mixed(call, weight_shape, probes, [grid(top) for top in ranges.weights], plain, precision, more)
        if merged.mixes:
            yield merged
    for factor in (1.0, 1.25, 1.5):
        yield replace(plain, series=tuple(s.longer(factor) for s in series))


def ends(call: Call, ranges: Ranges) -> tuple[float, float]:
    """The interval to expand in: the known bound, or the measured range on the grid; 0 is always in it."""
    if call.input_bound is not None:
        low, high = call.input_bound
        if low <= ranges.low and ranges.high <= high:
            return min(low, 0.0), max(high, 0.0)
    return 0.0 - grid(max(-ranges.low, 0.0)), grid(max(ranges.high, 0.0))


def _inputs(x: Tensor, ranges: Ranges, low: float, high: float) -> tuple[Inputs, Inputs]:
    """Random pixels with the ends of ranges, the pixels alone, and pixels at the scales of darker inputs; and 8192
    inputs, half of them a grid over the interval.
    """
    flat = x.reshape(-1)
    where = torch.randint(len(flat), (PIXELS,), generator=generator("pixels", len(flat))).to(x.device)
    pixels = flat[where].double()
    extremes = torch.tensor([ranges.low, ranges.high, low, high], dtype=torch.float64, device=x.device)
    parts = [slice(0, PIXELS), slice(0, PIXELS + len(extremes))]
    shades = []
    for number, shade in enumerate(SHADES):
        start = PIXELS * (number + 1) + len(extremes)
        parts.append(slice(start, start + PIXELS))
        shades.append(pixels * shade)
    few = Inputs(torch.cat([pixels, extremes, *shades]), tuple(parts))
    count = min(MANY, len(flat))
    where = torch.randint(len(flat), (count,), generator=generator("many pixels", len(flat))).to(x.device)
    spread = torch.linspace(low, high, MANY, dtype=torch.float64, device=x.device)
    return few, Inputs(torch.cat([flat[where].double(), spread]), (slice(0, count), slice(None)))


def _probes(call: Call, weight: Tensor, scale: Tensor, ranges: Ranges, few: Inputs, many: Inputs) -> list[Probe]:
    """psi of each block at its weights, scaled up to the grid, and at the inputs."""
    probes = []
    for block, reached in zip(call.blocks, ranges.weights, strict=True):
        own = slice(block.start, block.stop)
        w = weight[own].double().flatten(1) * (grid(reached) / reached if reached else 1.0)
        seen = probe(block, w, scale[own], few, many)
        if seen is None:
            raise NoExpansionError(f"{block.name} has values that are not finite or beyond 1e30")
        probes.append(seen)
    return probes


def _fewest(
    probes: list[Probe], forms: list[Form], interval: Interval, precision: Precision, narrow: bool
) -> tuple[Series, ...]:
    """The shortest series of each block; without parity on a narrow interval.

    Beside others a product that is a polynomial of low degree reads their basis: that spares a convolution.
    """
    found = []
    for seen, kind in zip(probes, forms, strict=True):
        series = None
        if kind == "product" and set(forms) != {"product"}:
            series = fewest(seen, "line" if narrow else symmetry(seen), interval, precision, LOW)
        if series is None:
            series = fewest(seen, "line" if narrow and kind != "product" else kind, interval, precision)
        if series is None:
            reach = float(seen.w.abs().max())
            where = describe(interval, Ranges((reach,), interval.low, interval.high))
            raise NoExpansionError(f"{precision.nodes} nodes are too few for {seen.block.name} where {where}")
        found.append(series)
    return tuple(found)


def _terms(call: Call, expansion: Expansion) -> str:
    """How many channels stand for one of the input."""
    plan = banks(expansion, call.groups)
    count = sum(bank.count for bank in plan)
    forms = [bank.form for bank in plan if bank.form in ("odd", "even")]
    if len(forms) == 2:
        parts = [f"{bank.count} {bank.form}" for bank in plan if bank.form != "product"]
        products = sum(bank.form == "product" for bank in plan)
        parts += [f"{products} product{'s' if products > 1 else ''}"] if products else []
        return f"{count} terms ({', '.join(parts)})"
    return f"{count} term{'s' if count > 1 else ''}"


def describe(interval: Interval, ranges: Ranges) -> str:
    """The ranges in words."""
    symmetric = interval.low == -interval.high
    inputs = f"|x| <= {interval.high:.3g}" if symmetric else f"{interval.low:.3g} <= x <= {interval.high:.3g}"
    return f"|w| <= {grid(max(ranges.weights)):.3g}, {inputs}"
