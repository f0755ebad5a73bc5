"""Gradients of gradients: gradgradcheck, a third derivative, and what cannot be differentiated again."""

import pytest
import torch

from onn_runner import compute, ops
from onn_runner.compute import Block, Call, Memory, tapwise, tiles, twice
from onn_runner.errors import RunError


class RoundedOnce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, z):
        return z.round()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad):
        return grad


class Rounded(ops.Nodal):
    own_backward = True

    def __call__(self, w, x):
        return RoundedOnce.apply(4 * w * x) * x


def layer(pool, *, stride=(2, 1), groups=1, transposed=False, size=(5, 4), dtype=torch.float64):
    """A function of (x, weight, bias) by tapwise, with its inputs."""
    blocks = (Block("sine", ops.Sine(), 0, 3), Block("gaussian", ops.Gaussian(), 3, 4))
    ones = (1,) * len(size)
    call = Call(blocks, ops.named(pool), stride, ones, groups, transposed=transposed)
    keyed = torch.Generator().manual_seed(3)
    x = torch.randn(2, 2, *size, dtype=dtype, generator=keyed).requires_grad_()
    weight = torch.randn(4, 2 // groups, *(3, 2)[: len(size)], dtype=dtype, generator=keyed).requires_grad_()
    bias = torch.randn(4, dtype=dtype, generator=keyed).requires_grad_()
    gain = torch.tensor([0.5, 2.0, 1.0, 3.0], dtype=dtype)

    def run(x, weight, bias, kernel=tapwise):
        return kernel.run(call, x, weight, gain, bias, Memory())

    return run, (x, weight, bias)


@pytest.mark.parametrize("pool", ["sum", "mean", "median", "maximum", "minimum", "correlation2"])
def test_gradgradcheck(pool):
    run, inputs = layer(pool)
    assert torch.autograd.gradgradcheck(run, inputs)


@pytest.mark.parametrize("case", [{"groups": 2}, {"size": (6,), "stride": (2,)}, {"transposed": True}], ids=str)
def test_gradgradcheck_of_other_layers(case):
    run, inputs = layer("sum", **case)
    assert torch.autograd.gradgradcheck(run, inputs)


@pytest.mark.parametrize("pool", ["sum", "maximum", "correlation3"])
def test_each_derivative_equals_that_of_the_definition(pool, monkeypatch):
    # several windows of rows, channels and neurons
    monkeypatch.setattr(tiles, "POSITIONS", 4)
    monkeypatch.setattr(twice, "VALUES", 48)

    def derivatives(kernel):
        run, inputs = layer(pool, size=(9, 8))
        value = run(*inputs, kernel=kernel).square().sum()
        found = []
        for _ in range(3):
            grads = torch.autograd.grad(value, inputs[:2], create_graph=True)
            found.append(grads)
            value = sum(g.square().sum() for g in grads)
        return found

    for got, expected in zip(derivatives(tapwise), derivatives(compute.reference), strict=True):
        # float64 sums of some hundred terms; the third derivatives are of size 1e9
        torch.testing.assert_close(got, expected, rtol=1e-10, atol=1e-10)


def test_a_gradient_penalty_trains_as_by_the_definition():
    def step(kernel):
        run, (x, weight, bias) = layer("sum", dtype=torch.float32)
        y = run(x, weight, bias, kernel=kernel)
        (to_x,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        (to_x.square().sum() + y.square().mean()).backward()
        return weight.grad, bias.grad

    # single precision in two orders
    torch.testing.assert_close(step(tapwise), step(compute.reference), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("wanted", [0, 1, 2])
def test_a_penalty_on_one_gradient_alone(wanted):
    def penalty(kernel):
        run, inputs = layer("sum")
        leaf = inputs[wanted]
        run_on = [t if t is leaf else t.detach() for t in inputs]
        (first,) = torch.autograd.grad(run(*run_on, kernel=kernel).square().sum(), leaf, create_graph=True)
        return torch.autograd.grad(first.square().sum(), leaf)

    torch.testing.assert_close(penalty(tapwise), penalty(compute.reference))


def test_without_a_second_derivative_the_gradients_are_the_fast_ones():
    run, (x, weight, bias) = layer("maximum")
    plain = torch.autograd.grad(run(x, weight, bias).sum(), (x, weight, bias))
    again = torch.autograd.grad(run(x, weight, bias).sum(), (x, weight, bias), create_graph=True)
    assert all(torch.equal(a, b) for a, b in zip(plain, again, strict=True))


def test_an_operators_own_backward_that_cannot_is_told():
    call = Call((Block("rounded", Rounded(), 0, 1),), ops.Sum(), (1,), (1,))
    x = torch.randn(1, 1, 5, requires_grad=True)
    y = tapwise.run(call, x, torch.ones(1, 1, 2, requires_grad=True), None, None, Memory())
    (first,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
    with pytest.raises(RunError, match=r"operator rounded cannot be differentiated again.*own backward rule cannot"):
        first.sum().backward()


@pytest.mark.parametrize("batch", [0, 2])
def test_second_derivatives_of_a_linear_layer(batch):
    call = Call((Block("mul", ops.Multiply(), 0, 2),), ops.Sum(), (1,), (1,))
    x = torch.randn(batch, 1, 5, requires_grad=True)
    weight = torch.randn(2, 1, 2, requires_grad=True)
    y = tapwise.run(call, x, weight, None, None, Memory())
    (to_x,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    to_weight, to_itself = torch.autograd.grad(to_x.sum(), (weight, x), allow_unused=True)
    assert torch.equal(to_weight, torch.full_like(weight, 4.0 * batch))
    assert to_itself is None or not to_itself.any()
