"""Consoles that show the texts of files as texts: names and values in them cannot steer the terminal."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderHook
from rich.segment import Segment

from onn_runner.plain import printable


class _Guard(RenderHook):
    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        return [_Guarded(one) for one in renderables]


@dataclass(frozen=True)
class _Guarded:
    """The same picture; colours are put in afterwards, by rich."""

    shown: Any

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        for text, style, control in console.render(self.shown, options):
            yield Segment(text if control else printable(text), style, control)


def console(**options: Any) -> Console:
    """rich's Console, with its options."""
    made = Console(**options)
    made.push_render_hook(_Guard())
    return made
