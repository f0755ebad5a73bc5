"""Head, residual blocks x + block_scale f(x), enlargement and tail, beside the input's own interpolation: as EDSR."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch.nn.functional as F
from torch import Tensor

from onn_runner import checks
from onn_runner.errors import ConfigError
from onn_runner.model.activation import Bound
from onn_runner.model.base import Factory, PaddingMode
from onn_runner.network import match as matching
from onn_runner.network import options
from onn_runner.network.base import Restorer
from onn_runner.network.options import Output, Size, by
from onn_runner.network.sampling import Sampling, enlarge
from onn_runner.network.slots import Bounds, Reads, Slot, previous, spec_of, weighted

Interpolation = Literal["none", "up", "bilinear", "bicubic"]
Upsampling = Literal["shuffle", "transposed", "nearest", "bilinear", "bicubic"]
UPSAMPLINGS: dict[Upsampling, Interpolation] = {
    "shuffle": "none",
    "transposed": "none",
    "nearest": "up",
    "bilinear": "bilinear",
    "bicubic": "bicubic",
}
"""With the interpolation that stands before each layer that enlarges."""
STAGES: dict[int, tuple[int, ...]] = {1: (), 2: (2,), 3: (3,), 4: (2, 2), 8: (2, 2, 2)}
"""Factor -> the steps that it is taken in."""
_OPTIONS = "1, 2, 3, 4 or 8"


class ResNetRestore(Restorer):
    """The output has `scale` times the input's size, any size.

    `channels`: neurons of head, trunk and the layers that enlarge, and inside the blocks; or a list: of the trunk, then
        of the first layer of each block.
    `kernels`: of all layers, one number or one per axis; transposed layers take 2 x their stride, an even overlap.
    `blocks`: of two layers. Both have the model's activation, so that the trunk, which EDSR leaves open, stays within
        1 + blocks x block_scale times the activation's range: powers and products need it.
    `scale`: None for what the sizes of input and target say; 1, 2, 3, 4 or 8.
    `upsampling`: behind the blocks, in steps of 2 or 3. `shuffle`: a layer with scale^d times the neurons, dealt out;
        `transposed` layers; or interpolation, then a layer.
    `residual`: is added to the input, enlarged bicubically as data=super_resolution does it (images; linearly on other
        numbers of axes).

    The other parameters are Compact's. Source: Lim et al., Enhanced Deep Residual Networks (2017), for the arrangement.
    Raises ConfigError where sizes do not fit together.
    """

    def __init__(
        self,
        factory: Factory,
        in_channels: int,
        *,
        out_channels: int,
        input_size: Sequence[int],
        output_size: Sequence[int] | None = None,
        data_range: Sequence[float] = (0.0, 1.0),
        channels: int | Sequence[int] = 32,
        blocks: int = 4,
        block_scale: float = 0.1,
        kernels: int | Sequence[int] = 3,
        scale: int | None = None,
        upsampling: Upsampling = "shuffle",
        residual: bool = True,
        residual_scale: float = 0.1,
        output: Output = "conv",
        output_activation: str | None = None,
        centre: bool = True,
        padding_mode: PaddingMode = "zeros",
        match: matching.Match | None = None,
    ) -> None:
        super().__init__(
            dims=len(input_size),
            channels=(in_channels, out_channels),
            output_size=output_size,
            residual=residual,
            residual_scale=residual_scale,
            output=output,
            output_activation=output_activation,
            centre=centre,
            data_range=data_range,
        )
        self.blocks = checks.whole_number("network.blocks", blocks, least=1)
        self.block_scale = checks.positive("network.block_scale", block_scale, "a positive number")
        checks.choice("network.upsampling", upsampling, UPSAMPLINGS)
        self.upsampling, self.method = upsampling, UPSAMPLINGS[upsampling]
        if upsampling == "bicubic" and self.dims != 2:
            raise ConfigError(f"network.upsampling=bicubic is for images, the data has {self.dims} axes; use bilinear")
        self.scale = _scale(scale, tuple(input_size), None if output_size is None else tuple(output_size))
        kernel = options.kernel(list(kernels) if isinstance(kernels, Sequence) else kernels, dims=self.dims)
        options.check_kernel(0, kernel, tuple(input_size))

        def plan(widths: Sequence[int]) -> list[Slot]:
            slots = self._plan(in_channels, widths, kernel, tuple(input_size), padding_mode)
            spec = spec_of(
                len(slots), widths[0], out_channels, kernel=kernel, padding_mode=padding_mode, role="output",
                activation=output_activation,
            )  # fmt: skip
            positions = math.prod(input_size) * self.scale**self.dims
            return [*slots, Slot(spec, positions, self._reads(len(slots)), plain=output == "conv")]

        self.make_layers(plan, _widths(channels, self.blocks), factory, matching.check(match))

    def _plan(
        self,
        in_channels: int,
        widths: Sequence[int],  # of the trunk, then inside each block
        kernel: tuple[int, ...],
        size: tuple[int, ...],
        padding_mode: PaddingMode,
    ) -> list[Slot]:
        """Every layer but the output, in order."""
        trunk, positions, slots = widths[0], math.prod(size), []
        wide = [(in_channels, trunk), *(pair for inner in widths[1:] for pair in ((trunk, inner), (inner, trunk)))]
        for index, (inputs, neurons) in enumerate(wide):
            spec = spec_of(index, inputs, neurons, kernel=kernel, padding_mode=padding_mode)
            slots.append(Slot(spec, positions, self._reads(index)))
        for factor in STAGES[self.scale]:
            index, larger = len(slots), factor**self.dims
            shuffled, transposed = self.upsampling == "shuffle", self.upsampling == "transposed"
            spec = spec_of(
                index,
                trunk,
                trunk * larger if shuffled else trunk,
                kernel=(2 * factor,) * self.dims if transposed else kernel,
                stride=factor if transposed else 1,
                transposed=transposed,
                padding_mode=padding_mode,
            )
            reads = self._reads(index, enlarged=factor)
            slots.append(Slot(spec, positions if shuffled else positions * larger, reads))
            positions *= larger
        return slots

    def _reads(self, index: int, *, enlarged: int = 1) -> Reads:
        """What bounds the input of layer `index`: every second one up to the last block's end reads the trunk."""
        on_trunk = index % 2 == 1 and index <= 2 * self.blocks + 1

        def reads(bounds: Bounds) -> Bound | None:
            parts = [(self.block_scale, bounds[end]) for end in range(2, index, 2)]
            bound = weighted((1.0, bounds[0]), *parts) if on_trunk else previous(bounds)
            return Sampling(self.method, enlarged).bound(bound, self.dims)

        return reads

    def forward(
        self,
        x: Tensor,  # [B, C, *S]
    ) -> Tensor:  # [B, O, *scale S]
        self.check_input(x)
        layers = list(self.layers)
        z = layers.pop(0)(self.centred(x))
        for _ in range(self.blocks):
            inner, outer = layers.pop(0), layers.pop(0)
            z = z + self.block_scale * outer(inner(z))
        for factor in STAGES[self.scale]:
            z = layers.pop(0)(z if self.method == "none" else enlarge(z, factor, self.method))
            z = deal(z, factor) if self.upsampling == "shuffle" else z
        return self.restored(self._interpolated(x) if self.residual else x, layers.pop(0)(z))

    def _interpolated(self, x: Tensor) -> Tensor:
        if self.scale == 1:
            return x
        if self.dims != 2:
            return enlarge(x, self.scale, "bilinear")
        # With `antialias` torch takes a = -0.5 here too, as data=super_resolution and its baseline.
        return F.interpolate(x, scale_factor=float(self.scale), mode="bicubic", antialias=True)


def deal(
    x: Tensor,  # [B, C factor^d, *S]
    factor: int,
) -> Tensor:  # [B, C, *factor S]
    """Channels dealt out over positions, the last axis fastest: torch's pixel shuffle on any number of axes."""
    size = x.shape[2:]
    dims = len(size)
    y = x.unflatten(1, (-1, *(factor,) * dims))
    order = [axis for d in range(dims) for axis in (2 + dims + d, 2 + d)]
    y = y.permute(0, 1, *order)
    return y.reshape(*y.shape[:2], *(factor * length for length in size))


def _scale(scale: int | None, size: Size, target: Size | None) -> int:
    """The factor between the sizes; `scale` where they do not say it."""
    if scale is not None and (isinstance(scale, bool) or scale not in STAGES):
        raise ConfigError(f"network.scale (={scale}) must be {_OPTIONS}, or null for what the data says")
    if target is None:
        return scale or 1
    found = next((f for f in STAGES if tuple(f * length for length in size) == target), None)
    if found is None:
        raise ConfigError(
            f"the target's size (={by(target)}) is not {_OPTIONS} times the input's (={by(size)}) on every axis; "
            "choose patches and a factor of the data that give such sizes"
        )
    if scale not in (None, found):
        raise ConfigError(
            f"network.scale (={scale}) is not the factor between the input's size (={by(size)}) and the target's "
            f"(={by(target)}); leave it null"
        )
    return found


def _widths(channels: object, blocks: int) -> list[int]:
    """Of the trunk, then of the first layer of each block."""
    if options.is_width(channels):
        assert isinstance(channels, int)
        return [channels] * (1 + blocks)
    widths = options.widths(channels, example="32 or [32,32,32]", of="the trunk's and each block's neurons")
    if len(widths) != 1 + blocks:
        raise ConfigError(
            f"network.channels has {len(widths)} entries; write one number for all, or 1 + network.blocks (={blocks}) "
            "of them: the trunk's, then the first layer's of each block"
        )
    return widths
