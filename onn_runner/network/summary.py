"""Layer, operators, non-linearity, parameters, MACs and output shape, from one forward of a copy of the network."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from onn_runner.errors import ConfigError
from onn_runner.model.base import Layer, LayerFacts
from onn_runner.seeding import generator

NORMS = (_NormBase, nn.GroupNorm, nn.LayerNorm, nn.RMSNorm)
DEEP = 4
"""Quadratic layers that may do without norms and bounds."""
LINEAR = 1e-3
"""A layer whose non-linearity index is below this is called linear in x."""


@dataclass(frozen=True)
class Row:
    """One layer; everything is of one sample."""

    name: str
    facts: LayerFacts
    parameters: int
    macs: int
    """Multiply-accumulates of one sample; nodal evaluations for operational neurons."""
    output_shape: tuple[int, ...]  # [O, *S']


@dataclass(frozen=True)
class Summary:
    rows: tuple[Row, ...]
    parameters: int
    """Of the whole network, also where they belong to no layer."""
    macs: int
    warnings: tuple[str, ...]

    def as_plain(self) -> dict[str, Any]:
        """Plain containers, for run.json."""
        plain: dict[str, Any] = _plain(asdict(self))
        return plain


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


def layers_of(network: nn.Module) -> list[tuple[str, Layer]]:
    """Every layer of neurons with its name in the network, in the order of construction."""
    return [(name, module) for name, module in network.named_modules() if isinstance(module, Layer)]


def summarise(
    network: nn.Module,
    input_shape: Sequence[int],  # [C, *S], without the batch
    *,
    device: torch.device | str | None = None,
    example: Tensor | None = None,  # [B, C, *S] to run instead of random numbers in [0, 1]
) -> Summary:
    """Run one forward on a copy, so that nothing of the network changes: no statistics, no plans, no random state.

    Raises ConfigError where the network holds no layers; whatever the layers raise for this input.
    """
    if not layers_of(network):
        raise ConfigError(f"{type(network).__name__} holds no layers of neurons to summarise")
    if example is None:
        example = torch.rand(1, *input_shape, generator=generator("summary", *input_shape))
    trial = copy.deepcopy(network).eval().to(device)
    rows: list[Row] = []
    hooks = [layer.register_forward_hook(_recorder(rows, name), with_kwargs=False) for name, layer in layers_of(trial)]
    first = next(trial.parameters(), example)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        result = trial(example.to(first.device, first.dtype))
        for hook in hooks:
            hook.remove()
        if not _is_finite(result) and len(example) > 1:
            # Fresh norms that have seen no batch scale nothing yet: what training begins with counts.
            result = trial.train()(example.to(first.device, first.dtype))
    parameters = sum(p.numel() for p in network.parameters())
    found = [*_growth(network), *_warnings(rows, result)]
    return Summary(tuple(rows), parameters, sum(row.macs for row in rows), tuple(found))


def _growth(network: nn.Module) -> list[str]:
    """A warning where products of products have nothing to hold them."""
    growing = [name for name, layer in layers_of(network) if getattr(layer, "grows", False)]
    layers = tuple(name for name, _ in layers_of(network))
    between = [
        name for name, module in network.named_modules()
        if isinstance(module, NORMS) and not name.startswith(tuple(f"{layer}." for layer in layers))
    ]  # fmt: skip
    if len(growing) < DEEP or between:
        return []
    return [
        f"{len(growing)} quadratic layers ({growing[0]} to {growing[-1]}) have neither norms nor bounded activations: "
        "values are squared from layer to layer, and overflow or vanish after a few; set model.activation=tanh, "
        "model.output_norm=batch or network.norm=batch"
    ]


def _recorder(rows: list[Row], name: str) -> Any:
    """A forward hook that adds the layer's row."""

    def record(layer: Layer, inputs: tuple[Any, ...], output: Tensor) -> None:
        parameters = sum(p.numel() for p in layer.parameters())
        macs = layer.macs(math.prod(output.shape[2:]))
        rows.append(Row(name, layer.facts(), parameters, macs, tuple(output.shape[1:])))

    return record


def _warnings(rows: Sequence[Row], result: Any) -> list[str]:
    found = []
    labelled = [row for row in rows if row.facts.kind.startswith(("onn", "self_onn")) and _known(row)]
    if labelled and all((row.facts.nonlinearity or 0.0) < LINEAR for row in labelled):
        kinds = " and ".join(sorted({row.facts.kind for row in labelled}))
        found.append(
            f"the network is called {kinds}, but every layer is linear in its input up to the activation: it is a "
            f"convolutional network; {_remedy(labelled)}"
        )
    if not _is_finite(result):
        found.append("the untrained network gives values that are not finite for inputs in [0, 1]")
    return found


def _is_finite(result: Any) -> bool:
    return not isinstance(result, Tensor) or bool(torch.isfinite(result).all())


def _remedy(rows: Sequence[Row]) -> str:
    """What would make it non-linear, by what it is made of."""
    names = {name for row in rows for name, _ in row.facts.operators}
    if not names:
        return "choose model.q above 1"
    if names == {"mul"}:
        return "choose other operators than mul, such as ops=sine,exp"
    shown = ", ".join(sorted(names - {"mul"}))
    return f"raise operators.<name>.omega or k of {shown}, or choose operators=default, which is calibrated"


def _known(row: Row) -> bool:
    return row.facts.nonlinearity is not None
