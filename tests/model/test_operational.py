"""Operational neurons against the definition, presets against their formulas, and which neuron gets which operator."""

from __future__ import annotations

import io
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from onn_runner.errors import ConfigError
from onn_runner.model.conv import Conv
from onn_runner.model.operational import Operational, OperationalLayer, split_evenly
from onn_runner.ops.base import FunctionNodal, Nodal
from onn_runner.ops.nodal import Multiply, Sine


def mul(w: Tensor, x: Tensor) -> Tensor:
    return w * x


def sine(w: Tensor, x: Tensor) -> Tensor:
    return torch.sin(w * x)


def exp(w: Tensor, x: Tensor) -> Tensor:
    return torch.expm1(w * x)


OPERATORS: dict[str, Nodal] = {
    "sine": FunctionNodal(function=sine, omega=1.5),
    "mul": FunctionNodal(function=mul),
    "exp": FunctionNodal(function=exp),
}
FORMULAS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"sine": sine, "mul": mul, "exp": exp}
POOLS: dict[str, Callable[[Tensor], Tensor]] = {
    "sum": lambda values: values.sum(-2),
    "mean": lambda values: values.mean(-2),
    "max": lambda values: values.amax(-2),
    "median": lambda values: values.median(-2).values,
}


def pooled(layer: OperationalLayer, definition: Any, x: Tensor, pool: str = "sum") -> Tensor:
    """sum_c P_t psi_o(w, x), neuron by neuron."""
    spec, seen = layer.spec, definition.windows(x, layer.spec)
    outputs, inputs = spec.out_channels, spec.in_channels // spec.groups
    weight = layer.weight
    if layer.unit is not None:
        weight = torch.einsum("o,o...->o...", layer.unit, weight)
    result = []
    for block in layer.blocks:
        for o in range(block.start, block.stop):
            first = o // (outputs // spec.groups) * inputs
            part = seen[:, first : first + inputs].flatten(3)  # [B, C/G, T, L]
            w = weight[o].reshape(1, inputs, -1, 1)
            result.append(POOLS[pool](FORMULAS[block.name](w, part)).sum(1))
    return torch.stack(result, 1).reshape(x.shape[0], outputs, *seen.shape[3:])


@pytest.mark.parametrize("compute", ["reference", "auto"])
def test_definition(definition: Any, geometry: dict[str, Any], compute: str) -> None:
    layer = Operational(OPERATORS, compute=compute)(definition.spec(**geometry)).double()

    def reference(x: Tensor) -> Tensor:
        y = pooled(layer, definition, x)
        return y * definition.along_channels(layer.gain, y) + definition.along_channels(layer.bias, y)

    definition.assert_same(layer, reference, definition.example(geometry["size"]))


@pytest.mark.parametrize("pool", POOLS)
def test_pools(definition: Any, pool: str) -> None:
    layer = Operational(OPERATORS, pool=pool)(definition.spec(kernel_size=(3, 2))).double()

    def reference(x: Tensor) -> Tensor:
        y = pooled(layer, definition, x, pool)
        return y * definition.along_channels(layer.gain, y) + definition.along_channels(layer.bias, y)

    definition.assert_same(layer, reference, definition.example((5, 4)))


def test_gradcheck(definition: Any) -> None:
    spec = definition.spec(kernel_size=(2, 2), stride=(1, 2), activation=None)
    layer = Operational(OPERATORS)(spec).double()
    assert torch.autograd.gradcheck(layer, (definition.example((3, 4), batch=1),))


def test_mul_is_the_convolution(definition: Any, geometry: dict[str, Any]) -> None:
    """With the stored weights themselves: unit and gain cancel to single precision, in which they are kept."""
    spec = definition.spec(**geometry, activation=None)
    layer, conv = Operational({"mul": Multiply()})(spec).double(), Conv("tanh")(spec).double()
    with torch.no_grad():
        conv.weight.copy_(layer.weight)
        conv.bias.copy_(nn.init.normal_(layer.bias))
    x = definition.example(geometry["size"])
    torch.testing.assert_close(layer(x), conv(x), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("initialisation", ["fastonn", "gop"])
def test_preset_formulas(definition: Any, initialisation: str) -> None:
    layer = Operational(OPERATORS, initialisation=initialisation)(definition.spec()).double()
    assert layer.gain is None
    for values in (layer.weight, layer.bias):
        assert 0.05 < float(values.detach().abs().max()) <= 1 / 9
    with torch.no_grad():
        layer.weight.mul_(20)
    x = (definition.example((6, 5)) * torch.tensor([1.0, 0.02]).reshape(2, 1, 1, 1)).detach().requires_grad_()
    if initialisation == "gop":
        bias = definition.along_channels(layer.bias, x)
        definition.assert_same(layer, lambda x: pooled(layer, definition, x) + bias, x)
        return
    largest = [pooled(layer, definition, x)[:, b.start : b.stop].detach().abs().amax((1, 2, 3)) for b in layer.blocks]
    assert all(float(first) > 4 > float(second) for first, second in largest), "one sample is scaled, one is not"
    definition.assert_same(layer, lambda x: rescaled(layer, definition, x), x)


def rescaled(layer: OperationalLayer, definition: Any, x: Tensor) -> Tensor:
    """FastONN's: the rescale is a constant for the gradient, the bias comes after it with a minus."""
    u = pooled(layer, definition, x)
    factors = torch.ones_like(u)
    for sample in range(u.shape[0]):
        for block in layer.blocks:
            largest = float(u[sample, block.start : block.stop].detach().abs().max())
            factors[sample, block.start : block.stop] = min(1.0, 4.0 / largest)
    return u * factors - definition.along_channels(layer.bias, u)


@pytest.mark.parametrize("pool", ["sum", "max", "median"])
@pytest.mark.parametrize("name", OPERATORS)
def test_calibrated_layers_start_with_unit_variance_and_no_mean(definition: Any, name: str, pool: str) -> None:
    """64 neurons with 8 x 9 independent inputs: the mean variance within 15 %."""
    spec = definition.spec(in_channels=8, out_channels=64, padding="valid")
    layer = Operational({name: OPERATORS[name]}, pool=pool)(spec)
    u = layer(torch.rand(1000, 8, 3, 3) * 2 - 1).detach()[:, :, 0, 0]
    assert math.isclose(float(u.var(0).mean()), 1.0, rel_tol=0.15)
    assert float(u.mean(0).abs().mean()) < 0.1
    largest = float(layer.nodal_weight().detach().abs().max())
    assert 0.95 * OPERATORS[name].weight_bound < largest <= 1.000001 * OPERATORS[name].weight_bound


@pytest.mark.parametrize(
    ("neurons", "counts"),
    [(6, {"sine": 2, "mul": 2, "exp": 2}), (8, {"sine": 3, "mul": 3, "exp": 2}), (1, {"sine": 1})],
)
def test_split_in_written_order(neurons: int, counts: dict[str, int]) -> None:
    blocks = split_evenly(OPERATORS, neurons)
    assert {block.name: block.stop - block.start for block in blocks} == counts
    assert [block.start for block in blocks] == [0, *[block.stop for block in blocks][:-1]]
    assert blocks[-1].stop == neurons


def test_layers_by_index(definition: Any) -> None:
    only = {"sine": OPERATORS["sine"]}
    factory = Operational(only, layers=[["exp", "sine"], None, "mul"], catalogue=OPERATORS)
    factory.expect(3)
    names = [[block.name for block in factory(definition.spec(index=index)).blocks] for index in range(3)]
    assert names == [["exp", "sine"], ["sine"], ["mul"]]
    with pytest.raises(ConfigError, match=r"model.layers has 3 entries, the network has 4 operational layers"):
        factory.expect(4)


def test_a_layer_with_linear_operators_says_so(definition: Any) -> None:
    facts = Operational({"mul": Multiply(), "sine": Sine()})(definition.spec(out_channels=5)).facts()
    assert facts.kind == "onn"
    assert facts.operators == (("mul", 3), ("sine", 2))
    assert 0.01 < facts.nonlinearity < 0.5
    assert Operational({"mul": Multiply()})(definition.spec()).facts().nonlinearity < 1e-9
    weak = Operational({"sine": Sine()}, initialisation="fastonn")(definition.spec(kernel_size=(9, 9)))
    assert weak.facts().nonlinearity != Operational({"sine": Sine()})(definition.spec()).facts().nonlinearity


def test_state_survives_a_weights_only_checkpoint(definition: Any) -> None:
    factory = Operational(OPERATORS)
    layer = factory(definition.spec())
    x = torch.rand(2, 4, 8, 8) * 2 - 1
    y = layer(x)
    assert layer.facts().computed_by
    file = io.BytesIO()
    torch.save(layer.state_dict(), file)
    file.seek(0)
    torch.manual_seed(99)
    other = factory(definition.spec())
    other.load_state_dict(torch.load(file, weights_only=True))
    assert other.facts() == layer.facts()
    assert other.memory.plans.keys() == layer.memory.plans.keys()
    assert torch.equal(other(x), y)
    assert layer.decay_groups() == {"weight": "weight", "bias": "bias"}


def test_the_same_seed_gives_the_same_layer(definition: Any) -> None:
    torch.manual_seed(3)
    first = Operational(OPERATORS)(definition.spec())
    torch.manual_seed(3)
    second = Operational(OPERATORS)(definition.spec())
    assert torch.equal(first.weight, second.weight)
    assert torch.equal(first.bias, second.bias)


def test_one_pixel_changes_at_most_its_windows(definition: Any) -> None:
    layer = Operational(OPERATORS)(definition.spec(kernel_size=(3, 2)))
    x = torch.rand(1, 4, 9, 9)
    changed = x.clone()
    changed[0, 1, 4, 4] -= 0.5
    # Terms of a sum in another order differ by rounding: 1e-5 is far above it, far below a pixel's effect.
    difference = (layer(changed) - layer(x)).detach().abs().amax((0, 1)) > 1e-5
    assert 0 < int(difference.sum()) <= 6


def test_autocast_in_bfloat16(definition: Any) -> None:
    layer = Operational(OPERATORS)(definition.spec())
    x = torch.rand(2, 4, 7, 7) * 2 - 1
    exact = layer(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = layer(x)
    y.float().sum().backward()
    # bfloat16 has 8 bits: 2^-8 of terms that add up to a few units.
    torch.testing.assert_close(y.float(), exact, rtol=0.05, atol=0.1)
    assert layer.weight.grad is not None
    assert layer.weight.grad.dtype == torch.float32


def test_cost(definition: Any) -> None:
    layer = Operational(OPERATORS)(definition.spec(in_channels=4, out_channels=6, kernel_size=(3, 2), groups=2))
    assert layer.macs(10) == 10 * 6 * 2 * 6


REFUSED: dict[str, dict[str, Any]] = {
    r"ops is empty: an operational layer needs at least one operator": {"operators": {}},
    r"unknown operator in model.layers\[1\]: 'sinus'. Did you mean sine": {"layers": [None, ["sinus"]]},
    r"model.layers\[0\] is empty: name at least one operator": {"layers": [[]]},
    r"model.layers\[0\] \(=\['exp', 'exp'\]\) names an operator twice": {"layers": [["exp", "exp"]]},
    r"unknown pool 'medain'. Did you mean median": {"pool": "medain"},
    r"unknown activation 'tahn'": {"activation": "tahn"},
    r"unknown initialisation 'fast'. Did you mean fastonn": {"initialisation": "fast"},
    r"'chebychev'. Did you mean chebyshev": {"compute": "chebychev"},
}


@pytest.mark.parametrize(("message", "changes"), REFUSED.items(), ids=REFUSED)
def test_refused(message: str, changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=message):
        Operational(**({"operators": OPERATORS} | changes))


def test_what_is_not_an_operator_is_refused(definition: Any) -> None:
    with pytest.raises(TypeError, match="an operator is a Nodal or a function"):
        Operational({"sine": 3})(definition.spec())
    layer = Operational({"plain": sine})(definition.spec())
    assert isinstance(layer.blocks[0].nodal, FunctionNodal)


def test_weights_of_other_operators_are_refused(definition: Any) -> None:
    spec = definition.spec()
    state = Operational({"sine": Sine(), "mul": Multiply()})(spec).state_dict()
    with pytest.raises(ConfigError, match=r"a layer with sine:\d+ mul:\d+, this one has sine:\d+: use its ops"):
        Operational({"sine": Sine()})(spec).load_state_dict(state)


def test_a_preset_whose_weights_are_too_small_to_matter_is_linear_not_refused(definition: Any) -> None:
    flat = FunctionNodal(function=lambda w, x: w + x * 0)
    layer = Operational({"flat": flat}, initialisation="gop")(definition.spec())
    assert layer.facts().nonlinearity == 0
    with pytest.raises(ConfigError, match="does not change"):
        Operational({"flat": flat})(definition.spec())
