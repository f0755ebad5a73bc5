"""One fold per group: it is tested, all other groups train (leave one photograph, one patient out)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from onn_runner.errors import ConfigError
from onn_runner.partition.base import Partitionable
from onn_runner.partition.splitter import Splitter


@dataclass(frozen=True, kw_only=True)
class LeaveOneGroupOut(Splitter):
    """Folds in the order of the groups' names; `seed` only chooses who validates."""

    def parts(self, items: Partitionable) -> Iterator[Sequence[int]]:
        from sklearn.model_selection import LeaveOneGroupOut as Splits

        groups = len(set(items.groups))
        if groups < 2:
            raise ConfigError(f"partition=leave_one_group_out needs at least 2 groups, and the data has {groups}")
        for _, test in Splits().split(np.zeros(len(items)), groups=np.asarray(items.groups)):
            yield test.tolist()
