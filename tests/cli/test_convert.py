"""`onn convert`: sources, what is written, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import yaml
from typer.testing import CliRunner

from onn_runner.cli.onn import app
from onn_runner.cli.run import main
from onn_runner.convert import convert as converted
from onn_runner.errors import ConfigError
from onn_runner.model.quadratic import Quadratic
from onn_runner.network.zoo import Torchvision, torchvision_model

OWN = """
import torch

def net():
    return torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3, padding=1), torch.nn.BatchNorm2d(4), torch.nn.Conv2d(4, 1, 3))

def number():
    return 3

def broken():
    raise RuntimeError("no such depth\\nfurther lines")
"""


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "own_nets.py").write_text(OWN)
    return tmp_path


def convert(*words: str) -> str:
    result = CliRunner().invoke(app, ["convert", *words], catch_exceptions=False)
    assert result.exit_code == 0
    return result.output


def test_a_network_of_torchvision_with_weights_is_written_and_built_again(work: Path) -> None:
    torch.manual_seed(3)
    first = torchvision_model("squeezenet1_0", 3, 5, (64, 64)).eval()
    torch.save(first.state_dict(), "first.pt")
    words = ["torchvision:squeezenet1_0", "model=quadratic", "model.type=qres", "--size", "3x64x64", "--classes", "5"]
    told = convert(*words, "--checkpoint", "first.pt", "--output", "second.pt")
    assert "26 of 26 first-order layers converted, exactly" in told
    assert "largest difference of the outputs for random inputs: 0\n" in told
    record = yaml.safe_load(Path("second.pt.yaml").read_text())
    assert (record["source"], record["difference"], len(record["converted"])) == ("torchvision:squeezenet1_0", 0.0, 26)
    assert (record["words"], record["size"], record["classes"]) == (words[1:3], [3, 64, 64], 5)
    assert record["costs"]["after"]["MACs"] == 2 * record["costs"]["before"]["MACs"]
    state = torch.load("second.pt", weights_only=True)
    network = Torchvision(
        Quadratic("qres"), 3, out_channels=5, input_size=(64, 64), name="squeezenet1_0", centre=False
    ).eval()
    network.body.load_state_dict(state)
    x = torch.rand(2, 3, 64, 64)
    assert torch.equal(network(x), first(x))
    with pytest.raises(ConfigError, match=r"--output second.pt exists"):
        convert(*words, "--output", "second.pt")


def test_a_module_of_ones_own_with_folded_norms(work: Path) -> None:
    told = convert("own_nets:net", "model=self_onn", "model.q=2", "--size", "1x9x7", "--fold-norms")
    assert "1 is in the weights of 0" in told
    assert "2 of 2 first-order layers converted, exactly" in told
    assert convert("own_nets:net", "model=onn", "ops=mul", "--size", "1x9x7", "--keep", "2").count("stays") == 1
    assert "converted, near" in convert("own_nets:net", "model=onn", "ops=sine", "--size", "1x9x7", "--start", "near")


def test_what_is_written_fits_the_network_that_is_converted_in_the_same_way(work: Path) -> None:
    import own_nets  # type: ignore[import-not-found]

    told = convert("own_nets:net", "model.type=qres", "--size", "1x9x7", "--fold-norms", "--output", "own.pt")
    assert "quadratic qres" in told
    record = yaml.safe_load(Path("own.pt.yaml").read_text())
    assert record["words"] == ["model=quadratic", "model.type=qres"]
    assert record["folded"] == [["0", "1"]]
    assert record["fold_norms"]
    network = converted(own_nets.net().eval(), Quadratic("qres"), start="fresh", fold_norms=True).network
    network.load_state_dict(torch.load("own.pt", weights_only=True))


@pytest.mark.parametrize("there", ["own.pt", "own.pt.yaml"])
def test_nothing_is_overwritten_without_being_told(work: Path, there: str) -> None:
    words = ["own_nets:net", "--size", "1x9x9", "--output", "own.pt"]
    Path(there).write_text("mine")
    with pytest.raises(ConfigError, match=rf"--output {there} exists"):
        convert(*words)
    assert Path(there).read_text() == "mine"
    assert "written" in convert(*words, "--force")


def test_a_run(work: Path) -> None:
    words = ["data=digits", "data.items=80", "network.depth=8", "network.channels=2", "partition=hold_out"]
    words += ["model=conv", "trainer.epochs=1", "trainer.pictures=false", "hydra.run.dir=run"]
    assert main(words) == 0
    assert "8 of 8 first-order layers converted, exactly" in convert("run", "model=quadratic")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["nothing"], "nothing is no network: give torchvision:NAME"),
        (["torchvision:resnet81"], "none of torchvision's"),
        (["own_nets:nothing"], "own_nets:nothing cannot be built"),
        (["own_nets:number"], "gives a int, and no torch.nn.Module"),
        (["own_nets:net", "model=quadratic", "model.type=t3", "--size", "1x9x9"], "no term of first order"),
        (["own_nets:net", "--size", "9"], "must be channels and sides"),
        (["own_nets:net", "--size", "2x9x9"], "does not take an input of 2x9x9"),
        (["own_nets:net", "--size", "1x9x9", "--start", "soon"], "unknown start 'soon'"),
        (["own_nets:net", "--size", "1x9x9", "--checkpoint", "none.pt"], "none.pt: there is no such file"),
        (["own_nets:net", "--size", "1x9x9", "--output", "no/where.pt"], "there is no folder no"),
        (["own_nets:net", "--size", "1x9x9", "--output", ".", "--force"], "must be a file"),
        (["own_nets:broken"], "own_nets:broken cannot be built: no such depth$"),
        ([":net"], ":net is no network"),
        (["own_nets:net", "model=quadratics"], "quadratics"),
    ],
)
def test_what_cannot_be_is_one_sentence(work: Path, words: list[str], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        CliRunner().invoke(app, ["convert", *words], catch_exceptions=False)
