"""A share of the groups is tested, once (or anew in each repeat): the quick look before a cross-validation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from onn_runner.checks import whole_number
from onn_runner.errors import ConfigError
from onn_runner.partition.base import Partitionable
from onn_runner.partition.splitter import Splitter, counted, random, share


@dataclass(frozen=True, kw_only=True)
class HoldOut(Splitter):
    """`test`: a fraction in (0, 1) or a count of the groups."""

    test: float = 0.2
    repeats: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        share("partition.test", self.test)
        whole_number("partition.repeats", self.repeats, least=1)

    def parts(self, items: Partitionable) -> Iterator[Sequence[int]]:
        from sklearn.model_selection import GroupShuffleSplit

        groups = len(set(items.groups))
        count = counted(self.test, groups)
        if count >= groups:
            remedy = f"choose at most {groups - 1}" if groups > 1 else "the data needs a second group"
            raise ConfigError(
                f"partition.test (={self.test}) is {count} of the {groups} group{'s' * (groups != 1)}, "
                f"which leaves nothing to train on: {remedy}"
            )
        for repeat in range(self.repeats):
            splits = GroupShuffleSplit(1, test_size=count, random_state=random(self.seed, "repeat", repeat))
            for _, test in splits.split(np.zeros(len(items)), groups=np.asarray(items.groups)):
                yield test.tolist()
