"""The compact network: every size comes back, the start is the identity, impossible requests are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from onn_runner.errors import ConfigError
from onn_runner.model.base import Factory, Layer, LayerSpec
from onn_runner.model.conv import Conv
from onn_runner.model.operational import Operational
from onn_runner.model.quadratic import Quadratic
from onn_runner.model.self_onn import SelfONN
from onn_runner.network.compact import Compact
from onn_runner.network.sampling import parse
from onn_runner.ops.nodal import Multiply, Sine

FASTONN: dict[str, Any] = {
    "channels": [4, 6],
    "kernels": [21, 7, 3],
    "sampling": ["max2", "up2", "none"],
    "padding": "valid",
    "input_padding": 17,
    "input_size": (60, 60),
    "residual": False,
}


def make(factory: Factory | None = None, **changes: Any) -> Compact:
    values = {"in_channels": 1, "out_channels": 1, "channels": [4, 6], "input_size": (12, 12)} | changes
    torch.manual_seed(0)
    return Compact(factory or Conv("tanh"), **values)


FACTORIES: dict[str, Callable[[], Factory]] = {
    "conv": Conv,
    "onn": lambda: Operational({"sine": Sine(), "mul": Multiply()}),
    "self_onn": lambda: SelfONN(3),
    "quadratic": Quadratic,
}


@pytest.mark.parametrize("output", ["conv", "same"])
@pytest.mark.parametrize("name", FACTORIES)
def test_any_factory_any_size_and_a_gradient_everywhere(name: str, output: Any) -> None:
    network = make(FACTORIES[name](), output=output, sampling=["max2", "up2", "none"])
    with torch.no_grad():
        network.layers[-1].weight.normal_() if output == "conv" else None
    for size in [(12, 12), (13, 7), (5, 9)]:
        x = torch.rand(2, 1, *size)
        assert network(x).shape == x.shape
    network(torch.rand(2, 1, 9, 9)).square().sum().backward()
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in network.parameters())


def test_a_fresh_residual_network_is_the_identity() -> None:
    x = torch.rand(2, 3, 9, 11) * 1.4 - 0.2
    assert torch.equal(make(in_channels=3, out_channels=3)(x), x)


def test_forward_by_hand() -> None:
    network = make(channels=[3], kernels=[3, 1], residual_scale=0.25)
    first, second = network.layers
    torch.nn.init.normal_(second.weight)
    x = torch.rand(2, 1, 6, 5)
    hidden = torch.tanh(torch.conv2d(2 * x - 1, first.weight, first.bias, padding=1))
    f = torch.conv2d(hidden, second.weight, second.bias)
    torch.testing.assert_close(network(x), x + 0.25 * f)
    network.residual = False
    torch.testing.assert_close(network(x), (f + 1) / 2)
    network.centre = False
    hidden = torch.tanh(torch.conv2d(x, first.weight, first.bias, padding=1))
    torch.testing.assert_close(network(x), torch.conv2d(hidden, second.weight, second.bias))


def test_sampling_by_hand() -> None:
    network = make(channels=[2, 2], kernels=1, sampling=["max2", "up2", "none"], residual=False, centre=False)
    a, b, c = network.layers
    x = torch.rand(1, 1, 4, 6)
    z = torch.nn.functional.max_pool2d(torch.tanh(torch.conv2d(x, a.weight, a.bias)), 2)
    z = torch.tanh(torch.conv2d(z, b.weight, b.bias)).repeat_interleave(2, 2).repeat_interleave(2, 3)
    torch.testing.assert_close(network(x), torch.conv2d(z, c.weight, c.bias))


def test_odd_sizes_repeat_the_edge_and_are_cropped() -> None:
    network = make(sampling=["avg2", "up2", "none"])
    torch.nn.init.normal_(network.layers[-1].weight)
    x = torch.rand(1, 1, 7, 9)
    padded = torch.cat([x, x[:, :, -1:]], 2)
    padded = torch.cat([padded, padded[..., -1:]], 3)
    torch.testing.assert_close(network(x), network(padded)[:, :, :7, :9])


@pytest.mark.parametrize("size", [(60, 60), (61, 60), (47, 53)])
def test_fastonns_own_recipe(size: tuple[int, int]) -> None:
    assert make(**FASTONN)(torch.rand(1, 1, *size)).shape == (1, 1, *size)


@pytest.mark.parametrize("size", [1, 7, 33])
def test_one_axis(size: int) -> None:
    network = make(input_size=(16,), channels=[3, 3, 3], kernels=[4, 3, 2, 5], sampling=["max2", "avg2", "up2", "up2"])
    assert network(torch.rand(2, 1, size)).shape == (2, 1, size)


def test_kernels_per_axis_and_layers_are_reached_by_name() -> None:
    network = make(kernels=[[3, 5], 1, 3])
    assert [layer.spec.kernel_size for layer in network.layers] == [(3, 5), (1, 1), (3, 3)]


class Recorder:
    """A factory that notes what it is asked for."""

    def __init__(self) -> None:
        self.specs: list[LayerSpec] = []
        self.count = -1

    def expect(self, count: int) -> None:
        self.count = count

    def __call__(self, spec: LayerSpec) -> Layer:
        self.specs.append(spec)
        return Conv("tanh")(spec)


@pytest.mark.parametrize(("output", "count"), [("conv", 2), ("same", 3)])
def test_what_the_factory_is_asked_for(output: Any, count: int) -> None:
    factory = Recorder()
    make(factory, output=output, padding_mode="circular")
    assert factory.count == len(factory.specs) == count
    assert [spec.index for spec in factory.specs] == list(range(count))
    assert [spec.input_bound for spec in factory.specs] == [None, *[(-1.0, 1.0)] * (count - 1)]
    assert [spec.role for spec in factory.specs] == ["hidden", "hidden", "output"][:count]
    assert {spec.padding_mode for spec in factory.specs} == {"circular"}


def test_model_layers_must_match() -> None:
    operators = {"sine": Sine()}
    make(Operational(operators, layers=[["sine"], None]))
    with pytest.raises(ConfigError, match=r"model.layers has 2 entries, the network has 3 operational layers"):
        make(Operational(operators, layers=[["sine"], None]), output="same")


REFUSED: dict[str, dict[str, Any]] = {
    r"network.kernels has 2 entries, network.channels makes 3 layers \(2 hidden and the output layer\)": {
        "kernels": [3, 3]
    },
    r"network.kernels holds 0; each must be a positive number, or 2 of them": {"kernels": 0},
    r"network.kernels holds \[3, 3, 3\]": {"kernels": [3, [3, 3, 3], 3]},
    r"network.kernels holds -3": {"kernels": [3, -3, 3]},
    r"network.kernels \(=three\) must be a number or a list": {"kernels": "three"},
    r"network.channels \(=\[4, -6\]\) holds -6": {"channels": [4, -6]},
    r"network.channels \(=16\) must be a list": {"channels": 16},
    r"network.sampling has 1 entries, network.channels makes 3 layers": {"sampling": ["max2"]},
    r"network.sampling holds 'down2'; write none, max2 or avg2": {"sampling": ["down2", "up2", "none"]},
    r"network.sampling holds '-2'": {"sampling": [-2, "up2", None]},
    r"network.sampling \(=max2\) must be a list": {"sampling": "max2"},
    r"divides the size by 4 and multiplies it by 2": {"sampling": ["max2", "avg2", "up2"]},
    r"network.sampling=max4 leaves nothing of 2x2 positions": {
        "kernels": 11,
        "padding": "valid",
        "sampling": ["max4", "up4", None],
    },
    r"unknown network.output 'sam'. Did you mean same": {"output": "sam"},
    r"network.residual adds the input \(1 channels\) to the output \(3 channels\); set network.residual=false": {
        "out_channels": 3
    },
    r"output \(=6x6\) must have the input's size \(=12x12\); use padding=same": {"padding": "valid"},
    r"output \(=18x18\) must have the input's size": {"input_padding": 3},
    r"layer 0: the kernel spans 13 positions .*, more than the input's 12 on axis 0": {
        "kernels": 13,
        "padding": "valid",
    },
    r"layer 0: padding \(=13\) must be less than the input's size \(=12\)": {"kernels": 27, "padding_mode": "reflect"},
    r"network.input_padding \(=-1\) must be": {"input_padding": -1},
    r"network.residual_scale \(=0\) must be a positive number": {"residual_scale": 0},
    r"unknown padding_mode 'zero'. Did you mean zeros": {"padding_mode": "zero"},
}


@pytest.mark.parametrize(("message", "changes"), REFUSED.items(), ids=REFUSED)
def test_refused(message: str, changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=message):
        make(**changes)


def test_refused_input() -> None:
    with pytest.raises(ConfigError, match="the network was built for 2 spatial axes, the input has 1"):
        make()(torch.rand(1, 1, 5))


@pytest.mark.parametrize(("word", "down", "up", "text"), [
    ("max2", 2, 1, "max2"), ("avg3", 3, 1, "avg3"), ("up4", 1, 4, "up4"), (None, 1, 1, "none"), ("max1", 1, 1, "none")
])  # fmt: skip
def test_sampling_words(word: str | None, down: int, up: int, text: str) -> None:
    sampling = parse(word)
    assert (sampling.down, sampling.up, str(sampling)) == (down, up, text)
    x: Tensor = torch.rand(1, 2, 13)
    assert sampling(x).shape[2:] == sampling.size((13,))


def test_a_kernel_larger_than_the_patch_is_refused():
    with pytest.raises(ConfigError, match=r"kernel of layer 1 \(=9x9\) is larger than its input \(=8x8\)"):
        Compact(Conv(), 1, out_channels=1, channels=[4], kernels=[3, 9], input_size=(8, 8))
