"""y_o = f(sum over c, t of w[o,c,t] x[c,p+t] + b_o): the first-order neuron, a plain convolution."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from onn_runner.model import activation, padding
from onn_runner.model.base import Layer, LayerFacts, LayerSpec

_CONVOLUTIONS: dict[int, Callable[..., Tensor]] = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}


class UnboundedInputWarning(UserWarning):
    """Powers and products of an input without bounds grow from layer to layer until they overflow."""


def convolve(
    x: Tensor,  # [B, C, *S], already padded
    weight: Tensor,  # [O, C/G, *k]
    *,
    spec: LayerSpec,
    bias: Tensor | None = None,  # [O]
) -> Tensor:  # [B, O, *S']
    """The valid convolution with the stride, dilation and groups of `spec`."""
    convolution = _CONVOLUTIONS[spec.dims]
    return convolution(x, weight, bias, stride=spec.stride, dilation=spec.dilation, groups=spec.groups)


class SpatialLayer(Layer):
    """Checks, padding and activation, which all kinds share; a kind adds `respond`."""

    def __init__(self, spec: LayerSpec, kind: str, own_activation: str | None) -> None:
        """`own_activation` is the model's; the spec's comes first, and an output layer has none of its own."""
        super().__init__()
        padding.check(spec, kind)
        self.spec = spec
        self.kind = kind
        fallback = "identity" if spec.role == "output" else own_activation
        self.activation = activation.named(fallback if spec.activation is None else spec.activation)
        self.output_bound = self.activation.bound

    @property
    def weight_shape(self) -> tuple[int, ...]:
        """[O, C/G, *k]"""
        return (self.spec.out_channels, self.spec.in_channels // self.spec.groups, *self.spec.kernel_size)

    @property
    def fan_in(self) -> int:
        """C/G k^d: how many numbers a neuron reads."""
        return self.spec.in_channels // self.spec.groups * padding.taps(self.spec)

    def respond(self, x: Tensor) -> Tensor:
        """The pre-activation [B, O, *S'] from the padded input."""
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.activation(self.respond(padding.pad(x, self.spec)))
        return result

    def macs(self, positions: int) -> int:
        return positions * self.spec.out_channels * self.fan_in

    def decay_groups(self) -> dict[str, str]:
        return {name: self._group_of(name) for name, _ in self.named_parameters()}

    def _group_of(self, name: str) -> str:
        return "weight" if name == "weight" else "bias"

    def extra_repr(self) -> str:
        s = self.spec
        return f"{self.kind}, {s.in_channels} -> {s.out_channels}, kernel {s.kernel_size}, stride {s.stride}"


def input_moments(spec: LayerSpec, own_activation: str | None) -> tuple[float, float]:
    """E x^2 and E x^4 expected of a layer's input: uniform on [-1, 1] for the first, an activation's values later."""
    return (1 / 3, 1 / 5) if spec.index == 0 else activation.moments(own_activation)


@torch.no_grad()
def fill_uniform(weight: Tensor, variance: float) -> None:
    """Uniform values with mean 0 and that variance, from torch's global generator."""
    weight.uniform_(-1.0, 1.0).mul_(math.sqrt(3 * variance))


class ConvLayer(SpatialLayer):
    """A convolution whose initial weights give pre-activations of variance 1."""

    def __init__(self, spec: LayerSpec, own_activation: str | None) -> None:
        super().__init__(spec, "conv", own_activation)
        self.weight = nn.Parameter(torch.empty(self.weight_shape))
        self.bias = nn.Parameter(torch.zeros(spec.out_channels))
        second, _ = input_moments(spec, own_activation)
        fill_uniform(self.weight, 1 / (self.fan_in * second))

    def respond(self, x: Tensor) -> Tensor:
        return convolve(x, self.weight, spec=self.spec, bias=self.bias)

    def facts(self) -> LayerFacts:
        return LayerFacts("conv", (), 0.0, "convolution", "first order")


@dataclass(frozen=True)
class Conv:
    """Factory of convolutional layers, the baseline of every comparison."""

    activation: str | None = "tanh"

    def __post_init__(self) -> None:
        activation.named(self.activation)

    def __call__(self, spec: LayerSpec) -> ConvLayer:
        return ConvLayer(spec, self.activation)
