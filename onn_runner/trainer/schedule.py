"""Learning-rate schedules: the rate as a closed form of how much of the training is done.

A closed form needs no history: a run that is resumed with more epochs follows the curve of the new total from where
it stands, so that the rate of a cosine that had come down rises again to its place on the longer curve.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from onn_runner.errors import ConfigError, unknown

Interval = Literal["epoch", "step"]


class Schedule(Protocol):
    """Changes the learning rates of one optimizer as training goes on."""

    def after_step(self) -> None: ...

    def after_epoch(self, monitored: float) -> None: ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Called after the optimizer's state was loaded."""


@dataclass(frozen=True, kw_only=True)
class Curve:
    """A factor on the optimizer's rates by time t in epochs; changes every step, or every epoch."""

    interval: Interval = "step"

    def __post_init__(self) -> None:
        if self.interval not in ("epoch", "step"):
            raise unknown("scheduler.interval", str(self.interval), ["epoch", "step"])

    def factor(self, t: float, epochs: int) -> float:
        raise NotImplementedError

    def __call__(self, optimizer: Optimizer, *, epochs: int, steps: int) -> Schedule:
        return ClosedForm(self, optimizer, epochs=epochs, steps=steps)


@dataclass(frozen=True, kw_only=True)
class Constant(Curve):
    """The optimizer's rate, after `warmup` epochs of a linear rise."""

    warmup: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        _at_least_zero("warmup", self.warmup)

    def factor(self, t: float, epochs: int) -> float:
        return _rise(t, self.warmup)


@dataclass(frozen=True, kw_only=True)
class Cosine(Curve):
    """Half a cosine from the optimizer's rate to `final` times it, after `warmup` epochs of a linear rise."""

    warmup: float = 0.0
    final: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        _at_least_zero("warmup", self.warmup)
        _at_least_zero("final", self.final)

    def factor(self, t: float, epochs: int) -> float:
        if t < self.warmup:
            return _rise(t, self.warmup)
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

    def __post_init__(self) -> None:
        _positive("factor", self.factor)
        if self.factor >= 1:
            raise ConfigError(f"scheduler.factor (={self.factor}) must lie between 0 and 1.")
        for name in ("patience", "threshold", "minimum"):
            _at_least_zero(name, getattr(self, name))

    def __call__(self, optimizer: Optimizer, *, higher: bool) -> Schedule:
        mode: Literal["max", "min"] = "max" if higher else "min"
        lowers = ReduceLROnPlateau(
            optimizer, mode, self.factor, self.patience, threshold=self.threshold, min_lr=self.minimum
        )
        return Torch(lowers, monitored=True)


class ClosedForm:
    """Base rates times the curve's factor; the state is a count."""

    def __init__(self, curve: Curve, optimizer: Optimizer, *, epochs: int, steps: int) -> None:
        self.curve, self.optimizer, self.epochs = curve, optimizer, epochs
        self.per_epoch = steps if curve.interval == "step" else 1
        self.bases = [float(group["lr"]) for group in optimizer.param_groups]
        self.count = 0
        self.apply()

    def apply(self) -> None:
        factor = self.curve.factor(self.count / self.per_epoch, self.epochs)
        for group, base in zip(self.optimizer.param_groups, self.bases, strict=True):
            group["lr"] = base * factor

    def after_step(self) -> None:
        if self.curve.interval == "step":
            self.count += 1
            self.apply()

    def after_epoch(self, monitored: float) -> None:
        if self.curve.interval == "epoch":
            self.count += 1
            self.apply()

    def state_dict(self) -> dict[str, Any]:
        return {"count": self.count}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.count = state["count"]
        self.apply()


class Torch:
    """A scheduler of torch (or one like it), stepped once an epoch."""

    def __init__(self, scheduler: Any, *, monitored: bool = False) -> None:
        self.scheduler, self.monitored = scheduler, monitored

    def after_step(self) -> None:
        pass

    def after_epoch(self, monitored: float) -> None:
        if self.monitored:
            self.scheduler.step(monitored)
        else:
            self.scheduler.step()

    def state_dict(self) -> dict[str, Any]:
        return dict(self.scheduler.state_dict())

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.scheduler.load_state_dict(state)


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


def _half_cosine(done: float, begin: float, end: float) -> float:
    return end + (begin - end) * (1 + math.cos(math.pi * min(done, 1.0))) / 2


def _rise(t: float, warmup: float) -> float:
    """From a tenth, so that no step is lost on a rate of zero."""
    return 0.1 + 0.9 * t / warmup if t < warmup else 1.0


def _positive(name: str, value: Any) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool) or not value > 0:
        raise ConfigError(f"scheduler.{name} (={value!r}) must be a positive number.")


def _at_least_zero(name: str, value: Any) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool) or not value >= 0:
        raise ConfigError(f"scheduler.{name} (={value!r}) must be zero or a positive number.")
