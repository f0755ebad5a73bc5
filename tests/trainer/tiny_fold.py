"""A fold that trains in a fraction of a second: smooth pictures, keyed noise, two convolutions with dropout.

As a script it trains into a folder, with plain lines on stdout: `tiny_fold.py FOLDER [--resume] [--starts N] ...`
"""

from __future__ import annotations

import argparse
import functools
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from onn_runner.data.base import Shape
from onn_runner.errors import OnnRunnerError
from onn_runner.metric.base import ItemMetric
from onn_runner.partition.base import Fold
from onn_runner.seeding import generator
from onn_runner.task.restore import Restore
from onn_runner.trainer import FoldJob, PlainReporter, Settings, StopRequest, train_fold
from onn_runner.trainer.schedule import Cosine


class Pictures(Dataset):
    """Item -> a smooth picture and its noisy copy; the noise is drawn from the key and the item."""

    def __init__(self, indices: Sequence[int], key: tuple[Any, ...], sizes: Sequence[tuple[int, int]]) -> None:
        self.indices, self.key, self.sizes = list(indices), key, list(sizes)

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, position: int) -> dict[str, Any]:
        index, (height, width) = self.indices[position], self.sizes[position]
        rows, columns = torch.arange(height)[:, None] / 8, torch.arange(width)[None] / 8
        target = (0.5 + 0.4 * torch.sin((1 + index % 5) * rows + index) * torch.cos((1 + index % 3) * columns))[None]
        noise = torch.randn(target.shape, generator=generator("noise", *self.key, index))
        return {"input": target + 0.1 * noise, "target": target, "index": index}


class Tiny:
    """24 pictures of three groups; each group has one whole original of its own size."""

    def __init__(self) -> None:
        self.groups = [f"group{index // 8}" for index in range(24)]
        self.names = [f"{group}[{index % 8}]" for index, group in enumerate(self.groups)]
        self.labels = None
        self.shape = Shape((1, 8, 8), (1, 8, 8))
        self.data_range = (0.0, 1.0)

    def __len__(self) -> int:
        return 24

    def training(self, indices: Sequence[int], key: tuple[Any, ...]) -> Dataset:
        return Pictures(indices, key, [(8, 8)] * len(indices))

    def fixed(self, indices: Sequence[int]) -> Dataset:
        return Pictures(indices, ("fixed",), [(8, 8)] * len(indices))

    def whole(self, groups: Sequence[str]) -> Dataset:
        numbers = [int(group[5:]) for group in groups]
        return Pictures(numbers, ("whole",), [(9 + number, 12 - number) for number in numbers])

    def describe(self) -> list[str]:
        return ["24 pictures"]

    def fingerprint(self) -> str:
        return "tiny"


class Psnr(ItemMetric):
    higher_is_better = True

    def score(self, prediction: Tensor, target: Tensor) -> Tensor:
        return -10 * torch.log10((prediction - target).square().flatten(1).mean(1))


class Mae(ItemMetric):
    higher_is_better = False

    def score(self, prediction: Tensor, target: Tensor) -> Tensor:
        return (prediction - target).abs().flatten(1).mean(1)


def metrics() -> dict[str, ItemMetric]:
    return {"psnr": Psnr(), "mae": Mae()}


class Net(nn.Module):
    """Residual, with batch normalisation and dropout: state and randomness that a resumed run must not lose."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Tanh(), nn.Dropout(0.1), nn.Conv2d(4, 1, 3, padding=1)
        )

    def forward(self, x: Tensor) -> Tensor:
        return x - 0.1 * self.layers(x)


class SlowTask(Restore):
    """Waits in every training step, so that a test can hit it."""

    def train_step(self, network: nn.Module, batch: dict[str, Any], step: Any) -> Any:
        time.sleep(PAUSE)
        return super().train_step(network, batch, step)


PAUSE = 0.0
FOLD = Fold(0, tuple(range(14)), (14, 15), tuple(range(16, 24)))


def settings(**changes: Any) -> Settings:
    standard = {"epochs": 3, "batch_size": 4, "eval_batch_size": 3, "device": "cpu", "tensorboard": False}
    return Settings(**{**standard, **changes})


def make_job(folder: Path, *, seed: int = 0, **changes: Any) -> FoldJob:
    """`changes` are fields of the job, or else settings."""
    names = {"fold", "source", "task", "build_network", "build_optimizer", "build_scheduler", "build_metrics", "config"}
    fields = {name: changes.pop(name) for name in names & set(changes)}
    standard: dict[str, Any] = {
        "fold": FOLD,
        "source": Tiny(),
        "task": Restore(),
        "build_network": Net,
        "build_optimizer": functools.partial(torch.optim.Adam, lr=0.02),
        "build_scheduler": Cosine(),
        "build_metrics": metrics,
        "config": {"seed": seed},
    }
    return FoldJob(folder=folder, seed=seed, settings=settings(**changes), **{**standard, **fields})


def main() -> int:
    global PAUSE
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--starts", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--pause", type=float, default=0.0)
    arguments = parser.parse_args()
    PAUSE = arguments.pause
    changes = {name: getattr(arguments, name) for name in ("starts", "epochs", "workers")}
    job = make_job(arguments.folder, task=SlowTask(), keep_best=["val/mae"], **changes)
    with StopRequest().install() as stop, PlainReporter(sys.stdout, interval=0.0) as reporter:
        try:
            train_fold(job, reporter=reporter, stop=stop, resume=arguments.resume)
        except OnnRunnerError as error:
            print(error, flush=True)
            return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
