"""A study of run folders: runs sorted into methods by their stored configs, one run a seed, what is not whole aside."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from onn_runner.report import table
from onn_runner.study import labels, reading
from onn_runner.study.divided import folds_digest, is_part, typed, which, without_parts
from onn_runner.study.records import Kind, Method, Run, Study
from onn_runner.study.scores import fold_scores, whole


@dataclass(frozen=True)
class Member:
    """A run as one of a method's, or its twin."""

    run: Run
    flat: labels.Flat
    kind: Kind = "model"
    part: str = ""

    @property
    def place(self) -> tuple[Hashable, ...]:
        """What was computed on: the data and the folds."""
        return (self.run.fingerprint, folds_digest(self.run))

    @property
    def whole(self) -> bool:
        return whole(self.run, self.kind, self.part)


def gather(folders: Sequence[Path | str]) -> Study:
    """The study of all runs in `folders`. Raises ConfigError where there is none."""
    return study_of(reading.read(folders))


def study_of(runs: Sequence[Run]) -> Study:
    """Methods, failures and notes."""
    runs, covered = without_parts(runs)
    members = [Member(run, labels.flat(run.config, without=("baseline",))) for run in runs if run.config]
    models, common = _methods(members)
    models, unplaced = _with_unread(models, [run for run in runs if not run.config])
    twins, _ = _methods(twin_members(runs))
    twins, same = _other_than(models, twins)
    failures = [run for method in models for run in method.left_out] + unplaced
    failures += _of_twins(twins, known={run.folder for run in failures})
    usable = [method for method in models if method.runs]
    without_runs = [method for method in (*models, *twins) if not method.runs]
    pruned = [method for method in without_runs if all(run.status == "pruned" for run in method.left_out)]
    empty = [method for method in without_runs if method not in pruned]
    methods = [*usable, *(twin for twin in twins if twin.runs), *_untrained(usable)]
    methods = _with_distinct_labels(methods)
    results = [run.results for method in usable for run in method.runs if run.results is not None]
    return Study(
        methods=tuple(methods),
        empty=tuple(empty),
        failures=tuple(failures),
        monitor=str(results[0]["monitor"]) if results else "",
        metrics=_metrics(results),
        notes=(
            *([f"where a label does not say otherwise: {labels.described(common)}"] if common else []),
            *(*covered, *same, *_notes(methods, usable, empty), *_pruned(len(pruned))),
        ),
    )


def twin_members(runs: Sequence[Run]) -> list[Member]:
    """The twin of each run that has one; its own config, without what it does not share with the model."""
    found = []
    for run in runs:
        twin = run.results.get("twin") if run.results else None
        if twin:
            without = ("model",) if labels.twin_operators(run) else labels.OF_MODEL
            found.append(Member(run, labels.flat(run.config, without=without), "twin", str(twin["name"])))
    return found


def _methods(members: Sequence[Member]) -> tuple[list[Method], labels.Flat]:
    """Members of the same config, data and folds together, in the order in which they come; and what is not said in
    their labels, as most of them share it.
    """
    configs = [one.flat for one in members]
    keys = labels.differing(configs)
    common = labels.usual(configs, keys)
    groups: dict[Hashable, list[Member]] = {}
    for one in members:
        values = tuple(repr(one.flat[key]) if key in one.flat else None for key in keys)
        groups.setdefault((one.part, values, one.place if one.run.split else None), []).append(one)
    _adopt_splitless(groups)
    return [_method(group, keys, common) for group in groups.values()], common


def _adopt_splitless(groups: dict[Hashable, list[Member]]) -> None:
    """Runs whose split cannot be read go to the first method of their config."""
    for key in [key for key in groups if key[2] is None]:  # type: ignore[index]
        home = next((other for other in groups if other[:2] == key[:2] and other[2] is not None), None)  # type: ignore[index]
        if home is not None:
            groups[home] += groups.pop(key)


def _method(group: Sequence[Member], keys: Sequence[str], common: labels.Flat) -> Method:
    first = next((one for one in group if one.whole), group[0])
    chosen: dict[int | None, Run] = {}
    left_out = []
    # The newest of equal ones counts: it was computed with the newest code.
    for one in sorted(group, key=lambda one: one.run.started, reverse=True):
        if not one.whole:
            left_out.append(one.run)
        elif (
            one.run.seed in chosen
            and one.kind == "twin"
            and _scores_of(one.run, one) == _scores_of(chosen[one.run.seed], one)
        ):
            # Every model of a study brings the same twin along.
            continue
        elif one.run.seed in chosen:
            again = f"seed {one.run.seed} again: {chosen[one.run.seed].folder} counts"
            left_out.append(replace(one.run, reason=again, whole=False))
        else:
            chosen[one.run.seed] = one.run
    named = f"{first.part} (twin)" if first.kind == "twin" else None
    return Method(
        label=labels.label(first.run, first.flat, keys, common=common, model=named),
        kind=first.kind,
        part=first.part,
        runs=tuple(sorted(chosen.values(), key=lambda run: (run.seed is None, run.seed or 0))),
        left_out=tuple(left_out),
    )


def _scores_of(run: Run, member: Member) -> Mapping[int, Mapping[str, float]]:
    return fold_scores(run, member.kind, member.part)


def _with_unread(methods: Sequence[Method], runs: Sequence[Run]) -> tuple[list[Method], list[Run]]:
    """Runs without a config go to the method whose runs were typed alike; the others are returned."""
    places = {
        typed(run): position for position, method in enumerate(methods) for run in (*method.left_out, *method.runs)
    }
    added: dict[int, list[Run]] = {}
    unplaced = []
    for run in runs:
        position = places.get(typed(run)) if run.overrides else None
        if position is None:
            unplaced.append(run)
        else:
            added.setdefault(position, []).append(run)
    found = [
        replace(method, left_out=(*method.left_out, *added.get(position, ())))
        for position, method in enumerate(methods)
    ]
    return found, unplaced


def _other_than(models: Sequence[Method], twins: Sequence[Method]) -> tuple[list[Method], list[str]]:
    """Twins without those that are one of the models: the same seeds, scored the same."""
    kept, notes = [], []
    for twin in twins:
        same = next((model for model in models if _same_scores(model, twin)), None)
        if same is None:
            kept.append(twin)
        else:
            notes.append(f"{twin.label} is {same.label}, computed again with the same scores: shown once")
    return kept, notes


def _of_twins(twins: Sequence[Method], *, known: Collection[Path]) -> list[Run]:
    """Runs that count for their model and not for its twin."""
    return [
        replace(run, reason=f"{twin.label}: {run.reason or 'not every fold has a result'}")
        for twin in twins
        for run in twin.left_out
        if run.folder not in known
    ]


def _same_scores(model: Method, twin: Method) -> bool:
    theirs = {run.seed: run for run in model.runs}
    if not twin.runs or not {run.seed for run in twin.runs} <= set(theirs):
        return False
    return all(
        fold_scores(run, "twin", twin.part) == fold_scores(theirs[run.seed])
        and folds_digest(run) == folds_digest(theirs[run.seed])
        for run in twin.runs
    )


def _untrained(methods: Sequence[Method]) -> list[Method]:
    """Baselines that need no training, once for each kind of data and folds."""
    found: dict[tuple[str, str | None, str], Run] = {}
    for run in (run for method in methods for run in method.runs):
        for name in run.results["baselines"] if run.results else ():
            if whole(run, "untrained", name):
                found.setdefault((str(name), run.fingerprint, folds_digest(run)), run)
    configs = [labels.flat({"data": run.config.get("data")}) for run in found.values()]
    keys = labels.differing(configs)
    return [
        Method(
            label=labels.label(run, config, keys, common=labels.usual(configs, keys), model=name),
            kind="untrained",
            part=name,
            runs=(run,),
        )
        for ((name, *_), run), config in zip(found.items(), configs, strict=True)
    ]


def _with_distinct_labels(methods: Sequence[Method]) -> list[Method]:
    marks = []
    for method in methods:
        run = method.runs[0]
        data = run.config.get("data")
        path = data.get("path") if isinstance(data, Mapping) else None
        numbers = which(run) if is_part(run) else ""
        marks.append([
            numbers, f"data {Path(str(path)).name}" if path else "", f"data {str(run.fingerprint)[:6]}",
            f"folds {folds_digest(run)[:6]}",
        ])  # fmt: skip
    found = labels.distinct([method.label for method in methods], marks)
    return [replace(method, label=label) for method, label in zip(methods, found, strict=True)]


def _metrics(results: Sequence[Mapping[str, Any]]) -> dict[str, bool | None]:
    """Score keys as a run's own table shows them, those of the first run first."""
    found: dict[str, bool | None] = {}
    for one in results:
        for key in table.columns(one):
            found.setdefault(key, one["higher_is_better"].get(key.partition("/")[2]))
    return found


def _notes(methods: Sequence[Method], usable: Sequence[Method], empty: Sequence[Method]) -> list[str]:
    """What makes runs of one study less alike than they look."""
    notes = []
    runs = [run for method in usable for run in method.runs]
    notes += _mixed("code", runs, lambda run: run.code or "unknown")
    notes += _mixed("monitor", runs, lambda run: str(run.results["monitor"]) if run.results else "")
    for method in methods:
        if method.left_out and method.kind != "untrained":
            count = len(method.left_out)
            notes.append(
                f"{method.label}: {count} run{'s' * (count != 1)} left out of its means, listed with the reasons"
            )
        for run in method.runs if method.kind == "model" else ():
            if run.status == "diverged" and run.reason:
                notes.append(f"{method.label}, seed {run.seed}: {run.reason}; the other starts count")
        if method.kind == "model" and is_part(method.runs[0]):
            notes.append(f"{method.label}: {which(method.runs[0])}")
    notes += [f"{method.label}: no whole run, so that there is nothing to average" for method in empty]
    return notes


def _pruned(count: int) -> list[str]:
    """Of the settings that a search gave up, which are too many for a row each."""
    if not count:
        return []
    which_have = "1 setting that a search pruned has" if count == 1 else f"{count} settings that a search pruned have"
    return [f"{which_have} no row; its runs are listed with those that do not count"]


def _mixed(name: str, runs: Iterable[Run], value: Callable[[Run], str]) -> list[str]:
    counts: dict[str, int] = {}
    for run in runs:
        counts[value(run)] = counts.get(value(run), 0) + 1
    if len(counts) < 2:
        return []
    listed = ", ".join(f"{text} ({count} run{'s' * (count != 1)})" for text, count in counts.items())
    return [f"the runs were computed with different {name}: {listed}"]
