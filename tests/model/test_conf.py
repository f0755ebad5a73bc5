"""The yaml of each model and network names its class's parameters, in signature order, and says when to choose it."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
FILES = sorted([*(ROOT / "conf/model").glob("*.yaml"), *(ROOT / "conf/network").glob("*.yaml")])


@pytest.mark.parametrize("path", FILES, ids=[f"{path.parent.name}/{path.stem}" for path in FILES])
def test_keys_are_the_parameters_in_signature_order(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.startswith("# ")
    assert len(text.splitlines()[0]) > 20
    values = yaml.safe_load(text)
    module, name = values.pop("_target_").rsplit(".", 1)
    assert module.startswith(f"onn_runner.{path.parent.name}."), "same word on both sides"
    signature = list(inspect.signature(getattr(importlib.import_module(module), name)).parameters)
    assert list(values) == [key for key in signature if key in values]


@pytest.mark.parametrize("path", [p for p in FILES if p.parent.name == "model"], ids=lambda path: path.stem)
def test_defaults_build_a_factory(path: Path) -> None:
    values = yaml.safe_load(path.read_text(encoding="utf-8"))
    module, name = values.pop("_target_").rsplit(".", 1)
    made = getattr(importlib.import_module(module), name)
    if "operators" in inspect.signature(made).parameters:
        values["operators"] = {"mul": lambda w, x: w * x}
    assert callable(made(**values))
