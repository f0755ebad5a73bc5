"""Scores of the best weights: the test part, whole originals and, if asked for, the training items; by item too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from torch.utils.data import Dataset

from onn_runner.partition.split import whole_groups
from onn_runner.trainer import batches, records
from onn_runner.trainer.evaluate import Evaluator
from onn_runner.trainer.job import FoldJob


@dataclass
class TestScores:
    means: dict[str, float] = field(default_factory=dict)
    left_out: dict[str, int] = field(default_factory=dict)
    rows: list[records.Row] = field(default_factory=list)
    """For test_items.csv."""


def test_scores(evaluator: Evaluator, job: FoldJob, start: int) -> TestScores:
    """Of the evaluator's network as it stands; without test scores for a fold without a test part.

    With trainer.score_training the training items are scored as test items are, without augmentation: `fitted/`.
    """
    found, source, fold = TestScores(), job.source, job.fold

    def add(split: str, dataset: Dataset[Any], names: Sequence[str], size: int) -> None:
        order = job.limited(batches.in_order(len(names), size))
        scores = evaluator.score(split, dataset, order)
        found.means |= scores.means
        found.left_out |= scores.left_out
        chosen = [names[position] for batch in order for position in batch]
        found.rows += records.item_rows(fold.index, start, chosen, scores.items)

    def add_part(split: str, part: Sequence[int]) -> None:
        add(split, source.fixed(part), [source.names[index] for index in part], job.settings.eval_batch_size)

    if fold.test:
        add_part("test", fold.test)
        groups = whole_groups(fold, source)
        whole = source.whole(groups) if groups else None
        if whole is not None:
            count = len(whole)  # type: ignore[arg-type]
            names = getattr(whole, "names", groups if len(groups) == count else [f"whole[{n}]" for n in range(count)])
            # One by one: every original has its own size.
            add("photo", whole, list(names), 1)
    if job.settings.score_training:
        add_part("fitted", fold.train)
    return found
