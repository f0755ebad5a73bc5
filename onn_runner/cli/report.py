"""`onn report`: what many runs came to, as tables with intervals, paired tests against a baseline, and one page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onn_runner.errors import ConfigError, unknown

if TYPE_CHECKING:
    from rich.console import Console

    from onn_runner.study.records import Study
    from onn_runner.study.writing import Findings

PAGE = "report.html"
MOST_COMPARED = 12
"""Methods in the table of differences on the screen."""


def report(
    folders: Annotated[
        list[str],
        typer.Argument(metavar="FOLDER", help="Run folders, sweeps (multirun/<name>), or what holds them."),
    ],
    baseline: Annotated[
        str | None, typer.Option(help="The method to compare with, or a part of its label; conv where there is one.")
    ] = None,
    out: Annotated[str | None, typer.Option(help="Folder for the files; `report` in the first folder.")] = None,
    metric: Annotated[
        list[str] | None, typer.Option(help="A score, such as psnr or photo/psnr; all that runs show. May be repeated.")
    ] = None,
) -> None:
    """Means with intervals over folds and seeds, paired tests, costs: CSV, Markdown, LaTeX and a page to look at."""
    from onn_runner.report import screen
    from onn_runner.report.folder import make
    from onn_runner.study import gathering, writing

    console = screen.console()
    place = Path(out) if out is not None else Path(folders[0]) / "report"
    if out is None and place.is_symlink():
        raise ConfigError(f"{place} is a link: say with --out where the files shall go")
    if place.exists() and not place.is_dir():
        raise ConfigError(f"{place} is no folder: give another one with --out")
    study = gathering.gather(folders)
    if not study.methods:
        _show_left_out(console, study)
        raise ConfigError(
            f"{', '.join(folders)}: no run has a result for every fold, so that there is nothing to average"
        )
    findings = found(chosen(study, metric), baseline)
    for table in findings.tables(most=MOST_COMPARED):
        screen.show_table(console, table, left=(0, 1) if "test" in table.headings else (0,))
    _show_left_out(console, study)
    make(place)
    written = [*writing.write(place, findings), _write_page(place, findings)]
    console.print(f"Written: {screen.relative(place)}: {', '.join(path.name for path in written)}", soft_wrap=True)


def chosen(study: Study, metrics: Sequence[str] | None) -> Study:
    """With the scores that were asked for, in that order. Raises ConfigError for one that no run has."""
    if not metrics:
        return study
    kept: dict[str, bool | None] = {}
    for name in metrics:
        matching = [key for key in study.metrics if name in (key, key.partition("/")[2])]
        if not matching:
            options = dict.fromkeys([*study.metrics, *(key.partition("/")[2] for key in study.metrics)])
            raise unknown("--metric", name, options)
        kept |= {key: study.metrics[key] for key in matching}
    return replace(study, metrics=kept)


def found(study: Study, baseline: str | None) -> Findings:
    """Everything that is computed of a study. Raises ConfigError for a baseline that it does not have."""
    from onn_runner.study import comparing, statistics
    from onn_runner.study.writing import Findings

    summaries = statistics.summaries(study)
    study = statistics.best_first(study, summaries)
    against = comparing.baseline_of(study, baseline)
    return Findings(
        study=study,
        baseline=against.label,
        summaries=summaries,
        comparisons=comparing.comparisons(study, against),
        costs=tuple(map(statistics.costs, study.methods)),
    )


def _show_left_out(console: Console, study: Study) -> None:
    """Without the commands, for which a terminal has no room."""
    from onn_runner.report import screen
    from onn_runner.study.tables import left_out_table

    table = left_out_table(study)
    if table is not None:
        rows = [row[:-1] for row in table.rows]
        screen.show_rows(console, table.title, table.headings[:-1], rows, notes=table.notes, left=(0, 1, 2))


def _write_page(place: Path, findings: Findings) -> Path:
    from onn_runner import storage
    from onn_runner.study.page import page

    content = page(findings.study, findings.summaries, findings.comparisons, findings.costs, baseline=findings.baseline)
    storage.write_text(place / PAGE, content)
    return place / PAGE
