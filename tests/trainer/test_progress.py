"""What the reader sees: plain lines in moderate number, bars on a terminal, warnings once and at the end."""

import io
import warnings
from pathlib import Path

import pytest
from rich.console import Console
from tiny_fold import make_job

from onn_runner.trainer import (
    Divergence,
    FoldResult,
    PlainReporter,
    QuietReporter,
    RichReporter,
    StartResult,
    StopRequest,
    make_reporter,
    train_fold,
)
from onn_runner.trainer.progress import clock, describe


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_plain_lines(tmp_path: Path) -> None:
    stream = io.StringIO()
    with PlainReporter(stream, interval=0.0) as reporter:
        reporter.run_started(folds=1, starts=1, epochs=3)
        train_fold(make_job(tmp_path), reporter=reporter, stop=StopRequest())
    lines = stream.getvalue().splitlines()
    assert len(lines) == 4
    assert lines[0].startswith("fold 0, epoch 1/3: train/loss 0.0")
    assert lines[0].endswith(" of training left")
    assert " (best)" in lines[0]
    assert "left" not in lines[2]
    assert lines[3].startswith("fold 0 done (1 of 1): best epoch 3, test/loss 0.0")


def test_plain_lines_are_moderate_in_number() -> None:
    stream = io.StringIO()
    reporter = PlainReporter(stream, interval=3600.0)
    reporter.run_started(folds=2, starts=1, epochs=500)
    for fold in range(2):
        reporter.start_started(fold, 0, 0)
        for epoch in range(1, 501):
            reporter.epoch_done(fold, 0, epoch, {"val/psnr": 30.0}, is_best=False)
        reporter.fold_done(FoldResult(fold=fold, status="done", monitor="val/psnr"))
    assert len(stream.getvalue().splitlines()) == 2 * 3


def test_time_left_counts_what_this_run_has_done(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("onn_runner.trainer.progress.time.monotonic", lambda: now[0])
    stream = io.StringIO()
    reporter = PlainReporter(stream, interval=0.0)
    reporter.run_started(folds=3, starts=1, epochs=10)
    reporter.fold_started(0)
    reporter.start_started(0, 0, 8)
    for epoch in (9, 10):
        now[0] += 3.0
        reporter.epoch_done(0, 0, epoch, {}, is_best=False)
    now[0] += 5.0
    reporter.fold_done(FoldResult(fold=0, status="done", monitor="val/psnr"))
    now[0] += 2.0
    reporter.fold_started(1)
    reporter.start_started(1, 0, 0)
    now[0] += 3.0
    reporter.epoch_done(1, 0, 1, {}, is_best=False)
    left = [line.rsplit(", ", 1)[1] for line in stream.getvalue().splitlines() if "left" in line]
    # Three seconds an epoch, 19 left; the first fold took 7 besides, and two folds have that to come.
    assert left == ["1:03 of training left", "1:00 of training left", "1:11 left"]


def test_starts_and_divergence_are_told() -> None:
    stream = io.StringIO()
    reporter = PlainReporter(stream)
    reporter.run_started(folds=1, starts=2, epochs=9)
    found = Divergence(2, 3, "layers.1 (Conv2d)", "train/loss is nan")
    reporter.start_done(0, StartResult(start=0, status="diverged", epochs_run=1, diverged=found))
    reporter.start_done(0, StartResult(start=1, status="done", epochs_run=5, best_epoch=3, stopped_early=True))
    assert stream.getvalue().splitlines() == [
        "fold 0, start 0 DIVERGED: train/loss is nan at epoch 2, step 3; first in layers.1 (Conv2d)",
        "fold 0, start 1: best epoch 3 of 5, stopped early",
    ]


@pytest.mark.parametrize("kind", [PlainReporter, RichReporter])
def test_warnings_are_collected_once_and_printed_at_the_end(kind: type[PlainReporter]) -> None:
    stream = io.StringIO()
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        with kind(stream) as reporter:
            for _ in range(3):
                warnings.warn("the sea is rough", RuntimeWarning, stacklevel=1)
            reporter.warn("an older state was used.")
            reporter.note("now")
            assert "rough" not in stream.getvalue()
    lines = [line.strip() for line in stream.getvalue().splitlines() if line.strip()]
    assert [line for line in lines if line.startswith("warning")] == [
        "warning: RuntimeWarning: the sea is rough",
        "warning: an older state was used.",
    ]


def test_warnings_are_printed_after_a_failure_too() -> None:
    stream = io.StringIO()
    reporter = PlainReporter(stream)
    reporter.warn("look here")
    with pytest.raises(KeyError), reporter:
        raise KeyError("lost")
    assert stream.getvalue() == "warning: look here\n"


def test_quiet_keeps_its_warnings() -> None:
    with QuietReporter() as reporter:
        reporter.warn("one")
    assert reporter.warnings == ["one"]


def test_stream_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    assert type(make_reporter(Terminal())) is RichReporter
    assert type(make_reporter(io.StringIO())) is PlainReporter
    monkeypatch.setenv("TERM", "dumb")
    assert type(make_reporter(Terminal())) is PlainReporter


def test_bars_show_folds_epochs_and_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    stream = Terminal()
    reporter = RichReporter(stream)
    reporter.console = reporter.bars.live.console = Console(file=stream, width=160, force_terminal=True)
    with reporter:
        reporter.run_started(folds=2, starts=2, epochs=1)
        train_fold(make_job(tmp_path, starts=2, epochs=1), reporter=reporter, stop=StopRequest())
        table = Console(width=200, file=io.StringIO())
        table.print(reporter.bars.get_renderable())
        shown = table.file.getvalue()  # type: ignore[attr-defined]
    assert [line.split()[0] for line in shown.splitlines()] == ["folds", "starts", "epochs", "steps"]
    assert "1/2" in shown
    assert "val/psnr" in shown
    assert "fold 0 done (1 of 2)" in stream.getvalue()


def test_words() -> None:
    assert [clock(seconds) for seconds in (0.4, 59.6, 125, 3725)] == ["0:00", "1:00", "2:05", "1:02:05"]
    assert describe({"val/psnr": 28.4149, "train/learning_rate": 0.1}) == "val/psnr 28.41"
