"""An encoder and a decoder of any neurons with skips between them: a U-Net that predicts a residual."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from onn_runner import checks
from onn_runner.errors import ConfigError
from onn_runner.model.activation import Bound
from onn_runner.model.base import Factory, PaddingMode
from onn_runner.network import match as matching
from onn_runner.network import options
from onn_runner.network.base import Restorer
from onn_runner.network.options import Output, Size
from onn_runner.network.sampling import enlarge, parse
from onn_runner.network.slots import Bounds, Reads, Slot, previous, spec_of, union, weighted

Down = Literal["max2", "avg2", "strided"]
Up = Literal["transposed", "nearest", "bilinear"]
Skip = Literal["concat", "add", "none"]
DOWNS: tuple[Down, ...] = ("max2", "avg2", "strided")
UPS: tuple[Up, ...] = ("transposed", "nearest", "bilinear")
SKIPS: tuple[Skip, ...] = ("concat", "add", "none")


class UNet(Restorer):
    """`depth` times to half the size and back. The input is continued by its edge to a multiple of 2^depth, and the
    output cropped, so that any size comes back.

    `channels`: neurons at full size, doubled at each level; or one number per level, full size first.
    `layers`: per level, going down and again coming up; between levels one layer more: of stride 2 going down with
        `strided`, and always one coming up, which goes to the next level's width.
    `kernels`: one number for all, or one entry per level; a transposed layer's kernel is 2, so that each output
        position sees one input position.
    `skip`: what meets in the decoder. `add` is half the sum, in the range that the layers' inputs are in anyway.

    The other parameters are Compact's. Raises ConfigError where sizes do not fit together.
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
        channels: int | Sequence[int] = 16,
        depth: int = 2,
        layers: int = 2,
        kernels: int | Sequence[Any] = 3,
        down: Down = "max2",
        up: Up = "transposed",
        skip: Skip = "concat",
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
        options.check_same_size(input_size, output_size)
        self.depth = checks.whole_number("network.depth", depth, least=1)
        self.per_level = checks.whole_number("network.layers", layers, least=1)
        self.down = checks.choice("network.down", down, DOWNS)
        self.up = checks.choice("network.up", up, UPS)
        self.skip = checks.choice("network.skip", skip, SKIPS)
        made_by = f"network.depth (={self.depth}) makes {self.depth + 1} levels"
        kernel_sizes = options.kernels(kernels, self.depth + 1, dims=self.dims, made_by=made_by, each="level")
        sizes = self._level_sizes(tuple(input_size))

        def plan(widths: Sequence[int]) -> list[Slot]:
            draft = _Draft(sizes, kernel_sizes, padding_mode)
            self._plan(draft, in_channels, widths)
            draft.output(widths[0], out_channels, plain=output == "conv", activation=output_activation)
            return draft.slots

        self.make_layers(plan, _widths(channels, self.depth), factory, matching.check(match))

    def _level_sizes(self, size: Size) -> list[Size]:
        """Of the training input, at each level."""
        whole = tuple(length + extra for length, extra in zip(size, self._extra(size), strict=True))
        return [tuple(length >> level for length in whole) for level in range(self.depth + 1)]

    def _extra(self, size: Size) -> Size:
        return tuple(-length % (1 << self.depth) for length in size)

    def _plan(self, draft: _Draft, in_channels: int, widths: Sequence[int]) -> None:
        """Every layer but the output, in the order that forward calls them in."""
        before, skips = in_channels, []
        for level, width in enumerate(widths):
            if level and self.down == "strided":
                before = draft.add(level - 1, before, before, stride=2)
            for _ in range(self.per_level):
                before = draft.add(level, before, width)
            skips.append(len(draft.slots) - 1)
        for level in reversed(range(self.depth)):
            before = draft.add(level, before, widths[level], transposed=self.up == "transposed")
            reads = self._joined(skips[level], len(draft.slots) - 1)
            before += widths[level] if self.skip == "concat" else 0
            for position in range(self.per_level):
                before = draft.add(level, before, widths[level], reads=previous if position else reads)

    def _joined(self, skip: int, up: int) -> Reads:
        """What the decoder's first layer of a level reads, from the layers `skip` and `up`."""

        def reads(bounds: Bounds) -> Bound | None:
            if self.skip == "concat":
                return union(bounds[skip], bounds[up])
            return bounds[up] if self.skip == "none" else weighted((0.5, bounds[skip]), (0.5, bounds[up]))

        return reads

    def forward(
        self,
        x: Tensor,  # [B, C, *S]
    ) -> Tensor:  # [B, O, *S]
        self.check_input(x)
        size = tuple(x.shape[2:])
        z = self.centred(x)
        extra = self._extra(size)
        if any(extra):
            z = F.pad(z, [side for e in reversed(extra) for side in (0, e)], mode="replicate")
        layers, skips = list(self.layers), []
        pool = None if self.down == "strided" else parse(self.down)
        for level in range(self.depth + 1):
            if level:
                z = layers.pop(0)(z) if pool is None else pool(z)
            for _ in range(self.per_level):
                z = layers.pop(0)(z)
            skips.append(z)
        skips.pop()
        for _ in range(self.depth):
            z = self._join(layers.pop(0)(self._enlarged(z)), skips.pop())
            for _ in range(self.per_level):
                z = layers.pop(0)(z)
        z = layers.pop(0)(z)
        for axis, length in enumerate(size, start=2):
            z = z.narrow(axis, 0, length)
        return self.restored(x, z)

    def _enlarged(self, z: Tensor) -> Tensor:
        """Twice the size before a layer of stride 1; a transposed layer does it itself."""
        if self.up == "transposed":
            return z
        return enlarge(z, 2, "up" if self.up == "nearest" else self.up)

    def _join(self, z: Tensor, skip: Tensor) -> Tensor:
        if self.skip == "concat":
            return torch.cat([skip, z], dim=1)
        return (skip + z) / 2 if self.skip == "add" else z


class _Draft:
    """Slots as they are added; `add` returns the width that the next layer reads."""

    def __init__(self, sizes: Sequence[Size], kernels: Sequence[Size], padding_mode: PaddingMode) -> None:
        self.slots: list[Slot] = []
        self.sizes, self.kernels, self.padding_mode = sizes, kernels, padding_mode

    def add(
        self,
        level: int,  # whose kernel and size it sees; what it gives is half of that with stride 2
        inputs: int,
        neurons: int,
        *,
        stride: int = 1,
        transposed: bool = False,  # from the level below to this one
        reads: Reads = previous,
    ) -> int:
        kernel = (2,) * len(self.sizes[0]) if transposed else self.kernels[level]
        if not transposed:
            remedy = "use a smaller kernel, a smaller network.depth"
            options.check_kernel(len(self.slots), kernel, self.sizes[level], remedy=remedy)
        spec = spec_of(
            len(self.slots),
            inputs,
            neurons,
            kernel=kernel,
            stride=2 if transposed else stride,
            transposed=transposed,
            padding_mode=self.padding_mode,
        )
        positions = math.prod(self.sizes[level + (stride == 2)])
        self.slots.append(Slot(spec, positions, reads))
        return neurons

    def output(self, inputs: int, neurons: int, *, plain: bool, activation: str | None) -> None:
        spec = spec_of(
            len(self.slots),
            inputs,
            neurons,
            kernel=self.kernels[0],
            padding_mode=self.padding_mode,
            role="output",
            activation=activation,
        )
        self.slots.append(Slot(spec, math.prod(self.sizes[0]), previous, plain=plain))


def _widths(channels: object, depth: int) -> list[int]:
    """One per level."""
    if options.is_width(channels):
        assert isinstance(channels, int)
        return [channels << level for level in range(depth + 1)]
    example, of = "16 or [16,32,64]", "the levels' neurons, or the first level's"
    widths = options.widths(channels, example=example, of=of)
    if len(widths) != depth + 1:
        raise ConfigError(
            f"network.channels has {len(widths)} entries, network.depth (={depth}) makes {depth + 1} levels; write "
            "one number per level, or one that doubles at each"
        )
    return widths
