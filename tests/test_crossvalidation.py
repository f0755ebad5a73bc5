"""What a run refuses before it reads data; the score that a sweeper gets, never better for having diverged."""

import math

import pytest

from onn_runner.cli.run import main
from onn_runner.crossvalidation import score


def results(mean, starts, *, monitor="val/psnr", higher=True):
    return {
        "monitor": monitor,
        "higher_is_better": {"psnr": higher},
        "cv": {} if mean is None else {monitor: {"mean": mean}},
        "folds": [{"best_start": start} for start in starts],
    }


def test_the_mean_over_folds_of_the_monitored_validation_value():
    assert score(results(28.5, [0, 1, 0])) == 28.5


@pytest.mark.parametrize(
    ("content", "worst"),
    [
        (results(29.9, [0, None, 0]), -math.inf),
        (results(None, [None]), -math.inf),
        (results(None, [None], monitor="val/loss"), math.inf),
        (results(0.1, [None, 0], higher=False), math.inf),
    ],
)
def test_a_fold_without_a_result_gives_the_worst_score(content, worst):
    assert score(content) == worst


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("network.match=foo", "unknown network.match 'foo'"),
        ("trainer.monitor=val/foo", "unknown metric in trainer.monitor=val/foo"),
        ("trainer.keep_best=[photo/psnr]", "unknown trainer.keep_best 'photo/psnr'"),
        ("partition.folds=1", "partition.folds (=1)"),
        ("optimizer.lr=-1", "refuses optimizer.*"),
        ("scheduler.warmup=-1", "scheduler.warmup (=-1)"),
    ],
)
def test_what_is_wrong_whatever_the_data_is_told_before_it_is_read(capsys, word, message):
    assert main(["data=images", "data.path=nowhere", word]) == 2
    assert message in capsys.readouterr().err
