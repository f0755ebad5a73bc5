"""Every network and every neuron type of conf/, small."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path
from typing import Any

import torch
import yaml
from torch import nn

from onn_runner.model.base import Factory
from onn_runner.network.base import Restorer
from onn_runner.network.classifier import Classifier
from onn_runner.ops.nodal import Multiply, Sine

CONF = Path(__file__).parents[2] / "conf"
MODELS = sorted(path.stem for path in (CONF / "model").glob("*.yaml"))


def target(group: str, option: str) -> tuple[Any, dict[str, Any]]:
    """The class that an option names, and the values that it gives."""
    values = yaml.safe_load((CONF / group / f"{option}.yaml").read_text(encoding="utf-8"))
    module, name = values.pop("_target_").rsplit(".", 1)
    return getattr(importlib.import_module(module), name), values


def networks(base: type[nn.Module]) -> list[str]:
    options = sorted(path.stem for path in (CONF / "network").glob("*.yaml"))
    return [option for option in options if issubclass(target("network", option)[0], base)]


def factory_of(model: str) -> Factory:
    made, values = target("model", model)
    if "operators" in inspect.signature(made).parameters:
        values["operators"] = {"sine": Sine(), "mul": Multiply()}
    factory: Factory = made(**values)
    return factory


def build(network: str, model: str | Factory, **changes: Any) -> nn.Module:
    """build("unet", "onn", input_size=(37, 53), ...): seeded; the option's values, but for three neurons a layer."""
    constructor, values = target("network", network)
    widths = values["channels"]
    values["channels"] = [3] * len(widths) if isinstance(widths, list) else 3
    factory = factory_of(model) if isinstance(model, str) else model
    torch.manual_seed(0)
    built = constructor(factory, **({"in_channels": 1, "out_channels": 1} | values | changes))
    assert isinstance(built, nn.Module)
    return built


RESTORERS = networks(Restorer)
CLASSIFIERS = networks(Classifier)
