"""Whole runs through the command line: what they leave, how they fail, how they are resumed."""

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
import yaml

import onn_runner
from onn_runner.cli.run import main

SMALL = (
    "data.photographs=[camera,coins,moon,page]",
    "data.patches=6",
    "data.patch=24",
    "data.max_side=96",
    "network.channels=[4]",
    "trainer.pictures=false",
    "partition.folds=2",
    "trainer.epochs=2",
    "trainer.batch_size=6",
)


@pytest.fixture
def work(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def only_run(where: Path) -> Path:
    (run,) = (path.parent for path in where.glob("outputs/*/*/run.json"))
    return run


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as handle:
        return list(csv.DictReader(handle))


def final_numbers(run: Path) -> dict:
    """Everything in a run's results that must not depend on how often it was interrupted."""
    results = json.loads((run / "results.json").read_text())
    for fold in results["folds"]:
        for start in fold["starts"]:
            for key in ("seconds_per_epoch", "seconds", "peak_memory", "energy"):
                del start[key]
    weights = {}
    for fold in results["folds"]:
        state = torch.load(run / f"fold_{fold['fold']:02d}" / "best.pt", weights_only=True)
        weights[fold["fold"]] = state
    numbers = {key: results[key] for key in ("status", "folds", "cv", "cv_starts", "baselines", "left_out")}
    tables = [sorted((run / name).read_text().splitlines()) for name in ("metrics.csv", "test_items.csv")]
    return {"numbers": numbers, "tables": tables}


def test_a_run_leaves_all_that_a_paper_needs(work, capsys):
    assert main(["model=onn", "ops=sine,exp", "data=denoise", "trainer.starts=2", *SMALL]) == 0
    run = only_run(work)
    assert run.parent.name == "onn-sine+exp-denoise"
    results = json.loads((run / "results.json").read_text())
    assert (results["schema"], results["status"], len(results["folds"])) == (1, "done", 2)
    assert {"test/psnr", "photo/psnr", "test/ssim", "val/psnr"} <= set(results["cv"])
    assert {"untouched input", "gaussian blur", "non-local means"} <= set(results["baselines"])
    assert results["cv_starts"]["test/psnr"]["folds"] == 2
    record = json.loads((run / "run.json").read_text())
    assert record["command"][:4] == ["onn-run", "model=onn", "ops=sine,exp", "data=denoise"]
    assert record["status"] == "done"
    config = yaml.safe_load((run / "config.yaml").read_text())
    assert list(config["ops"]) == ["sine", "exp"]
    for fold in ("fold_00", "fold_01"):
        state = torch.load(run / fold / "best.pt", weights_only=True)
        assert state
        assert (run / fold / "last.pt").is_file()
        assert json.loads((run / fold / "status.json").read_text())["status"] == "done"
        assert list((run / fold).rglob("events.out.tfevents.*"))
    tidy = rows(run / "metrics.csv")
    assert set(tidy[0]) == {"fold", "start", "epoch", "split", "metric", "value"}
    assert {(row["fold"], row["start"]) for row in tidy} == {(f, s) for f in "01" for s in "01"}
    split = json.loads((run / "split.json").read_text())
    tested = [item for fold in split["folds"] for item in fold["test"]]
    assert sorted(tested) == list(range(len(tested)))
    scored = [row for row in rows(run / "test_items.csv") if (row["split"], row["metric"]) == ("test", "psnr")]
    assert {split["names"][number] for number in tested} == {row["item"] for row in scored}
    assert len(scored) == len(tested)
    baseline = [r for r in rows(run / "baseline_items.csv") if (r["split"], r["metric"]) == ("test", "psnr")]
    assert {row["item"] for row in baseline} == {row["item"] for row in scored}
    printed = capsys.readouterr().out
    for words in (
        "mean ± std",
        "mean over starts",
        "non-local means",
        "best.pt",
        "tensorboard --logdir",
        "sine:2 exp:2",
    ):
        assert words in printed


def test_the_mean_in_the_results_is_the_mean_of_the_items(work):
    assert main(["model=conv", *SMALL]) == 0
    run = only_run(work)
    results = json.loads((run / "results.json").read_text())
    items = rows(run / "test_items.csv")
    for fold in results["folds"]:
        scores = [
            float(row["value"])
            for row in items
            if (row["fold"], row["split"], row["metric"]) == (str(fold["fold"]), "test", "psnr")
        ]
        assert fold["starts"][0]["test"]["test/psnr"] == pytest.approx(sum(scores) / len(scores), rel=1e-9)


def test_the_same_seed_gives_the_same_numbers_and_another_seed_others(work):
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        assert main(["model=onn", "ops=sine,exp", f"seed={seed}", f"name={name}", *SMALL]) == 0
    a, b, c = (final_numbers(next(work.glob(f"outputs/{name}/*"))) for name in "abc")
    assert a == b
    assert a["numbers"]["folds"] != c["numbers"]["folds"]
    assert a["numbers"]["baselines"] == c["numbers"]["baselines"], "the seed must not change the data that is tested"


def test_a_dry_run_shows_everything_and_writes_nothing(work, capsys):
    assert main(["model=onn", "ops=sine,exp", "dry_run=true", *SMALL]) == 0
    assert list(work.iterdir()) == []
    printed = capsys.readouterr().out
    for words in ("sine:2 exp:2", "parameters", "MACs", "fold 0: train", "Estimated training time", "chebyshev"):
        assert words in printed


def test_a_diverged_fold_is_named_and_does_not_look_like_success(work, capsys):
    code = main(["model=conv", "optimizer=sgd", "optimizer.lr=1e25", "network.residual=false", *SMALL])
    assert code == 1
    run = only_run(work)
    results = json.loads((run / "results.json").read_text())
    assert results["status"] == "diverged"
    assert json.loads((run / "run.json").read_text())["status"] == "diverged"
    assert {fold["status"] for fold in results["folds"]} == {"diverged"}
    where = results["folds"][0]["starts"][0]["diverged"]
    assert where["epoch"] >= 1
    assert where["layer"]
    assert results["cv"] == {}
    assert "diverged at epoch" in capsys.readouterr().out


def test_more_epochs_go_on_from_where_a_finished_run_stood(work):
    assert main(["model=conv", *SMALL]) == 0
    run = only_run(work)
    assert main([f"resume={run}", "trainer.epochs=3"]) == 0
    assert main([f"resume={run}"]) == 0, "the command that an interrupted run prints must know of the added epochs"
    results = json.loads((run / "results.json").read_text())
    assert [fold["starts"][0]["epochs_run"] for fold in results["folds"]] == [3, 3]
    epochs = [
        row["epoch"] for row in rows(run / "metrics.csv") if (row["fold"], row["metric"]) == ("0", "learning_rate")
    ]
    assert epochs == ["1", "2", "3"]


def test_items_split_without_regard_to_groups_are_told_and_photographs_not_scored(work, capsys):
    assert main(["model=conv", "partition=kfold", *SMALL]) == 0
    results = json.loads((only_run(work) / "results.json").read_text())
    assert "test/psnr" in results["cv"]
    assert not any(key.startswith("photo/") for key in results["cv"])
    assert "4 of the test groups are also trained on" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["true", "../elsewhere", "/tmp/elsewhere", "'  '"])
def test_a_name_is_a_folder_below_outputs(work, capsys, name):
    assert main([f"name={name}", "model=conv", *SMALL]) == 2
    assert "must be a word for a folder below outputs/" in capsys.readouterr().err
    assert list(work.iterdir()) == []


@pytest.mark.parametrize(
    ("override", "named"),
    [
        ("network.channels=[5]", r"network.channels ([4] -> [5])"),
        ("seed=3", "seed (0 -> 3)"),
        ("data.sigma=50", "data.sigma (25 -> 50)"),
        ("trainer.epochs=1", "trainer.epochs (=1) is less"),
        ("model=onn", "model._target_"),
    ],
)
def test_a_resumed_run_is_the_same_experiment(finished, monkeypatch, capsys, override, named):
    monkeypatch.chdir(finished.parents[2])
    before = (finished / "results.json").read_bytes()
    assert main([f"resume={finished}", override]) == 2
    assert named in capsys.readouterr().err
    assert (finished / "results.json").read_bytes() == before


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A finished run that tests only look at."""
    where = tmp_path_factory.mktemp("finished")
    before = Path.cwd()
    os.chdir(where)
    try:
        assert main(["model=conv", *SMALL]) == 0
    finally:
        os.chdir(before)
    return only_run(where)


def test_a_finished_run_resumed_does_nothing_again(finished, monkeypatch, capsys):
    monkeypatch.chdir(finished.parents[2])
    before = final_numbers(finished)
    weights = (finished / "fold_00" / "best.pt").read_bytes()
    assert main([f"resume={finished}"]) == 0
    assert final_numbers(finished) == before
    assert (finished / "fold_00" / "best.pt").read_bytes() == weights
    assert "mean ± std" in capsys.readouterr().out


def test_a_removed_table_is_told_and_made_again(work, capsys):
    assert main(["model=conv", *SMALL]) == 0
    run = only_run(work)
    before = final_numbers(run)
    (run / "fold_00" / "test_items.csv").unlink()
    assert main([f"resume={run}"]) == 1
    assert "test_items.csv is gone: remove status.json beside it" in capsys.readouterr().err
    (run / "fold_00" / "status.json").unlink()
    assert main([f"resume={run}"]) == 0
    assert final_numbers(run) == before


def begin(work: Path, *words: str) -> subprocess.Popen:
    program = [sys.executable, "-c", "import sys; from onn_runner.cli.run import main; sys.exit(main())"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(onn_runner.__file__).parents[1])}
    return subprocess.Popen(
        [*program, *words], cwd=work, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def wait_for(condition, process: subprocess.Popen, seconds: float = 120) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < until, "nothing happened"
        time.sleep(0.01)


KILLED = ("model=onn", "ops=sine,exp", "trainer.starts=2", *SMALL)


def test_kill_9_at_several_moments_and_resume_gives_identical_numbers(work):
    undisturbed = begin(work, *KILLED, "name=whole")
    output = undisturbed.communicate(timeout=300)[0]
    assert undisturbed.returncode == 0, output
    process = begin(work, *KILLED, "name=cut")
    # Two moments; `make soak` has fifty.
    for moment in ("fold_00/start_01/best.pt", "fold_01/metrics.csv"):
        wait_for(lambda moment=moment: list(work.glob(f"outputs/cut/*/{moment}")), process)
        process.kill()
        process.communicate()
        (run,) = work.glob("outputs/cut/*")
        process = begin(work, f"resume={run}")
    output = process.communicate(timeout=300)[0]
    assert process.returncode == 0, output
    (whole,) = work.glob("outputs/whole/*")
    assert final_numbers(run) == final_numbers(whole)
    assert len(json.loads((run / "run.json").read_text())["resumed"]) >= 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_and_sigterm_save_and_say_what_to_type(work, number):
    process = begin(work, "model=conv", *SMALL, "trainer.epochs=500")
    wait_for(lambda: list(work.glob("outputs/*/*/fold_00/last.pt")), process)
    process.send_signal(number)
    output = process.communicate(timeout=60)[0]
    run = only_run(work)
    assert process.returncode == 130, output
    assert f"onn-run resume={run.relative_to(work)}" in output
    assert "Traceback" not in output
    assert json.loads((run / "run.json").read_text())["status"] == "interrupted"
    assert json.loads((run / "results.json").read_text())["status"] == "interrupted"
