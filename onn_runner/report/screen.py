"""What a person sees at the start and at the end of a run: layers, data, folds, the final table, where things are."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from rich import box
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from onn_runner import terminal
from onn_runner.report.table import Table

PLAIN_WIDTH = 180


def console(stream: TextIO | None = None) -> Console:
    """A console as wide as the terminal; 180 columns and no colour without one, so that tables are never cut."""
    stream = stream or sys.stdout
    if stream.isatty():
        return terminal.console(file=stream, highlight=False)
    return terminal.console(file=stream, highlight=False, width=PLAIN_WIDTH, no_color=True)


def show_rows(
    out: Console,
    title: str,
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    sections: Sequence[int] = (),
    notes: Sequence[str] = (),
    left: Sequence[int] = (0,),
) -> None:
    """A table with the columns `left` of words and the others of figures, to the right."""
    out.print(Text(title, style="bold"))
    grid = RichTable(box=box.SIMPLE_HEAD, pad_edge=False)
    for position, heading in enumerate(headings):
        grid.add_column(Text(heading), justify="left" if position in left else "right", overflow="fold")
    for position, row in enumerate(rows):
        grid.add_row(*(Text(cell) for cell in row), end_section=position + 1 in sections)
    out.print(grid)
    for note in notes:
        out.print(Text(f"  {note}"))


def show_table(out: Console, table: Table, *, left: Sequence[int] = (0,)) -> None:
    """The final table of a run; in a narrow terminal the columns that matter least are left out, and that is said.

    `left`: those of the first three that hold words.
    """
    kept = fitting(table, out.width)
    notes = list(table.notes)
    if len(kept) < len(table.headings):
        left_out = [heading for position, heading in enumerate(table.headings) if position not in kept]
        notes.append(f"no room here for {', '.join(left_out)}: table.md has them")
    headings = [table.headings[position] for position in kept]
    rows = [[row[position] for position in kept] for row in table.rows]
    show_rows(out, table.title, headings, rows, sections=table.sections, notes=notes, left=left)


def fitting(table: Table, width: int) -> list[int]:
    """Positions of the columns that fit: the first three always, then whole originals, then the rest from the left."""
    gap = 3
    sizes = [
        max(len(row[position]) for row in (table.headings, *table.rows)) + gap
        for position in range(len(table.headings))
    ]
    order = sorted(range(3, len(sizes)), key=lambda position: not table.headings[position].startswith("whole"))
    kept = list(range(min(3, len(sizes))))
    for position in order:
        if sum(sizes[p] for p in [*kept, position]) <= width:
            kept.append(position)
    return sorted(kept)


def show_places(out: Console, folder: Path, *, monitor: str, twin: bool = False, pictures: bool = False) -> None:
    """Where the checkpoints are, those of a twin too, and how to open TensorBoard."""
    shown = relative(folder)
    below = f"; the baseline's in fold_*{os.sep}baseline" if twin else ""
    drawn = f"Pictures:     {shown}{os.sep}pictures{os.sep}learning_curves.png, fold_*{os.sep}pictures"
    lines = (
        f"Checkpoints:  {shown}{os.sep}fold_*{os.sep}best.pt (best epoch by {monitor}), last.pt{below}",
        f"Results:      {shown}{os.sep}results.json, table.md, metrics.csv, test_items.csv",
        *([drawn] if pictures else []),
        f"TensorBoard:  tensorboard --logdir {quoted(shown)}",
    )
    for line in lines:
        out.print(Text(line), soft_wrap=True)


def relative(folder: Path) -> str:
    """The path from the working directory where it lies below it, else the whole one."""
    try:
        return str(folder.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(folder)


def quoted(text: str) -> str:
    """`text` as one word of a shell."""
    return shlex.quote(text)
