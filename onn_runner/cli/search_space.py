"""What a search may vary, from overrides in Hydra's grammar: choices, whole numbers and real numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hydra.core.override_parser.types import ChoiceSweep, IntervalSweep, Override, RangeSweep

from onn_runner.errors import ConfigError

DIGITS = 6
"""Significant digits of a real number in an override: folders are named by it."""


@dataclass(frozen=True)
class Choice:
    """Values without an order, as they stand in overrides."""

    options: tuple[str, ...]

    @property
    def count(self) -> int | None:
        return len(self.options)

    def grid(self) -> list[Any]:
        return list(self.options)


@dataclass(frozen=True)
class Whole:
    """Whole numbers, both ends included."""

    low: int
    high: int
    step: int = 1
    log: bool = False

    @property
    def count(self) -> int | None:
        return (self.high - self.low) // self.step + 1

    def grid(self) -> list[Any]:
        return list(range(self.low, self.high + 1, self.step))


@dataclass(frozen=True)
class Real:
    """Real numbers; with a step, those of a grid from `low` on."""

    low: float
    high: float
    step: float | None = None
    log: bool = False

    @property
    def count(self) -> int | None:
        return None if self.step is None else round((self.high - self.low) / self.step) + 1

    def grid(self) -> list[Any]:
        assert self.step is not None
        return [self.low + number * self.step for number in range(self.count or 0)]


Dimension = Choice | Whole | Real


@dataclass(frozen=True)
class Space:
    """Key, as in an override -> what it may be; what all trials share."""

    dimensions: Mapping[str, Dimension]
    constants: tuple[str, ...]

    @property
    def count(self) -> int | None:
        """How many points there are; None without limit."""
        counts = [dimension.count for dimension in self.dimensions.values()]
        return None if None in counts else math.prod(count for count in counts if count is not None)

    def overrides(self, point: Mapping[str, Any]) -> tuple[str, ...]:
        """What composes the job of a point: the constants, then one override for each dimension."""
        return (*self.constants, *(f"{key}={text(point[key])}" for key in self.dimensions))

    def as_text(self) -> str:
        """By which two searches are known to look in the same space."""
        return "; ".join(f"{key} {dimension}" for key, dimension in self.dimensions.items())


def text(value: Any) -> str:
    return repr(float(f"{value:.{DIGITS}g}")) if isinstance(value, float) else str(value)


def space_of(overrides: Iterable[Override]) -> Space:
    """Raises ConfigError for an empty range, a logarithm of what is not positive, and where nothing varies."""
    dimensions, constants = {}, []
    for override in overrides:
        if override.is_sweep_override():
            dimensions[override.get_key_element()] = dimension_of(override)
        else:
            constants.append(override.input_line or "")
    if not dimensions:
        raise ConfigError(
            "nothing to search over: give ranges, such as optimizer.lr='tag(log,interval(1e-4,1e-1))' or "
            "model.q=1,3,5, or a preset, such as experiment=search_q"
        )
    return Space(dimensions, tuple(constants))


def dimension_of(override: Override) -> Dimension:
    """What one override asks for."""
    value, line = override.value(), override.input_line
    if isinstance(value, IntervalSweep):
        return _checked(_interval(value), line)
    if isinstance(value, RangeSweep):
        return _checked(_range(list(value.range()), value), line)
    texts = list(dict.fromkeys(override.sweep_string_iterator()))
    if isinstance(value, ChoiceSweep) and value.shuffle:
        # In another order they would be another space when the search goes on.
        texts.sort()
    if not texts:
        raise ConfigError(f"{line}: no option is of that pattern, so that there is nothing to search over")
    return Choice(tuple(texts))


def _interval(value: IntervalSweep) -> Whole | Real:
    low, high, log = value.start, value.end, "log" in value.tags
    assert low is not None
    assert high is not None
    if isinstance(low, int) and isinstance(high, int):
        return Whole(low, high, log=log)
    return Real(float(low), float(high), log=log)


def _range(values: Sequence[Any], value: RangeSweep) -> Whole | Real:
    log = "log" in value.tags
    if not values:
        return Whole(1, 0)
    step = abs(values[1] - values[0]) if len(values) > 1 else 1
    if all(isinstance(one, int) for one in values):
        # A logarithmic scale has no steps.
        return Whole(min(values), max(values), 1 if log else step, log)
    return Real(float(min(values)), float(max(values)), None if log else float(step), log)


def _checked(found: Whole | Real, line: str | None) -> Whole | Real:
    if not (math.isfinite(found.low) and math.isfinite(found.high)) or found.low > found.high:
        raise ConfigError(f"{line}: the range is empty: give its lower end first, and finite numbers")
    if found.log and found.low <= 0:
        raise ConfigError(f"{line}: a logarithmic range begins above 0, not at {found.low}")
    return found
