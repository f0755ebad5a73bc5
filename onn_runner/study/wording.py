"""What a reader of a study's numbers must know: units, seeds, overlapping training sets, what few folds can show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from onn_runner.study.records import Comparison, Study, Summary

LEVEL = 0.05


def counted(count: int, noun: str) -> str:
    """`1 fold`, `3 folds`"""
    return f"{count:,} {noun}{'s' * (count != 1)}"


def score_notes(
    study: Study, found: Sequence[Summary], *, intervals: bool, over_seeds: bool = False
) -> tuple[str, ...]:
    trained = {method.label for method in study.methods if method.kind != "untrained"}
    ours = [one for one in found if one.label in trained and one.mean is not None]
    notes = []
    if any(one.std is not None for one in ours):
        averaged = "; a fold's value is its mean over seeds" if any(len(one.seeds) > 1 for one in ours) else ""
        notes.append(f"mean ± sample standard deviation over folds{averaged}")
    if any(len(one.folds) == 1 for one in ours):
        notes.append(
            "one fold: no deviation over folds and no interval, since nothing tells what other training data do"
        )
    if intervals and any(one.low is not None for one in ours):
        notes.append(
            "[ ]: 95 % interval of the mean over folds, Student's, with the variance widened for training sets that "
            "overlap (Nadeau and Bengio, 2003)"
        )
    if over_seeds and any(one.std_seeds is not None for one in ours):
        notes.append(
            "± over seeds: sample standard deviation over seeds of the mean over folds, of the score before it"
        )
    if any(one.values and one.mean is None for one in found):
        notes.append("not finite: the score of some fold is infinite or not defined, so that it has no mean")
    return (*notes, *study.notes)


def comparison_notes(study: Study, found: Sequence[Comparison]) -> tuple[str, ...]:
    """How the differences are to be read, and what their numbers can show at best."""
    paired = [one for one in found if not one.not_paired]
    notes = []
    units = dict.fromkeys(one.unit for one in paired if one.test == "signed-rank by item" and one.n)
    for unit in units:
        averaged = (
            ""
            if unit == "items"
            else f"; a {unit.removesuffix('s')}'s items are averaged first, so that it counts once"
        )
        notes.append(
            f"by item: {unit} are the numbers{averaged}; Student's interval and Wilcoxon's signed-rank test say what "
            f"other {unit} of this kind would give with these trained networks"
        )
    if units and any(one.key.startswith("fitted/") for one in paired):
        notes.append("train: scores of what was trained on; nothing follows for anything else")
    if any(one.test == "corrected t by fold" and one.n > 1 for one in paired):
        notes.append(
            "by fold: the corrected resampled t-test (Nadeau and Bengio, 2003) says what other training data would "
            "give; the signed-rank test by fold takes the folds as independent, which overlapping training sets are not"
        )
    if any(len(method.runs) > 1 for method in study.methods):
        notes.append(
            "scores are averaged over a method's seeds before anything is compared" + _unequal_seeds(study, found)
        )
    if paired:
        methods = len({one.label for one in paired})
        notes.append(
            f"p (Holm): adjusted for {counted(methods, 'comparison')} with {paired[0].baseline}, for each score and "
            "test by itself; intervals are not adjusted"
        )
    left_out = sum(one.left_out for one in paired if one.test == "signed-rank by item")
    if left_out:
        notes.append(f"{counted(left_out, 'difference')} of items that are not finite are left out")
    return (*notes, *limits(paired))


def limits(found: Sequence[Comparison]) -> list[str]:
    """For every number of folds and of items that cannot reach 5 % by a signed-rank test: so, and what can."""
    sizes: dict[tuple[str, str], int] = {}
    for one in found:
        sizes[one.key, one.test] = sizes.get((one.key, one.test), 0) + (one.p is not None)
    told: dict[str, None] = {}
    if any(one.unit == "folds" and one.n == 1 for one in found):
        told["one fold: no test by fold, since nothing tells what other training data would give"] = None
    items_can = any(not _out_of_reach(one, sizes) for one in found if one.test == "signed-rank by item" and one.n)
    for one in (one for one in found if _out_of_reach(one, sizes)):
        size, least = sizes[one.key, one.test], one.attainable or 0.0
        adjusted = f", {min(1.0, size * least):.2g} after Holm for {size} methods" if size > 1 else ""
        other = "the test by item and the corrected t-test can" if items_can else "the corrected t-test can"
        count = counted(one.n, one.unit.removesuffix("s"))
        told.setdefault(
            f"{count}: the signed-rank test cannot go below p = {least:.2g}{adjusted}, "
            f"whatever the scores{f'; only {other}' if one.unit == 'folds' else ''}"
        )
    return list(told)


def _out_of_reach(one: Comparison, sizes: Mapping[tuple[str, str], int]) -> bool:
    return one.attainable is not None and min(1.0, one.attainable * sizes[one.key, one.test]) > LEVEL


def _unequal_seeds(study: Study, found: Sequence[Comparison]) -> str:
    compared = {one.label for one in found} | {one.baseline for one in found}
    methods = [method for method in study.methods if method.label in compared and method.kind != "untrained"]
    if len({method.seeds for method in methods}) < 2:
        return ""
    told = "; ".join(f"{method.label}: {', '.join(map(str, method.seeds))}" for method in methods)
    return f"; these are not the same for all ({told})"
