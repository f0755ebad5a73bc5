"""Means and deviations over folds are those of numpy over the best starts; nothing unfinished is averaged in."""

import json
import math

import numpy as np
import pytest

from onn_runner.errors import RunError
from onn_runner.report import results, table


def start(number, value, *, status="done", diverged=None):
    test = (
        {} if status == "diverged" else {"test/psnr": value, "photo/psnr": value + 1, "test/mse": 10 ** (-value / 10)}
    )
    return {
        "start": number,
        "status": status,
        "best_epoch": 3,
        "epochs_run": 4,
        "seconds_per_epoch": 1.5,
        "validation": {"val/psnr": value - 1},
        "test": test,
        "left_out": {"test/snr": 2},
        "diverged": diverged,
    }


def fold(number, starts, best):
    status = "done" if best is not None else "diverged"
    return {"fold": number, "status": status, "best_start": best, "starts": starts}


def collected(folds, baselines=None):
    return results.collect(
        name="conv-denoise",
        status="done",
        monitor="val/psnr",
        higher_is_better={"mse": False, "psnr": True},
        network={"parameters": 1234},
        folds=folds,
        baselines=baselines or {},
        warnings=[],
        seconds=1.0,
    )


@pytest.fixture
def two_starts():
    return collected(
        [
            fold(0, [start(0, 28.0), start(1, 29.0)], 1),
            fold(1, [start(0, 30.5), start(1, 30.0)], 0),
            fold(2, [start(0, 27.0), start(1, 26.0)], 0),
        ],
        {index: {"untouched": {"test/psnr": 20.0 + index}} for index in range(3)},
    )


def test_mean_and_sample_deviation_are_those_of_the_best_starts(two_starts):
    best = [29.0, 30.5, 27.0]
    entry = two_starts["cv"]["test/psnr"]
    assert entry["folds"] == 3
    assert entry["mean"] == pytest.approx(np.mean(best), rel=1e-12)
    assert entry["std"] == pytest.approx(np.std(best, ddof=1), rel=1e-12)
    assert two_starts["cv"]["val/psnr"]["mean"] == pytest.approx(np.mean(best) - 1, rel=1e-12)


def test_mean_over_starts_stands_beside_the_best(two_starts):
    assert two_starts["cv_starts"]["test/psnr"]["mean"] == pytest.approx(np.mean([28.5, 30.25, 26.5]), rel=1e-12)
    assert results.over_starts([fold(0, [start(0, 28.0)], 0)]) == {}


def test_a_single_fold_has_no_deviation():
    entry = collected([fold(0, [start(0, 28.0)], 0)])["cv"]["test/psnr"]
    assert entry == {"mean": 28.0, "std": None, "folds": 1}


def test_an_infinite_score_is_not_hidden():
    entry = results.spread([math.inf, 30.0, 31.0])
    assert entry == {"mean": math.inf, "std": None, "folds": 3}
    assert table.with_spread(entry, "psnr") == "inf"


def test_diverged_folds_and_starts_are_left_out_and_named():
    where = {"epoch": 2, "step": 5, "layer": "layers.1", "what": "the loss is nan"}
    broken = start(0, math.nan, status="diverged", diverged=where)
    content = collected([fold(0, [broken, start(1, 29.0)], 1), fold(1, [broken], None)])
    assert content["cv"]["test/psnr"] == {"mean": 29.0, "std": None, "folds": 1}
    built = table.build(content)
    assert built.rows[0][0] == "fold 0 (1 of 2 starts diverged)"
    assert built.rows[1][:2] == ("fold 1 diverged", "-")
    assert built.rows[2][0] == "mean ± std (1 of 2 folds)"
    assert content["warnings"][0] == "fold 0 start 0 diverged at epoch 2, step 5: the loss is nan; first in layers.1"
    assert any(
        "fold 1 start 0 diverged at epoch 2, step 5: the loss is nan; first in layers.1" in n for n in built.notes
    )


def test_columns_begin_with_the_monitored_metric_and_rows_end_with_the_baselines(two_starts):
    built = table.build(two_starts)
    assert built.headings == ("", "epoch", "PSNR [dB] ↑", "MSE ↓", "whole PSNR [dB] ↑", "s/epoch")
    assert [row[0] for row in built.rows] == [
        "fold 0",
        "fold 1",
        "fold 2",
        "mean ± std",
        "mean over starts",
        "untouched",
    ]
    assert built.rows[3][2] == "28.83 ± 1.76"
    assert built.rows[5][2:4] == ("21.00 ± 1.00", "-")
    assert all(len(row) == len(built.headings) for row in built.rows)
    assert "test/snr: 6 items without a defined score (constant target) are left out" in built.notes


def test_markdown_holds_every_row(two_starts):
    text = table.markdown(table.build(two_starts))
    assert "| mean ± std |  | 28.83 ± 1.76 |" in text
    assert text.count("\n| ") == 8


@pytest.mark.parametrize(
    ("value", "metric", "text"),
    [
        (29.314, "psnr", "29.31"),
        (0.80123, "ssim", "0.8012"),
        (0.0027149, "mse", "0.00271"),
        (2.5e-7, "mse", "0.000000250"),
        (None, "psnr", "-"),
        (math.nan, "ssim", "-"),
        (1234.56, "mse", "1234.6"),
        (0.0, "mse", "0.00"),
    ],
)
def test_figures_have_the_digits_that_a_reader_needs(value, metric, text):
    assert table.figure(value, metric) == text


def test_the_content_is_json(two_starts):
    assert json.loads(json.dumps(two_starts, allow_nan=False))["schema"] == 1


def test_tables_of_folds_are_joined_with_one_heading(tmp_path):
    heading = "fold,start,epoch,split,metric,value\n"
    parts = [tmp_path / f"fold_0{number}" / "metrics.csv" for number in (0, 1, 2)]
    for number in (0, 2):
        parts[number].parent.mkdir()
        parts[number].write_text(f"{heading}{number},0,1,val,psnr,28.0\n")
    results.join_tables(parts, tmp_path / "all.csv")
    assert (tmp_path / "all.csv").read_text() == f"{heading}0,0,1,val,psnr,28.0\n2,0,1,val,psnr,28.0\n"
    results.join_tables([tmp_path / "missing.csv"], tmp_path / "none.csv")
    assert not (tmp_path / "none.csv").exists()
    results.join_tables([tmp_path / "missing.csv"], tmp_path / "all.csv")
    assert not (tmp_path / "all.csv").exists(), "no fold has one any more"


@pytest.mark.parametrize(
    "content", [b"", b"a,b\n1,2\n", b"fold,start,epoch,split,metric,value\n0,1\n", b"\xff\xfe\x00"]
)
def test_a_damaged_table_is_named_with_the_remedy(tmp_path, content):
    path = tmp_path / "metrics.csv"
    path.write_bytes(content)
    with pytest.raises(RunError, match=r"metrics\.csv is damaged: remove it together with status\.json"):
        results.join_tables([path], tmp_path / "all.csv")


def test_items_of_classes_that_overflow_are_told_in_one_line():
    first = start(0, 28.0) | {"left_out": {"test/loss": 3, "test/cross_entropy": 3, "test/brier": 3}}
    second = start(0, 29.0) | {"left_out": {"test/loss": 1, "test/cross_entropy": 1, "test/brier": 1}}
    notes = table.build(collected([fold(0, [first], 0), fold(1, [second], 0)])).notes
    assert [note for note in notes if "items" in note] == [
        "test: the network's scores of 4 items are not finite: wrong in accuracy, F1 and the like, "
        "left out of loss, likelihood, AUROC and calibration"
    ]
