"""Means, deviations, intervals and Holm's adjustment, against numbers worked out by hand and against scipy."""

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from study_examples import write_run, write_sweep

from onn_runner.study.gathering import gather
from onn_runner.study.records import Method, Run
from onn_runner.study.statistics import best_first, costs, holm, summaries, summary

EXACT = 1e-12
"""Double precision, a few operations."""


def run_of(scores: list[float | None], seed: int = 0, *, train: tuple[int, ...] = (), **start: object) -> Run:
    """A run of as many folds, of one test item each; `train`: the items that all folds train on, else their own."""
    count = len(scores)
    folds = [
        {"index": n, "train": list(train) or [count + n], "validation": [], "test": [n]} for n in range(count)
    ]  # fmt: skip
    found = [
        {"fold": n, "best_start": 0, "starts": [{"start": 0, "test": {"test/psnr": score}, "validation": {}, **start}]}
        for n, score in enumerate(scores)
    ]
    network = {"parameters": 115, "macs": 110592}
    return Run(
        folder=Path(f"seed-{seed}"), name="run", status="done", seed=seed, fingerprint="a",
        split={"schema": 1, "fingerprint": "a", "folds": folds},
        results={"folds": found, "network": network, "baselines": {}},
    )  # fmt: skip


def method_of(*runs: Run) -> Method:
    return Method(label="m", runs=runs)


def test_seeds_are_averaged_within_folds_by_hand() -> None:
    one = summary(method_of(run_of([1.0, 2.0, 6.0], 0), run_of([3.0, 2.0, 10.0], 1)), "test/psnr")
    assert one.values == (2.0, 2.0, 8.0)
    assert one.by_seed == ((1.0, 2.0, 6.0), (3.0, 2.0, 10.0))
    assert (one.mean, one.std) == (4.0, pytest.approx(math.sqrt(12), abs=EXACT))
    # The seeds' means are 3 and 5.
    assert one.std_seeds == pytest.approx(math.sqrt(2), abs=EXACT)
    # Training sets share nothing: Student's interval with 4.302652729749464 for 2 degrees of freedom.
    half = 4.302652729749464 * math.sqrt(12 / 3)
    assert (one.low, one.high) == (pytest.approx(4 - half, abs=1e-9), pytest.approx(4 + half, abs=1e-9))


def test_the_interval_is_students_where_training_sets_share_nothing() -> None:
    scores = list(np.random.default_rng(0).normal(20, 1, 7))
    one = summary(method_of(run_of(scores)), "test/psnr")
    low, high = stats.t.interval(0.95, 6, loc=np.mean(scores), scale=stats.sem(scores))
    assert (one.low, one.high) == (pytest.approx(low, abs=EXACT), pytest.approx(high, abs=EXACT))


def test_the_interval_is_widened_where_they_overlap() -> None:
    scores = list(np.random.default_rng(0).normal(20, 1, 5))
    one = summary(method_of(run_of(scores, train=(10, 11, 12, 13))), "test/psnr")
    # A test item to four training items: 1/5 + 1/4 instead of 1/5.
    half = stats.t.ppf(0.975, 4) * math.sqrt(1 / 5 + 1 / 4) * np.std(scores, ddof=1)
    assert one.high == pytest.approx(np.mean(scores) + half, abs=EXACT)


def test_one_fold_has_no_deviation_over_folds_but_over_seeds() -> None:
    one = summary(method_of(run_of([1.0], 0), run_of([2.0], 1), run_of([6.0], 2)), "test/psnr")
    assert (one.mean, one.std, one.low, one.high) == (3.0, None, None, None)
    assert one.std_seeds == pytest.approx(math.sqrt(7), abs=EXACT)


def test_what_is_not_finite_is_not_left_out() -> None:
    one = summary(method_of(run_of([1.0, None, 3.0])), "test/psnr")
    assert (one.mean, one.std, one.low, one.std_seeds) == (None, None, None, None)
    assert math.isnan(one.values[1])


def test_a_score_that_nobody_has_is_empty() -> None:
    one = summary(method_of(run_of([1.0, 2.0])), "test/f1")
    assert (one.mean, one.values, one.seeds) == (None, (), ())


def test_a_score_that_some_seeds_have_is_theirs() -> None:
    without = run_of([5.0, 5.0], 1)
    assert without.results is not None
    for fold in without.results["folds"]:
        fold["starts"][0]["test"] = {}
    one = summary(method_of(run_of([1.0, 2.0]), without), "test/psnr")
    assert (one.mean, one.seeds) == (1.5, (0,))


def test_untrained_baselines_have_independent_folds(tmp_path: Path) -> None:
    study = gather([write_run(tmp_path / "run")])
    one = summary(study.method("untouched input"), "test/psnr")
    low, high = stats.t.interval(0.95, 2, loc=np.mean(one.values), scale=stats.sem(one.values))
    assert (one.low, one.high) == (pytest.approx(low, abs=EXACT), pytest.approx(high, abs=EXACT))


def test_costs_are_of_a_run_and_the_largest_memory() -> None:
    first = run_of([1.0, 2.0], 0, seconds=3.0, peak_memory=100, energy=None, device="cpu")
    second = run_of([1.0, 2.0], 1, seconds=5.0, peak_memory=300, energy=7.0, energy_of="cpu")
    found = costs(method_of(first, second))
    assert (found.seconds, found.peak_memory, found.energy) == (8.0, 300, None)
    assert (found.parameters, found.macs, found.devices) == (115, 110592, ("cpu",))
    alone = costs(method_of(second))
    assert (alone.energy, alone.energy_of) == (14.0, "cpu")


def test_runs_that_did_not_count_costs_have_none() -> None:
    found = costs(method_of(run_of([1.0, 2.0], 0, seconds=3.0), run_of([1.0, 2.0], 1)))
    assert (found.seconds, found.peak_memory) == (None, None)


def test_a_twins_costs_are_its_own(tmp_path: Path) -> None:
    study = gather([write_sweep(tmp_path / "sweep", ("quadratic",), (0,), twin="conv", seconds=20.0)])
    assert costs(study.method("quadratic")).seconds == 60.0
    assert costs(study.method("conv (twin)")).seconds == 36.0
    assert costs(study.method("conv (twin)")).parameters == 115
    assert costs(study.method("untouched input")) == dataclasses.replace(costs(method_of()), label="untouched input")


@pytest.mark.parametrize(
    ("values", "adjusted"),
    [
        # Holm's own order: 0.01 x 4, then 0.02 x 3, then 0.03 x 2 = 0.06, then 0.04 not below what came before.
        ([0.04, 0.01, 0.03, 0.02], [0.06, 0.04, 0.06, 0.06]),
        ([0.5, 0.6], [1.0, 1.0]),
        ([0.01], [0.01]),
        ([None, 0.02, None, 0.01], [None, 0.02, None, 0.02]),
        ([], []),
        ([0.02, 0.02], [0.04, 0.04]),
    ],
)
def test_holm_by_hand(values: list[float | None], adjusted: list[float | None]) -> None:
    assert holm(values) == [None if value is None else pytest.approx(value, abs=EXACT) for value in adjusted]


def test_holm_is_at_most_bonferroni_and_keeps_the_order() -> None:
    values = list(np.random.default_rng(1).uniform(0, 0.1, 20))
    adjusted = holm(values)  # type: ignore[arg-type]
    assert all(p <= a <= min(1.0, 20 * p) + EXACT for p, a in zip(values, adjusted, strict=True))
    assert np.array_equal(np.argsort(values, kind="stable"), np.lexsort((values, adjusted)))


def test_the_best_stand_first_within_their_kind(tmp_path: Path) -> None:
    study = gather([write_sweep(tmp_path / "sweep", ("quadratic", "onn"), (0,), twin="conv")])
    found = summaries(study)
    assert [one.label for one in best_first(study, found).methods] == [
        "onn sine", "quadratic", "conv (twin)", "untouched input",
    ]  # fmt: skip
    lower = dataclasses.replace(study, metrics={"test/psnr": False})
    assert [one.label for one in best_first(lower, found).methods][:2] == ["quadratic", "onn sine"]
