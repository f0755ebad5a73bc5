"""The fused kernels, forward and backward, by Triton's interpreter on the CPU, against the definition in float64.

The interpreter must be chosen before triton is imported: `test_compute_fused` runs this file in a process of its own.
"""

import os

import pytest
import torch

from onn_runner import compute, ops
from onn_runner.compute import Block, Call, Memory, fused
from onn_runner.errors import ConfigError
from onn_runner.ops import gop

if os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("run by test_compute_fused with Triton's interpreter", allow_module_level=True)

import triton
import triton.language as tl

from onn_runner.compute.fused import elementary

# numpy tells of overflows and NaN, which are meant here
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

OPERATORS = [
    ops.Multiply(),
    ops.Cubic(k=2.0),
    ops.Quadratic(k=3.0),
    ops.Sine(k=2.0),
    ops.Exponential(),
    ops.Sinh(k=0.1),
    ops.Sinc(k=1000.0, a=0.01),
    ops.Chirp(k=10000.0),
    ops.Gaussian(k=100.0),
    ops.DoG(k=0.5),
    ops.Log(),
    gop.Exponential(),
    gop.Quadratic(k=2.0),
    gop.Gaussian(k=2.0),
    gop.DoG(),
]
SMALL = {"channels": (1, 2), "size": (5, 4), "kernel": (3, 1)}
"""The interpreter takes a millisecond for each tap."""


@pytest.fixture(autouse=True)
def by_name(monkeypatch):
    """compute=fused, also where `auto` does not know it."""
    monkeypatch.setitem(compute.KERNELS, "fused", fused)


def name(nodal):
    return f"{type(nodal).__module__.rpartition('.')[2]}.{type(nodal).__name__}"


@pytest.mark.parametrize("nodal", OPERATORS, ids=name)
@pytest.mark.parametrize("pool", ["sum", "mean", "median", "maximum", "minimum"])
def test_operators_and_pools(case, nodal, pool):
    assert case([nodal], pool=ops.named(pool, True), **SMALL).check("fused").chosen == "fused"


@pytest.mark.parametrize("nodal", OPERATORS, ids=name)
def test_operators_in_double_precision(case, nodal):
    case([nodal], **SMALL).check("fused", torch.float64)


def test_the_floor_of_a_logarithm_in_double_precision(case):
    case([ops.Log()], span=3.0, **SMALL).check("fused", torch.float64)


@pytest.mark.parametrize(("reach", "span"), [(1e-6, 1.0), (50.0, 0.01), (1.0, 20.0)])
@pytest.mark.parametrize("nodal", OPERATORS[3:], ids=name)
def test_weights_and_inputs_of_any_size(case, nodal, reach, span):
    case([nodal], channels=(1, 1), size=(4, 3), kernel=(1, 2), batch=1, reach=reach, span=span).check("fused")


SHAPES = {
    "one pixel": {"size": (1, 1), "kernel": (1, 1), "channels": (3, 2)},
    "even kernel": {"size": (6, 7), "kernel": (2, 4), "channels": (1, 2)},
    "stride": {"size": (8, 7), "stride": (2, 3), "channels": (1, 2), "batch": 1},
    "stride and dilation": {"size": (9, 8), "stride": (3, 2), "dilation": (2, 3), "kernel": (3, 2), "channels": (1, 2)},
    "unseen margin": {"size": (8, 8), "stride": (3, 3), "kernel": (2, 2), "channels": (1, 2), "batch": 1},
    "groups": {"groups": 2, "size": (5, 4), "channels": (6, 6), "kernel": (2, 1), "batch": 1},
    "depthwise": {"groups": 2, "size": (5, 4), "channels": (2, 4), "kernel": (2, 2)},
    "1-D": {"size": (11,), "kernel": (4,), "stride": (2,), "groups": 2, "channels": (4, 4)},
    "3-D": {"size": (3, 4, 5), "kernel": (2, 3, 1), "stride": (1, 2, 1), "dilation": (2, 1, 1), "channels": (1, 2)},
    "several tiles": {"size": (7, 8), "kernel": (2, 1), "channels": (3, 3), "batch": 1},
}


@pytest.mark.parametrize("pool", ["sum", "maximum"])
@pytest.mark.parametrize("shape", SHAPES)
def test_shapes(case, monkeypatch, shape, pool):
    monkeypatch.setattr(compute.fused.launch, "ROWS", 2)
    monkeypatch.setattr(compute.fused.launch, "LANES", 32)
    case([ops.Sine(), ops.Exponential()], pool=ops.named(pool), **SHAPES[shape]).check("fused")


@pytest.mark.parametrize("kernel", [(3, 3), (2, 2)])
def test_medians_of_windows(case, kernel):
    case([ops.Sine()], pool=ops.Median(), kernel=kernel, channels=(2, 2), size=(6, 5), batch=1).check("fused")


def test_more_taps_than_one_run_of_the_sums(case):
    case([ops.Sine()], size=(45,), kernel=(40,), channels=(1, 1), batch=1).check("fused")


def test_blocks_that_share_a_group(case):
    layer = case([ops.Sine(), ops.Exponential(), ops.Log()], groups=2, channels=(2, 6), size=(4, 3), kernel=(2, 1))
    assert [(b.start, b.stop) for b in layer.call.blocks] == [(0, 2), (2, 4), (4, 6)]
    layer.check("fused")


@pytest.mark.parametrize("programs", [1, 7])
def test_the_gradient_to_w_in_chunks_of_any_length(case, monkeypatch, programs):
    monkeypatch.setattr(compute.fused.launch, "PROGRAMS", programs)
    monkeypatch.setattr(compute.fused.launch, "LANES", 32)
    case([ops.Sine()], channels=(1, 1), size=(23, 25), kernel=(1, 2), batch=1).check("fused")


def test_long_sums_lose_nothing():
    """800 terms of one sign: each addition of a plain sum in single precision may lose 6e-8 of it."""
    call = Call((Block("mul", ops.Multiply(), 0, 1),), ops.Sum(), (1,), (1,))
    keyed = torch.Generator().manual_seed(2)
    x, weight = torch.rand(1, 20, 42, generator=keyed), torch.rand(1, 20, 40, generator=keyed)
    got = fused.run(call, x, weight, None, None, Memory())
    exact = compute.reference.run(call, x.double(), weight.double(), None, None, Memory())
    torch.testing.assert_close(got.double(), exact, rtol=1e-7, atol=0)


@pytest.mark.parametrize("pool", ["sum", "maximum", "minimum", "median"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_values_that_are_not_finite(case, pool, value):
    layer = case([ops.Multiply(), ops.Exponential()], pool=ops.named(pool), size=(5, 4), kernel=(3, 2), channels=(1, 2))
    layer.x[1, 0, 2, 3] = value
    got, expected = layer.run("fused"), layer.run("tapwise")
    torch.testing.assert_close(got.y, expected.y, equal_nan=True, rtol=1e-5, atol=1e-5)
    for one, other in ((got.to_x, expected.to_x), (got.to_weight, expected.to_weight)):
        assert torch.equal(one.isfinite(), other.isfinite())


@pytest.mark.parametrize("pool", ["maximum", "minimum", "median"])
def test_the_first_of_equal_taps_has_the_gradient(case, pool):
    layer = case([ops.Sine()], pool=ops.named(pool), size=(6, 7), channels=(2, 2))
    # after relu half of the inputs are zero, and so is psi there
    layer.x = layer.x.relu()
    got, expected = layer.run("fused"), layer.run("tapwise")
    torch.testing.assert_close(got.to_x, expected.to_x, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(got.to_weight, expected.to_weight, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("pool", ["maximum", "median"])
def test_a_large_index_is_found_again(case, monkeypatch, pool):
    layer = case([ops.Sine(), ops.Exponential()], pool=ops.named(pool), batch=3, **SMALL)
    kept = layer.run("fused")
    monkeypatch.setattr(compute.fused.layer, "INDEX_BYTES", 100)
    again = layer.run("fused")
    assert torch.equal(kept.to_x, again.to_x)
    # sums over samples are cut elsewhere, and rounded once
    torch.testing.assert_close(kept.to_weight, again.to_weight, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("pool", ["sum", "median"])
def test_runs_repeat_bit_by_bit(case, pool):
    layer = case([ops.Sine(), ops.Log()], pool=ops.named(pool), **SMALL)
    first, second = layer.run("fused"), layer.run("fused")
    for what in ("y", "to_x", "to_weight", "to_bias"):
        assert torch.equal(getattr(first, what), getattr(second, what))


@pytest.mark.parametrize("pool", ["sum", "maximum"])
def test_an_empty_batch(pool):
    call = Call((Block("sine", ops.Sine(), 0, 3),), ops.named(pool), (1, 1), (1, 1))
    x = torch.empty(0, 2, 5, 4, requires_grad=True)
    weight = torch.ones(3, 2, 3, 2, requires_grad=True)
    y = fused.run(call, x, weight, None, None, Memory())
    y.sum().backward()
    assert y.shape == (0, 3, 3, 3)
    assert x.grad is not None
    assert x.grad.shape == x.shape
    assert weight.grad is not None
    assert not weight.grad.any()


def test_tensors_that_are_not_contiguous(case):
    layer = case([ops.Sine()], size=(5, 6), channels=(2, 3))
    expected = layer.run("fused")
    layer.x = layer.x.to(memory_format=torch.channels_last)
    layer.weight = layer.weight.transpose(2, 3).contiguous().transpose(2, 3)
    got = layer.run("fused")
    assert torch.equal(got.y, expected.y)
    assert torch.equal(got.to_x, expected.to_x)
    assert torch.equal(got.to_weight, expected.to_weight)


def test_only_the_gradient_that_is_wanted(case):
    layer = case([ops.Sine()], pool=ops.Maximum(), **SMALL)
    expected = layer.run("fused")
    upstream = torch.randn(expected.y.shape, generator=torch.Generator().manual_seed(5))
    x, weight = layer.x.clone().requires_grad_(), layer.weight.clone().requires_grad_()
    y = fused.run(layer.call, x, layer.weight, layer.gain, layer.bias, Memory())
    assert torch.equal(torch.autograd.grad(y, x, upstream)[0], expected.to_x)
    y = fused.run(layer.call, layer.x, weight, layer.gain, layer.bias, Memory())
    assert torch.equal(torch.autograd.grad(y, weight, upstream)[0], expected.to_weight)


@pytest.mark.parametrize("pool", ["sum", "maximum"])
def test_it_keeps_x_w_and_a_byte_index(case, pool):
    layer = case([ops.Sine()], pool=ops.named(pool), size=(9, 8), channels=(2, 4))
    sizes = {}

    def pack(tensor):
        sizes[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        x, weight = layer.x.clone().requires_grad_(), layer.weight.clone().requires_grad_()
        fused.run(layer.call, x, weight, None, None, Memory())
    index = layer.x.shape[0] * 4 * 2 * 7 * 6 if pool == "maximum" else 0
    assert sum(sizes.values()) == layer.x.nbytes + layer.weight.nbytes + index


@pytest.mark.parametrize("pool", ["sum", "maximum"])
def test_gradients_can_be_differentiated(case, pool):
    """A gradient penalty, whose second derivatives are tapwise's."""
    layer = case([ops.Sine(), ops.Exponential()], pool=ops.named(pool), **SMALL)
    found = []
    for kernel in (fused, compute.tapwise):
        leaves = [t.double().requires_grad_() for t in (layer.x, layer.weight, layer.bias)]
        y = kernel.run(layer.call, *leaves[:2], layer.gain.double(), leaves[2], Memory())
        first = torch.autograd.grad(y.square().sum(), leaves, create_graph=True)
        found.append(torch.autograd.grad(sum(g.square().sum() for g in first), leaves))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-11)


def test_no_index_is_made_where_nothing_learns(case, monkeypatch):
    layer = case([ops.Sine()], pool=ops.Maximum(), **SMALL)
    made, real = [], compute.fused.launch.Layer.forward

    def watched(self, block, gain, bias, y, index):
        made.append(index)
        return real(self, block, gain, bias, y, index)

    monkeypatch.setattr(compute.fused.launch.Layer, "forward", watched)
    weight = layer.weight.clone().requires_grad_()
    learning = fused.run(layer.call, layer.x, weight, layer.gain, layer.bias, Memory())
    with torch.no_grad():
        evaluating = fused.run(layer.call, layer.x, weight, layer.gain, layer.bias, Memory())
    assert [index is None for index in made] == [False, True]
    assert torch.equal(learning, evaluating)


def test_tensors_it_cannot_serve(case):
    layer = case([ops.Sine()], **SMALL)
    with pytest.raises(ConfigError, match=r"compute=fused cannot serve this layer: .* not torch\.float32 with .*64"):
        fused.run(layer.call, layer.x, layer.weight.double(), None, None, Memory())
    with pytest.raises(ConfigError, match="does not fit"):
        fused.run(layer.call, layer.x[:, :, :2], layer.weight, None, None, Memory())


@pytest.fixture
def verdicts(monkeypatch):
    monkeypatch.setattr(compute.fused.trust, "_verdicts", {})
    return compute.fused.trust._verdicts


@pytest.mark.parametrize("pool", ["sum", "median"])
def test_kernels_that_agree_are_trusted(case, verdicts, pool):
    layer = case(
        [ops.Sine(), ops.Exponential()], pool=ops.named(pool), groups=2, channels=(2, 4), size=(12, 5), kernel=(3, 2)
    )
    with torch.inference_mode():
        assert fused.trusted(layer.call, layer.x, layer.weight, Memory()) is None
    assert len(verdicts) == 2


def test_kernels_that_do_not_agree_are_not_trusted(case, verdicts, monkeypatch):
    layer = case([ops.Sine()], **SMALL)
    calls = []

    def wrong(*args):
        calls.append(args)
        return compute.tapwise.run(*args) * (1 + 1e-5)

    monkeypatch.setattr(compute.fused.trust, "run", wrong)
    for _ in range(2):
        assert fused.trusted(layer.call, layer.x, layer.weight, Memory()) == (
            "the fused kernel of sine is not accurate on cpu"
        )
    # three crops, once
    assert len(calls) == 3


def test_kernels_that_fail_are_not_trusted(case, verdicts, monkeypatch):
    def failing(*args):
        raise RuntimeError("no compiler\nmore")

    monkeypatch.setattr(compute.fused.trust, "run", failing)
    layer = case([ops.Sine()], **SMALL)
    reason = fused.trusted(layer.call, layer.x, layer.weight, Memory())
    assert reason == "the fused kernel of sine does not run here (RuntimeError: no compiler)"


def test_values_that_are_not_finite_leave_no_verdict(case, verdicts):
    layer = case([ops.Sine()], **SMALL)
    reason = fused.trusted(layer.call, layer.x * float("nan"), layer.weight, Memory())
    assert reason == "the fused kernel of sine had no finite values to be checked on"
    assert fused.trusted(layer.call, layer.x[:0], layer.weight, Memory()) is None
    assert not verdicts
    assert fused.trusted(layer.call, layer.x, layer.weight, Memory()) is None


@triton.jit
def elementwise(u, y, count, F: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    value = tl.load(u + i, mask=i < count, other=0.0)
    if F == "exp":
        result = elementary.exp(value)
    elif F == "expm1":
        result = elementary.expm1(value)
    elif F == "sinh":
        result = elementary.sinh(value)
    else:
        result = elementary.cosh(value)
    tl.store(y + i, result, mask=i < count)


@pytest.mark.parametrize("function", ["exp", "expm1", "sinh", "cosh"])
@pytest.mark.parametrize(("dtype", "top"), [(torch.float32, 88.0), (torch.float64, 709.0)])
def test_elementary_functions(function, dtype, top):
    keyed = torch.Generator().manual_seed(1)
    ends = torch.tensor([float("inf"), -float("inf"), float("nan"), 0.0, 1e30, -1e30])
    small = 10 ** (-30 * torch.rand(200, generator=keyed))
    u = torch.cat([torch.linspace(-2, 2, 801), small, torch.linspace(-top, top, 999), ends]).to(dtype)
    got = torch.empty_like(u)
    elementwise[(1,)](u, got, len(u), F=function, BLOCK=2048)
    exact = getattr(torch, function)(u.double())
    inner = exact[: -len(ends)].abs()
    normal = inner > torch.finfo(dtype).tiny
    error = ((got.double() - exact).abs()[: -len(ends)] / inner)[normal].max() / torch.finfo(dtype).eps
    # its own 1.4, and in double precision the one unit of what it is compared with
    assert error < (1.5 if dtype == torch.float32 else 2.5)
    torch.testing.assert_close(got[-len(ends) :], exact[-len(ends) :].to(dtype), equal_nan=True, rtol=0, atol=0)
