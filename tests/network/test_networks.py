"""Every network of every neuron type: any size, a gradient everywhere, the same numbers again, everything counted."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from small_networks import MODELS, RESTORERS, build
from torch import nn

from onn_runner.errors import ConfigError
from onn_runner.model.base import LayerSpec
from onn_runner.model.conv import Conv
from onn_runner.network.summary import layers_of, summarise

EVERY = [(network, model) for network in RESTORERS for model in MODELS]


def stirred(network: nn.Module) -> nn.Module:
    """With an output layer that does something: residual networks start with zeros there."""
    nn.init.normal_(layers_of(network)[-1][1].get_parameter("weight"), std=0.1)
    return network


@pytest.mark.parametrize(("network", "model"), EVERY)
def test_odd_sizes_and_a_gradient_everywhere(network: str, model: str) -> None:
    made = stirred(build(network, model, input_size=(24, 20)))
    for size in [(37, 53), (1, 5)]:
        x = torch.rand(1, 1, *size)
        y = made(x)
        assert y.shape == x.shape
        assert bool(y.isfinite().all())
    made(torch.rand(2, 1, 9, 14)).square().sum().backward()
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in made.parameters())


@pytest.mark.parametrize(("network", "model"), EVERY)
def test_the_model_s_neurons_in_the_output_and_signals(network: str, model: str) -> None:
    made = build(network, model, input_size=(16,), output="same", in_channels=2, out_channels=2)
    x = torch.rand(1, 2, 101)
    assert made(x).shape == x.shape


@pytest.mark.parametrize("network", RESTORERS)
def test_volumes(network: str) -> None:
    made = build(network, Conv(), input_size=(12, 12, 12))
    x = torch.rand(1, 1, 7, 9, 8)
    assert made(x).shape == x.shape


@pytest.mark.parametrize(("network", "model"), EVERY)
def test_same_seed_same_weights_and_a_round_trip(network: str, model: str) -> None:
    one, two = (stirred(build(network, model, input_size=(16, 16))) for _ in range(2))
    x = torch.rand(1, 1, 11, 13)
    assert torch.equal(one(x), two(x))
    with torch.no_grad():
        for parameter in two.parameters():
            parameter.add_(1.0)
    two.load_state_dict(one.state_dict())
    one.eval(), two.eval()
    assert torch.equal(one(x), two(x))


@pytest.mark.parametrize(("network", "model"), EVERY)
def test_every_layer_is_asked_for_and_counted(network: str, model: str) -> None:
    made = build(network, model, input_size=(18, 22))
    summary = summarise(made, (1, 18, 22))
    layers = [layer for _, layer in layers_of(made)]
    assert [row.name for row in summary.rows] == [f"layers.{index}" for index in range(len(layers))]
    assert [layer.spec.index for layer in layers] == list(range(len(layers)))
    assert summary.parameters == sum(row.parameters for row in summary.rows)
    assert all(row.macs > 0 for row in summary.rows)


class Watched:
    """Convolutions that are announced, and whose inputs must lie in the bounds that they were told."""

    expected = -1

    def __init__(self) -> None:
        self.specs: list[LayerSpec] = []

    def expect(self, count: int) -> None:
        self.expected = count

    def __call__(self, spec: LayerSpec) -> Any:
        self.specs.append(spec)
        layer = Conv("tanh")(spec)
        nn.init.normal_(layer.weight, std=3.0)

        def check(module: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
            bound = spec.input_bound
            if spec.index:
                assert bound is not None, spec
                low, high = bound
                # a sum of n terms in single precision
                assert low - 1e-5 <= inputs[0].min(), spec
                assert inputs[0].max() <= high + 1e-5, spec

        layer.register_forward_pre_hook(check)
        return layer


BOUNDED: list[tuple[str, dict[str, Any]]] = [
    *[(network, {}) for network in RESTORERS],
    ("unet", {"skip": "add", "down": "strided", "up": "bilinear"}),
    ("unet", {"skip": "none", "down": "avg2", "up": "nearest"}),
    ("resnet_restore", {"scale": 2}),
    ("resnet_restore", {"scale": 3, "upsampling": "bicubic"}),
    ("resnet_restore", {"scale": 4, "upsampling": "transposed"}),
    ("resnet_restore", {"scale": 8, "upsampling": "nearest", "blocks": 9, "block_scale": 0.5}),
    ("compact", {"channels": [3, 3, 3, 3], "sampling": ["strided2", "avg2", "bicubic2", "to_input", "none"]}),
]


@pytest.mark.parametrize(("network", "changes"), BOUNDED)
def test_inputs_lie_in_the_bounds_that_layers_are_told(network: str, changes: dict[str, Any]) -> None:
    factory = Watched()
    made = build(network, factory, input_size=(16, 16), output="same", **changes)
    assert factory.expected == len(factory.specs)
    made(torch.rand(2, 1, 16, 12))


@pytest.mark.parametrize("network", RESTORERS)
def test_a_fresh_network_gives_its_input_back_in_any_range(network: str) -> None:
    for span in [(0.0, 1.0), (-1.0, 1.0), (0.0, 65535.0)]:
        x = torch.rand(1, 1, 12, 12) * (span[1] - span[0]) + span[0]
        assert torch.equal(build(network, "conv", input_size=(12, 12), data_range=span)(x), x)


@pytest.mark.parametrize("residual", [True, False])
@pytest.mark.parametrize("network", RESTORERS)
def test_the_range_of_the_data_is_a_matter_of_units(network: str, residual: bool) -> None:
    x = torch.rand(1, 1, 12, 12)
    given = {"input_size": (12, 12), "residual": residual}
    expected = stirred(build(network, "conv", **given))(x)
    for low, high in [(-1.0, 1.0), (10.0, 255.0)]:
        made = stirred(build(network, "conv", data_range=(low, high), **given))
        # rounding of values up to 255 in single precision, seen through gains of about 1
        torch.testing.assert_close((made(x * (high - low) + low) - low) / (high - low), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("network", RESTORERS)
@pytest.mark.parametrize("output", ["conv", "same"])
def test_a_forced_activation_of_the_output(network: str, output: str) -> None:
    given = {"input_size": (12, 12), "residual": False, "output": output, "centre": False, "data_range": (-1.0, 1.0)}
    made = build(network, "conv", output_activation="tanh", **given)
    x = torch.randn(1, 1, 12, 12)
    plain = build(network, "conv", **given)
    torch.testing.assert_close(made(x), torch.tanh(plain(x)))
    with pytest.raises(ConfigError, match=r"network.output_activation: unknown activation 'tanhh'"):
        build(network, "conv", output_activation="tanhh", **given)


@pytest.mark.parametrize("network", RESTORERS)
def test_exported(network: str) -> None:
    made = stirred(build(network, "conv", input_size=(12, 12))).eval()
    x = torch.rand(1, 1, 9, 14)
    exported = torch.export.export(made, (x,))
    torch.testing.assert_close(exported.module()(x), made(x))


@pytest.mark.parametrize("network", RESTORERS)
@pytest.mark.parametrize(
    ("message", "changes"),
    [
        (r"data_range \(=\(1.0, 0.0\)\) must be two finite numbers", {"data_range": (1.0, 0.0)}),
        (r"network.residual adds the input \(1 channels\)", {"out_channels": 3}),
        (r"unknown network.output 'sam'", {"output": "sam"}),
        (r"network.centre \(='no'\) must be true or false", {"centre": "no"}),
        (r"unknown network.match 'param'. Did you mean params", {"match": "param"}),
        (r"network.kernels holds 0", {"kernels": 0}),
        (r"network.kernels: the kernel of layer 0 \(=15x15\) is larger", {"kernels": 15}),
        (r"the target's size \(=12x13\) is not", {"output_size": (12, 13)}),
    ],
)
def test_refused(network: str, message: str, changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=message):
        build(network, "conv", input_size=(12, 12), **changes)
