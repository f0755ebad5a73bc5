"""Layer importance: real masks that leave no trace, the rule for ranks, the smaller network and its command."""

import csv
import json
import math

import pytest
import torch
from typer.testing import CliRunner

from onn_runner.analysis.importance import Importance, importances, masked, ranked, units_of
from onn_runner.cli.onn import app
from onn_runner.cli.reduced import override
from onn_runner.cli.run import main
from onn_runner.errors import ConfigError
from onn_runner.model.conv import Conv
from onn_runner.model.operational import Operational
from onn_runner.model.self_onn import SelfONN
from onn_runner.network.compact import Compact
from onn_runner.network.resnet import ResNet
from onn_runner.network.resnet_restore import ResNetRestore
from onn_runner.network.summary import summarise
from onn_runner.network.vgg import VGG
from onn_runner.ops import Sine


def resnet(factory=None, **changes):
    return ResNet(
        factory or SelfONN(2), 1, out_channels=3, input_size=(8, 8), output_size=(), depth=8, channels=4, **changes
    )


def restorer():
    return ResNetRestore(Conv(), 1, out_channels=1, input_size=(8, 8), channels=4, blocks=2)


def vgg(**changes):
    return VGG(Conv("relu"), 1, out_channels=3, input_size=(8, 8), output_size=(), channels=[4, 4], **changes)


def compact(factory=None):
    return Compact(factory or Operational({"sine": Sine()}), 1, out_channels=1, channels=[3, 3], input_size=(8, 8))


def trained(network):
    """As after some training: norms with a history, biases and weights that are not zero."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
        network.train()
        network(torch.randn(6, 1, 8, 8, generator=generator))
    return network.eval()


X = torch.rand(2, 1, 8, 8, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("make", [resnet, restorer, vgg, compact])
@pytest.mark.parametrize("mask", ["zero", "skip"])
def test_masks_change_the_output_and_leave_no_trace(make, mask):
    network = trained(make())
    with torch.no_grad():
        y, before = network(X), dict(network.state_dict())
        kept = {name: value.clone() if torch.is_tensor(value) else value for name, value in before.items()}
        for unit in units_of(network):
            with masked(network, unit, mask):
                assert not torch.equal(network(X), y)
            after = network.state_dict()
            assert all(
                torch.equal(after[name], value) if torch.is_tensor(value) else after[name] == value
                for name, value in kept.items()
            )
        assert torch.equal(network(X), y)


def test_a_mask_is_taken_off_after_an_error_too():
    network = trained(compact())
    before = network.layers[0].weight.clone()

    def fail():
        assert not network.layers[0].weight.any()
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), masked(network, units_of(network)[0]):
        fail()
    assert torch.equal(network.layers[0].weight, before)


@pytest.mark.parametrize(("activation", "mask"), [("relu", "zero"), ("relu", "skip"), ("tanh", "skip")])
def test_a_masked_block_is_the_network_without_it(activation, mask):
    """With zeros only where the activation behind the sum changes nothing the second time."""
    network = trained(resnet(Conv(activation)))
    (unit,) = (unit for unit in network.units() if unit.removable)
    smaller = resnet(Conv(activation), removed=[unit.name]).eval()
    smaller.load_state_dict({name: value for name, value in network.state_dict().items()
                             if not name.startswith(f"{unit.name}.")})  # fmt: skip
    with torch.no_grad(), masked(network, unit, mask):
        torch.testing.assert_close(network(X), smaller(X), rtol=0, atol=0)


def test_a_masked_layer_gives_what_its_bias_gives():
    network = trained(compact(Conv("tanh")))
    seen = []
    network.layers[1].register_forward_hook(lambda layer, inputs, output: seen.append(output))
    with torch.no_grad(), masked(network, units_of(network)[1]):
        network(X)
    constant = torch.tanh(network.layers[1].bias.detach()).reshape(1, -1, 1, 1).expand_as(seen[0])
    torch.testing.assert_close(seen[0], constant)


def test_a_layer_that_is_skipped_hands_on_its_input():
    network = trained(compact(Conv("tanh")))
    with torch.no_grad(), masked(network, units_of(network)[1], "skip"):
        y = network(X)
        first, last = network.layers[0], network.layers[2]
        torch.testing.assert_close(y, network.restored(X, last(first(network.centred(X)))), rtol=0, atol=0)


def test_units_of_a_restorer_are_its_blocks():
    units = units_of(restorer())
    assert [unit.name for unit in units if unit.removable] == ["block1", "block2"]
    assert units[0].layers == ("layers.1", "layers.2")


def of(name, drop, *, parameters=0.5, macs=0.5, reason=""):
    indicator = parameters * macs / drop if drop > 0 else math.inf
    return Importance(name, (name,), reason, 1, 1, parameters, macs, 1.0, drop, indicator)


def test_what_is_not_missed_comes_first_and_the_costliest_of_it():
    found = [
        of("large", 1.0), of("free", 0.0, macs=0.1), of("output", -5.0, reason="it makes the output"),
        of("cheap", 1.0, macs=0.1), of("better", -0.1), of("broken", math.inf), of("twin", 1.0),
    ]  # fmt: skip
    order = sorted((row for row in ranked(found) if row.rank), key=lambda row: row.rank)
    assert [row.name for row in order] == ["better", "free", "large", "twin", "cheap", "broken"]
    assert ranked(found)[2].rank is None


@pytest.mark.parametrize("higher", [True, False])
def test_the_indicator_is_the_product_of_shares_over_the_drop(higher):
    network = trained(compact(Conv("tanh")))
    summary = summarise(network, (1, 8, 8))
    sign = 1 if higher else -1

    def score():
        with torch.no_grad():
            return sign * float(network(X).square().mean().neg())

    whole, rows = importances(network, summary, score, higher=higher)
    first = rows[0]
    assert first.parameters == 3 * 9 + 3
    assert first.parameter_share == first.parameters / summary.parameters
    assert first.mac_share == summary.rows[0].macs / summary.macs
    assert first.drop == sign * (whole - first.value)
    if first.drop > 0:
        assert first.importance == first.parameter_share * first.mac_share / first.drop


def test_values_that_are_none_count_as_the_worst():
    network = compact(Conv("tanh"))
    values = iter([1.0, math.nan, 0.5, 0.4])
    _, rows = importances(network, summarise(network, (1, 8, 8)), lambda: next(values), higher=True)
    assert (rows[0].drop, rows[0].importance, rows[0].rank) == (math.inf, 0.0, 2)


class TestOverrides:
    def test_names_join_what_was_left_out_before(self):
        rows = [of("layer1", 1.0), of("layer2", 1.0), of("layer3", 1.0)]
        assert override({"removed": ["layer9"]}, rows, [rows[2], rows[0]]) == (
            "network.removed=[layer9,layer1,layer3]",
        )

    def test_a_chain_loses_entries(self):
        rows = [of("layers.0", 1.0), of("layers.1", 1.0), of("layers.2", 1.0, reason="it makes the output")]
        chain = {"channels": [4, 8], "kernels": [[3, 5], 7, 3], "sampling": None}
        assert override(chain, rows, rows[:1]) == ("network.channels=[8]", "network.kernels=[7,3]")
        with pytest.raises(ConfigError, match="one hidden layer at least"):
            override(chain, rows, rows[:2])
        with pytest.raises(ConfigError, match=r"network\.sampling says"):
            override({**chain, "sampling": ["max2", "up2", "none"]}, rows, rows[:1])

    def test_blocks_become_fewer(self):
        rows = [of("block1", 1.0), of("block2", 1.0)]
        assert override({"blocks": 2, "channels": 8}, rows, rows[:1]) == ("network.blocks=1",)
        assert override({"blocks": 2, "channels": [8, 4, 5]}, rows, rows[:1]) == (
            "network.blocks=1", "network.channels=[8,5]",
        )  # fmt: skip
        with pytest.raises(ConfigError, match="needs one at least"):
            override({"blocks": 2, "channels": 8}, rows, rows)

    def test_other_networks_have_no_key(self):
        rows = [of("layers.0", 1.0)]
        assert override({"depth": 2, "channels": [4, 8]}, rows, rows) is None


def onn(*words, code=0):
    result = CliRunner().invoke(app, list(words), catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result.output


def test_the_table_is_the_same_twice_and_the_smaller_network_can_be_run(finished):
    text = onn("reduce", str(finished), "--metric", "mae", "--device", "cpu")
    folder = finished / "fold_00"
    first = (folder / "layer_importance.csv").read_bytes()
    onn("reduce", str(finished), "--metric", "mae", "--device", "cpu")
    assert (folder / "layer_importance.csv").read_bytes() == first
    plain = json.loads((folder / "layer_importance.json").read_text())
    rows = list(csv.DictReader(first.decode().splitlines()))
    assert [row["unit"] for row in rows] == [unit["name"] for unit in plain["units"]]
    assert plain["chosen"] == [rows[0]["unit"]]
    assert plain["higher"] is False
    kept = {"layers.0": "[4]", "layers.1": "[3]"}[rows[0]["unit"]]
    assert plain["command"][-1] == f"network.channels={kept}"
    assert "449 -> " in text
    assert (folder / "layer_importance.png").read_bytes().startswith(b"\x89PNG")
    assert rows[0]["unit"] in (folder / "layer_importance.md").read_text()


def test_the_reduced_network_is_trained_at_once(finished, tmp_path):
    onn("reduce", str(finished), "--train", "--output", "out")
    (run,) = tmp_path.glob("outputs/*/*/run.json")
    assert json.loads((run.parent / "results.json").read_text())["status"] == "done"


def test_blocks_of_a_classifier_are_left_out_by_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ("data=digits", "data.items=60", "model=conv", "network.depth=8", "network.channels=4", "partition.folds=2",
             "partition.validation=0", "trainer.monitor=train/accuracy", "trainer.epochs=1", "trainer.pictures=false",
             "trainer.tensorboard=false", "metric=[accuracy]", "hydra.run.dir=run")  # fmt: skip
    assert main(words) == 0
    text = onn("reduce", "run", "--device", "cpu")
    assert "network.removed=[block1]" in text
    assert "training items (the fold has no validation part)" in text


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--drop", "1", "--keep", "1"), "exclude each other"),
        (("--drop", "-1"), "--drop (=-1)"),
        (("--drop", "3"), "--drop 3: 2 layers or blocks can be left out (layers.0, layers.1)"),
        (("--keep", "3"), "--keep 3: 2 layers or blocks"),
        (("--metric", "acuracy"), "unknown --metric 'acuracy'"),
        (("--mask", "one"), "unknown --mask 'one'"),
        (("--fold", "9"), "has no fold 9"),
    ],
)
def test_what_cannot_be_reduced_is_refused(finished, words, told):
    with pytest.raises(ConfigError) as caught:
        CliRunner().invoke(app, ["reduce", str(finished), *words], catch_exceptions=False)
    assert told in str(caught.value)


def test_nothing_may_be_left_out(finished):
    onn("reduce", str(finished), "--drop", "0")
    assert "Nothing is left out" in (finished / "fold_00" / "layer_importance.md").read_text()
