"""Operational layers that start as a convolution, or near one: how near, what is refused, and what is kept."""

from __future__ import annotations

import io
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from onn_runner.model.base import LayerSpec, Unrepresentable
from onn_runner.model.conv import Conv, ConvLayer
from onn_runner.model.operational import Operational, OperationalLayer
from onn_runner.model.vectors import VectorLayer, vector_spec
from onn_runner.ops.base import FunctionNodal
from onn_runner.ops.nodal import Chirp, Cubic, DoG, Exponential, Gaussian, Log, Multiply, Quadratic, Sinc, Sine, Sinh


def half(w: Tensor, x: Tensor) -> Tensor:
    return 0.5 * w * x


def pair(spec: LayerSpec, operators: dict[str, Any], **changes: Any) -> tuple[ConvLayer, OperationalLayer]:
    torch.manual_seed(0)
    conv, layer = Conv()(spec), Operational(operators, **changes)(spec)
    if conv.bias is not None:
        nn.init.normal_(conv.bias)
    return conv, layer


def load(layer: OperationalLayer, conv: ConvLayer, **options: Any) -> None:
    layer.load_first_order(conv.weight, conv.bias, **options)


@pytest.mark.parametrize("operators", [{"mul": Multiply()}, {"mul": Multiply(), "half": FunctionNodal(function=half)}])
@pytest.mark.parametrize("pool", ["sum", "mean"])
def test_products_are_the_convolution_to_the_last_bit(
    definition: Any, geometry: dict[str, Any], operators: dict[str, Any], pool: str
) -> None:
    conv, layer = pair(definition.spec(**geometry), operators, pool=pool)
    load(layer, conv)
    x = definition.example(geometry["size"]).float()
    assert torch.equal(layer(x), conv(x))
    assert layer.facts().computed_by == "convolution"
    assert layer.facts().nonlinearity == 0.0
    definition_of_it = Operational(operators, pool=pool, compute="reference")(layer.spec)
    definition_of_it.load_state_dict(layer.state_dict())
    # sums of up to 36 products in another order
    torch.testing.assert_close(definition_of_it(x), conv(x), rtol=1e-5, atol=1e-5)


def test_it_stays_a_convolution_in_a_checkpoint(definition: Any) -> None:
    conv, layer = pair(definition.spec(), {"mul": Multiply()})
    load(layer, conv)
    file = io.BytesIO()
    torch.save(layer.state_dict(), file)
    file.seek(0)
    other = Operational({"mul": Multiply()})(definition.spec())
    other.load_state_dict(torch.load(file, weights_only=True))
    x = definition.example((5, 6)).float()
    assert torch.equal(other(x), conv(x))
    layer(x).square().sum().backward()
    conv(x).square().sum().backward()
    assert torch.equal(layer.weight.grad, conv.weight.grad)


NEAR = {"sine": Sine(k=100.0), "exp": Exponential(), "sinh": Sinh(k=0.1), "dog": DoG(), "mul": Multiply()}


@pytest.mark.parametrize("reach", [1.0, 8.0])
@pytest.mark.parametrize("name", NEAR)
def test_near_is_within_one_percent_of_the_largest_products(definition: Any, name: str, reach: float) -> None:
    spec = definition.spec(out_channels=5, padding="valid")
    conv, layer = pair(spec, {name: NEAR[name]}, compute="reference")
    load(layer, conv, near=True, reach=reach)
    x = reach * (2 * torch.rand(20, 4, 3, 3) - 1)
    error = (layer(x) - conv(x)).abs().amax((0, 2, 3))
    largest = reach * conv.weight.abs().flatten(1).amax(1) * conv.weight[0].numel()
    assert bool((error <= 0.01 * largest).all())
    assert layer.facts().nonlinearity < 0.01
    layer(x).sum().backward()
    assert bool((layer.weight.grad != 0).all())


def test_what_is_not_zero_at_zero_is_taken_away(definition: Any) -> None:
    def shifted(w: Tensor, x: Tensor) -> Tensor:
        return torch.sin(w * x) + w.square()

    operators = {"shifted": FunctionNodal(function=shifted)}
    spec = definition.spec(padding="valid")
    conv, layer = pair(spec, operators, compute="reference")
    load(layer, conv, near=True)
    x = 2 * torch.rand(20, 4, 3, 3) - 1
    assert float((layer(x) - conv(x)).detach().abs().max()) < 0.01 * float(conv.weight.detach().abs().max()) * 36
    for changes in ({"bias": False}, {"transposed": True}):
        conv, layer = pair(definition.spec(**changes), operators)
        with pytest.raises(Unrepresentable, match="are not 0 at x = 0"):
            load(layer, conv, near=True)


@pytest.mark.parametrize("nodal", [Cubic(), Quadratic(), Sinc(), Chirp(), Gaussian()])
def test_operators_without_a_linear_part(definition: Any, nodal: Any) -> None:
    conv, layer = pair(definition.spec(), {"mul": Multiply(), "other": nodal})
    before = {name: value.clone() for name, value in layer.named_parameters()}
    with pytest.raises(Unrepresentable, match="the operator other is no product w x"):
        load(layer, conv)
    with pytest.raises(Unrepresentable, match="the operator other has no part of first order"):
        load(layer, conv, near=True)
    assert all(torch.equal(before[name], value) for name, value in layer.named_parameters())


def test_refusals_say_why(definition: Any) -> None:
    conv, layer = pair(definition.spec(), {"log": Log()})
    with pytest.raises(Unrepresentable, match=r"the operator log departs from a product w x by \d+ %"):
        load(layer, conv, near=True)
    conv, layer = pair(definition.spec(), {"mul": Multiply()}, pool="median")
    with pytest.raises(Unrepresentable, match=r"model\.pool=median is no sum"):
        load(layer, conv)
    conv, layer = pair(definition.spec(), {"mul": Multiply()}, initialisation="fastonn")
    with pytest.raises(Unrepresentable, match="initialisation=fastonn rescales"):
        load(layer, conv)
    conv, layer = pair(definition.spec(), {"sine": Sine()}, initialisation="gop")
    with pytest.raises(Unrepresentable, match="without calibration a layer has no gain"):
        load(layer, conv, near=True)
    with pytest.raises(Unrepresentable, match=r"weight has shape \(3, 3\)"):
        layer.load_first_order(torch.zeros(3, 3))


def test_dead_neurons_and_channels_without_weights(definition: Any) -> None:
    conv, layer = pair(definition.spec(), {"sine": Sine()})
    with torch.no_grad():
        conv.weight[0] = 0.0
    load(layer, conv, near=True)
    x = definition.example((4, 4)).float()
    assert bool(layer(x).isfinite().all())
    torch.testing.assert_close(layer(x)[:, 0], conv(x)[:, 0])


def test_vectors_are_computed_as_by_torch_s_linear() -> None:
    linear = nn.Linear(37, 12)
    vectors = VectorLayer(Conv(), vector_spec(37, 12, activation="identity"))
    vectors.layer.load_first_order(linear.weight[..., None], linear.bias)
    for shape in [(3, 37), (3, 5, 37), (2, 4, 5, 37)]:
        x = torch.randn(shape)
        assert torch.equal(vectors(x), linear(x))
