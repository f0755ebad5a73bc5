"""Learning-rate schedules: the rate as a closed form of how much of the training is done.

A closed form needs no history: a run that is resumed with more epochs follows the curve of the new total from where
it stands, so that the rate of a cosine that had come down rises again to its place on the longer curve.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from onn_runner.errors import ConfigError, unknown

Interval = Literal["epoch", "step"]


class Schedule(Protocol):
    def after_step(self) -> None: ...

    def after_epoch(self, monitored: float) -> None: ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Called after the optimizer's state was loaded."""


class ClosedForm:
    """Base rates times `factor(t)`, t in epochs: a fraction where the interval is a step."""

    def __init__(self, optimizer: Optimizer, *, epochs: int, steps: int, interval: Interval = "epoch") -> None:
        if interval not in ("epoch", "step"):
            raise unknown("scheduler.interval", str(interval), ["epoch", "step"])
        self.optimizer, self.epochs, self.steps, self.interval = optimizer, epochs, steps, interval
        self.bases = [float(group["lr"]) for group in optimizer.param_groups]
        self.count = 0
        self.apply()

    def factor(self, t: float) -> float:
        return 1.0

    def apply(self) -> None:
        factor = self.factor(self.count / (self.steps if self.interval == "step" else 1))
        for group, base in zip(self.optimizer.param_groups, self.bases, strict=True):
            group["lr"] = base * factor

    def after_step(self) -> None:
        if self.interval == "step":
            self.count += 1
            self.apply()

    def after_epoch(self, monitored: float) -> None:
        if self.interval == "epoch":
            self.count += 1
            self.apply()

    def state_dict(self) -> dict[str, Any]:
        return {"count": self.count}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.count = state["count"]
        self.apply()


class Constant(ClosedForm):
    """The optimizer's rate, after `warmup` epochs of a linear rise."""

    def __init__(
        self, optimizer: Optimizer, *, epochs: int, steps: int, warmup: float = 0.0, interval: Interval = "step"
    ) -> None:
        self.warmup = _at_least_zero("warmup", warmup)
        super().__init__(optimizer, epochs=epochs, steps=steps, interval=interval)

    def factor(self, t: float) -> float:
        return _rise(t, self.warmup, self.steps)


class Cosine(ClosedForm):
    """Half a cosine from the optimizer's rate to `final` times it, after `warmup` epochs of a linear rise."""

    def __init__(
        self,
        optimizer: Optimizer,
        *,
        epochs: int,
        steps: int,
        warmup: float = 0.0,
        final: float = 0.0,
        interval: Interval = "step",
    ) -> None:
        self.warmup, self.final = _at_least_zero("warmup", warmup), _at_least_zero("final", final)
        super().__init__(optimizer, epochs=epochs, steps=steps, interval=interval)

    def factor(self, t: float) -> float:
        if t < self.warmup:
            return _rise(t, self.warmup, self.steps)
        done = min((t - self.warmup) / max(self.epochs - self.warmup, 1e-9), 1.0)
        return self.final + (1 - self.final) * (1 + math.cos(math.pi * done)) / 2


class Step(ClosedForm):
    """Times `gamma` every `size` epochs."""

    def __init__(self, optimizer: Optimizer, *, epochs: int, steps: int, size: int = 10, gamma: float = 0.5) -> None:
        self.size, self.gamma = _positive("size", size), _positive("gamma", gamma)
        super().__init__(optimizer, epochs=epochs, steps=steps)

    def factor(self, t: float) -> float:
        return self.gamma ** (t // self.size)


class MultiStep(ClosedForm):
    """Times `gamma` after each of these epochs."""

    def __init__(
        self, optimizer: Optimizer, *, epochs: int, steps: int, milestones: Sequence[int] = (), gamma: float = 0.1
    ) -> None:
        self.milestones = [_positive("milestones", milestone) for milestone in milestones]
        self.gamma = _positive("gamma", gamma)
        super().__init__(optimizer, epochs=epochs, steps=steps)

    def factor(self, t: float) -> float:
        return self.gamma ** sum(t >= milestone for milestone in self.milestones)


class Exponential(ClosedForm):
    """Times `gamma` every epoch."""

    def __init__(
        self, optimizer: Optimizer, *, epochs: int, steps: int, gamma: float = 0.95, interval: Interval = "epoch"
    ) -> None:
        self.gamma = _positive("gamma", gamma)
        super().__init__(optimizer, epochs=epochs, steps=steps, interval=interval)

    def factor(self, t: float) -> float:
        return self.gamma**t


class OneCycle(ClosedForm):
    """Cosine up from `initial` to the optimizer's rate over `rise` of the training, cosine down to `final` of it.

    The rate alone; momentum stays as the optimizer has it. Source: Smith and Topin 2017, Super-Convergence.
    """

    def __init__(
        self,
        optimizer: Optimizer,
        *,
        epochs: int,
        steps: int,
        rise: float = 0.3,
        initial: float = 0.04,
        final: float = 0.0001,
        interval: Interval = "step",
    ) -> None:
        self.rise = _positive("rise", rise)
        if self.rise >= 1:
            raise ConfigError(f"scheduler.rise (={rise}) is a share of the training: choose between 0 and 1.")
        self.initial, self.final = _at_least_zero("initial", initial), _at_least_zero("final", final)
        super().__init__(optimizer, epochs=epochs, steps=steps, interval=interval)

    def factor(self, t: float) -> float:
        done = min(t / self.epochs, 1.0)
        if done < self.rise:
            return 1 + (self.initial - 1) * (1 + math.cos(math.pi * done / self.rise)) / 2
        down = (done - self.rise) / (1 - self.rise)
        return self.final + (1 - self.final) * (1 + math.cos(math.pi * down)) / 2


class Plateau:
    """Times `factor` when the monitored value has not improved for `patience` epochs."""

    def __init__(
        self,
        optimizer: Optimizer,
        *,
        higher: bool,
        factor: float = 0.5,
        patience: int = 3,
        threshold: float = 1e-4,
        minimum: float = 0.0,
    ) -> None:
        if not 0 < factor < 1:
            raise ConfigError(f"scheduler.factor (={factor}) must lie between 0 and 1.")
        self.torch = ReduceLROnPlateau(
            optimizer,
            mode="max" if higher else "min",
            factor=factor,
            patience=patience,
            threshold=threshold,
            min_lr=minimum,
        )

    def after_step(self) -> None:
        pass

    def after_epoch(self, monitored: float) -> None:
        self.torch.step(monitored)

    def state_dict(self) -> dict[str, Any]:
        return self.torch.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.torch.load_state_dict(state)


class Torch:
    """A scheduler of torch (or one like it), stepped once an epoch."""

    def __init__(self, scheduler: LRScheduler) -> None:
        self.torch = scheduler

    def after_step(self) -> None:
        pass

    def after_epoch(self, monitored: float) -> None:
        self.torch.step()

    def state_dict(self) -> dict[str, Any]:
        return self.torch.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.torch.load_state_dict(state)


def make_schedule(
    build: Callable[..., Any] | None, optimizer: Optimizer, *, epochs: int, steps: int, higher: bool
) -> Schedule:
    """Call `build` with the optimizer and those of epochs, steps (per epoch) and higher (is better) that it names."""
    if build is None:
        return Constant(optimizer, epochs=epochs, steps=steps)
    known = {"epochs": epochs, "steps": steps, "higher": higher}
    named = inspect.signature(build).parameters
    built = build(optimizer, **{name: value for name, value in known.items() if name in named})
    return Torch(built) if isinstance(built, LRScheduler) else built


def _rise(t: float, warmup: float, steps: int) -> float:
    """Linear over `warmup` epochs; the first step is not lost on a rate of zero."""
    return min((t + 1 / steps) / warmup, 1.0) if warmup > 0 else 1.0


def _positive(name: str, value: Any) -> Any:
    if not isinstance(value, int | float) or value <= 0:
        raise ConfigError(f"scheduler.{name} (={value!r}) must be positive.")
    return value


def _at_least_zero(name: str, value: Any) -> Any:
    if not isinstance(value, int | float) or value < 0:
        raise ConfigError(f"scheduler.{name} (={value!r}) must not be negative.")
    return value
