"""What the best weights of a fold take its items for, as pictures: confusions, calibration, confident mistakes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from onn_runner.metric.classification import BINS, Ece, answered
from onn_runner.report.kept import Kept
from onn_runner.trainer import batches
from onn_runner.trainer.engine import Engine
from onn_runner.trainer.job import FoldJob

if TYPE_CHECKING:
    from onn_runner.report.figures_classes import Mistake

SHOWN = 12
"""Mistakes that are drawn."""


@dataclass(frozen=True)
class Predictions:
    """Of the items that are scored, in the order of their part."""

    indices: Sequence[int]
    """The items' numbers in the source."""
    logits: Tensor  # [N, K] float32
    target: Tensor  # [N]

    def only(self, kept: Tensor) -> Predictions:  # kept: [N], bool
        indices = [index for index, keep in zip(self.indices, kept.tolist(), strict=True) if keep]
        return Predictions(indices, self.logits[kept], self.target[kept])


def predictions(job: FoldJob, engine: Engine, part: Sequence[int]) -> Predictions:
    """Of the items of a part that are scored."""
    view, logits, target = job.source.fixed(part), [], []
    order = job.limited(batches.in_order(len(part), job.settings.eval_batch_size))
    with torch.no_grad():
        for positions in order:
            output = job.task.eval_step(engine.evaluating, batches.collate(view, positions, engine.device))
            logits.append(output.prediction.float().cpu())
            target.append(output.target.cpu())
    indices = [part[position] for positions in order for position in positions]
    return Predictions(indices, torch.cat(logits), torch.cat(target))


def class_pictures(job: FoldJob, engine: Engine, title: str) -> tuple[dict[str, bytes], Kept | None]:
    """Name -> PNG of the test part, or of the training part where nothing is tested; none without classes.

    Items without a finite answer are in none of them, and where no item has one there are none. And the confusions.
    """
    classes = getattr(job.source, "classes", None)
    part, words = (job.fold.test, "test items") if job.fold.test else (job.fold.train, "training items")
    if classes is None or not getattr(job.task, "of_classes", False):
        return {}, None
    from onn_runner.report.figures_classes import confusion_matrix, mistakes, reliability

    found = predictions(job, engine, part)
    known = answered(found.logits)
    lost = int((~known).sum())
    if lost == len(known):
        return {}, None
    found = found.only(known)
    chances = found.logits.softmax(1)
    confidence, predicted = chances.max(1)
    correct = predicted == found.target
    pairs = (found.target * len(classes) + predicted).bincount(minlength=len(classes) ** 2)
    counts = pairs.reshape(len(classes), -1).numpy()
    kept = Kept("test" if job.fold.test else "fitted", (), tuple(classes), counts, lost)
    error = Ece()
    error.update(found.logits, found.target)
    drawn = {
        "confusion_matrix": confusion_matrix(
            counts,
            classes,
            title=f"Confusions of {words}{f' ({lost} overflow)' if lost else ''}, {title}",
        ),
        "reliability": reliability(
            confidence.numpy(),
            correct.numpy(),
            bins=BINS,
            error=error.value(),
            title=f"Calibration{f' ({lost} items overflow)' if lost else ''}, {title}",
        ),
    }
    order = confidence.masked_fill(correct, -1).argsort(descending=True, stable=True)[:SHOWN].tolist()
    wrong = [_mistake(job, found, chances, place) for place in order if not correct[place]]
    if wrong and wrong[0].input.ndim in (2, 3):
        count = int((~correct).sum())
        told = f"The {len(wrong)} most confident of {count} mistakes" if count > len(wrong) else "All mistakes"
        drawn["mistakes"] = mistakes(wrong, title=f"{told}, {title}", data_range=job.source.data_range)
    return drawn, kept


def _mistake(job: FoldJob, found: Predictions, chances: Tensor, place: int) -> Mistake:
    from onn_runner.report.figures_classes import Mistake

    index, true, guess = found.indices[place], int(found.target[place]), int(chances[place].argmax())
    names: Sequence[str] = job.source.classes  # type: ignore[attr-defined]
    item = job.source.fixed([index])[0]
    return Mistake(
        name=job.source.names[index],
        input=item["input"].numpy(),
        predicted=names[guess],
        probability=float(chances[place, guess]),
        true=names[true],
        left=float(chances[place, true]),
    )
