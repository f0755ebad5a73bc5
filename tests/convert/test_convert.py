"""Networks whose layers become other neurons that start as what they were."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torchvision
from torch import Tensor, nn
from torch.nn import functional as F

from onn_runner.convert import convert, take_over
from onn_runner.errors import ConfigError
from onn_runner.model.base import Factory, Layer, Unrepresentable
from onn_runner.model.conv import Conv, ConvLayer
from onn_runner.model.operational import Operational
from onn_runner.model.quadratic import Quadratic
from onn_runner.model.self_onn import SelfONN
from onn_runner.model.vectors import VectorLayer
from onn_runner.network.mobilenet import MobileNet
from onn_runner.network.resnet import ResNet
from onn_runner.network.vgg import VGG
from onn_runner.ops.nodal import Exponential, Multiply, Sine

EXACT: dict[str, Factory] = {
    "conv": Conv(),
    "self_onn": SelfONN(3),
    "mul": Operational({"mul": Multiply()}),
    "quadralib": Quadratic(),
    "qres": Quadratic(type="qres"),
    "compact": Quadratic(type="compact"),
    "t2_4": Quadratic(type="t2_4"),
    "t1_low_rank": Quadratic(type="t1_low_rank"),
    "t4": Quadratic(type="t4", factor_biases=True),
}
ROUNDING = {"self_onn": 1e-5}
"""Relative, in single precision: one convolution over all powers sums the first in another order where it is wide."""


def quiet_vgg() -> nn.Module:
    return torchvision.models.vgg11(num_classes=5)


def outputs(network: nn.Module, x: Tensor) -> Tensor:
    """Also of GoogLeNet, which gives a tuple in training."""
    torch.manual_seed(1)
    with torch.no_grad():
        y: Any = network(x)
    return y if isinstance(y, Tensor) else torch.cat([part for part in y if part is not None])


def assert_same(network: nn.Module, made: nn.Module, x: Tensor, neurons: str = "") -> None:
    """To the last bit, in both modes, but for what sums in another order."""
    for training in (False, True):
        expected = outputs(copy.deepcopy(network).train(training), x)
        found = outputs(copy.deepcopy(made).train(training), x)
        torch.testing.assert_close(
            found, expected, rtol=0, atol=ROUNDING.get(neurons, 0.0) * float(expected.abs().amax())
        )


def seen(network: nn.Module, x: Tensor) -> nn.Module:
    """With norms that have seen a batch, so that evaluation is not the identity."""
    torch.manual_seed(0)
    outputs(network.train(), x)
    return network.eval()


TORCHVISION: dict[str, tuple[Callable[[], nn.Module], int]] = {
    "resnet18": (lambda: torchvision.models.resnet18(num_classes=5), 32),
    "mobilenet_v3_small": (lambda: torchvision.models.mobilenet_v3_small(num_classes=5), 32),
    "squeezenet1_1": (lambda: torchvision.models.squeezenet1_1(num_classes=5), 32),
    "shufflenet_v2_x0_5": (lambda: torchvision.models.shufflenet_v2_x0_5(num_classes=5), 32),
    "efficientnet_b0": (lambda: torchvision.models.efficientnet_b0(num_classes=5), 32),
    "googlenet": (lambda: torchvision.models.googlenet(num_classes=5, init_weights=False), 64),
}
OWN: dict[str, Callable[[], nn.Module]] = {
    "vgg": lambda: VGG(Conv("relu"), 3, out_channels=5, input_size=(16, 12), channels=4),
    "resnet": lambda: ResNet(Conv("relu"), 3, out_channels=5, input_size=(16, 12), depth=8, channels=4),
    "mobilenet": lambda: MobileNet(Conv("relu"), 3, out_channels=5, input_size=(16, 12), channels=4),
}


@pytest.mark.parametrize("neurons", ["quadralib", "mul", "qres"])
@pytest.mark.parametrize("name", TORCHVISION)
def test_networks_of_torchvision_stay_what_they_are(name: str, neurons: str) -> None:
    build, size = TORCHVISION[name]
    x = torch.randn(2, 3, size, size, generator=torch.Generator().manual_seed(0))
    network = seen(build(), x)
    report = convert(network, EXACT[neurons], start="exact")
    assert not report.left
    assert sum(isinstance(module, Layer) for module in report.network.modules()) == len(report.converted)
    assert not any(type(module) in (nn.Conv2d, nn.Linear) for module in report.network.modules())
    assert max(row.difference or 0.0 for row in report.converted) == 0.0
    assert_same(network, report.network, x, neurons)


@pytest.mark.parametrize("neurons", EXACT)
@pytest.mark.parametrize("name", OWN)
def test_own_networks_stay_what_they_are(name: str, neurons: str) -> None:
    x = torch.rand(3, 3, 16, 12, generator=torch.Generator().manual_seed(0))
    network = seen(OWN[name](), x)
    report = convert(network, EXACT[neurons])
    assert not report.left
    assert_same(network, report.network, x, neurons)


@pytest.mark.parametrize("neurons", EXACT)
@pytest.mark.parametrize(
    "layer",
    [
        nn.Conv1d(4, 6, 5, stride=2, padding=3, dilation=2),
        nn.Conv2d(4, 6, (3, 2), stride=(1, 2), padding=(2, 1), groups=2, bias=False),
        nn.Conv2d(4, 4, 3, padding="same", dilation=2, groups=4),
        nn.Conv2d(4, 6, 3, padding="valid"),
        nn.Conv2d(4, 6, 3, padding=1, padding_mode="reflect"),
        nn.Conv2d(4, 6, 3, padding=1, padding_mode="replicate"),
        nn.Conv2d(4, 6, 3, padding=(1, 2), padding_mode="circular"),
        nn.Conv3d(4, 6, (1, 2, 3), padding=(0, 1, 1)),
        nn.ConvTranspose1d(4, 6, 4, stride=2, padding=1),
        nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1, groups=2),
        nn.ConvTranspose3d(4, 2, 2, stride=2, bias=False),
        nn.Linear(4, 6),
        nn.Linear(4, 6, bias=False),
    ],
    ids=str,
)
def test_every_kind_of_layer_stays_what_it_is(layer: nn.Module, neurons: str) -> None:
    torch.manual_seed(0)
    dims = 0 if isinstance(layer, nn.Linear) else len(layer.kernel_size)
    x = torch.randn(3, 5, 4) if not dims else torch.randn(2, 4, *(7, 6, 5)[:dims])
    report = convert(layer, EXACT[neurons])
    assert report.network is not layer
    expected, found = outputs(layer, x), outputs(report.network, x)
    assert found.shape == expected.shape
    # single precision, sums of at most a hundred products
    torch.testing.assert_close(found, expected, rtol=0, atol=2e-6)


def test_quadratic_products_and_sines_cannot_be_a_convolution() -> None:
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 2, 1))
    with pytest.raises(Unrepresentable, match=r"^0 \(Conv2d 3 -> 4, 3x3\): .*start=near or fresh"):
        convert(network, Quadratic(type="t4"))
    with pytest.raises(Unrepresentable, match=r"sine.*start=near or fresh"):
        convert(network, Operational({"sine": Sine()}))
    assert isinstance(network[0], nn.Conv2d)


def test_other_operators_start_near() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Tanh(), nn.Conv2d(8, 4, 3))
    x = torch.rand(2, 3, 9, 8) * 2 - 1
    report = convert(network, Operational({"sine": Sine(), "exp": Exponential()}), start="near", example=x)
    expected, found = outputs(network, x), outputs(report.network, x)
    # 1 % per product at the ends of the range, less inside of it
    assert float((found - expected).norm() / expected.norm()) < 0.02
    assert all(row.near and row.difference is not None for row in report.converted)
    assert "near" in report.line()


def test_fresh_neurons_have_their_own_weights() -> None:
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 2, 1))
    report = convert(network, Quadratic(type="t4"), start="fresh")
    assert [row.difference for row in report.converted] == [None, None]
    assert any("without bounds" in note for note in report.notes) or not report.notes


def test_patterns_choose_and_keep() -> None:
    network = torchvision.models.resnet18(num_classes=3)
    report = convert(network, SelfONN(2), layers="layer*", keep=["*downsample*"])
    assert {row.name for row in report.converted} == {
        name for name, module in network.named_modules()
        if isinstance(module, nn.Conv2d) and name.startswith("layer") and "downsample" not in name
    }  # fmt: skip
    reasons = {left.name: left.reason for left in report.left}
    assert reasons["conv1"] == reasons["fc"] == "not among the layers asked for"
    assert reasons["layer2.0.downsample.0"] == "kept, as asked for"
    with pytest.raises(ConfigError, match="no convolution or linear layer is called 'stem'; there are: conv1"):
        convert(network, SelfONN(2), layers="stem")


def test_layers_are_numbered_without_gaps_in_their_order() -> None:
    report = convert(torchvision.models.resnet18(num_classes=3), SelfONN(2), keep=["layer1.*"])
    specs = [module.spec for module in report.network.modules() if isinstance(module, Layer)]
    assert [spec.index for spec in specs] == list(range(len(specs)))
    assert [spec.role for spec in specs] == ["hidden"] * (len(specs) - 1) + ["output"]


def test_a_layer_at_two_places_is_one_layer_at_two_places() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Conv2d(3, 3, 3, padding=1)
            self.second = self.first

        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = self.second(self.first(x).tanh())
            return y

    network, x = Twice(), torch.randn(2, 3, 5, 6)
    report = convert(network, SelfONN(2))
    assert report.network.first is report.network.second
    assert len(report.converted) == 1
    assert_same(network, report.network, x)


class Own(nn.Conv2d):
    """Standardised weights, as some networks of timm have."""

    def forward(self, x: Tensor) -> Tensor:
        weight = self.weight - self.weight.mean()
        return F.conv2d(x, weight, self.bias)


class Same(nn.Conv2d):
    """A subclass that computes what its base does."""


@pytest.mark.filterwarnings("ignore:.*Lazy modules:UserWarning")
def test_what_is_more_than_a_convolution_stays_and_is_named() -> None:
    network = nn.Sequential(
        Own(3, 4, 3),
        Same(4, 4, 1),
        nn.utils.parametrizations.weight_norm(nn.Conv2d(4, 4, 1)),
        nn.LazyConv2d(4, 1),
        nn.Conv2d(4, 4, 1, dtype=torch.complex64),
    )
    report = convert(network, SelfONN(2))
    assert [row.name for row in report.converted] == ["1"]
    reasons = {left.name: left.reason for left in report.left}
    assert reasons["0"] == "Own computes something of its own"
    assert "parametrised" in reasons["2"]
    assert "no weights yet" in reasons["3"]
    assert reasons["4"] == "its weights are no real numbers"


def test_tied_weights_and_those_read_by_others_stay() -> None:
    class Reader(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(7, 4)
            self.read, self.called, self.tied = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 7, bias=False)
            self.tied.weight = self.embed.weight

        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = self.tied(F.linear(self.called(x), self.read.weight))
            return y

    network, x = Reader(), torch.randn(2, 4)
    report = convert(network, SelfONN(2), example=x)
    assert [row.name for row in report.converted] == ["called"]
    reasons = {left.name: left.reason for left in report.left}
    assert reasons["read"] == "another module computes with its weights instead of calling it"
    assert reasons["tied"] == "it shares its weights with embed"
    assert_same(network, report.network, x)


def test_the_projections_of_attention_stay() -> None:
    network = torchvision.models.VisionTransformer(16, 8, 1, 2, 8, 16, num_classes=3).eval()
    x = torch.randn(2, 3, 16, 16)
    report = convert(network, Quadratic(type="qres"), example=x)
    names = {row.name.rpartition(".")[2] for row in report.converted}
    assert names == {"conv_proj", "0", "3", "head"}
    assert {left.name.rpartition(".")[2] for left in report.left} == {"in_proj", "out_proj"}
    assert sum(isinstance(module, VectorLayer) for module in report.network.modules()) == 3
    assert_same(network, report.network, x)


def test_mode_type_hooks_and_what_learns_are_kept() -> None:
    network = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Linear(4, 2)).double().eval()
    network[0].requires_grad_(False)
    called: list[int] = []
    handle = network[0].register_forward_hook(lambda *_: called.append(1))
    made = convert(network, SelfONN(2), inplace=True).network
    assert made is network
    layer = made[0]
    assert not layer.training
    assert layer.weight.dtype == torch.float64
    assert [p.requires_grad for p in layer.parameters()] == [False, False]
    assert all(p.requires_grad for p in made[1].parameters())
    layer(torch.randn(1, 3, 3, 3, dtype=torch.float64))
    handle.remove()
    layer(torch.randn(1, 3, 3, 3, dtype=torch.float64))
    assert called == [1]


@pytest.mark.parametrize("neurons", ["self_onn", "mul", "t2_4"])
def test_norms_are_folded_where_they_certainly_follow(neurons: str) -> None:
    x = torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    network = seen(torchvision.models.resnet18(num_classes=5), x).double()
    report = convert(network, EXACT[neurons], fold_norms=True)
    assert len(report.folded) == 20
    assert not any(isinstance(module, nn.BatchNorm2d) for module in report.network.modules())
    expected, found = outputs(network.eval(), x.double()), outputs(report.network.eval(), x.double())
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-10 * float(expected.abs().amax()))


def test_transposed_layers_with_groups_fold_too() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.ConvTranspose2d(4, 6, 3, groups=2, stride=2), nn.BatchNorm2d(6), nn.ReLU()).double()
    x = torch.randn(3, 4, 5, 4, dtype=torch.float64)
    seen(network, x)
    report = convert(network, SelfONN(2), fold_norms=True)
    torch.testing.assert_close(outputs(report.network, x), outputs(network, x), rtol=0, atol=1e-12)


def test_a_norm_that_other_things_read_is_not_folded() -> None:
    class Branch(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm = nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3)

        def forward(self, x: Tensor) -> Tensor:
            y = self.conv(x)
            z: Tensor = self.norm(y) + y
            return z

    with pytest.raises(ConfigError, match="fold_norms: no batch norm certainly follows"):
        convert(Branch(), SelfONN(2), fold_norms=True)


def test_norms_inside_the_neurons_are_no_exact_start() -> None:
    with pytest.raises(ConfigError, match=r"normalises each convolution \(model.norm=batch\)"):
        convert(nn.Sequential(nn.Conv2d(3, 4, 3)), Quadratic(type="qres", norm="batch"))
    with pytest.raises(ConfigError, match=r"0 \(Conv2d 3 -> 4, 3x3\): these neurons have a norm of their own"):
        convert(nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 1, 1)), Quadratic(type="qres", output_norm="batch"))


def test_nothing_to_convert_is_said() -> None:
    with pytest.raises(ConfigError, match="ReLU has no layer to convert"):
        convert(nn.ReLU(), SelfONN(2))
    with pytest.raises(ConfigError, match="start"):
        convert(nn.Linear(2, 2), SelfONN(2), start="exactly")  # type: ignore[arg-type]


def test_a_converted_network_learns_what_is_not_first_order() -> None:
    torch.manual_seed(0)
    network = convert(nn.Sequential(nn.Conv2d(3, 4, 3), nn.Tanh()), Quadratic()).network
    before = copy.deepcopy(network.state_dict())
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    network(torch.randn(2, 3, 5, 5)).square().mean().backward()
    optimizer.step()
    changed = {name for name, value in network.state_dict().items() if not torch.equal(value, before[name])}
    # one factor is 0 at the start: only it, and the linear term, have gradients in the first step
    assert len(changed) >= 3


def network_of(factory: Factory) -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ResNet(factory, 3, out_channels=5, input_size=(16, 12), depth=8, channels=4)


@pytest.mark.parametrize(
    "factory",
    [SelfONN(3, activation="relu"), Quadratic(activation="relu"), Operational({"mul": Multiply()}, activation="relu")],
    ids=["self_onn", "quadratic", "onn"],
)
def test_a_network_takes_over_a_first_order_one(factory: Factory) -> None:
    x = torch.rand(3, 3, 16, 12)
    source = seen(network_of(Conv("relu")), x)
    network = network_of(factory)
    assert take_over(network, source) == 0
    assert_same(source, network, x, "self_onn")


def test_taking_over_says_where_the_networks_differ() -> None:
    source = network_of(Conv("relu"))
    small = VGG(Conv("relu"), 3, out_channels=5, input_size=(16, 12), channels=4)
    with pytest.raises(ConfigError, match="other layers"):
        take_over(small, source)
    with pytest.raises(Unrepresentable, match="layer stem: "):
        take_over(network_of(Operational({"sine": Sine()})), source)
    assert isinstance(source.get_submodule("stem"), ConvLayer)
    with pytest.raises(ConfigError, match="only first-order weights"):
        take_over(network_of(Quadratic(type="qres", activation="relu")), network_of(Quadratic(activation="relu")))
