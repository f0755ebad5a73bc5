"""P_params P_MACs / (drop of the metric without a layer): which layers a trained network can do without.

Source: Xu et al., QuadraLib (2022), the auto-builder's indicator.
"""

from __future__ import annotations

import contextlib
import copy
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from onn_runner.model.base import Layer
from onn_runner.network.classifier import Classifier
from onn_runner.network.residual import ResidualBlock
from onn_runner.network.resnet_restore import ResNetRestore
from onn_runner.network.summary import Summary, layers_of
from onn_runner.network.units import Unit

MASKS = ("zero", "skip")


@dataclass(frozen=True)
class Importance:
    """What one layer or block is worth."""

    name: str
    layers: tuple[str, ...]
    stays_because: str
    """Why it cannot be left out; empty where it can."""
    parameters: int
    macs: int
    parameter_share: float
    """Of the network's, 0 to 1."""
    mac_share: float
    value: float
    """The metric without it; not finite where the network then gives values that are none."""
    drop: float
    """How much worse that is than the whole network; negative where it is better."""
    importance: float
    """The indicator: large for what costs much and is missed little; inf where the drop is not positive."""
    rank: int | None = None
    """1: to be left out first; None for what cannot be left out."""

    def as_plain(self) -> dict[str, Any]:
        return {**asdict(self), "layers": list(self.layers), "free": self.drop <= 0}


def units_of(network: nn.Module) -> list[Unit]:
    """The network's own, or of others blocks of residual restoration and single layers, the output layer staying."""
    if isinstance(network, Classifier):
        return network.units()
    found = layers_of(network)
    names = [name for name, _ in found]
    if isinstance(network, ResNetRestore):
        pairs = [(names[2 * n + 1], names[2 * n + 2]) for n in range(network.blocks)]
        only = "it is the only block" if network.blocks == 1 else ""
        blocks = [Unit(f"block{n + 1}", pair, only) for n, pair in enumerate(pairs)]
        inside = {name for pair in pairs for name in pair}
        return [*blocks, *(Unit(name, (name,), "blocks alone are left out") for name in names if name not in inside)]
    return [Unit(name, (name,), "it makes the output" if layer.spec.role == "output" else "") for name, layer in found]


@contextlib.contextmanager
def masked(network: nn.Module, unit: Unit, mask: str = "zero") -> Iterator[None]:
    """The network without what the unit computes; afterwards it is bit for bit as it was, buffers included.

    `zero`: the weights of the unit's layers are 0, biases and norms stay; of a residual block all parameters are 0, so
    that its shortcut is left, and the activation behind the sum. `skip`: what keeps channels and size hands on its
    input, as in the network that is built without it; the rest as with `zero`.
    """
    before = {name: tensor.detach().clone() for name, tensor in _tensors(network).items()}
    states = {name: copy.deepcopy(layer.get_extra_state()) for name, layer in _with_states(network)}
    with contextlib.ExitStack() as hooks:
        try:
            block = network.get_submodule(unit.name) if mask == "skip" and _has_block(network, unit) else None
            if isinstance(block, ResidualBlock) and isinstance(block.shortcut, nn.Identity):
                hooks.callback(block.register_forward_hook(_hand_on).remove)
            else:
                _mask_layers(network, unit, mask, hooks)
            yield
        finally:
            with torch.no_grad():
                for name, tensor in _tensors(network).items():
                    tensor.copy_(before[name])
            for name, layer in _with_states(network):
                layer.set_extra_state(states[name])


def _mask_layers(network: nn.Module, unit: Unit, mask: str, hooks: contextlib.ExitStack) -> None:
    residual = is_residual(network, unit)
    for name in unit.layers:
        layer = network.get_submodule(name)
        assert isinstance(layer, Layer)
        if mask == "skip" and not residual and _keeps_shape(layer):
            hooks.callback(layer.register_forward_hook(_hand_on).remove)
        else:
            _zero(layer, everything=residual)


def is_residual(network: nn.Module, unit: Unit) -> bool:
    """Whether a shortcut leads around the unit."""
    return _has_block(network, unit) or (isinstance(network, ResNetRestore) and len(unit.layers) == 2)


def _has_block(network: nn.Module, unit: Unit) -> bool:
    return isinstance(dict(network.named_modules()).get(unit.name), ResidualBlock)


def _tensors(network: nn.Module) -> dict[str, Tensor]:
    return {**dict(network.named_parameters()), **{f"buffer {name}": one for name, one in network.named_buffers()}}


def _with_states(network: nn.Module) -> list[tuple[str, nn.Module]]:
    """Modules that remember more than tensors, such as what computes them."""
    own = nn.Module.get_extra_state
    return [(name, module) for name, module in network.named_modules() if type(module).get_extra_state is not own]


def _keeps_shape(layer: Layer) -> bool:
    spec = layer.spec
    return spec.in_channels == spec.out_channels and set(spec.stride) == {1} and spec.padding == "same"


def _hand_on(layer: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> Tensor:
    x: Tensor = inputs[0]
    return x


@torch.no_grad()
def _zero(layer: Layer, *, everything: bool) -> None:
    """Weights of first order and others; with `everything` biases and norms too."""
    kinds = layer.decay_groups()
    for name, parameter in layer.named_parameters():
        if everything or kinds[name] in ("weight", "quadratic"):
            parameter.zero_()


def importances(
    network: nn.Module,
    summary: Summary,
    score: Callable[[], float],
    *,
    higher: bool,
    mask: str = "zero",
) -> tuple[float, list[Importance]]:
    """(the metric of the whole network, every unit's importance in the network's order, ranked).

    `score` evaluates the network as it stands; `higher`: whether more of the metric is better. A metric that is not
    finite counts as the worst there is.
    """
    whole = score()
    rows = {row.name: row for row in summary.rows}
    found = []
    for unit in units_of(network):
        with masked(network, unit, mask):
            value = score()
        drop = (whole - value if higher else value - whole) if math.isfinite(value) else math.inf
        parameters = sum(rows[name].parameters for name in unit.layers if name in rows)
        macs = sum(rows[name].macs for name in unit.layers if name in rows)
        shares = parameters / summary.parameters, macs / summary.macs
        indicator = math.prod(shares) / drop if drop > 0 else math.inf
        found.append(
            Importance(unit.name, unit.layers, unit.stays_because, parameters, macs, *shares, value, drop, indicator)
        )
    return whole, ranked(found)


def ranked(found: Sequence[Importance]) -> list[Importance]:
    """In the same order, with ranks of what can be left out.

    What is not missed at all comes first, the costliest of it first; then by the indicator; of equals the earlier.
    """

    def key(place: int) -> tuple[bool, float, int]:
        one = found[place]
        free = one.drop <= 0
        return (not free, -(one.parameter_share * one.mac_share if free else one.importance), place)

    order = sorted((n for n, one in enumerate(found) if not one.stays_because), key=key)
    ranks: Mapping[int, int] = {place: rank for rank, place in enumerate(order, start=1)}
    return [replace(one, rank=ranks.get(n)) for n, one in enumerate(found)]
