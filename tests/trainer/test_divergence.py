"""What is not finite: never best, never in the weights, and the layer where it arose is named."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_fold import FOLD, Net, Pictures, Psnr, Tiny, make_job
from torch import Tensor, nn
from torch.utils.data import Dataset

from onn_runner.partition.base import Fold
from onn_runner.task.base import StepOutput
from onn_runner.task.restore import Restore
from onn_runner.trainer import Divergence, FoldResult, QuietReporter, StopRequest, checkpoint, train_fold
from onn_runner.trainer.result import read_status


class Bomb(nn.Module):
    """Passes values on until its count of training steps is up; then gives inf, or a gradient of nan."""

    def __init__(self, steps: int, *, backward: bool = False, start: int | None = None) -> None:
        super().__init__()
        self.steps, self.backward = steps, backward
        self.scale = nn.Parameter(torch.ones(()))
        self.register_buffer("count", torch.zeros((), dtype=torch.long))

    def forward(self, x: Tensor) -> Tensor:
        if self.training and torch.is_grad_enabled():
            self.count += 1
        # The watched repetition of a failed step runs without gradients and finds the count as it was left.
        due = self.training and int(self.count) >= self.steps
        if due and self.backward:
            return x * (self.scale + torch.sqrt((self.scale - self.scale).abs()))
        return x * self.scale / (0.0 if due else 1.0)


class Armed(Net):
    def __init__(self, steps: int, *, backward: bool = False) -> None:
        super().__init__()
        self.bomb = Bomb(steps, backward=backward)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(self.bomb(x))


def run(folder: Path, **changes: Any) -> tuple[FoldResult, list[str]]:
    with QuietReporter() as reporter:
        result = train_fold(make_job(folder, **changes), reporter=reporter, stop=StopRequest())
    return result, reporter.warnings


def test_layer_of_a_bad_loss_is_named_and_the_last_finite_state_kept(tmp_path: Path) -> None:
    # Fourteen items in batches of four are four steps an epoch: the seventh is the third of the second epoch.
    result, warnings = run(tmp_path, build_network=lambda: Armed(7))
    assert result.status == "diverged"
    assert result.any_diverged
    assert result.best is None
    assert result.starts[0].diverged == Divergence(2, 3, "bomb (Bomb)", "train/loss is nan")
    assert result.starts[0].best_epoch == 1
    assert result.starts[0].test == {}
    assert warnings == ["fold 0, start 0 diverged: train/loss is nan at epoch 2, step 3; first in bomb (Bomb)."]
    for name in ("last.pt", "best.pt"):
        kept = checkpoint.load(tmp_path / name)
        assert kept.epoch == 1
        assert all(value.isfinite().all() for value in kept.network.values())
    assert read_status(tmp_path) == result


def test_bad_gradient_names_its_parameter(tmp_path: Path) -> None:
    result, _ = run(tmp_path, build_network=lambda: Armed(2, backward=True))
    assert result.starts[0].diverged == Divergence(1, 2, "bomb.scale (gradient)", "gradient norm is nan")
    assert result.starts[0].best_epoch is None
    assert not (tmp_path / "best.pt").exists()


def test_bad_data_name_their_items(tmp_path: Path) -> None:
    class Broken(Tiny):
        def training(self, indices: Any, key: Any) -> Dataset:
            class Data(Pictures):
                def __getitem__(self, position: int) -> dict[str, Any]:
                    item = super().__getitem__(position)
                    return item | ({"input": item["input"] / 0} if item["index"] == 5 else {})

            return Data(indices, key, [(8, 8)] * len(indices))

    result, _ = run(tmp_path, source=Broken())
    found = result.starts[0].diverged
    assert found is not None
    assert found.layer == "the data (items 5)"


def test_bad_validation_counts_as_well(tmp_path: Path) -> None:
    class Fragile(Armed):
        def __init__(self, steps: int) -> None:
            super().__init__(steps)
            # Without running statistics there is no reason why evaluation alone should fail.
            self.layers[1] = nn.Identity()

        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x if self.training or int(self.bomb.count) < 8 else x / 0)

    result, _ = run(tmp_path, build_network=lambda: Fragile(99))
    # The bad value comes from outside every layer of this network: the first to give it is the innermost that saw it.
    found = result.starts[0].diverged
    assert found is not None
    assert (found.epoch, found.step, found.layer) == (2, 0, "bomb (Bomb)")
    assert found.what.startswith("val/loss is ")
    assert result.starts[0].best_epoch == 1


class Normed(Armed):
    """Whose evaluation, but not its training, overflows until it has seen so many steps."""

    def __init__(self, until: int) -> None:
        super().__init__(99)
        self.norm, self.until = nn.BatchNorm2d(1), until

    def forward(self, x: Tensor) -> Tensor:
        seen = int(self.norm.num_batches_tracked or 0)
        y = self.norm(super().forward(x))
        return y if self.training or seen > self.until else y / 0


def test_norms_that_do_not_fit_the_weights_yet_cost_an_epoch_not_the_start(tmp_path: Path) -> None:
    result, warnings = run(tmp_path, build_network=lambda: Normed(5), keep_best=["val/mae"])
    start = result.starts[0]
    assert (start.status, start.epochs_run) == ("done", 3)
    assert start.best_epoch in (2, 3)
    assert all(math.isfinite(value) for value in (*start.best.values(), *start.validation.values()))
    [warning] = warnings
    assert "epoch 1: val/loss is " in warning
    assert "running statistics do not fit the weights yet" in warning
    history = checkpoint.load(tmp_path / "last.pt").history
    assert [math.isnan(row["val/psnr"]) for row in history] == [True, False, False]


def test_norms_that_never_fit_are_a_divergence(tmp_path: Path) -> None:
    result, _ = run(tmp_path, build_network=lambda: Normed(999))
    found = result.starts[0].diverged
    assert found is not None
    assert (found.epoch, found.step, found.what) == (3, 0, "val/psnr was never finite")
    assert found.layer.startswith("val/loss is ")


def test_bad_test_scores_never_look_like_success(tmp_path: Path) -> None:
    class Source(Tiny):
        def whole(self, groups: Any) -> Dataset:
            class Data(Pictures):
                def __getitem__(self, position: int) -> dict[str, Any]:
                    item = super().__getitem__(position)
                    return item | {"target": item["target"] * torch.inf}

            return Data([1], ("whole",), [(9, 9)])

    result, _ = run(tmp_path, source=Source())
    assert result.status == "diverged"
    found = result.starts[0].diverged
    assert found is not None
    assert (found.epoch, found.step, found.layer) == (3, 0, "the data (items 1)")
    assert found.what.startswith("photo/loss is ")


def test_monitor_that_is_never_finite_is_no_success(tmp_path: Path) -> None:
    class Undefined(Psnr):
        def score(self, prediction: Tensor, target: Tensor) -> Tensor:
            return super().score(prediction, target) * torch.nan

    result, warnings = run(tmp_path, build_metrics=lambda: {"psnr": Undefined()})
    assert result.starts[0].diverged == Divergence(3, 0, "the metric", "val/psnr was never finite")
    assert any("val/psnr is not defined for any item" in text for text in warnings)
    assert not (tmp_path / "best.pt").exists()


@pytest.mark.parametrize("starts", [1, 2])
def test_diverged_with_more_epochs_it_has_no_scores_of_fewer(tmp_path: Path, starts: int) -> None:
    class Later(Restore):
        """Every loss is infinite once the training has gone on."""

        def eval_step(self, network: nn.Module, batch: dict[str, Any]) -> StepOutput:
            output = super().eval_step(network, batch)
            return StepOutput(output.loss * torch.inf, output.prediction, output.target)

    run(tmp_path, starts=starts, epochs=2)
    tables = [*tmp_path.rglob("test_items.csv")]
    assert len(tables) == (1 if starts == 1 else 3)
    with QuietReporter() as reporter:
        job = make_job(tmp_path, starts=starts, epochs=3, task=Later())
        result = train_fold(job, reporter=reporter, stop=StopRequest(), resume=True)
    assert result.status == "diverged"
    assert not any(path.exists() for path in tables)


def test_an_epoch_with_an_infinite_score_is_told_since_it_cannot_be_the_best(tmp_path: Path) -> None:
    class Perfect(Psnr):
        """An item of the first epoch's validation is predicted without error."""

        updates = 0

        def score(self, prediction: Tensor, target: Tensor) -> Tensor:
            Perfect.updates += 1
            values = super().score(prediction, target)
            return values + torch.inf if Perfect.updates == 1 else values

    result, warnings = run(tmp_path, monitor="val/psnr", train_metrics=[], build_metrics=lambda: {"psnr": Perfect()})
    assert result.status == "done"
    assert result.starts[0].best_epoch != 1
    told = [text for text in warnings if "val/psnr is infinite" in text]
    assert len(told) == 1
    assert "fold 0, start 0" in told[0]
    assert "trainer.monitor=val/loss" in told[0]


def test_weights_that_overflow_in_the_last_step_are_not_saved(tmp_path: Path) -> None:
    class Leap(torch.optim.SGD):
        def step(self, closure: Any = None) -> None:
            self.steps = getattr(self, "steps", 0) + 1
            for group in self.param_groups:
                for weight in group["params"]:
                    weight.data.mul_(torch.inf if self.steps == 8 else 1.0)

    fold = Fold(0, FOLD.train, (), FOLD.test)
    result, _ = run(tmp_path, build_optimizer=lambda groups: Leap(groups, lr=0.1), fold=fold, monitor="train/loss")
    found = result.starts[0].diverged
    assert found is not None
    assert (found.epoch, found.step, found.what) == (2, 0, "the weights are not finite")
    assert checkpoint.load(tmp_path / "last.pt").epoch == 1


def test_other_starts_go_on_and_a_diverged_one_is_never_best(tmp_path: Path) -> None:
    built: list[int] = []

    def build() -> nn.Module:
        built.append(len(built))
        return Armed(11 if built[-1] == 1 else 99)

    result, _ = run(tmp_path, build_network=build, starts=3, epochs=3, keep_best=["val/mae"])
    assert [start.status for start in result.starts] == ["done", "diverged", "done"]
    assert result.status == "done"
    assert result.any_diverged
    assert result.best_start in (0, 2)
    best = checkpoint.load(tmp_path / "best.pt")
    assert best.start == result.best_start
    assert best.best["val/psnr"]["value"] == result.starts[result.best_start].best["val/psnr"]
    assert checkpoint.load(tmp_path / "start_01/best.pt").epoch == 2
    # Finished folds are recognised, and a start that diverged is not tried again.
    again = train_fold(
        make_job(tmp_path, build_network=build, starts=3, epochs=3),
        reporter=QuietReporter(),
        stop=StopRequest(),
        resume=True,
    )
    assert again == result
    assert len(built) == 3


def test_every_start_diverged_is_a_diverged_fold(tmp_path: Path) -> None:
    result, _ = run(tmp_path, build_network=lambda: Armed(1), starts=2)
    assert result.status == "diverged"
    assert result.best_start is None
    assert [start.epochs_run for start in result.starts] == [0, 0]


def test_half_precision_skips_steps_but_not_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # There is no half precision on the CPU in this product, but torch has a scaler for it: enough for the arithmetic.
    monkeypatch.setattr("onn_runner.trainer.fold.check_precision", lambda precision, device: None)

    class Overflow(Bomb):
        def forward(self, x: Tensor) -> Tensor:
            self.count += int(self.training and torch.is_grad_enabled())
            bad = self.training and int(self.count) <= self.steps
            return x * (self.scale + (torch.sqrt((self.scale - self.scale).abs()) if bad else 0))

    class Skipping(Armed):
        def __init__(self, steps: int) -> None:
            super().__init__(steps)
            self.bomb = Overflow(steps)

    result, _ = run(tmp_path / "few", build_network=lambda: Skipping(3), precision="fp16")
    assert result.status == "done"
    state = checkpoint.load(tmp_path / "few/last.pt")
    assert state.scaler["scale"] == 65536.0 / 2**3
    assert state.history[0]["train/gradient_norm"] > 0
    result, _ = run(tmp_path / "many", build_network=lambda: Skipping(99), precision="fp16", epochs=9)
    found = result.starts[0].diverged
    assert found is not None
    assert (found.epoch, found.step, found.layer) == (7, 2, "bomb.scale (gradient)")
