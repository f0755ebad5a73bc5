"""How a search is asked for: hydra.sweeper.* of hydra/sweeper=optuna, checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from onn_runner.errors import ConfigError, unknown

SAMPLERS = ("tpe", "gp", "nsgaii", "random", "grid")
PRUNERS = ("median", "successive_halving", "wilcoxon")
OBJECTIVES = ("score", "macs", "parameters", "seconds")
DIRECTIONS = ("minimize", "maximize")
KEY = "hydra.sweeper"
TARGET = "onn_runner.cli.search.SearchSweeper"


@dataclass(frozen=True, kw_only=True)
class SearchSettings:
    sampler: str = "tpe"
    sampler_options: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    n_trials: int = 20
    n_jobs: int | None = None
    """Trials that are asked for and launched together; None: as many as the launcher computes at once."""
    objectives: tuple[str, ...] = ("score",)
    direction: tuple[str | None, ...] = ()
    """Of each objective; None: of the monitored metric, and down for costs."""
    pruner: str | None = None
    pruner_options: Mapping[str, Any] = field(default_factory=dict)
    storage: str | None = None
    """Optuna's URL of a database, or a file that ends in .log; None: search.db in the sweep's folder."""
    study_name: str | None = None
    params: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.sampler not in SAMPLERS:
            raise unknown(f"sampler in {KEY}.sampler:", str(self.sampler), SAMPLERS)
        if self.pruner is not None and self.pruner not in PRUNERS:
            raise unknown(f"pruner in {KEY}.pruner:", str(self.pruner), PRUNERS)
        for name, least in (("seed", 0), ("n_trials", 1), ("n_jobs", 1)):
            value = getattr(self, name)
            if value is None and name == "n_jobs":
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise ConfigError(f"{KEY}.{name} (={value}) must be a whole number from {least} on")
        self._check_objectives()
        for name in ("storage", "study_name"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, str) or not value.strip()):
                raise ConfigError(f"{KEY}.{name} (={value}) must be a text; null: one is made for the sweep's folder")
        for name in ("sampler_options", "pruner_options", "params"):
            if not isinstance(getattr(self, name), Mapping):
                raise ConfigError(f"{KEY}.{name} (={getattr(self, name)}) must be names with values, {{}} for none")

    def _check_objectives(self) -> None:
        for name in self.objectives:
            if name not in OBJECTIVES:
                raise unknown(f"objective in {KEY}.objectives:", str(name), OBJECTIVES)
        if not self.objectives or len(set(self.objectives)) < len(self.objectives):
            raise ConfigError(f"{KEY}.objectives must name one or several of {', '.join(OBJECTIVES)}, each once")
        if self.direction and len(self.direction) != len(self.objectives):
            raise ConfigError(
                f"{KEY}.direction has {len(self.direction)} entries for {len(self.objectives)} objectives "
                f"({', '.join(self.objectives)}): give one each, or null"
            )
        for one in self.direction:
            if one is not None and one not in DIRECTIONS:
                raise unknown(f"direction in {KEY}.direction:", str(one), DIRECTIONS)
        if self.pruner is not None and len(self.objectives) > 1:
            raise ConfigError(
                f"{KEY}.pruner={self.pruner} needs a single objective: Optuna prunes no trial by several; leave it null"
            )
        if self.pruner is not None and self.objectives != ("score",):
            raise ConfigError(f"{KEY}.pruner={self.pruner} judges folds by their score: {KEY}.objectives=[score]")


def read(node: DictConfig) -> SearchSettings:
    """The settings of `hydra.sweeper`. Raises ConfigError naming the key."""
    plain = OmegaConf.to_container(node, resolve=True)
    assert isinstance(plain, dict)
    names = {one.name for one in fields(SearchSettings)}
    given: dict[str, Any] = {str(key): value for key, value in plain.items() if key != "_target_"}
    # What sweep=submitit_local and sweep=slurm say to the sweeper that tries every value.
    together = given.pop("max_batch_size", None)
    if given.get("n_jobs") is None:
        given["n_jobs"] = together
    for name in given:
        if name not in names:
            raise unknown("key", f"{KEY}.{name}", [f"{KEY}.{one}" for one in names])
    given["objectives"] = _listed(given.get("objectives", "score"))
    direction = given.get("direction")
    given["direction"] = () if direction is None else _listed(direction)
    for name in ("sampler_options", "pruner_options", "params"):
        given[name] = given.get(name) if given.get(name) is not None else {}
    return SearchSettings(**given)


def _listed(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else (value,)


def searches(config: DictConfig) -> bool:
    """Whether the sweeper of a composed config is this one."""
    return bool(OmegaConf.select(config, "hydra.sweeper._target_") == TARGET)


def directions_of(settings: SearchSettings, config: DictConfig) -> tuple[str, ...]:
    """Of each objective. Raises ConfigError where that of the score is neither given nor known."""
    given = settings.direction or (None,) * len(settings.objectives)
    return tuple(
        one or ("minimize" if name != "score" else score_direction(config))
        for name, one in zip(settings.objectives, given, strict=True)
    )


def score_direction(config: DictConfig) -> str:
    """Of the monitored metric, which its class knows."""
    from onn_runner.construct import constructor
    from onn_runner.experiment import with_monitor

    plain = OmegaConf.to_container(config, resolve=False)
    assert isinstance(plain, dict)
    monitor = str(with_monitor({str(key): value for key, value in plain.items()})["trainer"].get("monitor", "loss"))
    name = monitor.partition("/")[2]
    if name == "loss":
        return "minimize"
    build = constructor(config.metrics[name], f"metrics.{name}")
    higher = getattr(build.func if isinstance(build, partial) else build, "higher_is_better", None)
    if not isinstance(higher, bool):
        raise ConfigError(
            f"whether more {monitor} is better is not known from its metric: say {KEY}.direction=maximize or minimize"
        )
    return "maximize" if higher else "minimize"


def fold_reports(settings: Any, config: DictConfig) -> Callable[[int, int, float], None] | None:
    """What a job tells its search after each fold; None where nothing is pruned.

    `settings`: Hydra's node in the job's process; `config`: the job's.
    """
    number = OmegaConf.select(config, "sweep.trial")
    if number is None or OmegaConf.select(settings, "sweeper._target_") != TARGET:
        return None
    chosen = read(settings.sweeper)
    if chosen.pruner is None:
        return None
    from onn_runner.cli.search_study import FoldReports

    return FoldReports(chosen, folder=Path(str(settings.sweep.dir)), number=int(number))


def without_hydra(config: DictConfig) -> DictConfig:
    """What a job computes of a whole composed config."""
    own = OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"])
    assert isinstance(own, DictConfig)
    return own
