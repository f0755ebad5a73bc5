"""How schedules set the learning rates of an optimizer's groups as training goes on, and what of it is kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from torch.optim import Optimizer


class Schedule(Protocol):
    """Changes the learning rates of one optimizer as training goes on."""

    def after_step(self) -> None: ...

    def after_epoch(self, monitored: float, *, rose: bool) -> None:
        """`rose`: whether the epoch's training loss is above that of the epoch before."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Called after the optimizer's state was loaded."""


def rise(t: float, warmup: float) -> float:
    """The warm-up's factor after t epochs; from a tenth, so that no step is lost on a rate of zero."""
    return 0.1 + 0.9 * t / warmup if t < warmup else 1.0


class ClosedForm:
    """Base rates times a factor by time in epochs, and the warm-up's; the state is a count of steps."""

    def __init__(
        self, factor: Callable[[float], float], optimizer: Optimizer, *, steps: int, by_step: bool, warmup: float
    ) -> None:
        self.factor, self.optimizer, self.steps = factor, optimizer, steps
        self.by_step, self.warmup = by_step, warmup
        self.bases = [float(group["lr"]) for group in optimizer.param_groups]
        self.count = 0
        self.apply()

    def apply(self) -> None:
        t = self.count / self.steps
        factor = self.factor(t if self.by_step else float(self.count // self.steps)) * rise(t, self.warmup)
        for group, base in zip(self.optimizer.param_groups, self.bases, strict=True):
            group["lr"] = base * factor

    def after_step(self) -> None:
        self.count += 1
        self.apply()

    def after_epoch(self, monitored: float, *, rose: bool) -> None:
        pass

    def state_dict(self) -> dict[str, Any]:
        return {"steps": self.count}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.count = state["steps"]
        self.apply()


class Torch:
    """A scheduler of torch (or one like it), stepped once an epoch."""

    def __init__(self, scheduler: Any, *, monitored: bool = False) -> None:
        self.scheduler, self.monitored = scheduler, monitored

    def after_step(self) -> None:
        pass

    def after_epoch(self, monitored: float, *, rose: bool) -> None:
        if self.monitored:
            self.scheduler.step(monitored)
        else:
            self.scheduler.step()

    def state_dict(self) -> dict[str, Any]:
        return dict(self.scheduler.state_dict())

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.scheduler.load_state_dict(state)


class Adapting:
    """Base rates times one factor, which each epoch raises or lowers; `bounds` are those of the factor."""

    def __init__(self, optimizer: Optimizer, *, up: float, down: float, bounds: tuple[float, float]) -> None:
        self.optimizer, self.up, self.down, self.bounds = optimizer, up, down, bounds
        self.bases = [float(group["lr"]) for group in optimizer.param_groups]
        self.factor = 1.0

    def apply(self) -> None:
        for group, base in zip(self.optimizer.param_groups, self.bases, strict=True):
            group["lr"] = base * self.factor

    def after_step(self) -> None:
        pass

    def after_epoch(self, monitored: float, *, rose: bool) -> None:
        low, high = self.bounds
        self.factor = min(max(self.factor * (self.down if rose else self.up), low), high)
        self.apply()

    def state_dict(self) -> dict[str, Any]:
        return {"factor": self.factor}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        # The rates themselves came with the optimizer's state.
        self.factor = state["factor"]


class Warming:
    """A linear rise to the base rates, step by step; what the other schedule does begins with the first epoch after."""

    def __init__(self, after: Schedule, optimizer: Optimizer, *, warmup: float, steps: int) -> None:
        self.after, self.optimizer, self.warmup, self.steps = after, optimizer, warmup, steps
        self.bases = [float(group["lr"]) for group in optimizer.param_groups]
        self.count = 0
        self.apply()

    @property
    def warm(self) -> bool:
        return self.count >= self.warmup * self.steps

    def apply(self) -> None:
        for group, base in zip(self.optimizer.param_groups, self.bases, strict=True):
            group["lr"] = base * rise(self.count / self.steps, self.warmup)

    def after_step(self) -> None:
        if not self.warm:
            self.count += 1
            self.apply()
        self.after.after_step()

    def after_epoch(self, monitored: float, *, rose: bool) -> None:
        if self.warm:
            self.after.after_epoch(monitored, rose=rose)

    def state_dict(self) -> dict[str, Any]:
        return {"steps": self.count, "after": self.after.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.count = state["steps"]
        self.after.load_state_dict(state["after"])
