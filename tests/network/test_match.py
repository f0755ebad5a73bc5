"""Matched widths: within 3 % of the convolutional network, counted on real layers; the random state stays."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from small_networks import CLASSIFIERS, MODELS, RESTORERS, build, factory_of
from torch import nn

from onn_runner.errors import ConfigError
from onn_runner.model.base import Factory, Layer, LayerSpec
from onn_runner.model.conv import Conv, ConvLayer
from onn_runner.model.operational import Operational
from onn_runner.model.quadratic import TYPES, Quadratic
from onn_runner.model.self_onn import SelfONN
from onn_runner.network.compact import Compact
from onn_runner.network.match import Match
from onn_runner.network.summary import layers_of, summarise
from onn_runner.ops.nodal import Cubic, Multiply, Sine

SIZE = (24, 20)


def counted(network: nn.Module, match: str) -> int:
    summary = summarise(network, (1, *SIZE))
    return summary.parameters if match == "params" else summary.macs


FACTORIES: dict[str, Callable[[], Factory]] = {
    **{name: (lambda name=name: factory_of(name)) for name in MODELS},
    **{f"quadratic {name}": (lambda name=name: Quadratic(name)) for name in TYPES},
    "quadratic norm": lambda: Quadratic("t2_4", norm="batch"),
    "self_onn 7": lambda: SelfONN(7),
}


PAIRS = [(model, network) for network in RESTORERS for model in FACTORIES]
# Kinds whose costs grow alike are one here: classifiers have many layers.
PAIRS += [(model, network) for network in CLASSIFIERS for model in (*MODELS, "quadratic t1", "quadratic norm")]


@pytest.mark.parametrize("match", ["params", "macs"])
@pytest.mark.parametrize(("model", "network"), PAIRS)
def test_within_three_percent_at_usual_sizes(model: str, network: str, match: Match) -> None:
    channels: Any = [16, 16] if network == "compact" else 16
    given = {"input_size": SIZE, "channels": channels}
    if network == "unet" and model in ("quadratic t1", "quadratic t1_2"):
        # products of pairs of a patch have no transposed form
        given["up"] = "nearest"
    made = build(network, FACTORIES[model](), match=match, **given)
    wanted = counted(build(network, Conv(), **given), match)
    have = sum(p.numel() for p in made.parameters())
    if match == "macs":
        have = sum(layer.macs(positions) for layer, positions in _positions(made))
    assert abs(have - wanted) <= 0.03 * wanted
    line = made.matched
    assert isinstance(line, str)
    assert line.startswith(f"network.match={match}: channels [16,")
    assert f" {have:,} " in line
    assert line.split("has ")[1].startswith(f"{wanted:,}")
    assert "\n" not in line


def _positions(network: nn.Module) -> list[tuple[Layer, int]]:
    """Each layer with its output positions, from a forward that looks at shapes only."""
    found: list[tuple[Layer, int]] = []
    for _, layer in layers_of(network.eval()):
        layer.register_forward_hook(lambda layer, _, y: found.append((layer, y[0, 0].numel())))
        layer.forward = _shapes_only(layer)
    network(torch.rand(1, 1, *SIZE))
    return found


def _shapes_only(layer: Layer) -> Callable[[torch.Tensor], torch.Tensor]:
    """Zeros of the output's shape: operational layers take long to run."""
    stand_in = Conv()(layer.spec).eval()
    return lambda x: stand_in(x)


@pytest.mark.parametrize(("channels", "chosen"), [([16, 16], [16, 16]), ([5, 3, 7], [5, 3, 7])])
def test_convolutions_stay_as_written_whatever_their_activation(channels: list[int], chosen: list[int]) -> None:
    for match in ("params", "macs"):
        made = build("compact", Conv("relu"), input_size=SIZE, channels=channels, match=match)
        assert [layer.spec.out_channels for layer in made.layers[:-1]] == chosen
        assert " stay: " in made.matched
        assert "%" not in made.matched
    assert build("compact", Conv(), input_size=SIZE).matched is None


def test_the_line_by_hand() -> None:
    made = Compact(SelfONN(3), 1, out_channels=1, channels=[4, 6], input_size=SIZE, match="params")
    # 9 x 4 + 4, 9 x 4 x 6 + 6 and 9 x 6 + 1 of convolutions; 27 x 2 + 2, 27 x 2 x 4 + 4 and 9 x 4 + 1
    text = "channels [4,6] -> [2,4]: 313 parameters, the convolutional network has 317 (-1.3 %)"
    assert made.matched == f"network.match=params: {text}"


def test_where_nothing_comes_close_the_line_says_so() -> None:
    made = Compact(SelfONN(9), 3, out_channels=3, channels=[2], input_size=SIZE, match="params")
    assert made.layers[0].spec.out_channels == 1
    assert made.matched.endswith("(+142 %); no widths tried come closer than 3 %")


@pytest.mark.parametrize("network", RESTORERS + CLASSIFIERS)
@pytest.mark.parametrize("model", MODELS)
def test_weights_are_those_of_a_network_written_with_these_widths(network: str, model: str) -> None:
    given = {"input_size": SIZE, "channels": [8, 6] if network == "compact" else 6}
    matched = build(network, factory_of(model), match="params", **given)
    after = torch.get_rng_state()
    widths = re.findall(r"\[([\d,]+)\]", matched.matched)[-1]
    direct = build(network, factory_of(model), **(given | {"channels": [int(width) for width in widths.split(",")]}))
    assert torch.equal(torch.get_rng_state(), after)
    for (key, one), two in zip(matched.named_parameters(), direct.parameters(), strict=True):
        assert torch.equal(one, two), key


def test_every_operator_keeps_its_neuron() -> None:
    operators = {"sine": Sine(), "mul": Multiply(), "cubic": Cubic()}

    def wide(spec: LayerSpec) -> Layer:
        """Operational layers of twice the inputs: more expensive than a convolution of the same width."""
        return Twice(spec, Operational(operators, layers=None if spec.index else [["sine"]]))

    made = Compact(wide, 1, out_channels=1, channels=[3, 4], input_size=SIZE, match="params")
    first, second, _ = made.layers
    assert first.spec.out_channels < 3
    assert second.spec.out_channels >= 3
    with pytest.raises(ConfigError, match="layer 1 has 2 neurons for 3 operators"):
        Compact(Operational(operators, layers=[["sine"], None]), 1, out_channels=1, channels=[1, 2], input_size=SIZE,
                match="params")  # fmt: skip


class Twice(Layer):
    """A user's layer: two layers of a factory, multiplied."""

    def __init__(self, spec: LayerSpec, factory: Factory) -> None:
        super().__init__()
        self.spec, self.output_bound = spec, (-1.0, 1.0)
        self.one, self.two = factory(spec), factory(spec)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.one(x) * self.two(x)

    def macs(self, positions: int) -> int:
        return self.one.macs(positions) + self.two.macs(positions)


class LowRank(ConvLayer):
    """A user's layer whose cost is no product of widths: C -> C / 4 -> O."""

    def __init__(self, spec: LayerSpec) -> None:
        super().__init__(spec, "tanh")
        rank = max(1, spec.in_channels // 4)
        del self.weight
        self.down = nn.Parameter(torch.rand(rank, spec.in_channels, 1, 1) - 0.5)
        self.up = nn.Parameter(torch.rand(spec.out_channels, rank, *spec.kernel_size) - 0.5)

    def respond(self, x: torch.Tensor) -> torch.Tensor:
        return torch.conv2d(torch.conv2d(x, self.down), self.up, self.bias)

    def macs(self, positions: int) -> int:
        return positions * (self.down.numel() + self.up.numel())


@pytest.mark.parametrize("match", ["params", "macs"])
def test_a_layer_of_a_user_s_is_counted_as_it_is(match: Match) -> None:
    made = Compact(LowRank, 1, out_channels=1, channels=[32, 24], input_size=SIZE, match=match)
    have = sum(p.numel() for p in made.parameters())
    if match == "macs":
        have = sum(layer.macs(24 * 20) for layer in made.layers)
    wanted = counted(Compact(Conv(), 1, out_channels=1, channels=[32, 24], input_size=SIZE), match)
    assert abs(have - wanted) <= 0.03 * wanted
    assert f" {have:,} " in made.matched
