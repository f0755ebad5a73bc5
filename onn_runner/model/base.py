"""LayerSpec, Layer and Factory: a network asks for layers by shape; the model decides what kind of neuron they hold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor, nn

from onn_runner.errors import ConfigError

Role = Literal["hidden", "output"]
PaddingMode = Literal["zeros", "reflect", "replicate", "circular"]


@dataclass(frozen=True, kw_only=True)
class LayerSpec:
    """What a network asks of one layer. Sizes have one number per spatial axis."""

    in_channels: int
    out_channels: int
    kernel_size: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    padding: Literal["same", "valid"] | tuple[int, ...] = "same"
    """`same`: d (k - 1) in all, the odd one behind, so that the output has ceil(size / stride) positions, a transposed
    one size * stride. Numbers: positions added on both sides of the input, or cropped from a transposed output."""
    padding_mode: PaddingMode = "zeros"
    groups: int = 1
    transposed: bool = False
    """y[o,p] sums over all c, i, t with p = i stride + t dilation - what is cropped before: larger by `stride`."""
    output_padding: tuple[int, ...] | None = None
    """Of a transposed layer with numbers for `padding`: positions cropped less behind, one number per axis."""
    bias: bool = True
    """False: none is added; what a norm that follows would take away."""
    norm: Literal["batch"] | None = None
    """A batch norm between the pre-activation and the activation."""
    activation: str | None = None
    """None: the model's own activation (none in the output layer); a name forces one."""
    index: int = 0
    """Position among the network's factory-made layers, from 0; `model.layers` counts by it."""
    role: Role = "hidden"
    input_bound: tuple[float, float] | None = None
    """A range the input is known to lie in, from the layer before; None where it is not bounded."""

    @property
    def dims(self) -> int:
        return len(self.kernel_size)


@dataclass(frozen=True)
class LayerFacts:
    """What is printed and stored about a layer at the start of a run."""

    kind: str
    """`conv`, `onn`, `self_onn q=3`, `quadratic t2_4`"""
    operators: tuple[tuple[str, int], ...]
    """Operator names with their neuron counts; empty for neurons without operators."""
    nonlinearity: float | None
    """Share of the output's variance that the best linear fit in x leaves, fresh weights, before the activation."""
    computed_by: str
    reason: str


class Unrepresentable(ConfigError):
    """These neurons cannot compute a convolution; the message says why, and what could."""


class Layer(nn.Module):
    """A layer of neurons, activation included. Knows its spec, what it costs and what it is."""

    spec: LayerSpec
    output_bound: tuple[float, float] | None
    """The range of the activation, None where unbounded: the next layer's `input_bound`."""
    grows: bool = False
    """Whether it gives products or powers of what it sees, and neither a norm nor its activation bounds them."""

    def forward(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def macs(self, positions: int) -> int:
        """Multiply-accumulates (operational neurons: nodal evaluations) of a sample with that many output positions."""
        raise NotImplementedError

    def facts(self) -> LayerFacts:
        raise NotImplementedError

    def load_first_order(
        self,
        weight: Tensor,  # [O, C/G, *k]
        bias: Tensor | None = None,  # [O]
        *,
        near: bool = False,
    ) -> None:
        """Start as the convolution with these weights: its outputs exactly, before norm and activation.

        `near`: neurons that cannot be a convolution start close to one, where inputs are small.
        Raises Unrepresentable, with the reason, where that is not possible; nothing is changed then.
        """
        raise Unrepresentable(f"{type(self).__name__} does not say how a convolution would start it")

    def decay_groups(self) -> dict[str, str]:
        """Parameter name -> its group for the optimizer.

        'weight', 'bias', 'norm', 'quadratic' or 'undecayed', a bias that stands for a number other than 0.
        """
        raise NotImplementedError

    def terms(self) -> dict[str, str]:
        """Parameter name -> the term of the neuron's formula that it belongs to; empty where that is one only."""
        return {}


Factory = Callable[[LayerSpec], Layer]
Plain = dict[str, Any]
