"""A study's tables for screen, Markdown and LaTeX: scores, differences to the baseline, costs, what is left out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from onn_runner.errors import ConfigError
from onn_runner.plain import printable
from onn_runner.report.differences import places, with_interval
from onn_runner.report.table import Table, decimals, figure, heading
from onn_runner.study import gathering
from onn_runner.study.records import Comparison, Costs, Method, Run, Study, Summary
from onn_runner.study.statistics import best_first, summaries
from onn_runner.study.wording import comparison_notes, counted, score_notes

MOST_LEFT_OUT = 100
"""Rows of the table of runs that are left out."""


def sweep_table(folder: Path) -> Table | None:
    """The test scores of a sweep's methods, for its end; None where no run is whole."""
    try:
        study = gathering.gather([folder])
    except ConfigError:
        return None
    found = summaries(study)
    return score_table(best_first(study, found), found, intervals=False, over_seeds=False) if study.methods else None


def score_table(study: Study, found: Sequence[Summary], *, intervals: bool = True, over_seeds: bool = True) -> Table:
    """A row a method: mean and deviation over folds of each score, with the interval of the mean; of the first score
    the deviation over seeds.
    """
    by_place = {(one.label, one.key): one for one in found}
    keys = list(study.metrics)
    headings = ["", "seeds", "folds", *(heading(key, study.metrics[key]) for key in keys)]
    seeds = [one for one in found if keys and one.key == keys[0]]
    several = over_seeds and any(one.std_seeds is not None for one in seeds)
    if several:
        headings.insert(4, "± over seeds")
    rows: list[tuple[str, ...]] = []
    sections = []
    for kind in ("model", "twin", "untrained"):
        methods = [method for method in study.methods if method.kind == kind]
        if rows and methods:
            sections.append(len(rows))
        for method in methods:
            cells = [_score(by_place[method.label, key], intervals=intervals) for key in keys]
            if several:
                cells.insert(1, _over_seeds(by_place[method.label, keys[0]]))
            rows.append((*_method_cells(method), *cells))
    if study.empty:
        sections.append(len(rows))
    rows += [(method.label, "0", *("-" for _ in headings[2:])) for method in study.empty]
    notes = score_notes(study, found, intervals=intervals, over_seeds=over_seeds)
    return _safe(Table(_title(study), tuple(headings), tuple(rows), tuple(sections), notes))


def _safe(table: Table) -> Table:
    """With every text on one line and without what steers a terminal: labels and reasons come from folders."""

    def line(text: str) -> str:
        return printable(" ".join(text.split()))

    return Table(
        line(table.title),
        tuple(map(line, table.headings)),
        tuple(tuple(map(line, row)) for row in table.rows),
        table.sections,
        tuple(map(line, table.notes)),
    )


def _title(study: Study) -> str:
    trained = [method for method in study.methods if method.kind != "untrained"]
    runs = {run.folder for method in trained for run in method.runs}
    parts = {key.partition("/")[0] for key in study.metrics}
    what = "training scores" if parts == {"fitted"} else "test scores"
    return f"{counted(len(trained), 'method')}, {counted(len(runs), 'run')}: {what}"


def _method_cells(method: Method) -> tuple[str, str, str]:
    """Label, seeds and folds; `2 of 3` seeds where runs are left out."""
    split = method.runs[0].split or {"folds": ()}
    seeds = "-"
    if method.kind != "untrained":
        started = {run.seed for run in (*method.runs, *method.left_out)}
        counting = len(method.runs)
        seeds = str(counting) if len(started) == counting else f"{counting} of {len(started)}"
    return method.label, seeds, str(len(split["folds"]))


def _score(one: Summary, *, intervals: bool) -> str:
    """`29.31 ± 0.22 [28.76, 29.86]`, to the same decimal."""
    metric = one.key.partition("/")[2]
    if one.mean is None:
        return "not finite" if one.values else "-"
    digits = decimals(one.mean, metric)
    text = figure(one.mean, metric, places=digits)
    if one.std is not None:
        text += f" ± {figure(one.std, metric, places=digits)}"
    if intervals and one.low is not None and one.high is not None:
        text += f" [{figure(one.low, metric, places=digits)}, {figure(one.high, metric, places=digits)}]"
    return text


def _over_seeds(one: Summary) -> str:
    """The deviation over seeds, to the decimal of the mean."""
    if one.std_seeds is None or one.mean is None:
        return "-"
    metric = one.key.partition("/")[2]
    return figure(one.std_seeds, metric, places=decimals(one.mean, metric))


def comparison_table(study: Study, found: Sequence[Comparison], *, most: int | None = None) -> Table | None:
    """Each method against the baseline: the first score in full, of the others the difference and Holm's p.

    `most`: how many methods, by default all. None where nothing is compared.
    """
    if not found:
        return None
    keys = list(dict.fromkeys(one.key for one in found))
    compared = {one.label for one in found}
    labels = [method.label for method in study.methods if method.label in compared][:most]
    more = len(compared) - len(labels)
    by_place = {(one.label, one.test, one.key): one for one in found}
    tests = list(dict.fromkeys(one.test for one in found))
    rows: list[tuple[str, ...]] = []
    sections = []
    for label in labels:
        if rows:
            sections.append(len(rows))
        reasons = {one.not_paired for one in found if one.label == label}
        if "" not in reasons:
            rows.append((label, f"not paired: {'; '.join(sorted(reasons))}", *("-" for _ in range(3 + len(keys)))))
            continue
        # The same mean to the same digit in every row.
        digits = [max(_places(by_place.get((label, test, key))) for test in tests) for key in keys]
        for test in tests:
            entries = [by_place.get((label, test, key)) for key in keys]
            rows.append((label if test == tests[0] else "", *_comparison_cells(test, entries, digits)))
    first = heading(keys[0], study.metrics.get(keys[0]))
    others = (f"{heading(key, study.metrics.get(key))}, p (Holm)" for key in keys[1:])
    headings = ("", "test", f"{first} [95 % interval]", "better on", "p", "p (Holm)", *others)
    title = f"difference to {found[0].baseline}"
    notes = comparison_notes(study, found)
    told = (f"and {counted(more, 'method')} more: comparisons.csv and table.md have all",) if more else ()
    return _safe(Table(title, headings, tuple(rows), tuple(sections), (*told, *notes)))


def _comparison_cells(test: str, entries: Sequence[Comparison | None], digits: Sequence[int]) -> tuple[str, ...]:
    main = entries[0]
    if main is None or main.not_paired:
        reason = "" if main is None else f": {main.not_paired}"
        cells = (f"{test}{reason}", "-", "-", "-", "-")
    else:
        what = f"{test} ({counted(main.n, main.unit.removesuffix('s'))})" if main.n else test
        cells = (what, _difference(main, digits[0]), _better(main), probability(main.p), probability(main.p_holm))
    return (*cells, *(_short(one, places) for one, places in zip(entries[1:], digits[1:], strict=True)))


def _better(one: Comparison) -> str:
    """`14 of 17`; where some are equal (a class is right or wrong) `92, worse on 59 of 1,797`."""
    if one.better is None or one.worse is None:
        return "-"
    equal = one.better + one.worse < one.n
    return f"{one.better:,}{f', worse on {one.worse:,}' if equal else ''} of {one.n:,}"


def _difference(one: Comparison, digits: int) -> str:
    """`+0.31 [+0.12, +0.50]`"""
    return with_interval({"mean": one.mean, "low": one.low, "high": one.high}, digits)


def _short(one: Comparison | None, digits: int) -> str:
    """`+0.31, 0.094`: the difference and Holm's p."""
    if one is None or one.mean is None:
        return "-"
    return f"{one.mean:+.{digits}f}, {probability(one.p_holm)}"


def _places(one: Comparison | None) -> int:
    return 0 if one is None else places({"mean": one.mean, "low": one.low, "high": one.high}, one.key)


def probability(p: float | None) -> str:
    """Two digits of small ones: 0.25, 0.031, < 0.0001."""
    if p is None:
        return "-"
    return "< 0.0001" if p < 1e-4 else f"{p:.2g}" if p < 0.1 else f"{p:.2f}"


def cost_table(study: Study, found: Sequence[Costs]) -> Table | None:
    """Of trained methods; columns that nothing is known of are left out, None where that is all."""
    kinds = {method.label: method.kind for method in study.methods}
    shown = [one for one in found if kinds.get(one.label) != "untrained"]
    columns: dict[str, Callable[[Costs], str]] = {
        "parameters": lambda one: _whole(one.parameters),
        "MACs of an item": lambda one: _whole(one.macs),
        "training [s]": lambda one: _three_digits(one.seconds),
        "peak memory [MiB]": lambda one: _three_digits(None if one.peak_memory is None else one.peak_memory / 2**20),
        "energy [J]": lambda one: _three_digits(one.energy),
        "on": lambda one: ", ".join(one.devices) or "-",
    }
    kept = {name: cell for name, cell in columns.items() if any(cell(one) != "-" for one in shown)}
    if not kept:
        return None
    rows = tuple((one.label, *(cell(one) for cell in kept.values())) for one in shown)
    notes = ["training: seconds of training all folds of a run, the mean over seeds"] if "training [s]" in kept else []
    if "peak memory [MiB]" in kept:
        notes.append("peak memory: the largest of all folds and seeds; on a GPU its own, else of the process")
    kinds_of_energy = {one.energy_of for one in shown if one.energy is not None and one.energy_of}
    if "energy [J]" in kept and kinds_of_energy:
        what = " and ".join(sorted(kinds_of_energy))
        notes.append(f"energy: of the whole {what}, whoever else used it; the mean over seeds")
    devices = {device for one in shown for device in one.devices}
    if len(devices) > 1:
        notes.append(f"computed on {' and '.join(sorted(devices))}: times and energy of these are not comparable")
    return _safe(Table("costs", ("", *kept), rows, (), tuple(notes)))


def _whole(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def _three_digits(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def left_out_table(study: Study) -> Table | None:
    """Every run that counts nowhere, with the reason and the command that repeats it."""
    if not study.failures:
        return None
    shown = study.failures[:MOST_LEFT_OUT]
    rows = tuple((_run_name(run), run.status, run.reason or "-", run.command) for run in shown)
    more = len(study.failures) - len(shown)
    notes = (f"and {more} more",) if more else ()
    title = f"{counted(len(study.failures), 'run')} left out of all means and tests"
    return _safe(Table(title, ("run", "status", "reason", "to repeat it"), rows, (), notes))


def _run_name(run: Run) -> str:
    return f"{run.folder.parent.name}/{run.folder.name}"
