"""The linear maps of a layer: by torch, in parts and by the Fourier transform, forward and both gradients."""

import dataclasses
import itertools
import math

import pytest
import torch
import torch.nn.functional as F

from onn_runner import ops
from onn_runner.compute import Block, Call, correlation, few_outputs, fourier


def uniform(*shape, seed=0, dtype=torch.float32):
    return (torch.rand(shape, generator=torch.Generator().manual_seed(seed)) * 2 - 1).to(dtype)


def call_of(outputs=4, **options):
    call = Call((Block("mul", ops.Multiply(), 0, outputs),), ops.Sum(), (1, 1), (1, 1))
    return dataclasses.replace(call, **options)


def relative(got, exact):
    return float((got.double() - exact).norm() / exact.norm())


@pytest.mark.parametrize("size", [(7, 7), (21, 34), (40, 31)])
@pytest.mark.parametrize("kernel", [(1, 1), (5, 5), (7, 4), (2, 6)])
@pytest.mark.parametrize(("batch", "inputs", "outputs"), [(1, 1, 3), (2, 3, 1), (3, 5, 4)])
def test_fourier_is_a_convolution(size, kernel, batch, inputs, outputs):
    x, weight = uniform(batch, inputs, *size, dtype=torch.float64), uniform(outputs, inputs, *kernel, seed=1).double()
    x, weight = x.requires_grad_(), weight.requires_grad_()
    y = F.conv2d(x, weight)
    grad = uniform(*y.shape, seed=2, dtype=torch.float64)
    to_x, to_weight = torch.autograd.grad(y, (x, weight), grad)
    # double precision: some 1e-16 for each factor of 2 of the size
    torch.testing.assert_close(fourier.forward(x, weight), y, rtol=1e-12, atol=1e-12)
    found = fourier.backward(grad, x, weight, (True, True))
    torch.testing.assert_close(found[0], to_x, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(found[1], to_weight, rtol=1e-12, atol=1e-11)
    assert fourier.backward(grad, x, weight, (True, False))[1] is None


def test_fourier_in_single_precision_is_nearer_than_the_convolution():
    x, weight = uniform(1, 4, 94, 90), uniform(8, 4, 21, 21, seed=1)
    exact = F.conv2d(x.double(), weight.double())
    assert relative(fourier.forward(x, weight), exact) < relative(F.conv2d(x, weight), exact)


def test_sizes_of_transforms_are_even_and_smooth():
    for least, size in itertools.product(range(1, 200), [None]):
        size = fourier.fast_size(least)
        assert size >= least
        assert size % 2 == 0
        rest = size
        for prime in (2, 3, 5):
            while rest % prime == 0:
                rest //= prime
        assert rest == 1
    assert [fourier.fast_size(n) for n in (1, 94, 97, 101)] == [2, 96, 100, 108]


def test_large_kernels_of_few_channels_go_through_the_transform():
    call = call_of()
    assert correlation.by_fourier(call, (1, 4, 94, 94), (16, 4, 21, 21))
    assert not correlation.by_fourier(call, (4, 64, 62, 62), (32, 64, 3, 3))
    assert not correlation.by_fourier(call, (1, 512, 94, 94), (512, 512, 21, 21)), "its spectrum would not fit"
    for other in ({"stride": (2, 1)}, {"dilation": (1, 2)}, {"groups": 2}, {"transposed": True}):
        assert not correlation.by_fourier(call_of(**other), (1, 4, 94, 94), (16, 4, 21, 21))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"stride": (2, 3)},
        {"dilation": (2, 1)},
        {"groups": 2},
        {"transposed": True},
        {"transposed": True, "stride": (3, 2), "dilation": (1, 2), "groups": 2},
    ],
    ids=str,
)
@pytest.mark.parametrize("kernel", [(3, 3), (7, 6), (9, 1)])
def test_maps_and_gradients(options, kernel, monkeypatch):
    call = call_of(**options)
    x, weight = uniform(3, 8, 23, 17, seed=3), uniform(4, 8 // call.groups, *kernel, seed=4)
    offset = uniform(4, seed=5)
    xd, wd = x.double().requires_grad_(), weight.double().requires_grad_()
    kernel_of = {"stride": call.stride, "dilation": call.dilation, "groups": call.groups}
    if call.transposed:
        swapped = wd.view(call.groups, -1, *wd.shape[1:]).transpose(1, 2).flatten(0, 1)
        exact = F.conv_transpose2d(xd, swapped, offset.double(), **kernel_of)
    else:
        exact = F.conv2d(xd, wd, offset.double(), **kernel_of)
    grad = uniform(*exact.shape, seed=6)
    to_x, to_weight = torch.autograd.grad(exact, (xd, wd), grad.double())
    for positions in (20, 100, 4096):
        monkeypatch.setattr(correlation, "POSITIONS", positions)
        total = torch.zeros_like(weight, dtype=torch.float64)
        to_members = correlation.backward(grad, x, weight, call, total=total, need_members=True)
        # single precision; sums of some thousand products
        assert relative(total, to_weight) < 1e-6
        assert relative(to_members, to_x) < 1e-6
    assert relative(correlation.forward(x, weight, offset, call), exact.detach()) < 1e-6


@pytest.mark.parametrize("outputs", [1, 3, 4])
@pytest.mark.parametrize("kernel", [(3, 3), (1, 4), (5, 3), (7, 7), (5,), (2, 3, 2)])
@pytest.mark.parametrize("dilated", [False, True])
def test_few_outputs(outputs, kernel, dilated, monkeypatch):
    dims = len(kernel)
    call = call_of(outputs, stride=(1,) * dims, dilation=((2, 1, 2) if dilated else (1, 1, 1))[:dims])
    x, weight = uniform(2, 9, *(15, 17, 5)[:dims], seed=3), uniform(outputs, 9, *kernel, seed=4)
    assert few_outputs.serves(call, tuple(weight.shape)) == (outputs * math.prod(kernel) <= 64)
    xd, wd = x.double().requires_grad_(), weight.double().requires_grad_()
    convolution = (F.conv1d, F.conv2d, F.conv3d)[dims - 1]
    exact = convolution(xd, wd, dilation=call.dilation)
    grad = uniform(*exact.shape, seed=6)
    to_x, to_weight = torch.autograd.grad(exact, (xd, wd), grad.double())
    monkeypatch.setattr(few_outputs, "POSITIONS", 50)
    # single precision; sums of some hundred products
    assert relative(few_outputs.forward(x, weight, call), exact.detach()) < 1e-6
    assert relative(few_outputs.to_input(grad, weight, x, call), to_x) < 1e-6
    assert relative(few_outputs.to_weight(grad, x, weight, call), to_weight) < 1e-6


def test_few_outputs_are_no_more_than_four_of_stride_one():
    assert few_outputs.serves(call_of(1), (1, 64, 3, 3))
    for other in ({"stride": (2, 1)}, {"groups": 2}, {"transposed": True}):
        assert not few_outputs.serves(call_of(2, **other), (2, 64, 3, 3))
    assert not few_outputs.serves(call_of(5), (5, 64, 3, 3))
    assert not few_outputs.serves(call_of(1), (1, 64, 9, 9))


def test_sums_over_many_taps_are_cut():
    call = call_of(16)
    x, weight = uniform(1, 64, 40, 40), uniform(16, 64, 9, 9, seed=1)
    exact = F.conv2d(x.double(), weight.double())
    whole = relative(F.conv2d(x, weight), exact)
    assert relative(correlation.forward(x, weight, torch.zeros(16), call), exact) < whole
