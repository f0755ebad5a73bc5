"""conf/data options with classes: the signatures' parameters and defaults, and what they choose beside data."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path
from typing import Any

import pytest
import yaml

CONF = Path(__file__).parents[2] / "conf"
OPTIONS = ["cifar10", "cifar100", "digits", "fashion_mnist", "image_folder", "mnist", "mnist5k"]


def as_lists(value: Any) -> Any:
    return [as_lists(part) for part in value] if isinstance(value, tuple) else value


@pytest.mark.parametrize("name", OPTIONS)
def test_the_option_is_the_signature(name: str) -> None:
    text = (CONF / "data" / f"{name}.yaml").read_text()
    assert text.startswith("# Tell ")
    option = yaml.safe_load(text)
    chosen = {
        key.split("@")[0].removeprefix("override /"): v for part in option.pop("defaults") for key, v in part.items()
    }
    assert (chosen["task"], chosen["partition"]) == ("classify", "stratified_kfold")
    assert (CONF / "network" / f"{chosen['network']}.yaml").is_file()
    assert all((CONF / "metric" / f"{metric}.yaml").is_file() for metric in chosen["metric"])
    module, _, kind = option.pop("_target_").rpartition(".")
    signature = inspect.signature(getattr(importlib.import_module(module), kind))
    defaults = {key: as_lists(parameter.default) for key, parameter in signature.parameters.items()}
    assert option == defaults
    assert list(option) == list(defaults)
