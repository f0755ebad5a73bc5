"""`onn status`: where runs and sweeps stand, once or for as long as they go on."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from onn_runner.study.files import Files
    from onn_runner.study.sweep_progress import Look

PAUSE = 2.0
"""Seconds between two looks."""
MOST = 200
"""Rows of a table."""


def status(
    folders: Annotated[
        list[str],
        typer.Argument(metavar="FOLDER...", help="Run folders, sweeps (multirun/<name>), or what holds them."),
    ],
    once: Annotated[bool, typer.Option("--once", help="One look, also where something runs.")] = False,
    every: Annotated[bool, typer.Option("--all", help=f"Every job; without it, the {MOST} that matter most.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One look, for programs.")] = False,
) -> None:
    """Where runs and sweeps stand: folds and epochs done, scores, time left, failures. Exit code 1 where one failed."""
    from onn_runner.report import screen
    from onn_runner.study.files import Files
    from onn_runner.study.sweep_progress import look

    paths, files, out = [Path(folder) for folder in folders], Files(), screen.console()
    found = look(paths, files)
    if as_json:
        print(json.dumps(_plain(found), indent=2))
    elif out.is_terminal and not out.is_dumb_terminal and found.running and not once:
        found = _follow(paths, files, out, found)
    else:
        from onn_runner.study.view import show

        for part in show(found, most=None if every else MOST):
            out.print(part, soft_wrap=False)
    raise typer.Exit(1 if found.wrong else 0)


def _follow(paths: Sequence[Path], files: Files, out: Console, found: Look) -> Look:
    """Show what changes until nothing runs any more, or Ctrl-C."""
    from rich.console import Group
    from rich.live import Live

    from onn_runner.errors import ConfigError
    from onn_runner.study.sweep_progress import look
    from onn_runner.study.view import show

    with Live(console=out, auto_refresh=False) as live:
        try:
            while found.running:
                live.update(Group(*show(found, rows=out.height)), refresh=True)
                time.sleep(PAUSE)
                found = look(paths, files)
        except KeyboardInterrupt:
            pass
        except ConfigError:
            # Someone has removed what we were looking at.
            live.update("", refresh=True)
            raise
        live.update(Group(*show(found, most=MOST, rows=out.height if found.running else None)), refresh=True)
    return found


def _plain(value: Any) -> Any:
    """Dataclasses as objects, paths as text; what is derived of a sweep beside it."""
    from onn_runner.study.sweep_progress import SweepProgress

    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        plain = {item.name: _plain(getattr(value, item.name)) for item in dataclasses.fields(value)}
        return {**plain, "counts": dict(value.counts)} if isinstance(value, SweepProgress) else plain
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value
