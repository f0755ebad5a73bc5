"""z, the input on [-1, 1], and y = x + residual_scale f(z), or f(z) on x's own scale: what networks here share."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor, nn

from onn_runner import checks
from onn_runner.errors import ConfigError
from onn_runner.model import activation
from onn_runner.model.base import Factory, Layer
from onn_runner.network import match as matching
from onn_runner.network.options import OUTPUTS, Output, check_pictures, check_residual
from onn_runner.network.slots import Plan, build, expect


class Network(nn.Module):
    """Range of values, and construction of the layers with matched widths. A network adds `forward`.

    `data_range`: what the data's values lie in. `centre` maps it to [-1, 1], which initial weights are made for.
    `matched`: what `match` did, in one line.
    """

    def __init__(self, *, dims: int, output: Output, centre: bool, data_range: Sequence[float]) -> None:
        super().__init__()
        checks.choice("network.output", output, OUTPUTS)
        self.dims = dims
        self.centre = checks.flag("network.centre", centre)
        self.low, self.high = _range(data_range)
        self.matched: str | None = None

    def build_layers(
        self,
        plan: Plan,
        widths: Sequence[int],
        factory: Factory,
        match: matching.Match | None,
    ) -> tuple[list[int], list[Layer]]:
        """The widths, as given or as match asks for, and the layers of the plan, which are not registered yet."""
        expect(plan(widths), factory)
        chosen = list(widths) if match is None else matching.choose(match, plan, widths, factory)
        layers = build(plan(chosen), factory)
        if match is not None:
            self.matched = matching.line(match, plan, widths, chosen, layers)
        return chosen, layers

    def centred(self, x: Tensor) -> Tensor:
        """What the layers see."""
        if not self.centre or (self.low, self.high) == (-1.0, 1.0):
            return x
        return 2 / (self.high - self.low) * x - (self.low + self.high) / (self.high - self.low)

    def check_input(self, x: Tensor) -> None:
        if x.dim() != self.dims + 2:
            raise ConfigError(f"the network was built for {self.dims} spatial axes, the input has {x.dim() - 2}")


class Restorer(Network):
    """Pictures out of pictures, as a residual or not; `residual_scale` counts in the span of `data_range`."""

    def __init__(
        self,
        *,
        dims: int,
        channels: tuple[int, int],  # of input and output
        output_size: Sequence[int] | None,
        residual: bool,
        residual_scale: float,
        output: Output,
        output_activation: str | None,
        centre: bool,
        data_range: Sequence[float],
    ) -> None:
        super().__init__(dims=dims, output=output, centre=centre, data_range=data_range)
        check_pictures(output_size)
        _check_activation(output_activation)
        if checks.flag("network.residual", residual):
            check_residual(*channels)
        self.residual = residual
        self.residual_scale = checks.positive("network.residual_scale", residual_scale, "a positive number")
        self.starts_at_zero = residual and output == "conv"

    def make_layers(
        self,
        plan: Plan,
        widths: Sequence[int],
        factory: Factory,
        match: matching.Match | None,
    ) -> list[int]:
        """Build `layers`, and return the widths they have: `widths`, or those that match asks for."""
        chosen, layers = self.build_layers(plan, widths, factory, match)
        if self.starts_at_zero:
            nn.init.zeros_(layers[-1].get_parameter("weight"))
        self.layers = nn.ModuleList(layers)
        return chosen

    def restored(
        self,
        skip: Tensor,  # [B, O, *S'] what a residual is added to
        f: Tensor,  # [B, O, *S'] what the layers give
    ) -> Tensor:
        span = self.high - self.low
        if self.residual:
            return skip + self.residual_scale * span * f
        if not self.centre or (self.low, self.high) == (-1.0, 1.0):
            return f
        return (f + (self.low + self.high) / span) / (2 / span)


def _check_activation(name: str | None) -> None:
    try:
        activation.named(name)
    except ConfigError as error:
        raise ConfigError(f"network.output_activation: {error}") from error


def _range(values: Sequence[float]) -> tuple[float, float]:
    numbers = isinstance(values, (list, tuple)) and len(values) == 2 and all(math.isfinite(v) for v in values)
    if not numbers or not values[0] < values[1]:
        raise ConfigError(f"data_range (={values}) must be two finite numbers, the lower one first")
    return float(values[0]), float(values[1])
