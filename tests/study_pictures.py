"""What the folds of a synthetic run keep beside its tables: the epochs of training, items with outputs, confusions."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from onn_runner.report import results as reporting
from onn_runner.report.kept import FILE, Kept, places, reduced_item, to_bytes

CLASSES = ("zero", "one", "two & three")


def fold_folders(run: Path) -> list[tuple[int, list[int], Path]]:
    """(the fold's number, its test items, its folder) of every fold of the run's split."""
    split = json.loads((run / "split.json").read_text(encoding="utf-8"))
    return [(fold["index"], fold["test"], run / f"fold_{fold['index']:02d}") for fold in split["folds"]]


def write_epochs(run: Path, *, epochs: int = 3, level: float = 20.0, seed: int = 0) -> None:
    """metrics.csv of each fold: a PSNR that rises to `level`, a loss that falls."""
    for number, _, folder in fold_folders(run):
        chance = np.random.default_rng([seed, number])
        rows = []
        for epoch in range(1, epochs + 1):
            psnr = level - 5 / epoch + number / 4 + chance.normal(0, 0.05)
            rows.append((number, 0, epoch, "train", "loss", 10 ** (-psnr / 10)))
            rows.append((number, 0, epoch, "val", "psnr", psnr))
        folder.mkdir(exist_ok=True)
        reporting.write_table(folder / "metrics.csv", reporting.TABLES["metrics.csv"], rows)


def write_kept(run: Path, *, noise: float = 0.1, seed: int = 0, shape: tuple[int, ...] = (1, 12, 16)) -> None:
    """kept.npz of each fold: items whose inputs and targets are the same in every run, outputs with noise."""
    names = json.loads((run / "split.json").read_text(encoding="utf-8"))["names"]
    for number, test, folder in fold_folders(run):
        items = []
        for place in places(len(test)):
            data, chance = np.random.default_rng([9, number, place]), np.random.default_rng([seed, number, place])
            target = data.random(shape, np.float32)
            given = target + data.normal(0, 0.3, shape).astype(np.float32)
            output = target + chance.normal(0, noise, shape).astype(np.float32)
            items.append(reduced_item(names[test[place]], place, given, output, target, data_range=(0.0, 1.0)))
        _write(folder, Kept("test", tuple(items)))


def write_confusions(run: Path, *, right: float = 0.6, seed: int = 0) -> None:
    """kept.npz of each fold of a run with classes."""
    for number, _, folder in fold_folders(run):
        chance = np.random.default_rng([seed, number])
        counts = chance.multinomial(20, [right, (1 - right) / 2, (1 - right) / 2], size=len(CLASSES))
        rolled = np.array([np.roll(row, place) for place, row in enumerate(counts)], np.int64)
        _write(folder, Kept("test", (), CLASSES, rolled, overflowing=1))


def _write(folder: Path, kept: Kept) -> None:
    (folder / "pictures").mkdir(parents=True, exist_ok=True)
    (folder / "pictures" / FILE).write_bytes(to_bytes(kept))
