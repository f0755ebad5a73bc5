"""What the reader sees while folds train: bars on a terminal, a few plain lines elsewhere, nothing in workers."""

from __future__ import annotations

import contextlib
import sys
import time
import warnings
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, Protocol, Self, TextIO

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from onn_runner import terminal
from onn_runner.plain import printable
from onn_runner.trainer.result import FoldResult, StartResult

Kind = type[BaseException] | None
HIDDEN = ("train/learning_rate", "train/gradient_norm")


class Reporter(Protocol):
    """A context manager: Python's warnings are collected inside it, and printed once each at its end."""

    def __enter__(self) -> Self: ...

    def __exit__(self, kind: Kind, error: BaseException | None, at: TracebackType | None) -> None: ...

    def run_started(self, folds: int, starts: int, epochs: int) -> None:
        """Once, before the first fold: how much there is to do."""

    def fold_started(self, fold: int) -> None: ...

    def start_started(self, fold: int, start: int, epoch: int) -> None:
        """`epoch` epochs are done already."""

    def step_done(self, step: int, steps: int) -> None: ...

    def epoch_done(self, fold: int, start: int, epoch: int, values: Mapping[str, float], *, is_best: bool) -> None: ...

    def start_done(self, fold: int, result: StartResult) -> None: ...

    def fold_done(self, result: FoldResult) -> None: ...

    def note(self, text: str) -> None:
        """Shown at once."""

    def warn(self, text: str) -> None:
        """Shown at the end."""


class QuietReporter:
    """Shows nothing; the warnings are kept in `warnings`. The base of the others."""

    def __init__(self) -> None:
        self.subject = ""
        self.warnings: list[str] = []
        self._catching = warnings.catch_warnings()

    def __enter__(self) -> Self:
        self._catching = warnings.catch_warnings()
        self._catching.__enter__()
        warnings.showwarning = self._collect  # type: ignore[assignment]
        return self

    def __exit__(self, kind: Kind, error: BaseException | None, at: TracebackType | None) -> None:
        self._catching.__exit__(kind, error, at)
        self.close()

    def close(self) -> None:
        """Called at the end, to show what was collected."""

    @contextlib.contextmanager
    def training(self, subject: str) -> Iterator[None]:
        """Inside, folds and warnings are told as those of `subject`: the baseline that is trained beside the model."""
        self.subject = f"{subject}, "
        try:
            yield
        finally:
            self.subject = ""

    def run_started(self, folds: int, starts: int, epochs: int) -> None:
        pass

    def fold_started(self, fold: int) -> None:
        pass

    def start_started(self, fold: int, start: int, epoch: int) -> None:
        pass

    def step_done(self, step: int, steps: int) -> None:
        pass

    def epoch_done(self, fold: int, start: int, epoch: int, values: Mapping[str, float], *, is_best: bool) -> None:
        pass

    def start_done(self, fold: int, result: StartResult) -> None:
        pass

    def fold_done(self, result: FoldResult) -> None:
        pass

    def note(self, text: str) -> None:
        pass

    def warn(self, text: str) -> None:
        self._keep(f"{self.subject}{text}")

    def _keep(self, text: str) -> None:
        if text not in self.warnings:
            self.warnings.append(text)

    def _collect(self, message: Any, category: type[Warning], filename: str, lineno: int, *rest: Any) -> None:
        self._keep(f"{category.__name__}: {message}")


class PlainReporter(QuietReporter):
    """A line per epoch, but at most one every `interval` seconds; the first and last epoch of a start always."""

    def __init__(self, stream: TextIO | None = None, *, interval: float = 2.0) -> None:
        super().__init__()
        self.stream = stream if stream is not None else sys.stderr
        self.interval = interval
        self.folds, self.starts, self.epochs = 1, 1, 0
        self.done = self.folds_done = 0
        self.began = time.monotonic()
        self.began_at: int | None = None
        self.first = 0
        self.shown = -interval
        # Seconds of epochs, and of all else (tests, baselines, pictures) in the folds that this run has finished.
        self.since = self.trained = self.rest = 0.0
        self.here = 0

    def run_started(self, folds: int, starts: int, epochs: int) -> None:
        self.folds, self.starts, self.epochs = folds, starts, epochs
        self.began = time.monotonic()

    def fold_started(self, fold: int) -> None:
        if self.began_at is not None:
            self.here += 1
            self.rest = time.monotonic() - self.began - self.trained

    def start_started(self, fold: int, start: int, epoch: int) -> None:
        # Epochs of an earlier run count as done, but tell nothing about the time that is left.
        self.done = (self.folds_done * self.starts + start) * self.epochs + epoch
        self.first = epoch + 1
        if self.began_at is None:
            self.began_at = self.done
            self.began = time.monotonic()
        self.since = time.monotonic()

    def epoch_done(self, fold: int, start: int, epoch: int, values: Mapping[str, float], *, is_best: bool) -> None:
        now = self._count_epoch()
        if now - self.shown >= self.interval or epoch in (self.first, self.epochs):
            self.shown = now
            where = self._where(fold, start) + f", epoch {epoch}/{self.epochs or '?'}"
            self._line(f"{where}: {describe(values)}{' (best)' if is_best else ''}{self._left()}")

    def start_done(self, fold: int, result: StartResult) -> None:
        if result.diverged is not None:
            self._line(f"{self._where(fold, result.start)} DIVERGED: {result.diverged}")
        elif self.starts > 1 or result.stopped_early:
            early = ", stopped early" if result.stopped_early else ""
            where = self._where(fold, result.start)
            self._line(f"{where}: best epoch {result.best_epoch} of {result.epochs_run}{early}")

    def fold_done(self, result: FoldResult) -> None:
        self.folds_done += 1
        best = result.best
        scores = f"best epoch {best.best_epoch}, {describe(best.test)}" if best else "no start finished"
        self._line(f"{self.subject}fold {result.fold} {result.status} ({self.folds_done} of {self.folds}): {scores}")

    def note(self, text: str) -> None:
        self._line(text)

    def close(self) -> None:
        for text in self.warnings:
            self._line(f"warning: {text}")

    def _where(self, fold: int, start: int) -> str:
        return f"{self.subject}fold {fold}" + (f", start {start}" if self.starts > 1 else "")

    def _count_epoch(self) -> float:
        """The time, after one more epoch."""
        now = time.monotonic()
        self.done += 1
        self.trained, self.since = self.trained + now - self.since, now
        return now

    def _left(self) -> str:
        """What the epochs take that are left, and what else the folds take, which is known once one is finished."""
        epochs, total = self.done - (self.began_at or 0), self.folds * self.starts * self.epochs
        if epochs <= 0 or self.done >= total:
            return ""
        seconds = self.trained / epochs * (total - self.done)
        if not self.here:
            return f", {clock(seconds)} of training left"
        return f", {clock(seconds + self.rest / self.here * (self.folds - self.folds_done))} left"

    def _line(self, text: str) -> None:
        print(printable(text), file=self.stream, flush=True)


class RichReporter(PlainReporter):
    """Bars for folds, starts and steps, with the newest values and the time left."""

    def __init__(self, stream: TextIO | None = None) -> None:
        super().__init__(stream)
        self.console = terminal.console(file=self.stream)
        self.bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[values]}"),
            console=self.console,
            refresh_per_second=4,
        )
        self.tasks: dict[str, TaskID] = {}
        self.stepped = 0.0

    def __enter__(self) -> Self:
        self.bars.start()
        return super().__enter__()

    def run_started(self, folds: int, starts: int, epochs: int) -> None:
        super().run_started(folds, starts, epochs)
        totals = {"folds": folds, **({"starts": starts} if starts > 1 else {}), "epochs": epochs, "steps": None}
        for name, total in totals.items():
            self.tasks[name] = self.bars.add_task(name, total=total, values="")

    def start_started(self, fold: int, start: int, epoch: int) -> None:
        super().start_started(fold, start, epoch)
        self._show("folds", values=f"{self.subject}fold {fold}")
        self._show("starts", completed=start)
        self._show("epochs", completed=epoch, values="")

    def step_done(self, step: int, steps: int) -> None:
        now = time.monotonic()
        if now - self.stepped > 0.1:
            self.stepped = now
            self._show("steps", completed=step, total=steps)

    def epoch_done(self, fold: int, start: int, epoch: int, values: Mapping[str, float], *, is_best: bool) -> None:
        self._count_epoch()
        text = f"{describe(values)}{' (best)' if is_best else ''}{self._left()}"
        self._show("epochs", completed=epoch, values=text)

    def fold_done(self, result: FoldResult) -> None:
        super().fold_done(result)
        self._show("folds", completed=self.folds_done)

    def close(self) -> None:
        self.bars.stop()
        super().close()

    def _show(self, name: str, **fields: Any) -> None:
        if name in self.tasks:
            self.bars.update(self.tasks[name], **fields)

    def _line(self, text: str) -> None:
        self.console.print(text, markup=False, highlight=False)


def make_reporter(stream: TextIO | None = None) -> PlainReporter:
    """Bars where the stream is a terminal that can draw them, plain lines elsewhere."""
    chosen = stream if stream is not None else sys.stderr
    console = terminal.console(file=chosen)
    return RichReporter(chosen) if console.is_terminal and not console.is_dumb_terminal else PlainReporter(chosen)


def describe(values: Mapping[str, float]) -> str:
    """`train/loss 0.0021, val/psnr 28.41`"""
    return ", ".join(f"{key} {value:.4g}" for key, value in values.items() if key not in HIDDEN)


def clock(seconds: float) -> str:
    """`2:05` or `1:02:05`"""
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02d}:{second:02d}" if hours else f"{minute}:{second:02d}"
