"""y_o = f(sum over c, t of w[o,c,t] x[c,p+t] + b_o): the first-order neuron, a plain convolution."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from onn_runner.model import activation, batch_norms, padding
from onn_runner.model.base import Layer, LayerFacts, LayerSpec, Unrepresentable

_CONVOLUTIONS: dict[int, Callable[..., Tensor]] = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
_TRANSPOSED: dict[int, Callable[..., Tensor]] = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}


class UnboundedInputWarning(UserWarning):
    """Powers and products of an input without bounds grow from layer to layer until they overflow."""


def convolve(
    x: Tensor,  # [B, C, *S], already padded
    weight: Tensor,  # [O, C/G, *k]
    *,
    spec: LayerSpec,
    bias: Tensor | None = None,  # [O]
) -> Tensor:  # [B, O, *S']
    """The valid convolution with the stride, dilation and groups of `spec`, or the transposed one, cropped."""
    if not spec.transposed:
        if _on_vectors(x, spec):
            # as torch's Linear computes it, to the last bit, and without copying x
            return F.linear(x.transpose(1, 2), weight[..., 0], bias).transpose(1, 2)
        convolution = _CONVOLUTIONS[spec.dims]
        return convolution(x, weight, bias, stride=spec.stride, dilation=spec.dilation, groups=spec.groups)
    before, behind, extra = _ends(spec)
    y = _TRANSPOSED[spec.dims](
        x, transposed_weight(weight, spec.groups), bias, stride=spec.stride, padding=before, output_padding=extra,
        groups=spec.groups, dilation=spec.dilation
    )  # fmt: skip
    return F.pad(y, behind) if any(behind) else y


def convolve_backward(
    grad: Tensor,  # [B, O, *S']
    x: Tensor,  # [B, C, *S]
    weight: Tensor,  # [O, C/G, *k]
    *,
    spec: LayerSpec,
    needs: tuple[bool, bool] = (True, True),
) -> tuple[Tensor | None, Tensor | None]:
    """The gradients of `convolve` to x and to the weight, as far as needed; differentiable themselves."""
    zeros = (0,) * spec.dims
    if not spec.transposed:
        grad_x, grad_weight, _ = torch.ops.aten.convolution_backward(
            grad, x, weight, None, spec.stride, zeros, spec.dilation, False, zeros, spec.groups, (*needs, False)
        )
        return grad_x, grad_weight
    before, behind, extra = _ends(spec)
    if any(behind):
        grad = F.pad(grad, [-side for side in behind])
    grad_x, grad_weight, _ = torch.ops.aten.convolution_backward(
        grad, x, transposed_weight(weight, spec.groups), None, spec.stride, before, spec.dilation, True, extra,
        spec.groups, (*needs, False)
    )  # fmt: skip
    return grad_x, None if grad_weight is None else transposed_weight(grad_weight, spec.groups)


def _on_vectors(x: Tensor, spec: LayerSpec) -> bool:
    """Whether the layer takes one tap of vectors that lie whole in memory, as those of VectorLayer do."""
    one_tap = spec.kernel_size == (1,) and spec.stride == (1,) and spec.groups == 1
    return one_tap and x.shape[2] > 0 and x.stride(1) == 1 and x.transpose(1, 2).is_contiguous()


def transposed_weight(
    weight: Tensor,  # [O, C/G, *k]
    groups: int,
) -> Tensor:  # [C, O/G, *k]
    """As torch's transposed convolutions take it: the two channel axes of each group exchanged. Its own inverse."""
    outputs, inputs, *kernel = weight.shape
    grouped = weight.reshape(groups, outputs // groups, inputs, *kernel)
    return grouped.transpose(1, 2).reshape(groups * inputs, outputs // groups, *kernel)


def _ends(spec: LayerSpec) -> tuple[list[int], list[int], list[int]]:
    """How torch crops a transposed output: as much behind as before, then sides for F.pad, and what it adds behind."""
    amounts = padding.amounts(spec)
    before = [first for first, _ in amounts]
    behind = [side for first, last in reversed(amounts) for side in (0, first - max(last, first))]
    return before, behind, [first - min(last, first) for first, last in amounts]


def autocast_dtype(x: Tensor, weight: Tensor) -> torch.dtype | None:
    """What autocast has a convolution computed in; None where it is off or leaves double precision alone."""
    device = x.device.type
    if not torch.is_autocast_enabled(device) or torch.float64 in (x.dtype, weight.dtype):
        return None
    return torch.get_autocast_dtype(device)


def without_autocast(x: Tensor) -> AbstractContextManager[Any]:
    """Autocast off; nothing where it is off anyway, so that exported graphs show nothing of it."""
    device = x.device.type
    return torch.autocast(device, enabled=False) if torch.is_autocast_enabled(device) else nullcontext()


def at_least_single(x: Tensor) -> Tensor:
    """x in single precision, or in its own where that is better."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def transforming() -> bool:
    """Whether a transform of torch.func (vmap, grad, jvp) is at work, which needs operations that it knows."""
    return bool(torch._C._are_functorch_transforms_active())  # torch tells it nowhere else


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
        self.norm = batch_norms.make(spec)

    @property
    def weight_shape(self) -> tuple[int, ...]:
        """[O, C/G, *k]"""
        return (self.spec.out_channels, self.spec.in_channels // self.spec.groups, *self.spec.kernel_size)

    @property
    def fan_in(self) -> int:
        """C/G k^d: how many weights of one kind a neuron has."""
        return self.spec.in_channels // self.spec.groups * padding.taps(self.spec)

    @property
    def reads(self) -> float:
        """How many numbers an output sums: `fan_in`, of which a transposed layer's position sees its share on average.

        Initial weights divide by it, so that outputs have the wanted variance; transposed, on average over the phases.
        """
        return self.fan_in / padding.phases(self.spec)

    def respond(self, x: Tensor) -> Tensor:
        """The pre-activation [B, O, *S'] from the padded input."""
        raise NotImplementedError

    def normed(self, x: Tensor) -> Tensor:
        """The pre-activation behind the norm that the spec asks for."""
        return batch_norms.applied(self.norm, self.respond(x), f"layer {self.spec.index}")

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.activation(self.normed(padding.pad(x, self.spec)))
        return result

    def macs(self, positions: int) -> int:
        return round(positions * self.spec.out_channels * self.reads)

    def decay_groups(self) -> dict[str, str]:
        return {name: self._group_of(name) for name, _ in self.named_parameters()}

    def _group_of(self, name: str) -> str:
        if name.startswith("norm."):
            return "norm"
        return "weight" if name == "weight" else "bias"

    def make_bias(self) -> nn.Parameter | None:
        """Zeros, [O], or None where the spec wants no bias."""
        return nn.Parameter(torch.zeros(self.spec.out_channels)) if self.spec.bias else None

    def check_first_order(self, weight: Tensor, bias: Tensor | None) -> None:
        """Raises Unrepresentable for weights of another shape, and for a bias that a layer without one cannot take."""
        if tuple(weight.shape) != self.weight_shape:
            raise Unrepresentable(f"weight has shape {tuple(weight.shape)}; this layer takes {self.weight_shape}")
        if bias is not None and not self.spec.bias:
            raise Unrepresentable("the weights come with a bias, and this layer was made without one (bias=False)")

    def extra_repr(self) -> str:
        s = self.spec
        shape = f"{self.kind}, {s.in_channels} -> {s.out_channels}, kernel {s.kernel_size}, stride {s.stride}"
        return f"{shape}, transposed" if s.transposed else shape


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
        self.bias = self.make_bias()
        second, _ = input_moments(spec, own_activation)
        fill_uniform(self.weight, 1 / (self.reads * second))

    def respond(self, x: Tensor) -> Tensor:
        return convolve(x, self.weight, spec=self.spec, bias=self.bias)

    def facts(self) -> LayerFacts:
        return LayerFacts("conv", (), 0.0, "convolution", "first order")

    @torch.no_grad()
    def load_first_order(self, weight: Tensor, bias: Tensor | None = None, *, near: bool = False) -> None:
        self.check_first_order(weight, bias)
        self.weight.copy_(weight)
        if self.bias is not None:
            self.bias.zero_() if bias is None else self.bias.copy_(bias)


@dataclass(frozen=True)
class Conv:
    """Factory of convolutional layers, the baseline of every comparison."""

    activation: str | None = "tanh"

    def __post_init__(self) -> None:
        activation.named(self.activation)

    def __call__(self, spec: LayerSpec) -> ConvLayer:
        return ConvLayer(spec, self.activation)
