"""metrics.csv and test_items.csv of a fold: tidy tables, whole after any interruption."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from torch import Tensor

from onn_runner import storage
from onn_runner.trainer.result import StartResult

METRICS = "metrics.csv"
ITEMS = "test_items.csv"
METRICS_HEADER = ("fold", "start", "epoch", "split", "metric", "value")
ITEMS_HEADER = ("fold", "start", "item", "split", "metric", "value")
Row = tuple[int | str, ...]


def epoch_rows(fold: int, start: int, values: Mapping[str, float]) -> list[Row]:
    """One epoch's row of the history, tidy."""
    epoch = int(values["epoch"])
    return [(fold, start, epoch, *_split(key), repr(value)) for key, value in values.items() if key != "epoch"]


def test_rows(fold: int, result: StartResult) -> list[Row]:
    """A finished start's test scores, under its best epoch."""
    epoch = result.best_epoch or 0
    return [(fold, result.start, epoch, *_split(key), repr(value)) for key, value in result.test.items()]


def rewrite_metrics(folder: Path, rows: Iterable[Row]) -> None:
    """The whole table anew: what was added after the last checkpoint falls away, nothing is doubled."""
    storage.write(folder / METRICS, _text([METRICS_HEADER, *rows]).encode())


def append_metrics(folder: Path, rows: Iterable[Row]) -> None:
    path = folder / METRICS
    try:
        with path.open("a", encoding="utf-8", newline="") as file:
            file.write(_text(rows))
    except OSError as error:
        raise storage.failure(path, error) from error


def item_rows(fold: int, start: int, names: Sequence[str], items: Mapping[str, Tensor]) -> list[Row]:
    """One row per item and metric; an empty value where a score is not defined."""
    return [
        (fold, start, name, *_split(key), "" if value != value else repr(value))
        for key, values in items.items()
        for name, value in zip(names, values.tolist(), strict=True)
    ]


def write_items(folder: Path, rows: Iterable[Row]) -> None:
    storage.write(folder / ITEMS, _text([ITEMS_HEADER, *rows]).encode())


def drop_items(folder: Path) -> None:
    """What an earlier training was scored, where going on with more epochs diverged: it is no longer the result."""
    storage.remove(folder / ITEMS)


def _split(key: str) -> tuple[str, str]:
    split, _, metric = key.partition("/")
    return split, metric


def _text(rows: Iterable[Row]) -> str:
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows(rows)
    return buffer.getvalue()
