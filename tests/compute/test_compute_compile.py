"""torch.compile: one graph without a break, the numbers of eager mode, no recompilation as weights and plans change."""

import copy
import gc
import pickle
import shutil
import subprocess
import sys

import pytest
import torch
from torch import nn

from onn_runner import ops
from onn_runner.compute import Handle, Memory, opaque
from onn_runner.errors import ConfigError, RunError
from onn_runner.model.base import LayerSpec
from onn_runner.model.operational import Operational


def spec(inputs, outputs, **changes):
    plain = {"kernel_size": (3, 3), "stride": (1, 1), "dilation": (1, 1)}
    return LayerSpec(in_channels=inputs, out_channels=outputs, **{**plain, **changes})


def network():
    torch.manual_seed(0)
    mixed = Operational({"sine": ops.Sine(), "exp": ops.Exponential(), "mul": ops.Multiply()})
    median = Operational({"sine": ops.Sine()}, pool="median", initialisation="fastonn")
    return nn.Sequential(
        mixed(spec(1, 6)), mixed(spec(6, 4, groups=2)), median(spec(4, 4)), mixed(spec(4, 1, role="output"))
    )


def batches(count, sizes=(3,)):
    keyed = torch.Generator().manual_seed(3)
    return [torch.rand(sizes[i % len(sizes)], 1, 12, 10, generator=keyed) * 2 - 1 for i in range(count)]


def train(layers, forward, inputs):
    """Steps with weights that grow by a fifth each, so that plans are left."""
    optimizer = torch.optim.SGD(layers.parameters(), 0.1)
    losses = []
    for x in inputs:
        optimizer.zero_grad()
        loss = (forward(x) - x).square().mean()
        loss.backward()
        losses.append(loss.item())
        optimizer.step()
        with torch.no_grad():
            for parameter in layers.parameters():
                parameter *= 1.2
    return losses


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    yield
    torch._dynamo.reset()


def graphs():
    return torch._dynamo.utils.counters["stats"]["unique_graphs"]


def test_training_is_bit_identical_in_one_graph():
    eager, other = network(), network()
    compiled = torch.compile(other, backend="aot_eager", fullgraph=True)
    inputs = batches(12)
    assert train(eager, eager, inputs) == train(other, compiled, inputs)
    for ours, theirs in zip(eager, other, strict=True):
        assert torch.equal(ours.weight, theirs.weight)
        assert ours.memory == theirs.memory
    assert len(other[0].memory.plans["train"]) > 2
    assert graphs() == 1


def test_another_batch_size_compiles_once_more_only():
    layers = network()
    compiled = torch.compile(layers, backend="aot_eager", fullgraph=True)
    for x in batches(8, sizes=(3, 5, 4, 2)):
        torch.testing.assert_close(compiled(x), layers(x), rtol=0, atol=0)
    assert graphs() == 2


def test_evaluation_does_not_change_training():
    layers = network()
    compiled = torch.compile(layers, backend="aot_eager", fullgraph=True)
    x, other = batches(2)
    compiled(x)
    before = [copy.deepcopy(layer.memory.plans) for layer in layers]
    layers.eval()
    with torch.no_grad():
        compiled(other * 30)
    assert set(layers[0].memory.plans) == {"train", "evaluation"}
    assert [layer.memory.plans.get("train") for layer in layers] == [plans.get("train") for plans in before]
    layers.train()
    compiled(x)
    assert layers[0].memory.training


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_without_gradients(mode):
    layers = network().eval()
    compiled = torch.compile(layers, backend="aot_eager", fullgraph=True)
    x = batches(1)[0]
    kept = []

    def keep(tensor):
        kept.append(tensor)
        return tensor

    with mode(), torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        y = compiled(x)
        assert torch.equal(y, layers(x))
    assert not y.requires_grad
    assert kept == []


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_autocast_computes_as_in_eager_mode(dtype):
    layers = network()
    compiled = torch.compile(layers, backend="aot_eager", fullgraph=True)
    x = batches(1)[0].to(dtype)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        expected, got = layers(x), compiled(x)
    assert got.dtype == torch.float32
    assert torch.equal(expected, got)


def test_copies_have_handles_of_their_own():
    layer = network()[0]
    layer(batches(1)[0])
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert other.handle.number != layer.handle.number
        assert other.handle.memory is other.memory
        assert other.handle.call is other.call
        assert other.memory == layer.memory
        assert other.memory is not layer.memory


def test_a_copy_of_a_compiled_layer_remembers_for_itself():
    layer = network()[0]
    copied = copy.deepcopy(layer)
    x = batches(1)[0]
    torch.compile(layer, backend="aot_eager", fullgraph=True)(x)
    assert copied.memory.plans == {}
    torch.compile(copied, backend="aot_eager", fullgraph=True)(x * 3)
    assert len(layer.memory.plans["train"]) == 1
    assert layer.memory.plans != copied.memory.plans


def test_layers_that_are_gone_leave_no_handle():
    layer = network()[0]
    number = layer.handle.number
    assert number in opaque._HANDLES
    del layer
    gc.collect()
    assert number not in opaque._HANDLES


def test_a_backward_pass_without_its_layer_is_refused(case):
    layer = case([ops.Sine()])
    handle = Handle(layer.call, Memory())
    weight = layer.weight.clone().requires_grad_()
    y = opaque.run(handle, layer.x, weight, None, None, training=True)
    del handle
    gc.collect()
    with pytest.raises(RunError, match="keep the network until backward ends"):
        y.sum().backward()


@pytest.mark.parametrize("pool", ["sum", "mean", "median", "maximum"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_operation_is_what_eager_mode_computes(case, pool, dtype):
    layer = case([ops.Sine(), ops.Gaussian()], pool=ops.named(pool), stride=(2, 1), dilation=(1, 2), groups=2)
    expected = layer.run("auto", dtype)
    handle = Handle(layer.call, Memory())
    x, weight, bias = (t.to(dtype).requires_grad_() for t in (layer.x, layer.weight, layer.bias))
    y = opaque.run(handle, x, weight, layer.gain.to(dtype), bias, training=True)
    upstream = torch.randn(y.shape, generator=torch.Generator().manual_seed(5)).to(dtype)
    found = torch.autograd.grad(y, (x, weight, bias), upstream)
    assert torch.equal(y, expected.y)
    for got, wanted in zip(found, (expected.to_x, expected.to_weight, expected.to_bias), strict=True):
        assert torch.equal(got, wanted)
    assert handle.memory == expected.memory


@pytest.mark.parametrize(
    "of",
    [
        spec(2, 4, transposed=True, stride=(2, 3), kernel_size=(4, 3)),
        spec(2, 4, kernel_size=(3,), stride=(2,), dilation=(2,)),
        spec(2, 4, kernel_size=(2, 3, 1), stride=(1, 2, 1), dilation=(2, 1, 1)),
    ],
    ids=["transposed", "line", "space"],
)
def test_shapes_of_all_kinds(of):
    torch.manual_seed(0)
    layer = Operational({"sine": ops.Sine(), "gaussian": ops.Gaussian()})(of)
    x = torch.rand(2, 2, *(7, 6, 5)[: of.dims])
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True, dynamic=True)
    expected = layer(x)
    assert torch.equal(compiled(x), expected)
    assert torch.equal(compiled(x[:1]), layer(x[:1]))


@pytest.mark.parametrize("needed", [(True, False, False), (False, True, False), (False, False, True)])
@pytest.mark.parametrize("pool", ["sum", "maximum"])
def test_gradients_that_are_not_needed(case, pool, needed):
    layer = case([ops.Sine()], pool=ops.named(pool))
    expected = layer.run("auto")
    handle = Handle(layer.call, Memory())
    leaves = [t.requires_grad_(need) for t, need in zip((layer.x, layer.weight, layer.bias), needed, strict=True)]
    y = opaque.run(handle, leaves[0], leaves[1], layer.gain, leaves[2], training=True)
    upstream = torch.randn(y.shape, generator=torch.Generator().manual_seed(5))
    (got,) = torch.autograd.grad(y, [leaf for leaf in leaves if leaf.requires_grad], upstream)
    assert torch.equal(got, (expected.to_x, expected.to_weight, expected.to_bias)[needed.index(True)])


# torch hides this one of its own from users, which it cannot where warnings are errors
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")
@pytest.mark.parametrize("nodals", [[ops.Sine()], [ops.Sine(), ops.Exponential()]], ids=["one", "two"])
@pytest.mark.parametrize("gain", [True, False])
def test_the_operation_keeps_the_rules_of_torch(case, nodals, gain):
    layer = case(nodals)
    handle = Handle(layer.call, Memory())
    leaves = [t.requires_grad_() for t in (layer.x, layer.weight, layer.bias)]
    arguments = (
        leaves[0],
        leaves[1],
        layer.gain if gain else None,
        leaves[2],
        handle.number,
        True,
        [1, 1],
        [1, 1],
        False,
    )
    torch.library.opcheck(torch.ops.onn_runner.operational, arguments)


def test_an_empty_batch(case):
    layer = case([ops.Sine()])
    handle = Handle(layer.call, Memory())
    x = layer.x[:0].requires_grad_()
    y = opaque.run(handle, x, layer.weight.requires_grad_(), None, None, training=True)
    assert y.shape == (0, 8, 7, 5)
    y.sum().backward()
    assert x.grad.shape == x.shape
    assert handle.memory.plans == {}


def test_a_refusal_reaches_the_user_as_it_is():
    torch.manual_seed(0)
    layer = Operational({"sine": ops.Sine()}, compute="chebyshev")(spec(1, 4))
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    with torch.no_grad():
        layer.weight *= 1000
    with pytest.raises(ConfigError, match="compute=chebyshev cannot serve this layer: 64 nodes are too few for sine"):
        compiled(batches(1)[0])


def test_importing_the_kernels_does_not_import_the_compiler():
    command = "import sys, onn_runner.compute; print('torch._dynamo' in sys.modules, 'triton' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


# about 20 s, of which 15 for torch's own first start
@pytest.mark.slow
@pytest.mark.skipif(shutil.which("c++") is None and shutil.which("g++") is None, reason="needs a C++ compiler")
def test_inductor_computes_the_same(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    eager, other = network()[:1], network()[:1]
    compiled = torch.compile(other, fullgraph=True)
    inputs = batches(4)
    # activations are fused, which rounds differently
    assert train(other, compiled, inputs) == pytest.approx(train(eager, eager, inputs), rel=1e-5)
    assert graphs() == 1
