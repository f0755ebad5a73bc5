"""What a network costs, against counts by hand; and that measuring changes nothing."""

import pytest
import torch
from torch import nn

from onn_runner.analysis.costs import measure
from onn_runner.analysis.memory import OUTSIDE, LiveBytes, Place, kept_bytes, peak_bytes, watched
from onn_runner.model.conv import Conv
from onn_runner.model.operational import Operational
from onn_runner.model.self_onn import SelfONN
from onn_runner.network.compact import Compact
from onn_runner.ops import Sine

FLOAT = 4


def compact(factory, size=(5, 7)):
    return Compact(factory, 1, out_channels=1, channels=[3], input_size=size)


def test_counts_of_convolutions_are_those_by_hand():
    network = compact(Conv())
    cost = measure(network, torch.rand(2, 1, 5, 7), repeats=1)
    first, second = (row.cost for row in cost.layers)
    assert (first.parameters, second.parameters, cost.total.parameters) == (3 * 9 + 3, 3 * 9 + 1, 58)
    assert first.macs == first.computed_macs == 5 * 7 * 3 * 9
    assert (first.activations, second.activations, first.nodal) == (5 * 7 * 3, 0, 0)
    # The padded input, tanh's output, the padded second input: of the batch.
    assert first.kept == FLOAT * 2 * (7 * 9 + 3 * 5 * 7)
    assert second.kept == FLOAT * 2 * 3 * 7 * 9
    assert cost.total.kept == first.kept + second.kept
    assert cost.peak >= cost.total.kept
    assert [row.output_shape for row in cost.layers] == [(3, 5, 7), (1, 5, 7)]
    assert min(first.forward, first.backward, cost.total.forward, cost.total.backward) > 0


@pytest.mark.parametrize("kernel", ["tapwise", "chebyshev"])
def test_operational_layers_count_values_of_psi_by_definition_and_what_convolutions_do(kernel):
    network = compact(Operational({"sine": Sine()}, compute=kernel))
    cost = measure(network, torch.rand(1, 1, 5, 7), repeats=1)
    first = cost.layers[0].cost
    assert first.nodal == first.macs == 5 * 7 * 3 * 9
    assert (first.computed_macs > 0) == (kernel == "chebyshev")
    assert cost.total.nodal == first.nodal


def test_powers_count_each_and_keep_no_more_than_a_convolution():
    plain, powers = (measure(compact(f), torch.rand(1, 1, 5, 7), repeats=1) for f in (Conv(), SelfONN(3)))
    assert powers.layers[0].cost.computed_macs == 3 * plain.layers[0].cost.computed_macs
    assert powers.total.kept == plain.total.kept


def test_measuring_leaves_network_and_random_state_alone():
    network = compact(Operational({"sine": Sine()}))
    before = {name: value.clone() for name, value in network.state_dict().items() if torch.is_tensor(value)}
    torch.manual_seed(1)
    state, extra = torch.get_rng_state(), network.layers[0].get_extra_state()
    measure(network, torch.rand(1, 1, 5, 7, generator=torch.Generator().manual_seed(0)), repeats=1)
    assert torch.equal(torch.get_rng_state(), state)
    assert network.layers[0].get_extra_state() == extra
    assert all(torch.equal(network.state_dict()[name], value) for name, value in before.items())
    assert all(p.grad is None for p in network.parameters())


def test_storages_count_once_and_parameters_never():
    class Square(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(10))

        def forward(self, x):
            return x * x * self.weight + x.view(-1) * self.weight

    network = Square()
    # x and x * x; the views of x and the weight are no new storages.
    assert kept_bytes(network, {}, torch.rand(10, requires_grad=True)) == {OUTSIDE: 2 * 10 * FLOAT}


def test_live_bytes_follow_tensors_that_go():
    x = torch.ones(100)
    with LiveBytes({x.untyped_storage().data_ptr()}) as live:
        y = x + 1
        z = y.view(10, 10) * 2
        assert live.now == 2 * 100 * FLOAT
        del y
        assert live.now == 100 * FLOAT
        z.add_(1)
    assert live.peak == 2 * 100 * FLOAT


def test_the_peak_is_that_of_the_step():
    network = nn.Linear(4, 4, bias=False)
    x = torch.rand(8, 4)
    # The output, its gradient as given, and the weight's gradient.
    assert peak_bytes(network, lambda: network(x).sum().item() and None, x) >= 8 * 4 * FLOAT


def test_a_layer_inside_another_is_told_apart():
    inner = nn.Linear(2, 2)
    network = nn.Sequential(inner, nn.Tanh())
    place, seen = Place(), []
    with watched({"all": network, "inner": inner}, place, enter=lambda name, _: seen.append(place.name)):
        network(torch.rand(1, 2))
    assert seen == ["all", "inner"]
    assert place.name == OUTSIDE
