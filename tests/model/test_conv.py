"""The plain convolution against its definition, and the variance of fresh layers."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from onn_runner.errors import ConfigError
from onn_runner.model.conv import Conv


def test_definition(definition: Any, geometry: dict[str, Any]) -> None:
    spec = definition.spec(**geometry)
    layer = Conv()(spec).double()
    torch.nn.init.normal_(layer.bias)

    def reference(x: Tensor) -> Tensor:
        y = definition.weighted_sum(definition.windows(x, spec), layer.weight, spec.groups)
        return y + definition.along_channels(layer.bias, y)

    definition.assert_same(layer, reference, definition.example(geometry["size"]))


def test_activation_is_the_models_unless_output_or_spec_says_otherwise(definition: Any) -> None:
    factory = Conv("tanh")
    assert factory(definition.spec(activation=None)).output_bound == (-1.0, 1.0)
    assert factory(definition.spec(activation=None, role="output")).output_bound is None
    assert factory(definition.spec(activation="sigmoid", role="output")).output_bound == (0.0, 1.0)
    with pytest.raises(ConfigError, match="unknown activation 'rellu'"):
        Conv("rellu")


@pytest.mark.parametrize("activation", ["relu", "tanh", "lincut", "sigmoid", "GELU"])
def test_fresh_layers_keep_the_variance(definition: Any, activation: str) -> None:
    """Mean square of pre-activations within a factor of two over six layers of 64 neurons (finite width)."""
    x = torch.rand(8, 16, 12, 12) * 2 - 1
    for index in range(6):
        layer = Conv(activation)(definition.spec(
            in_channels=x.shape[1], out_channels=64, activation=None, index=index, padding_mode="circular"
        ))  # fmt: skip
        u = layer.respond(torch.nn.functional.pad(x, (1, 1, 1, 1), mode="circular"))
        assert 0.5 < float(u.detach().square().mean()) < 2.0
        x = layer(x).detach()


def test_cost_and_facts(definition: Any) -> None:
    layer = Conv()(definition.spec(in_channels=4, out_channels=6, kernel_size=(3, 2), groups=2))
    assert layer.macs(10) == 10 * 6 * 2 * 6
    assert layer.facts().kind == "conv"
    assert layer.facts().nonlinearity == 0
    assert layer.decay_groups() == {"weight": "weight", "bias": "bias"}
