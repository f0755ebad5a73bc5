"""Hydra's own node says how to run: it may come from the product, from the command line, and little of it from others.

Hydra imports and calls what stands there (callbacks, logging), changes the environment and writes where it says; a
folder of options is data, and so may only set what says how many jobs run at once and what they may use.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.utils import create_automatic_config_search_path
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from onn_runner import targets
from onn_runner.cli.argv import Command, key_of, parse
from onn_runner.cli.catalogue import CONFIG_NAME, Catalogue, config_folder
from onn_runner.cli.compose import translated
from onn_runner.errors import ConfigError
from onn_runner.plain import printable

DERIVED = ("runtime", "overrides", "mode", "job.name", "job.override_dirname", "job.id", "job.num", "job.config_name")
"""What Hydra fills in."""
LAUNCHER = frozenset(
    (
        *("n_jobs", "backend", "prefer", "verbose", "timeout", "pre_dispatch", "batch_size"),
        *("timeout_min", "max_num_timeout", "signal_delay_s", "array_parallelism", "nodes", "tasks_per_node", "name"),
        *("cpus_per_task", "cpus_per_gpu", "gpus_per_node", "gpus_per_task", "mem_gb", "mem_per_cpu", "mem_per_gpu"),
        *("partition", "account", "qos", "comment", "constraint", "exclude", "gres"),
        *(f"ray.remote.{name}" for name in ("num_cpus", "num_gpus", "max_retries")),
        *(f"ray.init.{name}" for name in ("num_cpus", "num_gpus", "include_dashboard", "log_to_driver")),
    )
)
"""How much may be used, and when. Not: commands (setup, python, srun_args), places, addresses."""
SWEEPER = frozenset(
    (
        *("sampler", "sampler_options", "seed", "n_trials", "n_jobs", "objectives", "direction", "pruner"),
        *("pruner_options", "params", "max_batch_size"),
    )
)
"""What is searched, and how. Not: where the database is."""
_ABSENT = object()
FREE = {"launcher": LAUNCHER, "sweeper": SWEEPER}


def check(command: Command, config: DictConfig) -> None:
    """Raises ConfigError where `config`, composed of others' folders too, says what only the command line may."""
    typed = [text for text in command.overrides if parse(text).is_hydra_override()]
    check_typed(typed)
    if len(command.folders) == 1 and command.folders[0] == config_folder() and not typed:
        return
    found = _flat(_plain(config.hydra))
    own, stock = _references(config, typed)
    again = {key_of(parse(text)) for text in typed}
    for key, value in found.items():
        if _derived(key) or own.get(key, _ABSENT) == value:
            continue
        if _free(key, value):
            _check_params(key)
        elif not _covered(f"hydra.{key}", again) and stock().get(key, _ABSENT) != value:
            raise ConfigError(
                f"hydra.{printable(key)} (={printable(str(value))[:80]}) comes from a config folder and says how to "
                "run, which only the command line may: type it if you mean it, or take it out of the folder"
            )


def check_typed(typed: Sequence[str]) -> None:
    """Raises ConfigError where what was typed would import a module that was not named: callbacks, search paths."""
    for text in typed:
        override = parse(text)
        key = key_of(override)
        value: Any = override.value()
        if key == "hydra.searchpath" and isinstance(value, list):
            for entry in map(str, value):
                _check_package(entry)
        elif key.startswith("hydra.callbacks"):
            inner = key.removesuffix("._target_")
            targets.check(value if inner == key else {"_target_": value}, inner)


def _check_package(entry: str) -> None:
    scheme, separator, rest = entry.partition("://")
    package = rest.replace("/", ".")
    top = package.partition(".")[0]
    known = ("onn_runner", *(name.partition(".")[0] for name in targets.allowed()))
    if separator and scheme == "pkg" and top not in known:
        raise ConfigError(
            f"hydra.searchpath: {printable(entry)} imports {printable(top)}; if you trust it: --module {top}"
        )


def _references(config: DictConfig, typed: Sequence[str]) -> tuple[Mapping[str, Any], Callable[[], Mapping[str, Any]]]:
    """What Hydra's node is of the product alone, same launcher and sweeper; and what it is of Hydra alone."""
    choices: Mapping[str, Any] = config.hydra.runtime.choices
    own = Catalogue((config_folder(),))
    chosen = [] if choices.get("sweep") not in own.options("sweep") else [f"sweep={choices['sweep']}"]
    loader = ConfigLoaderImpl(create_automatic_config_search_path(None, None, str(config_folder())))
    for group in ("hydra/launcher", "hydra/sweeper"):
        option = choices.get(group)
        if option not in loader.get_group_options(group):
            named = f"{group}={printable(str(option))}"
            raise ConfigError(f"{named} comes from a config folder: choose one that is installed")
        chosen.append(f"{group}={option}")
    kept = [text for text in typed if not text.startswith(("hydra/launcher=", "hydra/sweeper=", "hydra.searchpath="))]

    def composed(*without: str) -> Mapping[str, Any]:
        with translated():
            found = loader.load_configuration(CONFIG_NAME, [*chosen, *without, *kept], run_mode=RunMode.RUN)
        return _flat(_plain(found.hydra))

    return composed(), functools.cache(lambda: composed("~hydra"))


def _free(key: str, value: Any) -> bool:
    """Whether it may come from a config folder: a value, in which there is nothing to be called."""
    part, *names = key.split(".")
    single = not isinstance(value, list) or not any(isinstance(one, list | dict) for one in value)
    called = any(name.startswith("_") for name in names)
    return part in FREE and _covered(".".join(names), FREE[part]) and single and not called


def _check_params(key: str) -> None:
    """What a search varies is composed into its jobs: it may not be how they run."""
    name = key.removeprefix("sweeper.params.").lstrip("+~")
    if key.startswith("sweeper.params.") and name.partition(".")[0].partition("/")[0] == "hydra":
        raise ConfigError(f"hydra.{printable(key)} comes from a config folder and says how jobs run: take it out")


def _derived(key: str) -> bool:
    return _covered(key, DERIVED)


def _covered(key: str, names: Any) -> bool:
    """Whether one of `names` is `key` or what it lies in."""
    return any(key == name or key.startswith(f"{name}.") for name in names)


def _plain(node: DictConfig) -> dict[str, Any]:
    """Uncomposed, since what Hydra fills in is missing."""
    found = OmegaConf.to_container(node, resolve=False)
    assert isinstance(found, dict)
    return {str(key): value for key, value in found.items()}


def _flat(nested: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """{"a": {"b": 1}} -> {"a.b": 1}; empty mappings say nothing."""
    result: dict[str, Any] = {}
    for key, value in nested.items():
        if isinstance(value, Mapping):
            result |= _flat(value, f"{prefix}{key}.")
        else:
            result[f"{prefix}{key}"] = value
    return result
