"""Disjoint parts, each trained on as a whole: how well a network can fit, with nothing validated and nothing tested."""

from __future__ import annotations

from dataclasses import dataclass

from onn_runner.checks import whole_number
from onn_runner.errors import ConfigError
from onn_runner.partition.base import Fold, Partitionable
from onn_runner.partition.kfold import GroupKFold
from onn_runner.partition.selecting import Selecting


@dataclass(frozen=True, kw_only=True)
class Fit(Selecting):
    """`folds` parts of whole groups; one fold trains on everything.

    Scores are of the items that were trained on: `trainer.score_training=true`, `trainer.monitor=train/...`.

    Raises: ConfigError where there are fewer groups than folds.
    """

    folds: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        whole_number("partition.folds", self.folds, least=1)

    def every(self, items: Partitionable) -> list[Fold]:
        if not len(items):
            raise ConfigError("a partition needs at least 1 item, and the data has none")
        every = range(len(items))
        parts = [every] if self.folds == 1 else GroupKFold(seed=self.seed, folds=self.folds).parts(items)
        return [Fold(index, tuple(sorted(part)), (), ()) for index, part in enumerate(parts)]
