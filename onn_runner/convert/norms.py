"""w g / sqrt(v + e) and (b - m) g / sqrt(v + e) + s: a batch norm in evaluation as part of the layer before it."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from torch import fx, nn
from torch.nn.modules.conv import _ConvTransposeNd
from torch.nn.utils.fusion import fuse_conv_bn_weights

from onn_runner.errors import ConfigError
from onn_runner.model.base import Layer
from onn_runner.model.conv import ConvLayer, transposed_weight

NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


def fold(
    network: nn.Module,
    chosen: Mapping[str, nn.Module],  # layers by name, without obstacles
) -> list[tuple[str, str]]:
    """Fold, in place, every norm that certainly follows one of the layers; the pairs of names.

    Certain are neighbours in a plain Sequential, and what torch.fx can trace. Raises ConfigError where there are none.
    """
    found: dict[str, str] = {}
    for layer, norm in (*_neighbours(network), *_traced(network)):
        if layer in chosen and _foldable(network, norm) and norm not in found.values():
            found.setdefault(layer, norm)
    pairs = list(found.items())
    for layer, norm in pairs:
        _fuse(network.get_submodule(layer), network.get_submodule(norm))
        parent, _, last = norm.rpartition(".")
        setattr(network.get_submodule(parent), last, nn.Identity())
    for name, module in chosen.items():
        if isinstance(module, ConvLayer) and type(module.norm) in NORMS and module.norm.track_running_stats:
            _fuse(module, module.norm)
            module.norm, module.spec = nn.Identity(), replace(module.spec, norm=None, bias=True)
            pairs.append((name, f"{name}.norm"))
    if not pairs:
        raise ConfigError(
            "fold_norms: no batch norm certainly follows a layer that is converted (as neighbours in a Sequential, or "
            "in what torch.fx can trace); leave it out"
        )
    return pairs


def _foldable(network: nn.Module, name: str) -> bool:
    norm = network.get_submodule(name)
    hooked = norm._forward_hooks or norm._forward_pre_hooks or norm._backward_hooks or norm._backward_pre_hooks
    return type(norm) in NORMS and getattr(norm, "running_mean", None) is not None and not hooked


def _fuse(layer: Any, norm: Any) -> None:
    """In place. Transposed weights are turned, since torch's fusion takes one group's outputs for all of them."""
    turned = isinstance(layer, _ConvTransposeNd)
    weight = transposed_weight(layer.weight, layer.groups) if turned else layer.weight
    weight, bias = fuse_conv_bn_weights(
        weight, layer.bias, norm.running_mean, norm.running_var, norm.eps, norm.weight, norm.bias
    )
    learns = layer.weight.requires_grad
    if turned:
        weight = transposed_weight(weight.detach(), layer.groups).contiguous()
    layer.weight, layer.bias = (nn.Parameter(values.detach(), requires_grad=learns) for values in (weight, bias))


def _neighbours(network: nn.Module) -> Iterator[tuple[str, str]]:
    """(module, next module) in every Sequential that calls its children one after another."""
    held = Counter(id(module) for _, module in network.named_modules(remove_duplicate=False))
    for name, module in network.named_modules():
        if isinstance(module, nn.Sequential) and type(module).forward is nn.Sequential.forward:
            children = [(f"{name}.{child}" if name else child, one) for child, one in module.named_children()]
            for (first, one), (second, other) in itertools.pairwise(children):
                if held[id(one)] == held[id(other)] == 1:
                    yield first, second


class _Tracer(fx.Tracer):
    def is_leaf_module(self, module: nn.Module, module_qualified_name: str) -> bool:
        return isinstance(module, Layer) or super().is_leaf_module(module, module_qualified_name)


def _traced(network: nn.Module) -> Iterator[tuple[str, str]]:
    """(module, module that alone takes its output), where both are called once; nothing where fx cannot trace."""
    try:
        graph = _Tracer().trace(network)
    except (TypeError, ValueError, RuntimeError, NameError, AttributeError, LookupError, NotImplementedError):
        # A network may do with its input whatever it likes, and then says so in its own way.
        return
    calls = [node for node in graph.nodes if node.op == "call_module"]
    times = Counter(str(node.target) for node in calls)
    for node in calls:
        before = node.args[0] if node.args else None
        if not isinstance(before, fx.Node) or before.op != "call_module" or len(before.users) != 1:
            continue
        first, second = str(before.target), str(node.target)
        if times[first] == times[second] == 1:
            yield first, second
