"""What tapwise relies on: the forms of operators, selection by networks, and tiles that cover a layer once."""

import math

import pytest
import torch

from onn_runner import ops
from onn_runner.compute import Block, Call, Memory, forms, reference, tapwise, tiles
from onn_runner.compute.selection import choose
from onn_runner.ops import gop


def uniform(*size, span=1.0, seed=0):
    keyed = torch.Generator().manual_seed(seed)
    return (torch.rand(size, generator=keyed, dtype=torch.float64) * 2 - 1) * span


def instance(kind):
    return kind(k=1.7) if issubclass(kind, (ops.Sine, ops.Sinh)) else kind()


@pytest.mark.parametrize("kind", forms.FORMS, ids=lambda k: f"{k.__module__.rsplit('.', 1)[-1]}.{k.__name__}")
def test_forms_are_those_of_the_operators(kind):
    psi, known = instance(kind), forms.FORMS[kind]
    w, x = uniform(200, span=4.0), uniform(200, span=5.0, seed=1)
    torch.testing.assert_close(psi(w, x), psi(torch.ones_like(w), w * x))
    z = (w * x).requires_grad_()
    (expected,) = torch.autograd.grad(psi(torch.ones_like(z), z).sum(), z)
    torch.testing.assert_close(known.slope(psi, z).expand_as(z), expected)
    if known.key is not None:
        keys, order = known.key(z.detach()).sort()
        values = psi(torch.ones_like(z), z.detach())
        torch.testing.assert_close(psi(torch.ones_like(keys), keys), values[order])
        assert bool((values[order].diff() >= 0).all())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_slope_of_sinh_is_finite_where_sinh_is(dtype):
    largest = torch.tensor(torch.finfo(dtype).max, dtype=dtype).log() + math.log(2) - 0.01
    z = torch.tensor([-1.0, 1.0, 0.0], dtype=dtype) * largest
    slope = forms.FORMS[ops.Sinh].slope(ops.Sinh(), z)
    # exp of half the argument, whose rounding is 44 eps in the largest
    torch.testing.assert_close(slope, torch.cosh(z), rtol=100 * torch.finfo(dtype).eps, atol=0.0)


def test_there_is_no_slope_where_gop_clips():
    z = torch.tensor([-200.0, -11.0, 11.0, 200.0])
    assert not forms.FORMS[gop.Exponential].slope(gop.Exponential(), z).any()


def test_a_derived_operator_is_not_taken_for_its_base():
    class Falling(ops.Multiply):
        def __call__(self, w, x):
            return -w * x

    assert forms.form(ops.Multiply()) is not None
    assert forms.form(Falling()) is None


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7, 9, 16, 25])
@pytest.mark.parametrize("where", ["smallest", "middle", "largest"])
def test_choosing_is_sorting_and_names_the_first_of_equals(count, where):
    rank = {"smallest": 0, "middle": (count - 1) // 2, "largest": count - 1}[where]
    values = uniform(count, 50).mul(3).round()
    chosen = torch.empty(50, dtype=torch.uint8)
    best = choose(iter(values), count, rank, chosen)
    assert torch.equal(best, values.sort(0).values[rank])
    assert torch.equal(chosen.long(), (values == best).int().argmax(0))
    assert torch.equal(choose(iter(values), count, rank, None), best)


@pytest.mark.parametrize("where", [0, 2, 4])
def test_choosing_from_what_is_not_finite(where):
    values = torch.tensor([[math.nan, -math.inf], [1.0, math.inf], [2.0, 3.0], [math.inf, 4.0], [5.0, 5.0]])
    chosen = torch.empty(2, dtype=torch.uint8)
    best = choose(iter(values), 5, where, chosen)
    assert best[0].isnan()
    assert best[1] == {0: -math.inf, 2: 4.0, 4: math.inf}[where]
    assert chosen[1] == {0: 0, 2: 3, 4: 1}[where]
    assert 0 <= chosen[0] < 5


COVERED = {
    "plain": ((1, 1), (1, 1), 1, False, (9, 8)),
    "stride and groups": ((2, 3), (1, 1), 2, False, (11, 12)),
    "dilation": ((1, 2), (3, 1), 1, False, (12, 9)),
    "transposed": ((2, 1), (1, 2), 2, True, (5, 6)),
    "one row": ((1, 1), (1, 1), 1, False, (3, 40)),
    "1-D": ((2,), (1,), 1, False, (40,)),
}


@pytest.mark.parametrize("values", [1, 7, 60, 10**6])
@pytest.mark.parametrize("shape", COVERED)
def test_tiles_hold_each_product_once(shape, values, monkeypatch):
    monkeypatch.setattr(tiles, "POSITIONS", 20)
    stride, dilation, groups, transposed, size = COVERED[shape]
    blocks = (Block("a", ops.Multiply(), 0, 5), Block("b", ops.Sine(), 5, 6))
    call = Call(blocks, ops.Sum(), stride, dilation, groups, transposed=transposed)
    weight = torch.zeros(6, 4 // groups, *(3, 2)[: len(size)])
    x = torch.zeros(3, 4, *size)
    ones = Call((Block("mul", ops.Multiply(), 0, 6),), ops.Sum(), stride, dilation, groups, transposed=transposed)
    expected = reference.run(ones, torch.ones_like(x), torch.ones_like(weight), None, None, Memory())
    counted, pairs = torch.zeros_like(expected), torch.zeros_like(weight)
    for samples in tiles.batches(call, x, weight, values):
        for window in tiles.windows(call, x, weight, samples, values):
            for tile in tiles.tiles(call, 6, window, values):
                assert tile.block.start <= tile.neurons.start < tile.neurons.stop <= tile.block.stop
                part = Call((Block("mul", ops.Multiply(), 0, len(weight[tile.neurons])),), *call_rest(call))
                seen = torch.ones_like(tile.of("x", x)).transpose(0, 1)
                kernel = torch.ones_like(tile.of("w", weight))
                found = reference.run(part, seen, kernel, None, None, Memory())
                tile.of("y", counted)[...] += found.transpose(0, 1)
                tile.of("w", pairs)[...] += len(seen)
    assert torch.equal(counted, expected)
    assert bool((pairs >= len(x)).all())


def call_rest(call):
    return call.pool, call.stride, call.dilation, 1, None, call.transposed


@pytest.mark.parametrize("pool", ["sum", "median", "maximum", "minimum"])
@pytest.mark.parametrize("kind", [ops.Multiply, ops.Exponential, ops.Sinh, ops.Log, gop.Exponential, gop.Quadratic])
@pytest.mark.parametrize("span", [1.0, 20.0])
def test_saturated_and_clipped_operators(case, kind, pool, span):
    # at 20 GOP's exponents are clipped, expm1 is -1 to the last digit and sinh is huge
    case([kind()], pool=ops.named(pool), channels=(3, 5), span=span).check("tapwise")


@pytest.mark.parametrize("pool", ["sum", "median", "maximum", "correlation2"])
@pytest.mark.parametrize("nodal", [ops.Multiply(), ops.Sine(), ops.Exponential(), ops.Gaussian()])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_is_not_finite_stays_so(case, nodal, pool, bad):
    layer = case([nodal], pool=ops.named(pool), batch=1)
    layer.x[0, 1, 4, 3] = bad
    got, expected = (k.run(layer.call, layer.x, layer.weight, None, None, Memory()) for k in (tapwise, reference))
    assert torch.equal(got.isfinite(), expected.isfinite())


@pytest.mark.parametrize("pool", ["sum", "maximum", "median", "correlation2"])
def test_an_empty_batch(case, pool):
    layer = case([ops.Sine()], pool=ops.named(pool), batch=0)
    got = layer.run("tapwise")
    assert got.y.shape == (0, 8, 7, 5)
    assert not got.to_weight.any()
    assert got.to_x.shape == layer.x.shape


def test_many_values_in_one_row(case, monkeypatch):
    monkeypatch.setattr(tiles, "POSITIONS", 8)
    monkeypatch.setattr(tapwise, "VALUES", 8)
    case([ops.Sine(), ops.Exponential()], pool=ops.Maximum(), size=(5, 30)).check("tapwise")
    case([ops.Sine(), ops.Exponential()], pool=ops.Sum(), size=(5, 30)).check("tapwise")


@pytest.mark.parametrize("guard", [torch.no_grad, torch.inference_mode])
def test_no_index_where_no_gradient_is_asked_for(case, guard, monkeypatch):
    layer = case([ops.Sine()], pool=ops.Maximum())
    rooms = []
    monkeypatch.setattr(tapwise, "_room", lambda *arguments: rooms.append(arguments))
    with guard():
        tapwise.run(layer.call, layer.x.requires_grad_(), layer.weight.requires_grad_(), None, None, Memory())
    tapwise.run(layer.call, layer.x.detach(), layer.weight.detach(), None, None, Memory())
    assert not rooms
    tapwise.run(layer.call, layer.x, layer.weight, None, None, Memory())
    assert len(rooms) == 1
