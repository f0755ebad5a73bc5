"""Generative neurons against their definition, the two exact special cases, and what a fresh layer gives."""

from __future__ import annotations

import math
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from onn_runner.errors import ConfigError
from onn_runner.model.conv import Conv, UnboundedInputWarning
from onn_runner.model.self_onn import SelfONN, SelfONNLayer


def definition_of(layer: SelfONNLayer, definition: Any, x: Tensor) -> Tensor:
    spec, inputs = layer.spec, layer.spec.in_channels // layer.spec.groups
    total = definition.along_channels(layer.bias, x)
    for power in range(1, layer.q + 1):
        weight = layer.weight[:, (power - 1) * inputs : power * inputs]
        total = total + definition.weighted_sum(definition.windows(x**power, spec), weight, spec.groups)
    return total


@pytest.mark.parametrize("q", [1, 2, 3, 5])
def test_definition(definition: Any, geometry: dict[str, Any], q: int) -> None:
    layer = SelfONN(q)(definition.spec(**geometry)).double()
    nn.init.normal_(layer.bias)
    definition.assert_same(layer, lambda x: definition_of(layer, definition, x), definition.example(geometry["size"]))


def test_gradients_to_second_order(definition: Any) -> None:
    layer = SelfONN(3)(definition.spec(kernel_size=(2, 3), stride=(1, 2), groups=2)).double()
    x = definition.example((3, 4), batch=1)

    def call(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        parameters = {"weight": weight, "bias": bias}
        return torch.func.functional_call(layer, parameters, (x,))

    inputs = (x, layer.weight.detach().requires_grad_(), layer.bias.detach().requires_grad_())
    assert torch.autograd.gradcheck(call, inputs)
    assert torch.autograd.gradgradcheck(call, inputs)


def test_frozen_parts_get_no_gradient(definition: Any) -> None:
    layer = SelfONN(3)(definition.spec())
    layer.weight.requires_grad_(False)
    layer(torch.rand(1, 4, 5, 5)).sum().backward()
    assert layer.weight.grad is None
    assert layer.bias.grad is not None


def test_only_the_input_is_kept_for_backward(definition: Any) -> None:
    layer = SelfONN(5)(definition.spec(padding="valid"))
    x = torch.rand(1, 4, 9, 9, requires_grad=True)
    kept: list[Tensor] = []

    def keep(tensor: Tensor) -> Tensor:
        kept.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        layer(x)
    assert {tensor.data_ptr() for tensor in kept} == {x.data_ptr(), layer.weight.data_ptr()}


def test_first_order_is_the_convolution_exactly(definition: Any, geometry: dict[str, Any]) -> None:
    spec = definition.spec(**geometry)
    conv, layer = Conv("tanh")(spec), SelfONN(1)(spec)
    layer.load_state_dict(conv.state_dict())
    x = torch.rand(2, 4, *geometry["size"])
    assert torch.equal(layer(x), conv(x))


@pytest.mark.parametrize("groups", [1, 2])
def test_a_pretrained_convolution_loads_with_unchanged_output(definition: Any, groups: int) -> None:
    spec = definition.spec(groups=groups, out_channels=6)
    conv, layer = Conv("tanh")(spec).double(), SelfONN(3)(spec).double()
    nn.init.normal_(conv.bias)
    layer.load_first_order(conv.weight, conv.bias)
    x = definition.example((7, 5))
    torch.testing.assert_close(layer(x), conv(x), rtol=1e-12, atol=1e-13)
    layer.load_first_order(conv.weight)
    assert not layer.bias.any()
    with pytest.raises(ConfigError, match=r"weight has shape \(6, 12, 3, 3\); this layer takes"):
        layer.load_first_order(torch.zeros(6, 12, 3, 3))


@pytest.mark.parametrize("q", [1, 2, 3, 5])
def test_calibrated_layers_start_with_unit_variance(definition: Any, q: int) -> None:
    """Over 64 neurons with 16 x 9 independent inputs: within 15 %, the spread of a mean over 64 random neurons."""
    spec = definition.spec(in_channels=16, out_channels=64, padding="valid")
    u = SelfONN(q, init="calibrated")(spec)(torch.rand(2000, 16, 3, 3) * 2 - 1).detach()[:, :, 0, 0]
    assert math.isclose(float(u.var(0).mean()), 1.0, rel_tol=0.15)
    assert float(u.mean(0).abs().max()) < 0.15


def test_fastonn_bound_is_xaviers(definition: Any) -> None:
    layer = SelfONN(3, init="fastonn")(definition.spec(in_channels=8, out_channels=32))
    bound = 5 / 3 * math.sqrt(6 / ((3 * 8 + 32) * 9))
    assert math.isclose(float(layer.weight.detach().abs().max()), bound, rel_tol=0.01)
    assert float(layer.weight.detach().abs().max()) <= bound
    assert not layer.bias.any()


def test_an_unbounded_input_is_warned_about_once_it_has_powers(definition: Any) -> None:
    with pytest.warns(UnboundedInputWarning, match="take powers up to 3 of inputs without bounds"):
        SelfONN(3)(definition.spec(index=2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        SelfONN(3)(definition.spec(index=2, input_bound=(-1.0, 1.0)))
        SelfONN(3)(definition.spec(index=0))
        SelfONN(1)(definition.spec(index=2))


def test_nonlinearity_index_by_regression(definition: Any) -> None:
    layer = SelfONN(3)(definition.spec(in_channels=2, out_channels=8, kernel_size=(2, 2), padding="valid")).double()
    assert SelfONN(1)(definition.spec()).facts().nonlinearity == 0
    x = torch.rand(40_000, 2, 2, 2, dtype=torch.float64) * 2 - 1
    u = layer(x).detach().flatten(1)
    u = u - u.mean(0)
    rows = x.flatten(1)
    left = u - rows @ torch.linalg.lstsq(rows, u).solution
    # 40,000 samples of about 8 neurons: 2 % of spread.
    assert math.isclose(layer.nonlinearity(), float(left.square().sum() / u.square().sum()), rel_tol=0.03)
    layer.load_first_order(layer.weight[:, :2])
    assert layer.nonlinearity() < 1e-12


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast(definition: Any, dtype: torch.dtype) -> None:
    layer = SelfONN(3)(definition.spec())
    x = torch.rand(2, 4, 7, 7, requires_grad=True)
    exact = layer(x)
    wanted = torch.autograd.grad(exact.sum(), [x, layer.weight, layer.bias])
    with torch.autocast("cpu", dtype=dtype):
        y = layer(x)
    assert y.dtype == dtype
    got = torch.autograd.grad(y.sum(), [x, layer.weight, layer.bias])
    # bfloat16 has 8 bits: 2^-8 per factor, relative to the largest of 36 x 3 terms.
    torch.testing.assert_close(y.float(), exact, rtol=0.02, atol=0.03)
    for mine, right in zip(got, wanted, strict=True):
        assert mine.dtype == torch.float32
        torch.testing.assert_close(mine, right, rtol=0.03, atol=0.03 * float(right.abs().max()))


def test_refused() -> None:
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'q'"):
        SelfONN()  # type: ignore[call-arg]
    for q in (0, -1, 1.5, True):
        with pytest.raises(ConfigError, match=rf"model.q \(={q}\) must be a positive whole number"):
            SelfONN(q)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"unknown model.init 'fastnn'. Did you mean fastonn"):
        SelfONN(3, init="fastnn")
    with pytest.raises(ConfigError, match="unknown activation"):
        SelfONN(3, activation="than")


def test_cost(definition: Any) -> None:
    layer = SelfONN(3)(definition.spec(in_channels=4, out_channels=6, kernel_size=(3, 2), groups=2))
    assert layer.macs(10) == 3 * 10 * 6 * 2 * 6
    assert layer.decay_groups() == {"weight": "weight", "bias": "bias"}
    assert layer.facts().kind == "self_onn q=3"
