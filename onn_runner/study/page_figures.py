"""The figures of a study's page, from its summaries and the runs' tables: curves, boxes, differences, costs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from onn_runner.report.figures_study_base import Mark
from onn_runner.report.figures_study_costs import Point, quality_and_cost
from onn_runner.report.figures_study_curves import MethodCurve, Panel, learning_curves
from onn_runner.report.figures_study_scores import MethodDifference, MethodScores, box_plots, differences
from onn_runner.report.table import UNITS, words
from onn_runner.study.files import Files
from onn_runner.study.page_view import Row, View
from onn_runner.study.records import Comparison, Costs
from onn_runner.study.scores import best_starts

MOST_KEYS = 8
"""Scores that have box plots."""
Epochs = Mapping[int, float]


@dataclass(frozen=True)
class Figure:
    """A figure of the page, or one of several that are chosen between by buttons."""

    name: str
    svg: str


def curves(view: View) -> tuple[Figure | None, list[str]]:
    """Monitored score on the validation part and training loss; and which methods have no curves."""
    monitor = view.study.monitor
    asked = [(monitor, f"{spelled(monitor)}, validation", False), ("train/loss", "loss, training", True)]
    if monitor.partition("/")[2] == "loss":
        asked[0] = (monitor, "loss, validation", True)
    found = {row.label: _curves(row, [key for key, _, _ in asked]) for row in view.trained()}
    panels = [
        Panel(label, [curves[key] for curves in found.values() if key in curves], _higher(view, key), logarithmic)
        for key, label, logarithmic in asked
    ]
    panels = [panel for panel in panels if panel.curves]
    missing = [label for label, curves in found.items() if not curves]
    if not panels:
        return None, missing
    known = len(found) - len(missing)
    told = f"Learning curves of {known} methods: {' and '.join(panel.label for panel in panels)} over epochs."
    return Figure("curves", learning_curves(panels, alternative=told)), missing


def _higher(view: View, key: str) -> bool | None:
    metric = key.partition("/")[2]
    known = {name.partition("/")[2]: higher for name, higher in view.study.metrics.items()}
    return False if metric == "loss" else known.get(metric)


def _curves(row: Row, keys: Sequence[str]) -> dict[str, MethodCurve]:
    """Mean over folds of each fold's mean over seeds, at the epochs that all of them have."""
    files, folds = Files(), {key: dict[int, list[Epochs]]() for key in keys}
    for run in row.method.runs:
        for fold, start in best_starts(run, row.method.kind).items():
            folder = run.folder / f"fold_{fold:02d}"
            table = (folder / "baseline" if row.method.kind == "twin" else folder) / "metrics.csv"
            curve = files.curves(table).get(int(start["start"])) if start is not None else None
            for key in keys:
                if curve is not None and (values := curve.values.get(key)):
                    folds[key].setdefault(fold, []).append(dict(enumerate(values, start=1)))
    found = {key: _averaged(row.mark, list(of_folds.values())) for key, of_folds in folds.items() if of_folds}
    return {key: curve for key, curve in found.items() if curve is not None}


def _averaged(mark: Mark, folds: Sequence[Sequence[Epochs]]) -> MethodCurve | None:
    means = [_mean_over(curves) for curves in folds]
    epochs = sorted(set.intersection(*(set(mean) for mean in means)))
    if not epochs:
        return None
    values = np.array([[mean[epoch] for epoch in epochs] for mean in means])
    return MethodCurve(mark, np.array(epochs, float), values.mean(0), values.min(0), values.max(0))


def _mean_over(curves: Sequence[Epochs]) -> dict[int, float]:
    shared = set.intersection(*({e for e, v in curve.items() if math.isfinite(v)} for curve in curves))
    return {epoch: float(np.mean([curve[epoch] for curve in curves])) for epoch in sorted(shared)}


def boxes(view: View) -> list[Figure]:
    """One for each of the first scores."""
    found = []
    for key in view.keys[:MOST_KEYS]:
        scores = []
        for row in view.rows:
            summary = view.summaries.get((row.label, key))
            if summary is None or not summary.values:
                continue
            values = summary.by_seed or (summary.values,)
            seeds = summary.seeds if summary.by_seed else (None,)
            if row.method.kind == "untrained":
                # It is the same whatever the seed.
                values, seeds = (summary.values,), (None,)
            scores.append(
                MethodScores(row.number, row.label, values, summary.mean, seeds, baseline=row.label == view.baseline)
            )
        if scores:
            told = (
                f"{spelled(key)} of {len(scores)} methods, a row each: the value of every fold and seed, and the mean."
            )
            found.append(
                Figure(spelled(key), box_plots(scores, label=spelled(key), higher=view.higher(key), alternative=told))
            )
    return found


def forest(view: View) -> Figure | None:
    """Intervals of the differences to the baseline method in the first score, by item where there are such."""
    tests = ("signed-rank by item", "corrected t by fold")
    for test in tests:
        chosen = {c.label: c for c in view.comparisons if c.key == view.key and c.test == test}
        if any(c.mean is not None for c in chosen.values()) and view.key is not None:
            rows = [_difference(row, chosen[row.label]) for row in view.rows if row.label in chosen]
            unit = next(c.unit for c in chosen.values() if c.mean is not None)
            label = f"difference in {spelled(view.key)} to {view.baseline}, over {unit}"
            told = f"{label[0].upper()}{label[1:]}: mean and 95 % interval of {len(rows)} methods."
            higher = view.higher(view.key)
            return Figure(test, differences(rows, label=label, higher=higher, alternative=told))
    return None


def _difference(row: Row, found: Comparison) -> MethodDifference:
    told = f"not paired: {found.not_paired}" if found.not_paired else ""
    if found.mean is not None:
        numbers = [f"n = {found.n}"]
        if found.p_holm is not None:
            numbers.append(f"p = {shown_p(found.p_holm)} (Holm)".replace("= <", "<"))
        told = ", ".join(numbers)
    return MethodDifference(row.number, row.label, found.mean, found.low, found.high, told)


COSTS: tuple[tuple[str, str, Callable[[Costs], float | None]], ...] = (
    ("MACs", "multiply-accumulates of one item", lambda costs: costs.macs),
    ("parameters", "parameters", lambda costs: costs.parameters),
    ("training time", "training time of all folds of a run [s]", lambda costs: costs.seconds),
    (
        "peak memory",
        "peak memory of training [MiB]",
        lambda c: None if c.peak_memory is None else c.peak_memory / 2**20,
    ),
    ("energy", "energy of training all folds of a run [J]", lambda costs: costs.energy),
)
"""Name on the button, label of the axis, value."""


def mebibytes(costs: Costs) -> float | None:
    return None if costs.peak_memory is None else costs.peak_memory / 2**20


def trade_offs(view: View) -> list[Figure]:
    """Quality against each cost that at least one method has."""
    key = view.key
    higher = None if key is None else view.higher(key)
    if key is None or higher is None:
        return []
    found = []
    for name, label, value in COSTS:
        points = []
        for row in view.trained():
            summary, costs = view.summaries.get((row.label, key)), view.costs.get(row.label)
            cost = None if costs is None else value(costs)
            if summary is None or summary.mean is None or not math.isfinite(summary.mean) or not cost or cost <= 0:
                continue
            points.append(Point(row.number, row.label, cost, summary.mean, max(summary.values) - min(summary.values)))
        if points:
            told = f"{spelled(key)} against {label} of {len(points)} methods, the Pareto front marked."
            svg = quality_and_cost(points, higher=higher, score=spelled(key), cost=label, alternative=told)
            found.append(Figure(name, svg))
    return found


def spelled(key: str) -> str:
    """`PSNR [dB]`, `PSNR [dB] (photo)`"""
    part, _, metric = key.partition("/")
    unit = f" [{UNITS[metric]}]" if metric in UNITS else ""
    of = {"test": "", "val": "", "train": "", "photo": " of whole originals", "fitted": " of training items"}
    return f"{words(metric)}{unit}{of.get(part, f' ({part})')}"


def shown_p(value: float | None) -> str:
    """Two significant digits, no smaller than 0.001; "-" where there is none."""
    if value is None or math.isnan(value):
        return "-"
    return "< 0.001" if value < 0.001 else f"{value:.2g}"
