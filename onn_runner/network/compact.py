"""A chain of layers with sampling in between, which predicts a residual: the ONN papers' compact networks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal, get_args

import torch.nn.functional as F
from torch import Tensor, nn

from onn_runner.errors import ConfigError, unknown
from onn_runner.model import padding as geometry
from onn_runner.model.base import Factory, Layer, LayerSpec, PaddingMode
from onn_runner.model.conv import Conv
from onn_runner.network.sampling import Sampling, parse

Output = Literal["conv", "same"]

Size = tuple[int, ...]


class Compact(nn.Module):
    """Hidden layers of the factory's neurons, then an output layer; the output has the input's size, any size.

    `input_size`: of a training input; it sets the number of axes, and other sizes may follow.
    `kernels`, `sampling`: one entry per layer, the output layer included; one number serves all layers.
    `residual`: the prediction is x + residual_scale f(x) on x's own scale, with f(x) = 0 at the start where the output
        layer is a convolution. 0.1 is about the noise of sigma 25: f(x) has the size that layers are initialised for.
    `output`: a plain convolution, or the same neurons as in the hidden layers, in the role of an output.
    `centre`: layers see 2x - 1, so that values in [0, 1] fill the range [-1, 1] that initial weights are made for.
    `input_padding`: zeros around the whole input, for padding=valid.

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
        kernels: int | Sequence[Any] = 3,
        sampling: Sequence[Any] | None = None,
        residual: bool = True,
        residual_scale: float = 0.1,
        output: Output = "conv",
        centre: bool = True,
        padding: Literal["same", "valid"] = "same",
        padding_mode: PaddingMode = "zeros",
        input_padding: int = 0,
    ) -> None:
        super().__init__()
        _check_output(output)
        if residual:
            _check_residual(in_channels, out_channels)
        widths = [in_channels, *_hidden(channels), out_channels]
        sizes = _kernels(kernels, len(widths) - 1, dims=len(input_size))
        self.samplings = _samplings(sampling, len(widths) - 1)
        self.dims, self.residual, self.centre = len(input_size), residual, centre
        self.input_padding = _at_least_zero("input_padding", input_padding)
        self.residual_scale: float = _positive("residual_scale", residual_scale)
        _expect(factory, len(widths) - 1 - (output == "conv"))
        layers: list[Layer] = []
        for spec in _specs(widths, sizes, padding=padding, padding_mode=padding_mode):
            made = Conv() if spec.role == "output" and output == "conv" else factory
            layers.append(made(replace(spec, input_bound=layers[-1].output_bound if layers else None)))
        if residual and output == "conv":
            nn.init.zeros_(layers[-1].get_parameter("weight"))
        self.layers = nn.ModuleList(layers)
        self._fit(tuple(input_size))
        self._check_kernels([layer.spec for layer in layers], tuple(input_size))

    def _check_kernels(self, specs: Sequence[LayerSpec], size: Size) -> None:
        """A kernel that is larger than what it looks at reads mostly padding: a mistake in the size of one of them."""
        size = tuple(length + 2 * self.input_padding for length in size)
        for spec, sampling in zip(specs, self.samplings, strict=True):
            if any(k > length for k, length in zip(spec.kernel_size, size, strict=True)):
                raise ConfigError(
                    f"network.kernels: the kernel of layer {spec.index} (={_by(spec.kernel_size)}) is larger than its "
                    f"input (={_by(size)}); use a smaller kernel or larger patches (data.patch)"
                )
            size = sampling.size(geometry.output_size(spec, size))

    def _after(self, size: Size) -> Size:
        """The output's size for an input of that size, `input_padding` not yet added."""
        size = tuple(length + 2 * self.input_padding for length in size)
        for layer, sampling in zip(self.layers, self.samplings, strict=True):
            before = geometry.output_size(layer.spec, size)  # type: ignore[arg-type]
            size = sampling.size(before)
            if min(size) < 1:
                raise ConfigError(
                    f"network.sampling={sampling} leaves nothing of {_by(before)} positions; use less sampling or a "
                    "larger input"
                )
        return size

    def _fit(self, size: Size) -> Size:
        """How much to add behind each axis so that sampling gives back at least the input's size.

        Raises ConfigError where the layers do not give back that size.
        """
        factor = 1
        for sampling in self.samplings:
            factor *= sampling.down
        extra = tuple(max(0, factor - length - 2 * self.input_padding) for length in size)
        after = self._after(tuple(s + e for s, e in zip(size, extra, strict=True)))
        for _ in range(factor - 1):
            if all(a >= s for a, s in zip(after, size, strict=True)):
                break
            extra = tuple(e + (a < s) for e, a, s in zip(extra, after, size, strict=True))
            after = self._after(tuple(s + e for s, e in zip(size, extra, strict=True)))
        if any(not 0 <= a - s < factor for a, s in zip(after, size, strict=True)):
            raise ConfigError(
                f"the network's output (={_by(after)}) must have the input's size (={_by(size)}); use padding=same, or "
                "set network.input_padding so that padding=valid comes back to it"
            )
        return extra

    def forward(
        self,
        x: Tensor,  # [B, C, *S]
    ) -> Tensor:  # [B, O, *S]
        if x.dim() != self.dims + 2:
            raise ConfigError(f"the network was built for {self.dims} spatial axes, the input has {x.dim() - 2}")
        size = tuple(x.shape[2:])
        z = 2 * x - 1 if self.centre else x
        extra = self._fit(size)
        if any(extra):
            z = F.pad(z, [side for e in reversed(extra) for side in (0, e)], mode="replicate")
        if self.input_padding:
            z = F.pad(z, [self.input_padding] * 2 * self.dims)
        for layer, sampling in zip(self.layers, self.samplings, strict=True):
            z = sampling(layer(z))
        for axis, length in enumerate(size, start=2):
            z = z.narrow(axis, 0, length)
        if self.residual:
            return x + self.residual_scale * z
        return (z + 1) / 2 if self.centre else z


def _by(size: Size) -> str:
    return "x".join(str(length) for length in size)


def _expect(factory: Factory, count: int) -> None:
    """Tell the factory how many layers it will be asked for, where it wants to know."""
    expect = getattr(factory, "expect", None)
    if expect is not None:
        expect(count)


def _check_output(output: object) -> None:
    if output not in get_args(Output):
        raise unknown("network.output", str(output), get_args(Output))


def _check_residual(in_channels: int, out_channels: int) -> None:
    if in_channels != out_channels:
        raise ConfigError(
            f"network.residual adds the input ({in_channels} channels) to the output ({out_channels} channels); "
            "set network.residual=false"
        )


def _specs(
    widths: Sequence[int],
    kernels: Sequence[Size],
    *,
    padding: Literal["same", "valid"],
    padding_mode: PaddingMode,
) -> list[LayerSpec]:
    """One spec per layer, the last one an output; what the input is bounded by is not known yet."""
    last = len(kernels) - 1
    return [
        LayerSpec(
            in_channels=widths[index],
            out_channels=widths[index + 1],
            kernel_size=kernel,
            stride=(1,) * len(kernel),
            dilation=(1,) * len(kernel),
            padding=padding,
            padding_mode=padding_mode,
            index=index,
            role="output" if index == last else "hidden",
        )
        for index, kernel in enumerate(kernels)
    ]


def _at_least_zero(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ConfigError(f"network.{name} (={value}) must be a whole number of at least 0")
    return value


def _positive(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < float("inf"):
        raise ConfigError(f"network.{name} (={value}) must be a positive number")
    return float(value)


def _hidden(channels: object) -> list[int]:
    if isinstance(channels, str) or not isinstance(channels, Sequence):
        raise ConfigError(f"network.channels (={channels}) must be a list of the hidden layers' neurons, as [16,16]")
    for value in channels:
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ConfigError(f"network.channels (={list(channels)}) holds {value}; each must be a positive number")
    return list(channels)


def _kernels(kernels: Any, layers: int, *, dims: int) -> list[Size]:
    """One kernel size per layer, one number per axis."""
    entries = [kernels] * layers if isinstance(kernels, int) else kernels
    if isinstance(entries, str) or not isinstance(entries, Sequence):
        raise ConfigError(f"network.kernels (={kernels}) must be a number or a list with one entry per layer")
    if len(entries) != layers:
        raise ConfigError(
            f"network.kernels has {len(entries)} entries, network.channels makes {layers} layers ({layers - 1} hidden "
            "and the output layer); write one kernel size per layer, or one number for all"
        )
    result = []
    for entry in entries:
        kernel = (entry,) * dims if isinstance(entry, int) else tuple(entry) if isinstance(entry, Sequence) else ()
        if len(kernel) != dims or any(isinstance(k, bool) or not isinstance(k, int) or k < 1 for k in kernel):
            raise ConfigError(
                f"network.kernels holds {entry}; each must be a positive number, or {dims} of them, one per axis"
            )
        result.append(kernel)
    return result


def _samplings(words: object, layers: int) -> list[Sampling]:
    """One Sampling per layer, which together come back to the input's size."""
    if words is None:
        return [parse(None)] * layers
    if isinstance(words, str) or not isinstance(words, Sequence):
        raise ConfigError(f"network.sampling (={words}) must be a list with one word per layer, as [max2,up2,none]")
    if len(words) != layers:
        raise ConfigError(
            f"network.sampling has {len(words)} entries, network.channels makes {layers} layers ({layers - 1} hidden "
            "and the output layer); write one word per layer"
        )
    result = [parse(word) for word in words]
    down, up = 1, 1
    for sampling in result:
        down, up = down * sampling.down, up * sampling.up
    if down != up:
        raise ConfigError(
            f"network.sampling (={[str(s) for s in result]}) divides the size by {down} and multiplies it by {up}; "
            "both must be equal, so that the output has the input's size"
        )
    return result
