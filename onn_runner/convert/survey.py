"""Which modules of a network can be converted, and why the others cannot: names, obstacles, weights read by others."""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor, nn

from onn_runner.convert.first_order import is_of_first_order, kind, obstacle
from onn_runner.errors import ConfigError, out_of_memory
from onn_runner.model.base import Layer

READERS: Mapping[type[nn.Module], tuple[str, ...]] = {
    nn.MultiheadAttention: ("out_proj",),
    nn.TransformerEncoderLayer: ("linear1", "linear2"),
}
"""Modules of torch that compute with the weights of these children, at least sometimes, without calling them."""


@dataclass(frozen=True)
class Left:
    """What stays of first order."""

    name: str
    what: str
    reason: str


@dataclass(frozen=True)
class Survey:
    """What a network holds of first order."""

    names: Mapping[nn.Module, tuple[str, ...]]
    """Modules to convert, in the order of construction, with all names under which the network holds them."""
    left: tuple[Left, ...]
    reach: Mapping[str, float]
    """Name -> the largest absolute value that it was given in the example; empty without one."""


def survey(
    network: nn.Module,
    *,
    layers: Sequence[str],
    keep: Sequence[str],
    example: Tensor | None = None,  # [B, C, *S]
) -> Survey:
    """Raises ConfigError for patterns that fit nothing, and where the network does not take the example."""
    held: dict[nn.Module, list[str]] = defaultdict(list)
    for name, module in network.named_modules(remove_duplicate=False):
        if is_of_first_order(module) and not _inside_a_layer(network, name):
            held[module].append(name)
    found = {module: tuple(names) for module, names in held.items()}
    every = [name for names in found.values() for name in names]
    _check_patterns("layers", layers, every)
    _check_patterns("keep", keep, every)
    seen = _Seen({}, {}) if example is None else _watch(network, [names[0] for names in found.values()], example)
    known = _read_by_torch(network)
    tied = _tied(network)
    chosen: dict[nn.Module, tuple[str, ...]] = {}
    left: list[Left] = []
    for module, names in found.items():
        reason = obstacle(module) or tied.get(module) or next((known[n] for n in names if n in known), None)
        if not any(_fits(name, layers) for name in names):
            reason = "not among the layers asked for"
        elif any(_fits(name, keep) for name in names):
            reason = "kept, as asked for"
        if reason is None and seen.read.get(names[0]):
            reason = "another module computes with its weights instead of calling it"
        if reason is None:
            chosen[module] = names
        else:
            left.append(Left(names[0], kind(module), reason))
    left += [
        Left(f"{name}.in_proj" if name else "in_proj", "MultiheadAttention", "its projections are computed as one")
        for name, module in network.named_modules()
        if isinstance(module, nn.MultiheadAttention)
    ]
    return Survey(chosen, tuple(left), seen.reach)


def _inside_a_layer(network: nn.Module, name: str) -> bool:
    """Whether the module is a part of one of our layers, which is converted as a whole or not at all."""
    parts = name.split(".") if name else []
    return any(isinstance(network.get_submodule(".".join(parts[:end])), Layer) for end in range(len(parts)))


def _fits(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _check_patterns(key: str, patterns: Sequence[str], names: Sequence[str]) -> None:
    for pattern in patterns:
        if pattern != "*" and not any(fnmatchcase(name, pattern) for name in names):
            raise ConfigError(
                f"{key}: no convolution or linear layer is called '{pattern}'; there are: {', '.join(names) or 'none'}"
            )


def _read_by_torch(network: nn.Module) -> dict[str, str]:
    """Name -> why, of children whose weights torch's own modules take."""
    found: dict[str, str] = {}
    for name, module in network.named_modules():
        for reader, children in READERS.items():
            if isinstance(module, reader):
                stem = f"{name}." if name else ""
                found |= {f"{stem}{child}": f"{reader.__name__} computes with its weights itself" for child in children}
    return found


def _tied(network: nn.Module) -> dict[nn.Module, str]:
    """Module -> whose parameter it shares."""
    owners: dict[int, list[tuple[str, nn.Module]]] = defaultdict(list)
    for name, module in network.named_modules():
        for parameter in module._parameters.values():
            if parameter is not None:
                owners[id(parameter)].append((name, module))
    found: dict[nn.Module, str] = {}
    for several in owners.values():
        for name, module in several if len(several) > 1 else ():
            others = [other for other, _ in several if other != name]
            found[module] = f"it shares its weights with {', '.join(others)}"
    return found


@dataclass(frozen=True)
class _Seen:
    """What an example showed, by name."""

    read: dict[str, bool]
    reach: dict[str, float]


def _watch(network: nn.Module, names: Sequence[str], example: Tensor) -> _Seen:
    """Run a copy whose modules note who takes their weights, in evaluation and in training mode."""
    trial, seen = copy.deepcopy(network), _Seen({}, {})
    for name in names:
        module = trial.get_submodule(name)
        module.__class__ = _watched(type(module), name, seen)
    first = next(trial.parameters(), example)
    x = example.to(first.device, first.dtype)
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        try:
            trial.eval()(x)
        except (RuntimeError, ValueError, AssertionError, TypeError) as error:
            if isinstance(error, RuntimeError) and out_of_memory(error):
                raise
            line = (str(error).splitlines() or [type(error).__name__])[0]
            shape = "x".join(map(str, example.shape[1:]))
            raise ConfigError(f"{type(network).__name__} does not take an input of {shape}: {line}") from error
        # what needs targets or larger batches in training has shown enough
        with suppress(RuntimeError, ValueError, AssertionError, TypeError):
            trial.train()(x)
    return seen


def _watched(base: type[nn.Module], name: str, seen: _Seen) -> type[nn.Module]:
    """A subclass that computes the same, and notes inputs and whoever reads `weight` or `bias` from outside."""
    inside: list[bool] = []

    def get(self: nn.Module, attribute: str) -> Any:
        if attribute in ("weight", "bias") and not inside:
            seen.read[name] = True
        return base.__getattr__(self, attribute)

    def forward(self: nn.Module, *inputs: Any, **named: Any) -> Any:
        inside.append(True)
        try:
            if inputs and isinstance(inputs[0], Tensor) and inputs[0].numel():
                largest = float(inputs[0].detach().abs().amax())
                seen.reach[name] = max(largest, seen.reach.get(name, 0.0))
            return base.forward(self, *inputs, **named)
        finally:
            inside.pop()

    return type(base.__name__, (base,), {"__getattr__": get, "forward": forward})
