"""What `onn status` shows: a table of jobs for each sweep, one of folds for a single run, failures with reasons."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from rich import box
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from onn_runner.report import screen
from onn_runner.study.progress import (
    FAILED,
    FINISHED,
    KILLED,
    PRUNED,
    RUNNING,
    STOPPED,
    WAITING,
    WRONG,
    FoldProgress,
    RunProgress,
)
from onn_runner.study.sweep_progress import Look, SweepProgress

STYLES = {
    RUNNING: "cyan",
    FAILED: "bold red",
    KILLED: "bold red",
    STOPPED: "yellow",
    FINISHED: "green",
    PRUNED: "dim",
    WAITING: "dim",
    "done": "green",
    "diverged": "bold red",
    "interrupted": "yellow",
}
"""By importance: where there is no room for all jobs, the last ones are left out first."""
AROUND, FEW = 10, 3
"""Lines of a table that are no rows: its title, heading, rules and what is said below; reasons where lines are few."""


def show(found: Look, *, most: int | None = None, rows: int | None = None) -> Iterator[RenderableType]:
    """Title, table and failures of each sweep and of the runs.

    `most`: of the rows of a table, the rest is counted; `rows`: lines of the terminal, in which all must have room.
    """
    if rows is not None:
        most = max(3, rows - AROUND)
    for sweep in found.sweeps:
        yield Text(_headline(sweep), style="bold")
        names = [printable(job.name) for job in sweep.jobs]
        yield from _table(sweep.jobs, most, names=names, monitor=sweep.monitor, narrow=rows is not None)
    if len(found.runs) == 1:
        yield from _single(found.runs[0])
    elif found.runs:
        names = [printable(screen.relative(run.folder)) for run in found.runs]
        monitors = {run.monitor for run in found.runs if run.monitor}
        yield from _table(
            found.runs, most, names=names, monitor=monitors.pop() if len(monitors) == 1 else "", narrow=rows is not None
        )


def _headline(sweep: SweepProgress) -> str:
    counts = sweep.counts
    told = [f"{counts[status]} {status}" for status in STYLES if counts[status]]
    told += [f"{sweep.trials_left} trials to come"] if sweep.trials_left else []
    left = "" if sweep.seconds_left is None else f"; about {clock(sweep.seconds_left)} left"
    by = f" ({printable(sweep.launcher)})" if sweep.launcher not in ("", "local") else ""
    jobs = f"{len(sweep.jobs)} job{'' if len(sweep.jobs) == 1 else 's'}"
    return f"{printable(screen.relative(sweep.folder))}: {sweep.status}{by}, {jobs}: {', '.join(told) or 'none'}{left}"


def _table(
    runs: Sequence[RunProgress], most: int | None, *, names: Sequence[str], monitor: str, narrow: bool
) -> Iterator[RenderableType]:
    kept = _chosen(runs, most)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("run", overflow="ellipsis" if narrow else "fold", no_wrap=narrow)
    table.add_column("status", no_wrap=True)
    table.add_column("folds", justify="right", no_wrap=True)
    table.add_column(Text(printable(monitor) or "score"), justify="right", no_wrap=True)
    table.add_column("now at", overflow="ellipsis", no_wrap=True)
    table.add_column("best of it", justify="right", no_wrap=True)
    table.add_column("left", justify="right", no_wrap=True)
    for place in kept:
        run, now = runs[place], runs[place].current
        table.add_row(
            Text(names[place]),
            _status(run.status),
            "" if run.folds is None else f"{run.folds_done}/{run.folds}",
            _number(run.score),
            "" if now is None else Text(_where(now)),
            "" if now is None else _number(now.best),
            "" if run.seconds_left is None or run.status != RUNNING else clock(run.seconds_left),
        )
    yield table
    rest = Counter(run.status for place, run in enumerate(runs) if place not in set(kept))
    if rest:
        yield Text("  not shown: " + ", ".join(f"{rest[status]} {status}" for status in STYLES if rest[status]))
    yield from _failures(runs, FEW if narrow else most, names=names)


def _chosen(runs: Sequence[RunProgress], most: int | None) -> list[int]:
    """The places of those to show, in their order; of equals the newest, but the next ones of those that wait."""
    if most is None or len(runs) <= most:
        return list(range(len(runs)))
    order = list(STYLES)
    ranked = sorted(
        range(len(runs)),
        key=lambda place: (order.index(runs[place].status), place if runs[place].status == WAITING else -place),
    )
    return sorted(ranked[:most])


def _failures(runs: Sequence[RunProgress], most: int | None, *, names: Sequence[str]) -> Iterator[RenderableType]:
    """One line each, the last ones where there are more than `most`."""
    wrong = [(name, run) for name, run in zip(names, runs, strict=True) if run.status in (*WRONG, STOPPED)]
    told = [(name, run) for name, run in wrong if run.reason]
    if most is not None and len(told) > most:
        yield Text(f"  the last {most} of {len(told)} reasons:")
        told = told[-most:]
    for name, run in told:
        yield Text.assemble(("  " + name, "bold"), " ", _status(run.status), f": {printable(run.reason)}")


def _single(run: RunProgress) -> Iterator[RenderableType]:
    """A run fold by fold."""
    folds = "" if run.folds is None else f", {run.folds_done} of {run.folds} folds done"
    score = "" if run.score is None else f", {printable(run.monitor)} {_number(run.score)}"
    left = "" if run.seconds_left is None or run.status != RUNNING else f"; about {clock(run.seconds_left)} left"
    yield Text(f"{printable(screen.relative(run.folder))}: {run.status}{folds}{score}{left}", style="bold")
    if run.parts:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for heading in ("fold", "status", "start", "epoch", f"best {printable(run.monitor)}", "s/epoch"):
            table.add_column(Text(heading), justify="left" if heading in ("fold", "status") else "right")
        for part in run.parts:
            status = part.status
            if status == "running" and run.status != RUNNING:
                status = run.status
            begun = part.status != WAITING
            pace = part.seconds_per_epoch
            table.add_row(
                Text(f"{part.fold}{', ' + printable(part.of) if part.of else ''}"),
                _status(status),
                f"{part.start + 1}/{part.starts}" if begun else "",
                f"{part.epoch}/{part.epochs}" if begun else "",
                _number(part.best),
                "" if pace is None else f"{pace:.3g}",
            )
        yield table
    yield from _failures([run], None, names=[printable(run.name)])


def _where(part: FoldProgress) -> str:
    """fold 2, conv, start 1/3, epoch 14/30"""
    words = [f"fold {part.fold}", *([printable(part.of)] if part.of else [])]
    words += [f"start {part.start + 1}/{part.starts}"] if part.starts > 1 else []
    return ", ".join([*words, f"epoch {part.epoch}/{part.epochs or '?'}"])


def _status(status: str) -> Text:
    return Text(printable(status), style=STYLES.get(status, ""))


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:#.4g}"


def clock(seconds: float) -> str:
    """`0:05`, `1:02:05`, `3 d 4 h`"""
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    if hours >= 48:
        return f"{hours // 24} d {hours % 24} h"
    return f"{hours}:{minute:02d}:{second:02d}" if hours else f"{minute}:{second:02d}"


def printable(text: str) -> str:
    """One line without control characters, which could repaint the terminal, nor halves of characters."""
    return "".join(
        character
        if character.isprintable()
        else character.encode("unicode_escape", "replace").decode("ascii", "replace")
        for character in text
    )
