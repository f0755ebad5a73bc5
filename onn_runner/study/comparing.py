"""Every method against a baseline method: paired by item and by fold, with three tests, each adjusted by Holm."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from onn_runner.errors import ConfigError, unknown
from onn_runner.report import paired
from onn_runner.report.paired import Differences
from onn_runner.study.divided import folds_digest
from onn_runner.study.records import Comparison, Method, Study, Test
from onn_runner.study.scores import item_scores
from onn_runner.study.statistics import folds_of, holm, summary

BY_ITEM, CORRECTED_T, BY_FOLD = TESTS = get_args(Test)
LEVEL = 0.05
ITEMS = "items"
EMPTY = Comparison(label="", baseline="", key="", test=BY_ITEM, unit="")


@dataclass(frozen=True)
class Averaged:
    """A method's item scores, averaged over its seeds."""

    names: tuple[str, ...]
    values: NDArray[np.float64]


def baseline_of(study: Study, asked: str | None) -> Method:
    """The method called `asked`, or whose label alone begins with that word, or holds it.

    None: the convolution, else a twin, else any; of several the first. Raises ConfigError with the labels.
    """
    labels = [method.label for method in study.methods]
    if asked is None:
        return min(study.methods, key=_suitability)
    text = asked.lower()
    kinds = (
        [label for label in labels if label == asked],
        [label for label in labels if re.match(rf"{re.escape(text)}(?!\w)", label.lower())],
        [label for label in labels if text in label.lower()],
    )
    matching = next((found for found in kinds if len(found) == 1), kinds[-1])
    if len(matching) > 1:
        raise ConfigError(f"--baseline {asked} fits several methods: {'; '.join(matching)}; give one label as it is")
    if not matching:
        raise unknown("baseline", asked, labels)
    return study.method(matching[0])


def _suitability(method: Method) -> int:
    if method.kind == "untrained":
        return 3
    model = method.runs[0].config.get("model")
    convolution = isinstance(model, Mapping) and str(model.get("_target_")).endswith(".Conv")
    if method.kind == "model":
        return 0 if convolution else 2
    return 1


def comparisons(study: Study, baseline: Method, keys: Sequence[str] | None = None) -> tuple[Comparison, ...]:
    """Of every trained method other than the baseline, in every one of `keys`; adjusted for their number."""
    keys = tuple(study.metrics) if keys is None else tuple(keys)
    others = [method for method in study.methods if method.kind != "untrained" and method is not baseline]
    known: dict[str, Any] = {}
    found = [one for method in others for one in _against(study, method, baseline, keys, known)]
    return tuple(_adjusted(found))


def _adjusted(found: Sequence[Comparison]) -> list[Comparison]:
    """By score and test: a family is what is compared with the baseline."""
    families: dict[tuple[str, str], list[int]] = {}
    for position, one in enumerate(found):
        families.setdefault((one.key, one.test), []).append(position)
    adjusted = list(found)
    for positions in families.values():
        for position, p in zip(positions, holm([found[position].p for position in positions]), strict=True):
            adjusted[position] = replace(found[position], p_holm=p)
    return adjusted


def _against(
    study: Study, method: Method, baseline: Method, keys: Sequence[str], known: dict[str, Any]
) -> list[Comparison]:
    reason = not_paired(method, baseline)
    if not reason:
        try:
            ours = averaged(method, keys)
            if "items" not in known:
                known["items"] = averaged(baseline, keys)
            return [
                one for key in keys
                for one in _of_key(method, baseline, key, ours, known["items"], study.metrics.get(key))
            ]  # fmt: skip
        except ValueError as error:
            reason = str(error)
    return [
        Comparison(label=method.label, baseline=baseline.label, key=key, test=test, unit="", not_paired=reason)
        for key in keys
        for test in TESTS
    ]


def not_paired(method: Method, baseline: Method) -> str:
    """Why two methods cannot be compared pair by pair; empty where they can."""
    ours, theirs = method.runs[0], baseline.runs[0]
    if ours.fingerprint is None or theirs.fingerprint is None:
        return "data without a fingerprint"
    if ours.fingerprint != theirs.fingerprint:
        return "other data"
    return "" if folds_digest(ours) == folds_digest(theirs) else "other folds"


def averaged(method: Method, keys: Sequence[str]) -> dict[tuple[int, str], Averaged]:
    """(fold, score key) -> item scores; a score that one seed lacks is NaN.

    Raises ValueError where a table cannot be read, or where the seeds have other items.
    """
    sums: dict[tuple[int, str], Averaged] = {}
    for run in method.runs:
        for fold, scores in item_scores(run, method).items():
            for key in (key for key in keys if key in scores):
                names = tuple(name for name, _ in scores[key])
                values = np.array([value for _, value in scores[key]]) / len(method.runs)
                before = sums.get((fold, key))
                if before is None:
                    sums[fold, key] = Averaged(names, values)
                elif before.names != names:
                    raise ValueError(f"{run.folder}: other items in fold {fold} than in the other seeds")
                else:
                    sums[fold, key] = Averaged(names, before.values + values)
    return sums


def _of_key(
    method: Method,
    baseline: Method,
    key: str,
    ours: Mapping[tuple[int, str], Averaged],
    theirs: Mapping[tuple[int, str], Averaged],
    higher: bool | None,
) -> list[Comparison]:
    folds = folds_of(method)
    wholes = _whole_differences(method, baseline, key)
    parts, grouped = [], True
    for fold in folds:
        mine, other = ours.get((fold.index, key)), theirs.get((fold.index, key))
        if mine is None or other is None:
            if fold.index in wholes:
                parts.append(Differences(fold.index, {}, 0, whole=wholes[fold.index]))
            continue
        if mine.names != other.names:
            raise ValueError(f"other items in fold {fold.index}")
        groups = groups_of(method, fold.index, key, mine.names)
        grouped &= groups is not None
        found = paired.differences(fold.index, mine.values.tolist(), other.values.tolist(), groups or mine.names)
        parts.append(found)
    tested = _tested(method, baseline, key, parts, ratio=paired.widening(folds, key), higher=higher)
    if grouped:
        return tested
    untold = "its folder does not tell which items belong together"
    by_item = [replace(EMPTY, label=method.label, baseline=baseline.label, key=key, not_paired=untold)]
    return by_item + [one for one in tested if one.test != BY_ITEM]


def _whole_differences(method: Method, baseline: Method, key: str) -> dict[int, float]:
    """Fold -> difference of a score that the part has as a whole, and no item (F1)."""
    first, second = summary(method, key), summary(baseline, key)
    if first.folds != second.folds:
        return {}
    found = {fold: a - b for fold, a, b in zip(first.folds, first.values, second.values, strict=True)}
    return {fold: difference for fold, difference in found.items() if math.isfinite(difference)}


def _tested(
    method: Method,
    baseline: Method,
    key: str,
    parts: Sequence[Differences],
    *,
    ratio: float | None,
    higher: bool | None,
) -> list[Comparison]:
    both = paired.compare(parts, ratio=ratio, higher=higher)
    values = paired.fold_values(parts)
    groups, folds = both["groups"], both["folds"]
    first = Comparison(
        label=method.label, baseline=baseline.label, key=key, test=BY_ITEM, unit=unit(method), n=groups["n"],
        mean=groups["mean"], low=groups["low"], high=groups["high"], p=groups["p"],
        attainable=paired.smallest_p(groups["n"]), better=groups["better"], worse=groups["worse"],
        left_out=both["left_out"],
    )  # fmt: skip
    second = replace(
        first, test=CORRECTED_T, unit="folds", n=folds["n"], mean=folds["mean"], low=folds["low"], high=folds["high"],
        p=paired.corrected_t(values, ratio), attainable=None, better=folds["better"], worse=folds["worse"],
    )  # fmt: skip
    third = replace(
        second, test=BY_FOLD, low=None, high=None, p=paired.signed_rank(values),
        attainable=paired.smallest_p(folds["n"]),
    )  # fmt: skip
    # A score that only whole parts have, and no item, has no test by item.
    return [first, second, third] if groups["n"] else [second, third]


def groups_of(method: Method, fold: int, key: str, names: Sequence[str]) -> Sequence[str] | None:
    """The group of each item: its photograph, or its scene; its own name where each is its own; None: nothing tells."""
    split = method.runs[0].split or {}
    part = key.partition("/")[0]
    if part == "photo":
        originals = split.get("originals")
        return [str(originals.get(name, name)) for name in names] if isinstance(originals, dict) else names
    if "groups" not in split:
        return _by_name(method, names)
    stored = split["groups"]
    if not isinstance(stored, list):
        return names
    chosen = next(one for one in split["folds"] if one["index"] == fold)["train" if part == "fitted" else "test"]
    # trainer.limit_batches scores the first of them only.
    chosen = chosen[: len(names)]
    if len(chosen) < len(names) or max(chosen, default=0) >= len(stored):
        return None
    return [str(stored[number]) for number in chosen]


def _by_name(method: Method, names: Sequence[str]) -> Sequence[str] | None:
    """Runs of earlier versions did not store groups; the names of patches begin with their photograph's."""
    told = unit(method)
    if told == "photographs":
        return [name.rpartition("[")[0] or name for name in names]
    return names if told == ITEMS else None


def unit(method: Method) -> str:
    """What counts as one number by item: "photographs", "groups", "items"."""
    comparison = (method.runs[0].results or {}).get("comparison")
    told = comparison.get("unit") if isinstance(comparison, Mapping) else None
    return str(told) if told in ("photographs", "groups", ITEMS) else "groups"
