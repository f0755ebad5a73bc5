"""A network before it is built: the layers that it will ask for, where each reads, and how many values it gives."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from onn_runner.model import padding as geometry
from onn_runner.model.activation import Bound
from onn_runner.model.base import Factory, Layer, LayerSpec, PaddingMode
from onn_runner.model.conv import Conv
from onn_runner.network.options import Size

PLAIN: Factory = Conv()
"""Makes the layers that are convolutions whatever the model."""
Bounds = Sequence[Bound | None]
"""What the outputs of the layers so far are bounded by."""
Reads = Callable[[Bounds], Bound | None]


@dataclass(frozen=True)
class Slot:
    """One layer to be built."""

    spec: LayerSpec
    """Its input_bound is still unknown."""
    positions: int
    """Of the output, for one sample of the training size."""
    reads: Reads
    """What its input is bounded by, from the bounds of the layers before."""
    plain: bool = False
    """A plain convolution, whatever the neurons of the other layers."""
    name: str = ""
    """Where the network registers it, for networks that do not number their layers."""


Plan = Callable[[Sequence[int]], list[Slot]]
"""The layers of a network by its widths."""


def spec_of(
    index: int,
    in_channels: int,
    out_channels: int,
    *,
    kernel: Size,
    stride: int = 1,
    transposed: bool = False,
    padding: Literal["same", "valid"] = "same",
    padding_mode: PaddingMode = "zeros",
    groups: int = 1,
    norm: Literal["batch"] | None = None,
    role: Literal["hidden", "output"] = "hidden",
    activation: str | None = None,
) -> LayerSpec:
    """A checked LayerSpec without dilation; transposed layers pad nothing, so that theirs are zeros.

    A norm takes the place of the bias.
    """
    spec = LayerSpec(
        in_channels=in_channels,
        out_channels=out_channels,
        kernel_size=kernel,
        stride=(stride,) * len(kernel),
        dilation=(1,) * len(kernel),
        padding=padding,
        padding_mode="zeros" if transposed else padding_mode,
        groups=groups,
        transposed=transposed,
        bias=norm is None,
        norm=norm,
        activation=activation,
        index=index,
        role=role,
    )
    geometry.check(spec, "network")
    return spec


def previous(bounds: Bounds) -> Bound | None:
    """What a layer reads that follows the one before directly."""
    return bounds[-1] if bounds else None


def union(first: Bound | None, second: Bound | None) -> Bound | None:
    """The range of values that lie in either: of channels side by side."""
    if first is None or second is None:
        return None
    return min(first[0], second[0]), max(first[1], second[1])


def weighted(*terms: tuple[float, Bound | None]) -> Bound | None:
    """The range of a sum of values with these positive weights."""
    low = high = 0.0
    for weight, bound in terms:
        if bound is None:
            return None
        low, high = low + weight * bound[0], high + weight * bound[1]
    return low, high


def expect(slots: Sequence[Slot], factory: Factory) -> None:
    """Tell the factory how many layers it will be asked for, where it wants to know."""
    told = getattr(factory, "expect", None)
    if told is not None:
        told(sum(not slot.plain for slot in slots))


def build(slots: Sequence[Slot], factory: Factory) -> list[Layer]:
    """The layers, made in order."""
    layers: list[Layer] = []
    for slot in slots:
        bound = slot.reads([layer.output_bound for layer in layers])
        layers.append((PLAIN if slot.plain else factory)(replace(slot.spec, input_bound=bound)))
    return layers
