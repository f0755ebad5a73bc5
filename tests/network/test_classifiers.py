"""Every network that classifies, of every neuron type: any size, gradients everywhere, names, counts, refusals."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from small_networks import CLASSIFIERS, MODELS, RESTORERS, build
from test_networks import Watched
from torch import nn

from onn_runner.errors import ConfigError
from onn_runner.model.base import Layer, LayerSpec
from onn_runner.model.conv import Conv, ConvLayer
from onn_runner.network.summary import layers_of, summarise

EVERY = [(network, model) for network in CLASSIFIERS for model in MODELS]
SMALL = {"in_channels": 2, "out_channels": 4, "input_size": (24, 20)}


@pytest.mark.parametrize(("network", "model"), EVERY)
def test_odd_sizes_and_a_gradient_everywhere(network: str, model: str) -> None:
    made = build(network, model, **SMALL)
    made(torch.rand(3, 2, 37, 21)).square().sum().backward()
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in made.parameters())
    assert any(bool(p.grad.any()) for p in made.stem.parameters()) if hasattr(made, "stem") else True
    for size in [(1, 5), (9, 14)]:
        y = made(torch.rand(2, 2, *size))
        assert y.shape == (2, 4)
        assert bool(y.isfinite().all())


@pytest.mark.parametrize(("network", "model"), EVERY)
def test_the_model_s_neurons_in_the_output_without_norms_on_signals(network: str, model: str) -> None:
    changes = SMALL | {"input_size": (50,), "output": "same", "norm": "none"}
    made = build(network, model, **changes)
    assert made(torch.rand(1, 2, 101)).shape == (1, 4)
    assert made.output.layer.spec.role == "output"
    assert type(made.output.layer) is type(layers_of(made)[0][1])


@pytest.mark.parametrize("network", CLASSIFIERS)
def test_volumes(network: str) -> None:
    made = build(network, Conv(), **SMALL | {"input_size": (12, 12, 12)})
    assert made(torch.rand(2, 2, 7, 9, 8)).shape == (2, 4)


@pytest.mark.parametrize(("network", "model"), EVERY)
def test_same_seed_same_weights_and_a_round_trip(network: str, model: str) -> None:
    one, two = (build(network, model, **SMALL) for _ in range(2))
    x = torch.rand(2, 2, 11, 13)
    assert torch.equal(one(x), two(x))
    with torch.no_grad():
        for parameter in two.parameters():
            parameter.add_(1.0)
    two.load_state_dict(one.state_dict())
    one.eval(), two.eval()
    assert torch.equal(one(x), two(x))


@pytest.mark.parametrize(("network", "model"), EVERY)
def test_every_layer_is_asked_for_and_counted(network: str, model: str) -> None:
    made = build(network, model, **SMALL)
    summary = summarise(made, (2, 24, 20))
    layers = dict(layers_of(made))
    assert sorted(row.name for row in summary.rows) == sorted(layers)
    assert summary.rows[-1].name == "output.layer"
    assert sorted(layer.spec.index for layer in layers.values()) == list(range(len(layers)))
    assert summary.parameters == sum(row.parameters for row in summary.rows)
    assert all(row.macs > 0 for row in summary.rows)
    assert summary.rows[-1].output_shape == (4, 1)


@pytest.mark.parametrize("network", CLASSIFIERS)
def test_the_numbers_of_the_neurons_layers_are_consecutive(network: str) -> None:
    """`model.layers` counts by them; plain shortcuts and a plain output come behind."""
    changes = SMALL | ({"shortcut": "projection"} if network == "resnet" else {})
    factory = Told()
    made = build(network, factory, **changes)
    assert [spec.index for spec in factory.specs] == list(range(factory.expected))
    numbers = [layer.spec.index for name, layer in layers_of(made) if "shortcut" not in name]
    assert numbers[: factory.expected] == list(range(factory.expected))
    factory = Told()
    build(network, factory, **changes, output="same")
    assert [spec.index for spec in factory.specs] == list(range(factory.expected))


class Told:
    """Convolutions that are announced."""

    activation = "relu"
    expected = -1

    def __init__(self) -> None:
        self.specs: list[LayerSpec] = []

    def expect(self, count: int) -> None:
        self.expected = count

    def __call__(self, spec: LayerSpec) -> ConvLayer:
        self.specs.append(spec)
        return Conv("relu")(spec)


@pytest.mark.parametrize("changes", [{}, {"norm": "none"}], ids=["norm", "none"])
@pytest.mark.parametrize("network", CLASSIFIERS)
def test_inputs_lie_in_the_bounds_that_layers_are_told(network: str, changes: dict[str, Any]) -> None:
    class Bounded(Watched):
        activation = "tanh"

    factory = Bounded()
    made = build(network, factory, **SMALL, output="same", **changes)
    assert factory.expected == len(factory.specs)
    made(torch.rand(2, 2, 16, 12))


@pytest.mark.parametrize("network", CLASSIFIERS)
def test_a_norm_takes_the_place_of_the_bias(network: str) -> None:
    for norm in ("batch", "none"):
        hidden = [layer for _, layer in layers_of(build(network, "conv", **SMALL, norm=norm))][:-1]
        assert {layer.spec.norm for layer in hidden} == {"batch" if norm == "batch" else None}
        assert {layer.spec.bias for layer in hidden} == {norm == "none"}
    assert isinstance(layers_of(build(network, "conv", **SMALL))[-1][1].norm, nn.Identity)


@pytest.mark.parametrize("network", CLASSIFIERS)
def test_the_range_of_the_data_is_a_matter_of_units(network: str) -> None:
    x = torch.rand(2, 2, 12, 12)
    expected = build(network, "conv", **SMALL)(x)
    for low, high in [(-1.0, 1.0), (10.0, 255.0)]:
        made = build(network, "conv", **SMALL, data_range=(low, high))
        # rounding of values up to 255 in single precision, seen through a dozen norms
        torch.testing.assert_close(made(x * (high - low) + low), expected, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("network", CLASSIFIERS)
def test_dropout_is_of_training(network: str) -> None:
    made, without = (build(network, "conv", **SMALL, dropout=share) for share in (0.5, 0.0))
    x = torch.rand(4, 2, 12, 12)
    assert not torch.equal(made(x), without(x))
    made.load_state_dict(without.state_dict())
    assert torch.equal(made.eval()(x), without.eval()(x))


@pytest.mark.parametrize("network", CLASSIFIERS)
def test_exported(network: str) -> None:
    made = build(network, "conv", **SMALL).eval()
    x = torch.rand(2, 2, 9, 14)
    exported = torch.export.export(made, (x,))
    torch.testing.assert_close(exported.module()(x), made(x))


@pytest.mark.parametrize("network", CLASSIFIERS)
def test_widths_by_a_factor_and_from_the_first(network: str) -> None:
    half = build(network, "conv", **SMALL | {"channels": 16}, width=0.5)
    eight = build(network, "conv", **SMALL | {"channels": 8})
    assert [p.shape for p in half.parameters()] == [p.shape for p in eight.parameters()]
    assert layers_of(eight)[0][1].spec.out_channels == 8


def neurons(network: nn.Module) -> list[Layer]:
    return [layer for _, layer in layers_of(network)]


@pytest.mark.parametrize("network", CLASSIFIERS)
def test_units_are_modules_and_all_removable_ones_can_go(network: str) -> None:
    full = build(network, "conv", **SMALL)
    units = full.units()
    modules, layers = dict(full.named_modules()), dict(layers_of(full))
    for unit in units:
        assert unit.name in modules
        assert all(name == unit.name or name.startswith(f"{unit.name}.") for name in unit.layers)
        assert set(unit.layers) <= set(layers)
    removable = [unit.name for unit in units if unit.removable]
    assert removable
    for name in removable:
        made = build(network, "conv", **SMALL, removed=[name])
        assert [unit.name for unit in made.units()] == [unit.name for unit in units if unit.name != name]
        assert set(made.state_dict()) == {key for key in full.state_dict() if not key.startswith(f"{name}.")}
        assert made(torch.rand(2, 2, 13, 9)).shape == (2, 4)
    most = build(network, "conv", **SMALL, removed=removable[:-1])
    assert len(neurons(most)) < len(neurons(full))
    assert [unit.name for unit in most.units() if unit.removable] == (removable[-1:] if network != "vgg" else [])
    for unit in units:
        if not unit.removable:
            with pytest.raises(
                ConfigError, match=rf"removed holds {unit.name}: .*; what can be left out: {removable[0]}"
            ):
                build(network, "conv", **SMALL, removed=[unit.name])


@pytest.mark.parametrize("network", CLASSIFIERS)
@pytest.mark.parametrize(
    ("message", "changes"),
    [
        (
            r"data's targets are pictures \(12x12\), and this network gives one number per class",
            {"output_size": (12, 12)},
        ),
        (r"data_range \(=\(1.0, 0.0\)\) must be two finite numbers", {"data_range": (1.0, 0.0)}),
        (r"unknown network.output 'sam'", {"output": "sam"}),
        (r"unknown network.norm 'bach'. Did you mean batch", {"norm": "bach"}),
        (r"network.norm \(=None\) must be one of batch, none", {"norm": None}),
        (r"network.centre \(='no'\) must be true or false", {"centre": "no"}),
        (r"unknown network.match 'param'. Did you mean params", {"match": "param"}),
        (r"network.kernels holds 0", {"kernels": 0}),
        (r"network.dropout \(=1\) must be a number from 0 to less than 1", {"dropout": 1}),
        (r"network.width \(=0\) must be a positive number", {"width": 0}),
        (r"network.channels has 21 entries, .*; write one number per stage", {"channels": [3] * 21}),
        (r"network.channels \(=\[3, 0\]\) holds 0", {"channels": [3, 0]}),
        (r"network.removed \(=layer1\) must be a list of names", {"removed": "layer1"}),
        (
            r"removed holds blok, which is no layer or block here; .* left out: (block[123]|layer1), ",
            {"removed": ["blok"]},
        ),
    ],
)
def test_refused(network: str, message: str, changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=message):
        build(network, "conv", **SMALL | changes)


@pytest.mark.parametrize("network", RESTORERS)
def test_networks_that_restore_refuse_classes(network: str) -> None:
    with pytest.raises(ConfigError, match=r"targets are classes, and this network gives pictures; use network=resnet"):
        build(network, "conv", **SMALL, output_size=())


@pytest.mark.parametrize("network", CLASSIFIERS)
def test_another_number_of_axes_is_refused(network: str) -> None:
    with pytest.raises(ConfigError, match="built for 2 spatial axes, the input has 1"):
        build(network, "conv", **SMALL)(torch.rand(2, 2, 9))
