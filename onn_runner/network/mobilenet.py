"""Blocks of a depthwise layer and a layer of one tap, an average over positions and a classifier: MobileNet V1."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from torch import Tensor, nn

from onn_runner import checks
from onn_runner.model.base import Factory, Layer
from onn_runner.network import match as matching
from onn_runner.network import options
from onn_runner.network.classifier import Classifier, Draft, Norm, check_stages, stage_widths
from onn_runner.network.options import Output
from onn_runner.network.slots import Slot
from onn_runner.network.units import Unit, without

Stem = Literal["cifar", "imagenet"]
STEMS: dict[Stem, int] = {"cifar": 1, "imagenet": 2}
"""With the stride of the first layer."""

BLOCKS: tuple[tuple[int, int], ...] = (
    (1, 1), (2, 2), (2, 1), (3, 2), (3, 1), (4, 2), (4, 1), (4, 1), (4, 1), (4, 1), (4, 1), (5, 2), (5, 1)
)  # fmt: skip
"""(stage whose width the block gives, stride) of each. Stage 0 is the first layer.

Source: Howard et al., MobileNets (2017), table 1, where the last block's stride of 2 is a misprint for 1.
"""


class MobileNet(Classifier):
    """`stem`, then `block1` to `block13` of a `depthwise` layer, which keeps the channels apart, and a `pointwise` one.

    `stem`: its stride: 1 for small pictures (cifar), 2 as published (imagenet).
    `channels`: neurons of the stem and of the five stages behind it; or the stem's, which is doubled at each.
    `width`: factor on them.
    `kernels`: of the stem and the depthwise layers, one number or one per axis.
    `removed`: names of blocks that are left out: those that change neither size nor width.

    The other parameters are Classifier's and Compact's. Raises ConfigError for what does not fit together.
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
        stem: Stem = "cifar",
        channels: int | Sequence[int] = (32, 64, 128, 256, 512, 1024),
        width: float = 1.0,
        kernels: int | Sequence[int] = 3,
        norm: Norm = "batch",
        dropout: float = 0.0,
        output: Output = "conv",
        centre: bool = True,
        removed: Sequence[str] = (),
        match: matching.Match | None = None,
    ) -> None:
        super().__init__(
            dims=len(input_size),
            output_size=output_size,
            norm=norm,
            dropout=dropout,
            output=output,
            centre=centre,
            data_range=data_range,
        )
        checks.choice("network.stem", stem, STEMS)
        widths = stage_widths(channels, range(6), width)
        check_stages(widths, 6, made_by="a MobileNet has a stem and 5 stages")
        kernel = options.kernel(list(kernels) if isinstance(kernels, Sequence) else kernels, dims=self.dims)
        self._units = without(_units(), removed)

        def plan(widths: Sequence[int]) -> list[Slot]:
            draft, before = Draft(tuple(input_size), self.norm), widths[0]
            draft.add("stem", in_channels, before, kernel=kernel, stride=STEMS[stem])
            for number in self._numbers():
                stage, stride = BLOCKS[number - 1]
                draft.add(f"block{number}.depthwise", before, before, kernel=kernel, stride=stride, depthwise=True)
                draft.add(f"block{number}.pointwise", before, widths[stage], kernel=1)
                before = widths[stage]
            return draft.slots(before, out_channels, output)

        self.make_layers(plan, widths, factory, matching.check(match))

    def _numbers(self) -> list[int]:
        """Of the blocks that remain."""
        return [int(unit.name.removeprefix("block")) for unit in self._units[1:]]

    def assemble(self, layers: dict[str, Layer]) -> None:
        self.stem = layers["stem"]
        for number in self._numbers():
            name = f"block{number}"
            self.add_module(name, SeparableBlock(layers[f"{name}.depthwise"], layers[f"{name}.pointwise"]))

    def features(self, z: Tensor) -> Tensor:
        for unit in self._units:
            z = self.get_submodule(unit.name)(z)
        return z

    def units(self) -> list[Unit]:
        return list(self._units)


class SeparableBlock(nn.Module):
    """A depthwise layer, then one over the channels."""

    def __init__(self, depthwise: Layer, pointwise: Layer) -> None:
        super().__init__()
        self.depthwise, self.pointwise = depthwise, pointwise

    def forward(self, z: Tensor) -> Tensor:
        result: Tensor = self.pointwise(self.depthwise(z))
        return result


def _units() -> list[Unit]:
    units, before = [Unit("stem", ("stem",), "it makes the channels that the blocks read")], 0
    for number, (stage, stride) in enumerate(BLOCKS, start=1):
        name = f"block{number}"
        reason = "" if stage == before and stride == 1 else "it changes the number of channels or the size"
        units.append(Unit(name, (f"{name}.depthwise", f"{name}.pointwise"), reason))
        before = stage
    return units
