"""Every convolution and linear layer of a network replaced by neurons of a factory that start as it; and the report."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from onn_runner.convert import norms
from onn_runner.convert.first_order import FirstOrder, kind, read
from onn_runner.convert.survey import Left, survey
from onn_runner.errors import ConfigError, unknown
from onn_runner.model import padding
from onn_runner.model.base import Factory, Layer, Unrepresentable
from onn_runner.model.conv import ConvLayer, UnboundedInputWarning
from onn_runner.model.operational import OperationalLayer
from onn_runner.model.vectors import VectorLayer

Start = Literal["exact", "near", "fresh"]
STARTS: tuple[Start, ...] = get_args(Start)
DIFFERENCE = 1e-4
"""Of a layer that starts exactly, relative to its largest output: more is no rounding."""
HOOKS = (
    "_forward_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
    "_backward_hooks",
    "_backward_pre_hooks",
)


@dataclass(frozen=True)
class Converted:
    """One layer."""

    name: str
    before: str
    after: str
    near: bool
    """Whether it starts only near what it was."""
    difference: float | None
    """Largest, of its outputs for random inputs, relative to the largest output; None where it starts fresh."""


@dataclass(frozen=True)
class ConversionReport:
    """What was done."""

    network: nn.Module
    start: Start
    converted: tuple[Converted, ...]
    left: tuple[Left, ...]
    folded: tuple[tuple[str, str], ...] = ()
    """(layer, batch norm) of the norms that are in the layers' weights now."""
    notes: tuple[str, ...] = field(default=())

    def line(self) -> str:
        """`53 of 54 first-order layers converted, exactly; left: head (kept, as asked for)`"""
        total = len(self.converted) + len(self.left)
        near = sum(one.near for one in self.converted)
        how = {"fresh": "with fresh weights", "exact": "exactly", "near": "exactly"}[self.start]
        if near:
            how = "near" if near == len(self.converted) else f"{near} of them near"
        text = f"{len(self.converted)} of {total} first-order layers converted, {how}"
        reasons: dict[str, list[str]] = {}
        for one in self.left:
            reasons.setdefault(one.reason, []).append(one.name)
        shown = [
            f"{names[0]}{f' and {len(names) - 1} more' if len(names) > 1 else ''} ({reason})"
            for reason, names in reasons.items()
        ]
        return f"{text}; left: {', '.join(shown)}" if shown else text

    def as_plain(self) -> dict[str, Any]:
        """For JSON and yaml."""
        return {
            "start": self.start,
            "converted": [vars(one) for one in self.converted],
            "left": [vars(one) for one in self.left],
            "folded": [list(pair) for pair in self.folded],
            "notes": list(self.notes),
        }


def convert(
    network: nn.Module,
    factory: Factory,
    *,
    layers: str | Sequence[str] = "*",
    keep: Sequence[str] = (),
    start: Start = "exact",
    fold_norms: bool = False,
    example: Tensor | None = None,
    inplace: bool = False,
) -> ConversionReport:
    """A copy of the network whose convolutions and linear layers are layers of the factory's neurons.

    `layers`, `keep`: patterns of module names to convert, and of those among them to leave.
    `start`: `exact`, every layer computes what it did; `near`, neurons that cannot do that come close for small inputs;
        `fresh`, the neurons' own initial weights.
    `fold_norms`: batch norms that follow a converted layer in evaluation mode become part of its weights.
    `example`: an input. With it, modules that use the weights of others instead of calling these are noticed, and near
        starts are made for the range of values that layers see.
    `inplace`: the network itself is changed, unless it is a single layer.

    Raises ConfigError for patterns without a match, Unrepresentable, naming the layer, where `start` cannot be had.
    """
    if start not in STARTS:
        raise unknown("start", str(start), STARTS)
    patterns = [layers] if isinstance(layers, str) else list(layers)
    network = network if inplace else _copied(network)
    found = survey(network, layers=patterns, keep=list(keep), example=example)
    if not found.names:
        reasons = "; ".join(f"{one.name} ({one.reason})" for one in found.left[:5])
        raise ConfigError(f"{type(network).__name__} has no layer to convert{': ' if reasons else ''}{reasons}")
    folded = norms.fold(network, {names[0]: module for module, names in found.names.items()}) if fold_norms else ()
    told: Any = getattr(factory, "expect", None)
    if told is not None:
        told(len(found.names))
    done: list[Converted] = []
    with _quiet() as unbounded:
        for index, (module, names) in enumerate(found.names.items()):
            last = index == len(found.names) - 1
            made, row = _replaced(module, names[0], factory, _Wish(index, last, start, found.reach.get(names[0])))
            for name in names:
                network = _put(network, name, made)
            done.append(row)
    _not_in_place(network)
    notes = [
        f"{len(unbounded)} layers multiply inputs without bounds; the network's norms must keep them small"
    ] if unbounded and start == "fresh" else []  # fmt: skip
    return ConversionReport(network, start, tuple(done), found.left, tuple(folded), tuple(notes))


def _not_in_place(network: nn.Module) -> None:
    """Activations that overwrite their input: it may be a view of what a neuron's own backward still needs."""
    for module in network.modules():
        if getattr(module, "inplace", None) is True:
            module.inplace = False  # type: ignore[assignment]


def _copied(network: nn.Module) -> nn.Module:
    try:
        return copy.deepcopy(network)
    except (RuntimeError, TypeError) as error:
        line = str(error).splitlines()[0]
        raise ConfigError(f"{type(network).__name__} cannot be copied ({line}): convert it in place") from error


@dataclass(frozen=True)
class _Wish:
    """How one layer is to begin."""

    index: int
    last: bool
    start: Start
    reach: float | None


def _replaced(module: nn.Module, name: str, factory: Factory, wish: _Wish) -> tuple[nn.Module, Converted]:
    first = read(module)
    role = first.spec.role if isinstance(module, ConvLayer) else "output" if wish.last else "hidden"
    try:
        layer = factory(replace(first.spec, index=wish.index, role=role))
    except ConfigError as error:
        raise ConfigError(f"{name} ({kind(module)}): {error}") from error
    layer.to(first.weight.device, first.weight.dtype)
    near = wish.start != "fresh" and _begin(layer, first, f"{name} ({kind(module)})", wish)
    if isinstance(module, ConvLayer):
        layer.norm, layer.activation, layer.output_bound = module.norm, module.activation, module.output_bound
    made = VectorLayer(_given(layer), layer.spec) if first.vectors else layer
    difference = None if wish.start == "fresh" else _difference(module, made, first)
    if difference is not None and not near:
        _check_exact(layer, difference, f"{name} ({kind(module)})")
    _keep_state(module, made, layer, first)
    return made, Converted(name, kind(module), layer.facts().kind, near, difference)


def _check_exact(layer: Layer, difference: float, where: str) -> None:
    """Raises Unrepresentable for a layer that is not what it was, or would not be in training, by a norm inside it."""
    if any(isinstance(part, _NormBase) and name != "norm" for name, part in layer.named_modules()):
        raise Unrepresentable(
            f"{where}: these neurons have a norm of their own, which changes what they compute; use model.norm=none "
            "model.output_norm=none, or start=fresh"
        )
    if not difference <= DIFFERENCE:
        raise Unrepresentable(f"{where}: these neurons start {difference:.2g} of its size away; use start=near")


def _begin(layer: Layer, first: FirstOrder, where: str, wish: _Wish) -> bool:
    """Load the weights; whether the layer is only near them."""
    weight, bias = first.weight.detach(), None if first.bias is None else first.bias.detach()
    try:
        layer.load_first_order(weight, bias)
    except Unrepresentable as error:
        if wish.start == "exact":
            raise Unrepresentable(f"{where}: {error}; or start=near or fresh instead of exact") from error
    else:
        return False
    try:
        if isinstance(layer, OperationalLayer):
            layer.load_first_order(weight, bias, near=True, reach=wish.reach)
        else:
            layer.load_first_order(weight, bias, near=True)
    except Unrepresentable as error:
        raise Unrepresentable(f"{where}: {error}; or start=fresh") from error
    return True


def _given(layer: Layer) -> Callable[[Any], Layer]:
    """The layer itself, as a factory."""
    return lambda spec: layer


@torch.no_grad()
def _difference(module: nn.Module, made: nn.Module, first: FirstOrder) -> float:
    """Of the outputs for normal inputs of the smallest size, relative to the largest; hooks are not run."""
    spec = first.spec
    margins = padding.amounts(spec)
    reach = [d * (k - 1) + 1 for d, k in zip(spec.dilation, spec.kernel_size, strict=True)]
    size = [max(r, max(map(abs, margin)) + 1, 2) for r, margin in zip(reach, margins, strict=True)]
    shape = (2, spec.in_channels) if first.vectors else (2, spec.in_channels, *size)
    drawn = torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float32)
    x = drawn.to(first.weight.device, first.weight.dtype)
    outputs = []
    for one in (module, made):
        trial = copy.deepcopy(one).eval()
        result: Tensor = trial.forward(x)
        outputs.append(result)
    expected, found = outputs
    largest = float(expected.abs().amax()) or 1.0
    return float((found - expected).abs().amax()) / largest


def _keep_state(module: nn.Module, made: nn.Module, layer: Layer, first: FirstOrder) -> None:
    """Mode, hooks and what learns, from the module to its replacement."""
    made.train(module.training)
    for name in HOOKS:
        # The very dicts, so that the handles of hooks still remove them.
        setattr(made, name, getattr(module, name))
    for name, parameter in layer.named_parameters():
        if not name.startswith("norm."):
            source = first.bias if first.bias is not None and "bias" in name else first.weight
            parameter.requires_grad_(source.requires_grad)


def _put(network: nn.Module, name: str, made: nn.Module) -> nn.Module:
    """The network with that module in its place."""
    if not name:
        return made
    parent, _, last = name.rpartition(".")
    setattr(network.get_submodule(parent), last, made)
    return network


@contextmanager
def _quiet() -> Iterator[list[str]]:
    """Collects what factories say of inputs without bounds, which the norms of a converted network may bound."""
    told: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield told
    for warning in caught:
        if issubclass(warning.category, UnboundedInputWarning):
            told.append(str(warning.message))
        else:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
