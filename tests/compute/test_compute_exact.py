"""The definition by hand; tapwise against it in float64, for every operator and pool, at awkward sizes."""

import pytest
import torch

from onn_runner import compute, ops
from onn_runner.compute import Block, Call, Memory
from onn_runner.errors import ConfigError

OPERATORS = [
    ops.Multiply(),
    ops.Cubic(),
    ops.Quadratic(),
    ops.Sine(),
    ops.Exponential(),
    ops.Sinh(),
    ops.Sinc(),
    ops.Chirp(k=10000.0),
    ops.Gaussian(),
    ops.DoG(),
    ops.Log(),
    ops.FunctionNodal(function=lambda w, x: torch.tanh(w * x + 0.3) + torch.cos(w)),
]
POOLS = [
    ops.named(name, scale)
    for name in ("sum", "mean", "median", "maximum", "minimum", "correlation2", "correlation3")
    for scale in (False, True)
]


class Softest(ops.Pool):
    """A user's pool, which has no name of ours."""

    def __call__(self, values, dim):
        return values.logsumexp(dim)


class Straight(torch.autograd.Function):
    """Rounds, and passes three times the gradient."""

    @staticmethod
    def forward(ctx, z):
        return z.round()

    @staticmethod
    def backward(ctx, grad):
        return 3 * grad


class Rounded(ops.Nodal):
    own_backward = True

    def __call__(self, w, x):
        return Straight.apply(4 * w * x)


def test_reference_by_hand():
    nodal = ops.FunctionNodal(function=lambda w, x: w * x * x)
    call = Call((Block("square", nodal, 0, 1),), ops.Sum(), (1, 1), (1, 1))
    x = torch.tensor([[[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]]])
    weight = torch.tensor([[[[1.0, -1.0], [2.0, 0.5]]]])
    y = compute.reference.run(call, x, weight, torch.tensor([2.0]), torch.tensor([-1.0]), Memory())
    # 1 - 4 + 2*16 + 25/2 = 41.5 and 4 - 9 + 2*25 + 36/2 = 63
    assert torch.equal(y, torch.tensor([[[[82.0, 125.0]]]]))


@pytest.mark.parametrize(("pool", "expected"), [("maximum", 9.0), ("minimum", -2.0), ("median", 2.0), ("mean", 3.0)])
def test_reference_pools_by_hand(pool, expected):
    call = Call((Block("mul", ops.Multiply(), 0, 1),), ops.named(pool), (1,), (1,))
    x = torch.tensor([[[1.0, -1.0, 3.0, 3.0]]])
    weight = torch.tensor([[[2.0, 2.0, 3.0, 1.0]]])
    assert compute.reference.run(call, x, weight, None, None, Memory()).item() == expected


@pytest.mark.parametrize("pool", POOLS, ids=lambda p: p.name + "*" * p.scale_by_taps)
@pytest.mark.parametrize("kernel", [(3, 3), (2, 2)], ids=str)
def test_tapwise_pools(case, pool, kernel):
    case([ops.Sine(), ops.Exponential()], pool=pool, kernel=kernel).check("tapwise")


@pytest.mark.parametrize("nodal", OPERATORS, ids=lambda n: type(n).__name__)
@pytest.mark.parametrize("pool", ["sum", "median", "maximum", "correlation2"])
def test_tapwise_operators(case, nodal, pool):
    case([nodal], pool=ops.named(pool), channels=(3, 4)).check("tapwise")


SHAPES = {
    "one pixel": {"size": (1, 1), "kernel": (1, 1)},
    "seven": {"size": (7, 7), "kernel": (5, 5)},
    "33": {"size": (33, 33), "channels": (2, 3)},
    "even kernel": {"size": (8, 9), "kernel": (2, 4)},
    "stride": {"size": (12, 9), "stride": (2, 3)},
    "dilation": {"size": (12, 13), "dilation": (2, 3)},
    "stride and dilation": {"size": (15, 14), "stride": (3, 2), "dilation": (2, 3), "kernel": (3, 2)},
    "groups": {"groups": 2},
    "depthwise": {"groups": 4, "channels": (4, 8)},
    "1-D": {"size": (33,), "kernel": (5,), "stride": (2,), "groups": 2},
    "3-D": {"size": (4, 5, 6), "kernel": (2, 3, 1), "stride": (1, 2, 1), "dilation": (2, 1, 1)},
    "one sample": {"batch": 1, "channels": (1, 1)},
}


@pytest.mark.parametrize("pool", ["sum", "median", "minimum", "correlation3"])
@pytest.mark.parametrize("shape", [s for s in SHAPES if s != "one pixel"])
def test_tapwise_shapes(case, shape, pool):
    case(
        [ops.Sine(), ops.Exponential()][: SHAPES[shape].get("channels", (4, 8))[1]],
        pool=ops.named(pool),
        **SHAPES[shape],
    ).check("tapwise")


def test_tapwise_at_one_pixel(case):
    case([ops.Sine()], pool=ops.Median(), **SHAPES["one pixel"]).check("tapwise")


def test_tapwise_cuts_large_maps_into_channels(case, monkeypatch):
    monkeypatch.setattr(compute.tapwise, "VALUES", 100)
    for pool in (ops.Sum(), ops.Median(), ops.Correlation2()):
        case([ops.Sine(), ops.Exponential()], pool=pool, groups=2, channels=(6, 8)).check("tapwise")


def test_tapwise_finds_a_large_index_again(case, monkeypatch):
    monkeypatch.setattr(compute.tapwise, "INDEX_BYTES", 0)
    case([ops.Sine()], pool=ops.Maximum()).check("tapwise")


def test_tapwise_follows_a_pool_of_the_user(case):
    case([ops.Sine()], pool=Softest()).check("tapwise")


@pytest.mark.parametrize("pool", ["sum", "maximum", "median", "correlation2"])
def test_tapwise_follows_an_operators_own_backward(case, pool):
    layer = case([Rounded()], pool=ops.named(pool))
    got, expected = layer.run("auto"), layer.run("reference")
    assert got.memory.chosen == "tapwise"
    torch.testing.assert_close(got.y, expected.y, rtol=1e-5, atol=1e-5)
    assert got.to_x.norm() > 0
    if pool != "median":
        # rounded values tie, and the median of equal taps may be any one of them
        torch.testing.assert_close(got.to_x, expected.to_x, rtol=1e-5, atol=1e-4)
        torch.testing.assert_close(got.to_weight, expected.to_weight, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("pool", ["maximum", "minimum", "median"])
def test_ties_give_the_gradient_to_one_tap(pool):
    call = Call((Block("mul", ops.Multiply(), 0, 1),), ops.named(pool), (1,), (1,))
    x = torch.ones(1, 1, 3, requires_grad=True)
    weight = torch.ones(1, 1, 3, requires_grad=True)
    compute.tapwise.run(call, x, weight, None, None, Memory()).sum().backward()
    assert x.grad is not None
    assert sorted(x.grad.flatten().tolist()) == [0.0, 0.0, 1.0]


@pytest.mark.parametrize("pool", ["maximum", "minimum"])
@pytest.mark.parametrize("nodal", [ops.Sine(), Rounded()], ids=["sine", "rounded"])
def test_ties_go_to_the_tap_that_torch_takes(case, pool, nodal):
    layer = case([nodal], pool=ops.named(pool), size=(16, 16))
    # after relu half of the inputs are zero, and so is psi there
    layer.x = layer.x.relu()
    got, expected = layer.run("tapwise", torch.float64), layer.run("reference", torch.float64)
    torch.testing.assert_close(got.to_x, expected.to_x)
    torch.testing.assert_close(got.to_weight, expected.to_weight)


@pytest.mark.parametrize("pool", ["sum", "mean", "median", "maximum", "minimum", "correlation2"])
@pytest.mark.parametrize("kernel", ["tapwise", "reference"])
def test_gradcheck(pool, kernel):
    call = Call((Block("a", ops.Sine(), 0, 1), Block("b", ops.Gaussian(), 1, 2)), ops.named(pool), (2, 1), (1, 1))
    keyed = torch.Generator().manual_seed(3)
    x = torch.randn(2, 2, 5, 4, dtype=torch.float64, generator=keyed).requires_grad_()
    weight = torch.randn(2, 2, 3, 2, dtype=torch.float64, generator=keyed).requires_grad_()
    bias = torch.randn(2, dtype=torch.float64, generator=keyed).requires_grad_()
    gain = torch.tensor([0.5, 2.0], dtype=torch.float64)
    assert torch.autograd.gradcheck(
        lambda a, b, c: compute.run(call, a, b, gain, c, Memory(requested=kernel)), (x, weight, bias)
    )


@pytest.mark.parametrize("pool", ["sum", "maximum", "correlation2"])
def test_tapwise_keeps_x_w_and_a_byte_index(case, pool):
    layer = case([ops.Sine()], pool=ops.named(pool), size=(20, 20), channels=(4, 8))
    kept = kept_bytes(layer, "tapwise")
    index = layer.x.shape[0] * 8 * 4 * 18 * 18 if pool == "maximum" else 0
    small = 1000
    assert kept <= layer.x.nbytes + layer.weight.nbytes + index + small
    assert kept_bytes(layer, "reference") > 9 * layer.x.nbytes


def kept_bytes(layer, requested):
    sizes = {}

    def pack(tensor):
        sizes[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        x, weight, bias = (t.clone().requires_grad_() for t in (layer.x, layer.weight, layer.bias))
        compute.run(layer.call, x, weight, layer.gain, bias, Memory(requested=requested))
    return sum(sizes.values())


def test_a_kernel_that_does_not_fit_is_refused(case):
    layer = case([ops.Sine()], size=(6, 6), dilation=(1, 3))
    for name in ("auto", "tapwise", "reference"):
        with pytest.raises(ConfigError, match=r"spans 7 positions \(size 3, dilation 3\) does not fit into .* 6"):
            layer.run(name)


class SumOfSquares(ops.Sum):
    """Forgets to give itself a name."""

    def reduce(self, values, dim):
        return values.square().sum(dim)


class Sharpened(ops.Maximum):
    def reduce(self, values, dim):
        return 2 * values.max(dim).values - values.mean(dim)


@pytest.mark.parametrize("requested", ["auto", "tapwise"])
@pytest.mark.parametrize("pool", [SumOfSquares(), Sharpened()], ids=lambda pool: type(pool).__name__)
def test_nothing_is_assumed_of_a_pool_that_derives_from_one_of_the_catalogue(case, pool, requested):
    assert case([ops.Sine()], pool=pool).check(requested).chosen == "tapwise"
