"""A fold of classes: stopped in the middle with mixed items and scores of whole parts, it ends with the same bits."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import tiny_fold
import torch
from torch import nn

from onn_runner import illustration
from onn_runner.data.digits import Digits
from onn_runner.errors import ConfigError, Interrupted, RunError
from onn_runner.metric import classification
from onn_runner.partition.base import Fold
from onn_runner.report.kept import read as read_kept
from onn_runner.task.classify import Classify
from onn_runner.trainer import FoldJob, QuietReporter, StopRequest, checkpoint, train_fold

FOLD = Fold(0, tuple(range(40)), tuple(range(40, 60)), tuple(range(60, 90)))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Tanh(), nn.Dropout(0.1), nn.Flatten(), nn.Linear(144, 10)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.layers(x)
        return out


def metrics() -> dict[str, Any]:
    return {"accuracy": classification.Accuracy(), "f1": classification.F1(), "auroc": classification.Auroc()}


@functools.cache
def digits() -> Digits:
    return Digits(items=90)


def job_of(folder: Path, **changes: Any) -> FoldJob:
    standard = {
        "fold": FOLD, "source": digits(), "build_network": Net, "build_metrics": metrics, "epochs": 3, "batch_size": 8,
        "task": Classify(classes=digits().classes, mixup=0.4, cutmix=1.0, label_smoothing=0.1),
        "monitor": "val/f1", "train_metrics": ["accuracy", "f1", "auroc"],
    }  # fmt: skip
    return tiny_fold.make_job(folder, **{**standard, **changes})


def train(job: FoldJob, stop: StopRequest | None = None) -> Any:
    return train_fold(job, reporter=QuietReporter(), stop=stop or StopRequest(), resume=True)


@dataclass(frozen=True, kw_only=True)
class Stopping(Classify):
    """Asks to stop after so many training steps."""

    stop: StopRequest
    steps: list[int]

    def train_step(self, network: nn.Module, batch: dict[str, Any], step: Any) -> Any:
        self.steps[0] -= 1
        if self.steps[0] == 0:
            self.stop.request("test")
        return super().train_step(network, batch, step)


def state_of(folder: Path) -> tuple[Any, dict[str, torch.Tensor]]:
    last = checkpoint.load(folder / "last.pt")
    return last.history, last.network


@pytest.mark.parametrize("changes", [{}, {"ema": 0.9, "accumulate": 2, "precision": "bf16"}], ids=["plain", "options"])
@pytest.mark.parametrize("steps", [3, 7])
def test_stopped_in_the_middle_it_ends_with_the_same_bits(tmp_path: Path, steps: int, changes: dict[str, Any]) -> None:
    job = job_of(tmp_path / "whole", **changes)
    whole = train(job)
    stop = StopRequest()
    task = Stopping(**{name: getattr(job.task, name) for name in ("classes", "mixup", "cutmix", "label_smoothing")},
                    stop=stop, steps=[steps])  # fmt: skip
    stopped = replace(job, folder=tmp_path / "stopped", task=task)
    with pytest.raises(Interrupted):
        train(stopped, stop)
    result = train(replace(job, folder=stopped.folder))
    assert result.best.test == whole.best.test
    (history, weights), (others, other_weights) = state_of(job.folder), state_of(stopped.folder)
    assert history == others
    assert all(torch.equal(weights[name], other_weights[name]) for name in weights)
    assert (job.folder / "test_items.csv").read_bytes() == (stopped.folder / "test_items.csv").read_bytes()


def test_scores_of_whole_parts_have_no_rows_by_item(tmp_path: Path) -> None:
    result = train(job_of(tmp_path / "fold", score_training=True))
    assert {"test/accuracy", "test/f1", "test/auroc", "fitted/f1"} <= set(result.best.test)
    header, *rows = (tmp_path / "fold" / "test_items.csv").read_text().splitlines()
    assert header == "fold,start,item,split,metric,value"
    assert {row.split(",")[4] for row in rows} == {"accuracy"}
    assert {"train/f1", "train/auroc", "val/f1"} <= set(result.best.validation)


def test_pictures_of_a_fold_are_of_its_scored_items(tmp_path: Path) -> None:
    job = job_of(tmp_path / "fold_00", tensorboard=True, preview_items=3)
    result, reporter = train(job), QuietReporter()
    illustration.draw_fold(job, result, reporter)
    assert reporter.warnings == []
    drawn = {path.stem for path in (job.folder / "pictures").glob("*.png")}
    assert drawn == {"confusion_matrix", "reliability", "mistakes"}
    kept = read_kept(job.folder / "pictures" / "kept.npz")
    assert (kept.items, kept.classes, kept.overflowing) == ((), tuple(job.source.classes), 0)
    assert kept.confusions.sum() == len(job.fold.test)
    assert 100 * kept.confusions.trace() / len(job.fold.test) == pytest.approx(result.best.test["test/accuracy"])
    before = (job.folder / "pictures" / "mistakes.png").stat().st_mtime_ns
    illustration.draw_fold(job, result, reporter)
    assert (job.folder / "pictures" / "mistakes.png").stat().st_mtime_ns == before


class Lying(Digits):
    """All items of training have the same target."""

    def __init__(self, target: torch.Tensor) -> None:
        super().__init__(items=90)
        self.target = target

    def training(self, indices: Any, key: Any) -> Any:
        items = self.fixed(indices)
        return [{**items[place], "target": self.target} for place in range(len(indices))]


@pytest.mark.parametrize("bad", [torch.tensor(10), torch.tensor(-1), torch.tensor(3.0)])
def test_checks_refuse_targets_that_are_no_classes(tmp_path: Path, bad: torch.Tensor) -> None:
    job = job_of(tmp_path / "fold", source=Lying(bad), checks=True)
    with pytest.raises(RunError, match="targets of the train items are not all int64 classes from 0 to 9"):
        train(job)


def test_checks_find_nothing_wrong_with_digits(tmp_path: Path) -> None:
    reporter = QuietReporter()
    train_fold(job_of(tmp_path / "fold", epochs=1, checks=True), reporter=reporter, stop=StopRequest())
    assert reporter.warnings == []


class Overflowing(Net):
    """Whose evaluation has no finite logits for these items."""

    def __init__(self, items: list[int]) -> None:
        super().__init__()
        self.bad = torch.stack([item["input"] for item in digits().fixed(items)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        struck = (x[:, None] == self.bad).flatten(2).all(2).any(1)
        return super().forward(x) / (~struck | self.training)[:, None]


def test_single_items_that_overflow_are_wrong_and_cost_no_epoch(tmp_path: Path) -> None:
    """A whole batch of validation among them, one item of test; told once a start."""
    job = job_of(
        tmp_path / "fold_00", build_network=lambda: Overflowing([43, 44, 45, 60]), tensorboard=True, preview_items=20
    )
    reporter = QuietReporter()
    result = train_fold(job, reporter=reporter, stop=StopRequest())
    [warning] = reporter.warnings
    assert "fold 0, start 0, epoch 1: the network's scores of 3 of 20 validation items are not finite" in warning
    history = checkpoint.load(job.folder / "last.pt").history
    assert all(torch.tensor([*row.values()]).isfinite().all() for row in history)
    assert result.best.left_out == {"test/loss": 1}
    _, first, *others = (job.folder / "test_items.csv").read_text().splitlines()
    scores = [float(row.rpartition(",")[2]) for row in (first, *others)]
    assert (scores[0], len(scores)) == (0, 30)
    assert result.best.test["test/accuracy"] == pytest.approx(sum(scores) / 30)
    illustration.draw_fold(job, result, reporter)
    assert reporter.warnings == [warning]
    drawn = {path.stem for path in (job.folder / "pictures").glob("*.png")}
    assert drawn == {"confusion_matrix", "reliability", "mistakes"}


def test_half_of_a_part_without_an_answer_is_an_epoch_without_scores(tmp_path: Path) -> None:
    job = job_of(tmp_path / "fold", build_network=lambda: Overflowing(list(range(40, 50))))
    reporter = QuietReporter()
    found = train_fold(job, reporter=reporter, stop=StopRequest()).starts[0].diverged
    assert found is not None
    assert found.what == "val/f1 was never finite"
    assert "epoch 1: val/loss is nan (10 of 20 items have no finite scores)" in reporter.warnings[0]


def test_a_network_for_other_classes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"the network gives \(8, 10\) for 8 items of 2 classes"):
        train(job_of(tmp_path / "fold", task=Classify(classes=["a", "b"])))
