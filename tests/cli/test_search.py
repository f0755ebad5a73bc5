"""Searches as typed: what is asked for, told, repeated, resumed and shown."""

from __future__ import annotations

import csv
import importlib.util
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from onn_runner import experiment
from onn_runner.cli import argv, standing
from onn_runner.cli.catalogue import config_folder
from onn_runner.cli.compose import compose, hydra_of
from onn_runner.cli.run import main
from onn_runner.cli.search_settings import without_hydra
from onn_runner.cli.search_space import text
from onn_runner.code_version import code_version
from onn_runner.errors import Interrupted
from onn_runner.operator_sets import uses_operators

optuna = pytest.importorskip("optuna", reason="a search needs the extra: pip install 'onn-runner[sweep]'")

RATE = "optimizer.lr=tag(log,interval(1e-4,1))"


@pytest.fixture
def scored(runs, monkeypatch: pytest.MonkeyPatch) -> Callable[..., experiment.Outcome]:
    """`scored(config, score)`: what a run of that score leaves in its folder, without training."""
    monkeypatch.setattr(standing, "_fingerprint", lambda data: "these items")

    def left(config: Any, score: float, *, macs: int = 1000, status: str = "done") -> experiment.Outcome:
        folder = runs.requests[-1].folder
        plain = experiment.with_monitor(experiment.plain_config(config))
        stored = experiment.stored_config(plain, with_operators=uses_operators(config))
        (folder / "config.yaml").write_text(yaml.safe_dump(stored))
        (folder / "split.json").write_text(json.dumps({"fingerprint": "these items"}))
        (folder / "run.json").write_text(json.dumps({"schema": 1, "code": code_version(stored), "resumed": []}))
        (folder / "results.json").write_text(json.dumps({"status": status}))
        objectives = {"score": score, "macs": macs, "parameters": macs // 100, "seconds": 1.0}
        return experiment.Outcome(int(status == "diverged"), score, folder, objectives)

    return left


def by_rate(config: Any) -> float:
    """Best, 30, at a rate of 0.01."""
    return 30 - (math.log10(config.optimizer.lr) + 2) ** 2


def rates(runs) -> list[float]:
    return [config.optimizer.lr for config in runs.configs]


def study_of(tmp_path: Path, name: str = "mine") -> optuna.Study:
    return optuna.load_study(study_name=name, storage=f"sqlite:///{tmp_path}/multirun/{name}/search.db")


def searched(onn_run, *typed: str, trials: int = 4):
    return onn_run("-m", "sweep=optuna", "name=mine", f"hydra.sweeper.n_trials={trials}", *typed)


def test_a_search_asks_tells_shows_the_best_and_goes_on_where_it_stopped(onn_run, runs, scored, tmp_path: Path) -> None:
    def stop(config: Any) -> experiment.Outcome:
        if len(runs.configs) == 3:
            scored(config, 0, status="interrupted")
            raise Interrupted("saved")
        return scored(config, by_rate(config))

    runs.answer = stop
    options = (RATE, "hydra.sweeper.sampler_options={n_startup_trials: 2}")
    stopped = searched(onn_run, *options)
    assert stopped.code == 130
    assert "to go on, the same command" in stopped.err
    assert "2 trials (2 complete)" in stopped.out
    runs.answer = lambda config: scored(config, by_rate(config))
    answer = searched(onn_run, *options)
    assert answer.code == 0, answer.err
    assert len(runs.configs) == 5
    assert runs.requests[3].resume == runs.requests[3].folder == runs.requests[2].folder
    trials = study_of(tmp_path).trials
    assert [trial.state.name for trial in trials] == ["COMPLETE"] * 4
    in_order = [*runs.requests[:2], *runs.requests[3:]]
    for request, trial in zip(in_order, trials, strict=True):
        assert request.overrides == ("name=mine", f"optimizer.lr={text(trial.params['optimizer.lr'])}")
        assert request.folder == tmp_path / "multirun" / "mine" / request.overrides[-1].replace("=", "-")
    scores = [by_rate(config) for config in [*runs.configs[:2], *runs.configs[3:]]]
    assert f"best: trial {scores.index(max(scores))}" in answer.out
    assert answer.out.index("finished") < answer.out.index("best: trial")
    plan = json.loads((tmp_path / "multirun" / "mine" / "sweep.json").read_text())
    assert (plan["trials"], plan["status"], len(plan["jobs"]), plan["constants"]) == (4, "finished", 4, [])


def test_a_lost_database_is_made_again_of_the_jobs_that_are_there(onn_run, runs, scored, tmp_path: Path) -> None:
    runs.answer = lambda config: scored(config, by_rate(config))
    assert searched(onn_run, RATE, trials=1).code == 0
    before = [trial.params for trial in study_of(tmp_path).trials]
    (tmp_path / "multirun" / "mine" / "search.db").unlink()
    answer = searched(onn_run, RATE, trials=1)
    assert answer.code == 0, answer.err
    assert len(runs.configs) == 1
    assert [trial.params for trial in study_of(tmp_path).trials] == before
    assert "was computed before, its result counts again" in answer.err


def test_trials_that_differ_in_what_their_model_does_not_use_share_a_job(onn_run, runs, scored) -> None:
    runs.answer = lambda config: scored(config, 1.0)
    grid = ("hydra.sweeper.sampler=grid", "hydra.sweeper.n_jobs=4")
    answer = searched(onn_run, *grid, "model=conv,onn", "ops=[sine],[exp]")
    assert answer.code == 0, answer.err
    jobs = sorted(request.overrides[1:] for request in runs.requests)
    assert jobs == [("model=conv",), ("model=onn", "ops=[exp]"), ("model=onn", "ops=[sine]")]
    assert "4 trials (4 complete)" in answer.out


def test_several_objectives_give_a_front_without_what_diverged(onn_run, runs, scored, tmp_path: Path) -> None:
    def weigh(config: Any) -> experiment.Outcome:
        if config.model.q == 1:
            return scored(config, -math.inf, macs=1, status="diverged")
        return scored(config, 5.0 if config.model.q == 2 else 4.0, macs=1000 * config.model.q)

    runs.answer = weigh
    typed = ("hydra.sweeper.objectives=[score,macs]", "hydra.sweeper.sampler=grid", "model=self_onn")
    answer = searched(onn_run, *typed, "model.q=range(1,4)", trials=20)
    assert answer.code == 0, answer.err
    assert "3 trials (3 complete)" in answer.out
    assert "not beaten in score and macs together" in answer.out
    assert "score 5  macs 2,000  model.q=2" in answer.out
    [row] = csv.DictReader((tmp_path / "multirun" / "mine" / "pareto.csv").read_text().splitlines())
    assert (row["folder"], row["score"], row["macs"], row["model.q"]) == ("model.q-2", "5", "2000", "2")
    worst = {tuple(trial.values) for trial in study_of(tmp_path).trials if trial.params["model.q"] == 1}
    assert worst == {(-math.inf, math.inf)}


def test_a_job_that_fails_fails_alone_and_is_tried_again_when_asked_to(onn_run, runs, scored, tmp_path: Path) -> None:
    def fail(config: Any) -> experiment.Outcome:
        if len(runs.configs) == 1:
            raise ZeroDivisionError("a mistake")
        return scored(config, by_rate(config))

    runs.answer = fail
    answer = searched(onn_run, RATE, trials=2)
    assert answer.code == 1
    assert "2 trials (1 complete, 1 fail)" in answer.out
    again = searched(onn_run, RATE, "sweep.retry_failed=true", trials=2)
    assert again.code == 0, again.err
    assert rates(runs)[2:] == rates(runs)[:1]
    states = [trial.state.name for trial in study_of(tmp_path).trials]
    assert states == ["FAIL", "COMPLETE", "COMPLETE"]


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        (["hydra.sweeper.sampler=tpa", RATE], "unknown sampler in hydra.sweeper.sampler: 'tpa'. Did you mean tpe?"),
        (["hydra.sweeper.sampler=grid", RATE], "optimizer.lr has no end of them"),
        (["model=conv"], "nothing to search over"),
        (["optimizer.lt=interval(0,1)"], "unknown key 'optimizer.lt'"),
    ],
)
def test_what_makes_no_search_starts_nothing(typed: list[str], message: str, onn_run, runs, tmp_path: Path) -> None:
    answer = onn_run("-m", "sweep=optuna", *typed)
    assert answer.code == 2
    assert message in answer.err
    assert answer.err.count("\n") == 1
    assert not runs.configs
    assert not (tmp_path / "multirun").exists()


def test_without_optuna_the_extra_is_named(onn_run, monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *more: None if name == "optuna" else found(name, *more)
    )
    answer = onn_run("-m", "hydra/sweeper=optuna", RATE)
    assert answer.code == 2
    assert "pip install 'onn-runner[sweep]'" in answer.err


def test_ranges_without_a_search_are_refused(onn_run, tmp_path: Path) -> None:
    answer = onn_run("-m", "sweep=local", "optimizer.lr=interval(0,1)")
    assert answer.code == 2
    assert "add sweep=optuna" in answer.err
    assert not (tmp_path / "multirun").exists()


def test_what_is_typed_counts_instead_of_a_presets_ranges(onn_run, runs, scored) -> None:
    runs.answer = lambda config: scored(config, config.model.q)
    answer = onn_run("-m", "experiment=search_q", "model.q=2,4", "hydra/sweeper=optuna", "hydra.sweeper.sampler=grid")
    assert answer.code == 0, answer.err
    assert sorted(config.model.q for config in runs.configs) == [2, 4]


@pytest.mark.parametrize("preset", sorted(path.stem for path in (config_folder() / "experiment").glob("search_*.yaml")))
def test_a_preset_is_a_search_whose_points_compose(preset: str, runs) -> None:
    command = argv.read(["-m", f"experiment={preset}"])
    with hydra_of(command) as hydra:
        # Not earlier: Hydra's scan for plugins executes the module of the class that this one derives from anew.
        from onn_runner.cli import search, sweep

        sweeper = search.SearchSweeper(hydra, command, sweep._master_config(hydra, command, Path("multirun")))
        last = {
            key: dimension.options[-1] if hasattr(dimension, "options") else dimension.high
            for key, dimension in sweeper.space.dimensions.items()
        }
        config = without_hydra(compose(hydra, command, sweeper.space.overrides(last)))
    assert sweeper.directions[0] == "maximize"
    assert (sweeper.space.count or math.inf) >= 7
    first = experiment.plain_config(sweeper.example)
    assert {key for key in first if first[key] != experiment.plain_config(config)[key]} & {
        "model",
        "network",
        "optimizer",
    }


def test_real_folds_are_pruned(tmp_path: Path, runs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trained at a rate at which nothing changes, and at one that is far too high: ended after its first fold."""
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    small = ("data=digits", "data.items=90", "model=conv", "network.channels=[4,4,4]", "network.depth=8")
    quick = ("partition.folds=3", "trainer.epochs=1", "trainer.device=cpu", "trainer.pictures=false")
    pruner = ("hydra.sweeper.pruner=median", "hydra.sweeper.pruner_options={n_startup_trials: 1, n_warmup_steps: 0}")
    order = (
        "sweep=optuna",
        "hydra.sweeper.sampler=grid",
        "optimizer.lr=10,1e-12",
        "name=pruned",
        "trainer.monitor=val/loss",
    )
    assert main(["-m", *order, *pruner, *small, *quick]) == 0
    folder = tmp_path / "multirun" / "pruned"
    records = {path.parent.name: json.loads(path.read_text()) for path in folder.glob("*/job.json")}
    assert {name: record["status"] for name, record in records.items()} == {
        "optimizer.lr-1e-12": "finished",
        "optimizer.lr-10": "pruned",
    }
    assert records["optimizer.lr-1e-12"]["objectives"]["macs"] > 0
    ended = json.loads((folder / "optimizer.lr-10" / "results.json").read_text())
    assert (ended["status"], len(ended["folds"])) == ("pruned", 1)


def test_a_presets_own_key_that_nothing_uses_any_more_is_refused(onn_run, runs, tmp_path: Path) -> None:
    answer = onn_run("-m", "experiment=search_widths", "network.channels=[4]")
    assert answer.code == 2
    assert "search.width_0, search.width_1 would change nothing: what they choose was typed instead" in answer.err
    assert list(tmp_path.iterdir()) == []
