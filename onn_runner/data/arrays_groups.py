"""The group of each item: its own, a label kept beside the arrays, or a CSV file's word for it."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

from onn_runner.checks import refuse
from onn_runner.data.arrays_files import ArrayFile
from onn_runner.data.arrays_values import listed
from onn_runner.errors import ConfigError

COLUMNS = ("item", "group")


def of_items(groups: object, names: Sequence[str], file: ArrayFile) -> list[str]:
    """`groups`: null, the name of an array in `file` with one label per item, or a .csv file (columns item, group).

    Raises ConfigError where an item has no group, or where the labels are not one per item.
    """
    if groups is None:
        return list(names)
    if not isinstance(groups, str):
        raise refuse("data.groups", groups, "null, the name of an array of labels, or a .csv file")
    if groups.lower().endswith(".csv"):
        return _from_csv(Path(groups).expanduser(), names)
    labels = file.labels(groups, "data.groups")
    if len(labels) != len(names):
        raise ConfigError(f"data.groups (={groups}) has {len(labels)} labels for {len(names)} items: give one per item")
    return labels


def _from_csv(path: Path, names: Sequence[str]) -> list[str]:
    """Items by number from 0 on, or by name (`item[3]`)."""
    numbers = {name: number for number, name in enumerate(names)}
    numbers |= {str(number): number for number in range(len(names))}
    found: dict[int, str] = {}
    for line, (item, group) in _rows(path):
        number = numbers.get(item)
        where = f"data.groups (={path}), line {line}"
        if number is None:
            raise ConfigError(f"{where}: there is no item '{item}': items are 0 to {len(names) - 1}")
        if not group:
            raise ConfigError(f"{where}: item {item} has no group: write one")
        if number in found:
            raise ConfigError(f"{where}: item {item} is there twice: keep one line per item")
        found[number] = group
    missing = [number for number in range(len(names)) if number not in found]
    if missing:
        raise ConfigError(f"data.groups (={path}) has no line for the items {listed(missing)}: write one for each")
    return [found[number] for number in range(len(names))]


def _rows(path: Path) -> list[tuple[int, tuple[str, str]]]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file, skipinitialspace=True)
            columns = [name.strip() for name in reader.fieldnames or () if name is not None]
            if not set(COLUMNS) <= set(columns):
                raise ConfigError(
                    f"data.groups (={path}) must begin with a line 'item,group', and begins with '{','.join(columns)}'"
                )
            reader.fieldnames = columns
            return [(reader.line_num, _pair(row)) for row in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(f"data.groups (={path}) cannot be read: {error}") from error


def _pair(row: dict[str, str | None]) -> tuple[str, str]:
    item, group = ((row[name] or "").strip() for name in COLUMNS)
    return item, group
