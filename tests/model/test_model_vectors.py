"""Neurons on vectors against torch's Linear; layers without a bias, and with a norm of their own."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from onn_runner.errors import ConfigError
from onn_runner.model.base import LayerSpec, Unrepresentable
from onn_runner.model.conv import Conv
from onn_runner.model.operational import Operational
from onn_runner.model.self_onn import SelfONN
from onn_runner.model.vectors import VectorLayer, vector_spec
from onn_runner.ops import Exponential, Sine

FACTORIES = {
    "conv": Conv(),
    "self_onn": SelfONN(3),
    "onn": Operational({"sine": Sine(), "exp": Exponential()}),
}


@pytest.mark.parametrize("places", [(), (3,), (2, 3), (4, 1, 2)])
def test_a_convolution_on_vectors_is_a_linear_layer(places: tuple[int, ...]) -> None:
    layer, linear = VectorLayer(Conv(), vector_spec(5, 7, activation="identity")).double(), nn.Linear(5, 7).double()
    layer.layer.load_first_order(linear.weight.detach()[:, :, None], linear.bias.detach())
    x = torch.randn(2, *places, 5, dtype=torch.float64)
    torch.testing.assert_close(layer(x), linear(x))


def test_wrong_vectors_are_named() -> None:
    with pytest.raises(ConfigError, match=r"must be \[batch, ..., 5\]"):
        VectorLayer(Conv(), vector_spec(5, 7))(torch.rand(2, 4))


def spec(**changes: object) -> LayerSpec:
    sizes = {"in_channels": 2, "out_channels": 4, "kernel_size": (3, 3), "stride": (1, 1), "dilation": (1, 1)}
    return LayerSpec(**{**sizes, "input_bound": (-1.0, 1.0), **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", FACTORIES)
def test_without_bias_there_is_no_parameter_and_a_zero_bias_less(kind: str) -> None:
    torch.manual_seed(0)
    bare = FACTORIES[kind](spec(bias=False)).double()
    torch.manual_seed(0)
    full = FACTORIES[kind](spec()).double()
    assert "bias" not in dict(bare.named_parameters())
    with torch.no_grad():
        full.get_parameter("bias").zero_()
    x = torch.rand(2, 2, 5, 6, dtype=torch.float64) - 0.5
    torch.testing.assert_close(bare(x), full(x))


@pytest.mark.parametrize("kind", FACTORIES)
def test_a_norm_of_the_spec_stands_before_the_activation(kind: str) -> None:
    layer = FACTORIES[kind](spec(norm="batch", bias=False, activation="relu"))
    y = layer(torch.rand(3, 2, 8, 9))
    # Half of a normed channel lies below zero, where relu cuts it off.
    assert 0.2 < float((y == 0).float().mean()) < 0.8
    assert layer.decay_groups()["norm.weight"] == "norm"
    assert layer.get_buffer("norm.num_batches_tracked") == 1


def test_a_norm_of_one_value_per_channel_is_refused() -> None:
    with pytest.raises(ConfigError, match="more than one value per channel"):
        Conv()(spec(norm="batch", padding="valid"))(torch.rand(1, 2, 3, 3))


@pytest.mark.parametrize("kind", ["conv", "self_onn"])
def test_a_first_order_start_is_the_convolution(kind: str) -> None:
    layer, conv = FACTORIES[kind](spec(activation="identity")), nn.Conv2d(2, 4, 3, padding=1)
    layer.load_first_order(conv.weight.detach(), conv.bias.detach() if conv.bias is not None else None)
    x = torch.rand(2, 2, 6, 5)
    assert torch.equal(layer(x), conv(x))
    with pytest.raises(Unrepresentable, match="this layer takes"):
        layer.load_first_order(torch.zeros(4, 3, 3, 3))
    bare = FACTORIES[kind](spec(bias=False))
    with pytest.raises(Unrepresentable, match="made without one"):
        bare.load_first_order(conv.weight.detach(), torch.zeros(4))
