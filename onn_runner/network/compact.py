"""A chain of layers with sampling in between, which predicts a residual: the ONN papers' compact networks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import torch.nn.functional as F
from torch import Tensor

from onn_runner import checks
from onn_runner.errors import ConfigError
from onn_runner.model.base import Factory, LayerSpec, PaddingMode
from onn_runner.network import match as matching
from onn_runner.network import options
from onn_runner.network.base import Restorer
from onn_runner.network.chain import Chain
from onn_runner.network.options import Output, Size
from onn_runner.network.sampling import Sampling, parse
from onn_runner.network.slots import Bounds, Slot, previous, spec_of


class Compact(Restorer):
    """Hidden layers of the factory's neurons, then an output layer; the output has the input's size, any size.

    `input_size`: of a training input; it sets the number of axes, and other sizes may follow. `output_size`: of its
        target, which must be the same.
    `kernels`, `sampling`: one entry per layer, the output layer included; one number serves all layers.
    `residual`: the prediction is x + residual_scale f(x) on x's own scale, with f(x) = 0 at the start where the output
        layer is a convolution. 0.1 is about the noise of sigma 25: f(x) has the size that layers are initialised for.
    `output`: a plain convolution, or the same neurons as in the hidden layers, in the role of an output.
    `output_activation`: None for the model's rule for outputs, which is none; a name, such as tanh, forces one.
    `centre`: layers see the data on [-1, 1], the range that initial weights are made for; `data_range` is its own.
    `input_padding`: zeros around the whole input, for padding=valid.
    `match`: scales `channels` until the network has as many parameters or MACs as one of convolutions.

    Raises ConfigError where the sizes do not fit together.
    """

    def __init__(
        self,
        factory: Factory,
        in_channels: int,
        *,
        out_channels: int,
        channels: Sequence[int],
        input_size: Sequence[int],
        output_size: Sequence[int] | None = None,
        data_range: Sequence[float] = (0.0, 1.0),
        kernels: int | Sequence[Any] = 3,
        sampling: Sequence[Any] | None = None,
        residual: bool = True,
        residual_scale: float = 0.1,
        output: Output = "conv",
        output_activation: str | None = None,
        centre: bool = True,
        padding: Literal["same", "valid"] = "same",
        padding_mode: PaddingMode = "zeros",
        input_padding: int = 0,
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
        hidden = options.widths(channels, example="[16,16]", of="the hidden layers' neurons")
        made_by = f"network.channels makes {len(hidden) + 1} layers ({len(hidden)} hidden and the output layer)"
        kernel_sizes = options.kernels(kernels, len(hidden) + 1, dims=self.dims, made_by=made_by, each="layer")
        samplings = _samplings(sampling, len(hidden) + 1, dims=self.dims, made_by=made_by)

        def specs(hidden: Sequence[int]) -> tuple[LayerSpec, ...]:
            widths = [in_channels, *hidden, out_channels]
            made = [
                spec_of(index, *widths[index : index + 2], kernel=kernel, padding=padding, padding_mode=padding_mode)
                for index, kernel in enumerate(kernel_sizes)
            ]
            made[-1] = replace(made[-1], role="output", activation=output_activation)
            return tuple(sampling.in_layer(spec) for sampling, spec in zip(samplings, made, strict=True))

        around = checks.whole_number("network.input_padding", input_padding, least=0)
        self.chain = Chain(specs(hidden), samplings, around)
        positions = self.chain.positions(tuple(input_size))
        self.chain.check_kernels(tuple(input_size))

        def plan(hidden: Sequence[int]) -> list[Slot]:
            made = specs(hidden)
            return [
                Slot(spec, count, self._reads, plain=spec.role == "output" and output == "conv")
                for spec, count in zip(made, positions, strict=True)
            ]

        chosen = self.make_layers(plan, hidden, factory, matching.check(match))
        self.chain = replace(self.chain, specs=specs(chosen))

    def _reads(self, bounds: Bounds) -> tuple[float, float] | None:
        """What a layer reads is bounded by the layer before and the sampling after that."""
        return self.chain.samplings[len(bounds) - 1].bound(previous(bounds), self.dims) if bounds else None

    def forward(
        self,
        x: Tensor,  # [B, C, *S]
    ) -> Tensor:  # [B, O, *S]
        self.check_input(x)
        size: Size = tuple(x.shape[2:])
        z = self.centred(x)
        extra = self.chain.extra(size)
        if any(extra):
            z = F.pad(z, [side for e in reversed(extra) for side in (0, e)], mode="replicate")
        if self.chain.around:
            z = F.pad(z, [self.chain.around] * 2 * self.dims)
        whole = tuple(length + e for length, e in zip(size, extra, strict=True))
        for layer, sampling in zip(self.layers, self.chain.samplings, strict=True):
            z = sampling(layer(z), whole)
        for axis, length in enumerate(size, start=2):
            z = z.narrow(axis, 0, length)
        return self.restored(x, z)


def _samplings(words: object, layers: int, *, dims: int, made_by: str) -> tuple[Sampling, ...]:
    """One Sampling per layer, which together come back to the input's size."""
    if words is None:
        return (parse(None),) * layers
    if isinstance(words, str) or not isinstance(words, Sequence):
        raise ConfigError(f"network.sampling (={words}) must be a list with one word per layer, as [max2,up2,none]")
    if len(words) != layers:
        raise ConfigError(f"network.sampling has {len(words)} entries, {made_by}; write one word per layer")
    result = tuple(parse(word) for word in words)
    down, up, since = 1, 1, ""
    for sampling in result:
        sampling.check(dims)
        down, up = down * sampling.down, up * sampling.up
        if sampling.method == "to":
            down, up, since = 1, 1, f" after {sampling}"
    if down != up:
        raise ConfigError(
            f"network.sampling (={[str(s) for s in result]}) divides the size by {down} and multiplies it by {up}"
            f"{since}; both must be equal, so that the output has the input's size"
        )
    return result
