"""Sweeps through Hydra's sweeper and launcher: folders, failures, jobs that would repeat another."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from onn_runner import experiment
from onn_runner.cli import job
from onn_runner.cli.resolvers import LONGEST, slug
from onn_runner.errors import ConfigError


def only_sweep(folder: Path) -> Path:
    [sweep] = (folder / "multirun").iterdir()
    return sweep


def job_folders(folder: Path) -> list[str]:
    return sorted(path.name for path in only_sweep(folder).iterdir() if path.is_dir())


def test_each_job_has_its_folder(onn_run, runs, tmp_path: Path) -> None:
    answer = onn_run("-m", "ops=sine,exp", "seed=0,1")
    assert answer.code == 0, answer.err
    assert [list(config.ops) for config in runs.configs] == [["sine"], ["sine"], ["exp"], ["exp"]]
    assert job_folders(tmp_path) == ["ops-exp_seed-0", "ops-exp_seed-1", "ops-sine_seed-0", "ops-sine_seed-1"]
    request = runs.requests[3]
    assert request.folder == only_sweep(tmp_path) / "ops-exp_seed-1"
    assert request.overrides == ("ops=exp", "seed=1")
    assert request.command == ("onn-run", "ops=exp", "seed=1")
    assert request.choices["model"] == "onn"
    plan = json.loads((only_sweep(tmp_path) / "sweep.json").read_text())
    assert [job["folder"] for job in plan["jobs"]] == [
        f"ops-{op}_seed-{seed}" for op in ("sine", "exp") for seed in (0, 1)
    ]
    assert (plan["status"], plan["launcher"], plan["constants"]) == ("finished", "local", [])
    assert "4 jobs" in answer.out


@pytest.mark.parametrize(
    ("typed", "sets"),
    [
        (["-m", "ops=[sine,exp],[exp]", "operators.exp.omega=3"], [["sine", "exp"], ["exp"]]),
        (["ops=sine", "-m", "seed=1,2"], [["sine"], ["sine"]]),
        (["-m", "ops=[sine,exp]"], [["sine", "exp"]]),
        (["-m", "ops=glob(s*)"], [["sinc"], ["sine"], ["sinh"]]),
        (["hydra.mode=MULTIRUN", "ops=sine,exp"], [["sine"], ["exp"]]),
    ],
)
def test_sweeps_over_operators(typed: list[str], sets: list[list[str]], onn_run, runs) -> None:
    answer = onn_run(*typed)
    assert answer.code == 0, answer.err
    assert [list(config.ops) for config in runs.configs] == sets


def test_a_failed_job_stops_no_other(onn_run, runs, tmp_path: Path) -> None:
    def fail(config: object) -> experiment.Outcome:
        if config.seed == 1:
            raise ZeroDivisionError("a mistake of ours")
        if config.seed == 2:
            raise ConfigError("seed (=2) is odd")
        return experiment.Outcome(0, 30.5, None)

    runs.answer = fail
    answer = onn_run("-m", "seed=1,2,3")
    assert answer.code == 1
    assert len(runs.configs) == 3
    assert "ZeroDivisionError: a mistake of ours" in answer.err
    assert "seed-2 failed: seed (=2) is odd" in answer.err
    assert "30.5" in answer.out
    assert "in fail" in (only_sweep(tmp_path) / "seed-1" / "error.txt").read_text()
    record = json.loads((only_sweep(tmp_path) / "seed-2" / "job.json").read_text())
    assert record["exit_code"] == 2
    assert record["status"] == "failed"


def test_the_worst_exit_code_counts(onn_run, runs) -> None:
    runs.answer = lambda config: experiment.Outcome(int(config.seed == 1), None, None)
    assert onn_run("-m", "seed=1,2").code == 1
    assert onn_run("-m", "seed=2,3").code == 0


def test_jobs_that_would_repeat_another_are_left_out(onn_run, runs) -> None:
    answer = onn_run("-m", "model=conv,onn", "ops=[sine],[exp]", "operators.exp.omega=1,2")
    assert answer.code == 0, answer.err
    assert [request.overrides for request in runs.requests] == [
        ("model=conv",),
        ("model=onn", "ops=[sine]"),
        ("model=onn", "ops=[exp]", "++operators.exp.omega=1"),
        ("model=onn", "ops=[exp]", "++operators.exp.omega=2"),
    ]
    assert "4 of 8 jobs left out: without what their model does not use" in answer.err
    assert "twice" not in answer.err


def test_a_value_given_twice_is_one_job(onn_run, runs) -> None:
    answer = onn_run("-m", "seed=0,0,1")
    assert answer.code == 0, answer.err
    assert [config.seed for config in runs.configs] == [0, 1]
    assert "1 of 3 jobs left out: the same job twice" in answer.err
    assert "does not use" not in answer.err


def test_both_reasons_to_leave_out_a_job_are_counted_apart(onn_run, runs) -> None:
    answer = onn_run("-m", "model=conv", "ops=[sine],[exp]", "seed=0,0")
    assert answer.code == 0, answer.err
    assert len(runs.configs) == 1
    assert "2 of 4 jobs left out: the same job twice" in answer.err
    assert "1 of 4 jobs left out: without what their model does not use" in answer.err


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ("ops=[sine,exq],[exp]", "unknown operator 'exq'"),
        ("ops=sine,exq", "unknown operator 'exq'"),
        ("model=onn,conf", "unknown model 'conf'"),
        ("trainer.epoch=1,2", "unknown key 'trainer.epoch'"),
        ("ops=glob(zz*)", "ops=glob(zz*)"),
        ("seed=interval(0,1)", "an interval needs a sweeper that searches"),
        ("scheduler=cosine,null", "null cannot be one of several"),
        ("hydra/launcher=joblb", "unknown hydra/launcher 'joblb'"),
    ],
)
def test_a_misspelt_sweep_starts_nothing(typed: str, message: str, onn_run, runs, tmp_path: Path) -> None:
    answer = onn_run("-m", typed, "data.seed=1,2")
    assert answer.code == 2
    assert message in answer.err
    assert "Traceback" not in answer.err
    assert list(tmp_path.iterdir()) == []


def test_a_long_sweep_has_short_names(onn_run, tmp_path: Path) -> None:
    typed = [f"data.photographs=[{','.join(['camera'] * 60)}],[a/b]", "seed=1,2"]
    assert onn_run("-m", *typed).code == 0
    names = job_folders(tmp_path)
    assert len(names) == len(set(names)) == 4
    assert all(len(name) < 100 for name in names)


@pytest.mark.parametrize(
    "text", ["", "a", "ops-sine_seed-1", "a/b", "../..", "x" * 300, "ops=[sine,exp]", "é", "-1", "a:b"]
)
def test_slugs_are_single_safe_names(text: str) -> None:
    name = slug(text)
    assert re.fullmatch(r"[A-Za-z0-9._+-]*", name)
    assert len(name) <= LONGEST
    assert name not in (".", "..")
    assert slug(name) == name


def test_slugs_differ_where_the_texts_do() -> None:
    texts = ["a/b", "a:b", "a b", "a-b", "x" * 200, "x" * 201, "w--1", "w-1", "[a,b]", "[a-b]"]
    assert len({slug(text) for text in texts}) == len(texts)


@pytest.mark.parametrize(
    ("direction", "score", "told"),
    [
        ("minimize", None, math.inf),
        ("maximize", math.nan, -math.inf),
        (["maximize"], None, -math.inf),
        ("maximize", 3.0, 3.0),
    ],
)
def test_a_sweeper_is_told_the_worst_score(direction, score, told, tmp_path: Path, capsys) -> None:
    record = job.Record(number=4, overrides=(), folder=tmp_path)
    settings = OmegaConf.create({"sweeper": {"direction": direction}})
    assert job.score_for_sweeper(score, settings, record) == told
    assert ("job 4 has no score" in capsys.readouterr().err) == (score is None or math.isnan(score))
