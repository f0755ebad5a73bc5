"""Differences of two methods on the same test items: their mean with intervals, by photograph and by fold.

By photograph: every photograph counts as one number, since its patches are alike. The interval is Student's over
photographs: what other photographs of this kind would give with the networks as they were trained.
By fold: what training on other data would give. Where the folds' training sets overlap, plain intervals over folds are
too short; the variance is corrected.

Source: Nadeau and Bengio, Inference for the generalization error, Machine Learning 52, 2003, equation 9; for repeated
folds Bouckaert and Frank, 2004.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from onn_runner.partition.base import Fold

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Differences:
    """Ours minus theirs, of one score on one fold's items."""

    fold: int
    groups: Mapping[str, tuple[float, int]]
    """Photograph -> sum of its items' differences, and how many there are."""
    left_out: int
    """Items without a finite difference: a score is not defined, or infinite (the PSNR of a perfect prediction)."""
    whole: float | None = None
    """Of a score that no item has, but the fold's part as a whole; `groups` is empty then."""


def differences(
    fold: int,
    ours: Sequence[float],
    theirs: Sequence[float],
    groups: Sequence[str],  # the photograph of each item
) -> Differences:
    """Of scores of the same items in the same order. Raises ValueError where their numbers differ."""
    sums: dict[str, tuple[float, int]] = {}
    left_out = 0
    for our, their, group in zip(ours, theirs, groups, strict=True):
        difference = our - their
        if not math.isfinite(difference):
            left_out += 1
            continue
        total, count = sums.get(group, (0.0, 0))
        sums[group] = (total + difference, count + 1)
    return Differences(fold, sums, left_out)


def compare(parts: Sequence[Differences], *, ratio: float | None, higher: bool | None) -> dict[str, Any]:
    """`groups` and `folds`: mean, low and high of the 95 % interval, n, better, worse; and the number of items.

    `parts`: one a fold, repeats included. `ratio`: test items over training items of a fold, 0 where the folds share no
    training items; None: no interval over folds. `higher`: whether a higher score is better; None: neither is counted,
    equal ones are in none of both. Low, high and p are None where there is one group or one fold.
    The p-value is of the signed-rank test over groups, not adjusted for the number of metrics and methods compared.
    """
    pooled: dict[str, tuple[float, int]] = {}
    for part in parts:
        for group, (total, count) in part.groups.items():
            before, number = pooled.get(group, (0.0, 0))
            pooled[group] = (before + total, number + count)
    by_group = np.array([total / count for total, count in pooled.values()])
    by_fold = fold_values(parts)
    return {
        "items": sum(count for _, count in pooled.values()),
        "left_out": sum(part.left_out for part in parts),
        "groups": interval(by_group, 0.0) | _counts(by_group, higher) | {"p": signed_rank(by_group)},
        "folds": interval(by_fold, ratio) | _counts(by_fold, higher) | {"ratio": ratio},
    }


def fold_values(parts: Sequence[Differences]) -> NDArray[np.float64]:
    """The mean difference of each fold that has one, in their order."""
    return np.array([_mean(part) for part in parts if part.groups or part.whole is not None])


def _mean(part: Differences) -> float:
    """Over the fold's items, as the table's rows."""
    if part.whole is not None:
        return part.whole
    return math.fsum(total for total, _ in part.groups.values()) / sum(count for _, count in part.groups.values())


def interval(values: NDArray[np.float64], ratio: float | None) -> dict[str, Any]:
    """Mean and interval with the variance (1 / n + ratio) s^2, Student's with n - 1 degrees of freedom."""
    count = len(values)
    if count == 0:
        return {"mean": None, "low": None, "high": None, "n": 0}
    mean = float(values.mean())
    if count == 1 or ratio is None:
        return {"mean": mean, "low": None, "high": None, "n": count}
    error = math.sqrt(1 / count + ratio) * float(values.std(ddof=1))
    half = float(stats.t.ppf((1 + CONFIDENCE) / 2, count - 1)) * error
    return {"mean": mean, "low": mean - half, "high": mean + half, "n": count}


def _counts(values: NDArray[np.float64], higher: bool | None) -> dict[str, int | None]:
    """How many differences speak for us, and how many against."""
    if higher is None:
        return {"better": None, "worse": None}
    more, less = int((values > 0).sum()), int((values < 0).sum())
    return {"better": more, "worse": less} if higher else {"better": less, "worse": more}


def signed_rank(values: NDArray[np.float64]) -> float | None:
    """Two-sided p-value of Wilcoxon's signed-rank test, exact for up to 50 values without ties; zeros are dropped.

    1 where all are zero, None below two values.
    """
    if len(values) < 2:
        return None
    if not values.any():
        return 1.0
    return float(stats.wilcoxon(values).pvalue)


def smallest_p(count: int) -> float | None:
    """What the two-sided signed-rank test of so many values gives at best: all speak for one side. None below two."""
    return 2.0 ** (1 - count) if count > 1 else None


def corrected_t(values: NDArray[np.float64], ratio: float | None) -> float | None:
    """Two-sided p-value of the corrected resampled t-test over folds: the variance is that of `interval`.

    1 where all are zero; None below two values, where all are the same other value, and without a ratio.
    """
    if len(values) < 2 or ratio is None:
        return None
    if not values.any():
        return 1.0
    error = math.sqrt(1 / len(values) + ratio) * float(values.std(ddof=1))
    if error == 0:
        return None
    return 2 * float(stats.t.sf(abs(float(values.mean())) / error, len(values) - 1))


def widening(folds: Sequence[Fold], key: str) -> float | None:
    """What widens the variance over folds: test items over training items where training sets share items, else 0.

    None for training scores where they do: nothing is known of how these hang together.
    """
    trained = [item for fold in folds for item in fold.train]
    if len(set(trained)) == len(trained):
        return 0.0
    if key.startswith("fitted/"):
        return None
    return statistics.fmean(len(fold.test) / len(fold.train) for fold in folds if fold.train)
