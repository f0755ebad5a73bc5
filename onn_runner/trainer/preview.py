"""What TensorBoard shows of a start: every epoch's values, and pictures of the same items every few epochs."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from onn_runner.data.base import Item
from onn_runner.seeding import generator
from onn_runner.trainer import batches
from onn_runner.trainer.batches import Batch
from onn_runner.trainer.board import Board
from onn_runner.trainer.engine import Engine
from onn_runner.trainer.job import FoldJob


class Preview:
    def __init__(self, job: FoldJob, engine: Engine) -> None:
        self.job, self.engine = job, engine
        self._batch: Batch | None = None

    def draw(self, board: Board, values: Mapping[str, float], epoch: int) -> None:
        settings = self.job.settings
        board.scalars({key: value for key, value in values.items() if key != "epoch"}, epoch)
        due = epoch in (1, settings.epochs) or epoch % settings.preview_every == 0
        if not (settings.tensorboard and settings.preview_items and due):
            return
        batch = self._items()
        self.engine.scored.eval()
        with torch.no_grad():
            output = self.job.task.eval_step(self.engine.evaluating, batch)
        board.images(self.job.task.preview(batch, output), epoch)

    def _items(self) -> Batch:
        """Items to look at: the same ones in every epoch and start."""
        if self._batch is None:
            part = self.job.fold.validation or self.job.fold.train
            order = torch.randperm(len(part), generator=generator("preview", self.job.seed, self.job.fold.index))
            chosen = sorted(part[i] for i in order[: self.job.settings.preview_items].tolist())
            data: torch.utils.data.Dataset[Item] = self.job.source.fixed(chosen)
            self._batch = batches.collate(data, range(len(chosen)), self.engine.device)
        return self._batch
