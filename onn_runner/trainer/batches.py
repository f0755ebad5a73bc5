"""Batches: the items of one epoch in keyed order, or of a fixed part in its own order."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, default_collate

from onn_runner.errors import Interrupted
from onn_runner.seeding import Part, generator
from onn_runner.trainer.interrupt import StopRequest
from onn_runner.trainer.settings import Settings

Batch = dict[str, Any]


@dataclass(frozen=True)
class Turn:
    """A batch's place among the batches that share one update of the weights."""

    first: bool = True
    last: bool = True
    share: float = 1.0
    """Its items as a part of all items of these batches."""


def turns(order: Sequence[Sequence[int]], accumulate: int) -> list[Turn]:
    """`accumulate` batches an update; the last ones of an epoch may be fewer."""
    found = []
    for begin in range(0, len(order), accumulate):
        group = order[begin : begin + accumulate]
        total = sum(map(len, group))
        for number, batch in enumerate(group):
            found.append(Turn(number == 0, number == len(group) - 1, len(batch) / total))
    return found


def shuffled(count: int, size: int, key: tuple[Part, ...]) -> list[list[int]]:
    """Positions 0..count-1 in an order that the key alone decides, in batches; the last may be smaller."""
    order = torch.randperm(count, generator=generator("order", *key)).tolist()
    return [order[first : first + size] for first in range(0, count, size)]


def order(count: int, settings: Settings, key: tuple[Part, ...]) -> list[list[int]]:
    """The training batches of an epoch."""
    if settings.shuffle:
        return shuffled(count, settings.batch_size, key)
    return in_order(count, settings.batch_size)


def in_order(count: int, size: int) -> list[list[int]]:
    return [list(range(first, min(first + size, count))) for first in range(0, count, size)]


def load(
    dataset: Dataset[Any], batches: Sequence[list[int]], *, device: torch.device, stop: StopRequest, workers: int = 0
) -> Iterator[Batch]:
    """The batches, on the device. Raises Interrupted where the signal that asks to stop has ended a worker."""
    loader: DataLoader[Any] = DataLoader(
        dataset,
        batch_sampler=batches,
        num_workers=min(workers, len(batches)),
        pin_memory=device.type == "cuda",
        # The loader draws a seed for its workers; not from the generator that dropout uses.
        generator=torch.Generator().manual_seed(0),
        worker_init_fn=_ignore_signals,
    )
    for batch in _until_stopped(loader, stop):
        yield move(batch, device)


def _until_stopped(loader: DataLoader[Any], stop: StopRequest) -> Iterator[Batch]:
    """What the loader gives; the errors that are looked at here are its own, not those of whoever takes the batches."""
    try:
        yield from loader
    except RuntimeError as error:
        # A worker that had not come to ignore the signal yet.
        if stop.requested:
            raise Interrupted(f"stopped by {stop.reason}") from error
        raise


def collate(dataset: Dataset[Any], positions: Sequence[int], device: torch.device) -> Batch:
    """One batch of chosen items."""
    return move(default_collate([dataset[position] for position in positions]), device)


def move(batch: Batch, device: torch.device) -> Batch:
    if device.type == "cpu":
        return batch
    moved = {key: value.to(device, non_blocking=True) for key, value in batch.items() if isinstance(value, Tensor)}
    return batch | moved


def _ignore_signals(worker: int) -> None:
    """Ctrl-C, and SIGTERM to a process group, reach every process; the trainer alone answers and ends its workers.

    Where the trainer is killed, workers notice within seconds and end by themselves.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
