"""Learning-rate schedules: the rate as a closed form of how much of the training is done.

A closed form needs no history: a run that is resumed with more epochs follows the curve of the new total from where
it stands, so that the rate of a cosine that had come down rises again to its place on the longer curve.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from onn_runner.errors import ConfigError, unknown
from onn_runner.trainer.rates import Adapting, ClosedForm, Schedule, Torch, Warming

Interval = Literal["epoch", "step"]


@dataclass(frozen=True, kw_only=True)
class Curve:
    """A factor on the optimizer's rates by time t in epochs; changes every step, or every epoch.

    During `warmup` epochs the rates also rise linearly, step by step, whatever the interval.
    """

    interval: Interval = "step"
    warmup: float = 0.0

    def __post_init__(self) -> None:
        if self.interval not in ("epoch", "step"):
            raise unknown("scheduler.interval", str(self.interval), ["epoch", "step"])
        _at_least_zero("warmup", self.warmup)

    def factor(self, t: float, epochs: int) -> float:
        raise NotImplementedError

    def __call__(self, optimizer: Optimizer, *, epochs: int, steps: int) -> Schedule:
        def factor(t: float) -> float:
            return self.factor(t, epochs)

        return ClosedForm(factor, optimizer, steps=steps, by_step=self.interval == "step", warmup=self.warmup)


@dataclass(frozen=True, kw_only=True)
class Constant(Curve):
    """The optimizer's rate."""

    def factor(self, t: float, epochs: int) -> float:
        return 1.0


@dataclass(frozen=True, kw_only=True)
class Cosine(Curve):
    """Half a cosine from the optimizer's rate to `final` times it, over the epochs that follow the warm-up."""

    final: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        _at_least_zero("final", self.final)

    def factor(self, t: float, epochs: int) -> float:
        if t < self.warmup:
            return 1.0
        length = epochs - self.warmup
        return _half_cosine((t - self.warmup) / length if length > 0 else 1.0, 1.0, self.final)


@dataclass(frozen=True, kw_only=True)
class Step(Curve):
    """Times `gamma` every `size` epochs."""

    interval: Interval = "epoch"
    size: int = 10
    gamma: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        _positive("size", self.size)
        _positive("gamma", self.gamma)

    def factor(self, t: float, epochs: int) -> float:
        return float(self.gamma ** (t // self.size))


@dataclass(frozen=True, kw_only=True)
class MultiStep(Curve):
    """Times `gamma` after each of the epochs in `milestones`."""

    interval: Interval = "epoch"
    milestones: Sequence[int] = ()
    gamma: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        given: Any = self.milestones
        if isinstance(given, str) or not isinstance(given, Sequence):
            raise ConfigError(f"scheduler.milestones (={given}) must be a list of epochs, such as [10, 20]")
        for milestone in self.milestones:
            _positive("milestones", milestone)
        _positive("gamma", self.gamma)

    def factor(self, t: float, epochs: int) -> float:
        return float(self.gamma ** sum(t >= milestone for milestone in self.milestones))


@dataclass(frozen=True, kw_only=True)
class Exponential(Curve):
    """Times `gamma` every epoch."""

    interval: Interval = "epoch"
    gamma: float = 0.95

    def __post_init__(self) -> None:
        super().__post_init__()
        _positive("gamma", self.gamma)

    def factor(self, t: float, epochs: int) -> float:
        return float(self.gamma**t)


@dataclass(frozen=True, kw_only=True)
class OneCycle(Curve):
    """Cosine up from `initial` to the optimizer's rate over `rise` of the training, then down to `final` of it.

    The rate alone; momentum stays as the optimizer has it. Source: Smith and Topin 2017, Super-Convergence.
    """

    rise: float = 0.3
    initial: float = 0.04
    final: float = 0.0001

    def __post_init__(self) -> None:
        super().__post_init__()
        _positive("rise", self.rise)
        if self.rise >= 1:
            raise ConfigError(f"scheduler.rise (={self.rise}) is a share of the training: choose between 0 and 1.")
        _at_least_zero("initial", self.initial)
        _at_least_zero("final", self.final)

    def factor(self, t: float, epochs: int) -> float:
        done = t / epochs
        if done < self.rise:
            return _half_cosine(done / self.rise, self.initial, 1.0)
        return _half_cosine((done - self.rise) / (1 - self.rise), 1.0, self.final)


@dataclass(frozen=True, kw_only=True)
class Plateau:
    """Times `factor` when the monitored value has not improved for `patience` epochs."""

    factor: float = 0.5
    patience: int = 3
    threshold: float = 1e-4
    minimum: float = 0.0
    warmup: float = 0.0
    """Epochs of a linear rise before anything is judged."""

    def __post_init__(self) -> None:
        _positive("factor", self.factor)
        if self.factor >= 1:
            raise ConfigError(f"scheduler.factor (={self.factor}) must lie between 0 and 1.")
        for name in ("patience", "threshold", "minimum", "warmup"):
            _at_least_zero(name, getattr(self, name))

    def __call__(self, optimizer: Optimizer, *, steps: int, higher: bool) -> Schedule:
        mode: Literal["max", "min"] = "max" if higher else "min"
        lowers = ReduceLROnPlateau(
            optimizer, mode, self.factor, self.patience, threshold=self.threshold, min_lr=self.minimum
        )
        return _warmed(Torch(lowers, monitored=True), optimizer, warmup=self.warmup, steps=steps)


@dataclass(frozen=True, kw_only=True)
class Adaptive:
    """After each epoch times `up` where the training loss did not rise, else times `down`, within the bounds.

    The bounds are those of the optimizer's `lr`; groups of parameters with a rate of their own keep their ratio to it.
    The loss is compared with that of the epoch before, also where trainer.restore_best_on_rise went back from there.
    Source: FastONN's recipe; "bold driver" elsewhere.
    """

    up: float = 1.05
    down: float = 0.7
    minimum: float = 1e-6
    maximum: float = 0.2
    warmup: float = 0.0
    """Epochs of a linear rise before anything is judged."""

    def __post_init__(self) -> None:
        for name in ("up", "down", "minimum", "maximum"):
            _positive(name, getattr(self, name))
        _at_least_zero("warmup", self.warmup)
        if self.up < 1 or not math.isfinite(self.up):
            raise ConfigError(f"scheduler.up (={self.up}) raises the rate: choose a number of at least 1.")
        if self.down > 1:
            raise ConfigError(f"scheduler.down (={self.down}) lowers the rate: choose a number of at most 1.")
        if self.minimum > self.maximum:
            raise ConfigError(
                f"scheduler.minimum (={self.minimum}) must not be above scheduler.maximum (={self.maximum})."
            )

    def __call__(self, optimizer: Optimizer, *, steps: int) -> Schedule:
        rate = float(optimizer.defaults["lr"])
        if not self.minimum <= rate <= self.maximum:
            raise ConfigError(
                f"optimizer.lr (={rate}) must lie within scheduler.minimum (={self.minimum}) and "
                f"scheduler.maximum (={self.maximum}) of the adaptive schedule: change one of them."
            )
        bounds = self.minimum / rate, self.maximum / rate
        adapting = Adapting(optimizer, up=self.up, down=self.down, bounds=bounds)
        return _warmed(adapting, optimizer, warmup=self.warmup, steps=steps)


def make_schedule(
    build: Callable[..., Any] | None, optimizer: Optimizer, *, epochs: int, steps: int, higher: bool
) -> Schedule:
    """Call `build` with the optimizer and those of epochs, steps (per epoch) and higher (is better) that it names.

    A partial of one of torch's own schedulers will do as well.
    """
    if build is None:
        return Constant()(optimizer, epochs=epochs, steps=steps)
    known = {"epochs": epochs, "steps": steps, "higher": higher}
    named = inspect.signature(build).parameters
    built = build(optimizer, **{name: value for name, value in known.items() if name in named})
    if isinstance(built, LRScheduler):
        return Torch(built, monitored=isinstance(built, ReduceLROnPlateau))
    return built


def never_warm(build: Any, *, epochs: int) -> str | None:
    """What to tell where the warm-up takes the whole training; None where it ends before."""
    warmup = getattr(build, "warmup", 0.0)
    if not isinstance(warmup, int | float) or warmup < epochs:
        return None
    return (
        f"scheduler.warmup (={warmup:g}) takes all of trainer.epochs (={epochs}): the learning rate only rises, and "
        "what the schedule does afterwards never begins"
    )


def _warmed(schedule: Schedule, optimizer: Optimizer, *, warmup: float, steps: int) -> Schedule:
    return Warming(schedule, optimizer, warmup=warmup, steps=steps) if warmup else schedule


def _half_cosine(done: float, begin: float, end: float) -> float:
    return end + (begin - end) * (1 + math.cos(math.pi * min(done, 1.0))) / 2


def _positive(name: str, value: Any) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool) or not value > 0:
        raise ConfigError(f"scheduler.{name} (={value!r}) must be a positive number.")


def _at_least_zero(name: str, value: Any) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool) or not value >= 0:
        raise ConfigError(f"scheduler.{name} (={value!r}) must be zero or a positive number.")
