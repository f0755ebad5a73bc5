"""Where runs and sweeps stand, read from folders in every state that a killed process can leave them in."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from study_examples import write_job, write_plan, write_run, write_sweep

from onn_runner import locking, storage
from onn_runner.errors import ConfigError
from onn_runner.study import sweep_progress
from onn_runner.study.files import Files, number_of, whole
from onn_runner.study.progress import of_run
from onn_runner.study.sweep_progress import look, of_sweep
from onn_runner.study.view import clock, printable


def training(run: Path, fold: int, *, epochs: int, starts: int = 0, status: str = "running", pace: float = 2.0) -> Path:
    """A fold's folder with `starts` starts that are over and `epochs` epochs of the next."""
    folder = run / f"fold_{fold:02d}"
    folder.mkdir(parents=True, exist_ok=True)
    over = [
        {"start": n, "status": "done", "epochs_run": 3, "seconds_per_epoch": pace, "best": {"val/psnr": 20.0 + n}}
        for n in range(starts)
    ]
    storage.write_json(
        folder / "status.json",
        {"format": 1, "fold": fold, "status": status, "monitor": "val/psnr", "best_start": None, "starts": over},
    )
    rows = [f"{fold},{n},{epoch},val,psnr,{19 + n + epoch / 10}" for n in range(starts) for epoch in (1, 2, 3)]
    rows += [f"{fold},{starts},{epoch},val,psnr,{22 - epoch / 10}" for epoch in range(1, epochs + 1)]
    rows += [f"{fold},{starts - 1},9,test,psnr,99"] if starts else []
    text = "\n".join(["fold,start,epoch,split,metric,value", *rows]) + "\n"
    (folder / "metrics.csv").write_text(text, encoding="utf-8")
    return folder


def waiting(number: int) -> dict[str, object]:
    return {"folder": f"seed-{number}", "overrides": [f"seed={number}"]}


def test_a_running_run_tells_its_epoch_and_what_is_left(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", status="running", done=1, trainer__starts=3)
    training(run, 0, starts=3, epochs=0, status="done", pace=2.0)
    training(run, 1, starts=1, epochs=2, pace=4.0)
    with locking.hold(run / ".lock"):
        told = of_run(run, Files())
    assert (told.status, told.folds_done, told.folds) == ("running", 1, 3)
    now = told.current
    assert now is not None
    assert (now.fold, now.start, now.starts, now.epoch, now.epochs) == (1, 1, 3, 2, 3)
    assert now.best == pytest.approx(21.9)
    # 4 epochs of this fold and 9 of the next, at the mean of both folds' paces.
    assert told.seconds_left == pytest.approx((4 + 9) * 3.0)


def test_without_its_process_it_was_killed(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", status="running", done=1)
    assert of_run(run, Files()).status == "killed"
    (run / ".lock").touch()
    told = of_run(run, Files())
    assert told.status == "killed"
    assert "resume=" in told.reason


def test_looking_makes_no_file_and_keeps_nobody_out(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", status="running", done=1)
    before = sorted(path.name for path in run.iterdir())
    files = Files()
    of_run(run, files)
    assert sorted(path.name for path in run.iterdir()) == before
    with locking.hold(run / ".lock"):
        pass


def test_the_pace_of_the_first_start_is_that_since_it_began(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", status="running", done=0)
    fold = training(run, 0, epochs=2)
    began = time.time()
    os.utime(fold / "status.json", (began - 30, began - 30))
    os.utime(fold / "metrics.csv", (began - 10, began - 10))
    with locking.hold(run / ".lock"):
        told = of_run(run, Files())
    assert told.parts[0].seconds_per_epoch == pytest.approx(10)
    assert told.seconds_left == pytest.approx(10 * (1 + 3 + 3))


def test_after_a_resumption_it_is_that_of_the_last_epoch(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", status="running", done=0)
    fold = training(run, 0, epochs=2)
    record = json.loads((run / "run.json").read_text())
    storage.write_json(run / "run.json", record | {"resumed": [{"at": "2026-01-01T00:00:00+00:00"}]})
    resumed = 1767225600.0
    for name, when in (("status.json", 1), ("metrics.csv", 300), ("last.previous.pt", 280), ("last.pt", 300)):
        (fold / name).touch()
        os.utime(fold / name, (resumed + when, resumed + when))
    with locking.hold(run / ".lock"):
        assert of_run(run, Files()).parts[0].seconds_per_epoch == pytest.approx(20)
        # Saved before the run was stopped: the time between says nothing.
        os.utime(fold / "last.previous.pt", (resumed - 500, resumed - 500))
        assert of_run(run, Files()).parts[0].seconds_per_epoch is None


def test_a_twin_is_a_part_of_every_fold(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", status="running", done=1, twin="conv")
    training(run, 0, starts=1, epochs=0, status="done")
    twin = training(run, 7, epochs=1)
    twin.rename(run / "fold_00" / "baseline")
    told = of_run(run, Files())
    assert [(part.fold, part.of) for part in told.parts][:2] == [(0, ""), (0, "conv")]
    assert told.folds_done == 0
    assert told.current is not None
    assert told.current.of == "conv"


def test_every_state_of_a_sweeps_jobs(tmp_path: Path) -> None:
    sweep = write_sweep(tmp_path / "sweep", ("conv",), (0,))
    write_job(sweep / "model-conv_seed-0", overrides=["seed=0"], score=21.5, ended="2026-01-01T00:00:40+00:00")
    for number, status in enumerate(("failed", "stopped", "pruned", "running", "running")):
        write_job(
            sweep / f"seed-{number}", overrides=[f"seed={number}"], status=status, error="it broke"[: 9 * (not number)]
        )
    write_run(sweep / "seed-4", status="running", done=1)
    planned = [{"folder": "model-conv_seed-0", "overrides": ["seed=0"]}, *map(waiting, range(7))]
    write_plan(sweep, planned)
    (sweep / "earlier" / "seed-0-1").mkdir(parents=True)
    write_job(sweep / "earlier" / "seed-0-1", overrides=[])
    with locking.hold(sweep / "seed-4" / ".job.lock"):
        found = look([sweep], Files())
        assert found.running
    (told,) = found.sweeps
    states = ["finished", "failed", "stopped", "pruned", "killed", "running", "waiting", "waiting"]
    assert [job.status for job in told.jobs] == states
    assert told.jobs[0].score == 21.5
    assert told.jobs[1].reason == "it broke"
    assert told.jobs[5].folds_done == 0
    assert told.monitor == "val/psnr"
    assert found.wrong
    # The stopped, the killed and the waiting ones take 40 s each; of the running one nothing else is known.
    assert told.seconds_left is not None
    assert told.seconds_left >= 4 * 40


def test_a_sweep_whose_process_lives_runs(tmp_path: Path) -> None:
    sweep = tmp_path / "sweep"
    write_plan(sweep, [waiting(0)])
    plan = json.loads((sweep / "sweep.json").read_text())
    storage.write_json(sweep / "sweep.json", plan | {"status": "running", "trials": 20, "launcher": "joblib"})
    assert of_sweep(sweep, Files()).status == "killed"
    with locking.hold(sweep / ".lock"):
        told = of_sweep(sweep, Files())
    assert (told.status, told.trials_left, told.launcher) == ("running", 19, "joblib")


def test_a_training_that_diverges_is_told_and_an_answer_to_a_search(tmp_path: Path) -> None:
    sweep = tmp_path / "sweep"
    run = write_run(sweep / "seed-0", status="diverged")
    results = json.loads((run / "results.json").read_text())
    storage.write_json(run / "results.json", results | {"warnings": ["fold 0 start 0 diverged at epoch 1"]})
    write_job(run, overrides=["seed=0"], status="failed", exit_code=1, error="some folds failed")
    write_plan(sweep, [waiting(0)])
    found = look([sweep], Files())
    assert found.sweeps[0].jobs[0].reason == "fold 0 start 0 diverged at epoch 1"
    assert found.wrong
    plan = json.loads((sweep / "sweep.json").read_text())
    storage.write_json(sweep / "sweep.json", plan | {"trials": 4})
    assert not look([sweep], Files()).wrong


@pytest.mark.parametrize("name", ["sweep.json", "job.json", "run.json", "config.yaml", "split.json", "results.json"])
@pytest.mark.parametrize(
    "content", ["", "{ half", "[]", "null", '{"status": 3, "jobs": 4, "folds": [1, {}], "cv": []}', "\x00"]
)
def test_whatever_a_file_holds_there_is_an_answer(name: str, content: str, tmp_path: Path) -> None:
    sweep = write_sweep(tmp_path / "sweep", ("conv",), (0, 1), status="running", done=1)
    for job in ("model-conv_seed-0", "model-conv_seed-1"):
        write_job(sweep / job, overrides=[], status="stopped")
    path = sweep / name if name == "sweep.json" else sweep / "model-conv_seed-0" / name
    path.write_text(content, encoding="utf-8")
    for part in ("status.json", "metrics.csv"):
        fold = sweep / "model-conv_seed-1" / "fold_00"
        fold.mkdir(exist_ok=True)
        (fold / part).write_text(content, encoding="utf-8")
    (told,) = look([sweep], Files()).sweeps
    assert len(told.jobs) == 2


def test_a_half_written_row_is_no_epoch(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", status="running", done=0)
    fold = training(run, 0, epochs=2)
    with (fold / "metrics.csv").open("a") as file:
        file.write("0,0,3,val,ps")
    assert of_run(run, Files()).parts[0].epoch == 2


def test_a_file_is_read_again_where_it_changed(tmp_path: Path) -> None:
    path, files = tmp_path / "a.json", Files()
    storage.write_json(path, {"a": 1})
    first = files.json(path)
    assert files.json(path) is first
    storage.write_json(path, {"a": 2})
    assert files.json(path) == {"a": 2}
    path.unlink()
    assert files.json(path) is None
    os.mkfifo(path)
    assert files.json(path) is None


def test_plans_that_lead_elsewhere_are_not_followed(tmp_path: Path) -> None:
    write_plan(tmp_path / "sweep", [{"folder": name} for name in ("..", "../x", "/etc", "", "a\0b", 3, "good")])
    assert [job.name for job in of_sweep(tmp_path / "sweep", Files()).jobs] == ["good"]


def test_folders_that_contain_runs(tmp_path: Path) -> None:
    write_run(tmp_path / "outputs" / "a" / "2026", status="done")
    write_run(tmp_path / "outputs" / "b" / "2026", status="diverged")
    write_sweep(tmp_path / "multirun" / "s", ("conv",), (0,))
    found = look([tmp_path, tmp_path / "outputs"], Files())
    assert sorted(run.status for run in found.runs) == ["failed", "finished"]
    assert [sweep.folder.name for sweep in found.sweeps] == ["s"]
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match="neither a run nor a sweep"):
        look([tmp_path / "empty"], Files())
    with pytest.raises(ConfigError, match="no such folder"):
        look([tmp_path / "nothing"], Files())


def test_a_thousand_finished_jobs_take_less_than_a_second(tmp_path: Path) -> None:
    sweep = write_sweep(tmp_path / "sweep", ("conv",), (0,))
    job = sweep / "model-conv_seed-0"
    for number in range(1000):
        folder = sweep / f"seed-{number}"
        folder.mkdir()
        os.link(job / "results.json", folder / "results.json")
        (folder / "job.json").write_text('{"status": "finished", "score": 1.0}')
    write_plan(sweep, [waiting(number) for number in range(1000)])
    before = time.process_time()
    told = of_sweep(sweep, Files())
    assert told.counts["finished"] == 1000
    assert time.process_time() - before < 1


@pytest.mark.parametrize(
    ("value", "number"), [("inf", None), ("2.5", 2.5), (None, None), (True, None), ([], None), (3, 3.0)]
)
def test_numbers_of_unknown_origin(value: object, number: float | None) -> None:
    assert number_of(value) == number
    assert whole(value) == (3 if value == 3 else None)


def test_texts_of_unknown_origin_stay_on_their_line() -> None:
    assert printable("a\x1b[2Jb\nc\udc80é[red]") == "a\\x1b[2Jb\\nc\\udc80é[red]"
    assert sweep_progress._words("abc") == ()


@pytest.mark.parametrize(("seconds", "text"), [(5, "0:05"), (3725, "1:02:05"), (200_000, "2 d 7 h")])
def test_clock(seconds: float, text: str) -> None:
    assert clock(seconds) == text
