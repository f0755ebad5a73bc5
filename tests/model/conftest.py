"""The definition of a window, written with index arrays: what every neuron type is compared with, in float64."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from onn_runner.model.base import LayerSpec

NUMPY_MODES: dict[str, Any] = {"zeros": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}

GEOMETRIES: dict[str, dict[str, Any]] = {
    "1d": {"size": (7,), "kernel_size": (3,)},
    "1d even, stride": {"size": (33,), "kernel_size": (4,), "stride": (2,)},
    "one position": {"size": (1, 1), "kernel_size": (3, 3)},
    "one row": {"size": (1, 7), "kernel_size": (1, 3)},
    "non-square": {"size": (33, 7), "kernel_size": (5, 2)},
    "even": {"size": (6, 5), "kernel_size": (2, 4)},
    "stride": {"size": (8, 7), "kernel_size": (3, 3), "stride": (2, 3)},
    "dilation": {"size": (9, 7), "kernel_size": (3, 2), "dilation": (2, 3)},
    "groups": {"size": (5, 6), "kernel_size": (3, 3), "groups": 2},
    "depthwise": {"size": (5, 4), "kernel_size": (3, 2), "groups": 4},
    "reflect": {"size": (7, 5), "kernel_size": (4, 3), "padding_mode": "reflect"},
    "replicate": {"size": (3, 5), "kernel_size": (5, 3), "padding_mode": "replicate"},
    "circular": {"size": (7, 3), "kernel_size": (3, 4), "padding_mode": "circular"},
    "valid": {"size": (7, 5), "kernel_size": (3, 5), "padding": "valid"},
    "explicit": {"size": (4, 5), "kernel_size": (2, 3), "padding": (2, 1)},
    "3d": {"size": (3, 4, 2), "kernel_size": (2, 3, 1)},
}


def make_spec(**changes: Any) -> LayerSpec:
    """A 4 -> 4 channel layer without activation, with what differs."""
    values = {"in_channels": 4, "out_channels": 4, "kernel_size": (3, 3), "activation": "identity"} | changes
    values.pop("size", None)
    dims = len(values["kernel_size"])
    return LayerSpec(**({"stride": (1,) * dims, "dilation": (1,) * dims} | values))


def windows(
    x: Tensor,  # [B, C, *S]
    spec: LayerSpec,
) -> Tensor:  # [B, C, T, *S']
    """What each tap sees, by indexing."""
    sizes = x.shape[2:]
    if spec.padding == "same":
        totals = [d * (k - 1) for d, k in zip(spec.dilation, spec.kernel_size, strict=True)]
        margins = [(t // 2, (t + 1) // 2) for t in totals]
    else:
        margins = [(0, 0)] * spec.dims if spec.padding == "valid" else [(p, p) for p in spec.padding]
    mode = NUMPY_MODES[spec.padding_mode]
    options = {"constant_values": -1} if mode == "constant" else {}
    index = np.pad(np.arange(np.prod(sizes)).reshape(sizes), margins, mode=mode, **options)
    flat = torch.cat([x.flatten(2), torch.zeros_like(x.flatten(2)[..., :1])], dim=-1)
    taps = []
    for tap in itertools.product(*map(range, spec.kernel_size)):
        starts = [t * d for t, d in zip(tap, spec.dilation, strict=True)]
        ends = [n - (k - 1 - t) * d for n, k, t, d in
                zip(index.shape, spec.kernel_size, tap, spec.dilation, strict=True)]  # fmt: skip
        part = index[tuple(slice(a, b, s) for a, b, s in zip(starts, ends, spec.stride, strict=True))]
        taps.append(flat[:, :, torch.from_numpy(np.ascontiguousarray(part))])
    return torch.stack(taps, dim=2)


def weighted_sum(
    seen: Tensor,  # [B, C, T, *S']
    weight: Tensor,  # [O, C/G, *k]
    groups: int,
) -> Tensor:  # [B, O, *S']
    """sum over c, t of w x by einsum."""
    shape = seen.shape
    x = seen.reshape(shape[0], groups, shape[1] // groups, shape[2], -1)
    w = weight.reshape(groups, weight.shape[0] // groups, weight.shape[1], -1)
    return torch.einsum("bgctl,goct->bgol", x, w).reshape(shape[0], weight.shape[0], *shape[3:])


def along_channels(values: Tensor, like: Tensor) -> Tensor:
    return values.reshape(1, -1, *[1] * (like.dim() - 2))


def example(size: tuple[int, ...], *, channels: int = 4, batch: int = 2, seed: int = 0) -> Tensor:
    """Inputs in [-1, 1], float64, requiring a gradient."""
    keyed = torch.Generator().manual_seed(seed)
    values = torch.rand(batch, channels, *size, generator=keyed, dtype=torch.float64) * 2 - 1
    return values.requires_grad_()


def assert_same(layer: torch.nn.Module, reference: Callable[[Tensor], Tensor], x: Tensor, **tolerance: float) -> None:
    """Output and every gradient; the default tolerance is float64's rounding over a few hundred terms."""
    limits = {"rtol": 1e-10, "atol": 1e-11} | tolerance
    inputs = [x, *layer.parameters()]
    expected = reference(x)
    got = layer(x)
    assert got.shape == expected.shape
    torch.testing.assert_close(got, expected, **limits)
    keyed = torch.Generator().manual_seed(7)
    cotangent = torch.randn(got.shape, generator=keyed, dtype=got.dtype)
    for mine, right in zip(
        torch.autograd.grad(got, inputs, cotangent),
        torch.autograd.grad(expected, inputs, cotangent),
        strict=True,
    ):
        torch.testing.assert_close(mine, right, **limits)


class Definition:
    """The functions above, as one fixture."""

    spec = staticmethod(make_spec)
    windows = staticmethod(windows)
    weighted_sum = staticmethod(weighted_sum)
    along_channels = staticmethod(along_channels)
    example = staticmethod(example)
    assert_same = staticmethod(assert_same)


@pytest.fixture(autouse=True)
def _seeded() -> None:
    torch.manual_seed(0)


@pytest.fixture
def definition() -> type[Definition]:
    return Definition


@pytest.fixture(params=GEOMETRIES.values(), ids=GEOMETRIES.keys())
def geometry(request: pytest.FixtureRequest) -> dict[str, Any]:
    return dict(request.param)
