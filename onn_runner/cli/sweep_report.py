"""The end of a sweep: its jobs, one failure a line, folds joined to whole runs, and the table of test scores."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from onn_runner.checks import amount
from onn_runner.cli import job, sweep_folder
from onn_runner.errors import OnnRunnerError
from onn_runner.plain import printable
from onn_runner.report import screen


def show(where: Path, *, names: Sequence[str] | None = None, searching: bool = False) -> int:
    """The worst exit code of the jobs: interrupted, then failed, then refused.

    `names`: of the command's jobs; None: all that are there. `searching`: a training that diverges is an answer, not a
    failure.
    """
    every = job.records(where)
    records = [record for record in every if names is None or record.folder.name in set(names)]
    dry = not (where / sweep_folder.LOCK).exists()
    _list(records, where, planned=len(records if names is None else names), dry=dry)
    if len(every) > len(records):
        others = amount(len(every) - len(records), "job")
        print(f"  and {others} of other commands in this folder: onn status {screen.quoted(screen.relative(where))}")
    for record in records:
        if record.error:
            place = "" if dry else f" ({screen.relative(record.folder)})"
            print(f"onn-run: {record.folder.name} {record.status}: {printable(record.error)}{place}", file=sys.stderr)
    codes = {0 if searching and job.diverged(record.folder) else record.exit_code for record in records}
    code = next((code for code in (130, 1, 2) if code in codes), max(codes, default=0))
    if code != 130 and not dry and not searching:
        _tell_scores(where)
    return code


def _list(records: list[job.Record], where: Path, *, planned: int, dry: bool) -> None:
    """Every job with its score and what it does not share with all others."""
    plan = sweep_folder.read(where)
    shared = () if plan is None else plan.constants
    begun = "" if len(records) == planned else f", {len(records)} of them begun"
    print(f"\n{'sweep' if dry else f'sweep {screen.relative(where)}'}: {amount(planned, 'job')}{begun}")
    if shared:
        print(f"  all with {' '.join(shared)}")
    width = max((len(record.status) for record in records), default=0)
    same = {"name", *(text.partition("=")[0] for text in shared)}
    for record in records:
        score = "" if record.score is None else f"{record.score:.4g}"
        own = [text for text in record.overrides if text.partition("=")[0] not in same]
        print(f"  {record.status:<{width}}  {score:>9}  {' '.join(own) or '(defaults)'}")


def _tell_scores(where: Path) -> None:
    """What cannot be joined or read is a line; the sweep's own result stays."""
    from onn_runner.cli.join import join_parts
    from onn_runner.study.tables import sweep_table

    try:
        join_parts(where)
        scores = sweep_table(where)
    except OnnRunnerError as error:
        print(f"onn-run: {error}", file=sys.stderr)
        return
    if scores is not None:
        print()
        screen.show_table(screen.console(), scores)
        print(f"Comparisons, costs, pictures: onn report {screen.quoted(screen.relative(where))}")
