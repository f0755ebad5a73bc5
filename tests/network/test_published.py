"""VGG, ResNet and MobileNet against published counts, and against torchvision's own networks with the same weights."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torchvision
from torch import Tensor, nn

from onn_runner.errors import ConfigError
from onn_runner.model.conv import Conv
from onn_runner.model.quadratic import Quadratic
from onn_runner.network.mobilenet import MobileNet
from onn_runner.network.resnet import ResNet
from onn_runner.network.summary import layers_of, summarise
from onn_runner.network.vgg import VGG

CIFAR: dict[str, Any] = {"in_channels": 3, "out_channels": 10, "input_size": (32, 32)}
PHOTOGRAPHS: dict[str, Any] = {"in_channels": 3, "out_channels": 1000, "input_size": (64, 64), "stem": "imagenet"}
FIRST = Conv("relu")


@pytest.mark.parametrize(
    ("network", "millions", "macs"),
    [
        # QuadraLib's counts; its neurons have a norm on each branch and none behind, its shortcuts are projections
        (lambda: VGG(Quadratic(activation="relu"), **CIFAR), 12.3, 430),
        (lambda: VGG(FIRST, depth=16, **CIFAR), 14.7, 313),
        (lambda: ResNet(Quadratic(activation="relu", norm="batch"), shortcut="projection", norm="none", **CIFAR),
         0.519, 79),
        (lambda: ResNet(FIRST, depth=32, shortcut="projection", **CIFAR), 0.467, 69),
        # He et al., 2016, table 6: 0.46 M of ResNet-32, 0.27 M of 20, 0.85 M of 56, 1.7 M of 110
        (lambda: ResNet(FIRST, depth=32, **CIFAR), 0.46, 69),
        (lambda: ResNet(FIRST, depth=20, **CIFAR), 0.27, 41),
        (lambda: ResNet(FIRST, depth=56, **CIFAR), 0.85, 125),
        (lambda: ResNet(FIRST, depth=110, **CIFAR), 1.7, 253),
    ],
    ids=["QVGG-7", "VGG-16", "QResNet-14", "ResNet-32 B", "ResNet-32", "ResNet-20", "ResNet-56", "ResNet-110"],
)  # fmt: skip
def test_published_counts_for_cifar(network: Any, millions: float, macs: int) -> None:
    summary = summarise(network(), (3, 32, 32))
    digits = len(str(millions).split(".")[1])
    assert round(summary.parameters / 1e6, digits) == millions
    assert round(summary.macs / 1e6) == macs


def test_mobilenet_has_the_published_parameters_and_macs() -> None:
    summary = summarise(MobileNet(FIRST, **PHOTOGRAPHS), (3, 224, 224))
    assert summary.parameters == 4_231_976
    # Howard et al., 2017, table 4
    assert round(summary.macs / 1e6) == 569


@pytest.mark.parametrize(("width", "millions"), [(0.75, 2.6), (0.5, 1.3), (0.25, 0.5)])
def test_mobilenet_s_width_multiplier(width: float, millions: float) -> None:
    """Howard et al., 2017, table 6."""
    made = MobileNet(FIRST, width=width, **PHOTOGRAPHS)
    assert round(sum(p.numel() for p in made.parameters()) / 1e6, 1) == millions


@pytest.mark.parametrize("depth", [18, 34, 50])
def test_torchvision_s_networks_with_the_same_weights(depth: int) -> None:
    theirs = getattr(torchvision.models, f"resnet{depth}")(num_classes=1000)
    ours = ResNet(FIRST, depth=depth, centre=False, **PHOTOGRAPHS)
    assert sum(p.numel() for p in ours.parameters()) == sum(p.numel() for p in theirs.parameters())
    with torch.no_grad():
        for own, other in zip(ordered(ours), theirs.state_dict().values(), strict=True):
            own.copy_(other.reshape(own.shape))
    ours.eval(), theirs.eval()
    x = torch.rand(1, 3, 70, 45)
    with torch.no_grad():
        # two orders of summation in the classifier; values of about 1
        torch.testing.assert_close(ours(x), theirs(x), atol=1e-5, rtol=1e-5)


def ordered(network: ResNet) -> Iterator[Tensor]:
    """Tensors in torchvision's order: layer, norm, layer, norm, ..., a block's shortcut last."""
    for name, layer in layers_of(network):
        yield layer.get_parameter("weight")
        if name == "output.layer":
            yield layer.get_parameter("bias")
        yield from layer.norm.state_dict().values()


@pytest.mark.parametrize("depth", [18, 50])
def test_large_ones_without_a_projection_and_at_odd_sizes(depth: int) -> None:
    made = ResNet(Conv("relu"), depth=depth, width=1 / 16, shortcut="identity", **PHOTOGRAPHS)
    assert not [name for name, _ in layers_of(made) if "shortcut" in name]
    assert made(torch.rand(2, 3, 33, 17)).shape == (2, 1000)


def test_the_identity_shortcut_by_hand() -> None:
    made = ResNet(FIRST, 1, out_channels=2, input_size=(5, 4), channels=[2, 3, 5], depth=8)
    x = torch.rand(1, 2, 5, 4)
    kept = made.block2.shortcut(x)
    assert torch.equal(kept[:, :2], x[:, :, ::2, ::2])
    assert kept.shape == (1, 3, 3, 2)
    assert not kept[:, 2:].any()
    narrower = ResNet(FIRST, 1, out_channels=2, input_size=(5, 4), channels=[4, 3, 2], depth=8)
    assert torch.equal(narrower.block2.shortcut(torch.cat([x, x], 1)), torch.cat([x, x[:, :1]], 1)[:, :, ::2, ::2])


def test_blocks_that_start_as_their_shortcut() -> None:
    made = ResNet(Quadratic(), 1, out_channels=2, input_size=(8, 8), channels=4, zero_start=True)
    x = torch.randn(2, 4, 8, 8)
    assert torch.equal(made.block1(x), torch.tanh(x))
    with pytest.raises(ConfigError, match=r"network.norm=none has none; use batch"):
        ResNet(Quadratic(), 1, out_channels=2, input_size=(8, 8), norm="none", zero_start=True)


def test_the_activation_after_sums() -> None:
    given: dict[str, Any] = {"out_channels": 2, "input_size": (8, 8), "channels": 4}
    assert ResNet(Conv("relu"), 1, **given).block1.activation.name == "relu"
    assert ResNet(Conv(None), 1, **given).block1.activation.name == "identity"
    made = ResNet(Conv("relu"), 1, activation="tanh", **given)
    assert made.block1.activation.name == "tanh"
    assert made.block1.first.activation.name == "relu"
    assert made.block1.second.activation.name == "identity"
    assert made.block1.first.spec.input_bound is None
    assert made.block2.first.spec.input_bound == (-1.0, 1.0)
    with pytest.raises(ConfigError, match=r"network.activation: unknown activation 'tahn'. Did you mean"):
        ResNet(Conv(), 1, activation="tahn", **given)
    with pytest.raises(ConfigError, match=r"which these do not tell; name one, such as network.activation=relu"):
        ResNet(lambda spec: Conv()(spec), 1, **given)


@pytest.mark.parametrize(
    ("depth", "changes", "message"),
    [
        (15, {}, r"network.depth \(=15\) must be 6 n \+ 2 .*network.stem=cifar"),
        (2, {}, r"network.depth \(=2\) must be 6 n \+ 2"),
        (20, {"stem": "imagenet"}, r"network.depth \(=20\) must be one of 18, 34, 50, 101, 152 with"),
        (14, {"stem": "cifr"}, "unknown network.stem 'cifr'. Did you mean cifar"),
        (14, {"shortcut": "identiti"}, "unknown network.shortcut"),
        (14, {"channels": [8, 16]}, r"channels has 2 entries, network.depth \(=14\) makes 3 stages"),
    ],
)
def test_refused(depth: int, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ResNet(FIRST, depth=depth, **CIFAR | changes)


def test_vgg_of_fewer_stages_or_with_each_layer_s_width() -> None:
    two = VGG(FIRST, channels=[4, 6], **CIFAR)
    assert [layer.spec.out_channels for _, layer in layers_of(two)] == [4, 4, 6, 6, 10]
    each = VGG(FIRST, channels=[2, 3, 4, 5, 6, 7, 8], removed=["layer3"], **CIFAR)
    assert [layer.spec.out_channels for _, layer in layers_of(each)] == [2, 3, 5, 6, 7, 8, 10]
    assert [row.output_shape[1] for row in summarise(each, (3, 32, 32)).rows[:-1]] == [32, 32, 16, 8, 4, 2]
    with pytest.raises(ConfigError, match=r"has 6 entries, network.depth \(=7\) makes 5 stages and 7 layers"):
        VGG(FIRST, channels=[4] * 6, **CIFAR)
    with pytest.raises(ConfigError, match=r"network.depth \(=8\) must be one of 7, 11, 13, 16, 19"):
        VGG(FIRST, depth=8, **CIFAR)
    with pytest.raises(ConfigError, match=r"network.removed leaves no layer"):
        VGG(FIRST, channels=[4], removed=["layer1", "layer2"], **CIFAR)


def test_depthwise_layers_stay_depthwise() -> None:
    made = MobileNet(Quadratic(), **CIFAR)
    for name, layer in layers_of(made):
        groups = layer.spec.in_channels if name.endswith("depthwise") else 1
        assert layer.spec.groups == groups
    assert isinstance(made.block1, nn.Module)
