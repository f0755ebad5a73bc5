"""Monitor: which value chooses the best epoch, and which direction is better."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from onn_runner.errors import ConfigError, unknown
from onn_runner.trainer.settings import Settings

if TYPE_CHECKING:
    from onn_runner.metric.base import ItemMetric


@dataclass(frozen=True)
class Monitor:
    key: str
    higher: bool
    file: str
    """best.pt for the monitor itself, best_<metric>.pt for the others."""

    def better(self, value: float, than: float | None) -> bool:
        """False for a value that is not finite, whatever it is compared with."""
        if not math.isfinite(value):
            return False
        return than is None or (value > than if self.higher else value < than)

    def unusable(self, value: float) -> str:
        """Why an epoch of this value cannot be the best one; empty where it can."""
        if math.isfinite(value):
            return ""
        what = (
            "not defined for any item" if math.isnan(value) else "infinite, by an item that is predicted without error"
        )
        return (
            f"{self.key} is {what}: epochs in which it is can never be the best. "
            f"trainer.monitor={self.key.partition('/')[0]}/loss has no such values"
        )


def monitors(settings: Settings, metrics: Mapping[str, ItemMetric], *, validation: bool) -> tuple[Monitor, ...]:
    """`trainer.monitor` first, then `trainer.keep_best`.

    Raises ConfigError for a key that names no split or metric, a metric without direction, a validation key without
    a validation part, and two keys that share a file.
    """
    found = [_monitor("monitor", settings.monitor, metrics, validation=validation, file="best.pt")]
    for key in settings.keep_best:
        file = f"best_{key.partition('/')[2]}.pt"
        found.append(_monitor("keep_best", key, metrics, validation=validation, file=file))
    files = [monitor.file for monitor in found]
    for monitor in found:
        if files.count(monitor.file) > 1:
            raise ConfigError(f"trainer.keep_best names two keys for {monitor.file}: keep one of them.")
    return tuple(found)


def train_metrics(settings: Settings, chosen: tuple[Monitor, ...]) -> list[str]:
    """Names of the metrics that are also computed on training predictions."""
    wanted = settings.train_metrics
    names = [m.key.partition("/")[2] for m in chosen[:1]] if wanted is None else list(wanted)
    names += [m.key.partition("/")[2] for m in chosen if m.key.startswith("train/")]
    return [name for name in dict.fromkeys(names) if name != "loss"]


def check_names(settings: Settings, metrics: Collection[str]) -> None:
    """What can be told of `trainer.monitor` and `trainer.keep_best` before there is data. Raises ConfigError."""
    for setting, keys in (("monitor", (settings.monitor,)), ("keep_best", settings.keep_best)):
        for key in keys:
            _name(setting, key, metrics)


def _name(setting: str, key: str, metrics: Collection[str]) -> str:
    """The metric of a key. Raises ConfigError for a split that never chooses, and for a metric that is not computed."""
    split, _, name = key.partition("/")
    if split not in ("val", "train"):
        options = [f"{part}/{metric}" for part in ("val", "train") for metric in ("loss", *metrics)]
        remedy = "The test part never chooses anything." if split in ("test", "photo") else ""
        raise unknown(f"trainer.{setting}", key, options, remedy=remedy)
    if name != "loss" and name not in metrics:
        raise unknown(f"metric in trainer.{setting}={key}:", name, ["loss", *metrics])
    return name


def _monitor(setting: str, key: str, metrics: Mapping[str, ItemMetric], *, validation: bool, file: str) -> Monitor:
    name = _name(setting, key, metrics)
    if key.startswith("val/") and not validation:
        raise ConfigError(
            f"trainer.{setting}={key} needs a validation part, and this partition has none: "
            f"set partition.validation, or trainer.{setting}=train/{name}."
        )
    higher = False if name == "loss" else metrics[name].higher_is_better
    if higher is None:
        raise ConfigError(f"trainer.{setting}={key}: metric {name} has no better direction, so that it cannot choose.")
    return Monitor(key, higher, file)
