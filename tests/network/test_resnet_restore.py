"""The residual network by hand, every factor and way to enlarge, and what it refuses."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from onn_runner.data.super_resolution import resized
from onn_runner.errors import ConfigError
from onn_runner.model.conv import Conv
from onn_runner.network.resnet_restore import STAGES, UPSAMPLINGS, ResNetRestore, deal


def make(**changes: Any) -> ResNetRestore:
    given = {"out_channels": 1, "channels": 2, "blocks": 2, "input_size": (6, 8)}
    torch.manual_seed(0)
    return ResNetRestore(Conv("tanh"), 1, **(given | changes))


@pytest.mark.parametrize(("scale", "upsampling"), list(itertools.product(STAGES, UPSAMPLINGS)))
def test_by_hand(scale: int, upsampling: str) -> None:
    network = make(scale=scale, upsampling=upsampling, residual_scale=0.2, block_scale=0.3)
    layers: list[Any] = list(network.layers)
    nn.init.normal_(layers[-1].weight)
    x = torch.rand(1, 1, 6, 8)

    def conv(z: Tensor) -> Tensor:
        layer = layers.pop(0)
        return F.conv2d(z, layer.weight, layer.bias, padding="same")

    z = torch.tanh(conv(2 * x - 1))
    for _ in range(2):
        z = z + 0.3 * torch.tanh(conv(torch.tanh(conv(z))))
    for factor in {1: [], 2: [2], 3: [3], 4: [2, 2], 8: [2, 2, 2]}[scale]:
        if upsampling == "shuffle":
            z = F.pixel_shuffle(torch.tanh(conv(z)), factor)
        elif upsampling == "transposed":
            layer = layers.pop(0)
            y = F.conv_transpose2d(z, layer.weight.transpose(0, 1), layer.bias, stride=factor)
            z = torch.tanh(y[:, :, factor // 2 : factor // 2 - factor, factor // 2 : factor // 2 - factor])
        else:
            z = torch.tanh(conv(F.interpolate(z, scale_factor=factor, mode=upsampling)))
    skip = x if scale == 1 else resized(x[0], scale)[None]
    torch.testing.assert_close(network(x), skip + 0.2 * conv(z))
    assert not layers


@pytest.mark.parametrize("scale", STAGES)
def test_the_scale_is_what_the_data_says(scale: int) -> None:
    network = make(output_size=(6 * scale, 8 * scale))
    assert network.scale == scale
    assert network(torch.rand(1, 1, 5, 7)).shape == (1, 1, 5 * scale, 7 * scale)


@pytest.mark.parametrize("scale", [2, 3, 4, 8])
def test_a_ramp_stays_a_ramp_where_it_is(scale: int) -> None:
    def ramp(rows: Tensor, columns: Tensor) -> Tensor:
        return (rows[:, None] / 20 + columns / 30)[None, None]

    enlarged = make(scale=scale, input_size=(9, 11))(ramp(torch.arange(9.0), torch.arange(11.0)))
    rows, columns = ((torch.arange(length * scale) + 0.5) / scale - 0.5 for length in (9, 11))
    # Sums of sixteen products of values of about one; near the border the photograph ends.
    inner = (..., slice(2 * scale, -2 * scale), slice(2 * scale, -2 * scale))
    torch.testing.assert_close(enlarged[inner], ramp(rows, columns)[inner], rtol=0, atol=1e-5)


@pytest.mark.parametrize("upsampling", [name for name in UPSAMPLINGS if name != "bicubic"])
@pytest.mark.parametrize("size", [(9,), (5, 6, 4)])
def test_other_numbers_of_axes(upsampling: str, size: tuple[int, ...]) -> None:
    network = make(input_size=size, scale=2, upsampling=upsampling)
    x = torch.rand(1, 1, *size)
    y = network(x)
    linear = F.interpolate(x, scale_factor=2, mode={1: "linear", 3: "trilinear"}[len(size)])
    torch.testing.assert_close(y, linear)


def test_channels_are_dealt_out_as_torch_does_it() -> None:
    x = torch.rand(2, 18, 5, 4)
    assert torch.equal(deal(x, 3), F.pixel_shuffle(x, 3))
    assert deal(torch.arange(6.0).reshape(1, 2, 3), 2).flatten().tolist() == [0, 3, 1, 4, 2, 5]
    assert deal(torch.rand(1, 8, 2, 3, 4), 2).shape == (1, 1, 4, 6, 8)


def test_inner_widths() -> None:
    network = make(channels=[4, 3, 5])
    shown = [(layer.spec.in_channels, layer.spec.out_channels) for layer in network.layers]
    assert shown == [(1, 4), (4, 3), (3, 4), (4, 5), (5, 4), (4, 1)]


def test_without_residual_channels_may_change() -> None:
    network = make(residual=False, out_channels=3, scale=2)
    assert network(torch.rand(1, 1, 5, 4)).shape == (1, 3, 10, 8)


@pytest.mark.parametrize(
    ("message", "changes"),
    [
        (r"target's size \(=30x40\) is not 1, 2, 3, 4 or 8 times the input's \(=6x8\)", {"output_size": (30, 40)}),
        (r"target's size \(=12x24\) is not 1, 2, 3, 4 or 8 times", {"output_size": (12, 24)}),
        (r"target's size \(=3x4\) is not 1, 2, 3, 4 or 8 times", {"output_size": (3, 4)}),
        (r"network.scale \(=2\) is not the factor between .* \(=6x8\) and the target's \(=18x24\); leave it null",
         {"output_size": (18, 24), "scale": 2}),
        (r"network.scale \(=5\) must be 1, 2, 3, 4 or 8, or null", {"scale": 5}),
        (r"network.scale \(=True\) must be", {"scale": True}),
        (r"network.upsampling=bicubic is for images, the data has 1 axes",
         {"input_size": (9,), "upsampling": "bicubic"}),
        (r"unknown network.upsampling 'suffle'. Did you mean shuffle", {"upsampling": "suffle"}),
        (r"network.blocks \(=0\) must be", {"blocks": 0}),
        (r"network.block_scale \(=-1\) must be a positive number", {"block_scale": -1}),
        (r"network.channels has 2 entries; write one number for all, or 1 \+ network.blocks \(=2\)",
         {"channels": [2, 2]}),
        (r"network.kernels holds \[3\]; each must be a positive number, or 2", {"kernels": [3]}),
    ],
)  # fmt: skip
def test_refused(message: str, changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=message):
        make(**changes)
