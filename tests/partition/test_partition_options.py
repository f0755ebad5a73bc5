"""Every conf/partition option makes a partition of its module, with all of its parameters."""

from __future__ import annotations

import dataclasses
import importlib
from pathlib import Path

import pytest
import yaml

from onn_runner.partition.fit import Fit
from onn_runner.partition.splitter import Validating

OPTIONS = sorted((Path(__file__).parents[2] / "conf" / "partition").glob("*.yaml"))


@pytest.mark.parametrize("path", OPTIONS, ids=lambda path: path.stem)
def test_option_names_every_parameter(path: Path) -> None:
    assert path.read_text().startswith("# ")
    option = yaml.safe_load(path.read_text())
    module, _, kind = option.pop("_target_").rpartition(".")
    assert module.startswith("onn_runner.partition.")
    partition = getattr(importlib.import_module(module), kind)(**option)
    assert isinstance(partition, Validating | Fit)
    assert list(option) == [field.name for field in dataclasses.fields(partition)]
    if not path.stem.startswith("repeated_"):
        assert partition == type(partition)()


def test_the_promised_options_are_there() -> None:
    promised = {"kfold", "group_kfold", "stratified_kfold", "leave_one_group_out", "hold_out"}
    promised |= {"repeated_kfold", "repeated_group_kfold", "fit", "given"}
    assert promised <= {path.stem for path in OPTIONS}
