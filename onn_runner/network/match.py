"""Widths that give a network as many parameters, or MACs, as plain convolutions have in the same topology.

The reference is the network as written, of the neurons of model=conv. A common factor first, then single widths by a
neuron or two. Layers are counted, not computed: what each costs follows from small layers of the same shape.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Literal, NamedTuple, get_args

import torch

from onn_runner.errors import ConfigError, unknown
from onn_runner.model.base import Factory, Layer, LayerSpec
from onn_runner.network.slots import PLAIN, Plan, Slot

Match = Literal["params", "macs"]
NOUNS: dict[str, str] = {"params": "parameters", "macs": "MACs"}

CLOSE = 0.03
"""Relative difference that counts as comparable."""
EXHAUSTIVE = 2500
"""Up to so many combinations of widths are tried one by one; beyond, steps that help are taken until none does."""
MOST_OPERATORS = 64
"""Of one layer, each of which needs a neuron."""
FACTORS = 64
"""The common factor lies between 1 / FACTORS and FACTORS."""

Count = Callable[[Sequence[int]], int]
Cost = Callable[["_Same", LayerSpec, int], tuple[float, float]]
"""(parameters, MACs) of the layer that a factory makes of a spec, with so many output positions."""


def check(match: object) -> Match | None:
    """Raises ConfigError for anything that `network.match` cannot be."""
    if match is None or match == "params" or match == "macs":
        return match
    raise unknown("network.match", str(match), (*get_args(Match), "null"))


def choose(
    match: Match,
    plan: Plan,
    widths: Sequence[int],
    factory: Factory,
) -> list[int]:
    """The widths whose count is nearest to that of plain convolutions with `widths`; torch's random state stays.

    Raises ConfigError where the factory refuses the network as written.
    """
    wanted = _total(match, plan(widths), PLAIN, _learned)
    chosen = _search(widths, _least(plan, widths, factory), _counter(match, plan, factory, _learned), wanted)
    counted = _counter(match, plan, factory, _measured)
    if counted(chosen) == _total(match, plan(chosen), factory, _learned):
        return chosen
    return _search(widths, _least(plan, widths, factory), counted, wanted)


def _search(widths: Sequence[int], least: Sequence[int], count: Count, wanted: int) -> list[int]:
    """The widths themselves, where they fit already; else near a common factor of them."""
    if count(widths) == wanted:
        return list(widths)
    base = _scaled(widths, _factor(widths, least, count, wanted), least)
    best = list(base)
    for radius in (1, 2, 3):
        best = _nearest(base, least, count, wanted, radius=radius)
        if abs(count(best) - wanted) <= CLOSE * wanted:
            break
    return best


def line(match: Match, plan: Plan, widths: Sequence[int], chosen: Sequence[int], layers: Sequence[Layer]) -> str:
    """One line on what was done, with the count of the layers as they were built."""
    slots, wanted = plan(chosen), _total(match, plan(widths), PLAIN, _learned)
    if match == "params":
        have = sum(p.numel() for layer in layers for p in layer.parameters())
    else:
        have = sum(layer.macs(slot.positions) for layer, slot in zip(layers, slots, strict=True))
    share = (have - wanted) / wanted
    change = f"channels {_list(widths)} " + ("stay" if list(chosen) == list(widths) else f"-> {_list(chosen)}")
    text = f"network.match={match}: {change}: {have:,} {NOUNS[match]}, the convolutional network has {wanted:,}"
    digits = ".0f" if abs(share) >= 0.1 else ".2g"
    text += f" ({100 * share:+{digits}} %)" if share else ""
    return text if abs(share) <= CLOSE else f"{text}; no widths tried come closer than {100 * CLOSE:g} %"


def _list(widths: Sequence[int]) -> str:
    return f"[{','.join(map(str, widths))}]"


def _total(match: Match, slots: Sequence[Slot], factory: Factory, cost: Cost) -> int:
    """Parameters of a network of the factory's layers, or its MACs of one sample."""
    found = [cost(_Same(PLAIN if slot.plain else factory), slot.spec, slot.positions) for slot in slots]
    return sum(round(pair[match == "macs"]) for pair in found)


def _counter(match: Match, plan: Plan, factory: Factory, cost: Cost) -> Count:
    """The total by widths, each asked for once."""
    known: dict[tuple[int, ...], int] = {}

    def count(widths: Sequence[int]) -> int:
        key = tuple(widths)
        if key not in known:
            known[key] = _total(match, plan(key), factory, cost)
        return known[key]

    return count


def _factor(widths: Sequence[int], least: Sequence[int], count: Count, wanted: int) -> float:
    """The common factor, by bisection: counts grow with it."""
    low, high = 1 / FACTORS, float(FACTORS)
    for _ in range(24):
        middle = math.sqrt(low * high)
        if count(_scaled(widths, middle, least)) > wanted:
            high = middle
        else:
            low = middle
    return math.sqrt(low * high)


def _scaled(widths: Sequence[int], factor: float, least: Sequence[int]) -> list[int]:
    return [max(floor, round(width * factor)) for width, floor in zip(widths, least, strict=True)]


def _nearest(
    base: Sequence[int],
    least: Sequence[int],
    count: Count,
    wanted: int,
    *,
    radius: int,
) -> list[int]:
    """Of the widths within `radius` of `base`, those with the nearest count; of equals, the nearest to `base`."""

    def rank(widths: Sequence[int]) -> tuple[int, int, Sequence[int]]:
        return abs(count(widths) - wanted), sum(abs(w - b) for w, b in zip(widths, base, strict=True)), tuple(widths)

    choices = [range(max(floor, b - radius), b + radius + 1) for b, floor in zip(base, least, strict=True)]
    if math.prod(map(len, choices)) <= EXHAUSTIVE:
        return min(map(list, itertools.product(*choices)), key=rank)
    best = list(base)
    while True:
        found = min(_neighbours(best, choices), key=rank)
        if rank(found)[0] >= rank(best)[0]:
            return best
        best = found


def _neighbours(widths: Sequence[int], choices: Sequence[range]) -> Iterator[list[int]]:
    """One width more or less by one, within its choices."""
    for position, choice in enumerate(choices):
        for width in (widths[position] - 1, widths[position] + 1):
            if width in choice:
                yield [*widths[:position], width, *widths[position + 1 :]]


def _least(plan: Plan, widths: Sequence[int], factory: Factory) -> list[int]:
    """Per width the smallest that every layer takes: operational layers need a neuron for each operator."""
    written, result = plan(widths), []
    for position in range(len(widths)):
        wider = plan([*widths[:position], widths[position] + 1, *widths[position + 1 :]])
        floor = 1
        for slot, other in zip(written, wider, strict=True):
            step = other.spec.out_channels - slot.spec.out_channels
            if step:
                floor = max(floor, -(-_fewest(_Same(PLAIN if slot.plain else factory), _shape(slot.spec)) // step))
        result.append(floor)
    return result


class _Same:
    """A factory as a key: equal to itself only, and kept alive as long as the key is."""

    def __init__(self, factory: Factory) -> None:
        self.factory = factory

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.factory is self.factory

    def __hash__(self) -> int:
        return id(self.factory)


class _Shape(NamedTuple):
    """A layer but for its channels."""

    spec: LayerSpec
    depthwise: bool
    """As many groups as channels, whatever their number."""

    def sized(self, inputs: int, neurons: int) -> LayerSpec:
        if self.depthwise:
            return replace(self.spec, in_channels=neurons, out_channels=neurons, groups=neurons)
        return replace(self.spec, in_channels=inputs, out_channels=neurons)


def _shape(spec: LayerSpec) -> _Shape:
    """Of a layer without groups, or a depthwise one."""
    return _Shape(replace(spec, in_channels=1, out_channels=1, groups=1), spec.groups > 1)


def _learned(same: _Same, spec: LayerSpec, positions: int) -> tuple[float, float]:
    """What the layer costs if that is a + b C + c O + d C O, as of every neuron type here."""
    if spec.groups > 1 and not spec.groups == spec.in_channels == spec.out_channels:
        return _measured(same, spec, positions)
    terms = _terms(same, _shape(spec), positions)
    inputs, neurons = spec.in_channels, spec.out_channels
    parameters, macs = (a + b * inputs + c * neurons + d * inputs * neurons for a, b, c, d in terms)
    return parameters, macs


@lru_cache(maxsize=1024)
def _terms(same: _Same, shape: _Shape, positions: int) -> list[tuple[float, float, float, float]]:
    """(a, b, c, d) of the parameters and of the MACs, from the smallest layers of a shape."""
    least, result = _fewest(same, shape), []
    if shape.depthwise:
        pairs = zip(*(_measured(same, shape.sized(1, least + more), positions) for more in (0, 1)), strict=True)
        return [(base - (wider - base) * least, 0.0, wider - base, 0.0) for base, wider in pairs]
    costs = [_measured(same, shape.sized(1 + i, least + o), positions) for i, o in ((0, 0), (1, 0), (0, 1), (1, 1))]
    for base, more_inputs, more_neurons, more_of_both in zip(*costs, strict=True):
        d = more_of_both - more_inputs - more_neurons + base
        b, c = more_inputs - base - d * least, more_neurons - base - d
        result.append((base - b - c * least - d * least, b, c, d))
    return result


@lru_cache(maxsize=4096)
def _measured(same: _Same, spec: LayerSpec, positions: int) -> tuple[float, float]:
    """What a real layer costs; MACs before rounding, which those of a transposed layer need: averages over phases."""
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        layer = same.factory(spec)
    phases = math.prod(spec.stride)
    return float(sum(p.numel() for p in layer.parameters())), layer.macs(positions * phases) / phases


@lru_cache(maxsize=1024)
def _fewest(same: _Same, shape: _Shape) -> int:
    """The fewest neurons that a layer of that shape takes. Raises the factory's ConfigError where none will do."""
    for neurons in range(1, MOST_OPERATORS):
        try:
            _measured(same, shape.sized(1, neurons), 1)
        except ConfigError:
            continue
        return neurons
    _measured(same, shape.sized(1, MOST_OPERATORS), 1)
    return MOST_OPERATORS
