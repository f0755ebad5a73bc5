"""One fold: the test part that the data set itself comes with is tested, the rest trains."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from onn_runner.errors import ConfigError
from onn_runner.partition.base import Fold, Partitionable
from onn_runner.partition.splitter import Validating


@dataclass(frozen=True, kw_only=True)
class Given(Validating):
    """Scores are then comparable with published ones. Validation has the classes in proportion.

    Raises: ConfigError where the data has no test part of its own, or nothing beside it.
    """

    unit: ClassVar[str] = "items"
    stratified: ClassVar[bool] = True

    def every(self, items: Partitionable) -> list[Fold]:
        test = getattr(items, "test_items", None)
        if not test:
            raise ConfigError(
                "partition=given needs data with a test part of its own, and this has none: set data.part=all where it "
                "was left out, or choose partition=stratified_kfold or hold_out"
            )
        tested = set(test)
        pool = [item for item in range(len(items)) if item not in tested]
        if not pool:
            raise ConfigError("partition=given: all items are the test part's, which leaves none to train on")
        return [self.fold(0, pool, sorted(tested), items)]
