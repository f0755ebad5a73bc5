"""A network of any neurons that begins with the weights of the same network of first-order ones."""

from __future__ import annotations

import torch
from torch import nn

from onn_runner.errors import ConfigError
from onn_runner.model.base import Layer, Unrepresentable
from onn_runner.model.conv import ConvLayer


@torch.no_grad()
def take_over(network: nn.Module, source: nn.Module, *, near: bool = False) -> int:
    """Load every layer of `source` into the layer of the same name; norms and the rest are copied. How many are near.

    Raises ConfigError where the two are not the same network, Unrepresentable where a layer cannot be what it was.
    """
    theirs = {name: layer for name, layer in source.named_modules() if isinstance(layer, Layer)}
    ours = {name: layer for name, layer in network.named_modules() if isinstance(layer, Layer)}
    if theirs.keys() != ours.keys():
        odd = sorted(theirs.keys() ^ ours.keys())
        raise ConfigError(f"the networks have other layers: {', '.join(odd[:5])}")
    nears = 0
    for name, layer in theirs.items():
        if type(layer) is type(ours[name]) and _same(layer, ours[name]):
            ours[name].load_state_dict(layer.state_dict())
        elif isinstance(layer, ConvLayer):
            nears += _load(ours[name], layer, name, near)
        else:
            raise ConfigError(f"layer {name} is {layer.facts().kind} there: only first-order weights can be taken over")
        here, there = _activation(ours[name]), _activation(layer)
        if here != there:
            raise ConfigError(f"layer {name} has the activation {there} there and {here} here: use the same one")
    inside = tuple(f"{name}." if name else "" for name in ours)
    rest = {key: value for key, value in source.state_dict().items() if not key.startswith(inside)}
    missing = {key for key in network.state_dict() if not key.startswith(inside)} ^ rest.keys()
    if missing:
        raise ConfigError(f"the networks differ in {', '.join(sorted(missing)[:5])}")
    network.load_state_dict(rest, strict=False)
    return nears


def _activation(layer: Layer) -> str:
    return str(getattr(getattr(layer, "activation", None), "name", "identity"))


def _same(one: Layer, other: Layer) -> bool:
    shapes = [
        {key: getattr(value, "shape", None) for key, value in layer.state_dict().items()} for layer in (one, other)
    ]
    return shapes[0] == shapes[1] and one.facts().kind == other.facts().kind


def _load(layer: Layer, first: ConvLayer, name: str, near: bool) -> bool:
    """Whether the layer is only near."""
    try:
        try:
            layer.load_first_order(first.weight, first.bias)
            found = False
        except Unrepresentable:
            if not near:
                raise
            layer.load_first_order(first.weight, first.bias, near=True)
            found = True
    except Unrepresentable as error:
        raise Unrepresentable(f"layer {name}: {error}") from error
    own = getattr(layer, "norm", nn.Identity())
    if isinstance(own, nn.Identity) != isinstance(first.norm, nn.Identity):
        raise ConfigError(f"layer {name} has a norm in one of the networks only")
    own.load_state_dict(first.norm.state_dict())
    return found
