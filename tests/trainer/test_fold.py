"""Training a fold: what it leaves, what it refuses, and that equal seeds give equal numbers."""

import csv
import functools
import json
import math
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_fold import FOLD, Net, Psnr, Tiny, make_job, metrics
from torch import Tensor, nn

from onn_runner.errors import ConfigError, Interrupted, RunError
from onn_runner.model.operational import Operational
from onn_runner.model.quadratic import Quadratic
from onn_runner.network.compact import Compact
from onn_runner.ops.nodal import Exponential, Sine
from onn_runner.partition.base import Fold
from onn_runner.seeding import derive
from onn_runner.task.restore import Restore
from onn_runner.trainer import FoldResult, QuietReporter, StopRequest, checkpoint, seconds_per_step, train_fold
from onn_runner.trainer.result import read_status


def run(folder: Path, *, resume: bool = False, **changes: Any) -> FoldResult:
    return train_fold(make_job(folder, **changes), reporter=QuietReporter(), stop=StopRequest(), resume=resume)


def compiled(test: Callable[..., None]) -> Callable[..., None]:
    """The marks of a test that compiles."""
    # torch hides this one of its own from users, which it cannot where warnings are errors
    quiet = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")
    compiler = shutil.which("c++") or shutil.which("g++")
    return pytest.mark.slow(pytest.mark.skipif(compiler is None, reason="needs a C++ compiler")(quiet(test)))


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_a_fold_leaves_everything(tmp_path: Path) -> None:
    result = run(tmp_path, keep_best=["val/mae"])
    assert result.status == "done"
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "best.pt", "best.safetensors", "best_mae.pt", "best_mae.safetensors", "last.previous.pt", "last.pt",
        "metrics.csv", "status.json", "test_items.csv",
    ]  # fmt: skip
    start = result.starts[0]
    assert start.best_epoch == 3
    assert start.epochs_run == 3
    assert set(start.validation) == {
        "train/loss", "train/psnr", "train/gradient_norm", "train/learning_rate", "val/loss", "val/psnr", "val/mae",
    }  # fmt: skip
    assert set(start.test) == {f"{split}/{name}" for split in ("test", "photo") for name in ("loss", "psnr", "mae")}
    assert read_status(tmp_path) == result
    assert json.loads((tmp_path / "status.json").read_text())["format"] == 1
    found = rows(tmp_path / "metrics.csv")
    assert len({tuple(list(row.values())[:5]) for row in found}) == len(found) == 3 * 7 + 6
    assert {(row["epoch"], row["split"]) for row in found if row["split"] == "photo"} == {("3", "photo")}


def test_scores_are_means_over_items_the_last_partial_batch_included(tmp_path: Path) -> None:
    result = run(tmp_path, eval_batch_size=3)
    items = rows(tmp_path / "test_items.csv")
    # Eight test items in batches of three.
    names = [row["item"] for row in items if (row["split"], row["metric"]) == ("test", "mae")]
    assert names == [f"group2[{index}]" for index in range(8)]
    values = [float(row["value"]) for row in items if (row["split"], row["metric"]) == ("test", "mae")]
    assert result.starts[0].test["test/mae"] == pytest.approx(sum(values) / 8, rel=1e-12)
    assert [row["item"] for row in items if row["split"] == "photo"] == ["group2", "group2"]
    # By hand, one by one, from the kept weights; float32 convolutions of other batch sizes differ in the last digits.
    network = Net()
    network.load_state_dict(checkpoint.load(tmp_path / "best.pt").network)
    network.eval()
    data = Tiny().fixed(FOLD.test)
    with torch.no_grad():
        errors = [(network(item["input"][None]) - item["target"]).abs().mean().item() for item in data]
        losses = [(network(item["input"][None]) - item["target"]).square().mean().item() for item in data]
    assert values == pytest.approx(errors, rel=1e-5)
    assert result.starts[0].test["test/loss"] == pytest.approx(sum(losses) / 8, rel=1e-5)


def test_train_loss_is_the_mean_over_items(tmp_path: Path) -> None:
    class Counting(Restore):
        seen: list[tuple[float, int]]

        def train_step(self, network: nn.Module, batch: dict[str, Any], step: Any) -> Any:
            output = super().train_step(network, batch, step)
            SEEN.append((float(output.loss), len(batch["index"])))
            return output

    SEEN: list[tuple[float, int]] = []
    result = run(tmp_path, task=Counting(), epochs=1)
    assert [count for _, count in SEEN] == [4, 4, 4, 2]
    expected = sum(loss * count for loss, count in SEEN) / 14
    # float32 losses summed in float64 in the same order.
    assert result.starts[0].validation["train/loss"] == pytest.approx(expected, rel=1e-12)


def same(one: dict[str, Any], two: dict[str, Any]) -> bool:
    return one.keys() == two.keys() and all(torch.equal(value, two[name]) for name, value in one.items())


def test_equal_seeds_equal_numbers_whatever_was_drawn_before(tmp_path: Path) -> None:
    torch.manual_seed(1)
    run(tmp_path / "one")
    torch.manual_seed(2)
    before = torch.get_rng_state()
    run(tmp_path / "two")
    assert torch.equal(torch.get_rng_state(), before)
    run(tmp_path / "other", seed=1)
    one, two, other = (checkpoint.load(tmp_path / name / "best.pt").network for name in ("one", "two", "other"))
    assert same(one, two)
    assert not same(one, other)
    assert (tmp_path / "one/metrics.csv").read_bytes() == (tmp_path / "two/metrics.csv").read_bytes()


def test_folds_and_starts_begin_differently_and_the_seed_of_a_network_is_its_own(tmp_path: Path) -> None:
    drawn: list[float] = []

    def build() -> nn.Module:
        network = Net()
        drawn.append(network.layers[0].weight[0, 0, 0, 0].item())
        return network

    run(tmp_path / "a", build_network=build, starts=2, epochs=1)
    run(tmp_path / "b", build_network=build, fold=Fold(1, FOLD.train, FOLD.validation, FOLD.test), epochs=1)
    assert len(set(drawn)) == 3
    torch.manual_seed(derive("init", 0, 0, 1))
    assert Net().layers[0].weight[0, 0, 0, 0].item() == drawn[1]


def test_starts_have_folders_and_the_best_is_shown_in_the_folds(tmp_path: Path) -> None:
    result = run(tmp_path, starts=3, keep_best=["val/mae"], epochs=2)
    scores = [start.best["val/psnr"] for start in result.starts]
    assert result.best_start == scores.index(max(scores))
    assert checkpoint.load(tmp_path / "best.pt").start == result.best_start
    errors = [start.best["val/mae"] for start in result.starts]
    assert checkpoint.load(tmp_path / "best_mae.pt").start == errors.index(min(errors))
    assert {row["start"] for row in rows(tmp_path / "test_items.csv")} == {str(result.best_start)}
    assert {row["start"] for row in rows(tmp_path / "metrics.csv")} == {"0", "1", "2"}
    assert checkpoint.load(tmp_path / "last.pt").start == 2


def test_best_epoch_is_kept_when_later_ones_are_worse(tmp_path: Path) -> None:
    result = run(tmp_path, build_optimizer=functools.partial(torch.optim.SGD, lr=0.5), build_scheduler=None, epochs=6,
                 monitor="val/mae", patience=2)  # fmt: skip
    history = checkpoint.load(tmp_path / "last.pt").history
    values = [row["val/mae"] for row in history]
    best = values.index(min(values)) + 1
    assert (result.starts[0].best_epoch, result.starts[0].best["val/mae"]) == (best, min(values))
    assert checkpoint.load(tmp_path / "best.pt").epoch == best


def test_patience_stops_early_and_stays_stopped(tmp_path: Path) -> None:
    still: dict[str, Any] = {"build_optimizer": functools.partial(torch.optim.SGD, lr=0.0), "patience": 2}

    class Fixed(Net):
        def __init__(self) -> None:
            super().__init__()
            self.layers[1] = nn.Identity()

    result = run(tmp_path, epochs=9, build_network=Fixed, **still)
    assert (result.starts[0].epochs_run, result.starts[0].best_epoch, result.starts[0].stopped_early) == (3, 1, True)
    again = run(tmp_path, epochs=20, build_network=Fixed, resume=True, **still)
    assert again == result


def test_more_epochs_go_on_from_the_last(tmp_path: Path) -> None:
    # A constant rate does not know the total, so that growing must give what the long run gives.
    for starts, name in ((1, "one"), (2, "two")):
        long = run(tmp_path / name / "long", epochs=4, starts=starts, build_scheduler=None)
        folder = tmp_path / name / "grown"
        short = run(folder, epochs=2, starts=starts, build_scheduler=None)
        grown = run(folder, epochs=4, starts=starts, build_scheduler=None, resume=True)
        assert [start.epochs_run for start in short.starts] == [2] * starts
        assert [start.test for start in grown.starts] == [start.test for start in long.starts]
        for file in ("metrics.csv", "test_items.csv"):
            assert (folder / file).read_bytes() == (tmp_path / name / "long" / file).read_bytes()
        one, two = (checkpoint.load(at / "best.pt") for at in (folder, tmp_path / name / "long"))
        assert same(one.network, two.network)


def test_fewer_epochs_and_used_folders_are_refused(tmp_path: Path) -> None:
    run(tmp_path, epochs=2)
    with pytest.raises(ConfigError, match="already holds a training: resume it, or choose another folder"):
        run(tmp_path)
    (tmp_path / "status.json").unlink()
    with pytest.raises(ConfigError, match=r"trainer\.epochs=1 is less than the 2 epochs that .* already has"):
        run(tmp_path, epochs=1, resume=True)


def test_finished_folds_are_returned_without_work(tmp_path: Path) -> None:
    result = run(tmp_path)

    def never() -> nn.Module:
        raise AssertionError("built a network for a finished fold")

    before = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert run(tmp_path, build_network=never, resume=True) == result
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"fold": Fold(0, FOLD.train, (), FOLD.test)}, "needs a validation part, and this partition has none"),
        ({"monitor": "val/pnsr"}, "Did you mean psnr"),
        ({"train_metrics": ["ssim"]}, r"metric in trainer\.train_metrics: 'ssim'.*mae, psnr"),
        ({"device": "tpu"}, r"trainer\.device=tpu is not available here\. Options: auto, cpu"),
        ({"device": "cuda:97"}, r"trainer\.device=cuda:97 is not available"),
        ({"precision": "fp16"}, r"trainer\.precision=fp16 is a number format of GPUs.*choose fp32 or bf16"),
        ({"precision": "tf32"}, r"trainer\.precision=tf32"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_written(tmp_path: Path, changes: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        run(tmp_path / "fold", **changes)
    assert not (tmp_path / "fold").exists()


def test_compilation_without_a_compiler_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    with pytest.raises(ConfigError, match=r"trainer\.compile=true needs a C\+\+ compiler"):
        run(tmp_path, compile=True)


@compiled
def test_compiled_network_with_operational_layers_computes_the_same(tmp_path: Path) -> None:
    def build() -> nn.Module:
        factory = Operational({"sine": Sine(), "exp": Exponential()})
        return Compact(factory, 1, out_channels=1, channels=[4, 4], input_size=(8, 8))

    for name, compile in (("plain", False), ("compiled", True)):
        run(tmp_path / name, epochs=2, build_network=build, compile=compile)
    plain, compiled = (checkpoint.load(tmp_path / name / "last.pt") for name in ("plain", "compiled"))
    for one, two in zip(plain.history, compiled.history, strict=True):
        # Eight steps in float32, in another order of sums.
        assert one == pytest.approx(two, rel=1e-4)
    assert plain.network.keys() == compiled.network.keys()


@compiled
def test_a_compiled_network_goes_on_with_the_same_numbers_after_any_step(tmp_path: Path) -> None:
    def build() -> nn.Module:
        return Compact(Quadratic(norm="batch"), 1, out_channels=1, channels=[4], input_size=(8, 8))

    def bits(folder: Path) -> list[bytes]:
        state = checkpoint.load(folder / "last.pt").network
        return [t.numpy().tobytes() for t in state.values() if isinstance(t, Tensor)]

    class Stop(StopRequest):
        """In the fourth step of four, whose batch is smaller than the others."""

        left = 4

        @property
        def requested(self) -> bool:
            self.left -= 1
            return self.left < 0

    changes = {"epochs": 2, "build_network": build, "compile": True}
    run(tmp_path / "whole", **changes)
    with pytest.raises(Interrupted):
        train_fold(make_job(tmp_path / "parts", **changes), reporter=QuietReporter(), stop=Stop(), resume=False)
    torch.compiler.reset()
    run(tmp_path / "parts", resume=True, **changes)
    assert bits(tmp_path / "parts") == bits(tmp_path / "whole")


def test_any_number_of_starts_is_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    graphs = []

    def backend(graph: Any, inputs: Any) -> Any:
        graphs.append(len(inputs))
        return graph.forward

    def build() -> nn.Module:
        return Compact(Operational({"sine": Sine()}), 1, out_channels=1, channels=[2], input_size=(8, 8))

    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend=backend))
    monkeypatch.setattr("onn_runner.trainer.fold.check_compile", lambda device: None)
    run(tmp_path, epochs=1, starts=6, build_network=build, compile=True)
    # batches of four, and a last one of two
    assert len(graphs) == 2 * 6


def test_fold_without_training_items_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="fold 3 has no items to train on"):
        run(tmp_path, fold=Fold(3, (), (1,), (2,)))


def test_without_validation_the_training_chooses_and_without_test_nothing_is_scored(tmp_path: Path) -> None:
    result = run(tmp_path, fold=Fold(0, FOLD.train, (), ()), monitor="train/mae")
    assert set(result.starts[0].best) == {"train/mae"}
    assert result.starts[0].test == {}
    assert {row["split"] for row in rows(tmp_path / "metrics.csv")} == {"train"}


def test_without_shuffling_every_epoch_has_the_items_in_their_own_order(tmp_path: Path) -> None:
    seen: list[list[int]] = []

    class Watching(Restore):
        def train_step(self, network: Any, batch: dict[str, Any], step: Any) -> Any:
            seen.append(batch["index"].tolist())
            return super().train_step(network, batch, step)

    run(tmp_path / "own", shuffle=False, epochs=2, batch_size=5, task=Watching())
    own = [list(FOLD.train[first : first + 5]) for first in range(0, len(FOLD.train), 5)]
    assert seen == [*own, *own]
    seen.clear()
    run(tmp_path / "new", epochs=2, batch_size=5, task=Watching())
    first, second = ([item for batch in part for item in batch] for part in (seen[: len(own)], seen[len(own) :]))
    assert sorted(first) == sorted(second) == sorted(FOLD.train)
    assert first != second


def test_undefined_scores_are_left_out_and_counted(tmp_path: Path) -> None:
    class Picky(Psnr):
        def score(self, prediction: Tensor, target: Tensor) -> Tensor:
            return torch.where(target.flatten(1).mean(1) > 0.5, super().score(prediction, target), torch.nan)

    result = run(tmp_path, build_metrics=lambda: {**metrics(), "picky": Picky()})
    low = [i for i, item in enumerate(Tiny().fixed(FOLD.test)) if item["target"].mean() <= 0.5]
    assert 0 < len(low) < 8
    assert result.starts[0].left_out["test/picky"] == len(low)
    assert "test/psnr" not in result.starts[0].left_out
    values = [
        row["value"] for row in rows(tmp_path / "test_items.csv") if (row["split"], row["metric"]) == ("test", "picky")
    ]
    assert [i for i, value in enumerate(values) if not value] == low
    defined = [float(value) for value in values if value]
    assert result.starts[0].test["test/picky"] == pytest.approx(sum(defined) / len(defined), rel=1e-12)


@pytest.mark.parametrize("clip", [{"clip_norm": 0.001}, {"clip_value": 0.0005}])
def test_gradients_are_clipped(tmp_path: Path, clip: dict[str, float]) -> None:
    build = functools.partial(torch.optim.SGD, lr=1.0)
    run(tmp_path, epochs=1, batch_size=14, build_optimizer=build, build_scheduler=None, **clip)
    torch.manual_seed(derive("init", 0, 0, 0))
    before = Net().state_dict()
    after = checkpoint.load(tmp_path / "last.pt").network
    moved = torch.cat([(after[name] - before[name]).flatten() for name in before if "weight" in name or "bias" in name])
    # One step of rate 1 moves by the gradient; weights near 0.3 carry float32 rounding of 3e-8 each.
    size = moved.norm() if "clip_norm" in clip else moved.abs().max()
    assert size.item() == pytest.approx(next(iter(clip.values())), rel=1e-3)


def test_bf16_trains_on_the_cpu(tmp_path: Path) -> None:
    plain, half = run(tmp_path / "plain", epochs=1), run(tmp_path / "half", epochs=1, precision="bf16")
    one, two = (result.starts[0].test["test/psnr"] for result in (plain, half))
    # bf16 has 8 bits: scores agree to a few tenths of a dB and not exactly.
    assert one != two
    assert one == pytest.approx(two, abs=0.5)


def test_workers_do_not_change_a_number(tmp_path: Path) -> None:
    run(tmp_path / "none", epochs=2)
    with warnings.catch_warnings():
        # Python 3.12 warns of every fork in a process that has threads.
        warnings.simplefilter("ignore", DeprecationWarning)
        run(tmp_path / "two", epochs=2, workers=2)
    assert (tmp_path / "none/metrics.csv").read_bytes() == (tmp_path / "two/metrics.csv").read_bytes()


def test_threads_hold_for_the_fold_alone(tmp_path: Path) -> None:
    before, seen = torch.get_num_threads(), []

    def build() -> nn.Module:
        seen.append(torch.get_num_threads())
        return Net()

    run(tmp_path, threads=before + 1, build_network=build, epochs=1)
    assert (seen, torch.get_num_threads()) == ([before + 1], before)
    assert checkpoint.load(tmp_path / "last.pt").threads == before + 1


def test_other_network_on_resume_is_told(tmp_path: Path) -> None:
    run(tmp_path, epochs=1)
    (tmp_path / "status.json").unlink()
    with pytest.raises(RunError, match="the checkpoint's weights do not fit this network"):
        run(tmp_path, epochs=2, build_network=lambda: nn.Conv2d(1, 1, 1), resume=True)


def test_damaged_status_is_worked_out_again(tmp_path: Path) -> None:
    result = run(tmp_path)
    (tmp_path / "status.json").write_text('{"format": 1, "fold"')
    reporter = QuietReporter()
    again = train_fold(make_job(tmp_path), reporter=reporter, stop=StopRequest(), resume=True)
    assert again.starts[0].test == result.starts[0].test
    assert "status.json cannot be read" in reporter.warnings[0]
    assert len(rows(tmp_path / "metrics.csv")) == 3 * 7 - 3 + 3 + 6


def test_stop_requests_before_the_first_step_train_nothing(tmp_path: Path) -> None:
    with pytest.raises(Interrupted, match=r"^fold 0 stopped by Ctrl-C; its state is saved\.$"):
        train_fold(make_job(tmp_path), reporter=QuietReporter(), stop=StopRequest("Ctrl-C"))
    status = read_status(tmp_path)
    assert status is not None
    assert status.status == "interrupted"


def test_seconds_per_step_leave_nothing_behind(tmp_path: Path) -> None:
    before = torch.get_rng_state()
    seconds = seconds_per_step(make_job(tmp_path / "fold"))
    assert 0 < seconds < 10
    assert math.isfinite(seconds)
    assert not (tmp_path / "fold").exists()
    assert torch.equal(torch.get_rng_state(), before)
