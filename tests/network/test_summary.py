"""The summary's numbers by hand-count, its warnings, and that it changes nothing."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
import torch
from torch import nn

from onn_runner.errors import ConfigError
from onn_runner.model.base import Factory, LayerFacts
from onn_runner.model.conv import Conv
from onn_runner.model.operational import Operational
from onn_runner.model.quadratic import Quadratic
from onn_runner.model.self_onn import SelfONN
from onn_runner.network import summary
from onn_runner.network.compact import Compact
from onn_runner.network.resnet import ResNet
from onn_runner.network.summary import layers_of, summarise
from onn_runner.ops.nodal import Multiply, Sine


def make(factory: Factory, **changes: Any) -> Compact:
    values = {"in_channels": 1, "out_channels": 1, "channels": [5, 6], "kernels": [5, 3, 3], "input_size": (12, 12)}
    return Compact(factory, **(values | changes))


def test_numbers_by_hand() -> None:
    network = make(Operational({"sine": Sine(), "mul": Multiply()}), sampling=["max2", "up2", "none"])
    summary = summarise(network, (1, 12, 12))
    assert [row.name for row in summary.rows] == [name for name, _ in layers_of(network)]
    assert [row.name for row in summary.rows] == ["layers.0", "layers.1", "layers.2"]
    assert [row.parameters for row in summary.rows] == [5 * 25 + 5, 6 * 5 * 9 + 6, 6 * 9 + 1]
    assert [row.macs for row in summary.rows] == [144 * 5 * 25, 36 * 6 * 5 * 9, 144 * 6 * 9]
    assert [row.output_shape for row in summary.rows] == [(5, 12, 12), (6, 6, 6), (1, 12, 12)]
    assert [row.facts.operators for row in summary.rows] == [(("sine", 3), ("mul", 2)), (("sine", 3), ("mul", 3)), ()]
    assert summary.parameters == sum(row.parameters for row in summary.rows)
    assert summary.macs == sum(row.macs for row in summary.rows)
    assert all(row.facts.computed_by for row in summary.rows)
    assert summary.warnings == ()


def test_one_axis_and_an_example_of_ones_own() -> None:
    network = make(SelfONN(3), input_size=(16,))
    assert summarise(network, (1, 16)) == summarise(network, (), example=torch.zeros(4, 1, 16))


def test_plain_containers() -> None:
    summary = summarise(make(Conv()), (1, 9, 9))
    plain = json.loads(json.dumps(summary.as_plain()))
    assert plain == summary.as_plain()
    assert plain["rows"][0]["facts"]["kind"] == "conv"
    assert plain["rows"][0]["output_shape"] == [5, 9, 9]


@pytest.mark.parametrize("factory", [Quadratic(), Operational({"sine": Sine()})], ids=["quadratic", "onn"])
def test_nothing_changes(factory: Factory) -> None:
    network = make(factory).train()
    before = copy.deepcopy(network.state_dict())
    random = torch.get_rng_state()
    summarise(network, (1, 12, 12))
    assert torch.equal(torch.get_rng_state(), random)
    assert network.training
    assert all(module.training for module in network.modules())
    assert all(not module._forward_hooks for module in network.modules())
    after = network.state_dict()
    for key, value in before.items():
        if isinstance(value, torch.Tensor):
            assert torch.equal(value, after[key]), key
        else:
            assert value == after[key], key


@pytest.mark.parametrize(
    ("factory", "kind"),
    [(Operational({"mul": Multiply()}), "onn"), (SelfONN(1), "self_onn q=1")],
    ids=["mul", "q=1"],
)
def test_a_linear_network_with_a_grander_name_is_warned_about(factory: Factory, kind: str) -> None:
    (warning,) = summarise(make(factory), (1, 12, 12)).warnings
    assert warning.startswith(f"the network is called {kind}, but every layer is linear in its input")


@pytest.mark.parametrize("factory", [Conv(), SelfONN(3), Quadratic(), Operational({"mul": Multiply(), "sine": Sine()})])
def test_others_are_not(factory: Factory) -> None:
    assert summarise(make(factory), (1, 12, 12)).warnings == ()


def test_values_that_are_not_finite_are_warned_about() -> None:
    network = make(Conv())
    nn.init.constant_(network.layers[0].bias, float("nan"))
    (warning,) = summarise(network, (1, 12, 12)).warnings
    assert "not finite" in warning


def test_a_network_without_layers_is_refused() -> None:
    with pytest.raises(ConfigError, match="Linear holds no layers of neurons"):
        summarise(nn.Linear(2, 2), (2,))


@pytest.mark.parametrize(
    ("rows", "words"),
    [((), "model.q above 1"), ((("mul", 4),), "other operators than mul"), ((("sinh", 4),), "omega or k of sinh")],
)
def test_the_remedy_for_a_linear_network_names_what_it_is_made_of(rows: Any, words: str) -> None:
    facts = LayerFacts("onn" if rows else "self_onn q=1", rows, 0.0, "", "")
    (text,) = summary._warnings([summary.Row("layers.0", facts, 1, 1, (1, 2, 2))], None)
    assert words in text


@pytest.mark.filterwarnings("ignore::onn_runner.model.conv.UnboundedInputWarning")
def test_norms_that_have_seen_no_batch_are_no_reason_to_warn() -> None:
    """In evaluation products of products overflow; training begins with the batch's own statistics."""
    network = ResNet(Quadratic(activation="relu"), 3, out_channels=10, input_size=(8, 8), channels=4, depth=32)
    example = torch.rand(4, 3, 8, 8)
    assert not torch.isfinite(copy.deepcopy(network).eval()(example)).all()
    assert summarise(network, (3, 8, 8), example=example).warnings == ()


@pytest.mark.filterwarnings("ignore::onn_runner.model.conv.UnboundedInputWarning")
def test_deep_products_without_norms_or_bounds_are_warned_about_once() -> None:
    def warnings_of(depth: int, **changes: Any) -> tuple[str, ...]:
        factory = Quadratic(**({"activation": "relu"} | changes))
        return summarise(make(factory, channels=[3] * depth, kernels=3), (1, 12, 12)).warnings

    [warning] = warnings_of(4)
    assert warning.startswith("4 quadratic layers (layers.0 to layers.3) have neither norms nor bounded activations")
    assert warnings_of(3) == ()
    for changes in ({"activation": "tanh"}, {"output_norm": "batch"}, {"norm": "batch"}):
        assert warnings_of(4, **changes) == ()
