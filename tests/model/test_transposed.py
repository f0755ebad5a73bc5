"""Transposed layers of every kind against zero insertion and the flipped kernel's convolution, in float64."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from onn_runner.errors import ConfigError
from onn_runner.model import padding
from onn_runner.model.base import Layer, LayerSpec
from onn_runner.model.conv import Conv, SpatialLayer, transposed_weight
from onn_runner.model.operational import Operational, OperationalLayer
from onn_runner.model.quadratic import TYPES, Quadratic, QuadraticLayer
from onn_runner.model.self_onn import SelfONN, SelfONNLayer
from onn_runner.ops.nodal import Cubic, Exponential, Sine

GEOMETRIES: dict[str, dict[str, Any]] = {
    "1d": {"size": (5,), "kernel_size": (3,), "stride": (2,)},
    "1d even": {"size": (4,), "kernel_size": (4,), "stride": (2,)},
    "stride 1": {"size": (5, 4), "kernel_size": (3, 2)},
    "non-square": {"size": (2, 7), "kernel_size": (5, 2), "stride": (2, 3)},
    "gaps between the taps": {"size": (3, 4), "kernel_size": (1, 2), "stride": (2, 3)},
    "one longer, one shorter": {"size": (3, 4), "kernel_size": (1, 4), "stride": (3, 1)},
    "dilation": {"size": (4, 3), "kernel_size": (3, 2), "stride": (2, 2), "dilation": (2, 3)},
    "groups": {"size": (3, 4), "kernel_size": (3, 3), "stride": (2, 2), "groups": 2},
    "depthwise": {"size": (3, 4), "kernel_size": (2, 3), "stride": (2, 1), "groups": 4},
    "more neurons": {"size": (3, 2), "kernel_size": (3, 3), "stride": (2, 2), "groups": 2, "out_channels": 6},
    "valid": {"size": (3, 2), "kernel_size": (3, 4), "stride": (2, 3), "padding": "valid"},
    "explicit": {"size": (3, 4), "kernel_size": (4, 3), "stride": (2, 2), "padding": (2, 1)},
    "output padding": {
        "size": (3, 4),
        "kernel_size": (4, 3),
        "stride": (2, 2),
        "padding": (2, 1),
        "output_padding": (1, 0),
    },
    "output padding beyond the taps": {
        "size": (3, 4),
        "kernel_size": (3, 1),
        "stride": (2, 2),
        "padding": (0, 0),
        "output_padding": (1, 1),
    },
    "one position": {"size": (1, 1), "kernel_size": (3, 2), "stride": (2, 2)},
    "3d": {"size": (2, 3, 2), "kernel_size": (2, 3, 1), "stride": (2, 1, 2)},
}


@pytest.fixture(params=GEOMETRIES.values(), ids=GEOMETRIES.keys())
def transposed(request: pytest.FixtureRequest, definition: Any) -> tuple[LayerSpec, tuple[int, ...]]:
    """A spec and the size of an input."""
    return definition.spec(**request.param, transposed=True), request.param["size"]


TRANSPOSABLE = [form for form, formula in TYPES.items() if "matrix" not in formula.terms]
"""Types that are made of convolutions."""


def crops(spec: LayerSpec) -> list[tuple[int, int]]:
    """(before, after) of the full output, from the definition's words; less than 0 adds."""
    if spec.padding == "valid":
        return [(0, 0)] * spec.dims
    if spec.padding != "same":
        return [(p, p - o) for p, o in zip(spec.padding, spec.output_padding or (0,) * spec.dims, strict=True)]
    totals = [d * (k - 1) + 1 - s for d, k, s in zip(spec.dilation, spec.kernel_size, spec.stride, strict=True)]
    return [(total // 2, total - total // 2) if total > 0 else (0, total) for total in totals]


def spread(
    x: Tensor,  # [B, C, *S]
    spec: LayerSpec,
) -> Tensor:  # [B, C, *S'']
    """`stride - 1` zeros between the positions and, around them, what the flipped kernel's windows need."""
    sizes = [(size - 1) * stride + 1 for size, stride in zip(x.shape[2:], spec.stride, strict=True)]
    wide = x.new_zeros(*x.shape[:2], *sizes)
    wide[(..., *(slice(None, None, stride) for stride in spec.stride))] = x
    sides = []
    for d, k, (before, after) in zip(spec.dilation, spec.kernel_size, crops(spec), strict=True):
        sides.append((d * (k - 1) - before, d * (k - 1) - after))
    return F.pad(wide, [side for pair in reversed(sides) for side in pair])


def plain(spec: LayerSpec) -> LayerSpec:
    """The convolution over what `spread` gives."""
    return dataclasses.replace(spec, transposed=False, padding="valid", stride=(1,) * spec.dims)


def flipped(weight: Tensor) -> Tensor:
    return weight.flip(tuple(range(2, weight.dim())))


def reference(layer: SpatialLayer, definition: Any) -> Callable[[Tensor], Tensor]:
    """The layer's formula, written out."""
    spec = layer.spec

    def conv(x: Tensor, weight: Tensor) -> Tensor:
        seen = definition.windows(spread(x, spec), plain(spec))
        result = definition.weighted_sum(seen, flipped(weight), spec.groups)
        assert isinstance(result, Tensor)
        return result

    def along(name: str, x: Tensor) -> Any:
        return definition.along_channels(layer.get_parameter(name), x)

    def formula(x: Tensor) -> Tensor:
        if isinstance(layer, QuadraticLayer):
            parts = {branch: conv(x**2 if branch == "square" else x, layer.weight_of(branch))
                     for branch in layer.branches}  # fmt: skip
            if layer.form == "t2_4":
                parts["a"] = parts["a"] + along("bias_a", x)
                parts["b"] = parts["b"] + along("bias_b", x)
            if layer.form == "qres":
                parts["b"] = parts["b"] + 1
            total = along("bias", x) + parts.get("linear", 0) + parts.get("square", 0)
            if layer.form == "t1_low_rank":
                return total + parts["a1"] ** 2 - parts["a2"] ** 2
            return total + (parts["a"] * parts.get("b", parts["a"]) if "a" in parts else 0)
        if isinstance(layer, SelfONNLayer):
            weights = layer.weight.unflatten(1, (layer.q, -1)).unbind(1)
            return along("bias", x) + sum(conv(x**power, weight) for power, weight in enumerate(weights, start=1))
        return along("bias", x) + conv(x, layer.get_parameter("weight"))

    return formula


FACTORIES: dict[str, Callable[[LayerSpec], Layer]] = {
    "conv": Conv(),
    "self_onn q=1": SelfONN(1),
    "self_onn q=3": SelfONN(3),
    **{f"quadratic {form}": Quadratic(form, output_norm="none") for form in TRANSPOSABLE},
}


@pytest.mark.parametrize("factory", FACTORIES.values(), ids=FACTORIES.keys())
def test_definition(
    definition: Any, transposed: tuple[LayerSpec, tuple[int, ...]], factory: Callable[[LayerSpec], Layer]
) -> None:
    spec, size = transposed
    layer = factory(spec).double()
    assert isinstance(layer, SpatialLayer)
    for name, parameter in layer.named_parameters():
        if "bias" in name:
            nn.init.normal_(parameter)
    definition.assert_same(layer, reference(layer, definition), definition.example(size))
    assert layer(torch.zeros(1, 4, *size, dtype=torch.float64)).shape[2:] == padding.output_size(spec, size)


@pytest.mark.parametrize("compute", ["auto", "reference", "tapwise"])
def test_operational_definition(definition: Any, transposed: tuple[LayerSpec, tuple[int, ...]], compute: str) -> None:
    """psi(w, 0) of exp(w x) + x is not 0: what is inserted must not count, what is read at zeros of x must."""
    operators = {"sine": lambda w, x: torch.sin(w * x), "user": lambda w, x: torch.exp(w * x) + x}
    spec, size = transposed
    layer = Operational(operators, compute=compute)(spec).double()
    nn.init.normal_(layer.bias)
    # an expansion's rule in double precision is 1e-13 of the output's scale, and gains are up to 3
    definition.assert_same(layer, lambda x: operational(layer, definition, x), definition.example(size))


def operational(layer: OperationalLayer, definition: Any, x: Tensor) -> Tensor:
    spec, weight = layer.spec, flipped(layer.nodal_weight())
    seen = definition.windows(spread(x, spec), plain(spec))
    there = definition.windows(spread(torch.ones_like(x), spec), plain(spec))
    outputs, inputs = weight.shape[:2]
    totals = []
    for block in layer.blocks:
        for o in range(block.start, block.stop):
            first = o // (outputs // spec.groups) * inputs
            part = slice(first, first + inputs)
            w = weight[o].reshape(1, inputs, -1, *[1] * spec.dims)
            totals.append((block.nodal(w, seen[:, part]) * there[:, part]).sum((1, 2)))
    assert layer.gain is not None
    y = torch.stack(totals, 1) * definition.along_channels(layer.gain, x)
    result = y + definition.along_channels(layer.bias, x)
    assert isinstance(result, Tensor)
    return result


@pytest.mark.parametrize("kind", [*FACTORIES, "self_onn calibrated", "onn"])
@pytest.mark.parametrize("stride", [(2, 2), (1, 3)])
def test_fresh_layers_have_unit_variance_on_average(definition: Any, kind: str, stride: tuple[int, int]) -> None:
    """Over a stride's phases, which see different numbers of taps; FastONN's Xavier, not calibrated, aims elsewhere.

    The means over inputs differ by phase where psi has one, which a bias per neuron cannot mend.
    """
    factories = FACTORIES | {
        "self_onn calibrated": SelfONN(3, init="calibrated"),
        "onn": Operational({"sine": Sine(), "exp": Exponential()}, compute="tapwise"),
    }
    spec = definition.spec(in_channels=16, out_channels=64, kernel_size=(3, 4), stride=stride, transposed=True)
    with torch.no_grad():
        u = factories[kind](spec)(torch.rand(400, 16, 6, 6) * 2 - 1)
    inner = u[:, :, stride[0] : -stride[0], stride[1] : -stride[1]]
    wanted = 1.0
    if kind.startswith("self_onn q"):
        q, phases = int(kind[-1]), math.prod(stride)
        parts = sum(1 / (2 * power + 1) - (power % 2 == 0) / (power + 1) ** 2 for power in range(1, q + 1))
        wanted = 25 / 9 * 2 / ((q * 16 / phases + 64) * 12) * 16 * 12 / phases * parts
    assert math.isclose(float(inner.var(0).mean()), wanted, rel_tol=0.15), "of 64 neurons with 16 x 12 / 4 inputs"


@pytest.mark.parametrize("pool", ["sum", "mean"])
def test_operational_variance_does_not_depend_on_the_pool(definition: Any, pool: str) -> None:
    spec = definition.spec(in_channels=8, out_channels=32, stride=(2, 2), transposed=True)
    layer = Operational({"cubic": Cubic()}, pool=pool, compute="tapwise")(spec)
    with torch.no_grad():
        u = layer(torch.rand(300, 8, 5, 5) * 2 - 1)[:, :, 2:-2, 2:-2]
    assert math.isclose(float(u.var(0).mean()), 1.0, rel_tol=0.15), "of 32 neurons with 8 x 9 / 4 inputs"


@pytest.mark.parametrize("norm", ["none", "batch"])
@pytest.mark.parametrize("form", TRANSPOSABLE)
def test_nonlinearity_index_by_regression(definition: Any, form: str, norm: str) -> None:
    """Over the 4 x 1 phases of the interior, each with linear fits of its own."""
    spec = definition.spec(in_channels=2, out_channels=6, kernel_size=(3, 1), stride=(2, 1), transposed=True)
    layer = Quadratic(form, output_norm="none", norm=norm)(spec).double()
    x = torch.rand(30_000, 2, 3, 1, dtype=torch.float64) * 2 - 1
    with torch.no_grad():
        u = layer(x)[:, :, 2:4, 0]
    u = (u - u.mean(0)).flatten(1)
    rows = x.flatten(1)
    left = u - rows @ torch.linalg.lstsq(rows, u).solution
    # 30,000 samples of 6 neurons: about 2 % of spread; a norm's statistics include the ends of the axis
    tolerance = 0.04 if norm == "none" else 0.15
    assert math.isclose(layer.nonlinearity(), float(left.square().sum() / u.square().sum()), rel_tol=tolerance)


def test_cost_counts_the_taps_of_each_input_position(definition: Any) -> None:
    spec = definition.spec(out_channels=6, kernel_size=(3, 2), stride=(2, 3), groups=2, transposed=True)
    outputs = math.prod(padding.output_size(spec, (5, 7)))
    assert Conv()(spec).macs(outputs) == 5 * 7 * 6 * 2 * 6
    assert Quadratic("t2_4")(spec).macs(outputs) == 3 * 5 * 7 * 6 * 2 * 6


def test_other_pools_are_refused(definition: Any) -> None:
    factory = Operational({"sine": Sine()}, pool="median")
    with pytest.raises(ConfigError, match=r"layer 0 is transposed: .* model.pool=median cannot pool; use sum or mean"):
        factory(definition.spec(transposed=True))


@pytest.mark.parametrize("groups", [1, 2, 3])
def test_the_weight_as_torch_takes_it(groups: int) -> None:
    weight = torch.rand(6, 9 // 3 if groups == 3 else 4, 2, 3)
    there = transposed_weight(weight, groups)
    assert there.shape == (weight.shape[1] * groups, 6 // groups, 2, 3)
    assert torch.equal(transposed_weight(there, groups), weight)


def test_an_empty_batch_and_half_precision(definition: Any) -> None:
    spec = definition.spec(stride=(2, 2), transposed=True)
    for factory in FACTORIES.values():
        layer = factory(spec)
        empty = torch.zeros(0, 4, 3, 3, requires_grad=True)
        y = layer(empty)
        assert y.shape == (0, 4, 6, 6)
        y.sum().backward()
        assert empty.grad is not None
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert layer(torch.rand(1, 4, 3, 3)).isfinite().all()


@pytest.mark.parametrize("kind", ["conv", "self_onn q=3", "quadratic t2_4"])
def test_gradients_to_second_order(definition: Any, kind: str) -> None:
    spec = definition.spec(kernel_size=(2, 3), stride=(2, 2), groups=2, padding=(0, 1), transposed=True)
    layer = FACTORIES[kind](spec).double()
    assert torch.autograd.gradcheck(layer, (definition.example((2, 2), batch=1),))
    assert torch.autograd.gradgradcheck(layer, (definition.example((2, 2), batch=1),))
