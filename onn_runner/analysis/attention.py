"""Where layers respond: the mean over channels of their squared outputs, brought to the input's size.

Source: Zagoruyko and Komodakis, Paying More Attention to Attention (2017), the activation-based maps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from onn_runner.analysis.memory import Place, watched
from onn_runner.errors import ConfigError
from onn_runner.network.summary import layers_of

Array = npt.NDArray[np.float64]
METHODS: dict[int, str] = {1: "linear", 2: "bilinear", 3: "trilinear"}
"""Of interpolation, by the number of axes."""


@dataclass(frozen=True)
class LayerAttention:
    name: str
    kind: str
    size: tuple[int, ...]
    """Of the layer's own map, before it was enlarged."""
    maps: Array  # [B, *S], from 0 (least) to 1 (most) of each item; all 0 where the layer responds evenly


def attention(network: nn.Module, forward: Callable[[], Any], size: Sequence[int]) -> list[LayerAttention]:
    """Of every layer with positions, in the order of their first outputs, while `forward` runs the network once.

    A layer that is used several times shows its first use.

    Raises ConfigError where no layer has positions.
    """
    layers: Mapping[str, nn.Module] = dict(layers_of(network))
    found: dict[str, LayerAttention] = {}

    def leave(name: str, output: Tensor) -> None:
        spread = output.dim() == len(size) + 2 and output[0, 0].numel() > 1
        if name not in found and spread:
            kind = layers[name].facts().kind  # type: ignore[operator]
            found[name] = LayerAttention(name, kind, tuple(output.shape[2:]), maps_of(output, size))

    with torch.no_grad(), watched(layers, Place(), leave=leave):
        forward()
    if not found:
        raise ConfigError("no layer of this network has positions to respond at: there is no attention to draw")
    return list(found.values())


def maps_of(
    activations: Tensor,  # [B, O, *S']
    size: Sequence[int],
) -> Array:  # [B, *S]
    """Mean over channels of |a|^2, interpolated linearly, each item's from 0 to 1."""
    energy = activations.detach().double().cpu().abs().square().mean(1, keepdim=True)
    energy = F.interpolate(energy, size=tuple(size), mode=METHODS[len(size)], align_corners=False)[:, 0]
    flat = energy.flatten(1)
    low, high = flat.amin(1), flat.amax(1)
    shape = (-1, *[1] * len(size))
    spread = (high - low).reshape(shape)
    scaled = (energy - low.reshape(shape)) / torch.where(spread == 0, 1.0, spread)
    values: Array = scaled.numpy()
    return values
