"""Plain runs: what `experiment.run` is asked for, and what is refused before it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from onn_runner import experiment
from onn_runner.cli.catalogue import config_folder
from onn_runner.cli.run import main
from onn_runner.errors import ConfigError, Interrupted, RunError

OnnRun = Callable[..., object]


def test_the_command_of_the_readme(onn_run, runs, tmp_path: Path) -> None:
    answer = onn_run("model=onn", "ops=sine,exp", "data=denoise")
    assert answer.code == 0
    assert answer.err == "onn-run: ops=sine,exp: one run with ops=[sine,exp]; add -m for one run each\n"
    [config], [request] = runs.configs, runs.requests
    assert list(config.ops) == ["sine", "exp"]
    assert config.ops.exp._target_.startswith("onn_runner.ops.")
    assert "hydra" not in config
    assert request.command == ("onn-run", "model=onn", "ops=sine,exp", "data=denoise")
    assert request.overrides == ("model=onn", "ops=[sine,exp]", "data=denoise")
    assert request.flags == ()
    assert request.folder is None
    assert request.resume is None
    assert request.choices["model"] == "onn"
    assert request.choices["data"] == "denoise"
    assert request.config_dirs == (config_folder(),)
    assert list(tmp_path.iterdir()) == [], "Hydra makes neither folders nor logs"


def test_no_arguments_run_the_default(onn_run, runs) -> None:
    assert onn_run().code == 0
    assert list(runs.configs[0].ops) == ["sine"]
    assert runs.configs[0].seed == 0


def test_parameters_of_operators_that_only_layers_use(onn_run, runs) -> None:
    assert onn_run("operators.exp.omega=3", "model.layers=[[exp],null]").code == 0
    assert runs.configs[0].operators.exp.omega == 3
    assert list(runs.configs[0].ops) == ["sine"]


def test_a_users_operator(onn_run, runs, mine: Path) -> None:
    answer = onn_run("ops=[sine,mine]", "operators.mine.gain=3", "--config-dir", "mine")
    assert answer.code == 0, answer.err
    assert runs.configs[0].ops.mine == {"_target_": "mine.Mine", "gain": 3}
    assert runs.requests[0].flags == (f"--config-dir={mine}",)
    assert runs.requests[0].config_dirs == (config_folder(), mine)
    assert os.getcwd() not in sys.path, "a folder of options is data: it lets nothing be imported"


def test_a_users_module_is_named(onn_run, runs, mine: Path) -> None:
    (mine.parent / "mine_ops.py").touch()
    answer = onn_run("ops=[sine,mine]", "--config-dir", "mine", "--module", "mine_ops")
    assert answer.code == 0, answer.err
    assert runs.requests[0].flags == (f"--config-dir={mine}", "--module=mine_ops")
    assert os.getcwd() in sys.path[1:], "the working directory is appended, so that mine_ops.py is found"


def test_a_users_operator_by_hydras_search_path(onn_run, runs, mine: Path) -> None:
    assert onn_run(f"hydra.searchpath=[file://{mine}]", "ops=mine,exp").code == 0
    assert list(runs.configs[0].ops) == ["mine", "exp"]
    assert mine in runs.requests[0].config_dirs


@pytest.mark.parametrize("typed", ["data.path='\\${z} a'", "data.path=${z}"])
def test_names_that_look_like_references(typed: str, onn_run, runs) -> None:
    """A folder that is called ${z}, or a reference to nothing: what comes of it the run says."""
    answer = onn_run(typed)
    assert answer.code == 0, answer.err
    assert runs.requests[0].overrides == (typed,)


def test_the_users_own_run_folder(onn_run, runs, tmp_path: Path) -> None:
    assert onn_run("hydra.run.dir=out/${data.noise}", "seed=3").code == 0
    assert runs.requests[0].folder == tmp_path / "out" / "gaussian"
    assert runs.requests[0].overrides == ("seed=3",)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("typed", "messages"),
    [
        ("ops=sine,exq", ["unknown operator 'exq'", "Did you mean exp", "Options: ", "chirp", "sinh"]),
        ("modl=onn", ["unknown group or key 'modl'", "Did you mean model", "network"]),
        ("data=denois", ["unknown data 'denois'", "Did you mean denoise"]),
        ("model=on", ["unknown model 'on'", "onn", "quadratic"]),
        ("metric=psnr,sim", ["unknown metric 'sim'", "ssim"]),
        ("operators=fastnn", ["unknown preset of operators 'fastnn'", "fastonn"]),
        ("trainer.epoch=3", ["unknown key 'trainer.epoch'", "Did you mean trainer.epochs", "Keys of trainer: "]),
        ("trainr.epochs=3", ["unknown group or key 'trainr'", "trainer"]),
        ("operators.sine.omga=2", ["unknown key 'operators.sine.omga'", "Did you mean operators.sine.omega"]),
        ("operators.sin.omega=2", ["unknown operator 'sin'", "sine"]),
        ("operators.exp.omga=2", ["unknown key 'operators.exp.omga'"]),
        ("model=null", ["model=null: a run needs a model; options: conv, onn"]),
        ("~data", ["~data: a run needs a data"]),
        ("model=[onn,conv]", ["model takes one option"]),
        ("network.channels.99=4", ["network.channels is a list of", "write network.channels=[...]"]),
        ("seed.x=4", ["seed is a single value", "there is no seed.x"]),
        ("ops@foo=sine", ["ops@foo"]),
        ("modl@foo=sine", ["unknown group 'modl'"]),
        ("hydra/launcher=joblb", ["unknown hydra/launcher 'joblb'", "joblib"]),
        ("hydra.run.dri=x", ["hydra.run.dri"]),
    ],
)
def test_misspelt(typed: str, messages: list[str], onn_run, runs, tmp_path: Path) -> None:
    answer = onn_run(typed)
    assert answer.code == 2
    for message in messages:
        assert message in answer.err
    assert "Traceback" not in answer.err
    assert len([line for line in answer.err.splitlines() if ": one run with" not in line]) == 1
    assert runs.requests == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("model", ["conv", "self_onn", "quadratic"])
@pytest.mark.parametrize("given", ["ops=sine,exp", "operators=fastonn", "operators.sine.omega=3"])
def test_operators_are_refused_where_the_model_has_none(model: str, given: str, onn_run, runs) -> None:
    answer = onn_run(f"model={model}", given)
    assert answer.code == 2
    assert f"would change nothing: the neurons of model={model} have no operators" in answer.err
    assert runs.requests == []


def test_a_broken_yaml_of_the_users(onn_run, mine: Path) -> None:
    (mine / "ops" / "mine.yaml").write_text("# @package _global_\noperators: [")
    answer = onn_run("ops=mine", "--config-dir", "mine")
    assert answer.code == 2
    assert "Traceback" not in answer.err


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (ConfigError("seed is odd"), 2, "onn-run: seed is odd\n"),
        (RunError("the disk is full"), 1, "onn-run: the disk is full\n"),
        (Interrupted("go on with: onn-run resume=x"), 130, "onn-run: go on with: onn-run resume=x\n"),
    ],
)
def test_errors_are_one_sentence_with_their_exit_code(error, code: int, text: str, onn_run, runs) -> None:
    def fail(config: object) -> experiment.Outcome:
        raise error

    runs.answer = fail
    answer = onn_run()
    assert (answer.code, answer.err) == (code, text)


def test_ctrl_c_is_quiet(onn_run, runs) -> None:
    def interrupt(config: object) -> experiment.Outcome:
        raise KeyboardInterrupt

    runs.answer = interrupt
    answer = onn_run()
    assert (answer.code, answer.err) == (130, "onn-run: interrupted\n")


def test_an_unexpected_error_keeps_its_traceback(onn_run, runs) -> None:
    def fail(config: object) -> experiment.Outcome:
        raise ZeroDivisionError("a mistake of ours")

    runs.answer = fail
    with pytest.raises(ZeroDivisionError):
        onn_run()


def test_the_exit_code_of_a_run_with_failed_folds(onn_run, runs) -> None:
    runs.answer = lambda config: experiment.Outcome(1, None, None)
    assert onn_run().code == 1


def test_a_reader_that_goes_away_is_no_error(runs, monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone:
        def write(self, text: str) -> int:
            raise BrokenPipeError

        def flush(self) -> None: ...

        def fileno(self) -> int:
            raise OSError

    monkeypatch.setattr(sys, "stdout", Gone())
    assert main(["--version"]) == 141


def test_cfg_shows_the_config_and_runs_nothing(onn_run, runs) -> None:
    answer = onn_run("ops=sine,exp", "--cfg", "job")
    assert answer.code == 0
    assert "exp: ${operators.exp}" in answer.out
    assert "hydra:" not in answer.out
    answer = onn_run("-c", "job", "-p", "ops", "ops=exp", "--resolve", "operators.exp.omega=0.5")
    assert "omega: 0.5" in answer.out
    assert onn_run("-c", "job", "-p", "opsx").code == 2
    assert runs.requests == []


def test_info_shows_the_defaults(onn_run, runs) -> None:
    answer = onn_run("--info", "defaults", "model=conv")
    assert answer.code == 0
    assert "model/conv" in answer.out
    assert runs.requests == []


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "a run (x=1)"
    folder.mkdir()
    record = {"schema": 1, "overrides": ["model=onn", "ops=[sine,exp]", "trainer.epochs=3"], "flags": []}
    (folder / "run.json").write_text(json.dumps(record))
    return folder


def test_resume_composes_the_stored_command(run_folder: Path, onn_run, runs) -> None:
    answer = onn_run(f"resume={run_folder.name}", "trainer.epochs=9")
    assert answer.code == 0, answer.err
    [config], [request] = runs.configs, runs.requests
    assert request.resume == run_folder
    assert request.overrides == ("model=onn", "ops=[sine,exp]", "trainer.epochs=9")
    assert list(config.ops) == ["sine", "exp"]
    assert config.trainer.epochs == 9


def test_resume_remembers_the_users_folder(run_folder: Path, mine: Path, onn_run, runs) -> None:
    record = {"schema": 1, "overrides": ["ops=[mine]"], "flags": [f"--config-dir={mine}"]}
    (run_folder / "run.json").write_text(json.dumps(record))
    assert onn_run(f"resume={run_folder}").code == 0
    assert runs.requests[0].flags == (f"--config-dir={mine}",)
    moved = mine.rename(mine.with_name("moved"))
    answer = onn_run(f"resume={run_folder}")
    assert answer.code == 2
    assert "there is no such folder" in answer.err
    assert onn_run(f"resume={run_folder}", "--config-dir", str(moved)).code == 0


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "not a run folder (it has no run.json)"),
        ("{", "run.json cannot be read"),
        ("[]", "run.json is not of this version"),
        ('{"schema": 99}', "run.json is not of this version"),
    ],
)
def test_resume_of_something_else(content: str | None, message: str, onn_run, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    if content is not None:
        (folder / "run.json").write_text(content)
    answer = onn_run("resume=folder")
    assert answer.code == 2
    assert message in answer.err


def test_resume_of_nothing(onn_run, tmp_path: Path) -> None:
    answer = onn_run("resume=nowhere")
    assert answer.code == 2
    assert f"resume={tmp_path}/nowhere: there is no such folder" in answer.err


def test_another_model_on_resume_is_left_to_the_comparison_with_the_stored_config(run_folder, onn_run, runs) -> None:
    assert onn_run(f"resume={run_folder}", "model=conv").code == 0
    assert runs.requests[0].overrides == ("ops=[sine,exp]", "trainer.epochs=3", "model=conv")
