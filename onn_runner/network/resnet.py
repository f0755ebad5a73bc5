"""Residual blocks f(x + branch(x)) in stages of halved size, an average over positions and a classifier: ResNet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn

from onn_runner import checks
from onn_runner.errors import ConfigError
from onn_runner.model.activation import named
from onn_runner.model.base import Factory, Layer
from onn_runner.network import match as matching
from onn_runner.network import options
from onn_runner.network.classifier import Classifier, Draft, Norm, check_stages, constant, stage_widths
from onn_runner.network.options import Output
from onn_runner.network.residual import ResidualBlock, Subsampled, name_after_sum
from onn_runner.network.sampling import halve
from onn_runner.network.slots import Slot, previous
from onn_runner.network.units import Unit, without

Stem = Literal["cifar", "imagenet"]
Shortcut = Literal["auto", "identity", "projection"]
STEMS: tuple[Stem, ...] = ("cifar", "imagenet")
SHORTCUTS: tuple[Shortcut, ...] = ("auto", "identity", "projection")

STAGES: dict[int, tuple[int, ...]] = {
    18: (2, 2, 2, 2),
    34: (3, 4, 6, 3),
    50: (3, 4, 6, 3),
    101: (3, 4, 23, 3),
    152: (3, 8, 36, 3),
}
"""Depth -> the blocks of each of four stages. Source: He et al., Deep residual learning (2016), table 1."""
BOTTLENECKS = (50, 101, 152)
EXPANSION = 4
"""What a block of three layers gives, in widths of its middle layer."""


@dataclass(frozen=True)
class Block:
    """One block of the arrangement."""

    name: str
    stage: int
    stride: int
    branch: tuple[str, ...]
    """`first`, `second` and of a bottleneck `third`."""
    projects: bool
    """Whether its output has another size or number of channels than its input."""

    @property
    def unit(self) -> Unit:
        reason = "it changes the number of channels or the size" if self.projects else ""
        return Unit(self.name, tuple(f"{self.name}.{layer}" for layer in self.branch), reason)


class ResNet(Classifier):
    """`stem`, then `block1`, `block2`, ... of layers `first`, `second` and, from depth 50 on, `third`.

    `depth`: with stem=cifar 6 n + 2 for three stages of n blocks, or 18 and 34 for the four stages of the large ones;
        with stem=imagenet 18, 34, 50, 101, 152, arranged as in torchvision.
    `stem`: one layer of 3 x 3 taps (cifar); or 7 x 7 of stride 2 and max pooling (imagenet).
    `channels`: neurons per stage, or the first stage's, doubled at each; None for 16 of three stages, 64 of four.
    `shortcut`: around a block that changes the shape. `identity`: subsampled, missing channels 0; `projection`: a plain
        convolution of one tap; `auto`: as published, identity with three stages, projection with four.
    `activation`: after a block's sum; None for the neurons' own.
    `zero_start`: the last norm of each block starts at 0, so that the block starts as its shortcut.
    `removed`: names of blocks that are left out: those that keep the shape.

    The other parameters are VGG's. Raises ConfigError for what does not fit together.
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
        depth: int = 14,
        stem: Stem = "cifar",
        channels: int | Sequence[int] | None = None,
        width: float = 1.0,
        kernels: int | Sequence[int] = 3,
        shortcut: Shortcut = "auto",
        activation: str | None = None,
        norm: Norm = "batch",
        zero_start: bool = False,
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
        checks.choice("network.shortcut", shortcut, SHORTCUTS)
        if checks.flag("network.zero_start", zero_start) and self.norm is None:
            raise ConfigError("network.zero_start=true starts norms at 0, and network.norm=none has none; use batch")
        counts = _stages(depth, stem)
        widths = stage_widths(
            channels if channels is not None else 16 if len(counts) == 3 else 64, range(len(counts)), width
        )
        check_stages(widths, len(counts), made_by=f"network.depth (={depth}) makes {len(counts)} stages")
        self.large_stem = stem == "imagenet"
        self.projects = shortcut == "projection" or (shortcut == "auto" and len(counts) == 4)
        self.zero_start = zero_start
        self.after_sum = name_after_sum(factory, activation)
        kernel = options.kernel(list(kernels) if isinstance(kernels, Sequence) else kernels, dims=self.dims)
        blocks = _blocks(counts, bottleneck=depth in BOTTLENECKS and len(counts) == 4)
        self._units = without([STEM, *(block.unit for block in blocks)], removed)
        remaining = {unit.name for unit in self._units}
        self.blocks = [block for block in blocks if block.name in remaining]

        def plan(widths: Sequence[int]) -> list[Slot]:
            draft = Draft(tuple(input_size), self.norm)
            draft.add("stem", in_channels, widths[0], kernel=7 if self.large_stem else kernel,
                      stride=2 if self.large_stem else 1)  # fmt: skip
            if self.large_stem:
                draft.halve()
            features = self._plan_blocks(draft, widths, kernel)
            return draft.slots(features, out_channels, output, reads=constant(named(self.after_sum).bound))

        self.make_layers(plan, widths, factory, matching.check(match))

    def _plan_blocks(self, draft: Draft, widths: Sequence[int], kernel: options.Size) -> int:
        """The blocks' layers; returns the channels that they end with."""
        before, after_sum = widths[0], constant(named(self.after_sum).bound)
        for position, block in enumerate(self.blocks):
            middle, size = widths[block.stage], draft.size
            bottleneck = len(block.branch) == 3
            given, last = middle * EXPANSION if bottleneck else middle, block.branch[-1]
            inputs, reads = before, after_sum if position else previous
            for layer in block.branch:
                # torchvision too has the stride where the taps are
                taps = layer == ("second" if bottleneck else "first")
                draft.add(
                    f"{block.name}.{layer}",
                    inputs,
                    given if layer == last else middle,
                    kernel=kernel if not bottleneck or taps else 1,
                    stride=block.stride if taps else 1,
                    activation="identity" if layer == last else None,
                    reads=reads,
                )
                inputs, reads = middle, previous
            if block.projects and self.projects:
                draft.add(f"{block.name}.shortcut", before, given, kernel=1, stride=block.stride, plain=True, size=size,
                          activation="identity")  # fmt: skip
            before = given
        return before

    def assemble(self, layers: dict[str, Layer]) -> None:
        self.stem = layers["stem"]
        for block in self.blocks:
            branch = {layer: layers[f"{block.name}.{layer}"] for layer in block.branch}
            shortcut: nn.Module | None = layers.get(f"{block.name}.shortcut")
            if shortcut is None and block.projects:
                last = branch[block.branch[-1]]
                shortcut = Subsampled(last.spec.out_channels, block.stride)
            made = ResidualBlock(branch, shortcut or nn.Identity(), after_sum=self.after_sum)
            if self.zero_start:
                made.start_at_zero()
            self.add_module(block.name, made)

    def features(self, z: Tensor) -> Tensor:
        z = self.stem(z)
        if self.large_stem:
            z = halve(z, 3)
        for block in self.blocks:
            z = self.get_submodule(block.name)(z)
        return z

    def units(self) -> list[Unit]:
        return list(self._units)


STEM = Unit("stem", ("stem",), "it makes the channels that the blocks read")


def _stages(depth: int, stem: Stem) -> tuple[int, ...]:
    """The blocks of each stage."""
    checks.whole_number("network.depth", depth, least=1)
    if stem == "cifar" and depth >= 8 and depth % 6 == 2:
        return ((depth - 2) // 6,) * 3
    if depth in STAGES and (stem == "imagenet" or depth not in BOTTLENECKS):
        return STAGES[depth]
    if stem == "imagenet":
        raise checks.refuse("network.depth", depth, f"one of {', '.join(map(str, STAGES))} with network.stem=imagenet")
    raise checks.refuse(
        "network.depth", depth, "6 n + 2 (14, 20, 32, 44, 56, 110), or 18 or 34, with network.stem=cifar"
    )


def _blocks(counts: Sequence[int], *, bottleneck: bool) -> list[Block]:
    blocks: list[Block] = []
    branch = ("first", "second", "third") if bottleneck else ("first", "second")
    for stage, count in enumerate(counts):
        for position in range(count):
            opens = position == 0 and (stage > 0 or bottleneck)
            stride = 2 if position == 0 and stage > 0 else 1
            blocks.append(Block(f"block{len(blocks) + 1}", stage, stride, branch, opens))
    return blocks
