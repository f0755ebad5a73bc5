"""The group of each item by its name: its own, its folder's, what a pattern finds in it, or what a CSV file says.

Items of one group never lie on two sides of a fold that keeps groups apart (partition=group_kfold).
"""

from __future__ import annotations

import csv
import io
import re
import unicodedata
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from onn_runner.checks import path_of, refuse
from onn_runner.errors import ConfigError

KEY = "data.groups"
NAMED = 10
"""At most this many names in a message."""
NAME_COLUMNS = ("file", "item", "name")


def group_names(names: Sequence[str], how: object, *, key: str = KEY) -> list[str]:
    """One group for each name.

    `how`: `file`, each name is its own group; `folder`, the folder that holds it ("." at the top); the path of a CSV
    file with columns `file` and `group`; or a regular expression with one group, such as `(\\d+)_`, searched in the
    name.

    Raises: ConfigError for names without a group, which it lists, and for what is none of these.
    """
    if not isinstance(how, str) or not how:
        raise refuse(key, how, "file, folder, a pattern with one group such as (\\d+)_, or a CSV file")
    if how == "file":
        return list(names)
    if how == "folder":
        return [PurePosixPath(name).parent.as_posix() for name in names]
    path = path_of(how)
    if path.suffix.lower() == ".csv" or path.is_file():
        return _listed(names, path, key)
    return _matched(names, how, key)


def listing(names: Sequence[str]) -> str:
    """The first names and how many more there are."""
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more


def _matched(names: Sequence[str], how: str, key: str) -> list[str]:
    try:
        pattern = re.compile(how)
    except re.error as error:
        raise ConfigError(
            f"{key} (={how}) is neither file, folder nor a CSV file, and no pattern either: {error}"
        ) from error
    if pattern.groups != 1:
        raise ConfigError(
            f"{key} (={how}) has {pattern.groups} groups in parentheses: one must say which part of the name counts, "
            "such as (\\d+)_; or give file, folder or a CSV file"
        )
    found = [pattern.search(name) for name in names]
    without = [name for name, match in zip(names, found, strict=True) if match is None or match[1] is None]
    if without:
        raise ConfigError(f"{key} (={how}) finds nothing in {listing(without)}: write a pattern that each name fits")
    return [match[1] for match in found if match is not None]


def _listed(names: Sequence[str], path: Path, key: str) -> list[str]:
    groups = _table(path, key)
    found = [groups.get(name, groups.get(_stem(name))) for name in names]
    without = [name for name, group in zip(names, found, strict=True) if group is None]
    if without:
        raise ConfigError(f"{key} (={path}) has no row for {listing(without)}: add one each, with its group")
    return [group for group in found if group is not None]


def _table(path: Path, key: str) -> dict[str, str]:
    """Name -> group, as the file has them."""
    rows = _rows(path, key)
    header = [cell.strip().lower() for cell in rows[0]] if rows else []
    named = next((column for column in NAME_COLUMNS if column in header), None)
    if named is None or "group" not in header:
        held = ", ".join(header) or "nothing"
        raise ConfigError(f"{key} (={path}) must begin with the columns file and group; it begins with {held}")
    name_at, group_at = header.index(named), header.index("group")
    groups: dict[str, str] = {}
    for number, row in enumerate(rows[1:], start=2):
        if not any(cell.strip() for cell in row):
            continue
        if len(row) <= max(name_at, group_at) or not row[name_at].strip() or not row[group_at].strip():
            raise ConfigError(f"{key} (={path}): row {number} has no {named} or no group")
        name = unicodedata.normalize("NFC", row[name_at].strip()).replace("\\", "/").removeprefix("./")
        group = row[group_at].strip()
        if groups.setdefault(name, group) != group:
            raise ConfigError(f"{key} (={path}): {name} has two groups, {groups[name]} and {group}")
    return groups


def _rows(path: Path, key: str) -> list[list[str]]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text in UTF-8"
        raise ConfigError(f"{key} (={path}) cannot be read: {why}") from error
    first = text.partition("\n")[0]
    # Spreadsheets write semicolons where the comma is the decimal sign.
    delimiter = next((sign for sign in ";\t" if sign in first and "," not in first), ",")
    try:
        return [row for row in csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True) if row]
    except csv.Error as error:
        raise ConfigError(f"{key} (={path}) is not a CSV file: {error}") from error


def _stem(name: str) -> str:
    suffix = PurePosixPath(name).suffix
    return name[: -len(suffix)] if suffix else name
