"""One number per class, from features averaged over all positions: what the networks that classify share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

from torch import Tensor, nn

from onn_runner import checks
from onn_runner.errors import ConfigError
from onn_runner.model import padding as geometry
from onn_runner.model.activation import Bound
from onn_runner.model.base import Factory, Layer
from onn_runner.model.vectors import VectorLayer, vector_spec
from onn_runner.network import match as matching
from onn_runner.network import options
from onn_runner.network.base import Network
from onn_runner.network.options import Output, Size
from onn_runner.network.slots import Bounds, Plan, Reads, Slot, previous, spec_of
from onn_runner.network.units import Unit

Norm = Literal["batch", "none"]
NORMS: tuple[Norm, ...] = ("batch", "none")


class Classifier(Network):
    """Scores [B, K] of inputs of any size. A network adds a plan of its layers, `assemble`, `features` and `units`.

    `norm`: batch, a batch norm in each layer before its activation, in place of the bias; or none.
    `dropout`: share of the averaged features that training sets to 0.
    `output`: the layer from the averaged features to the scores: plain first-order neurons, or those of the others.
    """

    def __init__(
        self,
        *,
        dims: int,
        output_size: Sequence[int] | None,
        norm: Norm,
        dropout: float,
        output: Output,
        centre: bool,
        data_range: Sequence[float],
    ) -> None:
        super().__init__(dims=dims, output=output, centre=centre, data_range=data_range)
        options.check_classes(output_size)
        self.norm: Literal["batch"] | None = "batch" if checks.choice("network.norm", norm, NORMS) == "batch" else None
        self.dropout = nn.Dropout(_share(dropout))

    def make_layers(
        self,
        plan: Plan,
        widths: Sequence[int],
        factory: Factory,
        match: matching.Match | None,
    ) -> None:
        """Build and register the layers, `output` last."""
        chosen, layers = self.build_layers(plan, widths, factory, match)
        named = {slot.name: layer for slot, layer in zip(plan(chosen), layers, strict=True)}
        last = named.pop("output")
        self.assemble(named)
        self.output = VectorLayer(lambda _: last, last.spec)

    def assemble(self, layers: dict[str, Layer]) -> None:
        """Register the layers that `features` uses, under their names."""
        raise NotImplementedError

    def features(
        self,
        z: Tensor,  # [B, C, *S], centred
    ) -> Tensor:  # [B, F, *S']
        raise NotImplementedError

    def units(self) -> list[Unit]:
        """The layers and blocks, in the order that they see the input; `network.removed` leaves out removable ones."""
        raise NotImplementedError

    def forward(
        self,
        x: Tensor,  # [B, C, *S]
    ) -> Tensor:  # [B, K]
        self.check_input(x)
        z = self.features(self.centred(x))
        scores: Tensor = self.output(self.dropout(z.flatten(2).mean(2)))
        return scores


class Draft:
    """The layers of a network that classifies, as they are added; `size` is that of the training input there."""

    def __init__(self, size: Size, norm: Literal["batch"] | None) -> None:
        self.size, self.norm = size, norm
        self._neurons: list[Slot] = []
        self._plain: list[Slot] = []

    def add(
        self,
        name: str,
        inputs: int,
        neurons: int,
        *,
        kernel: int | Size,
        stride: int = 1,
        depthwise: bool = False,
        activation: str | None = None,
        reads: Reads = previous,
        plain: bool = False,  # a convolution, beside the others: `size` stays
        size: Size | None = None,  # of the input; None: where the layers so far have come to
    ) -> None:
        before = self.size if size is None else size
        spec = spec_of(
            0,
            inputs,
            neurons,
            kernel=(kernel,) * len(before) if isinstance(kernel, int) else kernel,
            stride=stride,
            groups=inputs if depthwise else 1,
            norm=self.norm,
            activation=activation,
        )
        after = geometry.output_size(spec, before)
        (self._plain if plain else self._neurons).append(Slot(spec, math.prod(after), reads, plain, name))
        if not plain:
            self.size = after

    def halve(self) -> None:
        """By a pooling that drops nothing."""
        self.size = tuple(-(-length // 2) for length in self.size)

    def slots(self, features: int, classes: int, output: Output, *, reads: Reads = previous) -> list[Slot]:
        """All layers with the output; plain ones come last, so that the neurons' numbers are consecutive."""
        spec = vector_spec(features, classes, role="output")
        last = Slot(spec, 1, reads, plain=output == "conv", name="output")
        ordered = [*self._neurons, *self._plain, last] if last.plain else [*self._neurons, last, *self._plain]
        return [replace(slot, spec=replace(slot.spec, index=index)) for index, slot in enumerate(ordered)]


def constant(bound: Bound | None) -> Reads:
    """Of a layer whose input's bound is known beforehand."""

    def reads(bounds: Bounds) -> Bound | None:
        return bound

    return reads


def stage_widths(
    channels: Any,
    doublings: Sequence[int],  # of each stage, from the first
    width: float,
) -> list[int]:
    """The numbers of neurons that `channels` and `width` make, at least one each; lists of any length."""
    factor = checks.positive("network.width", width, "a positive number")
    if options.is_width(channels):
        wide = [channels << times for times in doublings]
    else:
        wide = options.widths(channels, example="[16,32,64] or 16", of="the stages' neurons, or the first stage's")
    return [max(1, round(number * factor)) for number in wide]


def check_stages(widths: Sequence[int], stages: int, *, made_by: str) -> None:
    if len(widths) != stages:
        raise ConfigError(
            f"network.channels has {len(widths)} entries, {made_by}; write one number per stage, or the first stage's"
        )


def _share(dropout: object) -> float:
    wanted = "a number from 0 to less than 1"
    if isinstance(dropout, bool) or not isinstance(dropout, int | float) or not 0 <= dropout < 1:
        raise checks.refuse("network.dropout", dropout, wanted)
    return float(dropout)
