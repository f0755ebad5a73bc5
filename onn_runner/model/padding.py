"""Where a layer's taps lie: checks of a LayerSpec, explicit padding or cropping, and the size of what comes out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import get_args

import torch
import torch.nn.functional as F
from torch import Tensor

from onn_runner.errors import ConfigError, unknown
from onn_runner.model.base import LayerSpec, PaddingMode


def check(spec: LayerSpec, kind: str) -> None:
    """Raise ConfigError for a spec that no layer can have; `kind` names the neurons in the message."""
    where = f"layer {spec.index} ({kind})"
    if spec.dims not in (1, 2, 3):
        raise ConfigError(f"{where}: kernel_size (={spec.kernel_size}) must have 1, 2 or 3 axes")
    for name in ("in_channels", "out_channels", "groups"):
        _positive(where, name, getattr(spec, name))
    for name in ("kernel_size", "stride", "dilation"):
        values = getattr(spec, name)
        if len(values) != spec.dims:
            raise ConfigError(f"{where}: {name} (={values}) must have one number per axis, {spec.dims} as kernel_size")
        for value in values:
            _positive(where, name, value)
    for name in ("in_channels", "out_channels"):
        if getattr(spec, name) % spec.groups:
            raise ConfigError(f"{where}: groups (={spec.groups}) must divide {name} (={getattr(spec, name)})")
    if spec.padding_mode not in get_args(PaddingMode):
        raise unknown("padding_mode", str(spec.padding_mode), get_args(PaddingMode))
    _check_padding(spec, where)
    if spec.transposed and spec.padding_mode != "zeros":
        raise ConfigError(
            f"{where}: a transposed layer crops its output and pads nothing, so that padding_mode "
            f"(={spec.padding_mode}) has no meaning; use padding_mode=zeros"
        )


def _positive(where: str, name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigError(f"{where}: {name} (={value}) must be a positive whole number")


def _check_padding(spec: LayerSpec, where: str) -> None:
    if isinstance(spec.padding, str):
        if spec.padding not in ("same", "valid"):
            raise unknown("padding", spec.padding, ("same", "valid"), remedy="Or one number per axis.")
    elif len(spec.padding) != spec.dims or any(not isinstance(p, int) or p < 0 for p in spec.padding):
        raise ConfigError(
            f"{where}: padding (={spec.padding}) must be 'same', 'valid' or {spec.dims} numbers of at least 0"
        )
    extra = spec.output_padding
    if extra is None:
        return
    if not spec.transposed or isinstance(spec.padding, str):
        raise ConfigError(f"{where}: output_padding (={extra}) is of transposed layers with numbers for padding only")
    limits = map(max, zip(spec.stride, spec.dilation, strict=True))
    if len(extra) != spec.dims or not all(0 <= more < limit for more, limit in zip(extra, limits, strict=False)):
        raise ConfigError(
            f"{where}: output_padding (={extra}) must be {spec.dims} numbers from 0 on, each smaller than the stride "
            "or the dilation"
        )


def amounts(spec: LayerSpec) -> tuple[tuple[int, int], ...]:
    """(before, after) per axis: positions added to the input or, of a transposed layer, taken from the full output.

    `same` is d (k - 1) in all, the odd one behind. Transposed, it is d (k - 1) + 1 - stride: where that is negative,
    as many positions that no tap reaches are added behind.
    """
    if spec.padding == "valid":
        return ((0, 0),) * spec.dims
    if spec.padding != "same":
        extra = spec.output_padding or (0,) * spec.dims
        return tuple((int(p), int(p) - more) for p, more in zip(spec.padding, extra, strict=True))
    totals = [d * (k - 1) for d, k in zip(spec.dilation, spec.kernel_size, strict=True)]
    if spec.transposed:
        totals = [total + 1 - stride for total, stride in zip(totals, spec.stride, strict=True)]
    befores = [max(total, 0) // 2 for total in totals]
    return tuple((before, total - before) for before, total in zip(befores, totals, strict=True))


def extends(spec: LayerSpec) -> bool:
    """Whether the output has positions that no tap reaches, behind the full output of a transposed layer."""
    return spec.transposed and any(after < 0 for _, after in amounts(spec))


def output_size(
    spec: LayerSpec,
    size: Sequence[int],  # S
) -> tuple[int, ...]:
    """The spatial size after the layer: of a transposed one (size - 1) stride + d (k - 1) + 1, less what is cropped.

    Raises ConfigError where the kernel does not fit into the padded input, the padding mode cannot fill, or cropping
    leaves nothing.
    """
    if len(size) != spec.dims:
        raise ConfigError(f"layer {spec.index}: the input has {len(size)} axes, kernel_size (={spec.kernel_size}) "
                          f"has {spec.dims}")  # fmt: skip
    result = []
    for axis, (length, (before, after)) in enumerate(zip(size, amounts(spec), strict=True)):
        reach = spec.dilation[axis] * (spec.kernel_size[axis] - 1) + 1
        if spec.transposed:
            full = (length - 1) * spec.stride[axis] + reach if length else 0
            result.append(_cropped(spec, axis, full, before + after))
            continue
        _check_fill(spec, length, max(before, after))
        if reach > length + before + after:
            raise ConfigError(
                f"layer {spec.index}: the kernel spans {reach} positions (kernel_size {spec.kernel_size[axis]}, "
                f"dilation {spec.dilation[axis]}), more than the input's {length + before + after} on axis {axis}; "
                "use a smaller kernel, padding 'same' or a larger input"
            )
        result.append((length + before + after - reach) // spec.stride[axis] + 1)
    return tuple(result)


def _cropped(spec: LayerSpec, axis: int, full: int, cropped: int) -> int:
    if cropped >= full:
        raise ConfigError(
            f"layer {spec.index}: padding (={spec.padding}) of a transposed layer crops {cropped} of its output's "
            f"{full} positions on axis {axis}, which leaves none; use less padding, 'same' or a larger input"
        )
    return full - cropped


def _check_fill(spec: LayerSpec, length: int, padding: int) -> None:
    limit = {"reflect": length - 1, "circular": length}.get(spec.padding_mode, math.inf)
    if padding > limit:
        relation = "less than" if spec.padding_mode == "reflect" else "at most"
        raise ConfigError(
            f"layer {spec.index}: padding (={padding}) must be {relation} the input's size (={length}) with "
            f"padding_mode={spec.padding_mode}; use zeros or replicate, a smaller kernel or a larger input"
        )


def pad(
    x: Tensor,  # [B, C, *S]
    spec: LayerSpec,
) -> Tensor:  # [B, C, *S + padding]
    """Pad explicitly, so that every kernel computes valid positions only; the input of transposed layers stays."""
    if x.dim() != spec.dims + 2 or x.shape[1] != spec.in_channels:
        raise ConfigError(
            f"layer {spec.index}: the input has shape {tuple(x.shape)}; it must be "
            f"[batch, {spec.in_channels} channels, {spec.dims} spatial axes]"
        )
    output_size(spec, x.shape[2:])
    sides = _sides(spec)
    if spec.transposed or not any(sides):
        return x
    mode = "constant" if spec.padding_mode == "zeros" else spec.padding_mode
    return F.pad(x, sides, mode=mode)


def crop(
    y: Tensor,  # [B, O, *S], the full output
    spec: LayerSpec,
) -> Tensor:  # [B, O, *S']
    """The output of a transposed layer from its full one; positions that no tap reaches become 0."""
    sides = _sides(spec)
    return F.pad(y, [-side for side in sides]) if any(sides) else y


def _sides(spec: LayerSpec) -> list[int]:
    """`amounts` as torch orders them: last axis first."""
    return [side for pair in reversed(amounts(spec)) for side in pair]


def taps(spec: LayerSpec) -> int:
    """k^d: how many positions of one channel a neuron reads; at one position of a transposed layer, its share."""
    return math.prod(spec.kernel_size)


def phases(spec: LayerSpec) -> int:
    """Among how many neighbouring output positions the taps are shared out: the stride's product where transposed."""
    return math.prod(spec.stride) if spec.transposed else 1


def shares(spec: LayerSpec) -> Tensor:  # [phases, T] of zeros and ones, float64
    """Which taps the positions of each phase see: all of them, or of a transposed layer those that meet an input."""
    table = torch.ones(1, 1, dtype=torch.float64)
    for kernel, stride, dilation in zip(spec.kernel_size, spec.stride, spec.dilation, strict=True):
        phase = torch.arange(kernel) * dilation % stride if spec.transposed else torch.zeros(kernel, dtype=torch.int64)
        seen = F.one_hot(phase, stride if spec.transposed else 1).T.double()
        table = torch.kron(table, seen.clone(memory_format=torch.contiguous_format))
    return table
