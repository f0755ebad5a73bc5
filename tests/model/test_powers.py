"""Convolutions over powers: what is kept, gradients of any order, tiles, compilation, export and torch.func."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from onn_runner.model import tiles
from onn_runner.model.base import LayerSpec
from onn_runner.model.conv import convolve
from onn_runner.model.powers import convolve_powers
from onn_runner.model.self_onn import SelfONN, SelfONNLayer

CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "groups": {"groups": 2, "out_channels": 6},
    "depthwise": {"groups": 4, "out_channels": 8},
    "stride": {"stride": (2, 1), "dilation": (1, 2)},
    "transposed": {"stride": (2, 3), "groups": 2, "transposed": True},
}


@pytest.fixture(params=CASES.values(), ids=CASES.keys())
def spec(request: pytest.FixtureRequest, definition: Any) -> LayerSpec:
    made = definition.spec(**request.param, padding="valid")
    assert isinstance(made, LayerSpec)
    return made


def concatenated(x: Tensor, layer: SelfONNLayer) -> Tensor:
    """Powers one after another under plain autograd, the weights of each group's channels beside each other."""
    groups = layer.spec.groups
    parts = x.unflatten(1, (groups, -1))
    powers = torch.cat([parts**q for q in range(1, layer.q + 1)], dim=2).flatten(1, 2)
    return convolve(powers, layer.weight, spec=layer.spec, bias=layer.bias)


def gradients(y: Tensor, inputs: list[Tensor]) -> list[Tensor]:
    keyed = torch.Generator().manual_seed(1)
    cotangent = torch.randn(y.shape, generator=keyed, dtype=torch.float64).to(y.dtype)
    return [y, *torch.autograd.grad(y, inputs, cotangent)]


def assert_close(mine: Any, right: Any) -> None:
    """Float64's rounding over a few hundred terms."""
    for one, other in zip(mine, right, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("q", [2, 3, 5])
def test_the_same_as_concatenated_powers(definition: Any, spec: LayerSpec, q: int) -> None:
    layer = SelfONN(q)(spec).double()
    x = definition.example((7, 6), batch=3)
    inputs = [x, *layer.parameters()]
    assert_close(gradients(layer.respond(x), inputs), gradients(concatenated(x, layer), inputs))


@pytest.mark.parametrize("q", [2, 3])
def test_gradients_to_any_order(definition: Any, spec: LayerSpec, q: int) -> None:
    layer = SelfONN(q)(spec).double()

    def call(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return convolve_powers(x, weight, bias, q=q, spec=spec)

    inputs = (definition.example((4, 5), batch=1), *(p.detach().requires_grad_() for p in layer.parameters()))
    assert torch.autograd.gradcheck(call, inputs)
    assert torch.autograd.gradgradcheck(call, inputs)


@pytest.mark.parametrize("samples", [1, 2, 3])
def test_tiles_do_not_change_the_result(
    definition: Any, monkeypatch: pytest.MonkeyPatch, spec: LayerSpec, samples: int
) -> None:
    layer = SelfONN(3)(spec).double()
    x = definition.example((7, 6), batch=5)
    inputs = [x, *layer.parameters()]
    whole = gradients(layer(x), inputs)
    monkeypatch.setattr(tiles, "VALUES", samples * x[0].numel() + 1)
    assert tiles.samples(x) == 5, "recorded: all at once"
    with torch.no_grad():
        assert tiles.samples(x) == samples
    assert_close(gradients(layer(x), inputs), whole)
    layer.weight.requires_grad_(False)
    assert_close(gradients(layer(x), [x]), whole[:2])
    layer.weight.requires_grad_(True)
    assert_close(gradients(layer(x.detach()), [*layer.parameters()]), [whole[0], *whole[2:]])


@pytest.mark.parametrize("autocast", [False, True])
def test_nothing_is_kept_but_the_input_and_the_weights(spec: LayerSpec, autocast: bool) -> None:
    """Of a half-precision input neither a copy in single precision."""
    layer = SelfONN(4)(spec)
    x = torch.rand(2, 4, 9, 9, dtype=torch.bfloat16 if autocast else torch.float32, requires_grad=True)
    kept: set[int] = set()

    def keep(tensor: Tensor) -> Tensor:
        kept.add(tensor.data_ptr())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
            y = layer(x)
        assert kept == {x.data_ptr(), layer.weight.data_ptr()}
        kept.clear()
        with torch.no_grad():
            layer(x)
        assert not kept
    assert torch.autograd.grad(y.sum(), x)[0].dtype == x.dtype


def test_double_precision_stays_so_under_autocast(definition: Any) -> None:
    layer = SelfONN(3)(definition.spec()).double()
    x = definition.example((5, 4))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(layer(x), layer(x.clone()))
        y = layer(x)
    assert torch.equal(y, layer(x))


def test_an_empty_batch(spec: LayerSpec) -> None:
    layer = SelfONN(3)(spec)
    x = torch.zeros(0, 4, 7, 6, requires_grad=True)
    y = layer(x)
    assert y.shape[:2] == (0, spec.out_channels)
    grads = torch.autograd.grad(y.sum(), [x, *layer.parameters()])
    assert grads[0].shape == x.shape
    assert not grads[1].any()


def test_compiled_without_a_break(definition: Any, spec: LayerSpec) -> None:
    torch.compiler.reset()
    layer = SelfONN(3)(spec).double()
    x = definition.example((7, 6))
    inputs = [x, *layer.parameters()]
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    assert_close(gradients(compiled(x), inputs), gradients(layer(x), inputs))


def test_exported_with_a_batch_of_any_size(spec: LayerSpec) -> None:
    layer = SelfONN(3)(spec).eval()
    sizes = ({0: torch.export.Dim("batch", min=1)},)
    program = torch.export.export(layer, (torch.rand(2, 4, 7, 6),), dynamic_shapes=sizes)
    x = torch.rand(5, 4, 7, 6)
    assert torch.equal(program.module()(x), layer(x))


def test_transforms_of_torch_func(definition: Any, spec: LayerSpec) -> None:
    """vmap over stacked weights and grad equal a loop."""
    layers = [SelfONN(3)(spec).double() for _ in range(3)]
    x = definition.example((7, 6)).detach()
    parameters, _ = torch.func.stack_module_state(layers)  # type: ignore[arg-type]

    def call(p: dict[str, Tensor], x: Tensor = x) -> Tensor:
        result = torch.func.functional_call(layers[0], p, (x,))
        assert isinstance(result, Tensor)
        return result

    y = torch.vmap(call)(parameters)
    grads = torch.vmap(torch.func.grad(lambda p: call(p).square().sum()))(parameters)
    for i, layer in enumerate(layers):
        right = torch.autograd.grad(layer(x).square().sum(), [layer.weight, layer.bias])
        assert_close([y[i], grads["weight"][i], grads["bias"][i]], [layer(x), *right])


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:FutureWarning")  # of torch's own rules for jvp
def test_forward_mode(definition: Any, spec: LayerSpec) -> None:
    layer = SelfONN(3)(spec).double()
    x, step = definition.example((7, 6)).detach(), 1e-6
    _, slope = torch.func.jvp(layer, (x,), (torch.ones_like(x),))
    with torch.no_grad():
        by_steps = (layer(x + step) - layer(x - step)) / (2 * step)
    # a central difference errs by its step squared and by rounding over the step
    torch.testing.assert_close(slope.detach(), by_steps, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointed(definition: Any, reentrant: bool) -> None:
    layer = nn.Sequential(SelfONN(3)(definition.spec()), nn.Tanh(), SelfONN(2)(definition.spec())).double()
    x = definition.example((5, 4))
    right = gradients(layer(x), [x])
    y = checkpoint(layer, x, use_reentrant=reentrant)
    keyed = torch.Generator().manual_seed(1)
    y.backward(torch.randn(y.shape, generator=keyed, dtype=torch.float64))
    assert_close([y, x.grad], right)
