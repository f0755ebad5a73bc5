"""Which kernel serves, by name and by `auto`, and what is refused."""

import pytest
import torch

from onn_runner import compute, ops
from onn_runner.compute import Memory, choice
from onn_runner.errors import ConfigError


class Own(ops.Nodal):
    own_backward = True

    def __call__(self, w, x):
        return w * x


def test_auto_takes_chebyshev_for_sums_and_tapwise_for_the_rest(case):
    for pool, chosen in (("sum", "chebyshev"), ("mean", "chebyshev"), ("median", "tapwise"), ("maximum", "tapwise")):
        assert case([ops.Sine()], pool=ops.named(pool)).run("auto").memory.chosen == chosen


@pytest.mark.parametrize("name", ["chebyshev", "tapwise", "reference"])
def test_a_named_kernel_is_taken(case, name):
    memory = case([ops.Sine()]).run(name).memory
    assert memory.chosen == name
    assert memory.reason


def test_a_misspelt_kernel_is_refused(case):
    with pytest.raises(ConfigError, match=r"unknown compute 'chebishev'. Did you mean chebyshev\?.*auto, chebyshev"):
        compute.check("chebishev")
    with pytest.raises(ConfigError, match="unknown compute 'fast'"):
        case([ops.Sine()]).run("fast")
    assert compute.check("auto") == "auto"


def test_chebyshev_refuses_other_pools(case):
    layer = case([ops.Sine()], pool=ops.Median())
    with pytest.raises(ConfigError, match="compute=chebyshev cannot serve this layer: the pool median is not a sum"):
        layer.run("chebyshev")
    assert layer.run("auto").memory.reason == "exact, since the pool median is not a sum over taps"


def test_chebyshev_refuses_an_operators_own_backward(case):
    layer = case([Own()])
    with pytest.raises(ConfigError, match="own has its own backward rule"):
        layer.run("chebyshev")
    assert layer.check("auto").chosen == "tapwise"


def test_chebyshev_refuses_values_out_of_reach(case):
    layer = case([ops.Sine()], reach=100.0)
    with pytest.raises(ConfigError, match=r"64 nodes are too few for sine where .*use compute=auto"):
        layer.run("chebyshev")
    assert layer.run("auto").memory.reason.startswith("64 nodes are too few for sine")


def test_the_fused_kernels_are_refused_on_a_cpu(case):
    layer = case([ops.Sine()], pool=ops.named("median"))
    with pytest.raises(ConfigError, match=r"compute=fused cannot serve this layer: .*; use compute=auto"):
        layer.run("fused")


class OnCuda(torch.Tensor):
    """A tensor that says it is on a GPU."""

    is_cuda = True


@pytest.mark.parametrize("trust", [None, "the fused kernel of sine is not accurate here"])
@pytest.mark.parametrize("nodal", [ops.Sine(), ops.Chirp(k=10000.0, omega=5000.0)], ids=["sine", "out of reach"])
@pytest.mark.parametrize("pool", ["sum", "median"])
def test_on_a_gpu_fused_kernels_serve_instead_of_tapwise_where_they_are_trusted(case, monkeypatch, trust, nodal, pool):
    layer = case([nodal], pool=ops.named(pool))
    monkeypatch.setattr(choice.fused, "trusted", lambda *given: trust)
    exact = "tapwise" if trust else "fused"
    expected = "chebyshev" if pool == "sum" and isinstance(nodal, ops.Sine) else exact
    for requested in ("auto", "chebyshev"):
        if requested == "auto" or expected == "chebyshev":
            x = layer.x.as_subclass(OnCuda)
            found = choice.decide(layer.call, x, layer.weight, layer.gain, Memory(requested=requested))
            assert found.kernel == expected
    assert choice.decide(layer.call, layer.x, layer.weight, layer.gain, Memory()).kernel != "fused"


@pytest.mark.parametrize("requested", ["auto", "tapwise", "reference"])
@pytest.mark.parametrize("pool", ["sum", "maximum"])
def test_autocast_computes_in_single_precision(case, requested, pool):
    layer = case([ops.Sine()], pool=ops.named(pool))
    expected = layer.run(requested)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = layer.run(requested)
    assert got.y.dtype == torch.float32
    torch.testing.assert_close(got.y, expected.y)
    torch.testing.assert_close(got.to_weight, expected.to_weight)


@pytest.mark.parametrize("pool", ["sum", "median"])
def test_half_precision_tensors(case, pool):
    layer = case([ops.Sine()], pool=ops.named(pool))
    got = layer.run("auto", torch.bfloat16)
    assert got.y.dtype == torch.bfloat16
    assert got.to_weight.dtype == torch.bfloat16
    x, weight, bias, gain = (t.bfloat16().double() for t in (layer.x, layer.weight, layer.bias, layer.gain))
    exact = compute.run(layer.call, x, weight, gain, bias, Memory(requested="reference"))
    # one rounding of the result, which has 8 bits
    torch.testing.assert_close(got.y.double(), exact, rtol=2**-8, atol=1e-3)


def test_a_bfloat16_input_to_a_single_precision_layer_under_autocast(case):
    layer = case([ops.Sine()])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = compute.run(layer.call, layer.x.bfloat16(), layer.weight, layer.gain, layer.bias, Memory())
    assert y.dtype == torch.float32


def test_non_contiguous_inputs(case):
    layer = case([ops.Sine(), ops.Exponential()])
    expected = layer.run("auto")
    layer.x = layer.x.to(memory_format=torch.channels_last)
    torch.testing.assert_close(layer.run("auto").y, expected.y)
    layer.check("tapwise")
