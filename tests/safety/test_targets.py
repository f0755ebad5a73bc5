"""What a `_target_` may be is decided by what it resolves to, not by how it is written."""

from __future__ import annotations

import sys

import pytest

from onn_runner import targets
from onn_runner.errors import ConfigError


@pytest.fixture(autouse=True)
def _none_named(monkeypatch):
    monkeypatch.setattr(targets, "_named", ())
    monkeypatch.setattr(sys, "path", list(sys.path))


@pytest.mark.parametrize(
    ("key", "target"),
    [
        ("network", "torch.nn.Sequential"),
        ("network", "torchvision.models.MobileNetV2"),
        ("optimizer", "torch.optim.Adam"),
        ("scheduler", "torch.optim.lr_scheduler.StepLR"),
        ("scheduler", "onn_runner.trainer.schedule.Cosine"),
        ("metrics.x", "torchmetrics.MeanSquaredError"),
        ("metrics.x", "torchmetrics.classification.MulticlassCohenKappa"),
        ("operators.x", "onn_runner.ops.Sine"),
    ],
)
def test_classes_of_the_kind_are_taken_from_the_libraries(key, target):
    targets.check({"_target_": target}, key)


@pytest.mark.parametrize(
    ("key", "target", "part"),
    [
        ("network", "os.system", "neither of onn_runner, torch"),
        ("network", "builtins.eval", "neither of onn_runner, torch"),
        ("network", "subprocess.run", "neither of onn_runner, torch"),
        ("network", "sklearn.linear_model.LinearRegression", "--module sklearn.linear_model"),
        ("network", "torch.hub.load", "a function of torch.hub"),
        ("network", "torch.load", "a function of torch.serialization"),
        ("network", "torch.jit.load", "a function of torch.jit"),
        ("network", "torch.nn.Module.to", "a function of torch.nn"),
        ("network", "torch.fx.GraphModule", "a class of torch.fx"),
        ("network", "torchvision.models.resnet18", "a function of torchvision.models"),
        ("network", "torch.os.system", "leads to os"),
        ("optimizer", "torch.optim.optimizer.functools.partial", "leads to functools"),
        ("optimizer", "torch.optim.lr_scheduler.StepLR", "must be a torch.optim.Optimizer"),
        ("scheduler", "torch.optim.lr_scheduler.partial", "a class of functools"),
        ("operators.x", "torch.mul", "a function"),
        ("metrics.x", "torchmetrics.text.bert.BERTScore", "must be a torchmetrics.Metric"),
        ("metrics.x", "torchmetrics.image.fid.FrechetInceptionDistance", "loads a network from elsewhere"),
        ("data", "torchvision.datasets.MNIST", "must be a source of items"),
        ("task", "onn_runner.cli.run.main", "must be a task"),
        ("model", "onn_runner.model.conv", "a module"),
        ("model", "onn_runner.model.conv.Konv", "cannot be found"),
        ("model", "onn_runner.model.conv.Conv.__call__", "must be the name of a class"),
        ("model", "onn_runner.model.conv.Conv; import os", "must be the name of a class"),
        ("model", "onn_runner..model", "must be the name of a class"),
        ("model", "evil", "must be the name of a class"),
        ("model", 7, "must be the name of a class"),
        ("model", ["os.system"], "must be the name of a class"),
        ("unknown", "torch.nn.Conv2d", "of your own"),
    ],
)
def test_everything_else_is_refused(key, target, part):
    with pytest.raises(ConfigError) as told:
        targets.check({"_target_": target}, key)
    assert part in str(told.value)
    assert str(told.value).startswith(f"{key}._target_")


@pytest.mark.parametrize(
    "node",
    [
        {"deep": {"deeper": [1, {"_target_": "os.system", "command": "true"}]}},
        {"_args_": [{"_target_": "os.system", "_partial_": True}]},
        {"_recursive_": False, "_convert_": "object", "x": {"_target_": "os.system"}},
    ],
)
def test_nodes_in_nodes_are_looked_at(node):
    with pytest.raises(ConfigError, match=r"os\.system"):
        targets.check({"_target_": "onn_runner.network.compact.Compact", **node}, "network")


def test_what_a_target_names_is_not_imported_before_it_is_allowed(box):
    with pytest.raises(ConfigError, match="--module evil"):
        targets.check({"_target_": "evil.Evil"}, "network")
    box.unharmed("")


MINE = """
import os
import subprocess
from functools import partial
from os import system

import torch

class Net(torch.nn.Module):
    pass

class Other:
    @classmethod
    def made(cls):
        return cls()

def net():
    return Net()

called = partial(system, "true")
"""


@pytest.fixture
def mine(box):
    box.write("mine_nets.py", MINE)
    yield targets.allow(["mine_nets"])
    sys.modules.pop("mine_nets", None)


@pytest.mark.parametrize("name", ["Net", "net"])
def test_a_named_module_gives_its_own_classes_and_functions(mine, name):
    targets.check({"_target_": f"mine_nets.{name}"}, "network")


@pytest.mark.parametrize(
    ("target", "part"),
    [
        ("mine_nets.system", "a function of posix"),
        ("mine_nets.os.system", "leads to os"),
        ("mine_nets.subprocess.run", "leads to subprocess"),
        ("mine_nets.called", "of functools"),
        ("mine_nets.Other", "must be a torch.nn.Module"),
        ("mine_nets.Other.made", "must be a torch.nn.Module"),
        ("mine_nets.torch.load", "a function of torch.serialization"),
        ("mine_nets.nowhere", "cannot be found"),
    ],
)
def test_what_a_named_module_only_imports_is_not_its_own(mine, target, part):
    with pytest.raises(ConfigError) as told:
        targets.check({"_target_": target}, "network")
    assert part in str(told.value)


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("os", "no module of your own"),
        ("torch.hub", "no module of your own"),
        ("../evil", "must be the name of a module"),
        ("", "must be the name of a module"),
        ("nowhere_to_be_found", "there is no such module"),
    ],
)
def test_a_name_that_cannot_be_a_module_of_ones_own(box, name, part):
    assert part in box.refused(box.onn_run("--module", name, "dry_run=true"))


def test_a_module_with_a_mistake_is_told(box):
    box.write("broken_ops.py", "1 / 0\n")
    targets.allow(["broken_ops"])
    with pytest.raises(ConfigError, match="cannot be found: division by zero"):
        targets.check({"_target_": "broken_ops.Net"}, "network")
