"""What trained layers make of their operators: learned psi(w, x) over the x seen, the arguments K w x that occur."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from onn_runner.model.operational import OperationalLayer
from onn_runner.model.self_onn import SelfONNLayer
from onn_runner.ops.base import Nodal
from onn_runner.seeding import generator

Array = npt.NDArray[np.float64]
Function = Callable[[Tensor, Tensor], Tensor]
"""(w, x) -> psi; w is [K, 1] for operators and [K, 1, Q] for powers, x [..., N]."""

POINTS = 201
POSITIONS = 1000
"""Values of x that are looked at, of each channel."""
CONNECTIONS = 256
LINES = 3
"""Connections drawn of a neuron: from the largest weight to the smallest."""
LINEAR_SHARE = 0.01
FLAT = 0.01


@dataclass(frozen=True)
class Connection:
    channel: int
    tap: tuple[int, ...]
    weights: tuple[float, ...]
    """The w of psi(w, x), or w_1 .. w_Q of a Self-ONN connection."""
    values: Array  # [POINTS]


@dataclass(frozen=True)
class Neuron:
    """The connections with the largest, the middle and the smallest weight of one neuron."""

    number: int
    operator: str
    x: Array  # [POINTS]
    connections: tuple[Connection, ...]


@dataclass(frozen=True)
class Arguments:
    """K w x of the connections of one operator in a layer; of Self-ONN layers x itself."""

    operator: str
    symbol: str
    """`K w x`, `w x` of operators without a factor K, or `x`."""
    neurons: int
    values: Array  # [N]
    calibrated: float
    """Half-width of the range in which fresh weights and x in [-1, 1] put it."""
    linear: float | None
    """Up to here a straight line explains 99 % of psi at the largest fresh weight; None: nowhere, inf: everywhere."""
    turning: float | None
    """Beyond here psi at that weight turns back or is flat; None where it does neither."""
    nonlinearity: float
    """Share of the variance of single connections over the x seen that no straight line explains."""


@dataclass(frozen=True)
class LayerUse:
    name: str
    kind: str
    neurons: tuple[Neuron, ...]
    arguments: tuple[Arguments, ...]


@dataclass(frozen=True)
class _Part:
    """Neurons of one layer that share an operator."""

    operator: str
    first: int
    weight: Tensor  # [n, C/G, T] or, for powers, [n, C/G, T, Q]; float64
    function: Function
    nodal: Nodal | None
    bound: float  # of fresh weights


def inputs_of(network: nn.Module, forward: Callable[[], Any]) -> dict[str, Tensor]:
    """Layer name -> what it is given while `forward` runs, [B, C, *S] on the CPU; layers with learned operators only.

    A layer that is used several times shows its last use.
    """
    seen: dict[str, Tensor] = {}

    def hook(name: str) -> Callable[[nn.Module, tuple[Any, ...]], None]:
        def keep(module: nn.Module, given: tuple[Any, ...]) -> None:
            seen[name] = given[0].detach().float().cpu()

        return keep

    handles = [layer.register_forward_pre_hook(hook(name)) for name, layer in layers(network)]
    try:
        forward()
    finally:
        for handle in handles:
            handle.remove()
    return seen


def layers(network: nn.Module) -> Iterator[tuple[str, OperationalLayer | SelfONNLayer]]:
    """Operational and Self-ONN layers by name, those of first order left out."""
    for name, module in network.named_modules():
        if isinstance(module, OperationalLayer) or (isinstance(module, SelfONNLayer) and module.q > 1):
            yield name, module


def uses(network: nn.Module, seen: Mapping[str, Tensor], *, neurons: int) -> list[LayerUse]:
    """Of every layer that was seen; `neurons` of each are kept to be drawn, shared out among its operators."""
    found = []
    for name, layer in layers(network):
        x = _sample(seen[name], name) if name in seen else None
        if x is None or not bool(x.isfinite().all()):
            continue
        parts = _parts(layer)
        shares = [neurons // len(parts) + (index < neurons % len(parts)) for index in range(len(parts))]
        drawn = [n for part, share in zip(parts, shares, strict=True) for n in _neurons(part, x, layer, share)]
        arguments = tuple(_arguments(part, x, layer, name) for part in parts)
        found.append(LayerUse(name, layer.kind, tuple(drawn), arguments))
    return found


def _sample(x: Tensor, name: str) -> Tensor:
    """[B, C, *S] -> [C, N] float64, at keyed positions."""
    flat = x.transpose(0, 1).flatten(1).double()
    order = torch.randperm(flat.shape[1], generator=generator("layer use", name))[:POSITIONS]
    return flat[:, order]


def _parts(layer: OperationalLayer | SelfONNLayer) -> list[_Part]:
    weight = (layer.weight if isinstance(layer, SelfONNLayer) else layer.nodal_weight()).detach().cpu().double()
    if isinstance(layer, SelfONNLayer):
        terms = weight.flatten(2).unflatten(1, (layer.q, -1)).movedim(1, -1)
        return [_Part(f"q = {layer.q}", 0, terms, _polynomial, None, 1.0)]
    parts = []
    for block in layer.blocks:
        bound = block.nodal.weight_bound if layer.unit is not None else 1 / math.prod(layer.spec.kernel_size)
        part = weight[block.start : block.stop].flatten(2)
        parts.append(_Part(block.name, block.start, part, block.nodal, block.nodal, bound))
    return parts


def _polynomial(w: Tensor, x: Tensor) -> Tensor:
    """sum_q w_q x^q by Horner's rule."""
    total = torch.zeros_like(x)
    for power in range(w.shape[-1] - 1, -1, -1):
        total = (total + w[..., power]) * x
    return total


def _neurons(part: _Part, x: Tensor, layer: OperationalLayer | SelfONNLayer, count: int) -> list[Neuron]:
    """Those with the largest weights, in their order."""
    size = part.weight.abs() if part.weight.ndim == 3 else _size(part.weight, x)
    chosen = sorted(size.flatten(1).square().sum(1).argsort(descending=True, stable=True)[:count].tolist())
    low, high = float(x.min()), float(x.max())
    grid = torch.linspace(low, high, POINTS, dtype=torch.float64)
    result = []
    for neuron in chosen:
        order = size[neuron].flatten().argsort(descending=True, stable=True).tolist()
        connections = []
        # The largest lie close together, and their lines on each other.
        for place in dict.fromkeys(order[round(n * (len(order) - 1) / (LINES - 1))] for n in range(LINES)):
            channel, tap = divmod(place, size.shape[2])
            w = part.weight[neuron, channel, tap]
            values = part.function(w[None] if w.ndim == 0 else w[None, :], grid[None])[0]
            number = _group(layer, part.first + neuron) * part.weight.shape[1] + channel
            where = tuple(int(i) for i in np.unravel_index(tap, layer.spec.kernel_size))
            connections.append(Connection(number, where, tuple(w.reshape(-1).tolist()), values.numpy()))
        result.append(Neuron(part.first + neuron, part.operator, grid.numpy(), tuple(connections)))
    return result


def _size(weight: Tensor, x: Tensor) -> Tensor:
    """[n, C/G, T, Q] -> [n, C/G, T]: what the terms can reach at the largest x, added up."""
    largest = float(x.abs().max())
    powers = torch.tensor([largest**power for power in range(1, weight.shape[-1] + 1)], dtype=torch.float64)
    return (weight.abs() * powers).sum(-1)


def _group(layer: OperationalLayer | SelfONNLayer, neuron: int) -> int:
    return neuron // (layer.spec.out_channels // layer.spec.groups)


def _arguments(part: _Part, x: Tensor, layer: OperationalLayer | SelfONNLayer, name: str) -> Arguments:
    """From connections and values of x that the layer's name chooses."""
    neurons, channels, taps = part.weight.shape[:3]
    total = neurons * channels * taps
    order = torch.randperm(total, generator=generator("connections", name, part.operator))[:CONNECTIONS]
    w = part.weight.flatten(0, 2)[order]
    neuron, channel = order // (channels * taps), order // taps % channels
    groups = torch.tensor([_group(layer, part.first + int(n)) for n in neuron])
    values = x[groups * channels + channel]  # [K, N]
    psi = part.function(w[:, None] if w.ndim == 1 else w[:, None, :], values)
    index = _unexplained(psi, values)
    if part.nodal is None:
        return Arguments(part.operator, "x", neurons, values.flatten().numpy(), 1.0, None, None, index)
    scale = part.nodal.scale
    linear, turning = landmarks(part.nodal, part.bound)
    arguments = (scale * w[:, None] * values).flatten().numpy()
    symbol = "K w x" if hasattr(part.nodal, "k") else "w x"
    return Arguments(part.operator, symbol, neurons, arguments, scale * part.bound, linear, turning, index)


def _unexplained(y: Tensor, x: Tensor) -> float:
    """[K, N], [K, N] -> share of the variance of all rows of y that the best line in x of each row leaves; 0 to 1."""
    y, x = y - y.mean(1, keepdim=True), x - x.mean(1, keepdim=True)
    total = float(y.square().sum())
    spread = x.square().sum(1)
    covered = torch.where(spread > 0, (x * y).sum(1).square() / spread.clamp_min(1e-300), 0.0)
    return min(max(1 - float(covered.sum()) / total, 0.0), 1.0) if total > 0 else 0.0


def landmarks(nodal: Nodal, bound: float) -> tuple[float | None, float | None]:
    """(`linear`, `turning`) of Arguments, looked for up to twice the calibrated range."""
    steps = 400
    scale = nodal.scale
    x = torch.linspace(-2, 2, 2 * steps + 1, dtype=torch.float64)
    psi = nodal(torch.tensor(bound, dtype=torch.float64), x)
    if not bool(psi.isfinite().all()):
        return None, None
    within = [_unexplained(psi[None, steps - n : steps + n + 1], x[None, steps - n : steps + n + 1]) for n in _reach()]
    fits = [n for n, share in zip(_reach(), within, strict=True) if share <= LINEAR_SHARE]
    edge = next((n for n, share in zip(_reach(), within, strict=True) if share > LINEAR_SHARE), None)
    linear: float | None = math.inf if edge is None else max((n for n in fits if n < edge), default=0) / steps * 2
    linear = None if linear == 0 else linear
    slope = psi.diff()[steps:]
    steepest = slope[slope.abs().cummax(0).indices]
    after = (slope * steepest.sign() < FLAT * steepest.abs()).nonzero()
    turning = (float(after[0]) + 0.5) / steps * 2 if len(after) else None
    factor = scale * bound
    return (None if linear is None else linear * factor), (None if turning is None else turning * factor)


def _reach() -> Sequence[int]:
    """Steps from the middle to which the fit of a line is tried."""
    return range(4, 401, 4)
