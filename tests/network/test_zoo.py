"""Named networks of torchvision and timm: of any neurons, with weights from a file, and what is refused."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from onn_runner.errors import ConfigError
from onn_runner.model.base import Factory
from onn_runner.model.conv import Conv, ConvLayer
from onn_runner.model.quadratic import Quadratic
from onn_runner.model.self_onn import SelfONN
from onn_runner.network.summary import layers_of, summarise
from onn_runner.network.zoo import Timm, Torchvision, load_weights, torchvision_model

GIVEN: dict[str, Any] = {"out_channels": 4, "input_size": (32, 36), "output_size": ()}
FACTORIES: dict[str, Factory] = {
    "conv": Conv("relu"),
    "quadratic": Quadratic(activation="relu"),
    "self_onn": SelfONN(2),
}


@pytest.mark.parametrize("model", FACTORIES)
@pytest.mark.parametrize("name", ["shufflenet_v2_x0_5", "mobilenet_v3_small", "squeezenet1_0"])
def test_every_neuron_learns_in_them(name: str, model: str) -> None:
    torch.manual_seed(0)
    network = Torchvision(FACTORIES[model], 1, name=name, **GIVEN)
    y = network(torch.rand(2, 1, 32, 36))
    assert y.shape == (2, 4)
    y.logsumexp(1).sum().backward()
    assert all(parameter.grad is not None for parameter in network.parameters())
    assert f"network.name={name}: " in str(network.matched)
    assert "first-order layers converted, with fresh weights; its own activations stay" in str(network.matched)
    assert len(summarise(network, (1, 32, 36)).rows) == len(layers_of(network))


def saved(folder: Path, classes: int = 4) -> tuple[nn.Module, Path]:
    torch.manual_seed(1)
    model = torchvision_model("squeezenet1_0", 3, classes, (64, 64))
    torch.save(model.state_dict(), folder / "weights.pt")
    return model.eval(), folder / "weights.pt"


def test_with_weights_it_computes_what_the_first_order_network_does(tmp_path: Path) -> None:
    model, path = saved(tmp_path)
    given = {**GIVEN, "input_size": (64, 64), "weights": str(path), "centre": False}
    network = Torchvision(FACTORIES["quadratic"], 3, name="squeezenet1_0", **given).eval()
    x = torch.rand(2, 3, 64, 64)
    assert torch.equal(network(x), model(x))
    assert "converted, exactly" in str(network.matched)
    kept = Torchvision(FACTORIES["quadratic"], 3, name="squeezenet1_0", keep=["features.0"], **given).eval()
    assert torch.equal(kept(x), model(x))
    assert isinstance(kept.body.get_submodule("features.0"), nn.Conv2d)
    plain = Torchvision(FACTORIES["conv"], 3, name="squeezenet1_0", **given).eval()
    assert torch.equal(plain(x), model(x))
    assert isinstance(plain.body.get_submodule("features.0"), ConvLayer)


def test_an_output_layer_for_other_classes_stays_fresh(tmp_path: Path) -> None:
    torch.save(torchvision_model("resnet18", 3, 7, (32, 32)).state_dict(), tmp_path / "seven.pt")
    network = Torchvision(Conv(), 3, name="resnet18", weights=str(tmp_path / "seven.pt"), **GIVEN)
    assert "fc is for other classes" in str(network.matched)


def test_weights_of_a_safetensors_file(tmp_path: Path) -> None:
    model, _ = saved(tmp_path)
    path = tmp_path / "weights.safetensors"
    save_file(dict(model.state_dict()), path)
    other = torchvision_model("squeezenet1_0", 3, 4, (64, 64))
    assert load_weights(other, path) == ""
    assert torch.equal(other.get_parameter("features.0.weight"), model.get_parameter("features.0.weight"))
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ConfigError, match=r"weights=.*\.safetensors cannot be read as tensors"):
        load_weights(other, path)
    with pytest.raises(ConfigError, match="there is no such file"):
        load_weights(other, tmp_path / "missing.safetensors")


def test_weights_of_auxiliary_outputs_and_names_of_parallel_training_are_passed_over(tmp_path: Path) -> None:
    from torchvision.models import googlenet

    state = {
        f"module.{key}": value for key, value in googlenet(aux_logits=True, init_weights=False).state_dict().items()
    }
    torch.save(state, tmp_path / "auxiliary.pt")
    model = torchvision_model("googlenet", 3, 1000, (32, 32))
    assert load_weights(model, tmp_path / "auxiliary.pt") == ""
    assert torch.equal(model.get_parameter("conv1.conv.weight"), state["module.conv1.conv.weight"])


def test_weights_for_other_channels_are_told_by_their_shapes(tmp_path: Path) -> None:
    _, path = saved(tmp_path)
    with pytest.raises(ConfigError, match=r"features.0.weight is 96x3x7x7 there and 96x1x7x7 here$"):
        Torchvision(Conv(), 1, name="squeezenet1_0", weights=str(path), **{**GIVEN, "input_size": (64, 64)})


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"name": "resnet81"}, r"none of torchvision's \d+ classifiers; did you mean resnet18"),
        ({"name": "squeezenet1_0", "input_size": (8, 8)}, "does not take an input of 1x8x8: .*; larger pictures"),
        ({"name": "vit_b_16", "input_size": (32, 48)}, "takes square pictures"),
        ({"name": "vit_b_16", "input_size": (40, 40)}, "cannot be built for this data: Input shape indivisible"),
        ({"name": "resnet18", "input_size": (32,)}, "takes images, and the data has 1 axes"),
        ({"name": "resnet18", "output_size": (32, 32)}, "targets are pictures"),
        ({"name": "resnet18", "start": "soon"}, "network.start"),
        ({"name": "resnet18", "weights": "nowhere.pt"}, "network.weights=nowhere.pt: there is no such file"),
        ({"name": "resnet18", "layers": ["nothing"]}, "no convolution or linear layer is called 'nothing'"),
    ],
)
def test_what_does_not_fit_is_one_sentence(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        Torchvision(Conv(), 1, **{**GIVEN, **changes})


@pytest.mark.parametrize("content", [b"", b"no tensors", None, {"a": torch.zeros(2)}, [1, 2]])
def test_files_that_hold_no_such_weights_are_named(tmp_path: Path, content: Any) -> None:
    path = tmp_path / "weights.pt"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        torch.save(content, path)
    with pytest.raises(ConfigError, match=r"network.weights=.*weights.pt"):
        Torchvision(Conv(), 3, name="resnet18", weights=str(path), **GIVEN)


def test_timm_is_an_extra() -> None:
    """Whether it is installed here or not."""
    if find_spec("timm") is None:
        with pytest.raises(ConfigError, match=r"pip install 'onn-runner\[timm\]'"):
            Timm(Conv(), 1, name="resnet10t", **GIVEN)
        return
    network = Timm(FACTORIES["quadratic"], 1, name="resnet10t", **GIVEN)
    assert network(torch.rand(2, 1, 32, 36)).shape == (2, 4)
    with pytest.raises(ConfigError, match="none of timm's"):
        Timm(Conv(), 1, name="resnet10x", **GIVEN)
