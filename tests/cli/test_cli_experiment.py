"""experiment=...: presets that choose options and values, several of them, none, and the name of such a run."""

from __future__ import annotations

from pathlib import Path

import pytest
from omegaconf import OmegaConf

from onn_runner.cli.catalogue import config_folder
from onn_runner.experiment import Request, default_name, drop_idle_keys

FIRST = """\
# @package _global_
# A preset that chooses options, a list of operators and values
defaults:
  - override /data: denoise
  - override /model: onn
  - override /ops: [mul, sine]
  - override /scheduler: constant
seed: 7
trainer:
  epochs: 3
"""
SECOND = """\
# @package _global_
# A preset that goes with others
trainer:
  epochs: 1
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    presets = tmp_path / "mine" / "experiment"
    presets.mkdir(parents=True)
    (presets / "first.yaml").write_text(FIRST)
    (presets / "second.yaml").write_text(SECOND)
    return presets.parent


def test_a_preset_chooses_options_and_values(onn_run, runs, folder: Path) -> None:
    assert onn_run("--config-dir", str(folder), "experiment=first").code == 0
    [config], [request] = runs.configs, runs.requests
    assert (config.seed, config.trainer.epochs, list(config.ops)) == (7, 3, ["mul", "sine"])
    assert request.choices["scheduler"] == "constant"
    assert request.choices["experiment"] == ["first"]


def test_later_presets_and_the_command_line_win(onn_run, runs, folder: Path) -> None:
    words = ("experiment=first,second", "seed=5", "model=conv")
    assert onn_run("--config-dir", str(folder), *words).code == 0
    [config], [request] = runs.configs, runs.requests
    assert (config.seed, config.trainer.epochs) == (5, 1)
    assert request.choices["model"] == "conv"
    assert request.choices["experiment"] == ["first", "second"]


@pytest.mark.parametrize("word", ["experiment=null", "experiment=[]", "~experiment"])
def test_no_preset(onn_run, runs, folder: Path, word: str) -> None:
    assert onn_run("--config-dir", str(folder), word).code == 0
    assert not runs.requests[0].choices.get("experiment")
    assert runs.configs[0].seed == 0


def test_a_sweep_over_presets(onn_run, runs, folder: Path) -> None:
    assert onn_run("--config-dir", str(folder), "-m", "experiment=first,second").code == 0
    assert [config.seed for config in runs.configs] == [7, 0]
    assert [request.choices["experiment"] for request in runs.requests] == [["first"], ["second"]]


def test_an_unknown_preset_is_named(onn_run, runs, folder: Path) -> None:
    answer = onn_run("--config-dir", str(folder), "experiment=frist")
    assert answer.code == 2
    assert "unknown experiment 'frist'. Did you mean first?" in answer.err


def test_a_run_is_called_by_its_presets() -> None:
    choices = {"model": "onn", "data": "arrays", "experiment": ["first", "second"]}
    assert default_name(choices, ["sine", "exp"], True) == "onn-sine+exp-first-second"
    assert default_name({**choices, "experiment": []}, [], False) == "onn-arrays"


def test_what_a_preset_set_for_an_option_that_was_replaced_is_left_out() -> None:
    config = OmegaConf.create({"partition": {"_target_": "x", "seed": 1, "folds": 10, "repeats": 2}, "model": {"q": 3}})
    request = Request(
        command=(),
        overrides=("experiment=[onn_denoise]", "partition=hold_out", "partition.repeats=2"),
        choices={"experiment": ["onn_denoise"], "partition": "hold_out", "model": "conv"},
        config_dirs=(config_folder(),),
    )
    assert drop_idle_keys(config, request) == ["partition.folds"]
    assert config.partition == {"_target_": "x", "seed": 1, "repeats": 2}
    assert config.model == {"q": 3}, "only what was chosen anew is looked at"


def test_a_list_that_a_preset_set_is_not_for_an_option_that_takes_a_number() -> None:
    """`experiment=onn_denoise network=unet`: the preset's channels are those of another network's layers."""
    choices = {"experiment": ["onn_denoise"], "network": "unet"}
    for typed, given in ((), [16, 32]), (("network.channels=[4,4,4]",), [4, 4, 4]):
        config = OmegaConf.create({"network": {"_target_": "x", "channels": given, "depth": 1}})
        overrides = ("experiment=[onn_denoise]", "network=unet", "network.depth=1", *typed)
        request = Request(command=(), overrides=overrides, choices=choices, config_dirs=(config_folder(),))
        assert drop_idle_keys(config, request) == ([] if typed else ["network.channels"])
        assert config.network.channels == (given if typed else unet_channels())
        assert config.network.depth == 1


def unet_channels() -> int:
    """The option's own."""
    number = OmegaConf.load(config_folder() / "network" / "unet.yaml").channels
    assert isinstance(number, int)
    return number


def test_without_a_preset_every_key_was_typed() -> None:
    config = OmegaConf.create({"partition": {"folds": 10}})
    choices = {"partition": "hold_out"}
    request = Request(command=(), overrides=("partition=hold_out",), choices=choices, config_dirs=(config_folder(),))
    assert drop_idle_keys(config, request) == []
