"""The table of differences says what was compared, with the digits that the interval allows, and what is missing."""

import io
import json
import math

import pytest

from onn_runner.report import results, screen, table
from onn_runner.report.differences import differences, places, with_interval


def entry(mean, low, high, *, n=5, better=3, p=0.04, items=40, left_out=0, folds=3):
    by_fold = {"mean": mean, "low": low, "high": high, "n": folds, "better": 1, "ratio": 0.5}
    if folds < 2:
        by_fold |= {"low": None, "high": None}
    groups = {"mean": mean, "low": low, "high": high, "n": n, "better": better, "p": p}
    return {"items": items, "left_out": left_out, "groups": groups, "folds": by_fold}


def start(test):
    return {
        "start": 0, "status": "done", "best_epoch": 1, "epochs_run": 1, "seconds_per_epoch": 0.5,
        "validation": {"val/psnr": 27.0}, "test": test, "left_out": {}, "diverged": None,
    }  # fmt: skip


def fold(number, test):
    return {"fold": number, "status": "done", "best_start": 0, "starts": [start(test)]}


def content(to, *, unit="photographs", scores=None, twin="conv"):
    scores = scores or {"test/psnr": 28.0, "test/mse": 0.002, "photo/psnr": 29.0}
    folds = [fold(number, scores) for number in range(2)]
    return results.collect(
        name="onn-denoise", status="done", monitor="val/psnr", higher_is_better={"mse": False, "psnr": True},
        network={"parameters": 100}, folds=folds, baselines={}, warnings=[], seconds=1.0,
        twin=None if twin is None else {"name": twin, "network": {"parameters": 90}, "folds": folds},
        comparison={"unit": unit, "to": to},
    )  # fmt: skip


def test_the_twin_has_rows_over_photographs_and_folds_the_others_over_photographs():
    scores = {"test/psnr": entry(0.123, -0.051, 0.297), "photo/psnr": entry(1.0, 0.5, 1.5)}
    built = differences(content({"conv": scores, "blur": scores}))
    assert built.headings == ("", "PSNR [dB] ↑", "PSNR better on", "p", "whole PSNR [dB] ↑")
    assert built.rows == (
        ("to conv (5 photographs)", "+0.12 [-0.05, +0.30]", "3 of 5", "0.04", "+1.00 [+0.50, +1.50]"),
        ("to conv (3 folds)", "+0.12 [-0.05, +0.30]", "1 of 3", "-", "+1.00 [+0.50, +1.50]"),
        ("to blur (5 photographs)", "+0.12 [-0.05, +0.30]", "3 of 5", "0.04", "+1.00 [+0.50, +1.50]"),
    )
    assert built.sections == (2,)
    assert any("counts once" in note for note in built.notes)
    assert any("not adjusted" in note for note in built.notes)
    assert any("Nadeau and Bengio" in note for note in built.notes)


def test_nothing_compared_makes_no_table():
    assert differences(content({})) is None


def test_a_single_photograph_or_fold_is_said_to_have_no_interval():
    one = entry(0.5, None, None, n=1, better=1, p=None, folds=1)
    built = differences(content({"conv": {"test/psnr": one}}))
    assert built.rows[0] == ("to conv (1 photograph)", "+0.50", "1 of 1", "-")
    assert built.rows[1][:2] == ("to conv (1 fold)", "+0.50")
    assert {"one photograph has no interval", "one fold has no interval"} <= set(built.notes)
    assert not any("Nadeau" in note for note in built.notes)


def test_rows_over_folds_are_explained_only_where_there_are_some():
    built = differences(content({"blur": {"test/psnr": entry(0.123, -0.051, 0.297)}}, twin=None))
    assert len(built.rows) == 1
    assert not any("folds" in note for note in built.notes)


def test_the_label_counts_what_the_first_interval_is_over_and_others_say_their_own():
    scores = {"test/psnr": entry(0.5, 0.4, 0.6, n=4), "photo/psnr": entry(0.5, 0.4, 0.6, n=6)}
    first = differences(content({"conv": scores})).rows[0]
    assert first[0] == "to conv (4 photographs)"
    assert first[-1] == "+0.50 [+0.40, +0.60], n = 6"


def test_items_that_were_left_out_are_counted():
    built = differences(content({"conv": {"test/psnr": entry(0.1, 0.0, 0.2, left_out=7)}}))
    assert "difference to conv, test/psnr: 7 items without a finite one are left out" in built.notes


@pytest.mark.parametrize(
    ("low", "mean", "high", "metric", "text"),
    [
        (-0.051, 0.123, 0.297, "psnr", "+0.12 [-0.05, +0.30]"),
        (0.0071, 0.0112, 0.0153, "psnr", "+0.011 [+0.007, +0.015]"),
        (-0.0081, 0.0012, 0.0105, "ssim", "+0.0012 [-0.0081, +0.0105]"),
        (-0.000051, -0.000021, 0.000009, "mse", "-0.000021 [-0.000051, +0.000009]"),
        (0.0, 0.0, 0.0, "psnr", "+0.00 [+0.00, +0.00]"),
        (None, 2.0, None, "snr", "+2.00"),
        (None, None, None, "psnr", "-"),
        (-1e-20, 0.0, 1e-20, "mse", "+0.0000000000 [-0.0000000000, +0.0000000000]"),
    ],
)
def test_an_interval_has_the_digits_that_it_allows(low, mean, high, metric, text):
    one = {"low": low, "mean": mean, "high": high}
    assert with_interval(one, places(one, f"test/{metric}")) == text


def test_the_same_mean_has_the_same_digits_over_photographs_and_folds():
    one = entry(0.0123456, 0.0119, 0.0128)
    one["folds"] |= {"low": -0.2, "high": 0.3}
    first, second = differences(content({"conv": {"test/mse": one}})).rows
    assert (first[1], second[1]) == ("+0.01235 [+0.01190, +0.01280]", "+0.01235 [-0.20000, +0.30000]")


@pytest.mark.parametrize(("p", "text"), [(1e-9, "< 0.0001"), (0.0123, "0.012"), (0.5, "0.50"), (None, "-")])
def test_probabilities(p, text):
    built = differences(content({"conv": {"test/psnr": entry(0.1, 0.0, 0.2, p=p)}}))
    assert built.rows[0][3] == text


def test_the_difference_is_seen_in_a_narrow_terminal():
    scores = {key: entry(0.123, -0.051, 0.297) for key in ("test/psnr", "test/mse", "photo/psnr")}
    built = differences(content({"conv": scores, "non-local means": scores}, unit="groups"))
    stream = io.StringIO()
    out = screen.console(stream)
    out.width = 80
    screen.show_table(out, built)
    shown = stream.getvalue()
    assert "to non-local means (5 groups)   +0.12 [-0.05, +0.30]" in shown
    assert "no room here for" in shown


def test_the_main_table_has_a_row_for_the_twin_and_its_size():
    built = table.build(content({}))
    assert [row[0] for row in built.rows] == ["fold 0", "fold 1", "mean ± std", "conv, mean ± std"]
    assert built.rows[3][2] == "28.00 ± 0.00"
    assert built.title == "onn-denoise: test scores, 2 folds, 100 parameters (conv: 90 parameters)"


def test_a_run_without_test_scores_shows_training_scores():
    scores = {"fitted/psnr": 30.0, "fitted/mse": 0.001}
    built = table.build(content({}, scores=scores, twin=None))
    assert built.title == "onn-denoise: training scores, 2 folds, 100 parameters"
    assert built.headings == ("", "epoch", "train PSNR [dB] ↑", "train MSE ↓", "s/epoch")
    assert built.rows[0][2] == "30.00"


def test_beside_test_scores_the_monitored_training_score_stands_last():
    scores = {"test/psnr": 28.0, "test/mse": 0.002, "fitted/psnr": 30.0, "fitted/mse": 0.001}
    assert table.columns(content({}, scores=scores)) == ["test/psnr", "test/mse", "fitted/psnr"]


def test_a_run_without_any_score_still_has_a_table():
    built = table.build(content({}, scores={"val/psnr": 1.0}, twin=None))
    assert built.headings == ("", "epoch", "s/epoch")
    assert built.title.startswith("onn-denoise: test scores")


def test_training_scores_over_folds_that_share_items_have_no_interval():
    one = entry(0.5, 0.1, 0.9)
    one["folds"] |= {"low": None, "high": None, "ratio": None}
    built = differences(content({"conv": {"fitted/psnr": one}}, scores={"fitted/psnr": 30.0}))
    assert built.rows[1][:2] == ("to conv (3 folds)", "+0.50")
    assert "training scores over folds that share training items have no interval" in built.notes


def test_folds_without_common_training_items_are_told():
    one = entry(0.5, 0.1, 0.9)
    one["folds"]["ratio"] = 0.0
    notes = differences(content({"conv": {"test/psnr": one}})).notes
    assert "over folds: Student's interval, as the training sets share no items" in notes
    assert not any("Nadeau" in note for note in notes)


def test_results_with_a_twin_are_json_with_its_means():
    made = content({"conv": {"test/psnr": entry(0.1, 0.0, 0.2)}})
    assert made["twin"]["cv"]["test/psnr"] == {"mean": 28.0, "std": 0.0, "folds": 2}
    assert made["twin"]["cv_starts"] == {}
    assert math.isfinite(made["comparison"]["to"]["conv"]["test/psnr"]["groups"]["mean"])
    assert json.loads(json.dumps(made, allow_nan=False))["schema"] == 1
