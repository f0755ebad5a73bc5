"""A module of first order as LayerSpec, weight [O, C/G, *k] and bias [O]; or why it cannot be had as that."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.utils import parametrize

from onn_runner.model.base import Layer, LayerSpec
from onn_runner.model.conv import ConvLayer, transposed_weight
from onn_runner.model.vectors import vector_spec

KNOWN: tuple[type[nn.Module], ...] = (
    nn.Conv1d,
    nn.Conv2d,
    nn.Conv3d,
    nn.ConvTranspose1d,
    nn.ConvTranspose2d,
    nn.ConvTranspose3d,
    nn.Linear,
)
OWN = ("forward", "_conv_forward", "_output_padding")
"""Methods by which a subclass computes something else."""


@dataclass(frozen=True)
class FirstOrder:
    """What a convolution or linear layer computes."""

    spec: LayerSpec
    weight: Tensor  # [O, C/G, *k]
    bias: Tensor | None  # [O]
    vectors: bool = False
    """The channels are the last axis, as of torch's Linear."""


def is_of_first_order(module: nn.Module) -> bool:
    """Whether it is a convolution or linear layer of some kind, convertible or not."""
    name = type(module).__name__
    quantised = ".quantized" in type(module).__module__ and name.startswith(("Conv", "Linear")) and "Params" not in name
    return isinstance(module, (_ConvNd, nn.Linear, ConvLayer)) or quantised


def obstacle(module: nn.Module) -> str | None:
    """Why a module of first order stays as it is, as half a sentence; None where `read` can be called."""
    if isinstance(module, ConvLayer):
        return None
    base = next((known for known in KNOWN if isinstance(module, known)), None)
    if base is None:
        return f"{type(module).__name__} has no weights that could be taken over"
    if isinstance(module, LazyModuleMixin) and module.has_uninitialized_params():
        return "it has no weights yet: run a batch through the network first"
    if parametrize.is_parametrized(module):
        return "its weight is parametrised: remove that first (torch.nn.utils.parametrize.remove_parametrizations)"
    if "weight" not in module._parameters:
        return "a hook makes its weight (weight_norm, spectral_norm): remove that first"
    if any(_overrides(module, base, name) for name in OWN):
        return f"{type(module).__name__} computes something of its own"
    weight = module._parameters["weight"]
    if weight is None or not weight.is_floating_point():
        return "its weights are no real numbers"
    return None


def _overrides(module: nn.Module, base: type[nn.Module], name: str) -> bool:
    """Whether the module computes with another method of that name than torch's class does."""
    if name in vars(module):
        return True
    return getattr(type(module), name, None) is not getattr(base, name, None)


def read(module: nn.Module) -> FirstOrder:
    """Of a module without obstacle; index and input_bound are still to be filled in, ours keep the latter."""
    if isinstance(module, ConvLayer):
        return FirstOrder(replace(module.spec, activation=module.activation.name), module.weight, module.bias)
    weight: Any = module.weight
    bias: Any = module.bias
    if isinstance(module, nn.Linear):
        spec = vector_spec(module.in_features, module.out_features, bias=bias is not None, activation="identity")
        return FirstOrder(spec, weight[..., None], bias, vectors=True)
    assert isinstance(module, _ConvNd)
    spec = _spec(module)
    return FirstOrder(spec, transposed_weight(weight, spec.groups) if spec.transposed else weight, bias)


def _spec(module: _ConvNd) -> LayerSpec:
    transposed = isinstance(module, _ConvTransposeNd)
    padding: Any = module.padding if isinstance(module.padding, str) else tuple(module.padding)
    mode: Any = module.padding_mode
    added = tuple(module.output_padding)
    return LayerSpec(
        in_channels=module.in_channels,
        out_channels=module.out_channels,
        kernel_size=tuple(module.kernel_size),
        stride=tuple(module.stride),
        dilation=tuple(module.dilation),
        padding=padding,
        padding_mode=mode,
        groups=module.groups,
        transposed=transposed,
        output_padding=added if transposed and any(added) else None,
        bias=module.bias is not None,
        activation="identity",
    )


def kind(module: nn.Module) -> str:
    """`Conv2d 3 -> 64, 7x7`, `Linear 512 -> 10`, `conv 16 -> 16, 3x3`"""
    if isinstance(module, nn.Linear):
        return f"{type(module).__name__} {module.in_features} -> {module.out_features}"
    source: Any = module.spec if isinstance(module, Layer) else module
    if not hasattr(source, "kernel_size"):
        return type(module).__name__
    name = module.kind if isinstance(module, ConvLayer) else type(module).__name__
    text = f"{name} {source.in_channels} -> {source.out_channels}, {'x'.join(map(str, source.kernel_size))}"
    return text if source.groups == 1 else f"{text}, {source.groups} groups"
