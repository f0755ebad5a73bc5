"""What a person sees at the start and at the end of a run: layers, data, folds, the final table, where things are."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from rich import box
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from onn_runner.report.table import Table

PLAIN_WIDTH = 180


def console(stream: TextIO | None = None) -> Console:
    """A console as wide as the terminal; 180 columns and no colour without one, so that tables are never cut."""
    stream = stream or sys.stdout
    if stream.isatty():
        return Console(file=stream, highlight=False)
    return Console(file=stream, highlight=False, width=int(os.environ.get("COLUMNS", PLAIN_WIDTH)), no_color=True)


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
    grid = RichTable(title=Text(title), box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False)
    for position, heading in enumerate(headings):
        grid.add_column(Text(heading), justify="left" if position in left else "right", overflow="fold")
    for position, row in enumerate(rows):
        grid.add_row(*(Text(cell) for cell in row), end_section=position + 1 in sections)
    out.print(grid)
    for note in notes:
        out.print(Text(f"  {note}"))


def show_table(out: Console, table: Table) -> None:
    """The final table of a run."""
    show_rows(out, table.title, table.headings, table.rows, sections=table.sections, notes=table.notes)


def show_places(out: Console, folder: Path) -> None:
    """Where the checkpoints are and how to open TensorBoard."""
    shown = relative(folder)
    lines = (
        f"Checkpoints:  {shown}{os.sep}fold_*{os.sep}best.pt (best epoch by validation), last.pt",
        f"Results:      {shown}{os.sep}results.json, table.md, metrics.csv, test_items.csv",
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
    import shlex

    return shlex.quote(text)
