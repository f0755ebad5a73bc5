"""Derivatives of higher order of the expansion: exact, as the reference's, and no burden on the first ones."""

from dataclasses import replace

import pytest
import torch

from onn_runner import compute, ops
from onn_runner.compute import Memory, plain, plan
from onn_runner.compute.convolution import convolve
from onn_runner.compute.expansion import Mix, banks, emphasis

USER = ops.FunctionNodal(function=lambda w, x: torch.tanh(w * x + 0.3) + torch.cos(w) * x)
LAYERS = {
    "multiply": ([ops.Multiply()], {}),
    "cubic": ([ops.Cubic()], {}),
    "log": ([ops.Log()], {}),
    "sine": ([ops.Sine()], {"stride": (2, 1), "dilation": (1, 2)}),
    "gaussian": ([ops.Gaussian()], {"pool": ops.Mean()}),
    "exponential": ([ops.Exponential()], {}),
    "user": ([USER], {"groups": 2}),
    "mixed": ([ops.Sine(), ops.Exponential(), ops.DoG(), ops.Multiply()], {}),
    "grouped": ([ops.Sine(), ops.Gaussian()], {"groups": 2}),
    "line": ([ops.Sine()], {"size": (9,), "kernel": (3,)}),
    "space": ([ops.Exponential()], {"size": (3, 4, 3), "kernel": (2, 1, 2)}),
}


def expanded(case, name, **changes):
    """A layer, and its expansion in single precision, which is as good a function as any in double precision."""
    nodals, options = LAYERS[name]
    small = {"channels": (2, 4), "size": (5, 4), "kernel": (2, 2), "batch": 1}
    layer = case(nodals, **{**small, **options, **changes})
    found = plan.find(layer.call, layer.x, layer.weight, layer.gain, Memory(requested="chebyshev"))
    assert found.expansion is not None
    return layer, found.expansion


@pytest.mark.parametrize("name", LAYERS)
def test_gradients_of_gradients(case, name):
    layer, expansion = expanded(case, name)
    gain = layer.gain.double()
    leaves = [(0.9 * t).double().requires_grad_() for t in (layer.x, layer.weight, layer.bias)]

    def function(x, weight, bias):
        return convolve(x, weight, gain, bias, layer.call, expansion)

    assert torch.autograd.gradgradcheck(function, leaves)


@pytest.mark.parametrize("name", ["gaussian", "grouped", "mixed"])
def test_gradients_of_gradients_of_transposed_layers(case, name):
    layer, expansion = expanded(case, name, size=(3, 2))
    call = replace(layer.call, transposed=True, stride=(2, 1))
    leaves = [(0.9 * t).double().requires_grad_() for t in (layer.x, layer.weight, layer.bias)]

    def function(x, weight, bias):
        return convolve(x, weight, None, bias, call, expansion)

    torch.testing.assert_close(function(*leaves), plain.expanded(call, *leaves[:2], None, leaves[2], expansion))
    assert torch.autograd.gradgradcheck(function, leaves)


@pytest.mark.parametrize("needed", [(True, False, False), (False, True, False), (False, True, True)])
def test_gradients_of_some_gradients(case, needed):
    layer, expansion = expanded(case, "mixed")
    leaves = [
        t.double().requires_grad_(need) for t, need in zip((layer.x, layer.weight, layer.bias), needed, strict=True)
    ]

    def function(x, weight, bias):
        return convolve(x, weight, None, bias, layer.call, expansion)

    assert torch.autograd.gradgradcheck(function, leaves)


def test_a_third_derivative(case):
    layer, expansion = expanded(case, "sine", channels=(1, 1), size=(3, 3))
    x, weight = layer.x.double().requires_grad_(), layer.weight.double()

    def second(x):
        y = convolve(x, weight, None, None, layer.call, expansion).sum()
        (first,) = torch.autograd.grad(y, x, create_graph=True)
        return torch.autograd.grad(first.square().sum(), x, create_graph=True)[0]

    assert torch.autograd.gradcheck(second, x)


@pytest.mark.parametrize("name", LAYERS)
def test_plain_operations_compute_what_the_fast_ones_do(case, name):
    layer, expansion = expanded(case, name, size=LAYERS[name][1].get("size", (9, 7)))
    x, weight, bias = (t.requires_grad_() for t in (layer.x, layer.weight, layer.bias))
    fast = convolve(x, weight, layer.gain, bias, layer.call, expansion)
    slow = plain.expanded(layer.call, x, weight, layer.gain, bias, expansion)
    # sums of at most a few hundred numbers in another order
    torch.testing.assert_close(slow, fast, rtol=1e-5, atol=1e-5)
    upstream = torch.randn(fast.shape, generator=torch.Generator().manual_seed(1))
    pairs = (torch.autograd.grad(y, (x, weight, bias), upstream) for y in (slow, fast))
    for got, expected in zip(*pairs, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5 * float(expected.abs().max()))


def test_asking_for_a_graph_does_not_change_the_gradients(case):
    layer, expansion = expanded(case, "mixed", size=(9, 7), batch=3)
    x, weight, bias = (t.requires_grad_() for t in (layer.x, layer.weight, layer.bias))
    y = convolve(x, weight, layer.gain, bias, layer.call, expansion)
    upstream = torch.randn(y.shape, generator=torch.Generator().manual_seed(1))
    plainly = torch.autograd.grad(y, (x, weight, bias), upstream, retain_graph=True)
    again = torch.autograd.grad(y, (x, weight, bias), upstream, create_graph=True)
    for one, two in zip(plainly, again, strict=True):
        assert torch.equal(one, two)
        assert two.requires_grad or two is again[2]


def penalised(layer, requested, dtype):
    """The gradients of a critic's loss with a gradient penalty, through the layer."""
    x, weight, bias = (t.detach().to(dtype, copy=True).requires_grad_() for t in (layer.x, layer.weight, layer.bias))
    memory = Memory(requested=requested)
    y = torch.tanh(compute.run(layer.call, x, weight, layer.gain.to(dtype), bias, memory))
    (slope,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    loss = y.mean() + (slope.flatten(1).norm(dim=1) - 1).square().mean()
    return memory.chosen, torch.autograd.grad(loss, (x, weight, bias))


@pytest.mark.parametrize("nodals", [[ops.Sine()], [ops.Sine(), ops.Exponential(), ops.Multiply()]])
def test_a_gradient_penalty(case, nodals):
    layer = case(nodals, size=(9, 8), batch=3)
    chosen, found = penalised(layer, "chebyshev", torch.float32)
    _, inexact = penalised(layer, "reference", torch.float32)
    _, exact = penalised(layer, "reference", torch.float64)
    assert chosen == "chebyshev"
    for got, rounded, truth in zip(found, inexact, exact, strict=True):
        error, inherent = ((t.double() - truth).norm() / truth.norm() for t in (got, rounded))
        # second derivatives lose a factor of the degree more than the first ones, whose tolerance is 3e-6
        assert error <= max(2 * inherent, 1e-5)


def test_a_layer_that_is_applied_twice(case):
    # the second input and the gradient to the first output depend on the same weights
    layer, expansion = expanded(case, "mixed", channels=(4, 4), size=(3, 3), kernel=(1, 1))
    x, weight = layer.x.double().requires_grad_(), (0.5 * layer.weight).double().requires_grad_()

    def function(x, weight):
        y = torch.tanh(convolve(x, weight, None, None, layer.call, expansion))
        return torch.tanh(convolve(y, weight, None, None, layer.call, expansion))

    assert torch.autograd.gradcheck(function, (x, weight))
    assert torch.autograd.gradgradcheck(function, (x, weight))


def test_mixtures_of_members_are_differentiated_as_well(case):
    layer, expansion = expanded(case, "mixed", channels=(4, 8), groups=2, size=(4, 4))
    mixes = []
    for bank in banks(expansion, 2):
        if bank.form != "product":
            size = bank.members
            keyed = torch.Generator().manual_seed(size)
            rotation, _ = torch.linalg.qr(torch.randn(size, size, generator=keyed, dtype=torch.float64))
            # as many mixtures as members: they stand for the same polynomials
            rows = rotation / emphasis(bank.kind, size)
            mixes.append(Mix(bank.kind, tuple(tuple(row) for row in rows.tolist())))
    mixed = replace(expansion, mixes=tuple(mixes))
    x, weight = (0.9 * layer.x).double().requires_grad_(), (0.9 * layer.weight).double().requires_grad_()

    def function(x, weight):
        return convolve(x, weight, None, None, layer.call, mixed)

    for compute_by in (convolve, lambda *a: plain.expanded(a[4], *a[:4], a[5])):
        y = compute_by(x, weight, None, None, layer.call, mixed)
        torch.testing.assert_close(y, plain.expanded(layer.call, x, weight, None, None, expansion))
    assert torch.autograd.gradgradcheck(function, (x, weight))


IGNORING = {
    "weight": lambda w, x: torch.sin(x).expand(torch.broadcast_shapes(w.shape, x.shape)),
    "x": lambda w, x: torch.tanh(w) + 0 * x.detach(),
}


@pytest.mark.parametrize("ignored", IGNORING)
def test_second_derivatives_of_operators_that_ignore_what_is_differentiated(case, ignored):
    layer = case([ops.FunctionNodal(function=IGNORING[ignored])])
    memory = Memory(requested="chebyshev")
    tensors = {"x": layer.x.clone(), "weight": layer.weight.clone()}
    leaf = tensors[ignored].requires_grad_()
    y = compute.run(layer.call, tensors["x"], tensors["weight"], None, None, memory)
    upstream = torch.ones_like(y).requires_grad_()
    (first,) = torch.autograd.grad(y, leaf, upstream, create_graph=True)
    assert memory.chosen == "chebyshev"
    assert not first.any()
    again = torch.autograd.grad(first.sum(), (leaf, upstream), allow_unused=True)
    assert all(found is None or not found.any() for found in again)
