"""Quadratic neurons against their formulas, the exact first-order start, and that no product starts dead."""

from __future__ import annotations

import math
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from onn_runner.errors import ConfigError
from onn_runner.model.conv import Conv, UnboundedInputWarning
from onn_runner.model.quadratic import TYPES, Quadratic, QuadraticLayer


def plain(form: str, **options: Any) -> Quadratic:
    return Quadratic(form, **({"output_norm": "none"} | options))


def formula(layer: QuadraticLayer, definition: Any, x: Tensor) -> Tensor:
    """The table, written out."""
    spec = layer.spec

    def conv(name: str, seen: Tensor) -> Tensor:
        return definition.weighted_sum(
            definition.windows(seen, spec), layer.get_parameter(f"weight_{name}"), spec.groups
        )

    def along(name: str) -> Tensor:
        return definition.along_channels(layer.get_parameter(name), x)

    parts = {
        "t2": lambda: conv("square", x**2),
        "t3": lambda: conv("a", x) ** 2,
        "t4": lambda: conv("a", x) * conv("b", x),
        "t2_4": lambda: (conv("a", x) + along("bias_a")) * (conv("b", x) + along("bias_b")) + conv("square", x**2),
        "quadralib": lambda: conv("a", x) * conv("b", x) + conv("linear", x),
    }
    return parts[layer.form]() + along("bias")


@pytest.mark.parametrize("form", TYPES)
def test_formula(definition: Any, geometry: dict[str, Any], form: str) -> None:
    layer = plain(form)(definition.spec(**geometry)).double()
    for name, parameter in layer.named_parameters():
        if "bias" in name:
            nn.init.normal_(parameter)
    definition.assert_same(layer, lambda x: formula(layer, definition, x), definition.example(geometry["size"]))


@pytest.mark.parametrize("form", TYPES)
def test_gradcheck(definition: Any, form: str) -> None:
    layer = plain(form, activation="tanh")(definition.spec(kernel_size=(2, 3), groups=2, activation=None)).double()
    assert torch.autograd.gradcheck(layer, (definition.example((3, 4), batch=1),))
    assert torch.autograd.gradgradcheck(layer, (definition.example((2, 3), batch=1),))


@pytest.mark.parametrize("form", ["t2_4", "quadralib"])
def test_relinear_is_the_first_order_neuron_exactly(definition: Any, form: str) -> None:
    spec = definition.spec(out_channels=6, groups=2)
    layer, conv = plain(form, init="relinear")(spec), Conv()(spec)
    with torch.no_grad():
        conv.weight.copy_(layer.get_parameter("weight_a" if form == "t2_4" else "weight_linear"))
    x = torch.rand(2, 4, 7, 5) * 2 - 1
    assert torch.equal(layer(x), conv(x))


@pytest.mark.parametrize(
    ("form", "init"), [*((form, "balanced") for form in TYPES), ("t2_4", "relinear"), ("quadralib", "relinear")]
)
def test_no_weight_starts_dead(definition: Any, form: str, init: str) -> None:
    layer = plain(form, init=init)(definition.spec())
    (layer(torch.rand(2, 4, 6, 6) - 0.5) ** 2).sum().backward()
    alive = {
        name for name, parameter in layer.named_parameters() if parameter.grad is not None and parameter.grad.any()
    }
    # With B = 0 the gradient of A waits for the first step of B; a product of two zeros would wait for ever.
    waiting = {"weight_a"} if (form, init) == ("quadralib", "relinear") else set()
    assert alive | waiting == {name for name, _ in layer.named_parameters()}
    weights = [layer.get_parameter(f"weight_{name}") for name in ("a", "b") if name in layer.branches]
    assert any(bool(weight.any()) for weight in weights) or form == "t2"


@pytest.mark.parametrize("form", TYPES)
@pytest.mark.parametrize("index", [0, 1])
def test_balanced_layers_start_with_unit_variance(definition: Any, form: str, index: int) -> None:
    """For the input that is supposed: uniform before the first layer, relu of a normal variable before others."""
    shape = {"in_channels": 16, "out_channels": 128, "padding": "valid"}
    spec = definition.spec(**shape, index=index, input_bound=(-5.0, 5.0), activation=None)
    x = torch.rand(3000, 16, 3, 3) * 2 - 1 if index == 0 else torch.randn(3000, 16, 3, 3).relu()
    u = plain(form, activation="relu")(spec).respond(x).detach()[:, :, 0, 0]
    # relu's inputs have a mean, so that the spread over 128 neurons is wide.
    assert 0.5 < float(u.square().mean()) < 2.0


@pytest.mark.filterwarnings("ignore::onn_runner.model.conv.UnboundedInputWarning")
@pytest.mark.parametrize("form", TYPES)
def test_twelve_layers(definition: Any, form: str) -> None:
    """Bounded by default; with relu a batch norm on the output keeps the training pass finite, nothing overflows."""

    def largest(factory: Quadratic) -> float:
        torch.manual_seed(0)
        x = torch.rand(8, 16, 8, 8) * 2 - 1
        for index in range(12):
            x = factory(definition.spec(in_channels=16, out_channels=16, index=index, activation=None))(x).detach()
        return float(x.abs().max())

    assert 0.1 < largest(Quadratic(form)) <= 1
    assert 0.1 < largest(Quadratic(form, activation="relu", output_norm="batch")) < 60
    assert not 1e-6 < largest(plain(form, activation="identity")) < 60


def test_an_unbounded_input_is_warned_about_without_norm(definition: Any) -> None:
    with pytest.warns(UnboundedInputWarning, match="layer 2 multiplies an input without bounds"):
        Quadratic()(definition.spec(index=2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Quadratic()(definition.spec(index=2, input_bound=(-1.0, 1.0)))
        Quadratic()(definition.spec(index=0))
        Quadratic(output_norm="batch")(definition.spec(index=2))


@pytest.mark.parametrize("form", TYPES)
def test_one_pixel_changes_at_most_its_windows(definition: Any, form: str) -> None:
    layer = plain(form)(definition.spec(kernel_size=(3, 2)))
    x = torch.rand(1, 4, 9, 9)
    changed = x.clone()
    changed[0, 1, 4, 4] += 1
    difference = (layer(changed) - layer(x)).detach().abs().amax((0, 1)) > 0
    assert 0 < int(difference.sum()) <= 6


@pytest.mark.parametrize("form", ["t2", "t3", "t4", "t2_4", "quadralib"])
def test_half_precision_does_not_overflow_at_256_times_256(definition: Any, form: str) -> None:
    layer = plain(form)(definition.spec(in_channels=1, out_channels=1, kernel_size=(1,)))
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.fill_(1.0)
    with torch.autocast("cpu", dtype=torch.float16):
        y = layer(torch.full((1, 1, 3), 300.0))
    assert y.dtype == torch.float32
    assert bool(y.isfinite().all())
    assert float(y.detach().max()) > 65504


def test_branch_norms_and_output_norm(definition: Any) -> None:
    layer = Quadratic("quadralib", norm="batch")(definition.spec())
    assert set(layer.norms) == {"a", "b", "linear"}
    groups = layer.decay_groups()
    assert groups["weight_a"] == groups["weight_b"] == "quadratic"
    assert groups["weight_linear"] == "weight"
    assert groups["bias"] == "bias"
    assert {groups[name] for name in groups if "norm" in name} == {"norm"}
    x = torch.rand(4, 4, 6, 6)
    u = Quadratic("quadralib", output_norm="batch")(definition.spec())(x).detach()
    torch.testing.assert_close(u.mean((0, 2, 3)), torch.zeros(4), rtol=0, atol=1e-5)
    output = Quadratic("t4")(definition.spec(role="output"))
    assert isinstance(output.output_norm, nn.Identity)
    normed = {form for form in TYPES if not isinstance(Quadratic(form)(definition.spec()).output_norm, nn.Identity)}
    assert normed == {"t2", "t3", "t4"}
    assert Quadratic("t4")(definition.spec()).facts().reason == "2 of them, then a batch norm; recompute: keeps x only"
    assert Quadratic("t3", norm="batch")(definition.spec(kernel_size=(3,)))(torch.rand(2, 4, 5)).shape == (2, 4, 5)


def test_decay_groups_of_fans_neuron(definition: Any) -> None:
    assert plain("t2_4")(definition.spec()).decay_groups() == {
        "weight_a": "weight",
        "weight_b": "quadratic",
        "weight_square": "quadratic",
        "bias": "bias",
        "bias_a": "bias",
        "bias_b": "bias",
    }


@pytest.mark.parametrize("form", TYPES)
def test_nonlinearity_index_by_regression(definition: Any, form: str) -> None:
    spec = definition.spec(in_channels=2, out_channels=8, kernel_size=(2, 2), padding="valid")
    layer = plain(form)(spec).double()
    if form == "t2_4":
        nn.init.normal_(layer.bias_a)
    x = torch.rand(40_000, 2, 2, 2, dtype=torch.float64) * 2 - 1
    u = layer(x).detach().flatten(1)
    u = u - u.mean(0)
    rows = x.flatten(1)
    left = u - rows @ torch.linalg.lstsq(rows, u).solution
    # 40,000 samples of 8 neurons: about 2 % of spread.
    assert math.isclose(layer.nonlinearity(), float(left.square().sum() / u.square().sum()), rel_tol=0.04)


def test_cost(definition: Any) -> None:
    layer = Quadratic("quadralib")(definition.spec(in_channels=4, out_channels=6, kernel_size=(3, 2), groups=2))
    assert layer.macs(10) == 3 * 10 * 6 * 2 * 6
    assert layer.facts().kind == "quadratic quadralib"
    assert 0.2 < layer.facts().nonlinearity < 0.8


def test_refused() -> None:
    with pytest.raises(ConfigError, match=r"unknown model.type 't5'.*Options: quadralib, t2, t2_4, t3, t4."):
        Quadratic("t5")
    for name in ("norm", "output_norm"):
        with pytest.raises(ConfigError, match=rf"unknown model.{name} 'bach'. Did you mean batch"):
            Quadratic(**{name: "bach"})
    with pytest.raises(ConfigError, match=r"unknown model.init 'balance'. Did you mean balanced"):
        Quadratic(init="balance")
    with pytest.raises(ConfigError, match=r"which type=t4 cannot be; use type=t2_4 or quadralib"):
        Quadratic("t4", init="relinear")
    with pytest.raises(ConfigError, match=r"relinear starts one factor at 0, which model.norm=batch cannot scale"):
        Quadratic("t2_4", init="relinear", norm="batch")
