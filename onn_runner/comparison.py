"""A run's model against its twin and the untrained baselines: the same items, paired, from the folds' tables."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from onn_runner.data.base import Source
from onn_runner.errors import RunError
from onn_runner.partition.base import Fold
from onn_runner.partition.split import whole_groups
from onn_runner.report.paired import Differences, compare, differences, widening

Scored = Mapping[str, Mapping[str, Differences]]
"""Twin or baseline -> "test/psnr" -> the differences to it on one fold."""
Items = dict[str, list[tuple[str, float]]]
"""Score key -> (item, score) in the order of the part."""


def fold_differences(ours: Path, others: Mapping[str, Path], fold: Fold, source: Source) -> Scored:
    """`others`: name of a twin or baseline -> its table. Raises RunError for tables that hold other items."""
    mine = read_items(ours)
    return {name: _against(name, mine, read_items(path, of=name), fold, source, path) for name, path in others.items()}


def _against(
    name: str, mine: Items, theirs: Items, fold: Fold, source: Source, path: Path
) -> Mapping[str, Differences]:
    found = {}
    for key in (key for key in mine if key in theirs):
        names = [item for item, _ in mine[key]]
        if names != [item for item, _ in theirs[key]]:
            raise RunError(
                f"{path} does not hold the items of the model's test_items.csv for {key}: remove both with the "
                "status.json beside them, then resume: the fold is scored again"
            )
        ours, others = ([value for _, value in items[key]] for items in (mine, theirs))
        found[key] = differences(fold.index, ours, others, _groups(key, names, fold, source))
    return found


def with_parts(
    scored: Scored, ours: Mapping[str, float], others: Mapping[str, Mapping[str, float]], fold: Fold
) -> Scored:
    """`scored` with the scores that a whole part has and no item (F1, AUROC): one difference for the fold.

    `others`: name of a twin or baseline -> its scores of the fold, as `ours`.
    """
    found = {}
    for name, items in scored.items():
        rest = {key: ours[key] - value for key, value in others[name].items() if key in ours and key not in items}
        found[name] = dict(items) | {
            key: Differences(fold.index, {}, 0, whole=difference)
            for key, difference in rest.items()
            if math.isfinite(difference) and not key.endswith("/loss")
        }
    return found


def _groups(key: str, names: Sequence[str], fold: Fold, source: Source) -> Sequence[str]:
    """The group of each item: its photograph, or its scene where there are several photographs of one."""
    split = key.partition("/")[0]
    if split == "photo":
        return originals(whole_groups(fold, source), source, names)
    part = fold.train if split == "fitted" else fold.test
    # trainer.limit_batches scores the first of them only.
    return [source.groups[index] for index in part[: len(names)]]


def originals(groups: Sequence[str], source: Source, names: Sequence[str]) -> Sequence[str]:
    """The group of each whole original of `groups` by its name in `names`; its own name where no group tells."""
    of: dict[str, str] = {}
    for group in groups:
        of |= dict.fromkeys(getattr(source.whole([group]), "names", [group]), group)
    return [of.get(name, name) for name in names]


def grouping(source: Source) -> dict[str, Any]:
    """`groups`: the group of each item, None where each is its own; `originals`: that of each whole original whose name
    is another. For split.json: who compares runs later has no data.
    """
    groups = list(map(str, source.groups))
    names = list(dict.fromkeys(source.groups))
    of: dict[str, str] = {}
    for group in names if source.whole(names) is not None else ():
        of |= dict.fromkeys(map(str, getattr(source.whole([group]), "names", ())), str(group))
    others = {name: group for name, group in of.items() if name != group}
    return {"groups": None if len(names) == len(groups) else groups, "originals": others}


def read_items(path: Path, *, of: str | None = None) -> Items:
    """The scores in test_items.csv, or those of the baseline `of` in baseline_items.csv; an empty value is NaN."""
    found: Items = {}
    try:
        with path.open(newline="", encoding="utf-8") as handle:
            for row in csv.DictReader(handle):
                if row.get("baseline", of) == of:
                    value = float(row["value"] or "nan")
                    found.setdefault(f"{row['split']}/{row['metric']}", []).append((row["item"], value))
    except FileNotFoundError as error:
        raise gone(path) from error
    except (OSError, ValueError, KeyError, csv.Error) as error:
        raise RunError(
            f"{path} cannot be read ({error}): remove it together with status.json beside it, then resume: the fold is "
            "scored again"
        ) from error
    return found


def gone(path: Path) -> RunError:
    """The error for a table of a finished fold that was removed."""
    return RunError(f"{path} is gone: remove status.json beside it, then resume: the fold is scored again")


def compared(
    folds: Sequence[Fold],
    scored: Mapping[int, Scored],
    *,
    higher: Mapping[str, bool | None],
    source: Source,
) -> dict[str, Any]:
    """`unit`: what counts as one number; `to`: twin or baseline -> score key -> as `paired.compare`; see docs."""
    names = dict.fromkeys(name for fold in scored.values() for name in fold)
    to: dict[str, dict[str, Any]] = {}
    for name in names:
        keys = dict.fromkeys(key for fold in scored.values() for key in fold.get(name, {}))
        for key in keys:
            parts = [scored[index][name][key] for index in sorted(scored) if key in scored[index].get(name, {})]
            ratio = widening(folds, key)
            better = higher.get(key.partition("/")[2])
            to.setdefault(name, {})[key] = compare(parts, ratio=ratio, higher=better)
    return {"unit": unit(source), "to": to}


def unit(source: Source) -> str:
    """What a group of the source is called: "photographs" where each is one; "items" where each item is its own."""
    groups = list(dict.fromkeys(source.groups))
    whole = source.whole(groups)
    if whole is not None and len(whole) == len(groups):  # type: ignore[arg-type]
        return "photographs"
    return "items" if len(groups) == len(source.groups) else "groups"
