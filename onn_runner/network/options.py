"""What the networks' keys have in common: each value checked, or one sentence that names key, value and remedy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from onn_runner.errors import ConfigError

Size = tuple[int, ...]
Output = Literal["conv", "same"]
OUTPUTS: tuple[Output, ...] = ("conv", "same")


def by(size: Sequence[int]) -> str:
    """(60, 40) -> "60x40"."""
    return "x".join(map(str, size))


def is_width(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def widths(channels: object, *, example: str, of: str) -> list[int]:
    """A list of numbers of neurons. `of` says in the message what they are."""
    if isinstance(channels, str) or not isinstance(channels, Sequence):
        raise ConfigError(f"network.channels (={channels}) must be a list of {of}, as {example}")
    for value in channels:
        if not is_width(value):
            raise ConfigError(f"network.channels (={list(channels)}) holds {value}; each must be a positive number")
    return list(channels)


def kernel(entry: Any, *, dims: int) -> Size:
    """One kernel size: a number for all axes, or one per axis."""
    sizes = (entry,) * dims if isinstance(entry, int) else tuple(entry) if isinstance(entry, (list, tuple)) else ()
    if len(sizes) != dims or not all(is_width(size) for size in sizes):
        raise ConfigError(
            f"network.kernels holds {entry}; each must be a positive number, or {dims} of them, one per axis"
        )
    return sizes


def kernels(
    value: Any,
    count: int,
    *,
    dims: int,
    made_by: str,  # what makes that many of them, for the message
    each: str,
) -> list[Size]:
    """`count` kernel sizes, from one number for all or a list with one entry each."""
    entries = [value] * count if isinstance(value, int) else value
    if isinstance(entries, str) or not isinstance(entries, Sequence):
        raise ConfigError(f"network.kernels (={value}) must be a number or a list with one entry per {each}")
    if len(entries) != count:
        raise ConfigError(
            f"network.kernels has {len(entries)} entries, {made_by}; write one kernel size per {each}, or one number "
            "for all"
        )
    return [kernel(entry, dims=dims) for entry in entries]


def check_kernel(index: int, kernel_size: Size, size: Size, *, remedy: str = "use a smaller kernel") -> None:
    """A kernel that is larger than what it looks at reads mostly padding: a mistake in the size of one of them."""
    if any(k > length for k, length in zip(kernel_size, size, strict=True)):
        raise ConfigError(
            f"network.kernels: the kernel of layer {index} (={by(kernel_size)}) is larger than its input "
            f"(={by(size)}); {remedy} or larger patches (data.patch)"
        )


def check_residual(in_channels: int, out_channels: int) -> None:
    if in_channels != out_channels:
        raise ConfigError(
            f"network.residual adds the input ({in_channels} channels) to the output ({out_channels} channels); "
            "set network.residual=false"
        )


def check_same_size(input_size: Sequence[int], output_size: Sequence[int] | None) -> None:
    """Of networks whose output has the input's size."""
    if output_size is not None and tuple(output_size) != tuple(input_size):
        raise ConfigError(
            f"the target's size (={by(output_size)}) is not the input's (={by(input_size)}), which this network keeps; "
            "use network=resnet_restore for super-resolution, or inputs of the target's size"
        )


def check_pictures(output_size: Sequence[int] | None) -> None:
    """Of networks whose output is a picture."""
    if output_size is not None and not len(output_size):
        raise ConfigError(
            "the data's targets are classes, and this network gives pictures; use network=resnet, vgg or mobilenet"
        )


def check_classes(output_size: Sequence[int] | None) -> None:
    """Of networks whose output is one number per class."""
    if output_size:
        raise ConfigError(
            f"the data's targets are pictures ({by(output_size)}), and this network gives one number per class; use "
            "network=compact, unet or resnet_restore"
        )
