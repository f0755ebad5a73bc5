"""The U-Net by hand in all its variants, what it asks the factory for, and what it refuses."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from onn_runner.errors import ConfigError
from onn_runner.model.conv import Conv
from onn_runner.model.operational import Operational
from onn_runner.network.unet import DOWNS, SKIPS, UPS, UNet
from onn_runner.ops.nodal import Sine
from onn_runner.ops.pool import named


def make(activation: str = "tanh", **changes: Any) -> UNet:
    given = {"channels": [2, 3], "depth": 1, "layers": 1, "input_size": (8, 8), "residual": False, "centre": False}
    torch.manual_seed(0)
    return UNet(Conv(activation), 1, out_channels=1, **(given | changes))


@pytest.mark.parametrize(("down", "up", "skip"), list(itertools.product(DOWNS, UPS, SKIPS)))
def test_by_hand(down: str, up: str, skip: str) -> None:
    network = make(down=down, up=up, skip=skip)
    layers = iter(network.layers)

    def conv(z: Tensor, stride: int = 1) -> Tensor:
        layer: Any = next(layers)
        return F.conv2d(z, layer.weight, layer.bias, padding=1, stride=stride)

    x = torch.rand(2, 1, 6, 8)
    first = torch.tanh(conv(x))
    pool = {"max2": F.max_pool2d, "avg2": F.avg_pool2d}.get(down)
    z = torch.tanh(conv(first, 2)) if pool is None else pool(first, 2)
    z = torch.tanh(conv(z))
    if up == "transposed":
        layer: Any = next(layers)
        z = torch.tanh(F.conv_transpose2d(z, layer.weight.transpose(0, 1), layer.bias, stride=2))
    else:
        z = torch.tanh(conv(F.interpolate(z, scale_factor=2, mode=up)))
    if skip != "none":
        z = torch.cat([first, z], dim=1) if skip == "concat" else (first + z) / 2
    expected = conv(torch.tanh(conv(z)))
    assert next(layers, None) is None
    torch.testing.assert_close(network(x), expected)


def test_identity_weights_give_the_mean_of_the_image_and_its_blocks() -> None:
    network = make("identity", channels=[1, 1], skip="add", down="avg2")
    with torch.no_grad():
        for layer in network.layers:
            nn.init.ones_(layer.weight) if layer.spec.transposed else nn.init.dirac_(layer.weight)
    x = torch.rand(1, 1, 4, 6)
    blocks = x.reshape(1, 1, 2, 2, 3, 2).mean((3, 5)).repeat_interleave(2, 2).repeat_interleave(2, 3)
    torch.testing.assert_close(network(x), (x + blocks) / 2)


def test_odd_sizes_are_continued_by_the_edge_and_cropped() -> None:
    network = make(channels=2, depth=2, input_size=(12, 16))
    x = torch.rand(1, 1, 9, 14)
    whole = F.pad(x, (0, 2, 0, 3), mode="replicate")
    torch.testing.assert_close(network(x), network(whole)[:, :, :9, :14])


def test_one_number_of_channels_doubles() -> None:
    network = make(channels=4, depth=2, layers=2, input_size=(16, 16))
    shown = [(layer.spec.in_channels, layer.spec.out_channels) for layer in network.layers]
    assert shown == [(1, 4), (4, 4), (4, 8), (8, 8), (8, 16), (16, 16), (16, 8), (16, 8), (8, 8), (8, 4), (8, 4),
                     (4, 4), (4, 1)]  # fmt: skip


def test_kernels_per_level() -> None:
    network = make(kernels=[5, [3, 1]])
    assert [layer.spec.kernel_size for layer in network.layers] == [(5, 5), (3, 1), (2, 2), (5, 5), (5, 5)]


@pytest.mark.parametrize(
    ("message", "changes"),
    [
        (r"unknown network.down 'max'. Did you mean max2", {"down": "max"}),
        (r"unknown network.up 'linear'", {"up": "linear"}),
        (r"unknown network.skip 'cat'", {"skip": "cat"}),
        (r"network.depth \(=0\) must be a whole number of at least 1", {"depth": 0}),
        (r"network.layers \(=0\) must be a whole number of at least 1", {"layers": 0}),
        (r"network.channels has 3 entries, network.depth \(=1\) makes 2 levels", {"channels": [1, 2, 3]}),
        (r"network.channels \(=0\) must be a list of the levels' neurons", {"channels": 0}),
        (r"network.kernels has 1 entries, network.depth \(=1\) makes 2 levels", {"kernels": [3]}),
        (r"kernel of layer 4 \(=3x3\) is larger than its input \(=2x2\); use a smaller kernel, a smaller network.depth",
         {"depth": 2, "channels": 2, "down": "strided"}),
    ],
)  # fmt: skip
def test_refused(message: str, changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=message):
        make(**changes)


def test_pools_that_transposed_layers_cannot_have() -> None:
    factory = Operational({"sine": Sine()}, pool=named("median"))
    given: dict[str, Any] = {"out_channels": 1, "input_size": (8, 8), "channels": 2, "depth": 1, "layers": 1}
    with pytest.raises(ConfigError, match=r"is transposed: .* use sum or mean"):
        UNet(factory, 1, **given)
    assert UNet(factory, 1, up="nearest", **given)(torch.rand(1, 1, 5, 6)).shape == (1, 1, 5, 6)
