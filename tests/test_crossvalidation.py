"""The score that a sweeper gets: of validation, never better for having diverged."""

import math

import pytest

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
