"""The definition under torch.func and torch.export, and transposed layers against zeros inserted by hand."""

from functools import partial

import pytest
import torch

from onn_runner import compute, ops
from onn_runner.compute import Block, Call, Memory, reference, tapwise, tiles
from onn_runner.errors import ConfigError

BLOCKS = (Block("log", ops.Log(), 0, 2), Block("gaussian", ops.Gaussian(), 2, 6))


def rand(*size, seed=0):
    return torch.rand(size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 2 - 1


def layer(call, x, weight, bias, kernel=reference):
    return kernel.run(call, x, weight, torch.arange(1.0, 7.0, dtype=x.dtype), bias, Memory())


def zero_inserted(call, x, weight, bias):
    """sum over taps of psi at the inputs that stride and padding by zeros bring, and of 0 at the zeros."""
    spans = [d * (k - 1) for d, k in zip(call.dilation, weight.shape[2:], strict=True)]
    wide = [(n - 1) * s + 1 + 2 * p for n, s, p in zip(x.shape[2:], call.stride, spans, strict=True)]
    values, real = x.new_zeros(*x.shape[:2], *wide), torch.zeros(wide, dtype=torch.bool)
    places = tuple(slice(p, w - p, s) for p, w, s in zip(spans, wide, call.stride, strict=True))
    values[(..., *places)], real[places] = x, True
    # y[p] sees x[i] by the tap t with p = i + t dilation: a window that is read backwards
    flipped = weight.flip(*range(2, weight.dim()))

    class Real(ops.Nodal):
        def __init__(self, nodal):
            object.__setattr__(self, "nodal", nodal)

        def __call__(self, w, x):
            return torch.where(x.isnan(), 0.0, self.nodal(w, torch.nan_to_num(x)))

    values = torch.where(real, values, torch.nan)
    blocks = tuple(Block(b.name, Real(b.nodal), b.start, b.stop) for b in call.blocks)
    plain = Call(blocks, call.pool, (1,) * len(spans), call.dilation, call.groups)
    return layer(plain, values, flipped, bias)


TRANSPOSED = {
    "one to one": ((2, 2), (1, 1), (3, 3), (4, 5), 1),
    "stride": ((2, 3), (1, 1), (3, 2), (4, 3), 1),
    "stride beyond the kernel": ((3, 4), (1, 1), (2, 1), (3, 4), 1),
    "dilation": ((2, 1), (2, 3), (3, 2), (4, 5), 1),
    "groups": ((2, 2), (1, 1), (3, 3), (3, 4), 2),
    "1-D": ((3,), (2,), (4,), (7,), 1),
    "3-D": ((2, 1, 2), (1, 2, 1), (2, 2, 1), (2, 3, 4), 2),
    "one pixel": ((2, 2), (1, 1), (3, 3), (1, 1), 1),
}


@pytest.mark.parametrize("kernel", [reference, tapwise], ids=["reference", "tapwise"])
@pytest.mark.parametrize("pool", ["sum", "mean"])
@pytest.mark.parametrize("shape", TRANSPOSED)
def test_transposed_layers(shape, pool, kernel):
    stride, dilation, size, spatial, groups = TRANSPOSED[shape]
    call = Call(BLOCKS, ops.named(pool), stride, dilation, groups, transposed=True)
    x, weight, bias = rand(3, 2, *spatial), rand(6, 2 // groups, *size, seed=1), rand(6, seed=2)
    inputs = [t.requires_grad_() for t in (x, weight, bias)]
    y, expected = layer(call, *inputs, kernel=kernel), zero_inserted(call, *inputs)
    sizes = [(n - 1) * s + d * (k - 1) + 1 for n, s, d, k in zip(spatial, stride, dilation, size, strict=True)]
    assert [*y.shape] == [3, 6, *sizes]
    torch.testing.assert_close(y, expected)
    upstream = rand(*y.shape, seed=3)
    got = torch.autograd.grad(y, inputs, upstream)
    torch.testing.assert_close(got, torch.autograd.grad(expected, inputs, upstream))


def test_a_transposed_product_is_torchs_transposed_convolution():
    call = Call((Block("mul", ops.Multiply(), 0, 6),), ops.Sum(), (2, 3), (1, 2), transposed=True)
    x, weight = rand(2, 4, 5, 6), rand(6, 4, 3, 2, seed=1)
    expected = torch.nn.functional.conv_transpose2d(x, weight.transpose(0, 1), stride=(2, 3), dilation=(1, 2))
    for kernel in (reference, tapwise):
        torch.testing.assert_close(kernel.run(call, x, weight, None, None, Memory()), expected)


def test_tapwise_cuts_transposed_layers_into_tiles(monkeypatch):
    monkeypatch.setattr(tiles, "POSITIONS", 6)
    monkeypatch.setattr(tapwise, "VALUES", 12)
    call = Call(BLOCKS, ops.Sum(), (2, 1), (1, 1), transposed=True)
    x, weight, bias = (t.requires_grad_() for t in (rand(2, 4, 7, 5), rand(6, 4, 3, 3, seed=1), rand(6, seed=2)))
    got, expected = (layer(call, x, weight, bias, kernel=k) for k in (tapwise, reference))
    torch.testing.assert_close(got, expected)
    for a, b in zip(*(torch.autograd.grad(y.square().sum(), (x, weight)) for y in (got, expected)), strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("name", ["tapwise", "reference", "auto"])
@pytest.mark.parametrize("pool", ["median", "maximum", "correlation2"])
def test_other_pools_of_a_transposed_layer_are_refused(name, pool):
    call = Call(BLOCKS, ops.named(pool), (2, 2), (1, 1), transposed=True)
    with pytest.raises(ConfigError, match=f"the pool {pool} is not a sum"):
        compute.run(call, rand(1, 2, 4, 4), rand(6, 2, 3, 3), None, None, Memory(requested=name))


CALLS = [
    Call(BLOCKS, ops.named("sum"), (2, 1), (1, 1)),
    Call(BLOCKS, ops.named("median"), (1, 1), (1, 2), 2),
    Call(BLOCKS, ops.named("maximum"), (1, 1), (1, 1)),
    Call(BLOCKS, ops.named("mean"), (2, 1), (1, 1), transposed=True),
]


@pytest.mark.parametrize("call", CALLS, ids=lambda c: f"{c.pool.name}{' transposed' * c.transposed}")
def test_stacked_weights_by_vmap_equal_a_loop(call):
    x, bias = rand(2, 4, 7, 6), rand(6, seed=2)
    weights = rand(5, 6, 4 // call.groups, 3, 2, seed=1)
    got = torch.vmap(partial(layer, call), in_dims=(None, 0, None))(x, weights, bias)
    torch.testing.assert_close(got, torch.stack([layer(call, x, w, bias) for w in weights]))

    def loss(x, weight):
        return layer(call, x, weight, bias).square().sum()

    found = torch.vmap(torch.func.grad(loss, argnums=(0, 1)), in_dims=(None, 0))(x, weights)
    for index, weight in enumerate(weights):
        leaves = [t.clone().requires_grad_() for t in (x, weight)]
        expected = torch.autograd.grad(loss(*leaves), leaves)
        torch.testing.assert_close(tuple(f[index] for f in found), expected)


@pytest.mark.parametrize("call", CALLS, ids=lambda c: f"{c.pool.name}{' transposed' * c.transposed}")
def test_samples_by_vmap_equal_a_batch(call):
    x, weight, bias = rand(3, 4, 7, 6), rand(6, 4 // call.groups, 3, 2, seed=1), rand(6, seed=2)
    one = torch.vmap(lambda sample: layer(call, sample[None], weight, bias)[0])
    torch.testing.assert_close(one(x), layer(call, x, weight, bias))


@pytest.mark.parametrize("call", CALLS, ids=lambda c: f"{c.pool.name}{' transposed' * c.transposed}")
def test_export(call):
    class Layer(torch.nn.Module):
        def forward(self, x, weight):
            return layer(call, x, weight, None)

    x, weight = rand(2, 4, 7, 6), rand(6, 4 // call.groups, 3, 2, seed=1)
    program = torch.export.export(Layer(), (x, weight), dynamic_shapes=({0: torch.export.Dim("batch")}, None))
    other = rand(5, 4, 7, 6, seed=4)
    torch.testing.assert_close(program.module()(other, weight), layer(call, other, weight, None))
