"""Parameter groups and frozen patterns."""

import functools
from typing import Any

import pytest
import torch
from tiny_fold import Net, settings
from torch import Tensor, nn

from onn_runner.errors import ConfigError
from onn_runner.model.base import Layer, LayerSpec
from onn_runner.model.quadratic import Quadratic
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


def quadratic(form: str = "t2_4") -> nn.Module:
    spec = LayerSpec(in_channels=1, out_channels=2, kernel_size=(3,), stride=(1,), dilation=(1,), input_bound=(-1, 1))
    return nn.Sequential(Quadratic(form)(spec), nn.Linear(2, 2))


def test_terms_have_rates_and_decays_of_their_own() -> None:
    changes = {"term_rates": {"square": 0.5, "b": 0.0}, "term_decays": {"square": 0.0, "a": 0.9}}
    made = make_optimizer(quadratic(), adam, settings(quadratic_rate=0.2, quadratic_decay=0.7, **changes))
    found = {name: (group["lr"], group["weight_decay"]) for name, group in by_name(made).items()}
    # a is the first-order term of t2_4; the 1 of its other factor never decays
    assert found == {
        "weight": (0.1, 0.3),
        "weight a": (0.1, 0.9),
        "quadratic square": (pytest.approx(0.1 * 0.2 * 0.5), 0.0),
        "quadratic b": (0.0, 0.7),
        "bias": (0.1, 0.0),
        "undecayed": (0.1, 0.0),
    }
    assert sum(len(group["params"]) for group in made.param_groups) == 8


def test_the_one_of_a_factor_decays_never() -> None:
    network = quadratic()
    made = make_optimizer(network, adam, settings(decay_all=True))
    group = by_name(made)["undecayed"]
    assert group["weight_decay"] == 0.0
    assert group["params"][0] is network.get_parameter("0.bias_b")


def test_state_of_terms_is_taken_up_again() -> None:
    changes = {"term_rates": {"square": 0.5}}
    network = quadratic()
    made = make_optimizer(network, adam, settings(**changes))
    sum(parameter.sum() for parameter in network.parameters()).backward()
    made.step()
    again = make_optimizer(network, adam, settings(**changes))
    again.load_state_dict(made.state_dict())
    assert [group["name"] for group in again.param_groups] == [group["name"] for group in made.param_groups]
    assert [group["lr"] for group in again.param_groups] == [group["lr"] for group in made.param_groups]


@pytest.mark.parametrize("key", ["term_rates", "term_decays"])
def test_terms_that_no_layer_has_are_refused(key: str) -> None:
    told = f"unknown term in trainer.{key}, for these neurons: 'squares'. Did you mean square"
    with pytest.raises(ConfigError, match=told):
        make_optimizer(quadratic(), adam, settings(**{key: {"squares": 1.0}}))
    with pytest.raises(ConfigError, match="Only quadratic neurons"):
        make_optimizer(nn.Linear(2, 2), adam, settings(**{key: {"square": 1.0}}))
    with pytest.raises(ConfigError, match=rf"trainer.{key}.square \(=-1\) must be zero or a positive number"):
        settings(**{key: {"square": -1}})
    with pytest.raises(ConfigError, match=rf"trainer.{key} \(=3\) must give terms their numbers"):
        settings(**{key: 3})


def test_decays_that_would_do_nothing_are_refused() -> None:
    with pytest.raises(ConfigError, match="bias_b stands for a 1 that must not decay"):
        make_optimizer(quadratic(), adam, settings(term_decays={"bias_b": 0.5}))
    plain = functools.partial(torch.optim.Rprop, lr=0.1)
    with pytest.raises(ConfigError, match="square meets an optimizer without decay"):
        make_optimizer(quadratic(), plain, settings(term_decays={"square": 0.5}))


def test_the_rate_that_is_told_is_that_of_no_term_apart() -> None:
    made = make_optimizer(quadratic(), adam, settings(term_rates={"a": 0.1}))
    assert made.param_groups[0]["lr"] == 0.1
