"""torch.export: plain operations that compute what the layer does, for any batch size, after it has seen inputs."""

import pytest
import torch
from torch import nn
from torch.export import Dim, export

from onn_runner import ops
from onn_runner.errors import ConfigError
from onn_runner.model.base import LayerSpec
from onn_runner.model.operational import Operational

USER = ops.FunctionNodal(function=lambda w, x: torch.tanh(w * x + 0.3) + torch.cos(w) * x)
MIXED = {"sine": ops.Sine(), "exp": ops.Exponential(), "gaussian": ops.Gaussian(), "mul": ops.Multiply()}


def spec(inputs, outputs, **changes):
    plain = {"kernel_size": (3, 3), "stride": (1, 1), "dilation": (1, 1)}
    return LayerSpec(in_channels=inputs, out_channels=outputs, **{**plain, **changes})


LAYERS = {
    "sine": (Operational({"sine": ops.Sine()}), spec(2, 8)),
    "mixed": (Operational(MIXED), spec(2, 8, input_bound=(-1.0, 1.0), padding_mode="reflect")),
    "user": (Operational({"user": USER}), spec(2, 8)),
    "mean": (Operational({"sine": ops.Sine(), "log": ops.Log()}, pool="mean"), spec(2, 8)),
    "groups": (Operational(MIXED), spec(4, 8, groups=2, stride=(2, 1), dilation=(1, 2))),
    "transposed": (
        Operational({"sine": ops.Sine(), "gaussian": ops.Gaussian()}),
        spec(2, 4, transposed=True, stride=(2, 3)),
    ),
    "fastonn": (Operational({"sine": ops.Sine(), "exp": ops.Exponential()}, initialisation="fastonn"), spec(2, 4)),
    "line": (
        Operational({"sine": ops.Sine()}),
        LayerSpec(in_channels=2, out_channels=3, kernel_size=(5,), stride=(2,), dilation=(1,)),
    ),
}
EXACT = {
    "median": Operational({"sine": ops.Sine()}, pool="median"),
    "maximum": Operational(MIXED, pool="maximum"),
    "out of reach": Operational({"chirp": ops.Chirp(k=10000.0, omega=5000.0)}),
    "tapwise": Operational({"sine": ops.Sine()}, compute="tapwise"),
}


def inputs(of, batch, seed=0):
    sizes = (10, 9)[: of.dims]
    return torch.rand(batch, of.in_channels, *sizes, generator=torch.Generator().manual_seed(seed)) * 2 - 1


def exported(layer, x):
    return export(layer, (x,), dynamic_shapes=({0: Dim("batch")},))


def check(program, layer, x):
    """The rule for single precision, by channel: both are within 1e-6 of the truth where float32 is not further off."""
    with torch.no_grad():
        got, expected = (f(x).transpose(0, 1).flatten(1) for f in (program.module(), layer))
    assert bool(((got - expected).norm(dim=1) <= 2e-6 * expected.norm(dim=1)).all())


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("training", [True, False])
def test_the_program_is_the_layer(name, training):
    factory, of = LAYERS[name]
    torch.manual_seed(0)
    layer = factory(of).train(training)
    layer.memory.requested = "chebyshev"  # whatever is faster for so small a layer
    layer(inputs(of, 3))
    assert layer.memory.chosen == "chebyshev"
    plans = str(layer.memory)
    program = exported(layer, inputs(of, 3))
    assert str(layer.memory) == plans
    for batch in (1, 2, 5):
        check(program, layer, 0.9 * inputs(of, batch, seed=batch))


@pytest.mark.parametrize("name", EXACT)
def test_layers_without_an_expansion_export_their_definition(name):
    torch.manual_seed(0)
    layer = EXACT[name](spec(2, 4))
    x = inputs(layer.spec, 3)
    layer(x)
    assert layer.memory.chosen == "tapwise"
    check(exported(layer, x), layer, 0.7 * x[:2])


def test_only_operations_of_torch_are_left():
    layer = LAYERS["mixed"][0](LAYERS["mixed"][1])
    layer(inputs(layer.spec, 2))
    program = exported(layer, inputs(layer.spec, 2)).run_decompositions()
    names = {str(node.target) for node in program.graph.nodes if node.op == "call_function"}
    # the batch size is a symbol
    assert all(name.startswith(("aten.", "sym_size", "<built-in")) for name in names), names
    assert "aten.convolution.default" in names
    assert not {name for name in names if "im2col" in name or "unfold" in name}


def test_a_network_in_training_goes_on_as_before():
    torch.manual_seed(0)
    factory = Operational(MIXED)
    layers = nn.Sequential(factory(spec(1, 4)), factory(spec(4, 4, role="output")))
    x = torch.rand(2, 1, 8, 8)
    before = layers(x)
    program = exported(layers, x)
    assert torch.equal(layers(x), before)
    # two layers
    torch.testing.assert_close(program.module()(x), before, rtol=1e-5, atol=1e-5)


def test_a_layer_that_has_seen_nothing_is_refused():
    layer = Operational({"sine": ops.Sine()})(spec(1, 4))
    with pytest.raises(ConfigError, match="run the network once on typical inputs before exporting it"):
        export(layer, (torch.rand(2, 1, 8, 8),))
    layer(torch.rand(2, 1, 8, 8).double().float())
    export(layer, (torch.rand(2, 1, 8, 8),))


def test_the_plan_of_training_is_taken_before_that_of_evaluation():
    torch.manual_seed(0)
    layer = Operational({"sine": ops.Sine()})(spec(1, 4))
    x = inputs(layer.spec, 2)
    layer(x)
    layer.eval()(x * 3)
    assert {"train", "evaluation"} == set(layer.memory.plans)
    program = exported(layer, x)
    # beyond the plan's range inputs count as its end, and do not leave psi as polynomials would
    got = program.module()(100 * x)
    ends = program.module()((100 * x).clamp(-1, 1))
    torch.testing.assert_close(got, ends, rtol=1e-5, atol=1e-5)


def test_inputs_beyond_the_range_are_exact_for_products():
    torch.manual_seed(0)
    layer = Operational({"mul": ops.Multiply()}, activation="identity")(spec(1, 4))
    x = inputs(layer.spec, 2)
    layer(x)
    torch.testing.assert_close(exported(layer, x).module()(50 * x), layer(50 * x))
