"""Paired differences agree with scipy's paired t-test, with numbers worked by hand, and with the corrected formula."""

import math
import random

import numpy as np
import pytest
from scipy import stats

from onn_runner.partition.base import Fold
from onn_runner.report import paired
from onn_runner.report.paired import Differences


def parts_of(*rows, higher=True, ratio=0.5):
    """`rows`: a list of (group, ours, theirs) for each fold."""
    made = [
        paired.differences(fold, [r[1] for r in row], [r[2] for r in row], [r[0] for r in row])
        for fold, row in enumerate(rows)
    ]
    return paired.compare(made, ratio=ratio, higher=higher)


def test_one_item_a_photograph_is_the_paired_t_test():
    generator = np.random.default_rng(3)
    ours, theirs = generator.normal(29, 2, 17), generator.normal(28.8, 2, 17)
    found = parts_of([(f"photo {n}", *pair) for n, pair in enumerate(zip(ours, theirs, strict=True))])["groups"]
    expected = stats.ttest_rel(ours, theirs)
    low, high = expected.confidence_interval(0.95)
    assert found["mean"] == pytest.approx(np.mean(ours - theirs), rel=1e-12)
    # The same quantile of scipy's on both sides: rounding only.
    assert (found["low"], found["high"]) == pytest.approx((low, high), rel=1e-10)
    assert found["n"] == 17
    assert found["better"] == int((ours > theirs).sum())
    assert found["p"] == pytest.approx(stats.wilcoxon(ours, theirs).pvalue, rel=1e-12)


def test_patches_of_a_photograph_count_as_one_number_whatever_fold_they_are_in():
    first = [("a", 3.0, 1.0), ("a", 2.0, 2.0), ("b", 1.0, 2.0)]
    second = [("a", 9.0, 2.0), ("c", 5.0, 4.5)]
    found = parts_of(first, second)
    # a: (2 + 0 + 7) / 3 = 3, b: -1, c: 0.5; s^2 = (3 - 5/6)^2 + (-1 - 5/6)^2 + (1/2 - 5/6)^2 over 2 = 4.083333
    assert found["groups"]["mean"] == pytest.approx(2.5 / 3, rel=1e-14)
    half = 0.95 * math.sqrt(2 / (1 - 0.95**2)) * math.sqrt(49 / 12 / 3)
    # scipy's quantile of Student's distribution is 4e-11 off the closed form for two degrees of freedom.
    assert found["groups"]["high"] - found["groups"]["mean"] == pytest.approx(half, rel=1e-9)
    assert (found["groups"]["n"], found["groups"]["better"], found["items"]) == (3, 2, 5)


def test_by_fold_with_the_corrected_variance():
    rows = [[("a", 3.0, 1.0), ("b", 1.0, 1.0)], [("c", 2.0, 2.5)], [("d", 4.0, 1.0)]]
    found = parts_of(*rows, ratio=0.25)["folds"]
    differences = np.array([1.0, -0.5, 3.0])
    half = stats.t.ppf(0.975, 2) * math.sqrt(1 / 3 + 0.25) * differences.std(ddof=1)
    assert found["mean"] == pytest.approx(differences.mean(), rel=1e-14)
    assert (found["low"], found["high"]) == pytest.approx((found["mean"] - half, found["mean"] + half), rel=1e-12)
    assert (found["n"], found["better"], found["ratio"]) == (3, 2, 0.25)
    plain = stats.ttest_1samp(differences, 0).confidence_interval(0.95)
    assert found["low"] < plain.low, "folds that share training items need a wider interval"


def test_items_without_a_finite_difference_are_left_out_and_counted():
    nan, inf = math.nan, math.inf
    found = parts_of(
        [("a", nan, 1.0), ("a", 2.0, 1.0), ("b", inf, inf), ("c", inf, 30.0), ("d", 1.0, -inf), ("e", 4.0, 1.0)]
    )
    assert (found["left_out"], found["items"]) == (4, 2)
    assert found["groups"]["n"] == 2
    assert found["groups"]["mean"] == 2.0


def test_a_single_group_or_fold_has_a_mean_and_no_interval():
    found = parts_of([("a", 2.0, 1.5), ("a", 2.0, 1.0)])
    assert found["groups"] == {"mean": 0.75, "low": None, "high": None, "n": 1, "better": 1, "worse": 0, "p": None}
    assert found["folds"] == {"mean": 0.75, "low": None, "high": None, "n": 1, "better": 1, "worse": 0, "ratio": 0.5}


@pytest.mark.parametrize("rows", [[], [("a", math.nan, 1.0)]])
def test_nothing_to_compare_gives_no_number(rows):
    found = parts_of(rows)
    assert found["items"] == 0
    for part in ("groups", "folds"):
        assert (found[part]["mean"], found[part]["low"], found[part]["n"]) == (None, None, 0)


def test_better_follows_the_metrics_direction():
    rows = [("a", 1.0, 2.0), ("b", 1.0, 1.5), ("c", 3.0, 1.0), ("d", 1.0, 1.0)]
    assert parts_of(rows, higher=True)["groups"]["better"] == 1
    assert parts_of(rows, higher=False)["groups"]["better"] == 2
    assert parts_of(rows, higher=None)["groups"]["better"] is None
    assert [parts_of(rows, higher=higher)["groups"]["worse"] for higher in (True, False, None)] == [2, 1, None]


def test_scores_of_whole_parts_are_compared_by_fold_alone():
    parts = [paired.Differences(fold, {}, 0, whole=value) for fold, value in enumerate((1.0, 2.0, -1.5))]
    found = paired.compare(parts, ratio=0.5, higher=True)
    assert (found["items"], found["groups"]["n"], found["groups"]["mean"]) == (0, 0, None)
    assert (found["folds"]["n"], found["folds"]["mean"], found["folds"]["better"]) == (3, 0.5, 2)
    assert found["folds"]["low"] < found["folds"]["mean"] < found["folds"]["high"]


def test_equal_methods_do_not_differ():
    found = parts_of([(name, 1.0, 1.0) for name in "abcd"])
    assert found["groups"] == {"mean": 0.0, "low": 0.0, "high": 0.0, "n": 4, "better": 0, "worse": 0, "p": 1.0}


def test_the_signed_rank_test_is_exact_for_few_photographs():
    # Of 2^5 signs of the ranks 1..5 only all plus and all minus are as extreme: 2 / 32.
    assert paired.signed_rank(np.array([1.0, 2.0, 3.0, 4.0, 5.0])) == pytest.approx(2 / 32, rel=1e-12)


def test_the_order_of_the_items_does_not_matter():
    rows = [(f"{n % 5}", n * 0.37 % 1, n * 0.71 % 1) for n in range(40)]
    shuffled = random.Random(1).sample(rows, len(rows))
    one, other = parts_of(rows), parts_of(shuffled)
    assert one["groups"]["p"] == other["groups"]["p"]
    for key in ("mean", "low", "high"):
        # Sums of 40 numbers of size 1 in another order.
        assert one["groups"][key] == pytest.approx(other["groups"][key], abs=1e-13)


def test_lists_of_different_length_are_no_pairs():
    with pytest.raises(ValueError, match="zip"):
        paired.differences(0, [1.0], [1.0, 2.0], ["a", "b"])


def test_the_interval_holds_the_truth_as_often_as_it_says():
    generator = np.random.default_rng(0)
    hits, runs = 0, 2000
    for _ in range(runs):
        values = generator.normal(0.3, 1.0, 9)
        found = paired.compare(
            [Differences(0, {str(n): (value, 1) for n, value in enumerate(values)}, 0)], ratio=0.5, higher=True
        )["groups"]
        hits += found["low"] <= 0.3 <= found["high"]
    # Binomial deviation 0.5 % of 95 %: three of them.
    assert abs(hits / runs - 0.95) < 0.015


def test_the_smallest_p_is_what_one_sided_numbers_give():
    for count in (2, 3, 5, 8):
        values = np.arange(1.0, count + 1)
        assert paired.smallest_p(count) == pytest.approx(paired.signed_rank(values), rel=1e-12)
    assert paired.smallest_p(1) is None


def test_the_corrected_t_is_students_where_nothing_overlaps():
    values = np.random.default_rng(0).normal(0.3, 1.0, 6)
    assert paired.corrected_t(values, 0.0) == pytest.approx(stats.ttest_1samp(values, 0.0).pvalue, abs=1e-12)
    assert paired.corrected_t(values, 0.25) > paired.corrected_t(values, 0.0)


def test_the_corrected_t_by_hand():
    # Mean 2, s^2 = 1; variance (1/3 + 1/3): t = 2 / sqrt(2/3) = sqrt(6). Of 2 degrees of freedom 1 - F(t) is known:
    # p = 1 - t / sqrt(2 + t^2) = 1 - sqrt(6 / 8).
    assert paired.corrected_t(np.array([1.0, 2.0, 3.0]), 1 / 3) == pytest.approx(1 - math.sqrt(0.75), abs=1e-12)


@pytest.mark.parametrize(
    ("values", "ratio", "p"),
    [([1.0], 0.0, None), ([1.0, 2.0], None, None), ([1.0, 1.0], 0.5, None), ([0.0, 0.0], 0.5, 1.0)],
)
def test_where_there_is_no_corrected_t(values, ratio, p):
    assert paired.corrected_t(np.array(values), ratio) == p


def test_the_corrected_t_goes_with_its_interval():
    """p is below 5 % exactly where the 95 % interval leaves zero out."""
    generator = np.random.default_rng(1)
    for _ in range(50):
        values = generator.normal(1.0, 1.0, 5)
        found = paired.interval(values, 0.25)
        assert (paired.corrected_t(values, 0.25) < 0.05) == (not found["low"] <= 0 <= found["high"])


@pytest.mark.parametrize(
    ("trained", "key", "ratio"),
    [
        ([(0, 1), (2, 3)], "test/psnr", 0.0),
        ([(0, 1), (1, 2)], "test/psnr", 0.5),
        ([(0, 1), (1, 2)], "fitted/psnr", None),
        ([(0, 1), (2, 3)], "fitted/psnr", 0.0),
        ([(0, 1, 2, 3), (0, 1)], "test/psnr", (1 / 4 + 1 / 2) / 2),
    ],
)
def test_what_widens_the_variance_is_test_to_training_items(trained, key, ratio):
    folds = [Fold(number, train, (), (9,)) for number, train in enumerate(trained)]
    assert paired.widening(folds, key) == ratio
