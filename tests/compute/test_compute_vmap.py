"""torch.func: stacks of models and samples, gradients and directional derivatives, equal to a loop over them."""

import copy

import pytest
import torch
from torch import nn
from torch.autograd import forward_ad
from torch.func import functional_call, grad, hessian, jacrev, jvp, stack_module_state, vmap

from onn_runner import compute, ops
from onn_runner.compute import Memory, stacked, transforms
from onn_runner.model.base import LayerSpec
from onn_runner.model.operational import Operational

USER = ops.FunctionNodal(function=lambda w, x: torch.tanh(w * x + 0.3) + torch.cos(w) * x)
OPERATORS = {
    "sine": ({"sine": ops.Sine()}, "sum"),
    "mixed": ({"sine": ops.Sine(), "exp": ops.Exponential(), "gaussian": ops.Gaussian(), "mul": ops.Multiply()}, "sum"),
    "user": ({"user": USER, "log": ops.Log()}, "mean"),
    "median": ({"sine": ops.Sine()}, "median"),
    "out of reach": ({"chirp": ops.Chirp(k=10000.0, omega=5000.0)}, "sum"),
}
# torch's own, on the way to derivatives in a direction
SCRIPT = pytest.mark.filterwarnings("ignore:.*torch.jit.script.* is deprecated:FutureWarning")


def spec(inputs, outputs, **changes):
    plain = {"kernel_size": (3, 3), "stride": (1, 1), "dilation": (1, 1)}
    return LayerSpec(in_channels=inputs, out_channels=outputs, **{**plain, **changes})


def networks(name, count=3):
    operators, pool = OPERATORS[name]
    factory = Operational(operators, pool=pool)
    found = []
    for seed in range(count):
        torch.manual_seed(seed)
        found.append(nn.Sequential(factory(spec(2, 4)), factory(spec(4, 4, groups=2, role="output"))))
    return found


def inputs(*shape, seed=0):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed)) * 2 - 1


def close(got, expected, tolerance):
    assert float((got - expected).detach().norm() / expected.detach().norm()) <= tolerance


@pytest.mark.parametrize("name", OPERATORS)
def test_a_stack_of_models_is_a_loop_over_them(name):
    models = networks(name)
    parameters, buffers = stack_module_state(models)
    base = copy.deepcopy(models[0]).to("meta")
    x = inputs(2, 2, 7, 6)

    def call(p, b, x):
        return functional_call(base, (p, b), (x,))

    got = vmap(call, in_dims=(0, 0, None))(parameters, buffers, x)
    each = vmap(call)(parameters, buffers, torch.stack([x, -x, 0.9 * x]))
    for index, model in enumerate(models):
        # two layers, each to 1e-6; sines of arguments in the thousands lose as many digits of what comes in
        tolerance = 1e-3 if name == "out of reach" else 3e-6
        close(got[index], model(x), tolerance)
        close(each[index], model((x, -x, 0.9 * x)[index]), tolerance)
    assert base[0].memory.chosen == ("reference" if name in ("median", "out of reach") else "chebyshev")
    assert set(base[0].memory.plans) <= {"stacked"}


@pytest.mark.parametrize("name", ["sine", "mixed", "user", "median"])
def test_gradients_of_a_stack_of_models(name):
    models = networks(name)
    parameters, buffers = stack_module_state(models)
    base = copy.deepcopy(models[0]).to("meta")
    x = inputs(2, 2, 7, 6)

    def loss(p, b, x):
        return functional_call(base, (p, b), (x,)).square().mean()

    found = vmap(grad(loss), in_dims=(0, 0, None))(parameters, buffers, x)
    for index, model in enumerate(models):
        expected = torch.autograd.grad(model(x).square().mean(), list(model.parameters()))
        for (key, _), wanted in zip(model.named_parameters(), expected, strict=True):
            # 3e-6 per layer
            close(found[key][index], wanted, 1e-5)


def test_gradients_of_single_samples():
    (model,) = networks("mixed", 1)
    parameters = dict(model.named_parameters())
    x = inputs(3, 2, 7, 6)

    def loss(p, sample):
        return functional_call(model, (p, dict(model.named_buffers())), (sample[None],)).square().mean()

    found = vmap(grad(loss), in_dims=(None, 0))(parameters, x)
    for index in range(3):
        expected = torch.autograd.grad(model(x[index : index + 1]).square().mean(), list(parameters.values()))
        for key, wanted in zip(parameters, expected, strict=True):
            close(found[key][index], wanted, 1e-5)


def test_transforms_leave_plans_of_training_alone():
    (model,) = networks("sine", 1)
    x = inputs(2, 2, 7, 6)
    y = model(x)
    before = [layer.memory.plans["train"] for layer in model]
    vmap(lambda s: model(s[None]))(x * 7)
    assert [layer.memory.plans["train"] for layer in model] == before
    assert torch.equal(model(x), y)


def test_nested_stacks():
    models = networks("mixed")
    parameters, buffers = stack_module_state(models)
    base = models[0]
    x = inputs(4, 2, 7, 6)

    def call(p, b, sample):
        return functional_call(base, (p, b), (sample[None],))[0]

    over_samples = vmap(call, in_dims=(None, None, 0), out_dims=1)
    got = vmap(over_samples, in_dims=(0, 0, None))(parameters, buffers, x)
    close(got.transpose(1, 2), torch.stack([model(x) for model in models]), 3e-6)


def test_values_behind_nested_transforms():
    outer, inner = torch.arange(6.0).view(2, 3), torch.arange(20.0).view(5, 4)
    seen = []

    def look(a, b):
        with transforms.outside():
            seen.append(transforms.stacks(a, b, None))
        return a.sum() + b.sum()

    # a is [3] of 2 and b is [5] of 4, stacked on its last axis
    vmap(lambda a: vmap(lambda b: grad(look)(a, b), in_dims=1)(inner))(outer)
    first, second, nothing = seen[0]
    assert nothing is None
    assert torch.equal(first, outer.repeat_interleave(4, 0))
    assert torch.equal(second, inner.T.repeat(2, 1))
    assert not transforms.active()


@SCRIPT
def test_derivatives_in_a_direction():
    (model,) = networks("mixed", 1)
    model.double()
    x, direction = inputs(2, 2, 6, 5).double(), inputs(2, 2, 6, 5, seed=1).double()
    _, forward = jvp(model, (x,), (direction,))
    _, backward = torch.autograd.functional.jvp(model, x, direction)
    close(forward, backward, 1e-11)
    with forward_ad.dual_level():
        dual = forward_ad.unpack_dual(model(forward_ad.make_dual(x, direction)))
    close(dual.tangent, forward, 1e-11)


@SCRIPT
def test_second_derivatives_by_transforms():
    (model,) = networks("sine", 1)
    model.double()
    x = inputs(1, 2, 3, 3).double()
    found = hessian(lambda x: model(x).square().sum())(x).view(18, 18)
    expected = torch.autograd.functional.hessian(lambda x: model(x).square().sum(), x).view(18, 18)
    close(found, expected, 1e-10)
    close(
        jacrev(lambda x: model(x).sum((0, 1)))(x),
        torch.autograd.functional.jacobian(lambda x: model(x).sum((0, 1)), x),
        1e-11,
    )


def test_transposed_layers():
    factory = Operational({"sine": ops.Sine(), "gaussian": ops.Gaussian()})
    models = []
    for seed in range(3):
        torch.manual_seed(seed)
        models.append(factory(spec(2, 4, transposed=True, stride=(2, 3), groups=2)))
    parameters, buffers = stack_module_state(models)
    x = inputs(2, 2, 5, 4)
    got = vmap(lambda p, b: functional_call(models[0], (p, b), (x,)))(parameters, buffers)
    assert models[0].memory.chosen == "chebyshev"
    for index, model in enumerate(models):
        close(got[index], model(x), 2e-6)


@pytest.mark.parametrize("requested", ["auto", "chebyshev", "tapwise", "reference"])
def test_named_kernels_under_transforms(case, requested):
    layer = case([ops.Sine()])
    memory = Memory(requested=requested)
    got = vmap(lambda w: compute.run(layer.call, layer.x, w, layer.gain, layer.bias, memory))(layer.weight[None])[0]
    close(got, layer.run("reference").y, 1e-6)
    assert memory.chosen == ("chebyshev" if requested in ("auto", "chebyshev") else "reference")


def test_weights_of_very_different_sizes_have_no_expansion_in_common(case):
    layer = case([ops.Sine()])
    weights = torch.stack([layer.weight, layer.weight * 1e-3])
    memory = Memory()
    for _ in range(2):
        got = vmap(lambda w: compute.run(layer.call, layer.x, w, None, None, memory))(weights)
    assert len(memory.plans["stacked"]) == 1
    assert memory.chosen == "reference"
    assert "too different sizes" in memory.reason
    for y, w in zip(got, weights, strict=True):
        close(y, compute.run(layer.call, layer.x, w, None, None, Memory(requested="reference")), 1e-6)


def test_a_new_plan_is_checked_on_other_elements(case, monkeypatch):
    layer = case([ops.Sine()])
    weights, checked = torch.stack([layer.weight * f for f in torch.linspace(0.5, 1, 20)]), []

    def failing(call, x, weight, gain, expansion):
        checked.append(weight)
        return len(checked) < 4

    monkeypatch.setattr(stacked, "_holds", failing)
    memory = Memory()
    for _ in range(2):
        vmap(lambda w: compute.run(layer.call, layer.x, w, None, None, memory))(weights)
        assert memory.chosen == "reference"
        assert "not in all of them" in memory.reason
    # the refusal is remembered
    assert len(checked) == 4


@pytest.mark.parametrize("value", [0.0, float("nan"), float("inf")])
def test_values_that_no_plan_can_be_made_from(case, value):
    layer = case([ops.Sine()])
    x = torch.full_like(layer.x, value)
    memory = Memory()
    got = vmap(lambda w: compute.run(layer.call, x, w, None, None, memory))(layer.weight[None])[0]
    expected = compute.run(layer.call, x, layer.weight, None, None, Memory(requested="reference"))
    torch.testing.assert_close(got, expected, equal_nan=True)
    assert memory.plans == {}


def test_an_empty_stack_element(case):
    layer = case([ops.Sine()])
    got = vmap(lambda w: compute.run(layer.call, layer.x[:0], w, None, None, Memory()))(layer.weight[None])
    assert got.shape == (1, 0, 8, 7, 5)


def test_compiled_stacks():
    models = networks("sine", 2)
    parameters, buffers = stack_module_state(models)
    x = inputs(2, 2, 7, 6)

    def call(p, b):
        return functional_call(models[0], (p, b), (x,))

    got = torch.compile(vmap(call), backend="aot_eager")(parameters, buffers)
    for index, model in enumerate(models):
        close(got[index], model(x), 3e-6)
    torch._dynamo.reset()
