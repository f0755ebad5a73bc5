"""Several batches per update: the gradient of one large batch, whatever the sizes, and exact after any interruption."""

from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_fold import Net, make_job
from torch import nn

from onn_runner.errors import Interrupted
from onn_runner.trainer import QuietReporter, StopRequest, checkpoint, train_fold
from onn_runner.trainer.batches import Turn, turns
from onn_runner.trainer.schedule import Constant, Cosine


class Plain(nn.Module):
    """No batch normalisation, no dropout: batches do not know of each other."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.Tanh(), nn.Conv2d(4, 1, 3, padding=1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x - 0.1 * self.layers(x)


def train(folder: Path, **changes: Any) -> list[checkpoint.Checkpoint]:
    standard: dict[str, Any] = {"build_network": Plain, "build_scheduler": Constant(), "epochs": 2}
    job = make_job(folder, **{**standard, **changes})
    train_fold(job, reporter=QuietReporter(), stop=StopRequest(), resume=True)
    return [checkpoint.load(folder / "last.pt")]


@pytest.mark.parametrize(("small", "count"), [(4, 2), (3, 3), (1, 14), (2, 4)])
def test_updates_are_those_of_the_large_batch(small: int, count: int, tmp_path: Path) -> None:
    """Fourteen items: the last group is smaller, and so is its last batch."""
    (large,) = train(tmp_path / "large", batch_size=small * count)
    (found,) = train(tmp_path / "small", batch_size=small, accumulate=count)
    for name, weight in large.network.items():
        # Float32 sums in another order, through a few steps of Adam.
        torch.testing.assert_close(found.network[name], weight, rtol=1e-4, atol=1e-5)
    assert found.history[-1]["train/loss"] == pytest.approx(large.history[-1]["train/loss"], rel=1e-4)
    assert found.history[-1]["train/gradient_norm"] == pytest.approx(large.history[-1]["train/gradient_norm"], rel=1e-3)


def test_turns_share_the_items_and_the_last_group_may_be_smaller() -> None:
    order = [[0, 1], [2, 3], [4, 5], [6]]
    assert turns(order, 1) == [Turn()] * 4
    assert turns(order, 3) == [Turn(True, False, 1 / 3), Turn(False, False, 1 / 3), Turn(False, True, 1 / 3), Turn()]
    assert turns(order, 9) == [
        Turn(True, False, 2 / 7),
        Turn(False, False, 2 / 7),
        Turn(False, False, 2 / 7),
        Turn(False, True, 1 / 7),
    ]


def test_the_schedule_counts_updates(tmp_path: Path) -> None:
    (state,) = train(tmp_path, accumulate=3, build_scheduler=Cosine(), epochs=2)
    # Four batches of an epoch are two updates.
    assert state.schedules["main"] == {"steps": 4}


@pytest.mark.parametrize("accumulate", [2, 3, 4])
def test_stopped_after_any_batch_goes_on_with_the_same_bits(accumulate: int, tmp_path: Path) -> None:
    class Stopping(QuietReporter):
        def step_done(self, step: int, steps: int) -> None:
            stop.request("Ctrl-C")

    changes: dict[str, Any] = {"accumulate": accumulate, "build_network": Net, "clip_norm": 0.01}
    (whole,) = train(tmp_path / "whole", **changes)
    begun = 0
    while True:
        stop = StopRequest()
        job = make_job(tmp_path / "parts", build_scheduler=Constant(), epochs=2, **changes)
        try:
            train_fold(job, reporter=Stopping(), stop=stop, resume=True)
            break
        except Interrupted:
            begun += bool(checkpoint.load(tmp_path / "parts/last.pt").gradients)
    assert begun > 0
    parts = checkpoint.load(tmp_path / "parts/last.pt")
    assert parts.history == whole.history
    assert all(torch.equal(parts.network[name], value) for name, value in whole.network.items())


def test_a_bad_loss_within_a_group_is_found_at_once(tmp_path: Path) -> None:
    class Late(Plain):
        def __init__(self) -> None:
            super().__init__()
            self.calls = 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            return super().forward(x) * (torch.nan if self.calls == 2 else 1)

    job = make_job(tmp_path, build_network=Late, accumulate=4)
    result = train_fold(job, reporter=QuietReporter(), stop=StopRequest())
    assert result.starts[0].diverged is not None
    assert (result.starts[0].diverged.epoch, result.starts[0].diverged.step) == (1, 2)
