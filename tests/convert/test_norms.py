"""Batch norms in the weights: which are found, and that evaluation stays what it was."""

from __future__ import annotations

import pytest
import torch
import torchvision
from torch import Tensor, nn

from onn_runner.convert import convert
from onn_runner.errors import ConfigError
from onn_runner.model.conv import Conv
from onn_runner.model.quadratic import Quadratic


def stirred(network: nn.Module) -> nn.Module:
    """With norms that do something."""
    torch.manual_seed(0)
    for module in network.modules():
        if isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d)):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.bias)
            nn.init.normal_(module.running_mean)
            nn.init.uniform_(module.running_var, 0.5, 2.0)
    return network.eval()


def assert_folded(network: nn.Module, x: Tensor, count: int) -> None:
    report = convert(network, Quadratic("quadralib"), fold_norms=True)
    assert len(report.folded) == count
    with torch.no_grad():
        # rescaled weights round once more, layer by layer
        torch.testing.assert_close(report.network(x), network(x), rtol=1e-9, atol=1e-10)
    left = [m for m in report.network.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    assert not left


def test_resnet18() -> None:
    network = stirred(torchvision.models.resnet18(num_classes=4)).double()
    assert_folded(network, torch.randn(2, 3, 33, 40, dtype=torch.float64), 20)


def test_transposed_grouped_and_linear() -> None:
    network = nn.Sequential(
        nn.ConvTranspose2d(4, 6, 3, groups=2, stride=2),
        nn.BatchNorm2d(6),
        nn.Conv2d(6, 6, 3, groups=3, bias=False),
        nn.BatchNorm2d(6),
        nn.ConvTranspose2d(6, 2, 2, bias=False),
        nn.BatchNorm2d(2),
        nn.Flatten(),
        nn.Linear(72, 5),
        nn.BatchNorm1d(5),
    )
    assert_folded(stirred(network).double(), torch.randn(2, 4, 3, 3, dtype=torch.float64), 4)


def test_our_own_layers() -> None:
    from onn_runner.network.vgg import VGG

    torch.manual_seed(0)
    network = stirred(VGG(Conv("relu"), in_channels=1, out_channels=4, input_size=(16, 16), channels=4)).double()
    norms = sum(isinstance(module, nn.BatchNorm2d) for module in network.modules())
    assert_folded(network, torch.rand(3, 1, 16, 16, dtype=torch.float64), norms)


class Twice(nn.Module):
    """A norm whose input goes elsewhere as well, one behind an activation, and a way that fx cannot trace."""

    def __init__(self, *, branching: bool) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(2, 3, 3, padding=1), nn.Conv2d(3, 3, 3, padding=1)
        self.norm, self.other = nn.BatchNorm2d(3), nn.BatchNorm2d(3)
        self.branching = branching

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        if self.branching and x.sum() > 0:
            x = x + 1
        x = x + self.norm(x)
        y: Tensor = self.other(torch.relu(self.second(x)))
        return y


@pytest.mark.parametrize("branching", [True, False])
def test_only_norms_that_certainly_follow(branching: bool) -> None:
    with pytest.raises(ConfigError, match="fold_norms: no batch norm certainly follows"):
        convert(Twice(branching=branching), Conv(), fold_norms=True)


def test_norms_of_layers_that_stay_are_left() -> None:
    network = torchvision.models.resnet18(num_classes=4)
    report = convert(network, Conv(), layers="layer1.*", fold_norms=True)
    assert {name for name, _ in report.folded} == {one.name for one in report.converted}
    assert isinstance(report.network.bn1, nn.BatchNorm2d)
