"""Means of methods with their deviations over folds and seeds, costs, and Holm's adjustment."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, get_args

import numpy as np

from onn_runner.partition.base import Fold
from onn_runner.partition.split import from_plain
from onn_runner.report.paired import interval, widening
from onn_runner.study.records import Costs, Kind, Method, Run, Study, Summary
from onn_runner.study.scores import best_starts, fold_scores


def summaries(study: Study, keys: Sequence[str] | None = None) -> tuple[Summary, ...]:
    """Of every method in every one of `keys`, by default all that the study shows."""
    keys = tuple(study.metrics) if keys is None else keys
    return tuple(summary(method, key) for method in study.methods for key in keys)


def best_first(study: Study, found: Sequence[Summary]) -> Study:
    """With its methods ordered by the first score; trained ones, twins and untrained ones each for themselves."""
    key = next(iter(study.metrics), None)
    means = {one.label: one.mean for one in found if one.key == key}
    higher = study.metrics[key] if key is not None else None

    def place(method: Method) -> tuple[int, float]:
        mean = means.get(method.label)
        worth = math.inf if mean is None else 0.0 if higher is None else -mean if higher else mean
        return get_args(Kind).index(method.kind), worth

    return replace(study, methods=tuple(sorted(study.methods, key=place)))


def summary(method: Method, key: str) -> Summary:
    """Seeds are averaged within a fold, since they share its data; then folds are values.

    A value that is not finite makes the mean None: it is not left out.
    """
    found = {run.seed: scores for run in method.runs if (scores := _of_key(run, method, key))}
    folds = tuple(next(iter(found.values()), {}))
    by_seed = tuple(tuple(scores[fold] for fold in folds) for scores in found.values())
    values = tuple(map(statistics.fmean, zip(*by_seed, strict=True)))
    finite = bool(values) and all(map(math.isfinite, values))
    known = interval(np.array(values), _ratio(method, key)) if finite else {"mean": None, "low": None, "high": None}
    means = [statistics.fmean(scores) for scores in by_seed]
    return Summary(
        label=method.label,
        key=key,
        mean=known["mean"],
        low=known["low"],
        high=known["high"],
        std=statistics.stdev(values) if finite and len(values) > 1 else None,
        std_seeds=statistics.stdev(means) if finite and len(means) > 1 else None,
        values=values,
        folds=folds,
        seeds=tuple(found),
        by_seed=by_seed,
    )


def _of_key(run: Run, method: Method, key: str) -> dict[int, float]:
    """Fold -> score; empty where some fold has none."""
    scores = fold_scores(run, method.kind, method.part)
    return {fold: scores[fold][key] for fold in sorted(scores)} if all(key in one for one in scores.values()) else {}


def folds_of(method: Method) -> list[Fold]:
    """The folds of its runs, which are the same for all."""
    return from_plain(method.runs[0].split or {})


def _ratio(method: Method, key: str) -> float | None:
    """As `widening`; what is not trained has independent folds where no item is tested twice."""
    folds = folds_of(method)
    if method.kind != "untrained":
        return widening(folds, key)
    tested = [item for fold in folds for item in fold.test]
    return 0.0 if len(set(tested)) == len(tested) else None


def costs(method: Method) -> Costs:
    """Of the starts that count; nothing for what is not trained."""
    if method.kind == "untrained":
        return Costs(label=method.label)
    networks = [network for run in method.runs if (network := _network(run, method))]
    starts = [[one for one in best_starts(run, method.kind).values() if one is not None] for run in method.runs]
    peaks = [peak for run in starts for one in run if isinstance(peak := one.get("peak_memory"), int)]
    devices = {str(device) for run in starts for one in run if (device := one.get("device"))}
    return Costs(
        label=method.label,
        parameters=_whole_number(networks, "parameters"),
        macs=_whole_number(networks, "macs"),
        seconds=_mean_of_runs(starts, "seconds"),
        peak_memory=max(peaks, default=None),
        energy=_mean_of_runs(starts, "energy"),
        energy_of=", ".join(sorted({str(what) for run in starts for one in run if (what := one.get("energy_of"))})),
        devices=tuple(sorted(devices)),
    )


def _network(run: Run, method: Method) -> Mapping[str, Any]:
    results = run.results or {}
    found = results["twin"]["network"] if method.kind == "twin" else results.get("network")
    return found if isinstance(found, Mapping) else {}


def _whole_number(networks: Sequence[Mapping[str, Any]], name: str) -> int | None:
    return next((value for one in networks if isinstance(value := one.get(name), int)), None)


def _mean_of_runs(runs: Sequence[Sequence[Mapping[str, Any]]], name: str) -> float | None:
    """The mean over runs of the sum over their folds; None unless every fold of every run tells."""
    values = [[one.get(name) for one in run] for run in runs]
    if not values or not all(isinstance(value, int | float) for run in values for value in run):
        return None
    return statistics.fmean(math.fsum(run) for run in values)  # type: ignore[arg-type]


def holm(values: Sequence[float | None]) -> list[float | None]:
    """p-values adjusted for being one of several: the smallest times their number, and so on, never falling.

    None, where there was no test, is not counted. Source: Holm, A simple sequentially rejective multiple test
    procedure, Scandinavian Journal of Statistics 6, 1979.
    """
    order = sorted((p, position) for position, p in enumerate(values) if p is not None)
    adjusted: list[float | None] = [None] * len(values)
    largest = 0.0
    for rank, (p, position) in enumerate(order):
        largest = max(largest, min(1.0, (len(order) - rank) * p))
        adjusted[position] = largest
    return adjusted
