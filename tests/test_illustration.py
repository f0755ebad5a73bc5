"""Pictures of real folds: which there are, what they are made of, that a resume neither doubles nor loses them."""

import csv
import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import nn

from onn_runner import illustration
from onn_runner.cli.run import main
from onn_runner.data.base import Shape
from onn_runner.model.operational import Operational
from onn_runner.network.compact import Compact
from onn_runner.ops import Exponential, Sine
from onn_runner.report import figures_strips, layer_use
from onn_runner.report.kept import read as read_kept
from onn_runner.trainer import StopRequest, train_fold
from onn_runner.trainer.progress import QuietReporter

sys.path.append(str(Path(__file__).parent / "trainer"))
import tiny_fold

STRIPS = ["strips.png", "strips_whole.png"]
NODAL = ["arguments.png", "nodal_functions.png"]


def trained(folder, **changes):
    job = tiny_fold.make_job(folder, **{"epochs": 2, "tensorboard": True, **changes})
    with StopRequest().install() as stop:
        return job, train_fold(job, reporter=QuietReporter(), stop=stop)


@pytest.fixture(scope="module")
def fold(tmp_path_factory):
    """A trained fold of two convolutions; tests work on copies."""
    return trained(tmp_path_factory.mktemp("fold") / "fold_00")


@pytest.fixture
def copied(fold, tmp_path):
    job, result = fold
    shutil.copytree(job.folder, tmp_path / "fold_00")
    return replace(job, folder=tmp_path / "fold_00"), result


def draw(job, result):
    """The warnings."""
    reporter = QuietReporter()
    illustration.draw_fold(job, result, reporter)
    return reporter.warnings


def drawn(job):
    return sorted(path.name for path in (job.folder / "pictures").glob("*.png"))


def onn_network():
    operators = {"sine": Sine(), "exp": Exponential()}
    return Compact(Operational(operators), 1, out_channels=1, channels=[4], input_size=(8, 8))


def test_a_convolutional_fold_has_strips_and_an_operational_one_its_functions_too(copied, tmp_path):
    assert draw(*copied) == []
    assert drawn(copied[0]) == STRIPS
    job, result = trained(tmp_path / "onn", build_network=onn_network, epochs=1)
    assert draw(job, result) == []
    assert drawn(job) == sorted(NODAL + STRIPS)


def test_with_a_running_mean_of_the_weights_it_is_the_mean_that_is_drawn(tmp_path, monkeypatch):
    job, result = trained(tmp_path / "fold_00", build_network=onn_network, ema=0.5)
    kept = torch.load(job.folder / "best.pt", weights_only=True)["network"]
    seen = []

    def uses(network, *given, **options):
        seen.append({name: value.clone() for name, value in network.state_dict().items() if "weight" in name})
        return []

    monkeypatch.setattr(layer_use, "uses", uses)
    assert draw(job, result) == []
    assert all(torch.equal(kept[name], value) for name, value in seen[-1].items())
    assert not any(torch.equal(kept[name], value) for name, value in seen[0].items()), "at first the fresh weights"


def test_tensorboard_has_the_same_pictures_at_the_best_epoch(copied):
    job, result = copied
    draw(job, result)
    events = EventAccumulator(str(job.folder / "pictures"))
    events.Reload()
    assert sorted(events.Tags()["images"]) == ["pictures/strips", "pictures/strips_whole"]
    (image,) = events.Images("pictures/strips")
    assert image.step == result.best.best_epoch
    assert image.encoded_image_string == (job.folder / "pictures" / "strips.png").read_bytes()
    assert (image.width, image.height) > (500, 300)


def test_without_tensorboard_or_pictures_there_are_none(copied):
    job, result = copied
    job = replace(job, settings=replace(job.settings, tensorboard=False))
    draw(job, result)
    assert not list((job.folder / "pictures").glob("events*"))
    shutil.rmtree(job.folder / "pictures")
    draw(replace(job, settings=replace(job.settings, pictures=False)), result)
    assert not (job.folder / "pictures").exists()


def test_what_is_drawn_is_not_drawn_again_and_what_is_missing_is(copied, monkeypatch):
    job, result = copied
    draw(job, result)
    folder = job.folder / "pictures"
    before = {name: (folder / name).read_bytes() for name in STRIPS}
    (folder / "strips.png").write_bytes(b"kept")
    draw(job, result)
    assert (folder / "strips.png").read_bytes() == b"kept"
    (folder / "strips.png").unlink()
    draw(job, result)
    assert {name: (folder / name).read_bytes() for name in STRIPS} == before, "the same picture to the last byte"
    assert len(list(folder.glob("events*"))) == 1
    later = replace(result, starts=(replace(result.best, best_epoch=result.best.best_epoch + 1),))
    monkeypatch.setattr(illustration, "write_events", lambda *given: None)
    draw(job, later)
    assert (folder / "strips.png").read_bytes() != before["strips.png"], "more epochs have another best one"


def test_a_fold_without_a_finished_start_has_no_pictures(copied):
    job, result = copied
    assert draw(job, replace(result, best_start=None)) == []
    assert not (job.folder / "pictures").exists()
    draw(job, result)
    draw(job, replace(result, best_start=None))
    assert not (job.folder / "pictures").exists(), "those of fewer epochs, before it diverged"


def test_another_mean_of_epochs_is_drawn_anew(copied, monkeypatch):
    """More epochs may change the mean of the best ones, and not the best one."""
    job, result = copied
    monkeypatch.setattr(illustration, "write_events", lambda *given: None)
    for averaged in ([], [1, 2], [2, 3]):
        draw(job, replace(result, starts=(replace(result.best, averaged=averaged),)))
        assert (job.folder / "pictures" / "strips.png").read_bytes() != b"kept", averaged
        (job.folder / "pictures" / "strips.png").write_bytes(b"kept")


def test_drawing_leaves_the_random_state_alone(copied):
    before = torch.get_rng_state()
    draw(*copied)
    assert torch.equal(torch.get_rng_state(), before)


def test_the_strips_show_the_scored_items_of_the_best_weights(copied, monkeypatch):
    job, result = copied
    seen = {}
    monkeypatch.setattr(
        figures_strips, "strips", lambda items, *, title, data_range: seen.setdefault(title, items) and b""
    )
    monkeypatch.setattr(illustration, "write_events", lambda *given: None)
    draw(job, result)
    items, wholes = seen.values()
    with (job.folder / "test_items.csv").open(newline="") as handle:
        rows = [row for row in csv.DictReader(handle) if row["metric"] == "psnr"]
    scores = {row["item"]: float(row["value"]) for row in rows if row["split"] == "test"}
    ordered = sorted(scores, key=scores.__getitem__)
    assert [item.name for item in items] == [ordered[0], ordered[3], ordered[4], ordered[7]]
    assert [item.rank for item in items] == ["worst", "median", "median", "best"]
    network = tiny_fold.Net()
    network.load_state_dict(torch.load(job.folder / "best.pt", weights_only=True)["network"])
    for item in items:
        noisy, output, target = (torch.from_numpy(values) for values in (item.input, item.output, item.target))
        with torch.no_grad():
            torch.testing.assert_close(network.eval()(noisy[None])[0], output)
        before = -10 * torch.log10((noisy - target).square().mean())
        assert item.scores == [f"PSNR {before:.2f} → {scores[item.name]:.2f} dB"]
    assert [item.target.shape for item in wholes] == [(1, 11, 10)]


def test_items_at_fixed_places_are_kept_with_the_outputs_of_the_best_weights(copied):
    job, result = copied
    draw(job, result)
    kept = read_kept(job.folder / "pictures" / "kept.npz")
    names = [job.source.names[index] for index in job.fold.test]
    assert (kept.part, [item.place for item in kept.items]) == ("test", [1, 3, 5, 7])
    assert [item.name for item in kept.items] == [names[place] for place in (1, 3, 5, 7)]
    network = tiny_fold.Net()
    network.load_state_dict(torch.load(job.folder / "best.pt", weights_only=True)["network"])
    for item in kept.items:
        with torch.no_grad():
            output = network.eval()(torch.from_numpy(item.input.astype("float32"))[None])[0]
        # Inputs and outputs are kept with 11 bits.
        torch.testing.assert_close(torch.from_numpy(item.output.astype("float32")), output, atol=4e-3, rtol=0)


def test_training_items_have_strips_where_they_are_scored(tmp_path, monkeypatch):
    job, result = trained(tmp_path / "fold_00", score_training=True)
    seen = {}
    monkeypatch.setattr(
        figures_strips, "strips", lambda items, *, title, data_range: seen.setdefault(title, items) and b""
    )
    monkeypatch.setattr(illustration, "write_events", lambda *given: None)
    assert draw(job, result) == []
    assert (job.folder / "pictures" / "strips_training.png").exists()
    (items,) = (items for title, items in seen.items() if title.startswith("Training items"))
    with (job.folder / "test_items.csv").open(newline="") as handle:
        rows = [r for r in csv.DictReader(handle) if (r["split"], r["metric"]) == ("fitted", "psnr")]
    scores = {row["item"]: float(row["value"]) for row in rows}
    assert set(scores) == {job.source.names[index] for index in job.fold.train}
    assert (items[0].name, items[-1].name) == (min(scores, key=scores.get), max(scores, key=scores.get))
    for item in items:
        psnr = -10 * torch.log10((torch.from_numpy(item.output - item.target)).square().mean())
        torch.testing.assert_close(float(psnr), scores[item.name])


class Halved(tiny_fold.Tiny):
    """Inputs of half the target's size."""

    def __init__(self):
        super().__init__()
        self.shape = Shape((1, 4, 4), (1, 8, 8))

    def fixed(self, indices):
        return [
            item | {"input": item["input"][:, ::2, ::2]}
            for item in map(super().fixed(indices).__getitem__, range(len(indices)))
        ]

    def training(self, indices, key):
        return self.fixed(indices)

    def whole(self, groups):
        return None


class Signals(Halved):
    """A row of each picture."""

    def fixed(self, indices):
        items = tiny_fold.Tiny.fixed(self, indices)
        whole = (items[place] for place in range(len(indices)))
        return [item | {name: item[name][:, 3] for name in ("input", "target")} for item in whole]


@pytest.mark.parametrize(
    ("source", "network"),
    [
        (Halved, lambda: nn.Upsample(scale_factor=2)),
        (Signals, lambda: nn.Conv1d(1, 1, 3, padding=1)),
    ],
)
def test_other_sizes_and_signals_are_drawn(tmp_path, source, network):
    def build():
        return nn.Sequential(network(), nn.BatchNorm2d(1) if source is Halved else nn.BatchNorm1d(1))

    job, result = trained(tmp_path / "fold_00", source=source(), build_network=build, epochs=1)
    assert draw(job, result) == []
    assert drawn(job) == ["strips.png"]


def test_a_fold_with_several_starts_is_drawn_from_the_best(tmp_path):
    job, result = trained(tmp_path / "fold_00", starts=2, epochs=1)
    assert draw(job, result) == []
    assert drawn(job) == STRIPS
    record = json.loads((job.folder / "pictures" / "pictures.json").read_text())
    assert record["made_of"] == f"start {result.best_start}, epoch {result.best.best_epoch}"


def test_what_cannot_be_drawn_is_a_warning_with_the_reason(copied, monkeypatch):
    job, result = copied
    (job.folder / "pictures").write_text("in the way")
    (warning,) = draw(job, result)
    assert "no pictures (cannot write" in warning
    (job.folder / "pictures").unlink()
    for copy in ("best.pt", "best.safetensors"):
        (job.folder / copy).write_bytes(b"damaged")
    (warning,) = draw(job, result)
    assert "best.pt is damaged" in warning
    assert not (job.folder / "pictures").exists()

    def broken():
        raise ZeroDivisionError("a metric of the user's")

    (warning,) = draw(replace(job, build_metrics=broken), result)
    assert "ZeroDivisionError: a metric of the user's" in warning


def test_learning_curves_are_drawn_again_when_the_numbers_change(copied):
    job, _ = copied
    run, reporter = job.folder.parent, QuietReporter()
    shutil.copy(job.folder / "metrics.csv", run / "metrics.csv")

    def again():
        illustration.draw_run(run, "", name="run", monitor="val/psnr", folds=[0, 1], reporter=reporter)
        return (run / "pictures" / "learning_curves.png").read_bytes()

    first = again()
    (run / "pictures" / "learning_curves.png").write_bytes(b"kept")
    assert again() == b"kept"
    with (run / "metrics.csv").open("a") as table:
        table.write("1,0,1,train,loss,0.25\n")
    changed = again()
    assert changed not in (first, b"kept")
    (run / "metrics.csv").write_text("fold,start,epoch,split,metric,value\n0,0,one,train,loss,0.5\n")
    assert again() == changed
    (warning,) = reporter.warnings
    assert "learning curves: no pictures (ValueError" in warning


SMALL = (
    "data.photographs=[camera,coins,moon,page]", "data.patches=4", "data.patch=16", "data.max_side=48",
    "network.channels=[4]", "partition.folds=2", "trainer.epochs=1", "trainer.batch_size=6",
)  # fmt: skip


def test_a_run_has_pictures_and_a_resumed_one_those_that_were_missing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["model=self_onn", "hydra.run.dir=run", *SMALL]) == 0
    run = tmp_path / "run"
    expected = {path: path.read_bytes() for path in run.rglob("pictures/*.png")}
    assert sorted({path.name for path in expected}) == sorted([*NODAL, *STRIPS, "learning_curves.png"])
    assert len(expected) == 9
    assert json.loads((run / "results.json").read_text())["warnings"] == []
    kept = (run / "fold_01" / "pictures" / "kept.npz").read_bytes()
    for path in (run / "fold_01" / "pictures" / "kept.npz", run / "pictures" / "learning_curves.png"):
        path.unlink()
    assert main(["resume=run"]) == 0
    assert {path: path.read_bytes() for path in run.rglob("pictures/*.png")} == expected
    assert (run / "fold_01" / "pictures" / "kept.npz").read_bytes() == kept
    assert [len(list(run.glob(f"fold_{n:02d}/pictures/events*"))) for n in (0, 1)] == [1, 1]
