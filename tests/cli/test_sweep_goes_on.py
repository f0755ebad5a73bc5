"""The same command again: what is finished stays, what was stopped goes on, what is of something else is set aside."""

from __future__ import annotations

import json
import multiprocessing
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from onn_runner import experiment, locking
from onn_runner.cli import job, standing, sweep_folder
from onn_runner.code_version import code_version
from onn_runner.errors import ConfigError, Interrupted
from onn_runner.operator_sets import uses_operators

Leave = Callable[..., experiment.Outcome]


@pytest.fixture
def leave(runs, monkeypatch: pytest.MonkeyPatch) -> Leave:
    """`leave(config)`: what a run leaves in its folder, without training; the last run's request tells the folder."""
    monkeypatch.setattr(standing, "_fingerprint", lambda data: "these items")

    def left(config: Any, *, status: str = "done", fingerprint: str = "these items") -> experiment.Outcome:
        folder = runs.requests[-1].folder
        plain = experiment.with_monitor(experiment.plain_config(config))
        stored = experiment.stored_config(plain, with_operators=uses_operators(config))
        (folder / "config.yaml").write_text(yaml.safe_dump(stored))
        (folder / "split.json").write_text(json.dumps({"fingerprint": fingerprint}))
        (folder / "run.json").write_text(json.dumps({"schema": 1, "code": code_version(stored), "resumed": []}))
        (folder / "results.json").write_text(json.dumps({"status": status}))
        return experiment.Outcome(int(status == "diverged"), None if status == "diverged" else 1.5, folder)

    runs.answer = left
    return left


def seeds(runs) -> list[int]:
    return [config.seed for config in runs.configs]


def the_sweep(folder: Path) -> Path:
    [found] = (folder / "multirun").iterdir()
    return found


def test_finished_jobs_stay_as_they_are(onn_run, runs, leave: Leave, tmp_path: Path) -> None:
    first = onn_run("-m", "seed=1,2", "ops=sine,exp")
    before = {
        path: path.stat().st_mtime_ns for path in the_sweep(tmp_path).rglob("*.json") if path.name != "sweep.json"
    }
    again = onn_run("-m", "ops=sine,exp", "seed=1,2")
    assert (first.code, again.code) == (0, 0), again.err
    assert len(runs.configs) == 4
    assert "4 of 4 jobs have ended already" in again.err
    assert "1.5" in again.out
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_an_interrupted_sweep_goes_on_where_it_stopped(onn_run, runs, leave: Leave, tmp_path: Path) -> None:
    def stop(config: Any) -> experiment.Outcome:
        outcome = leave(config, status="interrupted" if config.seed == 2 else "done")
        if config.seed == 2:
            raise Interrupted("saved")
        return outcome

    runs.answer = stop
    answer = onn_run("-m", "seed=1,2,3")
    assert answer.code == 130
    assert seeds(runs) == [1, 2]
    assert "to go on, the same command: onn-run -m seed=1,2,3" in answer.err
    assert sweep_folder.read(the_sweep(tmp_path)).status == "stopped"
    runs.answer = leave
    answer = onn_run("-m", "seed=1,2,3")
    assert answer.code == 0, answer.err
    assert seeds(runs) == [1, 2, 2, 3]
    assert runs.requests[2].resume == the_sweep(tmp_path) / "seed-2"
    assert runs.requests[3].resume is None
    assert sweep_folder.read(the_sweep(tmp_path)).status == "finished"


def test_more_values_under_the_same_name_are_more_jobs(onn_run, runs, leave: Leave, tmp_path: Path) -> None:
    onn_run("-m", "seed=1,2", "name=mine")
    answer = onn_run("-m", "seed=0,1,2", "name=mine")
    assert answer.code == 0, answer.err
    assert seeds(runs) == [1, 2, 0]
    assert the_sweep(tmp_path).name == "mine"


@pytest.mark.parametrize("seeds_then", ["0,1,2", "0", "1,0"])
def test_jobs_of_earlier_commands_stay_in_the_plan(seeds_then: str, onn_run, runs, leave: Leave, tmp_path) -> None:
    onn_run("-m", "seed=1,2", "name=mine", "model=conv,onn")
    answer = onn_run("-m", f"seed={seeds_then}", "name=mine", "model=conv,onn")
    assert answer.code == 0, answer.err
    known = {"1", "2", *seeds_then.split(",")}
    assert {job.folder for job in sweep_folder.read(the_sweep(tmp_path)).jobs} == {
        f"model-{model}_seed-{seed}" for model in ("conv", "onn") for seed in known
    }
    assert len(runs.configs) == 2 * len(known)
    others = 2 * len(known - set(seeds_then.split(",")))
    assert (f"and {others} jobs of other commands" in answer.out) == (others > 0)


def test_damaged_results_are_made_again(onn_run, runs, leave: Leave, tmp_path: Path) -> None:
    onn_run("-m", "seed=1,2")
    results = the_sweep(tmp_path) / "seed-2" / "results.json"
    results.write_text("garbage")
    answer = onn_run("-m", "seed=1,2")
    assert answer.code == 0, answer.err
    assert runs.requests[2].resume == results.parent
    assert json.loads(results.read_text())["status"] == "done"


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("name=a,b", "a sweep has one name"),
        ("name=../there", "must be a word for a folder below outputs/"),
        ("name=/there", "must be a word for a folder below outputs/"),
        ("seed=range(5,0)", "seed=range(5,0): there is no value in it"),
    ],
)
@pytest.mark.parametrize("dry", [True, False])
def test_what_makes_no_sweep_is_told_once_before_anything(dry, typed, message, onn_run, runs, tmp_path: Path) -> None:
    answer = onn_run("-m", "data.seed=1,2", typed, *(["dry_run=true"] if dry else []))
    assert answer.code == 2
    assert answer.err.count(message) == 1
    assert "Traceback" not in answer.err
    assert not runs.configs
    assert list(tmp_path.iterdir()) == []


def test_a_folder_belongs_to_one_sweep(onn_run, runs, leave: Leave) -> None:
    onn_run("-m", "seed=1,2", "name=mine", "trainer.epochs=3")
    answer = onn_run("-m", "seed=1,2", "name=mine", "trainer.epochs=4")
    assert answer.code == 2
    assert "holds another sweep: what all jobs share is trainer.epochs=4 here and trainer.epochs=3 there" in answer.err
    assert seeds(runs) == [1, 2]


@pytest.mark.parametrize("what", ["code", "data", "config"])
def test_what_is_of_something_else_is_set_aside(what: str, onn_run, runs, leave: Leave, tmp_path: Path) -> None:
    onn_run("-m", "seed=1,2")
    folder = the_sweep(tmp_path) / "seed-2"
    (folder / "events.out.tfevents.1").write_text("events")
    if what == "code":
        (folder / "run.json").write_text(json.dumps({"schema": 1, "code": "0.0.1+before", "resumed": []}))
    elif what == "data":
        (folder / "split.json").write_text(json.dumps({"fingerprint": "other items"}))
    else:
        stored = yaml.safe_load((folder / "config.yaml").read_text())
        stored["optimizer"]["lr"] = 17.0
        (folder / "config.yaml").write_text(yaml.safe_dump(stored))
    answer = onn_run("-m", "seed=1,2")
    assert answer.code == 0, answer.err
    assert seeds(runs) == [1, 2, 2]
    reasons = {
        "code": "its code was 0.0.1+before",
        "data": "its data was other data",
        "config": "its optimizer.lr was 17",
    }
    assert f"seed-2 is run anew: {reasons[what]}" in answer.err
    kept = the_sweep(tmp_path) / "earlier" / "seed-2-1"
    assert (kept / "results.json").is_file()
    assert not list(kept.glob("*tfevents*"))
    assert "2 jobs" in answer.out


def test_a_failed_job_is_tried_again_only_when_asked_for(onn_run, runs, leave: Leave) -> None:
    def fail(config: Any) -> experiment.Outcome:
        if config.seed == 2:
            raise ConfigError("seed (=2) is odd")
        return leave(config)

    runs.answer = fail
    assert onn_run("-m", "seed=1,2").code == 2
    answer = onn_run("-m", "seed=1,2")
    assert answer.code == 2
    assert seeds(runs) == [1, 2]
    assert answer.err.count("seed (=2) is odd") == 1
    runs.answer = leave
    answer = onn_run("-m", "seed=1,2", "sweep.retry_failed=true")
    assert answer.code == 0, answer.err
    assert seeds(runs) == [1, 2, 2]


def test_a_diverged_job_is_tried_again_anew(onn_run, runs, leave: Leave, tmp_path: Path) -> None:
    runs.answer = lambda config: leave(config, status="diverged")
    assert onn_run("-m", "seed=1").code == 1
    runs.answer = leave
    assert onn_run("-m", "seed=1", "sweep.retry_failed=true").code == 0
    assert runs.requests[1].resume is None
    assert (the_sweep(tmp_path) / "earlier" / "run-1" / "results.json").is_file()


def _hold(path: str, seconds: float, taken: Any) -> None:
    with locking.hold(Path(path)):
        taken.set()
        time.sleep(seconds)


@pytest.fixture
def other_process(tmp_path: Path):
    """`other_process(path, seconds)`: another process holds the lock for so long."""
    started = []

    def call(path: Path, seconds: float) -> None:
        context = multiprocessing.get_context("fork")
        taken = context.Event()
        path.parent.mkdir(parents=True, exist_ok=True)
        process = context.Process(target=_hold, args=(str(path), seconds, taken))
        process.start()
        taken.wait()
        started.append(process)

    yield call
    for process in started:
        process.kill()
        process.join()


def test_a_second_start_does_not_share_the_folder(onn_run, runs, leave: Leave, tmp_path: Path, other_process) -> None:
    onn_run("-m", "seed=1")
    other_process(the_sweep(tmp_path) / ".lock", 30)
    answer = onn_run("-m", "seed=1")
    assert answer.code == 2
    assert "is being computed by another process" in answer.err
    assert len(runs.configs) == 1


def test_a_job_that_another_process_still_computes_is_waited_for(tmp_path: Path, other_process, capsys) -> None:
    other_process(tmp_path / "seed-1" / job.LOCK, 2.5)
    with job.held(tmp_path / "seed-1"):
        assert locking.held(tmp_path / "seed-1" / job.LOCK)
    assert "waiting for seed-1, which another process computes" in capsys.readouterr().err
    assert not locking.held(tmp_path / "seed-1" / job.LOCK)


def test_a_dry_run_leaves_nothing(onn_run, runs, tmp_path: Path) -> None:
    assert onn_run("-m", "seed=1,2", "dry_run=true").code == 0
    assert len(runs.configs) == 2
    assert not (tmp_path / "multirun").exists()


def test_how_a_sweep_runs_is_no_part_of_its_jobs(onn_run, runs, tmp_path: Path) -> None:
    assert onn_run("-m", "seed=1,2", "sweep=local", "sweep.retry_failed=true").code == 0
    assert [request.overrides for request in runs.requests] == [("seed=1",), ("seed=2",)]
    assert sweep_folder.read(the_sweep(tmp_path)).constants == ()


@pytest.mark.parametrize("content", ["", "[]", '{"jobs": [{"folder": 1}]}', "{\x00"])
def test_a_damaged_plan_is_one_sentence(content: str, onn_run, runs, tmp_path: Path) -> None:
    onn_run("-m", "seed=1")
    (the_sweep(tmp_path) / "sweep.json").write_text(content)
    answer = onn_run("-m", "seed=1")
    assert answer.code == 2
    assert "sweep.json is no plan of a sweep" in answer.err
    assert "Traceback" not in answer.err


def test_a_file_in_a_jobs_place_is_told_before_anything_runs(onn_run, runs, tmp_path: Path) -> None:
    (tmp_path / "multirun" / "mine").mkdir(parents=True)
    (tmp_path / "multirun" / "mine" / "seed-2").write_text("mine")
    answer = onn_run("-m", "seed=1,2", "name=mine")
    assert answer.code == 2
    assert "seed-2 is a file, and a job's folder is to be there: move it away" in answer.err
    assert not runs.configs


def test_without_its_data_a_finished_job_stays_and_another_fails(onn_run, runs, leave: Leave, monkeypatch) -> None:
    def gone(data: str) -> str:
        raise ConfigError("data.path=photos: there is no such folder")

    runs.answer = lambda config: leave(config) if config.seed == 1 else leave(config, status="diverged")
    assert onn_run("-m", "seed=1,2").code == 1
    monkeypatch.setattr(standing, "_fingerprint", gone)

    def refuse(config: Any) -> experiment.Outcome:
        raise ConfigError("data.path=photos: there is no such folder")

    runs.answer = refuse
    answer = onn_run("-m", "seed=1,2", "sweep.retry_failed=true")
    assert answer.code == 2
    assert "seed-1 stays as it is, unchecked: data.path=photos" in answer.err
    assert "seed-2 failed: data.path=photos: there is no such folder" in answer.err
    assert seeds(runs) == [1, 2, 2]
