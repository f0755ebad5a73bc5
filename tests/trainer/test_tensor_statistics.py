"""trainer.statistics: right numbers of weights, gradients and updates; no trace in the training; nothing doubled."""

import csv
from pathlib import Path

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tiny_fold import make_job
from torch import nn

from onn_runner.errors import ConfigError, Interrupted
from onn_runner.model.operational import Operational
from onn_runner.model.self_onn import SelfONN
from onn_runner.network.compact import Compact
from onn_runner.ops import Exponential, Sine
from onn_runner.trainer import QuietReporter, StopRequest, board, checkpoint, tensor_statistics, train_fold
from onn_runner.trainer.evaluate import Evaluator


def train(folder: Path, **changes):
    job = make_job(folder, **changes)
    return train_fold(job, reporter=QuietReporter(), stop=StopRequest(), resume=True)


def rows(folder: Path) -> list[dict[str, str]]:
    with (folder / "statistics.csv").open(newline="") as handle:
        return list(csv.DictReader(handle))


def test_numbers_are_those_of_the_definition():
    layer = nn.Linear(3, 2)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[1.0, 0.0, -2.0], [0.0, 2.0, 5.0]]))
    before = {name: p.detach().clone() for name, p in layer.named_parameters()}
    layer(torch.ones(1, 3)).sum().backward()
    with torch.no_grad():
        layer.weight.sub_(0.1)
    weight, bias = (dict(zip(tensor_statistics.HEADER[3:], row, strict=True))
                    for row in tensor_statistics.rows_of(layer, before))  # fmt: skip
    w = (before["weight"] - 0.1).double()
    assert (weight["parameter"], weight["term"], weight["count"]) == ("weight", "", "6")
    expected = (w.mean(), w.std(correction=0), w.norm(), 0.0, w.abs().max())
    for name, value in zip(tensor_statistics.MEASURES, expected, strict=True):
        assert float(weight[f"weight_{name}"]) == pytest.approx(float(value), rel=1e-12)
    assert [float(weight[f"gradient_{name}"]) for name in tensor_statistics.MEASURES] == [
        1.0, 0.0, pytest.approx(6**0.5), 0.0, 1.0,
    ]  # fmt: skip
    # Single precision rounds the difference of 0.1.
    assert float(weight["update_ratio"]) == pytest.approx(0.1 * 6**0.5 / 34**0.5, rel=1e-6)
    assert float(bias["update_ratio"]) == 0.0


def test_what_has_no_gradient_or_no_size_is_left_empty():
    layer = nn.Linear(2, 2)
    nn.init.zeros_(layer.bias)
    layer.weight.requires_grad_(False)
    before = {name: p.detach().clone() for name, p in layer.named_parameters()}
    weight, bias = (dict(zip(tensor_statistics.HEADER[3:], row, strict=True))
                    for row in tensor_statistics.rows_of(layer, before))  # fmt: skip
    assert weight["gradient_norm"] == ""
    assert (bias["update_ratio"], float(bias["weight_zeros"])) == ("", 1.0)


def test_terms_of_layers_are_told_apart():
    def names(factory):
        network = Compact(factory, 1, out_channels=1, channels=[4], input_size=(8, 8))
        return {name: list(tensor_statistics.terms(network, name)) for name, _ in network.named_parameters()}

    assert names(SelfONN(3))["layers.0.weight"] == ["q=1", "q=2", "q=3"]
    found = names(Operational({"sine": Sine(), "exp": Exponential()}))
    assert found["layers.0.weight"] == ["sine", "exp"]
    assert found["layers.0.bias"] == found["layers.1.weight"] == [""]
    network = Compact(SelfONN(3), 1, out_channels=1, channels=[4], input_size=(8, 8))
    weight = network.layers[0].weight
    parts = [weight[part] for part in tensor_statistics.terms(network, "layers.0.weight").values()]
    torch.testing.assert_close(torch.cat(parts, 1), weight, rtol=0, atol=0)


def test_the_training_is_the_same_and_nothing_is_written_without_it(tmp_path):
    train(tmp_path / "with", statistics=True, tensorboard=True)
    train(tmp_path / "without")
    with_, without = (checkpoint.load(tmp_path / name / "last.pt") for name in ("with", "without"))
    assert with_.history == without.history
    assert all(torch.equal(value, without.network[name]) for name, value in with_.network.items())
    assert not (tmp_path / "without" / "statistics.csv").exists()


def test_rows_and_events_of_every_due_epoch(tmp_path):
    train(tmp_path, statistics=2, tensorboard=True, epochs=5)
    found = rows(tmp_path)
    assert list(dict.fromkeys(row["epoch"] for row in found)) == ["1", "2", "4"]
    assert len(found) == 3 * 6
    events = EventAccumulator(str(tmp_path), size_guidance={"scalars": 0, "histograms": 0})
    events.Reload()
    tag = "statistics/gradient_norm/layers.0.weight"
    assert [(event.step, event.value) for event in events.Scalars(tag)] == [
        (int(row["epoch"]), pytest.approx(float(row["gradient_norm"]), rel=1e-6))
        for row in found if row["parameter"] == "layers.0.weight"
    ]  # fmt: skip
    assert [event.step for event in events.Histograms("gradients/layers.0.weight")] == [1, 2, 4]
    assert [event.step for event in events.Histograms("weights/layers.0.weight")] == [1, 2, 4]
    last = next(row for row in found if row["epoch"] == "4" and row["parameter"] == "layers.4.bias")
    assert 0 < float(last["update_ratio"]) < 1


def test_accumulated_batches_have_the_gradient_of_the_update(tmp_path):
    train(tmp_path / "two", statistics=True, epochs=1, batch_size=2, accumulate=2, build_network=plain, shuffle=False)
    train(tmp_path / "one", statistics=True, epochs=1, batch_size=4, build_network=plain, shuffle=False)
    two, one = (rows(tmp_path / name)[0] for name in ("two", "one"))
    # The same gradient as a sum over two batches.
    assert float(two["gradient_norm"]) == pytest.approx(float(one["gradient_norm"]), rel=1e-4)


def plain() -> nn.Module:
    return nn.Conv2d(1, 1, 3, padding=1)


@pytest.mark.parametrize("starts", [1, 2])
@pytest.mark.parametrize("where", ["between epochs", "before a row is saved", "in validation"])
def test_resuming_doubles_nothing_and_loses_nothing(tmp_path, monkeypatch, starts, where):
    options = {"statistics": True, "tensorboard": True, "starts": starts}
    train(tmp_path / "whole", **options)
    expected = (tmp_path / "whole" / "statistics.csv").read_bytes()
    folder, calls = tmp_path / "cut", []

    def failing(original, at):
        def call(*given, **named):
            calls.append(None)
            if len(calls) == at:
                raise Interrupted("now")
            return original(*given, **named)

        return call

    target = {
        "between epochs": (board.EventBoard, "histograms"),
        "before a row is saved": (checkpoint, "save_last"),
        "in validation": (Evaluator, "score"),
    }[where]
    with monkeypatch.context() as patch:
        patch.setattr(*target, failing(getattr(*target), 2))
        with pytest.raises(Interrupted):
            train(folder, **options)
    # A kill may cut the last line short as well.
    with (folder / "statistics.csv").open("a") as file:
        file.write("0,0,3,layers.0.wei")
    train(folder, **options)
    assert (folder / "statistics.csv").read_bytes() == expected
    events = EventAccumulator(str(folder if starts == 1 else folder / "start_00"))
    events.Reload()
    tag = "statistics/weight_norm/layers.0.weight"
    assert [event.step for event in events.Scalars(tag)] == [1, 2, 3]


def test_more_epochs_add_rows(tmp_path):
    train(tmp_path, statistics=True, epochs=2)
    before = (tmp_path / "statistics.csv").read_text()
    train(tmp_path, statistics=True, epochs=3)
    after = (tmp_path / "statistics.csv").read_text()
    assert after.startswith(before)
    assert {row["epoch"] for row in rows(tmp_path)} == {"1", "2", "3"}


@pytest.mark.parametrize("value", [0, -1, 1.5, "yes"])
def test_what_is_no_number_of_epochs_is_refused(tmp_path, value):
    with pytest.raises(ConfigError, match=r"trainer\.statistics"):
        make_job(tmp_path, statistics=value)
