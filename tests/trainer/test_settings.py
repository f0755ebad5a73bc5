"""Settings and conf/trainer: every wrong value is refused by name."""

import importlib
import inspect
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from tiny_fold import settings

from onn_runner.errors import ConfigError
from onn_runner.trainer import Settings, schedule

CONF = Path(__file__).parents[2] / "conf"


@pytest.mark.parametrize("name", ["epochs", "batch_size", "eval_batch_size", "starts", "preview_every"])
@pytest.mark.parametrize("value", [0, -1, 1.5, "ten", True, None])
def test_counts_are_whole_and_positive(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=rf"^trainer\.{name} \(=.*\) must be a whole number of at least 1\.$"):
        settings(**{name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("workers", -1),
        ("preview_items", "many"),
        ("patience", 0),
        ("threads", 0),
        ("clip_norm", 0),
        ("clip_norm", float("nan")),
        ("clip_value", -1.0),
        ("save_minutes", 0),
        ("quadratic_rate", -0.1),
        ("quadratic_decay", float("inf")),
        ("decay_all", "yes"),
        ("compile", 1),
        ("tensorboard", None),
        ("device", 0),
        ("monitor", None),
        ("keep_best", "val/ssim"),
        ("frozen", [1]),
        ("frozen", None),
        ("train_metrics", 3),
        ("precision", 16),
    ],
)
def test_wrong_values_are_named(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=rf"trainer\.{name} \(="):
        settings(**{name: value})


def test_misspelt_precision_lists_the_options() -> None:
    with pytest.raises(ConfigError, match=r"unknown trainer\.precision 'fp31'.*Did you mean.*fp32"):
        settings(precision="fp31")


def test_two_ways_of_clipping_exclude_each_other() -> None:
    with pytest.raises(ConfigError, match="exclude each other"):
        settings(clip_norm=1.0, clip_value=1.0)


def test_lists_become_tuples() -> None:
    made = settings(keep_best=["val/mae"], frozen=[])
    assert made.keep_best == ("val/mae",)
    assert made.frozen == ()


def test_default_config_names_every_setting_in_order() -> None:
    config = yaml.safe_load((CONF / "trainer/default.yaml").read_text())
    assert config.pop("_target_") == "onn_runner.trainer.settings.Settings"
    # A run puts the first of its metrics there.
    assert config["monitor"] is None
    Settings(**{**config, "monitor": "val/psnr"})
    assert set(config) == set(inspect.signature(Settings).parameters)


@pytest.mark.parametrize("path", sorted((CONF / "optimizer").glob("*.yaml")), ids=lambda path: path.stem)
def test_optimizer_configs_hold_the_arguments_of_their_class(path: Path) -> None:
    config = yaml.safe_load(path.read_text())
    config.pop("defaults", None)
    module, _, name = config.pop("_target_").rpartition(".")
    chosen = getattr(importlib.import_module(module), name)
    assert set(config) <= set(inspect.signature(chosen).parameters)
    weight = torch.nn.Parameter(torch.ones(3))
    optimizer = chosen([weight], **config)
    weight.square().sum().backward()
    optimizer.step()
    assert (weight < 1).all()


@pytest.mark.parametrize("path", sorted((CONF / "scheduler").glob("*.yaml")), ids=lambda path: path.stem)
def test_scheduler_configs_hold_the_arguments_of_ours(path: Path) -> None:
    config = yaml.safe_load(path.read_text())
    chosen = getattr(schedule, config.pop("_target_").removeprefix("onn_runner.trainer.schedule."))
    assert list(config) == [name for name in inspect.signature(chosen).parameters if name in config]
    assert set(config) == set(inspect.signature(chosen).parameters)
    chosen(**config)


@pytest.mark.parametrize("group", ["trainer", "optimizer", "scheduler", "task"])
def test_every_option_begins_with_a_line_on_when_to_choose_it(group: str) -> None:
    for path in (CONF / group).glob("*.yaml"):
        first, second = path.read_text().splitlines()[:2]
        assert first.startswith("# "), path
        assert second.startswith(("_target_: ", "defaults:")), path
