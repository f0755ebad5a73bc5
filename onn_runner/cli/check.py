"""Finds misspelt groups, options, operators and keys before anything is imported, made or run.

Hydra says no to most of them, each in its own way; here every mistake is one sentence with the closest matches.
"""

from __future__ import annotations

import difflib
import importlib.util
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra._internal.hydra import Hydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, ListConfig, OmegaConf

from onn_runner.cli import declared, how
from onn_runner.cli.argv import LIST_GROUPS, OPTIONAL_GROUPS, Command, parse
from onn_runner.cli.catalogue import Catalogue
from onn_runner.cli.compose import compose, translated
from onn_runner.errors import ConfigError, unknown

PLUGINS: Mapping[str, Mapping[str, str]] = {
    "hydra/launcher": {"joblib": "joblib", "submitit_local": "submitit", "submitit_slurm": "submitit", "ray": "ray"},
    "hydra/sweeper": {"optuna": "sweep"},
}
"""Hydra's group -> option -> the extra of this package that brings it."""
NEURONS = ("model", "baseline")
"""The keys of the config that choose a kind of neurons."""


def catalogue_of(command: Command) -> Catalogue:
    """The command's config folders and those of hydra.searchpath=[...]."""
    extra: list[Path] = []
    for override in map(parse, command.overrides):
        value = override.value()
        if override.key_or_group == "hydra.searchpath" and isinstance(value, list):
            extra.extend(folder for entry in value if (folder := _search_folder(str(entry))) is not None)
    return Catalogue((*command.folders, *extra))


def _search_folder(entry: str) -> Path | None:
    scheme, _, rest = entry.rpartition("://")
    if scheme in ("", "file"):
        return Path(rest).resolve()
    package, _, inside = rest.replace("/", ".").partition(".")
    spec = importlib.util.find_spec(package) if scheme == "pkg" and package else None
    roots = (spec.submodule_search_locations or []) if spec is not None else []
    return next((Path(root, *inside.split(".")) for root in roots), None)


@dataclass(frozen=True)
class Checker:
    """Checks the overrides of one command against the config folders."""

    hydra: Hydra
    command: Command
    catalogue: Catalogue

    def run(self) -> DictConfig:
        """The composed config (of a sweep: of its first job). Raises ConfigError at the first mistake."""
        parser = OverridesParser.create(config_loader=self.hydra.config_loader)
        with translated():
            parsed = parser.parse_overrides(list(self.command.overrides))
        how.check_typed([override.input_line or "" for override in parsed if override.is_hydra_override()])
        for override in parsed:
            self._check_options(override)
        first, *others = self._jobs(parsed)
        config = self._check_job(first)
        for job in others:
            self._check_job(job)
        if not self.command.multirun and self.command.resume is None:
            refuse_idle_operators(config, self.command.overrides)
        return config

    def _is_group(self, override: Override) -> bool:
        return override.package is not None or override.key_or_group in self.catalogue.groups

    def _check_options(self, override: Override) -> None:
        group = override.key_or_group
        if group in PLUGINS and isinstance(override.value(), str):
            self._check_plugin(group, str(override.value()))
        if override.is_hydra_override():
            return
        if override.package is not None and group not in self.catalogue.groups:
            raise unknown("group", group, self.catalogue.groups)
        if group not in self.catalogue.groups:
            return
        values = [None] if override.is_delete() else list(_values(override))
        if not values:
            raise unknown("pattern", override.input_line or "", self.catalogue.options(group))
        for value in values:
            if value is None:
                if group in OPTIONAL_GROUPS and not override.is_delete():
                    raise ConfigError(f"{override.input_line}: null cannot be one of several; sweep over options")
                if group not in OPTIONAL_GROUPS:
                    raise ConfigError(f"{override.input_line}: a run needs a {group}; options: {self._listing(group)}")
            elif isinstance(value, list) and group in LIST_GROUPS:
                for name in value:
                    self.catalogue.require(group, str(name))
            elif isinstance(value, list | dict):
                raise ConfigError(f"{override.input_line}: {group} takes one option: {self._listing(group)}")
            else:
                self.catalogue.require(group, str(value))
                self._check_preset(group, str(value))

    def _check_preset(self, group: str, option: str) -> None:
        """A launcher or sweeper that an option of ours chooses, such as sweep=joblib, is installed."""
        defaults = self.catalogue.node(group, option).get("defaults") if group == "sweep" else None
        for entry in defaults or ():
            for key, name in entry.items() if isinstance(entry, dict) else ():
                chosen = str(key).removeprefix("override ").removeprefix("/")
                if chosen in PLUGINS:
                    self._check_plugin(chosen, str(name))

    def _check_plugin(self, group: str, name: str) -> None:
        installed = self.hydra.config_loader.get_group_options(group)
        extra = PLUGINS[group].get(name)
        if name not in installed and extra is not None:
            raise ConfigError(f"{group}={name} is not installed: pip install 'onn-runner[{extra}]'")
        if name not in installed:
            raise unknown(group, name, {*installed, *PLUGINS[group]})

    def _listing(self, group: str) -> str:
        return ", ".join(self.catalogue.options(group))

    def _jobs(self, parsed: Sequence[Override]) -> Iterator[list[str]]:
        """The first job of a sweep, then one job for every other value of a swept group; a plain run's only job."""
        sweeps = [override for override in parsed if override.is_sweep_override() and not override.is_hydra_override()]
        texts = {id(override): override.input_line or "" for override in parsed}
        choices = {id(override): _sweep_texts(override) for override in sweeps}
        for override in sweeps:
            if not choices[id(override)]:
                raise ConfigError(f"{override.input_line}: there is no value in it; give one or more")
        texts |= {key: values[0] for key, values in choices.items()}
        yield list(texts.values())
        for override in sweeps:
            if self._is_group(override):
                for value in choices[id(override)][1:]:
                    yield list((texts | {id(override): value}).values())

    def _check_job(self, overrides: Sequence[str]) -> DictConfig:
        parsed = [parse(text) for text in overrides]
        groups = [text for text, override in zip(overrides, parsed, strict=True) if self._composes(override)]
        base = compose(self.hydra, self.command, groups)
        how.check(self.command, base)
        if len(groups) == len(overrides):
            return base
        for override in parsed:
            if not self._composes(override):
                self._check_key(override, base)
        return compose(self.hydra, self.command, overrides)

    def _composes(self, override: Override) -> bool:
        return override.is_hydra_override() or self._is_group(override)

    def _check_key(self, override: Override, config: DictConfig) -> None:
        parts = override.key_or_group.split(".")
        if override.is_force_add() and parts[0] == "operators" and len(parts) > 2:
            self._check_operator(parts, config)
        elif not override.is_add() and not override.is_force_add():
            names = {*self.catalogue.groups, *(str(key) for key in config if key != "hydra")}
            check_path(config, parts, top=names)

    def _check_operator(self, parts: Sequence[str], config: DictConfig) -> None:
        """operators.<name>.<parameter>: known by its yaml, whether or not the run's `ops` holds it."""
        _, name, parameter, *_ = parts
        nodes = OmegaConf.to_container(config.get("operators") or OmegaConf.create({}), resolve=False)
        assert isinstance(nodes, dict)
        if name in self.catalogue.options("ops"):
            defined = self.catalogue.node("ops", name).get("operators") or {}
            node = {**defined.get(name, {}), **nodes.get(name, {})}
        elif name in nodes:
            node = nodes[name]
        else:
            raise unknown("operator", name, self.catalogue.options("ops"))
        if parameter not in node:
            raise misspelt(f"operators.{name}", parameter, node)


def check_path(config: DictConfig, parts: Sequence[str], *, top: Iterable[str]) -> None:
    """Raises ConfigError where the dotted path `parts` leaves the config."""
    node: Any = config
    for depth, part in enumerate(parts):
        here = ".".join(parts[:depth])
        if isinstance(node, ListConfig):
            if not part.isdigit() or int(part) >= len(node):
                raise ConfigError(f"{here} is a list of {len(node)}: {here}.{part} is not in it; write {here}=[...]")
            node = node[int(part)]
        elif isinstance(node, DictConfig) and not node._is_none():
            if parts[0] == "baseline" and "baseline" not in config:
                raise ConfigError(f"{'.'.join(parts)}: this run has no baseline; choose one, such as baseline=conv")
            if part not in node:
                raise misspelt(here, part, [str(key) for key in node]) if here else unknown("group or key", part, top)
            node = node._get_node(part)
            if isinstance(node, DictConfig | ListConfig) and node._is_interpolation():
                return
        else:
            raise ConfigError(f"{here} is a single value without parts: there is no {here}.{part}")


def misspelt(parent: str, name: str, keys: Iterable[str]) -> ConfigError:
    """The error for an unknown key, its matches given in full, so that they can be typed."""
    known = sorted(key for key in keys if not key.startswith("_"))
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    hint = f" Did you mean {' or '.join(f'{parent}.{key}' for key in close)}?" if close else ""
    return ConfigError(f"unknown key '{parent}.{name}'.{hint} Keys of {parent}: {', '.join(known) or 'none'}.")


def refuse_idle_operators(config: DictConfig, overrides: Sequence[str]) -> None:
    """Raises ConfigError where operators are given and the model's neurons have none."""
    idle = idle_overrides(config, overrides)
    if idle:
        raise ConfigError(
            f"{', '.join(idle)} would change nothing: the neurons of {model_name(config)} have no operators. "
            "Leave it out, or choose model=onn."
        )


def idle_overrides(config: DictConfig, overrides: Sequence[str]) -> list[str]:
    """The overrides that choose operators or set their parameters, where the model has none."""
    if has_operators(config):
        return []
    keys = {text: text.lstrip("+~").partition("=")[0] for text in overrides}
    return [text for text, key in keys.items() if key.split(".")[0] in ("ops", "operators")]


def unused_parameters(config: DictConfig, overrides: Sequence[str]) -> list[str]:
    """The overrides `operators.<name>...` of operators that neither `ops` nor `model.layers` holds."""
    rows: list[Any] = []
    for kind in NEURONS:
        layers: Any = OmegaConf.select(config, f"{kind}.layers")
        rows += OmegaConf.to_container(layers, resolve=True) if OmegaConf.is_list(layers) else []  # type: ignore[arg-type]
    named = itertools.chain.from_iterable(row for row in rows if isinstance(row, list))
    used = {*(str(name) for name in config.get("ops") or {}), *(str(name) for name in named)}
    keys = {text: text.lstrip("+~").partition("=")[0].split(".") for text in overrides}
    return [text for text, key in keys.items() if key[0] == "operators" and len(key) > 2 and key[1] not in used]


def useful(config: DictConfig, overrides: Sequence[str]) -> list[str]:
    """The overrides that change something in this config: what its model and its layers do not use is left out."""
    unused = {*idle_overrides(config, overrides), *unused_parameters(config, overrides)}
    return [text for text in overrides if text not in unused]


def has_operators(config: DictConfig) -> bool:
    """Whether the factory of the model or of the baseline takes operators; one whose source is not found does."""
    targets = [OmegaConf.select(config, f"{kind}._target_") for kind in NEURONS]
    accepted = [declared.parameters(str(target)) for target in targets if target is not None]
    return not accepted or any(names is None or "operators" in names for names in accepted)


def model_name(config: DictConfig) -> str:
    choices: Mapping[str, Any] = OmegaConf.select(config, "hydra.runtime.choices") or {}
    return f"model={choices.get('model', '?')}"


def _values(override: Override) -> Iterator[Any]:
    if override.is_discrete_sweep():
        yield from (value.text if hasattr(value, "text") else value for value in override.sweep_iterator())
    elif not override.is_sweep_override():
        yield override.value()


def _sweep_texts(override: Override) -> list[str]:
    key = override.get_key_element()
    if override.is_discrete_sweep():
        return [f"{key}={value}" for value in override.sweep_string_iterator()]
    interval: Any = override.value()
    return [f"{key}={interval.start}"]
