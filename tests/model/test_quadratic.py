"""Quadratic neurons against their formulas, the exact first-order start, and that no product starts dead."""

from __future__ import annotations

import copy
import dataclasses
import math
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from onn_runner.errors import ConfigError
from onn_runner.model.base import Unrepresentable
from onn_runner.model.conv import Conv, UnboundedInputWarning
from onn_runner.model.quadratic import TYPES, Quadratic, QuadraticLayer
from onn_runner.model.vectors import VectorLayer, vector_spec

VARIANTS: dict[str, dict[str, Any]] = {
    **{form: {"type": form} for form in TYPES},
    "t1_low_rank learned": {"type": "t1_low_rank", "rank": 3, "signs": "learned"},
    "t4 biased": {"type": "t4", "factor_biases": True},
}
"""Every type, and what its options make of it."""

FIRST_ORDER = [name for name in VARIANTS if name not in ("t2", "t3", "t4", "t1_2")]
EXACT = "t1_low_rank", "t1", "t2_4", "quadralib", "compact", "t4 biased", "t1_low_rank learned"
"""Those whose bias is added by the convolution itself."""


def plain(form: str, **options: Any) -> Quadratic:
    return Quadratic(**({"output_norm": "none"} | VARIANTS[form] | options))


def formula(layer: QuadraticLayer, definition: Any, x: Tensor) -> Tensor:
    """The table, written out."""
    spec = layer.spec

    def conv(name: str, seen: Tensor) -> Tensor:
        return definition.weighted_sum(
            definition.windows(seen, spec), layer.get_parameter(f"weight_{name}"), spec.groups
        )

    def along(name: str) -> Tensor:
        return definition.along_channels(layer.get_parameter(name), x)

    def low_rank() -> Tensor:
        rank = sum(name.startswith("weight_a") for name, _ in layer.named_parameters())
        learned = "sign_a1" in dict(layer.named_parameters())
        total = conv("linear", x)
        for j in range(1, rank + 1):
            total = total + (along(f"sign_a{j}") if learned else (1, -1)[(j - 1) % 2]) * conv(f"a{j}", x) ** 2
        return total

    parts = {
        "t1": lambda: matrix_term(layer, definition, x) + conv("linear", x),
        "t1_low_rank": low_rank,
        "t2": lambda: conv("square", x**2),
        "t3": lambda: conv("a", x) ** 2,
        "t4": lambda: conv("a", x) * conv("b", x),
        "t1_2": lambda: matrix_term(layer, definition, x) + conv("square", x**2),
        "t2_4": lambda: (conv("a", x) + along("bias_a")) * (conv("b", x) + along("bias_b")) + conv("square", x**2),
        "quadralib": lambda: conv("a", x) * conv("b", x) + conv("linear", x),
        "compact": lambda: conv("linear", x) + conv("square", x**2),
        "qres": lambda: conv("a", x) * conv("b", x) + conv("a", x),
    }
    if layer.formula.factor_biases and layer.form == "t4":
        return (conv("a", x) + along("bias_a")) * (conv("b", x) + along("bias_b")) + along("bias")
    return parts[layer.form]() + along("bias")


def matrix_term(layer: QuadraticLayer, definition: Any, x: Tensor) -> Tensor:
    """sum_{i<=j} W_ij x_i x_j over the numbers of a patch, channel by channel and tap by tap."""
    spec, triangle = layer.spec, layer.get_parameter("weight_matrix")
    seen = definition.windows(x, spec)
    patches = seen.flatten(3).unflatten(1, (spec.groups, -1)).flatten(2, 3)  # [B, G, K, L]
    count = patches.shape[2]
    i, j = zip(*((i, j) for i in range(count) for j in range(i, count)), strict=True)
    products = patches[:, :, list(i)] * patches[:, :, list(j)]
    y = torch.einsum("gop,bgpl->bgol", triangle.unflatten(0, (spec.groups, -1)), products)
    return y.flatten(1, 2).unflatten(2, seen.shape[3:])


def normal_biases(layer: QuadraticLayer) -> QuadraticLayer:
    for name, parameter in layer.named_parameters():
        if "bias" in name:
            nn.init.normal_(parameter)
    return layer


@pytest.mark.parametrize("form", VARIANTS)
def test_formula(definition: Any, geometry: dict[str, Any], form: str) -> None:
    layer = normal_biases(plain(form)(definition.spec(**geometry)).double())
    definition.assert_same(layer, lambda x: formula(layer, definition, x), definition.example(geometry["size"]))


@pytest.mark.parametrize("memory", ["keep", "recompute"])
@pytest.mark.parametrize("form", VARIANTS)
def test_gradcheck(definition: Any, form: str, memory: str) -> None:
    spec = definition.spec(out_channels=2, kernel_size=(2, 3), groups=2, activation=None)
    layer = plain(form, activation="tanh", memory=memory)(spec).double()
    assert torch.autograd.gradcheck(layer, (definition.example((3, 4), batch=1),))
    assert torch.autograd.gradgradcheck(layer, (definition.example((2, 3), batch=1),))


@pytest.mark.parametrize("form", VARIANTS)
def test_parameters(definition: Any, form: str) -> None:
    """The table: numbers per filter of K = C/G k^d, and one bias where the layer has one."""
    k, o = 2 * 6, 6
    spec = definition.spec(in_channels=4, out_channels=o, kernel_size=(3, 2), groups=2)
    triangle = k * (k + 1) // 2
    wanted = {
        "t1": triangle + k,
        "t1_low_rank": (2 + 1) * k,
        "t1_low_rank learned": (3 + 1) * k + 3,
        "t2": k,
        "t3": k,
        "t4": 2 * k,
        "t4 biased": 2 * k + 2,
        "t1_2": triangle + k,
        "t2_4": 3 * k + 2,
        "quadralib": 3 * k,
        "compact": 2 * k,
        "qres": 2 * k,
    }
    for bias in (False, True):
        layer = plain(form)(dataclasses.replace(spec, bias=bias))
        assert sum(p.numel() for p in layer.parameters()) == o * (wanted[form] + bias)
        assert (layer.bias is not None) == bias
    weights = wanted[form] - {"t1_low_rank learned": 3, "t4 biased": 2, "t2_4": 2}.get(form, 0)
    assert layer.macs(10) == 10 * o * weights


@pytest.mark.parametrize("form", VARIANTS)
def test_without_a_bias_and_before_a_norm(definition: Any, form: str) -> None:
    """The same formula with a bias of 0; the norm is applied to it, then the activation."""
    spec = definition.spec(bias=False, norm="batch", activation="tanh", index=3)
    for options in ({}, {"norm": "batch"}, {"output_norm": "auto"}):
        layer = plain(form, **options)(spec)
        assert layer.bias is None
        assert isinstance(layer.output_norm, nn.Identity)
        assert isinstance(layer.norm, nn.BatchNorm2d)
        layer(torch.rand(3, 4, 5, 6)).square().sum().backward()
        assert all(parameter.grad is not None for parameter in layer.parameters())
    layer = plain(form)(spec).double()
    x = definition.example((5, 6), batch=3)
    other = plain(form)(dataclasses.replace(spec, bias=True)).double()
    other.load_state_dict(layer.state_dict() | {"bias": torch.zeros(4)})
    torch.testing.assert_close(layer(x), torch.tanh(layer.norm(formula(other, definition, x))))


@pytest.mark.parametrize("form", VARIANTS)
def test_on_vectors(form: str) -> None:
    layer = VectorLayer(plain(form), vector_spec(5, 3, activation="identity")).double()
    x = torch.rand(2, 4, 5, dtype=torch.float64)
    assert layer(x).shape == (2, 4, 3)
    alone = torch.stack([layer(part) for part in x.unbind(1)], dim=1)
    torch.testing.assert_close(layer(x), alone)


def waiting(form: str) -> set[str]:
    """Of a first-order start: whose gradient waits for the first step of another."""
    return {"quadralib": {"weight_a"}, "t1_low_rank learned": {"weight_a3"}}.get(form, set())


@pytest.mark.parametrize("form", FIRST_ORDER)
def test_relinear_is_the_first_order_neuron_exactly(definition: Any, form: str) -> None:
    spec = definition.spec(out_channels=6, groups=2)
    layer, conv = plain(form, init="relinear")(spec), Conv()(spec)
    assert layer.formula.first_order is not None
    conv.load_first_order(layer.weight_of(layer.formula.first_order))
    x = torch.rand(2, 4, 7, 5) * 2 - 1
    assert torch.equal(layer(x), conv(x))
    _steps_wake_everything(layer, form)


def _steps_wake_everything(layer: QuadraticLayer, form: str) -> None:
    before = {name: parameter.detach().clone() for name, parameter in layer.named_parameters()}
    optimizer = torch.optim.SGD(layer.parameters(), lr=1e-2)
    for asleep in (waiting(form), set()):
        optimizer.zero_grad()
        (layer(torch.rand(2, 4, 6, 6) - 0.5) - 0.3).square().sum().backward()
        still = {name for name, p in layer.named_parameters() if p.grad is None or not p.grad.any()}
        assert still == asleep
        optimizer.step()
    assert all(not torch.equal(before[name], parameter) for name, parameter in layer.named_parameters())


@pytest.mark.parametrize("memory", ["keep", "recompute"])
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("form", FIRST_ORDER)
def test_starts_from_a_convolution(definition: Any, form: str, bias: bool, memory: str) -> None:
    """Trained weights and another start before them change nothing."""
    spec = definition.spec(in_channels=8, out_channels=16, groups=2, bias=bias, norm="batch", activation="tanh")
    conv, layer = Conv()(spec), plain(form, memory=memory)(spec)
    for parameter in (*conv.parameters(), *layer.parameters()):
        nn.init.normal_(parameter)
    layer.load_first_order(conv.weight, conv.bias)
    layer.norm.load_state_dict(conv.norm.state_dict())
    x = torch.rand(2, 8, 9, 11) * 2 - 1
    if form in EXACT:
        assert torch.equal(layer(x), conv(x))
    else:
        # the bias is added after the convolution: one rounding of single precision more
        torch.testing.assert_close(layer(x), conv(x), rtol=1e-5, atol=1e-5)
    if bias:
        layer.norm = nn.Identity()
        small = plain(form)(definition.spec())
        small.load_first_order(torch.randn(4, 4, 3, 3), torch.randn(4))
        _steps_wake_everything(small, form)


def test_transposed_and_vectors_start_from_a_convolution(definition: Any) -> None:
    spec = definition.spec(kernel_size=(2, 3), stride=(2, 1), transposed=True)
    conv, x = Conv()(spec), torch.rand(2, 4, 5, 6)
    for form in set(FIRST_ORDER) - {"t1"}:
        layer = plain(form)(spec)
        layer.load_first_order(conv.weight, conv.bias)
        assert torch.equal(layer(x), conv(x))


def test_starts_that_cannot_be(definition: Any) -> None:
    spec = definition.spec(index=2, input_bound=(-1.0, 1.0))
    weight, bias = torch.randn(4, 4, 3, 3), torch.randn(4)
    for form in ("t2", "t3", "t4", "t1_2"):
        layer = plain(form)(spec)
        before = copy.deepcopy(layer.state_dict())
        for near in (False, True):
            with pytest.raises(Unrepresentable, match=f"layer 2: quadratic {form} has no term of first order"):
                layer.load_first_order(weight, bias, near=near)
        assert all(torch.equal(value, before[name]) for name, value in layer.state_dict().items())
    with pytest.raises(Unrepresentable, match=r"normalises each convolution \(model.norm=batch\)"):
        plain("quadralib", norm="batch")(spec).load_first_order(weight)
    with pytest.raises(Unrepresentable, match=r"weight has shape \(4, 4, 1, 1\)"):
        plain("t1")(spec).load_first_order(weight[..., :1, :1])
    with pytest.raises(Unrepresentable, match="without one"):
        plain("t2_4")(dataclasses.replace(spec, bias=False)).load_first_order(weight, bias)
    odd = Quadratic("t1_low_rank", rank=3)(spec)
    with pytest.raises(Unrepresentable, match=r"use an even model.rank or model.signs=learned"):
        odd.load_first_order(weight, bias)
    odd.load_first_order(weight, bias, near=True)
    conv = Conv()(spec)
    conv.load_first_order(weight, bias)
    x = torch.rand(2, 4, 5, 6) * 2 - 1
    # one square of a variable of variance 1e-4
    assert 0 < float((odd(x) - conv(x)).detach().abs().max()) < 0.01


@pytest.mark.parametrize("form", VARIANTS)
def test_no_weight_starts_dead(definition: Any, form: str) -> None:
    for norm in ("none", "batch"):
        layer = plain(form, norm=norm)(definition.spec())
        (layer(torch.rand(2, 4, 6, 6) - 0.5) ** 2).sum().backward()
        assert all(parameter.grad is not None and parameter.grad.any() for parameter in layer.parameters())


@pytest.mark.parametrize("form", VARIANTS)
@pytest.mark.parametrize("index", [0, 1])
def test_balanced_layers_start_with_unit_variance(definition: Any, form: str, index: int) -> None:
    """For the input that is supposed: uniform before the first layer, relu of a normal variable before others."""
    shape = {"in_channels": 8, "out_channels": 128, "padding": "valid"}
    spec = definition.spec(**shape, index=index, input_bound=(-5.0, 5.0), activation=None)
    x = torch.rand(1000, 8, 3, 3) * 2 - 1 if index == 0 else torch.randn(1000, 8, 3, 3).relu()
    u = plain(form, activation="relu")(spec).respond(x).detach()[:, :, 0, 0]
    # relu's inputs have a mean, so that the spread over 128 neurons is wide.
    low, high = (0.8, 1.25) if index == 0 else (0.5, 2.0)
    assert low < float(u.square().mean()) < high
    assert abs(float(u.mean())) < 0.3


@pytest.mark.parametrize("form", VARIANTS)
def test_balanced_branch_norms_keep_unit_variance(definition: Any, form: str) -> None:
    spec = definition.spec(in_channels=8, out_channels=64, padding="valid")
    for memory in ("keep", "auto"):
        u = plain(form, norm="batch", memory=memory)(spec)(torch.rand(1000, 8, 3, 3) * 2 - 1).detach()
        assert 0.8 < float(u.square().mean()) < 1.25
        assert abs(float(u.mean())) < 0.1


@pytest.mark.filterwarnings("ignore::onn_runner.model.conv.UnboundedInputWarning")
@pytest.mark.parametrize("form", VARIANTS)
def test_twelve_layers(definition: Any, form: str) -> None:
    """Bounded by default; with relu a batch norm on the output keeps the training pass finite, nothing overflows."""
    options = VARIANTS[form]

    def largest(**changes: Any) -> float:
        torch.manual_seed(0)
        x = torch.rand(8, 8, 8, 8) * 2 - 1
        for index in range(12):
            spec = definition.spec(in_channels=8, out_channels=8, index=index, activation=None)
            x = Quadratic(**(options | changes))(spec)(x).detach()
        return float(x.abs().max())

    assert 0.1 < largest() <= 1
    assert 0.1 < largest(activation="relu", output_norm="batch") < 60
    assert not 1e-6 < largest(activation="identity", output_norm="none") < 60


@pytest.mark.parametrize("form", VARIANTS)
def test_twelve_layers_learn_at_a_high_rate(definition: Any, form: str) -> None:
    """Of the default start and norms: 200 steps of 0.1, after which they fit better than at first."""
    layers = []
    for index in range(12):
        role = "output" if index == 11 else "hidden"
        spec = definition.spec(in_channels=3, out_channels=3, kernel_size=(3,), index=index, role=role, activation=None)
        # what is kept changes no number, and keeping all is the fastest here
        layers.append(Quadratic(**VARIANTS[form], memory="keep")(dataclasses.replace(spec, input_bound=(-1.0, 1.0))))
    network = nn.Sequential(*layers)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    x = torch.rand(4, 3, 8) * 2 - 1
    target = 0.5 * x.roll(1, 1)
    losses = []
    for _ in range(200):
        optimizer.zero_grad()
        loss = (network(x) - target).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert all(bool(parameter.isfinite().all()) for parameter in network.parameters())
    assert max(losses[-10:]) < losses[0]


def test_an_unbounded_input_is_warned_about_without_norm(definition: Any) -> None:
    with pytest.warns(UnboundedInputWarning, match="multiply inputs without bounds"):
        Quadratic()(definition.spec(index=2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Quadratic()(definition.spec(index=2, input_bound=(-1.0, 1.0)))
        Quadratic()(definition.spec(index=0))
        Quadratic(output_norm="batch")(definition.spec(index=2))


@pytest.mark.parametrize("form", VARIANTS)
def test_one_pixel_changes_at_most_its_windows(definition: Any, form: str) -> None:
    for dilation in ((1, 1), (2, 1)):
        layer = plain(form)(definition.spec(kernel_size=(3, 2), dilation=dilation))
        x = torch.rand(1, 4, 9, 9)
        changed = x.clone()
        changed[0, 1, 4, 4] += 1
        difference = (layer(changed) - layer(x)).detach().abs().amax((0, 1)) > 1e-5
        assert 0 < int(difference.sum()) <= 6
        assert int(difference.any(1).sum()) <= 3
        assert int(difference.any(0).sum()) <= 2


@pytest.mark.parametrize("form", VARIANTS)
def test_half_precision_does_not_overflow_at_256_times_256(definition: Any, form: str) -> None:
    layer = plain(form)(definition.spec(in_channels=1, out_channels=1, kernel_size=(1,)))
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.fill_(1.0)
        if form == "t1_low_rank":
            layer.weight_of("a2").zero_()
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
    normed = {form for form, options in VARIANTS.items()
              if isinstance(Quadratic(**options)(definition.spec()).output_norm, nn.BatchNorm2d)}  # fmt: skip
    assert normed == set(VARIANTS) - set(FIRST_ORDER)
    reason = Quadratic("t4")(definition.spec()).facts().reason
    assert reason == "2 of them, then a batch norm; recompute: keeps x and 1 output"
    assert Quadratic("t3", norm="batch")(definition.spec(kernel_size=(3,)))(torch.rand(2, 4, 5)).shape == (2, 4, 5)


def test_decay_groups_and_terms(definition: Any) -> None:
    """The 1 of a factor is no weight: it never decays."""
    fan = plain("t2_4", norm="batch")(definition.spec())
    found = {name: (group, fan.terms()[name]) for name, group in fan.decay_groups().items() if "norm" not in name}
    assert found == {
        "weight_a": ("weight", "a"),
        "weight_b": ("quadratic", "b"),
        "weight_square": ("quadratic", "square"),
        "bias": ("bias", "bias"),
        "bias_a": ("bias", "bias_a"),
        "bias_b": ("undecayed", "bias_b"),
    }
    assert {term for name, term in fan.terms().items() if "norm" in name} == {"norm"}
    ranked = plain("t1_low_rank learned")(definition.spec())
    assert set(ranked.terms().values()) == {"a", "linear", "sign", "bias"}
    assert ranked.decay_groups()["sign_a2"] == ranked.decay_groups()["weight_a3"] == "quadratic"
    assert plain("t1")(definition.spec()).terms()["weight_matrix"] == "matrix"
    assert plain("qres")(definition.spec()).decay_groups() == {
        "weight_a": "weight",
        "weight_b": "quadratic",
        "bias": "bias",
    }
    assert Conv()(definition.spec()).terms() == {}


@pytest.mark.parametrize("norm", ["none", "batch"])
@pytest.mark.parametrize("form", VARIANTS)
def test_nonlinearity_index_by_regression(definition: Any, form: str, norm: str) -> None:
    spec = definition.spec(in_channels=2, out_channels=8, kernel_size=(2, 2), padding="valid")
    layer = plain(form, norm=norm)(spec).double()
    for name, parameter in layer.named_parameters():
        if name.startswith(("bias_a", "sign")):
            nn.init.normal_(parameter)
        if name.startswith("norms"):
            parameter.data += 0.3 * torch.randn_like(parameter)
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


def test_what_is_told(definition: Any) -> None:
    spec = definition.spec()
    kinds = {form: plain(form)(spec).facts().kind for form in VARIANTS}
    assert kinds["t1_low_rank"] == "quadratic t1_low_rank r=2"
    assert kinds["t1_low_rank learned"] == "quadratic t1_low_rank r=3 with learned signs"
    assert kinds["t4 biased"] == "quadratic t4 with factor biases"
    matrix = "one, and a matrix over patches of 36 numbers; "
    assert plain("t1")(spec).facts().reason == matrix + "recompute: keeps x only"
    kept = matrix + "keep: keeps x, patches (36 of x) and 36 outputs for W x"
    assert plain("t1", memory="keep")(spec).facts().reason == kept


def test_layers_that_grow_say_so(definition: Any) -> None:
    spec = definition.spec(activation=None)
    assert Quadratic(activation="relu")(spec).grows
    assert not Quadratic(activation="tanh")(spec).grows
    assert not Quadratic(activation="relu", output_norm="batch")(spec).grows
    assert not Quadratic(activation="relu")(dataclasses.replace(spec, norm="batch")).grows
    assert not Conv(activation="relu")(spec).grows


def test_refused(definition: Any) -> None:
    with pytest.raises(ConfigError, match=r"unknown model.type 't5'.*Options: compact, qres, quadralib, t1, t1_2, "):
        Quadratic("t5")
    for name in ("norm", "output_norm"):
        with pytest.raises(ConfigError, match=rf"unknown model.{name} 'bach'. Did you mean batch"):
            Quadratic(**{name: "bach"})
    with pytest.raises(ConfigError, match=r"unknown model.init 'balance'. Did you mean balanced"):
        Quadratic(init="balance")
    with pytest.raises(ConfigError, match=r"unknown model.signs 'learn'. Did you mean learned"):
        Quadratic("t1_low_rank", signs="learn")
    with pytest.raises(ConfigError, match=r"which type=t4 cannot be; use type=t1, t1_low_rank, t2_4, quadralib, com"):
        Quadratic("t4", init="relinear")
    with pytest.raises(ConfigError, match=r"starts one factor or term at 0, which model.norm=batch cannot scale"):
        Quadratic("t2_4", init="relinear", norm="batch")
    with pytest.raises(ConfigError, match=r"model.rank \(=3\) of them with fixed signs cannot; use an even rank"):
        Quadratic("t1_low_rank", init="relinear", rank=3)
    for rank in (0, True, 1.5, "2"):
        with pytest.raises(ConfigError, match=r"model.rank \(=.*\) must be a positive whole number"):
            Quadratic("t1_low_rank", rank=rank)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match=r"model.rank \(=4\) is of type=t1_low_rank, and type=t4 has none"):
        Quadratic("t4", rank=4)
    with pytest.raises(ConfigError, match=r"model.factor_biases=true is of type=t4 .*type=quadralib has none"):
        Quadratic(factor_biases=True)
    with pytest.raises(ConfigError, match=r"model.factor_biases \(=yes\) must be true or false"):
        Quadratic("t4", factor_biases="yes")  # type: ignore[arg-type]
    for form in ("t1", "t1_2"):
        with pytest.raises(ConfigError, match=rf"layer 1 \(quadratic {form}\): x\^T W x is over patches"):
            Quadratic(form)(definition.spec(index=1, transposed=True))
