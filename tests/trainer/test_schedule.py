"""Learning rates against torch's schedulers and by hand; resumed with a longer total."""

import functools
import math
from typing import Any

import pytest
import torch
from torch.optim import lr_scheduler

from onn_runner.errors import ConfigError
from onn_runner.trainer import schedule


def optimizer(lr: float = 0.1) -> torch.optim.SGD:
    weights = [torch.nn.Parameter(torch.ones(2)) for _ in range(2)]
    for weight in weights:
        weight.grad = torch.ones(2)
    return torch.optim.SGD([{"params": weights[:1]}, {"params": weights[1:], "lr": 2 * lr}], lr=lr)


def rates(build: Any, *, epochs: int, steps: int = 3, monitored: float = 1.0) -> list[float]:
    """The first group's rate in every step."""
    chosen = optimizer()
    made = schedule.make_schedule(build, chosen, epochs=epochs, steps=steps, higher=True)
    found = []
    for _ in range(epochs):
        for _ in range(steps):
            found.append(chosen.param_groups[0]["lr"])
            assert chosen.param_groups[1]["lr"] == pytest.approx(2 * found[-1], rel=1e-12)
            chosen.step()
            made.after_step()
        made.after_epoch(monitored, rose=False)
    return found


@pytest.mark.parametrize(
    ("ours", "torchs"),
    [
        (schedule.Step(size=2, gamma=0.3), functools.partial(lr_scheduler.StepLR, step_size=2, gamma=0.3)),
        (
            schedule.MultiStep(milestones=[1, 4], gamma=0.1),
            functools.partial(lr_scheduler.MultiStepLR, milestones=[1, 4], gamma=0.1),
        ),
        (schedule.Exponential(gamma=0.8), functools.partial(lr_scheduler.ExponentialLR, gamma=0.8)),
        (schedule.Cosine(interval="epoch"), functools.partial(lr_scheduler.CosineAnnealingLR, T_max=6)),
    ],
    ids=["step", "multistep", "exponential", "cosine"],
)
def test_epoch_curves_are_those_of_torch(ours: Any, torchs: Any) -> None:
    # torch multiplies step by step, ours is closed: float64 rounding only.
    assert rates(ours, epochs=6) == pytest.approx(rates(torchs, epochs=6), rel=1e-12)


def test_partial_of_torchs_scheduler_is_stepped_once_an_epoch() -> None:
    found = rates(functools.partial(lr_scheduler.StepLR, step_size=3), epochs=5, steps=2)
    assert found == pytest.approx([0.1] * 6 + [0.01] * 4, rel=1e-12)


def test_one_cycle_is_that_of_torch_but_for_its_last_step() -> None:
    steps, epochs = 5, 4
    chosen = optimizer()
    total = steps * epochs + 1
    oracle = lr_scheduler.OneCycleLR(
        chosen, [0.1, 0.2], total_steps=total, pct_start=(0.3 * 20 + 1) / total, div_factor=25, final_div_factor=400,
        cycle_momentum=False,
    )  # fmt: skip
    expected = []
    for _ in range(steps * epochs):
        expected.append(chosen.param_groups[0]["lr"])
        chosen.step()
        oracle.step()
    ours = rates(schedule.OneCycle(rise=0.3, initial=1 / 25, final=1 / 10000), epochs=epochs, steps=steps)
    assert ours == pytest.approx(expected, rel=1e-9)


def test_cosine_by_hand() -> None:
    found = rates(schedule.Cosine(warmup=1, final=0.1), epochs=3, steps=2)
    curve = [0.1 + 0.9 * (1 + math.cos(math.pi * t / 2)) / 2 for t in (0, 0.5, 1, 1.5)]
    assert found == pytest.approx([0.01, 0.055, *(0.1 * factor for factor in curve)], rel=1e-12)


def test_constant_and_none_are_constant() -> None:
    assert set(rates(schedule.Constant(), epochs=3)) == set(rates(None, epochs=3)) == {0.1}


def test_warmup_longer_than_the_training_only_rises() -> None:
    found = rates(schedule.Cosine(warmup=9), epochs=3)
    assert found == sorted(found)
    assert found[-1] < 0.1


def test_plateau_lowers_after_patience() -> None:
    found = rates(schedule.Plateau(factor=0.5, patience=1), epochs=5, steps=1)
    # The first value is the best; two more that are no better exceed a patience of one.
    assert found == pytest.approx([0.1, 0.1, 0.1, 0.05, 0.05])


@pytest.mark.parametrize("kind", [schedule.Constant, schedule.OneCycle, schedule.Plateau, schedule.Adaptive])
def test_a_warmup_that_takes_the_whole_training_is_told(kind: Any) -> None:
    told = schedule.never_warm(kind(warmup=3), epochs=3)
    assert told is not None
    assert "scheduler.warmup (=3) takes all of trainer.epochs (=3)" in told
    assert schedule.never_warm(kind(warmup=2.5), epochs=3) is None
    assert schedule.never_warm(None, epochs=1) is None


def test_warmup_rises_step_by_step_whatever_the_interval() -> None:
    rise = [0.1 * (0.1 + 0.9 * t / 1.5) for t in (0, 0.5, 1)]
    found = rates(schedule.Step(size=2, gamma=0.3, warmup=1.5), epochs=3, steps=2)
    assert found == pytest.approx([*rise, 0.1, 0.03, 0.03], rel=1e-12)
    found = rates(schedule.OneCycle(rise=0.5, initial=1.0, final=1.0, warmup=1.5), epochs=2, steps=2)
    assert found == pytest.approx([*rise, 0.1], rel=1e-12)


def test_plateau_judges_nothing_before_its_warmup_is_over() -> None:
    found = rates(schedule.Plateau(patience=0, warmup=2), epochs=5, steps=1)
    # The second epoch's value is the first that counts, the third is no better.
    assert found == pytest.approx([0.01, 0.055, 0.1, 0.05, 0.025])


def test_adaptive_by_hand() -> None:
    chosen = optimizer(0.1)
    made = schedule.make_schedule(schedule.Adaptive(), chosen, epochs=9, steps=1, higher=True)
    found = []
    for rose in (False, True, True, False):
        made.after_epoch(math.nan, rose=rose)
        found.append([group["lr"] for group in chosen.param_groups])
    by_hand = [0.105, 0.0735, 0.05145, 0.0540225]
    assert [pair[0] for pair in found] == pytest.approx(by_hand, rel=1e-12)
    # The second group began with twice the rate and keeps that.
    assert [pair[1] for pair in found] == pytest.approx([2 * rate for rate in by_hand], rel=1e-12)


@pytest.mark.parametrize(("rose", "bound"), [(True, 0.03), (False, 0.4)])
def test_adaptive_stays_within_its_bounds_and_keeps_the_ratio_of_the_groups(rose: bool, bound: float) -> None:
    chosen = optimizer(0.1)
    made = schedule.make_schedule(schedule.Adaptive(minimum=0.03, maximum=0.4), chosen, epochs=60, steps=1, higher=True)
    for _ in range(60):
        made.after_epoch(1.0, rose=rose)
    assert [group["lr"] for group in chosen.param_groups] == pytest.approx([bound, 2 * bound], rel=1e-12)


def test_adaptive_begins_within_its_bounds() -> None:
    with pytest.raises(ConfigError, match=r"optimizer\.lr \(=0\.5\) must lie within .*maximum \(=0\.2\)"):
        schedule.make_schedule(schedule.Adaptive(), optimizer(0.5), epochs=2, steps=1, higher=True)


@pytest.mark.parametrize("higher", [True, False])
def test_plateau_knows_the_direction(higher: bool) -> None:
    chosen = optimizer()
    made = schedule.make_schedule(schedule.Plateau(patience=0), chosen, epochs=4, steps=1, higher=higher)
    for value in (1.0, 2.0, 3.0):
        chosen.step()
        made.after_epoch(value, rose=False)
    assert (chosen.param_groups[0]["lr"] == 0.1) is higher


@pytest.mark.parametrize(
    "build",
    [
        schedule.Cosine(),
        schedule.OneCycle(),
        schedule.Step(size=1),
        schedule.Plateau(patience=0),
        schedule.Plateau(patience=0, warmup=1.5),
        schedule.Step(size=1, warmup=3.5),
        schedule.Adaptive(up=1.5),
        schedule.Adaptive(warmup=3.5),
        functools.partial(lr_scheduler.StepLR, step_size=3),
        functools.partial(lr_scheduler.StepLR, step_size=2, gamma=0.5),
        functools.partial(lr_scheduler.CosineAnnealingLR, T_max=6),
        functools.partial(lr_scheduler.ReduceLROnPlateau, patience=0),
    ],
)
def test_restored_schedule_goes_on_with_the_same_rates(build: Any) -> None:
    def make(epochs: int) -> tuple[torch.optim.SGD, schedule.Schedule]:
        chosen = optimizer()
        return chosen, schedule.make_schedule(build, chosen, epochs=epochs, steps=2, higher=True)

    def epoch(chosen: torch.optim.SGD, made: schedule.Schedule) -> float:
        for _ in range(2):
            chosen.step()
            made.after_step()
        made.after_epoch(1.0, rose=False)
        return float(chosen.param_groups[1]["lr"])

    through, half = make(6), make(6)
    expected = [epoch(*through) for _ in range(6)]
    for _ in range(3):
        epoch(*half)
    resumed = make(6)
    resumed[0].load_state_dict(half[0].state_dict())
    resumed[1].load_state_dict(half[1].state_dict())
    assert [epoch(*resumed) for _ in range(3)] == expected[3:]


def test_more_epochs_follow_the_longer_curve() -> None:
    finished = optimizer()
    made = schedule.Cosine()(finished, epochs=2, steps=1)
    for _ in range(2):
        finished.step()
        made.after_step()
    assert finished.param_groups[0]["lr"] == 0
    longer = optimizer()
    grown = schedule.Cosine()(longer, epochs=4, steps=1)
    longer.load_state_dict(finished.state_dict())
    grown.load_state_dict(made.state_dict())
    assert longer.param_groups[0]["lr"] == pytest.approx(0.05)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: schedule.Cosine(warmup=-1), r"scheduler\.warmup \(=-1\) must be zero or"),
        (lambda: schedule.Cosine(final=float("nan")), r"scheduler\.final \(=nan\)"),
        (lambda: schedule.Cosine(interval="batch"), r"unknown scheduler\.interval 'batch'"),
        (lambda: schedule.Constant(warmup="long"), r"scheduler\.warmup \(='long'\)"),
        (lambda: schedule.Step(size=0), r"scheduler\.size \(=0\) must be a positive number"),
        (lambda: schedule.MultiStep(milestones=[3, 0]), r"scheduler\.milestones \(=0\)"),
        (lambda: schedule.Exponential(gamma=0), r"scheduler\.gamma \(=0\)"),
        (lambda: schedule.OneCycle(rise=1.0), r"scheduler\.rise \(=1\.0\) is a share"),
        (lambda: schedule.Plateau(factor=1.5), r"scheduler\.factor \(=1\.5\) must lie between 0 and 1"),
        (lambda: schedule.Plateau(patience=-1), r"scheduler\.patience \(=-1\)"),
        (lambda: schedule.Step(warmup=-1), r"scheduler\.warmup \(=-1\)"),
        (lambda: schedule.Plateau(warmup=None), r"scheduler\.warmup \(=None\)"),
        (lambda: schedule.Adaptive(up=0.9), r"scheduler\.up \(=0\.9\) raises"),
        (lambda: schedule.Adaptive(up=float("inf")), r"scheduler\.up \(=inf\) raises"),
        (lambda: schedule.Adaptive(down=1.1), r"scheduler\.down \(=1\.1\) lowers"),
        (lambda: schedule.Adaptive(minimum=0), r"scheduler\.minimum \(=0\)"),
        (lambda: schedule.Adaptive(minimum=0.3), r"scheduler\.minimum \(=0\.3\) must not be above"),
    ],
)
def test_wrong_values_are_refused(build: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build()
