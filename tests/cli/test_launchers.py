"""Sweeps in processes of their own: one that dies is launched again, its neighbours never pay for it; logs and news.

`scripts/soak.py` kills real processes of real launchers; here a launcher stands for them that is quick.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hydra.core.plugins import Plugins

from onn_runner import experiment
from onn_runner.cli import job, sweep, watching
from onn_runner.cli.check import Checker
from onn_runner.errors import ConfigError


class Killed(BaseException):
    """What stands for SIGKILL: nothing in the job catches it."""


@pytest.fixture
def launcher() -> Any:
    """The class that Hydra uses: it makes those of its plugins anew when it looks for them, once a process."""
    Plugins.instance()
    return sys.modules["hydra._internal.core_plugins.basic_launcher"].BasicLauncher


@pytest.fixture
def launches(launcher, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The folders of every launch; a job that raises Killed takes the jobs after it along, as in joblib's pool."""
    told: list[list[str]] = []
    launch = launcher.launch

    def pool(self: Any, job_overrides: Any, initial_job_idx: int) -> Any:
        told.append([words[-1].partition("=")[2] for words in job_overrides])
        try:
            return launch(self, job_overrides, initial_job_idx)
        except Killed as error:
            raise RuntimeError("a process of the pool was terminated") from error

    monkeypatch.setattr(launcher, "launch", pool)
    monkeypatch.setattr(sweep, "_pooled", lambda launcher: True)
    return told


def dying(runs, deaths: dict[int, int]) -> Callable[[Any], experiment.Outcome]:
    """seed -> how often its process dies."""

    def answer(config: Any) -> experiment.Outcome:
        if sum(other.seed == config.seed for other in runs.configs) <= deaths.get(config.seed, 0):
            raise Killed
        return experiment.Outcome(0, 1.5, None)

    return answer


def statuses(folder: Path) -> dict[str, str]:
    found = folder.glob("multirun/*/*/job.json")
    return {path.parent.name: json.loads(path.read_text())["status"] for path in sorted(found)}


def test_a_job_whose_process_dies_is_launched_again_alone(onn_run, runs, launches, tmp_path: Path) -> None:
    runs.answer = dying(runs, {2: 1})
    answer = onn_run("-m", "seed=1,2,3")
    assert answer.code == 0, answer.err
    assert launches == [["seed-1", "seed-2", "seed-3"], ["seed-3"], ["seed-2"]]
    assert set(statuses(tmp_path).values()) == {"finished"}
    assert "1 job lost its process; 2 are launched again" in answer.err


def test_a_job_that_keeps_dying_fails_and_stops_no_other(onn_run, runs, launches, tmp_path: Path) -> None:
    runs.answer = dying(runs, {1: 99})
    answer = onn_run("-m", "seed=1,2,3")
    assert answer.code == 1
    assert statuses(tmp_path) == {"seed-1": "failed", "seed-2": "finished", "seed-3": "finished"}
    assert answer.err.count("its process vanished 2 times (killed, or out of memory)") == 1


def test_a_launcher_that_starts_nothing_is_one_sentence(onn_run, runs, launcher, monkeypatch) -> None:
    def refuse(self: Any, job_overrides: Any, initial_job_idx: int) -> Any:
        raise RuntimeError("no such cluster")

    monkeypatch.setattr(launcher, "launch", refuse)
    answer = onn_run("-m", "seed=1,2")
    assert answer.code == 1
    assert "the launcher could not start the jobs: no such cluster" in answer.err
    assert "Traceback" not in answer.err


def test_what_jobs_come_to_is_told_as_it_happens(tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "PAUSE", 0.01)
    records = [
        job.Record(number=number, overrides=(f"seed={number}",), folder=tmp_path / f"seed-{number}", pid=7, host="here")
        for number in (1, 2)
    ]
    for record in records:
        record.folder.mkdir()
    records[0].write(status=job.FINISHED, score=20.0, started="yesterday")
    with watching.watched(tmp_path, ["seed-1", "seed-2"], total=2):
        records[1].write(started="now")
        for _ in range(500):
            if "runs on" in (text := capsys.readouterr().out):
                break
            watching.threading.Event().wait(0.01)
        records[1].write(status=job.FAILED, error="no data", started="now")
    assert text == "onn-run: seed-2 runs on here (process 7)\n"
    assert capsys.readouterr().out == "onn-run: seed-2 failed (no data), 2 of 2 jobs have ended\n"


@pytest.mark.parametrize(
    ("option", "extra"), [("joblib", "joblib"), ("submitit_local", "submitit"), ("slurm", "submitit"), ("ray", "ray")]
)
def test_an_option_whose_launcher_is_missing_names_the_extra(
    option: str, extra: str, onn_run, runs, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(checker: Checker, group: str, name: str) -> None:
        check(type(checker)(hydra=_Bare(), command=checker.command, catalogue=checker.catalogue), group, name)

    check = Checker._check_plugin
    monkeypatch.setattr(Checker, "_check_plugin", missing)
    answer = onn_run("-m", f"sweep={option}", "seed=1,2")
    assert answer.code == 2
    assert f"is not installed: pip install 'onn-runner[{extra}]'" in answer.err


class _Bare:
    """A Hydra without plugins."""

    class config_loader:  # noqa: N801
        @staticmethod
        def get_group_options(group: str) -> list[str]:
            return ["basic"]


def test_where_jobs_run_side_by_side_each_has_a_log(onn_run, runs, tmp_path: Path, monkeypatch, capsys) -> None:
    def speak(config: Any) -> experiment.Outcome:
        print(f"training with seed {config.seed}")
        if config.seed == 2:
            raise ConfigError("seed (=2) is odd")
        return experiment.Outcome(0, 1.5, None)

    runs.answer = speak
    monkeypatch.setattr(job, "ALONE", ("none",))
    answer = onn_run("-m", "seed=1,2")
    assert answer.code == 2
    assert "training with" not in answer.out
    [log] = tmp_path.glob("multirun/*/seed-1/log.txt")
    assert log.read_text() == "training with seed 1\n"
