"""Score the weights of an epoch on the validation part, and tell the reader what is wrong with the scores."""

from __future__ import annotations

import math
from dataclasses import dataclass

from onn_runner.trainer import batches
from onn_runner.trainer.divergence import has_running_statistics, retrace
from onn_runner.trainer.evaluate import BadBatchError, Evaluator
from onn_runner.trainer.job import FoldJob
from onn_runner.trainer.progress import Reporter


@dataclass
class Validation:
    job: FoldJob
    evaluator: Evaluator
    reporter: Reporter
    where: str
    """"fold 0, start 0"."""
    told_unanswered: bool = False
    overflow: str = ""
    """What made the last validation overflow that did."""

    def scores(self, epoch: int) -> dict[str, float]:
        """`val/` values; empty without a validation part.

        Raises BadBatchError for losses that are not finite, Interrupted.
        """
        part = self.job.fold.validation
        if not part:
            return {}
        order = self.job.limited(batches.in_order(len(part), self.job.settings.eval_batch_size))
        try:
            scores = self.evaluator.score("val", self.job.source.fixed(part), order)
        except BadBatchError as error:
            if not has_running_statistics(self.evaluator.engine.scored):
                raise
            return self._unscored(error, epoch)
        self._tell_unanswered(scores.left_out.get("val/loss", 0), sum(map(len, order)), epoch)
        return scores.means

    def _tell_unanswered(self, count: int, items: int, epoch: int) -> None:
        """Once: items of classes whose scores overflow count as wrong, and have no likelihood."""
        if count and not self.told_unanswered:
            self.told_unanswered = True
            self.reporter.warn(
                f"{self.where}, epoch {epoch}: the network's scores of {count} of "
                f"{items} validation items are not finite: they count as wrong. Bounded "
                "activations (model.activation=tanh or ReLU6) keep products finite."
            )

    def _unscored(self, error: BadBatchError, epoch: int) -> dict[str, float]:
        """No scores for an epoch whose norms, by what they have seen of earlier weights, let validation overflow.

        Training goes by the statistics of each batch and may be sound; products of many layers square what running
        ones are off by.
        """
        layer = error.layer or retrace(self.evaluator.engine, self.job.task, error.batch, testing=True)
        self.overflow = f"{error.what}; first in {layer}"
        self.reporter.warn(
            f"{self.where}, epoch {epoch}: {self.overflow}. The norms' running statistics do not fit the "
            "weights yet: such epochs cannot be the best. A lower optimizer.lr or bounded activations "
            "(model.activation=tanh or ReLU6) make them rare."
        )
        return dict.fromkeys((f"val/{name}" for name in ("loss", *self.evaluator.metrics)), math.nan)
