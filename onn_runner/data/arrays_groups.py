"""The group of each item: its own, a label kept beside the arrays, or a CSV file's word for it."""

from __future__ import annotations

from collections.abc import Sequence

from onn_runner.checks import refuse
from onn_runner.data.arrays_base import ArrayFile
from onn_runner.data.groups import group_names
from onn_runner.errors import ConfigError


def of_items(groups: object, names: Sequence[str], file: ArrayFile) -> list[str]:
    """`groups`: null, the name of an array in `file` with one label per item, or a .csv file (columns item, group).

    A CSV file calls the items 0, 1, ...

    Raises ConfigError where an item has no group, or where the labels are not one per item.
    """
    if groups is None:
        return list(names)
    if not isinstance(groups, str) or not groups:
        raise refuse("data.groups", groups, "null, the name of an array of labels, or a .csv file")
    if groups.lower().endswith(".csv"):
        return group_names([str(number) for number in range(len(names))], groups)
    labels = file.labels(groups, "data.groups")
    if len(labels) != len(names):
        raise ConfigError(f"data.groups (={groups}) has {len(labels)} labels for {len(names)} items: give one per item")
    return labels
