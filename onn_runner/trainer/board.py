"""TensorBoard events of one start: scalars by epoch, pictures at fixed items."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from onn_runner import storage


class Board(Protocol):
    def scalars(self, values: Mapping[str, float], epoch: int) -> None: ...

    def images(self, pictures: Mapping[str, Tensor], epoch: int) -> None: ...

    def histograms(self, values: Mapping[str, Tensor], epoch: int) -> None: ...

    def close(self) -> None: ...


class NoBoard:
    def scalars(self, values: Mapping[str, float], epoch: int) -> None:
        pass

    def images(self, pictures: Mapping[str, Tensor], epoch: int) -> None:
        pass

    def histograms(self, values: Mapping[str, Tensor], epoch: int) -> None:
        pass

    def close(self) -> None:
        pass


class EventBoard:
    """Flushes every epoch, so that a killed run has the events of every epoch that its checkpoint has.

    Events of epochs after `epoch`, left by a run that was killed, are hidden (purged). Those of tests stand at the best
    epoch, which may be an earlier one: they are not written twice.
    """

    def __init__(self, folder: Path, *, epoch: int) -> None:
        # Imported late: it takes as long as a short fold.
        from torch.utils.tensorboard import SummaryWriter

        self.folder, self.begun = folder, epoch
        # TensorBoard reads files in the order of their names, which begin with the second they were made in.
        while any(folder.glob(f"events.out.tfevents.{int(time.time()):010d}.*")):
            time.sleep(0.05)
        try:
            self.writer = SummaryWriter(str(folder), purge_step=epoch + 1)
        except OSError as error:
            raise storage.failure(folder, error) from error

    def scalars(self, values: Mapping[str, float], epoch: int) -> None:
        try:
            known = self._written(epoch) if epoch <= self.begun else ()
            for name, value in values.items():
                if name not in known:
                    self.writer.add_scalar(name, value, epoch)
            self.writer.flush()
        except OSError as error:
            raise storage.failure(self.folder, error) from error

    def _written(self, epoch: int) -> set[str]:
        """Names of the scalars that an earlier process wrote for an epoch."""
        from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

        sizes = {"scalars": 0, "images": 1, "histograms": 1}
        # Without purging, of which it would tell on the screen.
        events = EventAccumulator(str(self.folder), size_guidance=sizes, purge_orphaned_data=False)
        events.Reload()
        return {name for name in events.Tags()["scalars"] if any(point.step == epoch for point in events.Scalars(name))}

    def images(self, pictures: Mapping[str, Tensor], epoch: int) -> None:
        try:
            for name, images in pictures.items():
                # A row per item, so that panels of different items do not stand side by side.
                self.writer.add_image(name, torch.cat(list(images), dim=-2), epoch)
        except OSError as error:
            raise storage.failure(self.folder, error) from error

    def histograms(self, values: Mapping[str, Tensor], epoch: int) -> None:
        try:
            for name, numbers in values.items():
                self.writer.add_histogram(name, numbers, epoch)
            self.writer.flush()
        except OSError as error:
            raise storage.failure(self.folder, error) from error

    def close(self) -> None:
        try:
            self.writer.close()
        except OSError as error:
            raise storage.failure(self.folder, error) from error


def open_board(folder: Path, *, epoch: int, wanted: bool) -> Board:
    return EventBoard(folder, epoch=epoch) if wanted else NoBoard()
