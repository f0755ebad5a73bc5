"""From config nodes to objects: the target with its parameters, every wrong one named by its key."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from hydra.errors import InstantiationException
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from onn_runner import targets
from onn_runner.errors import ConfigError, OnnRunnerError, out_of_memory, unknown


def build_network(node: DictConfig, **given: Any) -> Any:
    """A fresh network. Raises ConfigError where the machine's memory does not hold it."""
    try:
        return make(node, "network", **given)
    except (RuntimeError, MemoryError, TypeError, OverflowError) as error:
        if isinstance(error, OnnRunnerError) or not (out_of_memory(error) or "overflow" in str(error).lower()):
            raise
        raise ConfigError(
            "network: too large for the memory here; lower network.channels or network.kernels"
        ) from error


def build_optimizer(node: DictConfig) -> Callable[..., Any]:
    """The optimizer's constructor, tried on one number. Raises ConfigError for values that it refuses."""
    import torch

    build = constructor(node, "optimizer")
    for name, value in node.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise ConfigError(f"optimizer.{name!s} (={value}) must be a finite number")
    try:
        build([torch.nn.Parameter(torch.zeros(1))])
    except (TypeError, ValueError) as error:
        values = ", ".join(f"{name!s}={value}" for name, value in node.items() if str(name) != "_target_")
        raise ConfigError(f"{node['_target_']} refuses optimizer.* ({values}): {error}") from error
    return build


def build_schedule(node: DictConfig) -> Any:
    """A schedule of ours, or the constructor of one of torch's, tried on one number.

    Raises ConfigError for values that torch refuses.
    """
    build = constructor(node, "scheduler")
    if "optimizer" not in signature_of(build):
        return make(node, "scheduler")
    import torch

    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    try:
        schedule = build(optimizer)
        optimizer.step()
        if not isinstance(schedule, torch.optim.lr_scheduler.ReduceLROnPlateau):
            schedule.step()
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{node['_target_']} refuses scheduler.*: {error}") from error
    return build


def build_task(node: DictConfig, source: Any) -> Any:
    """The task of a source's items. Raises ConfigError where it is one of pictures and the items have classes."""
    classes = getattr(source, "classes", None)
    task = make(node, "task", data_range=tuple(source.data_range), classes=classes)
    if classes is not None and getattr(task, "of_classes", None) is False:
        raise ConfigError("the data has classes: task=classify learns them, this task compares pictures and signals")
    return task


def build_metrics(config: DictConfig, *, span: float = 1.0, classes: int | None = None) -> dict[str, Any]:
    """Name -> ItemMetric, in written order; any torchmetrics metric of the user's is adapted.

    `span`: of the data's values, for metrics whose `data_range` is null. `classes`: how many the data has; None: none.
    """
    from onn_runner.metric.adapt import adapt

    def node(given: Any) -> Any:
        unset = isinstance(given, DictConfig) and "data_range" in given and given.data_range is None
        return OmegaConf.merge(given, {"data_range": span}) if unset else given

    counted = {} if classes is None else {"num_classes": classes}
    metrics = {
        str(name): adapt(make(node(given), f"metrics.{name}", **counted), classes=classes is not None)
        for name, given in config.metrics.items()
    }
    for name, metric in metrics.items():
        if metric.of_classes is (classes is None):
            raise ConfigError(
                f"metric={name} scores classes, and the data has none: choose such as metric=[psnr,ssim]"
                if metric.of_classes
                else f"metric={name} compares pictures and signals, and the data has classes: choose such as "
                "metric=[accuracy,f1]"
            )
    return metrics


def make(node: DictConfig, key: str, **given: Any) -> Any:
    """The object of a config node; of `given`, what its constructor has a parameter for."""
    build = constructor(node, key)
    accepted = signature_of(build)
    given = {name: value for name, value in given.items() if name in accepted}
    try:
        inspect.signature(build).bind(**given)
    except TypeError as error:
        names = [name for name in accepted if name not in given]
        raise ConfigError(f"{key}: {error}; {node['_target_']} takes {', '.join(names) or 'nothing'}") from error
    return build(**given)


def constructor(node: DictConfig, key: str) -> Callable[..., Any]:
    """The target of a config node with its parameters bound. Raises ConfigError naming the key.

    Every target in the node is looked at before anything that it names is called.
    """
    if not isinstance(node, DictConfig) or "_target_" not in node:
        raise ConfigError(f"{key} has no _target_: choose an option of the group ('onn list' shows them)")
    targets.check(OmegaConf.to_container(node, resolve=True), key)
    try:
        built = instantiate(_literal(node), _partial_=True, _convert_="all")
    except InstantiationException as error:
        if isinstance(error.__cause__, OnnRunnerError):
            raise error.__cause__ from error
        raise ConfigError(f"{key}: {' '.join(str(error).split())}") from error
    assert callable(built)
    accepted = signature_of(built)
    if isinstance(built, partial) and all(p.kind is not p.VAR_KEYWORD for p in accepted.values()):
        for name in built.keywords:
            if name not in accepted:
                raise unknown("key", f"{key}.{name}", [f"{key}.{option}" for option in accepted])
    return built


def _literal(node: DictConfig) -> DictConfig:
    """The node resolved, so that a text which holds ${ (a folder's name) means itself.

    `instantiate` resolves twice: what was escaped would be looked up the second time.
    """

    def escaped(value: Any) -> Any:
        if isinstance(value, str):
            for _ in range(2):
                value = re.sub(r"(\\*)\$\{", r"\1\1\\${", value)
            return value
        if isinstance(value, dict):
            return {key: escaped(one) for key, one in value.items()}
        return [escaped(one) for one in value] if isinstance(value, list) else value

    return OmegaConf.create(escaped(OmegaConf.to_container(node, resolve=True)))


def signature_of(build: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    function = build.func if isinstance(build, partial) else build
    return inspect.signature(function).parameters
