"""What is told of trained layers against values worked out by hand, and what is drawn of them."""

import math

import pytest
import torch
from torch import nn

from onn_runner.model.base import LayerSpec
from onn_runner.model.operational import Operational
from onn_runner.model.self_onn import SelfONN
from onn_runner.ops import Chirp, Cubic, DoG, Exponential, Gaussian, Multiply, Sine, Sinh
from onn_runner.ops.base import FunctionNodal
from onn_runner.report.figures_nodal import MOST_LAYERS, _limited, arguments, nodal_functions
from onn_runner.report.layer_use import inputs_of, landmarks, uses

OPERATORS = {"sine": Sine(k=2.0), "exp": Exponential()}


def spec(inputs=2, outputs=5, **changes):
    sizes = {"kernel_size": (3, 3), "stride": (1, 1), "dilation": (1, 1)}
    return LayerSpec(**{"in_channels": inputs, "out_channels": outputs, **sizes, **changes})


def used(*layers, x=None, neurons=4):
    torch.manual_seed(0)
    network = nn.Sequential(*layers)
    x = torch.rand(3, 2, 6, 7) * 2 - 1 if x is None else x
    with torch.no_grad():
        seen = inputs_of(network, lambda: network(x))
    return uses(network, seen, neurons=neurons)


def test_the_curves_are_psi_of_the_largest_middle_and_smallest_weight_over_the_x_seen():
    torch.manual_seed(1)
    layer = Operational(OPERATORS)(spec())
    x = torch.rand(3, 2, 6, 7) * 3 - 1
    (use,) = used(layer, x=x)
    assert [neuron.operator for neuron in use.neurons] == ["sine", "sine", "exp", "exp"]
    for neuron in use.neurons:
        assert (neuron.x[0], neuron.x[-1]) == (float(x.min()), float(x.max()))
        weights = layer.nodal_weight()[neuron.number].detach().double()
        sizes = weights.abs().flatten().sort(descending=True).values.tolist()
        wanted = [sizes[0], sizes[round((len(sizes) - 1) / 2)], sizes[-1]]
        assert [abs(c.weights[0]) for c in neuron.connections] == wanted
        for connection in neuron.connections:
            (w,) = connection.weights
            assert w == float(weights[connection.channel][connection.tap])
            expected = OPERATORS[neuron.operator](torch.tensor(w, dtype=torch.float64), torch.from_numpy(neuron.x))
            torch.testing.assert_close(torch.from_numpy(connection.values), expected)


def test_self_onn_connections_are_polynomials():
    torch.manual_seed(2)
    layer = SelfONN(3)(spec())
    (use,) = used(layer)
    (part,) = use.arguments
    assert (part.symbol, part.calibrated, part.linear, part.turning) == ("x", 1.0, None, None)
    weight = layer.weight.detach().double().unflatten(1, (3, 2))
    for neuron in use.neurons:
        for connection in neuron.connections:
            w = [float(weight[(neuron.number, q, connection.channel, *connection.tap)]) for q in range(3)]
            assert list(connection.weights) == w
            grid = torch.from_numpy(neuron.x)
            expected = w[0] * grid + w[1] * grid**2 + w[2] * grid**3
            # 1e-12: another order of summation in double precision.
            torch.testing.assert_close(torch.from_numpy(connection.values), expected, rtol=1e-12, atol=1e-12)


def test_grouped_layers_look_at_their_own_channels():
    layer = Operational(OPERATORS)(spec(4, 4, groups=2))
    x = torch.zeros(2, 4, 5, 5)
    x[:, 2:] = 1.0
    (use,) = used(layer, x=x)
    channels = {neuron.number: {c.channel for c in neuron.connections} for neuron in use.neurons}
    assert channels[0] | channels[1] <= {0, 1}
    assert channels[2] | channels[3] <= {2, 3}
    sine, exp = use.arguments
    assert (sine.values == 0).all()
    assert (exp.values != 0).all()


def test_the_arguments_are_scaled_by_the_operators_constants():
    layer = Operational({"sine": OPERATORS["sine"]})(spec(1, 1, kernel_size=(1, 1)))
    x = torch.linspace(-1, 1, 30).reshape(1, 1, 5, 6)
    ((part,),) = (use.arguments for use in used(layer, x=x))
    expected = 2.0 * float(layer.nodal_weight().detach()) * x.flatten().double()
    torch.testing.assert_close(torch.from_numpy(part.values).sort().values, expected.sort().values)
    assert part.calibrated == pytest.approx(3.0), "omega of sine: K w in +-omega, x in +-1"


def test_products_are_linear_and_squares_are_not():
    square = FunctionNodal(function=lambda w, x: w * x * x)
    x = torch.linspace(-1, 1, 100).expand(1, 2, 1, 100)
    (use,) = used(Operational({"mul": Multiply(), "square": square})(spec()), x=x)
    mul, even = use.arguments
    assert mul.nonlinearity < 1e-12
    # x^2 over a range symmetric to 0 has no linear part.
    assert even.nonlinearity == pytest.approx(1.0, abs=1e-6)
    assert (mul.linear, mul.turning, even.linear) == (math.inf, None, None)


@pytest.mark.parametrize(
    ("nodal", "turning"),
    [
        (Sine(), math.pi / 2),
        (Sine(k=5.0), math.pi / 2),
        (DoG(), math.sqrt(0.5)),
        (Chirp(omega=2.0), math.sqrt(math.pi)),
    ],
)
def test_operators_turn_where_their_slope_ends(nodal, turning):
    _, found = landmarks(nodal, nodal.weight_bound)
    # Half a step of the grid and the last per cent of the slope.
    assert found == pytest.approx(turning, abs=0.02 * nodal.omega)


@pytest.mark.parametrize("nodal", [Exponential(), Sinh(), Multiply(), Cubic()])
def test_operators_that_grow_do_not_turn(nodal):
    assert landmarks(nodal, nodal.weight_bound)[1] is None


@pytest.mark.parametrize("nodal", [Gaussian(), Chirp(), Cubic()])
def test_operators_without_a_linear_part_have_no_linear_range(nodal):
    assert landmarks(nodal, nodal.weight_bound)[0] is None


def test_operators_that_overflow_have_no_landmarks():
    assert landmarks(FunctionNodal(function=lambda w, x: torch.log(x)), 1.0) == (None, None)


def test_layers_of_first_order_and_values_that_are_not_finite_are_passed_over():
    assert used(SelfONN(1)(spec()), nn.Conv2d(5, 1, 1)) == []
    assert used(SelfONN(3)(spec()), x=torch.full((1, 2, 4, 4), math.nan)) == []


@pytest.mark.parametrize("model", [Operational(OPERATORS), Operational({"mul": Multiply()}), SelfONN(2), SelfONN(7)])
@pytest.mark.parametrize("shape", [(3, 2, 6, 7), (1, 2, 1, 1)])
def test_every_kind_of_layer_is_drawn(model, shape):
    found = used(model(spec()), model(spec(5, 3, index=1, input_bound=(-1, 1))), x=torch.rand(shape))
    assert len(found) == 2
    assert nodal_functions(found, title="t").startswith(b"\x89PNG")
    assert arguments(found, before=found, title="t").startswith(b"\x89PNG")


def test_one_and_three_dimensions_and_constant_inputs_are_drawn():
    for axes in (1, 3):
        sizes = {name: (n,) * axes for name, n in (("kernel_size", 3), ("stride", 1), ("dilation", 1))}
        layer = Operational(OPERATORS)(LayerSpec(in_channels=2, out_channels=3, **sizes))
        found = used(layer, x=torch.full((1, 2, *[5] * axes), 0.5))
        assert nodal_functions(found, title="t").startswith(b"\x89PNG")
        assert arguments(found, before=[], title="t").startswith(b"\x89PNG")


def test_of_many_layers_some_are_drawn_from_the_first_to_the_last():
    found = used(SelfONN(2)(spec()))
    shown, note = _limited(found * 40)
    assert (len(shown), note) == (MOST_LAYERS, f" ({MOST_LAYERS} of 40 layers)")
    assert _limited(found * 3) == (found * 3, "")
