"""A study as one self-contained HTML page: tables, curves, boxes, images, costs, failures and commands.

Everything that comes from folders is text of unknown origin and escaped; the page loads nothing, and its policy
allows no script but its own.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from importlib import resources
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from onn_runner.report.figures_study_base import clean
from onn_runner.study import page_figures, page_images, page_runs, page_tables
from onn_runner.study.page_view import view as viewed
from onn_runner.study.records import Comparison, Costs, Study, Summary
from onn_runner.study.wording import comparison_notes, score_notes

TEMPLATE, STYLE, SCRIPT = "page.html.jinja", "page.css", "page.js"
MOST_NAMES = 3
"""Of folders in the title."""


def page(
    study: Study,
    summaries: Sequence[Summary],
    comparisons: Sequence[Comparison],
    costs: Sequence[Costs],
    *,
    baseline: str | None,
    title: str = "",
) -> str:
    """The HTML; `baseline`: the label of the method that the others are compared with."""
    view = viewed(study, summaries, comparisons, costs, baseline=baseline)
    script = _file(SCRIPT)
    curves, without_curves = page_figures.curves(view)
    strips, trouble = page_images.strips(view)
    confusions, more_trouble = page_images.confusions(view)
    return _environment().from_string(_file(TEMPLATE)).render(
        title=title or named(study),
        style=Markup(_file(STYLE)),
        script=Markup(script),
        script_digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        view=view,
        facts=page_runs.facts(view),
        study_notes=study.notes,
        score_notes=[note for note in score_notes(study, summaries, intervals=True) if note not in study.notes],
        comparison_notes=comparison_notes(study, comparisons),
        scores=page_tables.score_tables(view),
        costs=page_tables.cost_table(view),
        comparisons=page_tables.comparison_tables(view),
        forest=page_figures.forest(view),
        curves=curves,
        without_curves=without_curves,
        boxes=page_figures.boxes(view),
        trade_offs=page_figures.trade_offs(view),
        strips=strips,
        confusions=confusions,
        picture_trouble=list(dict.fromkeys([*trouble, *more_trouble])),
        runs=page_runs.run_lines(view),
        failures=page_runs.failure_lines(view),
        provenance=page_runs.provenance(view),
    )  # fmt: skip


def named(study: Study) -> str:
    """`Study of depth`, after the folder of its runs; `Study of depth, width` of several."""
    runs = [run for method in study.methods for run in method.runs] + list(study.failures)
    names = list(dict.fromkeys((run.sweep or run.folder.parent).name for run in runs))
    shown = ", ".join(names[:MOST_NAMES]) + (f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else "")
    return f"Study of {shown}" if any(names) else "Study"


def _file(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def _environment() -> Environment:
    """Every value is escaped, and one that the template names and nobody gives is an error."""

    def plain(value: Any) -> Any:
        if isinstance(value, Markup) or not isinstance(value, str):
            return value
        return clean(value)

    environment = Environment(
        autoescape=True, undefined=StrictUndefined, finalize=plain, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["svg"] = Markup
    return environment
