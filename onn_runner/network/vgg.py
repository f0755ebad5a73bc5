"""Stages of equal layers with max pooling between them, an average over positions and a classifier: VGG for CIFAR."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from onn_runner import checks
from onn_runner.errors import ConfigError
from onn_runner.model.base import Factory, Layer
from onn_runner.network import match as matching
from onn_runner.network import options
from onn_runner.network.classifier import Classifier, Draft, Norm, stage_widths
from onn_runner.network.options import Output
from onn_runner.network.sampling import halve
from onn_runner.network.slots import Slot
from onn_runner.network.units import Unit, without

STAGES: dict[int, tuple[int, ...]] = {
    7: (2, 2, 1, 1, 1),
    11: (1, 1, 2, 2, 2),
    13: (2, 2, 2, 2, 2),
    16: (2, 2, 3, 3, 3),
    19: (2, 2, 4, 4, 4),
}
"""Depth -> the layers of each stage.

11 to 19 are VGG's A, B, D and E, which count their three fully connected layers, here a single one. 7 has as many
convolutions: with quadratic neurons the 12.3 million parameters and 430 million MACs of QuadraLib's QVGG-7.
Source: Simonyan, Zisserman, Very deep convolutional networks (2015); Xu et al., QuadraLib (2022).
"""


class VGG(Classifier):
    """`layer1`, `layer2`, ... of 3 x 3 taps; after each stage the size is halved, its odd rest kept.

    `channels`: neurons per stage, the first stage's, which is doubled up to 8 times, or one number per layer. Fewer
        stages than the depth has: the others are left out.
    `width`: factor on them.
    `kernels`: of all layers, one number or one per axis.
    `removed`: names of layers that are left out; the next layer reads the one before.

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
        depth: int = 7,
        channels: int | Sequence[int] = (64, 128, 256, 512, 512),
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
        widths = stage_widths(channels, (0, 1, 2, 3, 3), width)
        stages = _stages(depth, len(widths))
        kernel = options.kernel(list(kernels) if isinstance(kernels, Sequence) else kernels, dims=self.dims)
        units = [Unit(f"layer{number + 1}", (f"layer{number + 1}",)) for number in range(sum(stages))]
        self.remaining = [unit.name for unit in without(units, removed)]
        if not self.remaining:
            raise ConfigError("network.removed leaves no layer; leave out fewer")
        # per stage, the names of its layers that remain
        self.stages = [
            [f"layer{sum(stages[:stage]) + position + 1}" for position in range(count)]
            for stage, count in enumerate(stages)
        ]
        self.stages = [[name for name in names if name in self.remaining] for names in self.stages]

        def plan(widths: Sequence[int]) -> list[Slot]:
            by_layer = list(widths) if len(widths) > len(stages) else None
            draft, before = Draft(tuple(input_size), self.norm), in_channels
            for stage, names in enumerate(self.stages):
                for name in names:
                    neurons = widths[stage] if by_layer is None else by_layer[int(name.removeprefix("layer")) - 1]
                    draft.add(name, before, neurons, kernel=kernel)
                    before = neurons
                draft.halve()
            return draft.slots(before, out_channels, output)

        self.make_layers(plan, widths, factory, matching.check(match))

    def assemble(self, layers: dict[str, Layer]) -> None:
        for name, layer in layers.items():
            self.add_module(name, layer)

    def features(self, z: Tensor) -> Tensor:
        for names in self.stages:
            for name in names:
                z = self.get_submodule(name)(z)
            z = halve(z)
        return z

    def units(self) -> list[Unit]:
        only = "it is the only layer" if len(self.remaining) == 1 else ""
        return [Unit(name, (name,), only) for name in self.remaining]


def _stages(depth: int, entries: int) -> tuple[int, ...]:
    """The layers of each stage, for that many entries of network.channels."""
    if checks.whole_number("network.depth", depth, least=1) not in STAGES:
        raise checks.refuse("network.depth", depth, f"one of {', '.join(map(str, STAGES))}")
    stages = STAGES[depth]
    if entries not in (*range(1, len(stages) + 1), sum(stages)):
        raise ConfigError(
            f"network.channels has {entries} entries, network.depth (={depth}) makes {len(stages)} stages and "
            f"{sum(stages)} layers; write one number per stage, fewer for fewer stages, or one per layer"
        )
    return stages if entries > len(stages) else stages[:entries]
