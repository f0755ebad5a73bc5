"""A network of any neurons that begins as the same network of first-order ones."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from onn_runner.convert import take_over
from onn_runner.errors import ConfigError
from onn_runner.model.base import Factory, Unrepresentable
from onn_runner.model.conv import Conv
from onn_runner.model.operational import Operational
from onn_runner.model.quadratic import Quadratic
from onn_runner.model.self_onn import SelfONN
from onn_runner.network.compact import Compact
from onn_runner.network.resnet import ResNet
from onn_runner.network.unet import UNet
from onn_runner.ops.nodal import Multiply, Sine

FACTORIES: dict[str, Factory] = {
    "self_onn": SelfONN(2, activation="relu"),
    "mul": Operational({"mul": Multiply()}, activation="relu"),
    "quadralib": Quadratic("quadralib", activation="relu"),
    "conv": Conv("relu"),
}


def resnet(factory: Factory, seed: int = 0, **changes: object) -> nn.Module:
    torch.manual_seed(seed)
    options: dict[str, object] = {"channels": [4, 6, 8], "depth": 8, **changes}
    return ResNet(factory, in_channels=1, out_channels=4, input_size=(12, 12), **options)  # type: ignore[arg-type]


@pytest.mark.filterwarnings("ignore::onn_runner.model.conv.UnboundedInputWarning")
@pytest.mark.parametrize("kind", FACTORIES)
def test_the_same_outputs(kind: str) -> None:
    source, made = resnet(Conv("relu")), resnet(FACTORIES[kind], seed=1)
    x = torch.rand(5, 1, 12, 12)
    source(x)
    assert not torch.equal(made.eval()(x), source.eval()(x))
    assert take_over(made, source) == 0
    assert torch.equal(made.eval()(x), source.eval()(x))


@pytest.mark.parametrize("network", [functools.partial(Compact, channels=[4, 4]), functools.partial(UNet, channels=4)])
def test_restoring_networks_and_near_starts(network: Callable[..., Any]) -> None:
    torch.manual_seed(0)
    source, x = network(Conv(), in_channels=1, out_channels=1, input_size=(16, 16)), torch.rand(2, 1, 16, 16)
    with torch.no_grad():
        list(source.parameters())[-2].normal_(std=0.1)
    made = network(Operational({"sine": Sine()}), in_channels=1, out_channels=1, input_size=(16, 16))
    with pytest.raises(Unrepresentable, match=r"layer layers.0: the operator sine is no product w x"):
        take_over(made, source)
    assert take_over(made, source, near=True) == len(source.layers) - 1
    assert float((made(x) - source(x)).detach().abs().max()) < 0.03 * float((source(x) - x).detach().abs().max())


def test_other_networks_are_refused() -> None:
    source = resnet(Conv("relu"))
    with pytest.raises(ConfigError, match="the networks have other layers: "):
        take_over(resnet(Conv("relu"), depth=14), source)
    with pytest.raises(ConfigError, match=r"layer stem: weight has shape \(4, 1, 3, 3\); this layer takes"):
        take_over(resnet(SelfONN(1, activation="relu"), channels=[8, 8, 8]), source)
    with pytest.raises(ConfigError, match="has a norm in one of the networks only"):
        take_over(resnet(SelfONN(1, activation="tanh"), norm="none"), source)
