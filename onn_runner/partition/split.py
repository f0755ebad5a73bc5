"""Folds as plain containers, to be written with a run and read on resume; and what a reader should know of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from onn_runner.checks import amount
from onn_runner.errors import ConfigError
from onn_runner.partition.base import Fold, Partitionable

SPLIT_SCHEMA = 1
MOST_FOLDS = 1_000_000
_PARTS = ("train", "validation", "test")


def as_plain(
    folds: Sequence[Fold],
    *,
    fingerprint: str | None = None,
    names: Sequence[str] | None = None,
    of: int | None = None,
    grouping: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """For JSON; `fingerprint` is the data's, so that a split is never applied to other items.

    `names`: those of all items, for the reader: the folds' numbers count among them. `of`: how many folds the partition
    has, these and those that are trained elsewhere. `grouping`: which items belong together, see comparison.grouping.
    """
    plain = [{"index": fold.index, **{part: list(getattr(fold, part)) for part in _PARTS}} for fold in folds]
    named = {} if names is None else {"names": list(names)}
    whole = {} if of is None else {"of": of}
    return {"schema": SPLIT_SCHEMA, "fingerprint": fingerprint, **whole, "folds": plain, **named, **(grouping or {})}


def from_plain(plain: Mapping[str, Any], *, fingerprint: str | None = None, items: int | None = None) -> list[Fold]:
    """`items`: how many there are.

    Raises: ConfigError where the file is not such a split, was made for other data, or names items that there are not.
    """
    made_for = plain.get("fingerprint") if isinstance(plain, Mapping) else None
    if fingerprint is not None and made_for is not None and made_for != fingerprint:
        raise ConfigError(
            "the stored split was made for other data (files, patches, noise or data.seed differ): "
            "restore the data as it was, or start a new run"
        )
    try:
        if plain["schema"] != SPLIT_SCHEMA:
            raise ConfigError(f"the stored split has schema {plain['schema']}, this version reads {SPLIT_SCHEMA}")
        folds = [Fold(fold["index"], *(tuple(fold[part]) for part in _PARTS)) for fold in plain["folds"]]
    except (KeyError, TypeError) as error:
        raise ConfigError(f"the stored split cannot be read ({error!r}): start a new run") from error
    _refuse_odd(folds, items)
    return folds


def _refuse_odd(folds: Sequence[Fold], items: int | None) -> None:
    """Raises: ConfigError where numbers are none, are not the items', or are in a fold twice."""
    numbers = [fold.index for fold in folds]
    wrong = not folds or any(type(number) is not int or not 0 <= number < MOST_FOLDS for number in numbers)
    if wrong or len(set(numbers)) < len(numbers):
        raise ConfigError(
            f"the stored split has folds {str(numbers)[:80]}, which are no numbers of folds: start a new run"
        )
    for fold in folds:
        held = [*fold.train, *fold.validation, *fold.test]
        odd = next((n for n in held if type(n) is not int or n < 0 or (items is not None and n >= items)), None)
        if odd is not None:
            of = "" if items is None else f" of the {items:,}"
            raise ConfigError(
                f"fold {fold.index} of the stored split names {str(odd)[:40]}, which is none{of} items: start a new run"
            )
        if len(set(held)) < len(held) or not fold.train:
            raise ConfigError(
                f"fold {fold.index} of the stored split has an item twice, or none to train on: start a new run"
            )


def part_of(split: Mapping[str, Any], folds: Sequence[Fold]) -> dict[str, Any] | None:
    """{folds: [0, 2], of: 3} where a stored split's folds are not the whole partition; None where they are."""
    of = split.get("of")
    return {"folds": [fold.index for fold in folds], "of": of} if isinstance(of, int) and of > len(folds) else None


def describe(folds: Sequence[Fold], items: Partitionable) -> list[str]:
    """One line per fold: items and groups of each part."""
    lines = []
    for fold in folds:
        parts = []
        for part in _PARTS:
            indices = getattr(fold, part)
            groups = len({items.groups[index] for index in indices})
            parts.append(
                f"{part} {amount(len(indices), 'item')} of {amount(groups, 'group')}" if indices else f"no {part}"
            )
        shared = len(shared_groups(fold, items))
        if shared:
            parts.append(f"{shared} of the test groups are also trained on (partition=group_kfold keeps them apart)")
        lines.append(f"fold {fold.index}: {', '.join(parts)}")
    return lines


def whole_groups(fold: Fold, items: Partitionable) -> list[str]:
    """Groups that lie wholly in the test part, in the order of its items: only these may be scored as wholes."""
    shared = shared_groups(fold, items)
    return [group for group in dict.fromkeys(items.groups[index] for index in fold.test) if group not in shared]


def shared_groups(fold: Fold, items: Partitionable) -> set[str]:
    """Groups with items on the test side and on the other: their scores flatter."""
    test = {items.groups[index] for index in fold.test}
    return test & {items.groups[index] for index in (*fold.train, *fold.validation)}
