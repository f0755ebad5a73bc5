"""trainer.restore_best_on_rise: which epochs go back, to what, at which rate, and what a rise is compared with."""

import copy
import functools
import itertools
from pathlib import Path
from typing import Any

import pytest
import torch
from test_averages import Drawn, jump, jumping, train
from tiny_fold import make_job

from onn_runner.trainer import QuietReporter, StopRequest, checkpoint, train_fold
from onn_runner.trainer.engine import Engine
from onn_runner.trainer.schedule import Adaptive

# The bias that each epoch ends with; it trains with the one before, so that its loss is that one's.
VALUES = [0.3, 0.1, 0.9, 0.8, 0.7]
ROLLBACK: dict[str, Any] = {"restore_best_on_rise": True, "build_scheduler": Adaptive()}


def test_a_rise_goes_back_to_the_best_epoch_and_goes_on_with_the_lowered_rate(tmp_path: Path) -> None:
    jump(tmp_path, VALUES[:4], **ROLLBACK)
    state = checkpoint.load(tmp_path / "last.pt")
    losses = [row["train/loss"] for row in state.history]
    # Epoch 2 rises too, but is the best so far.
    assert losses[1] > losses[0]
    assert losses[3] > losses[2]
    assert (state.best["val/psnr"]["epoch"], state.origin) == (2, 2)
    assert state.network["bias"].item() == pytest.approx(0.1)
    rate = state.optimizers["main"]["param_groups"][0]["lr"]
    assert rate == pytest.approx(0.1 * 1.05 * 0.7 * 1.05 * 0.7)


def test_the_epoch_after_begins_with_the_weights_gone_back_to(tmp_path: Path) -> None:
    jump(tmp_path, VALUES, **ROLLBACK)
    state = checkpoint.load(tmp_path / "last.pt")
    losses = [row["train/loss"] for row in state.history]
    # The bias 0.1 again; epoch 2, which ended with it, had trained with 0.3.
    assert losses[4] < losses[1]
    assert state.origin == 0
    rate = state.optimizers["main"]["param_groups"][0]["lr"]
    assert rate == pytest.approx(0.1 * 1.05 * 0.7 * 1.05 * 0.7 * 1.05)
    assert checkpoint.load(tmp_path / "best.pt").network["bias"].item() == pytest.approx(0.1)


def test_training_does_not_stand_still_where_the_best_weights_are_worse_than_their_epoch(tmp_path: Path) -> None:
    """Epoch 1 trains with 0 and ends with 0.1, so that no epoch that begins there can have its loss."""
    jump(tmp_path, [0.1] + [0.9] * 9, **ROLLBACK)
    rates = [row["train/learning_rate"] for row in checkpoint.load(tmp_path / "last.pt").history]
    assert any(later > earlier for earlier, later in itertools.pairwise(rates[2:]))


def test_without_it_a_rise_only_lowers_the_rate(tmp_path: Path) -> None:
    jump(tmp_path, VALUES[:4], build_scheduler=Adaptive())
    state = checkpoint.load(tmp_path / "last.pt")
    assert state.network["bias"].item() == pytest.approx(0.8)
    assert (state.origin, state.best_state) == (0, {})


def test_resumed_after_a_rollback_it_goes_on_from_there(tmp_path: Path) -> None:
    jump(tmp_path / "whole", VALUES, **ROLLBACK)
    jump(tmp_path / "parts", VALUES[:4], **ROLLBACK)
    rest: dict[str, Any] = {"build_optimizer": jumping(VALUES[4:]), "build_network": Drawn, "batch_size": 14}
    train(tmp_path / "parts", epochs=5, **rest, **ROLLBACK)
    whole, parts = (checkpoint.load(tmp_path / name / "last.pt") for name in ("whole", "parts"))
    assert whole.history == parts.history
    assert whole.optimizers == parts.optimizers


def test_another_monitor_keeps_the_weights_of_an_epoch_that_went_back(tmp_path: Path) -> None:
    """By training loss the first epoch is the best; by the validation score the last, whose weights are kept."""
    jump(tmp_path, [0.5, 0.4], **ROLLBACK, keep_best=["val/psnr"], monitor="train/loss")
    state = checkpoint.load(tmp_path / "last.pt")
    assert (state.origin, state.network["bias"].item()) == (1, 0.5)
    kept = checkpoint.load(tmp_path / "best_psnr.pt")
    assert (kept.epoch, kept.network["bias"].item()) == (2, pytest.approx(0.4))
    # A kill before the file was written is mended from last.pt only where the weights there are the epoch's own.
    (tmp_path / "status.json").unlink()
    train(
        tmp_path, epochs=2, build_optimizer=jumping([]), build_network=Drawn, batch_size=14, **ROLLBACK,
        keep_best=["val/psnr"], monitor="train/loss",
    )  # fmt: skip
    assert checkpoint.load(tmp_path / "best_psnr.pt").network["bias"].item() == pytest.approx(0.4)


def test_real_trainings_go_back_and_end_well(tmp_path: Path) -> None:
    origins = []

    class Watching(QuietReporter):
        def epoch_done(self, *arguments: Any, **keywords: Any) -> None:
            origins.append(checkpoint.load(tmp_path / "last.pt").origin)

    fast = functools.partial(torch.optim.Adam, lr=2.0)
    schedule = Adaptive(up=1.5, maximum=100.0)
    job = make_job(tmp_path, epochs=8, build_optimizer=fast, build_scheduler=schedule, restore_best_on_rise=True)
    result = train_fold(job, reporter=Watching(), stop=StopRequest())
    assert result.status == "done"
    assert any(origins)


def test_going_back_brings_weights_and_moments_but_not_the_rate(tmp_path: Path) -> None:
    engine = Engine(make_job(tmp_path, ema=0.9), 0, higher=True)
    x = torch.randn(4, 1, 8, 8, generator=torch.Generator().manual_seed(0))

    def steps(count: int) -> None:
        for _ in range(count):
            engine.network.train()
            engine.step(engine.training(x).square().mean())

    steps(2)
    kept = copy.deepcopy(engine.weights())
    untouched = copy.deepcopy(kept)
    for _ in range(2):
        steps(3)
        engine.optimizers["main"].param_groups[0]["lr"] = 0.123
        engine.go_back(kept)
        found = engine.weights()
        assert engine.rate == 0.123
        assert all(torch.equal(found["network"][name], value) for name, value in untouched["network"].items())
        assert all(torch.equal(found["average"][name], value) for name, value in untouched["average"].items())
        moments, expected = (state["optimizers"]["main"]["state"] for state in (found, untouched))
        assert all(torch.equal(moments[n][k], value) for n, entry in expected.items() for k, value in entry.items())
