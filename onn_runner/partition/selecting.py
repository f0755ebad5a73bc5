"""Of all folds of a partition, those that a run is to train: all, or the ones that partition.only names."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from onn_runner.checks import refuse, whole_number
from onn_runner.errors import ConfigError
from onn_runner.partition.base import Fold, Partitionable


@dataclass(frozen=True, kw_only=True)
class Selecting(ABC):
    """What every partition here shares.

    `seed` is the partition's own, so that models and run seeds are compared on the same folds. `only`: a fold's number
    or several; None: all folds. A fold is the same, with the same number, whether the others are trained or not.

    Raises: ConfigError for what is no fold's number, and for one that is named twice.
    """

    seed: int = 0
    only: int | Sequence[int] | None = None

    def __post_init__(self) -> None:
        whole_number("partition.seed", self.seed, least=0)
        object.__setattr__(self, "only", _numbers(self.only))

    @abstractmethod
    def every(self, items: Partitionable) -> list[Fold]:
        """All folds, numbered from 0."""

    def split(self, items: Partitionable) -> list[Fold]:
        """Those that are to be trained, in their order."""
        folds = self.every(items)
        if self.only is None:
            return folds
        wanted = {self.only} if isinstance(self.only, int) else set(self.only)
        if unknown := sorted(wanted - {fold.index for fold in folds}):
            shown = _shown(self.only)
            there = "fold 0 only" if len(folds) == 1 else f"folds 0 to {len(folds) - 1}"
            raise ConfigError(f"partition.only (={shown}): there is no fold {unknown[0]}; this partition has {there}")
        return [fold for fold in folds if fold.index in wanted]


def _numbers(only: object) -> int | tuple[int, ...] | None:
    """`only` checked; a list as a tuple."""
    if only is None:
        return None
    given = tuple(only) if isinstance(only, Sequence) and not isinstance(only, str) else (only,)
    numbers = tuple(one for one in given if isinstance(one, int) and not isinstance(one, bool) and one >= 0)
    several = given != (only,)
    if not given or len(numbers) < len(given):
        shown = list(given) if several else only
        raise refuse("partition.only", shown, "a fold's number, from 0, or a list of them such as [0,2]; null: all")
    if len(set(numbers)) < len(numbers):
        twice = next(number for number in numbers if numbers.count(number) > 1)
        raise ConfigError(f"partition.only (={_shown(numbers)}) names fold {twice} twice: leave one out")
    return numbers if several else numbers[0]


def _shown(only: int | Sequence[int]) -> str:
    return str(only) if isinstance(only, int) else f"[{','.join(map(str, only))}]"
