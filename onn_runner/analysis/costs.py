"""Parameters, MACs, non-linear evaluations, memory and time of a network and of each of its layers, measured."""

from __future__ import annotations

import copy
import math
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from onn_runner.analysis.memory import OUTSIDE, Place, kept_bytes, peak_bytes, watched
from onn_runner.model.base import Layer
from onn_runner.model.operational import OperationalLayer
from onn_runner.network.summary import layers_of

REPEATS = 5
"""Timed runs after one that is not; the shortest counts, which other programs disturbed least."""


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Of one layer, of what lies between the layers, or of a whole network. Counts are of one sample."""

    parameters: int
    macs: int
    """Multiply-accumulates by definition: one for each weight and output position; of operational neurons psi(w, x)."""
    computed_macs: int
    """Multiply-accumulates of the convolutions and matrix products that a forward carries out."""
    nodal: int
    """Values of psi(w, x) by definition; 0 for layers without operators."""
    activations: int
    """Values of activations that are not the identity."""
    kept: int
    """Bytes that a batch's forward keeps for backward, unique storages, without parameters."""
    forward: float
    """Seconds for the batch."""
    backward: float


@dataclass(frozen=True)
class LayerCost:
    name: str
    kind: str
    output_shape: tuple[int, ...]  # [O, *S']
    cost: Cost


@dataclass(frozen=True)
class NetworkCost:
    size: tuple[int, ...]
    batch: int
    layers: tuple[LayerCost, ...]
    between: Cost
    """What belongs to no layer: pooling, residual sums, norms of the network's own; time is left to `total`."""
    total: Cost
    peak: int
    """Bytes of a training step (forward and backward) beyond parameters, their gradients and the batch."""

    def as_plain(self) -> dict[str, Any]:
        plain = asdict(self)
        return {**plain, "size": list(self.size)}


def measure(
    network: nn.Module,
    x: Tensor,  # [B, C, *S]
    *,
    by_layer: bool = True,
    repeats: int = REPEATS,
) -> NetworkCost:
    """Of a copy of the network in training mode, on x's device; `by_layer` False: only totals, which is faster."""
    trial = copy.deepcopy(network).to(x.device).train()
    layers: dict[str, Layer] = dict(layers_of(trial))
    with torch.random.fork_rng(devices=[x.device] if x.device.type == "cuda" else []):
        counts, inputs, shapes = _counted(trial, layers, x)
        kept = kept_bytes(trial, layers, x)
        gradient = _gradient(trial, x)
        peak = peak_bytes(trial, lambda: _step(trial, x, gradient), x, gradient)
        times = {name: _timed(layers[name], inputs[name], repeats) for name in layers if by_layer and name in inputs}
        whole = _times(lambda: trial(x), gradient, _parameters(trial), repeats)
    rows = [
        LayerCost(name, layer.facts().kind, shapes[name], _layer_cost(layer, counts[name], kept.get(name, 0),
                                                                       times.get(name, (0.0, 0.0))))
        for name, layer in layers.items() if name in inputs
    ]  # fmt: skip
    total = Cost(
        parameters=sum(p.numel() for p in trial.parameters()),
        macs=sum(row.cost.macs for row in rows),
        computed_macs=counts[OUTSIDE].computed // len(x),
        nodal=sum(row.cost.nodal for row in rows),
        activations=sum(row.cost.activations for row in rows),
        kept=sum(kept.values()),
        forward=whole[0],
        backward=whole[1],
    )
    return NetworkCost(tuple(x.shape[2:]), len(x), tuple(rows), _between(total, rows, kept), total, peak)


@dataclass
class _Count:
    """Of all calls of one layer."""

    positions: int = 0
    computed: int = 0
    """For the batch."""
    outputs: int = 0
    batch: int = 1


def _counted(
    network: nn.Module, layers: Mapping[str, Layer], x: Tensor
) -> tuple[dict[str, _Count], dict[str, list[Tensor]], dict[str, tuple[int, ...]]]:
    """(counts by layer, OUTSIDE for the whole network; each layer's inputs; its last output's shape [O, *S'])."""
    counts: dict[str, _Count] = defaultdict(_Count)
    inputs: dict[str, list[Tensor]] = defaultdict(list)
    shapes: dict[str, tuple[int, ...]] = {}
    with torch.no_grad():
        # What layers choose at their first call is not counted.
        network(x)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        started: list[int] = []

        def enter(name: str, given: tuple[Any, ...]) -> None:
            inputs[name].append(given[0].detach())
            started.append(counter.get_total_flops())

        def leave(name: str, output: Tensor) -> None:
            count = counts[name]
            count.computed += (counter.get_total_flops() - started.pop()) // 2
            count.positions += math.prod(output.shape[2:])
            count.batch = len(output)
            count.outputs += output[0].numel() if len(output) else 0
            shapes[name] = tuple(output.shape[1:])

        with watched(layers, Place(), enter=enter, leave=leave):
            network(x)
        counts[OUTSIDE].computed = counter.get_total_flops() // 2
    return counts, inputs, shapes


def _layer_cost(layer: Layer, count: _Count, kept: int, times: tuple[float, float]) -> Cost:
    macs = layer.macs(count.positions)
    activation = getattr(layer, "activation", None)
    return Cost(
        parameters=sum(p.numel() for p in layer.parameters()),
        macs=macs,
        computed_macs=count.computed // count.batch,
        nodal=macs if isinstance(layer, OperationalLayer) else 0,
        activations=0 if getattr(activation, "name", "identity") == "identity" else count.outputs,
        kept=kept,
        forward=times[0],
        backward=times[1],
    )


def _between(total: Cost, rows: Sequence[LayerCost], kept: Mapping[str, int]) -> Cost:
    counted = {name: getattr(total, name) - sum(getattr(row.cost, name) for row in rows)
               for name in ("parameters", "computed_macs")}  # fmt: skip
    return Cost(macs=0, nodal=0, activations=0, kept=kept.get(OUTSIDE, 0), forward=0.0, backward=0.0, **counted)


def _gradient(network: nn.Module, x: Tensor) -> Tensor:
    """Ones for the network's output: no loss of a task stands between."""
    with torch.no_grad():
        return torch.ones_like(network(x))


def _step(network: nn.Module, x: Tensor, gradient: Tensor) -> None:
    torch.autograd.grad(network(x), _parameters(network), gradient, allow_unused=True)


def _parameters(module: nn.Module) -> list[nn.Parameter]:
    return [parameter for parameter in module.parameters() if parameter.requires_grad]


def _timed(layer: Layer, inputs: Sequence[Tensor], repeats: int) -> tuple[float, float]:
    """(forward, backward) seconds of the layer alone on what it is given, all its calls together."""
    forward = backward = 0.0
    for given in inputs:
        x = given.requires_grad_(given.is_floating_point())
        gradient = _gradient(layer, x)
        there, back = _times(lambda x=x: layer(x), gradient, [x, *_parameters(layer)], repeats)  # type: ignore[misc]
        forward, backward = forward + there, backward + back
    return forward, backward


def _times(
    forward: Callable[[], Tensor], gradient: Tensor, wanted: Sequence[Tensor], repeats: int
) -> tuple[float, float]:
    there, back = [], []
    for _ in range(1 + repeats):
        began = _now(gradient.device)
        y = forward()
        middle = _now(gradient.device)
        torch.autograd.grad(y, wanted, gradient, allow_unused=True)
        there.append(middle - began)
        back.append(_now(gradient.device) - middle)
    return min(there[1:]), min(back[1:])


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()
