"""The expansion against the definition in float64: every operator, awkward sizes, hard scales, mixed layers."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from onn_runner import compute, ops
from onn_runner.compute import Block, Call, Memory
from onn_runner.compute.basis import Interval
from onn_runner.compute.convolution import convolve
from onn_runner.compute.expansion import Expansion, Series, banks
from onn_runner.ops import gop

USER = ops.FunctionNodal(function=lambda w, x: torch.tanh(w * x + 0.3) + torch.cos(w) * x)
OPERATORS = [
    ops.Multiply(),
    ops.Cubic(),
    ops.Quadratic(),
    ops.Sine(),
    ops.Exponential(),
    ops.Sinh(),
    ops.Sinc(),
    ops.Chirp(),
    ops.Gaussian(),
    ops.DoG(),
    ops.Log(),
    gop.Exponential(),
    gop.Quadratic(),
    gop.Gaussian(),
    gop.DoG(),
    USER,
]
MIXED = [ops.Sine(), ops.Exponential(), ops.Gaussian(), ops.Multiply()]


def named(nodal):
    return f"{type(nodal).__module__.rpartition('.')[2]}.{type(nodal).__name__}"


@pytest.mark.parametrize("pool", [ops.Sum(), ops.Mean(), ops.Sum(scale_by_taps=True)], ids=["sum", "mean", "scaled"])
@pytest.mark.parametrize("nodal", OPERATORS, ids=named)
def test_every_operator(case, nodal, pool):
    assert case([nodal], pool=pool).check("chebyshev").chosen == "chebyshev"


@pytest.mark.parametrize("nodal", OPERATORS, ids=named)
def test_every_operator_in_double_precision(case, nodal):
    assert case([nodal], reach=0.5).check("chebyshev", torch.float64).chosen == "chebyshev"


@pytest.mark.parametrize(
    ("nodal", "terms"),
    [
        (ops.Multiply(), "1 term"),
        (ops.Cubic(), "1 term"),
        (ops.Log(), "1 term"),
        (ops.FunctionNodal(function=lambda w, x: w * x.abs()), "1 term"),
        (ops.FunctionNodal(function=lambda w, x: w * x + w.square() * x.square()), "2 terms"),
        (ops.FunctionNodal(function=lambda w, x: w.square() * x + 0.5), "1 term"),
        (ops.Sine(omega=1.5), "5 terms"),
    ],
)
def test_number_of_terms(case, nodal, terms):
    memory = case([nodal]).check("chebyshev")
    assert memory.reason.startswith(terms + ",")


SHAPES = {
    "one pixel": {"size": (1, 1), "kernel": (1, 1)},
    "seven": {"size": (7, 7), "kernel": (5, 5)},
    "33": {"size": (33, 33), "kernel": (3, 3)},
    "even kernel": {"size": (8, 9), "kernel": (2, 4)},
    "stride": {"size": (12, 9), "stride": (2, 3)},
    "dilation": {"size": (12, 13), "dilation": (2, 3)},
    "stride and dilation": {"size": (15, 14), "stride": (3, 2), "dilation": (2, 3), "kernel": (3, 2)},
    "groups": {"groups": 2},
    "depthwise": {"groups": 4, "channels": (4, 8)},
    "1-D": {"size": (33,), "kernel": (5,), "stride": (2,)},
    "3-D": {"size": (4, 5, 6), "kernel": (2, 3, 1), "stride": (1, 2, 1), "dilation": (2, 1, 1)},
    "one sample": {"batch": 1, "channels": (1, 4)},
    "large kernel": {"size": (40, 37), "kernel": (13, 15), "channels": (1, 4), "batch": 1},
    "transposed": {"transposed": True},
    "transposed, stride": {"transposed": True, "stride": (2, 3), "size": (6, 5)},
    "transposed, gaps": {"transposed": True, "stride": (3, 2), "kernel": (2, 1), "size": (6, 5)},
    "transposed, all": {"transposed": True, "stride": (2, 3), "dilation": (3, 1), "groups": 2, "size": (6, 5)},
    "transposed, 1-D": {"transposed": True, "stride": (2,), "kernel": (4,), "size": (33,)},
    "transposed, 3-D": {"transposed": True, "stride": (1, 2, 2), "kernel": (2, 3, 1), "size": (4, 3, 5)},
}


@pytest.mark.parametrize("nodals", [[ops.Sine()], [ops.Exponential()], MIXED], ids=["sine", "exp", "mixed"])
@pytest.mark.parametrize("shape", SHAPES)
def test_shapes(case, shape, nodals):
    assert case(nodals, **SHAPES[shape]).check("chebyshev").chosen == "chebyshev"


@pytest.mark.parametrize("span", [(0.0, 1.0), (-1.0, 0.0), (-0.2, 1.0), (0.3, 1.0)], ids=str)
@pytest.mark.parametrize("nodals", [[ops.Exponential()], [ops.Sine()], [USER], MIXED], ids=["exp", "sine", "user", "4"])
def test_one_sided_inputs(case, nodals, span):
    layer = case(nodals)
    layer.x = (layer.x + 1) / 2 * (span[1] - span[0]) + span[0]
    layer.check("chebyshev")


@pytest.mark.parametrize("nodal", [ops.Multiply(), ops.Cubic(), ops.Log(), ops.Sine()], ids=named)
def test_smooth_inputs_far_from_zero(case, nodal):
    """Taps that see nearly the same value cancel in some neurons, where a sum from 0 would lose digits."""
    layer = case([nodal], channels=(4, 8), size=(12, 12))
    rise = torch.linspace(0, 0.3, 12)
    layer.x = 0.4 + rise[:, None] + rise + 0.05 * layer.x
    layer.bias.zero_()
    assert layer.check("auto").chosen == "chebyshev"


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize(
    ("nodals", "series"),
    [
        ([ops.Sine()], (Series("odd", 9),)),
        ([ops.Multiply()], (Series("product", 1),)),
        (MIXED, (Series("odd", 9), Series("line", 12), Series("even", 18), Series("product", 1))),
    ],
    ids=["sine", "mul", "mixed"],
)
def test_centred_members_lose_less_to_rounding(case, nodals, series, groups):
    layer = case(nodals, channels=(16, 8), size=(12, 12), groups=groups)
    layer.x = 0.8 + 0.1 * layer.x
    exact = compute.reference.run(layer.call, layer.x.double(), layer.weight.double(), None, None, Memory())
    errors, grads = [], []
    for centred in (False, True):
        x, weight = layer.x.clone().requires_grad_(), layer.weight.clone().requires_grad_()
        y = convolve(x, weight, None, None, layer.call, Expansion(Interval(-1.0, 1.0), series, centred))
        grads.append(torch.autograd.grad(y.square().sum(), (x, weight)))
        errors.append(float((y.detach() - exact).norm() / exact.norm()))
    assert errors[1] < errors[0]
    for plain, centred in zip(*grads, strict=True):
        # single precision, values of the order of their largest
        torch.testing.assert_close(centred, plain, rtol=0, atol=1e-5 * float(plain.abs().max()))


def test_weight_gradients_where_all_outputs_count_alike(case):
    layer = case([ops.Exponential()], channels=(1, 16), size=(146,), kernel=(7,), batch=5, reach=0.004)
    # inputs of both signs: what is left of the gradient is far less than its parts
    layer.x = torch.randn(layer.x.shape, generator=torch.Generator().manual_seed(0))
    got = {}
    for requested, dtype in (("chebyshev", torch.float32), ("reference", torch.float64)):
        x, weight = layer.x.to(dtype), layer.weight.to(dtype).requires_grad_()
        y = compute.run(layer.call, x, weight, None, None, Memory(requested=requested))
        (found,) = torch.autograd.grad(y, weight, torch.ones_like(y))
        got[requested] = found.double().flatten(1)
    exact = got["reference"]
    assert bool(((got["chebyshev"] - exact).norm(dim=1) <= 3e-6 * exact.norm(dim=1)).all())


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("nodal", [ops.Exponential(), ops.Sinh()], ids=named)
def test_a_large_input_does_not_hide_what_the_others_lose(case, nodal, seed):
    layer = case([nodal], channels=(2, 2), size=(15, 16), batch=5, seed=seed)
    layer.weight *= 1.57 / layer.weight.abs().max()
    memory = Memory()
    for value in (3.0, 0.0):
        layer.x[2, 0, 7, 7] = value
        layer.check("auto", memory=memory)


@pytest.mark.parametrize("outputs", [2, 8])
def test_neurons_that_meet_nothing_but_zeros_learn_nothing(case, outputs):
    layer = case([ops.Sine(), ops.Exponential()], channels=(4, outputs), size=(20, 20))
    layer.x[:, :, 4:] = 0
    layer.x[:, :, :, 4:] = 0
    weight = layer.weight.clone().requires_grad_()
    y = compute.run(layer.call, layer.x.abs(), weight, None, None, Memory(requested="chebyshev"))
    (grad,) = torch.autograd.grad(y[:, :, 4:].sum(), weight)
    assert not bool(grad.any())


def test_one_sided_inputs_take_fewer_terms(case):
    layer = case([ops.Exponential()])
    both = layer.check("chebyshev").plans["train"][0]["series"][0][1]
    layer.x = layer.x.abs()
    memory = layer.check("chebyshev")
    assert memory.plans["train"][0]["series"][0][1] < both
    assert "0 <= x <= 1" in memory.reason.replace("-0", "0")


def test_mixed_layers_are_an_odd_and_an_even_convolution_and_one_for_each_product():
    series = (Series("odd", 6), Series("line", 9), Series("even", 8), Series("product", 1))
    plan = banks(Expansion(Interval(-1, 1), series), 1)
    assert [(b.form, b.count, b.blocks, b.shares) for b in plan] == [
        ("odd", 6, (0, 1), (6, 5)),
        ("even", 8, (1, 2), (4, 8)),
        ("product", 1, (3,), (1,)),
    ]
    grouped = banks(Expansion(Interval(-1, 1), series), 2)
    assert [b.blocks for b in grouped] == [(0, 1, 2, 3)] * 3


def test_samples_in_tiles_and_weights_in_pieces(case, monkeypatch):
    whole = case(MIXED, batch=5, channels=(3, 9)).run("chebyshev")
    monkeypatch.setattr(compute.convolution, "TILE", 1)
    monkeypatch.setattr(compute.coefficients, "SAMPLES", 1)
    cut = case(MIXED, batch=5, channels=(3, 9)).run("chebyshev")
    # the same sums in another order, in single precision
    torch.testing.assert_close(cut.y, whole.y, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(cut.to_x, whole.to_x, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(cut.to_weight, whole.to_weight, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("nodals", [[ops.Sine()], [ops.Exponential(), ops.Gaussian()], [ops.Log()], MIXED])
def test_gradcheck(nodals, groups):
    edges = [len(nodals) * 2 // len(nodals) * i for i in range(len(nodals) + 1)]
    blocks = tuple(Block(str(i), n, edges[i], edges[i + 1]) for i, n in enumerate(nodals))
    call = Call(blocks, ops.Mean(), (2, 1), (1, 2), groups)
    keyed = torch.Generator().manual_seed(3)
    x = (torch.rand(2, 2, 5, 4, dtype=torch.float64, generator=keyed) * 2 - 1).requires_grad_()
    weight = torch.rand(edges[-1], 2 // groups, 3, 2, dtype=torch.float64, generator=keyed).requires_grad_()
    bias = torch.randn(edges[-1], dtype=torch.float64, generator=keyed).requires_grad_()
    gain = torch.rand(edges[-1], dtype=torch.float64, generator=keyed)
    memory = Memory(requested="chebyshev")
    assert torch.autograd.gradcheck(lambda a, b, c: compute.run(call, a, b, gain, c, memory), (x, weight, bias))


def test_gradients_that_nobody_asks_for(case):
    layer = case(MIXED)
    y = compute.run(layer.call, layer.x, layer.weight.requires_grad_(), layer.gain, layer.bias, Memory())
    (alone,) = torch.autograd.grad(y.sum(), layer.weight)
    x = layer.x.clone().requires_grad_()
    y = compute.run(layer.call, x, layer.weight.detach(), layer.gain, None, Memory())
    (to_x,) = torch.autograd.grad(y.sum(), x)
    assert alone.isfinite().all()
    assert to_x.isfinite().all()


@pytest.mark.parametrize("nodals", [[ops.Sine()], MIXED], ids=["sine", "mixed"])
def test_nothing_is_kept_beyond_x_and_w(case, nodals):
    layer = case(nodals, size=(30, 30))
    sizes = {}

    def pack(tensor):
        sizes[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    memory = layer.run("chebyshev").memory
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        x, weight = layer.x.clone().requires_grad_(), layer.weight.clone().requires_grad_()
        compute.run(layer.call, x, weight, layer.gain, layer.bias, memory)
    assert sum(sizes.values()) <= x.nbytes + weight.nbytes + 1000


MAKE = {}


@pytest.fixture(autouse=True, scope="module")
def _make(case):
    """hypothesis runs one test function many times and takes no fixture of smaller scope."""
    MAKE["case"] = case


@settings(max_examples=100)
@given(
    chosen=st.lists(st.integers(0, len(OPERATORS) - 1), min_size=1, max_size=3, unique=True),
    weights=st.floats(math.log10(1e-6), math.log10(50)),
    inputs=st.floats(-2, 2),
    scene=st.sampled_from(["plain", "one-sided", "small channels", "tiny beside huge neurons", "outlier", "sparse"]),
    kernel=st.sampled_from([(3, 3), (5, 5), (2, 3)]),
    seed=st.integers(0, 1000),
)
def test_the_rule_holds_at_any_scale(chosen, weights, inputs, scene, kernel, seed):
    layer = MAKE["case"]([OPERATORS[i] for i in chosen], channels=(4, 6), size=(10, 11), kernel=kernel, seed=seed)
    layer.weight *= 10**weights / layer.weight.abs().max()
    layer.x *= 10**inputs
    layer.gain, layer.bias = torch.ones(6), torch.zeros(6)
    keyed = torch.Generator().manual_seed(seed)
    if scene == "one-sided":
        layer.x = layer.x.abs()
    elif scene == "small channels":
        layer.x *= 10 ** (-2 * torch.rand(1, 4, 1, 1, generator=keyed))
    elif scene == "tiny beside huge neurons":
        layer.weight *= 10 ** (-6 * torch.rand(6, 1, 1, 1, generator=keyed))
    elif scene == "outlier":
        layer.x[0, 0, 3, 3] = 10 ** (inputs + 4 * float(torch.rand(1, generator=keyed)))
    elif scene == "sparse":
        layer.x[torch.rand(layer.x.shape, generator=keyed) < 0.9] *= 0.01
    exact = layer.run("reference", torch.float64)
    values = (exact.y, exact.to_x, exact.to_weight)
    if all(bool((v.abs() <= 1e30).all()) for v in values):
        # a random gradient now and then meets the one position that a steep neuron's is made of with nearly nothing
        layer.check("auto", cancelled=0.1)


def test_an_outlier_of_ten_thousand_is_never_expanded(case):
    for nodal in (ops.Sine(), ops.Exponential(), ops.Sinh(), ops.Gaussian(), USER):
        layer = case([nodal])
        layer.x[0, 0, 4, 4] = 1e4
        memory = layer.run("auto").memory
        assert memory.chosen == "tapwise"
        assert "terms" not in memory.reason


def test_a_bell_narrower_than_the_node_spacing_is_not_taken_for_zero(case):
    layer = case([ops.Gaussian()], reach=1.0)
    layer.weight = layer.weight * 1000
    assert layer.check("auto").chosen == "tapwise"


def _peak(x):
    return torch.exp(-(((x - 0.3) / 2e-3) ** 2))


@pytest.mark.parametrize(
    "function",
    [lambda w, x: torch.sin(w * x) + w.square() * _peak(x), lambda w, x: w * x + w.square() * _peak(x)],
    ids=["sine", "product"],
)
@pytest.mark.parametrize("seed", range(3))
def test_a_feature_narrow_in_x_is_not_overlooked(case, function, seed):
    layer = case([ops.FunctionNodal(function=function)], channels=(1, 4), size=(32, 32), kernel=(1, 1), seed=seed)
    assert layer.check("auto").chosen == "tapwise"


@pytest.mark.parametrize(
    "shape",
    [
        {"channels": (1, 16), "size": (50, 50), "batch": 8},
        {"channels": (16, 2), "size": (256, 256), "batch": 1},
        {"channels": (1, 4), "size": (128, 128), "kernel": (1, 1), "seed": 3},
    ],
    ids=["one channel", "large map", "one weight"],
)
def test_weight_gradients_over_many_positions(case, shape):
    # in single precision alone they are off by 4e-6, 5e-6 and 1e-5, whatever the number of terms
    layer = case([ops.Sine(), ops.Exponential()], reach=0.3, **shape)
    assert layer.check("chebyshev").chosen == "chebyshev"


@pytest.mark.parametrize("shape", [s for s in SHAPES if s != "one pixel"])
def test_weight_gradients_in_parts(case, monkeypatch, shape):
    monkeypatch.setattr(compute.correlation, "FEW", 0)
    for positions in (1, 10, 50):
        monkeypatch.setattr(compute.correlation, "POSITIONS", positions)
        case([ops.Sine()], **SHAPES[shape]).check("chebyshev")


def test_convolve_accumulates_large_layers_well(case):
    layer = case([ops.Sine()], channels=(128, 4), size=(8, 8), reach=0.5)
    assert layer.check("auto").chosen == "chebyshev"


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("requested", ["auto", "chebyshev"])
def test_non_finite_inputs_give_non_finite_outputs_where_they_are_seen(case, requested, value):
    layer = case([ops.Exponential(), ops.Multiply()], size=(12, 12))
    layer.x[1, 0, 2, 3] = value
    memory = Memory(requested=requested)
    y = compute.run(layer.call, layer.x, layer.weight, layer.gain, layer.bias, memory)
    expected = compute.run(layer.call, layer.x, layer.weight, layer.gain, layer.bias, Memory(requested="reference"))
    assert torch.equal(y.isfinite(), expected.isfinite())
    assert not y.isfinite().all()
    assert memory.chosen == "tapwise"
    assert memory.reason == "inputs or weights are not finite"
    assert not memory.plans


def test_nan_after_a_bounded_activation(case):
    layer = case([ops.Sine()], size=(12, 12), bound=(-1.0, 1.0))
    layer.x[1, 0, 2, 3] = math.nan
    y = compute.run(layer.call, layer.x, layer.weight, None, None, Memory())
    assert y.isnan().sum() == 9 * 8


@pytest.mark.parametrize("requested", ["auto", "chebyshev", "tapwise"])
def test_empty_batches(case, requested):
    layer = case(MIXED, batch=0)
    memory = Memory(requested=requested)
    x, weight = layer.x.requires_grad_(), layer.weight.requires_grad_()
    y = compute.run(layer.call, x, weight, layer.gain, layer.bias, memory)
    assert y.shape == (0, 8, 7, 5)
    y.sum().backward()
    assert weight.grad is not None
    assert not weight.grad.any()
    assert memory == Memory(requested=requested)


def test_all_zero_inputs(case):
    layer = case([ops.Gaussian()])
    layer.x.zero_()
    assert layer.check("chebyshev").chosen == "tapwise"


def test_all_zero_weights(case):
    layer = case([ops.Sine(), ops.FunctionNodal(function=lambda w, x: torch.cos(w * x))])
    layer.weight.zero_()
    got, exact = layer.run("auto"), layer.run("reference", torch.float64)
    torch.testing.assert_close(got.y.double(), exact.y, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(got.to_weight.double(), exact.to_weight, rtol=1e-4, atol=1e-4)


def test_convolve_needs_no_plan(case):
    layer = case([ops.Exponential()], reach=0.3)
    expansion = Expansion(Interval(-1.0, 1.0), (Series("line", 12),))
    y = convolve(layer.x.double(), layer.weight.double(), layer.gain.double(), None, layer.call, expansion)
    exact = compute.reference.run(
        layer.call, layer.x.double(), layer.weight.double(), layer.gain.double(), None, Memory()
    )
    torch.testing.assert_close(y, exact, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_the_first_layer_of_smooth_grey_images(case, seed):
    # nine weights a neuron, whose gradients cancel over the positions: in single precision they are off by 3e-6 to 6e-6
    layer = case([ops.Sine(), ops.Exponential()], channels=(1, 16), size=(48, 48), batch=4, seed=seed)
    keyed = torch.Generator().manual_seed(seed)
    coarse = torch.rand(4, 1, 6, 6, generator=keyed) * 2 - 1
    smooth = torch.nn.functional.interpolate(coarse, size=(48, 48), mode="bilinear")
    layer.x = 0.8 * smooth - 0.2 + 0.2 * torch.randn(4, 1, 48, 48, generator=keyed)
    assert layer.check("auto").chosen == "chebyshev"
