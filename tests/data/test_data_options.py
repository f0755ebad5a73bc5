"""conf/data/denoise.yaml: the signature's parameters and defaults, and the task that it chooses."""

from __future__ import annotations

import inspect
from pathlib import Path

import yaml

from onn_runner.data.denoise import Denoise

OPTION = Path(__file__).parents[2] / "conf" / "data" / "denoise.yaml"


def test_the_option_is_the_signature() -> None:
    option = yaml.safe_load(OPTION.read_text())
    assert option.pop("defaults") == [{"override /task@_global_.task": "restore"}]
    assert option.pop("_target_") == f"{Denoise.__module__}.{Denoise.__name__}"
    defaults = {name: parameter.default for name, parameter in inspect.signature(Denoise).parameters.items()}
    assert option == defaults
    assert list(option) == list(defaults)


def test_the_first_line_says_when_to_choose_it() -> None:
    assert OPTION.read_text().startswith("# Remove noise from photographs")
