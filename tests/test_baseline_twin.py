"""Runs with baseline=<model>: the twin is the same experiment with other neurons, and the differences are paired."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import onn_runner
from onn_runner.cli.run import main

SMALL = (
    "data.photographs=[camera,coins,moon,motorcycle]",
    "data.patches=6",
    "data.patch=24",
    "data.max_side=96",
    "network.channels=[3]",
    "partition.folds=2",
    "trainer.epochs=2",
    "trainer.batch_size=6",
    "trainer.pictures=false",
)
TWIN = ("model=self_onn", "baseline=conv", *SMALL)


@pytest.fixture
def work(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def only_run(where: Path, name: str = "*") -> Path:
    (run,) = (path.parent for path in where.glob(f"outputs/{name}/*/run.json"))
    return run


def results_of(run: Path) -> dict:
    return json.loads((run / "results.json").read_text())


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as handle:
        return list(csv.DictReader(handle))


COSTS = ("seconds_per_epoch", "seconds", "peak_memory", "energy")


def without_times(folds: list[dict]) -> list[dict]:
    return [{**f, "starts": [{**s, **dict.fromkeys(COSTS, 0)} for s in f["starts"]]} for f in folds]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A finished run with a twin, and one of the twin's neurons alone; tests only look at them."""
    where = tmp_path_factory.mktemp("twin")
    before = Path.cwd()
    os.chdir(where)
    try:
        assert main([*TWIN, "trainer.starts=2", "name=both"]) == 0
        assert main(["model=conv", *SMALL, "trainer.starts=2", "name=alone"]) == 0
    finally:
        os.chdir(before)
    return only_run(where, "both"), only_run(where, "alone")


def test_the_twin_is_what_a_run_of_its_own_gives_to_the_last_digit(finished):
    both, alone = finished
    assert without_times(results_of(both)["twin"]["folds"]) == without_times(results_of(alone)["folds"])
    assert results_of(both)["twin"]["cv"] == results_of(alone)["cv"]
    assert results_of(both)["twin"]["cv_starts"] == results_of(alone)["cv_starts"]
    for name in ("metrics.csv", "test_items.csv"):
        assert (both / "baseline" / name).read_text() == (alone / name).read_text()
    for fold in ("fold_00", "fold_01"):
        folders = both / fold / "baseline", alone / fold
        ours, theirs = (torch.load(path / "best.pt", weights_only=True)["network"] for path in folders)
        assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
        for name in ("last.pt", "status.json", "test_items.csv", "start_01/last.pt"):
            assert (both / fold / "baseline" / name).is_file()
        assert list((both / fold / "baseline").rglob("events.out.tfevents.*"))


def test_the_model_does_not_notice_its_twin(finished, work):
    both, _ = finished
    assert main(["model=self_onn", *SMALL, "trainer.starts=2"]) == 0
    assert without_times(results_of(only_run(work))["folds"]) == without_times(results_of(both)["folds"])


def test_the_difference_is_that_of_the_items_by_scene_as_scipy_tells_it(finished):
    both, _ = finished
    by_scene: dict[str, list[list[float]]] = {}
    mine, theirs = rows(both / "test_items.csv"), rows(both / "baseline" / "test_items.csv")
    assert len(mine) == len(theirs)
    for our, their in zip(mine, theirs, strict=True):
        assert (our["fold"], our["item"], our["metric"]) == (their["fold"], their["item"], their["metric"])
        if (our["split"], our["metric"]) == ("test", "psnr"):
            scene = our["item"].partition("[")[0].removesuffix("_left").removesuffix("_right")
            by_scene.setdefault(scene, []).append([float(our["value"]), float(their["value"])])
    means = np.array([np.mean(pairs, axis=0) for pairs in by_scene.values()])
    expected = stats.ttest_rel(means[:, 0], means[:, 1])
    found = results_of(both)["comparison"]["to"]["conv"]["test/psnr"]["groups"]
    interval = expected.confidence_interval(0.95)
    # Differences are averaged here, averages subtracted there: rounding of scores of size 30.
    assert found["mean"] == pytest.approx(float(np.diff(means[:, ::-1]).mean()), abs=1e-12)
    assert (found["low"], found["high"]) == pytest.approx((interval.low, interval.high), abs=1e-10)
    assert found["n"] == 4, "both motorcycles are one scene"
    whole = results_of(both)["comparison"]["to"]["conv"]["photo/psnr"]
    assert (whole["items"], whole["groups"]["n"]) == (5, 4)


def test_by_fold_it_is_the_difference_of_the_rows_of_the_table(finished):
    content = results_of(finished[0])
    scores = [[f["starts"][f["best_start"]]["test"] for f in part["folds"]] for part in (content, content["twin"])]
    for key in ("test/psnr", "photo/ssim", "test/mse"):
        found = content["comparison"]["to"]["conv"][key]["folds"]
        differences = [ours[key] - theirs[key] for ours, theirs in zip(*scores, strict=True)]
        assert found["mean"] == pytest.approx(np.mean(differences), abs=1e-12)
        split = json.loads((finished[0] / "split.json").read_text())["folds"]
        assert not set(split[0]["train"]) & set(split[1]["train"])
        half = stats.t.ppf(0.975, 1) * np.sqrt(0.5) * np.std(differences, ddof=1)
        assert found["high"] - found["mean"] == pytest.approx(half, rel=1e-6)


def test_the_untrained_baselines_are_compared_too(finished):
    both, alone = finished
    to = results_of(both)["comparison"]["to"]
    assert list(to) == ["conv", "untouched input", "gaussian blur", "non-local means"]
    assert list(results_of(alone)["comparison"]["to"]) == ["untouched input", "gaussian blur", "non-local means"]
    assert results_of(alone)["twin"] is None
    assert to["gaussian blur"]["photo/ssim"]["groups"]["n"] == 4


def test_the_tables_hold_both_and_the_difference(finished):
    text = (finished[0] / "table.md").read_text()
    assert "| conv, mean ± std |" in text
    assert "| conv, mean over starts |" in text
    assert "| to conv (4 groups) |" in text
    assert "| to conv (2 folds) |" in text
    assert "| to non-local means (4 groups) |" in text
    assert "signed-rank" in text


def test_tensorboard_shows_the_twin_beside_the_model(finished):
    both, _ = finished
    events = EventAccumulator(str(both))
    events.Reload()
    mean = results_of(both)["comparison"]["to"]["conv"]["test/psnr"]["groups"]["mean"]
    # TensorBoard keeps float32.
    assert events.Scalars("difference/psnr_to_conv")[0].value == pytest.approx(mean, rel=1e-6)
    twin = EventAccumulator(str(both / "baseline"))
    twin.Reload()
    assert twin.Scalars("cv/psnr_mean")[0].value == pytest.approx(
        results_of(both)["twin"]["cv"]["test/psnr"]["mean"], rel=1e-6
    )
    assert len(twin.Scalars("cv_curves/val_psnr_mean")) == 2


def test_a_finished_run_resumed_trains_nothing_again(finished, monkeypatch):
    both, _ = finished
    monkeypatch.chdir(both.parents[2])
    before = results_of(both)
    assert main([f"resume={both}"]) == 0
    after = results_of(both)
    for key in ("folds", "twin", "comparison", "cv", "status"):
        assert after[key] == before[key]


def test_a_table_of_the_twin_that_was_removed_is_told_and_made_again(work, capsys):
    assert main([*TWIN, "trainer.epochs=1"]) == 0
    run = only_run(work)
    before = results_of(run)["comparison"]
    table = run / "fold_00" / "baseline" / "test_items.csv"
    table.unlink()
    assert main([f"resume={run}"]) == 1
    assert "baseline/test_items.csv" in capsys.readouterr().err
    (table.parent / "status.json").unlink()
    assert main([f"resume={run}"]) == 0
    (run / "fold_01" / "baseline_items.csv").unlink()
    assert main([f"resume={run}"]) == 0
    assert results_of(run)["comparison"] == before


def test_what_is_printed_at_the_start(work, capsys):
    assert main([*TWIN, "dry_run=true"]) == 0
    printed = capsys.readouterr().out
    assert "Baseline conv, trained on the same: 2 layers (conv 3, conv 1)" in printed
    assert "58 parameters (48.2 % fewer than the model)" in printed
    assert "for the baseline" in printed
    assert list(work.iterdir()) == []


def test_keys_of_the_baseline_can_be_set(work, capsys):
    assert main([*TWIN, "model=conv", "baseline=self_onn", "baseline.q=2", "dry_run=true"]) == 0
    assert "2 layers (self_onn q=2 3, conv 1)" in capsys.readouterr().out
    assert main([*TWIN, "model=conv", "baseline.activation=relu", "dry_run=true"]) == 0, "not the model itself"


def test_matched_widths_are_told_for_both(work, capsys):
    assert main([*TWIN, "network.match=params", "network.channels=[8]", "trainer.epochs=1"]) == 0
    content = results_of(only_run(work))
    ours, theirs = content["network"], content["twin"]["network"]
    assert abs(ours["parameters"] / theirs["parameters"] - 1) < 0.2, "one hidden layer of few neurons: coarse steps"
    told = capsys.readouterr()
    assert ours["matched"] in told.out
    assert "\nconv, fold 0 done (2 of 4): best epoch 1" in told.err
    assert "network.match=params" in theirs["matched"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["model=conv", "baseline=conv"], "baseline=conv is the model itself"),
        (["model=conv", "baseline=self_onn", "baseline.q=0"], "baseline.q (=0)"),
        (["model=conv", "baseline=self_onn", "baseline.nothing=1"], "'baseline.nothing'"),
        (["model=conv", "baseline=cnv"], "Did you mean conv?"),
        (["model=conv", "baseline.q=3"], "this run has no baseline; choose one, such as baseline=conv"),
        (["model=conv", "baseline=onn", "ops=[sine]", "baseline.layers=[[sine],[mul],[mul]]"], "baseline.layers"),
        (["model=conv", "baseline=quadratic", "ops=[sine]"], "would change nothing"),
    ],
)
def test_a_mistake_in_the_baseline_is_found_before_anything_is_trained(work, capsys, words, said):
    assert main([*SMALL, *words]) == 2
    assert said in capsys.readouterr().err
    assert list(work.iterdir()) == []


def test_operators_of_a_baseline_that_has_them(work):
    words = ["model=conv", "baseline=onn", "ops=[sine,exp]", "operators.exp.omega=2", "trainer.epochs=1"]
    assert main([*SMALL, *words]) == 0
    run = only_run(work)
    assert run.parent.name == "conv-denoise"
    kinds = [row["facts"]["operators"] for row in results_of(run)["twin"]["network"]["rows"]]
    assert [name for name, _ in kinds[0]] == ["sine", "exp"]


def test_a_diverged_twin_is_a_failure_too(work, capsys):
    # The square of a large input: only the quadratic neurons grow without bound.
    words = ["model=conv", "baseline=quadratic", "baseline.activation=none", "network.residual=false"]
    rate = ["optimizer=sgd", "optimizer.lr=30", "trainer.clip_norm=null"]
    code = main([*SMALL, *words, *rate])
    content = results_of(only_run(work))
    assert {fold["status"] for fold in content["folds"]} == {"done"}
    assert {fold["status"] for fold in content["twin"]["folds"]} == {"diverged"}
    assert (code, content["status"]) == (1, "diverged")
    assert "conv" not in content["comparison"]["to"]
    assert any(text.startswith("quadratic, fold 0 start 0 diverged") for text in content["warnings"])
    assert "quadratic, mean ± std (0 of 2 folds)" in capsys.readouterr().out


def test_a_run_without_a_test_part_ends_with_training_scores(work, capsys):
    words = ["partition=fit", "~partition.folds", "trainer.monitor=train/psnr", "trainer.score_training=true"]
    assert main([*[word for word in TWIN if "partition" not in word], words[0], *words[2:]]) == 0
    printed = capsys.readouterr().out
    assert "training scores, 1 fold" in printed
    assert "train PSNR [dB]" in printed
    content = results_of(only_run(work))
    assert content["baselines"] == {}
    found = content["comparison"]["to"]["conv"]["fitted/psnr"]
    assert found["groups"]["n"] == 4
    assert found["folds"]["low"] is None
    assert "one fold has no interval" in printed


def test_sweeps_over_models_against_one_baseline(work):
    assert main(["-m", "baseline=conv", "model=self_onn,quadratic", *SMALL, "trainer.epochs=1"]) == 0
    runs = sorted(work.glob("multirun/*/*/results.json"))
    contents = [json.loads(path.read_text()) for path in runs]
    assert len(contents) == 2
    first, second = (without_times(content["twin"]["folds"]) for content in contents)
    assert first == second
    scores = [json.loads((path.parent / "job.json").read_text())["score"] for path in runs]
    assert scores == [content["cv"]["val/psnr"]["mean"] for content in contents]


def begin(work: Path, *words: str) -> subprocess.Popen:
    program = [sys.executable, "-c", "import sys; from onn_runner.cli.run import main; sys.exit(main())"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(onn_runner.__file__).parents[1])}
    return subprocess.Popen(
        [*program, *words], cwd=work, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def wait_for(found, process: subprocess.Popen, seconds: float = 120) -> None:
    until = time.monotonic() + seconds
    while not found():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < until, "nothing happened"
        time.sleep(0.01)


def test_kill_9_while_the_twin_trains_and_resume_gives_the_same_numbers(finished, work):
    process = begin(work, *TWIN, "trainer.starts=2", "name=cut")
    wait_for(lambda: list(work.glob("outputs/cut/*/fold_00/baseline/start_01/last.pt")), process)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    run = only_run(work, "cut")
    assert not (run / "fold_01" / "baseline" / "start_01" / "best.pt").exists(), "killed too late to tell anything"
    assert main([f"resume={run}"]) == 0
    whole, cut = results_of(finished[0]), results_of(run)
    assert without_times(cut["folds"]) == without_times(whole["folds"])
    assert without_times(cut["twin"]["folds"]) == without_times(whole["twin"]["folds"])
    assert cut["comparison"] == whole["comparison"]
    for name in ("metrics.csv", "test_items.csv", "baseline/metrics.csv", "baseline/test_items.csv"):
        assert sorted((run / name).read_text().splitlines()) == sorted((finished[0] / name).read_text().splitlines())
