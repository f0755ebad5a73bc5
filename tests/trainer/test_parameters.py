"""Parameter groups and frozen patterns."""

import functools
from typing import Any

import pytest
import torch
from tiny_fold import Net, settings
from torch import Tensor, nn

from onn_runner.errors import ConfigError
from onn_runner.model.base import Layer
from onn_runner.trainer.parameters import freeze, kinds, make_optimizer


class Curved(Layer):
    """A layer that has everything: its names alone would say otherwise."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Parameter(torch.ones(2, 2))
        self.square = nn.Parameter(torch.ones(2, 2))
        self.offset = nn.Parameter(torch.ones(2, 1))
        self.scale = nn.GroupNorm(1, 2)

    def forward(self, x: Tensor) -> Tensor:
        return x

    def decay_groups(self) -> dict[str, str]:
        groups = {"linear": "weight", "square": "quadratic", "offset": "bias"}
        return groups | {"scale.weight": "norm", "scale.bias": "norm"}


def network() -> nn.Sequential:
    return nn.Sequential(Curved(), nn.Linear(2, 2), nn.BatchNorm1d(2))


adam = functools.partial(torch.optim.AdamW, lr=0.1, weight_decay=0.3)


def test_kinds_come_from_layers_and_from_the_modules_of_torch() -> None:
    assert kinds(network()) == {
        "0.linear": "weight",
        "0.square": "quadratic",
        "0.offset": "bias",
        "0.scale.weight": "norm",
        "0.scale.bias": "norm",
        "1.weight": "weight",
        "1.bias": "bias",
        "2.weight": "norm",
        "2.bias": "norm",
    }


def by_name(optimizer: torch.optim.Optimizer) -> dict[str, dict[str, Any]]:
    return {group["name"]: group for group in optimizer.param_groups}


def test_biases_and_norms_do_not_decay_and_quadratic_terms_have_their_own_rate() -> None:
    groups = by_name(make_optimizer(network(), adam, settings(quadratic_rate=0.5, quadratic_decay=0.7)))
    assert {name: (group["lr"], group["weight_decay"]) for name, group in groups.items()} == {
        "weight": (0.1, 0.3),
        "quadratic": (0.05, 0.7),
        "bias": (0.1, 0.0),
        "norm": (0.1, 0.0),
    }
    assert sum(len(group["params"]) for group in groups.values()) == 9


def test_decay_all_and_the_optimizers_decay_for_quadratic_terms() -> None:
    groups = by_name(make_optimizer(network(), adam, settings(decay_all=True)))
    assert {group["weight_decay"] for group in groups.values()} == {0.3}
    assert {group["lr"] for group in groups.values()} == {0.1}


def test_optimizer_without_decay_gets_none() -> None:
    groups = by_name(make_optimizer(network(), functools.partial(torch.optim.Rprop, lr=0.1), settings()))
    assert "weight_decay" not in groups["bias"]


def test_frozen_parameters_stay() -> None:
    net = Net()
    freeze(net, ("layers.0.*", "*.bias"))
    optimizer = make_optimizer(net, adam, settings())
    before = {name: parameter.clone() for name, parameter in net.named_parameters()}
    net(torch.randn(2, 1, 4, 4, generator=torch.Generator().manual_seed(0))).square().sum().backward()
    optimizer.step()
    moved = {name for name, parameter in net.named_parameters() if not torch.equal(parameter, before[name])}
    assert moved == {"layers.1.weight", "layers.4.weight"}


def test_pattern_that_fits_nothing_lists_the_names() -> None:
    with pytest.raises(
        ConfigError, match=r"no parameter is called 'layer\.\*'. There are: layers\.0\.weight, layers\.0\.bias"
    ):
        freeze(Net(), ("layers.0.*", "layer.*"))


def test_freezing_everything_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"trainer\.frozen=\['\*'\] leaves no parameter to train"):
        freeze(Net(), ("*",))
