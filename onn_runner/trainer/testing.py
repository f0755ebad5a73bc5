"""Scores of the best weights on the test part and on whole originals, as means and item by item."""

from __future__ import annotations

from dataclasses import dataclass, field

from onn_runner.partition.split import whole_groups
from onn_runner.trainer import batches, records
from onn_runner.trainer.evaluate import Evaluator, Scores
from onn_runner.trainer.job import FoldJob


@dataclass
class TestScores:
    means: dict[str, float] = field(default_factory=dict)
    left_out: dict[str, int] = field(default_factory=dict)
    rows: list[records.Row] = field(default_factory=list)
    """For test_items.csv."""


def test_scores(evaluator: Evaluator, job: FoldJob, start: int) -> TestScores:
    """Of the evaluator's network as it stands; empty for a fold without a test part."""
    found = TestScores()
    part, source = job.fold.test, job.source
    if not part:
        return found

    def add(scores: Scores, names: list[str]) -> None:
        found.means |= scores.means
        found.left_out |= scores.left_out
        found.rows += records.item_rows(job.fold.index, start, names, scores.items)

    order = batches.in_order(len(part), job.settings.eval_batch_size)
    add(evaluator.score("test", source.fixed(part), order), [source.names[index] for index in part])
    groups = whole_groups(job.fold, source)
    whole = source.whole(groups) if groups else None
    if whole is not None:
        count = len(whole)  # type: ignore[arg-type]
        names = getattr(whole, "names", groups if len(groups) == count else [f"whole[{n}]" for n in range(count)])
        # One by one: every original has its own size.
        add(evaluator.score("photo", whole, batches.in_order(count, 1)), list(names))
    return found
