"""Means of weights by hand; what is scored, kept and tested with them; resumed to the bit."""

import functools
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_fold import FOLD, Net, make_job
from torch import nn

from onn_runner.errors import Interrupted
from onn_runner.model.operational import Operational
from onn_runner.network.compact import Compact
from onn_runner.ops import Exponential, Sine
from onn_runner.partition.base import Fold
from onn_runner.trainer import FoldResult, QuietReporter, StopRequest, checkpoint, train_fold
from onn_runner.trainer.averages import RunningMean, mean_of
from onn_runner.trainer.checkpoint import Checkpoint


class Stopping(QuietReporter):
    def __init__(self, stop: StopRequest, steps: int) -> None:
        super().__init__()
        self.stop, self.left = stop, steps

    def step_done(self, step: int, steps: int) -> None:
        self.left -= 1
        if self.left == 0:
            self.stop.request("Ctrl-C")


def train(folder: Path, *, every: int = 0, **changes: Any) -> FoldResult:
    """Stopped after every so many steps."""
    while True:
        stop = StopRequest()
        reporter = Stopping(stop, every)
        try:
            return train_fold(make_job(folder, **changes), reporter=reporter, stop=stop, resume=True)
        except Interrupted:
            continue


def plain(state: Checkpoint) -> dict[str, Any]:
    return {name: value.tolist() if isinstance(value, torch.Tensor) else value for name, value in state.network.items()}


def operational() -> nn.Module:
    return Compact(
        Operational({"sine": Sine(), "exp": Exponential()}), 1, out_channels=1, channels=[4], input_size=(8, 8)
    )


def test_running_mean_by_hand() -> None:
    network = nn.BatchNorm1d(2)
    mean = RunningMean(network, 0.5)
    values = []
    for step in range(5):
        with torch.no_grad():
            network.weight.fill_(float(step))
            network.running_mean.fill_(float(10 * step))
            network.num_batches_tracked.fill_(step)
        mean.update(network)
        values.append(mean.network.weight[0].item())
    expected, by_hand = 0.0, [0.0]
    for step in range(1, 5):
        decay = min(0.5, (1 + step) / (10 + step))
        expected = decay * expected + (1 - decay) * step
        by_hand.append(expected)
    assert values == pytest.approx(by_hand, rel=1e-6)
    assert mean.network.running_mean[0].item() == pytest.approx(10 * by_hand[-1], rel=1e-6)
    assert mean.network.num_batches_tracked.item() == 4
    assert network.weight[0].item() == 4


def test_mean_of_states_by_hand() -> None:
    states = [{"a": torch.tensor([1.0, 5.0]), "n": torch.tensor(3), "extra": {"plans": {}}} for _ in range(2)]
    states[1] = {"a": torch.tensor([2.0, 6.0]), "n": torch.tensor(7), "extra": {"plans": {"train": []}}}
    found = mean_of(states)
    assert found["a"].tolist() == [1.5, 5.5]
    assert found["a"].dtype == torch.float32
    assert (found["n"].item(), found["extra"]) == (3, {"plans": {}})


@pytest.mark.parametrize("build", [Net, operational])
def test_the_running_mean_is_what_is_validated_kept_and_tested(build: Any, tmp_path: Path) -> None:
    result = train(tmp_path, ema=0.9, build_network=build, preview_items=2)
    last, best = checkpoint.load(tmp_path / "last.pt"), checkpoint.load(tmp_path / "best.pt")
    assert result.best is not None
    assert result.best.best_epoch == best.epoch
    assert last.average["n_averaged"].item() == 3 * 4
    if best.epoch == last.epoch:
        for name, value in best.network.items():
            if isinstance(value, torch.Tensor):
                assert torch.equal(value, last.average[f"module.{name}"])
                assert value.ndim == 0 or not value.is_floating_point() or name.endswith(("gain", "unit")) or (
                    not torch.equal(value, last.network[name])
                )  # fmt: skip
    other = train(tmp_path / "plain", build_network=build)
    # The weights that learn know nothing of their mean.
    raw = checkpoint.load(tmp_path / "plain/last.pt")
    assert [row["train/loss"] for row in raw.history] == [row["train/loss"] for row in last.history]
    assert other.best is not None
    assert other.best.test != result.best.test


@pytest.mark.parametrize("build", [Net, operational])
@pytest.mark.parametrize(
    "changes",
    [
        {"ema": 0.9},
        {"average": 2},
        {"restore_best_on_rise": True, "monitor": "val/mae", "epochs": 5},
        {"ema": 0.8, "average": 3, "restore_best_on_rise": True, "accumulate": 3, "epochs": 4, "limit_batches": 3},
    ],
    ids=["ema", "average", "rollback", "all"],
)
def test_stopped_anywhere_ends_with_the_same_bits(build: Any, changes: dict[str, Any], tmp_path: Path) -> None:
    # A rate at which losses rise now and then.
    changes = {"build_network": build, "build_optimizer": functools.partial(torch.optim.Adam, lr=2.0), **changes}
    whole = train(tmp_path / "whole", **changes)
    parts = train(tmp_path / "parts", every=1 if build is Net else 4, **changes)
    for name in ("best.pt", "last.pt"):
        a, b = (checkpoint.load(tmp_path / where / name) for where in ("whole", "parts"))
        assert plain(a) == plain(b)
        assert (a.history, a.best, a.averaged, a.origin) == (b.history, b.best, b.averaged, b.origin)
    for name in ("metrics.csv", "test_items.csv"):
        assert (tmp_path / "whole" / name).read_bytes() == (tmp_path / "parts" / name).read_bytes()
    assert whole.best is not None
    assert parts.best is not None
    assert (whole.best.test, whole.best.averaged) == (parts.best.test, parts.best.averaged)


class Drawn(nn.Module):
    """A bias that jumps about the best value: the mean of two epochs is better than each."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(1))
        self.register_buffer("epoch", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.bias


class Jumping(torch.optim.SGD):
    """Sets the bias to the next of VALUES at every update."""

    def step(self, closure: Any = None) -> None:
        (parameter,) = self.param_groups[0]["params"]
        with torch.no_grad():
            parameter.fill_(self.values.pop(0))  # type: ignore[attr-defined]


def jumping(values: list[float]) -> Any:
    def build(groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
        optimizer = Jumping(groups, lr=0.1)
        optimizer.values = list(values)  # type: ignore[attr-defined]
        return optimizer

    return build


def jump(folder: Path, values: list[float], **changes: Any) -> FoldResult:
    """One update an epoch."""
    standard: dict[str, Any] = {"build_network": Drawn, "batch_size": 14, "epochs": len(values)}
    return train(folder, build_optimizer=jumping(values), **{**standard, **changes})


def test_the_mean_of_the_best_epochs_is_taken_where_it_is_better(tmp_path: Path) -> None:
    result = jump(tmp_path, [0.4, 0.2, 5.0, -0.19], average=2)
    best = checkpoint.load(tmp_path / "best.pt")
    assert result.best is not None
    assert (result.best.best_epoch, result.best.averaged, best.averaged, best.epoch) == (4, [2, 4], [2, 4], 4)
    assert best.network["bias"].item() == pytest.approx(0.005, abs=1e-6)
    rows = {row["epoch"]: row["val/psnr"] for row in checkpoint.load(tmp_path / "last.pt").history}
    assert result.best.validation["val/psnr"] == result.best.best["val/psnr"] > max(rows.values())
    assert result.best.test["test/psnr"] > jump(tmp_path / "plain", [0.4, 0.2, 5.0, -0.19]).best.test["test/psnr"]  # type: ignore[union-attr]


@pytest.mark.parametrize("fold", [FOLD, Fold(0, tuple(range(14)), (), tuple(range(16, 24)))])
def test_the_best_epoch_stays_where_the_mean_is_worse(fold: Fold, tmp_path: Path) -> None:
    monitor = "val/psnr" if fold.validation else "train/loss"
    values = [0.0, 2.0, 3.0] if fold.validation else [0.0, 0.0, 2.0]
    result = jump(tmp_path, values, average=3, fold=fold, monitor=monitor)
    best = checkpoint.load(tmp_path / "best.pt")
    assert result.best is not None
    assert (result.best.averaged, best.averaged, best.network["bias"].item()) == ([], [], 0.0)
    assert result.best.best[monitor] == best.best[monitor]["value"]


def test_more_epochs_average_as_if_there_had_been_no_pause(tmp_path: Path) -> None:
    values = [0.4, 0.2, -0.19, 0.05, 3.0, -0.06]
    whole = jump(tmp_path / "whole", values, average=2)
    jump(tmp_path / "parts", values[:3], average=2)
    assert checkpoint.load(tmp_path / "parts/best.pt").averaged == [2, 3]
    parts = train(
        tmp_path / "parts", build_optimizer=jumping(values[3:]), build_network=Drawn, batch_size=14, epochs=6, average=2
    )
    assert whole.best is not None
    assert parts.best is not None
    assert parts.best.averaged == whole.best.averaged == [4, 6]
    assert parts.best.test == whole.best.test


def test_two_starts_are_compared_by_what_is_tested(tmp_path: Path) -> None:
    result = train(tmp_path, starts=2, average=2, epochs=3)
    assert result.best is not None
    assert checkpoint.load(tmp_path / "best.pt").averaged == result.best.averaged
    assert result.best.best["val/psnr"] == max(start.best["val/psnr"] for start in result.starts)
