"""The operators of a run: of `ops` and `model.layers`, from the config and the options' files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from onn_runner.construct import constructor, make, signature_of
from onn_runner.errors import ConfigError, unknown


def build_operators(
    config: DictConfig, *, folders: Sequence[Path], overrides: Sequence[str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """(the run's operator set in written order, every operator that some layer may use), name -> Nodal."""
    if not uses_operators(config):
        return {}, {}
    from onn_runner.ops import as_nodal

    names = [str(name) for name in config.get("ops") or {}]
    if not names:
        raise ConfigError(
            "ops is empty: name at least one operator, for example ops=sine,exp (see 'onn list operators')"
        )
    used = list(dict.fromkeys([*names, *layer_names(config.model), *layer_names(config.get("baseline") or {})]))
    catalogue = {}
    for name in used:
        node = operator_node(config, name, folders)
        if "_target_" not in node:
            raise ConfigError(f"operators.{name} has no _target_: give the class or function that computes psi(w, x)")
        try:
            catalogue[name] = as_nodal(nodal_of(node, f"operators.{name}"))
        except TypeError as error:
            raise ConfigError(f"operators.{name}: {error}") from error
    refuse_idle_parameters(overrides, used)
    return {name: catalogue[name] for name in names}, catalogue


def uses_operators(config: DictConfig, *kinds: str) -> bool:
    """Whether the neurons of the model, or of the baseline, have operators at all (onn), so that `ops` means something.

    `kinds`: "model" to ask for the model only.
    """
    chosen = [kind for kind in kinds or ("model", "baseline") if kind in config]
    return any("operators" in signature_of(constructor(config[kind], kind)) for kind in chosen)


def nodal_of(node: DictConfig, key: str) -> Any:
    """The object of a class's node; for a plain function psi(w, x), the function with its parameters bound."""
    build = constructor(node, key)
    if "w" in signature_of(build) and "x" in signature_of(build):
        return build
    return make(node, key)


def layer_names(node: Mapping[Any, Any] | DictConfig) -> list[str]:
    """The operator names in model.layers, whatever else is wrong with it (the model says so)."""
    layers = node.get("layers")
    rows: Any = OmegaConf.to_container(layers, resolve=True) if OmegaConf.is_list(layers) else []
    return [name for row in rows if isinstance(row, list) for name in row if isinstance(name, str)]


def operator_node(config: DictConfig, name: str, folders: Sequence[Path]) -> DictConfig:
    """operators.<name>, composed from conf/ops/<name>.yaml and the preset where `ops` does not hold it."""
    if name in (config.get("ops") or {}):
        node = config.operators[name]
        if not isinstance(node, DictConfig):
            raise ConfigError(
                f"operators.{name} (={node}) must hold the operator's parameters: set operators.{name}.<key>"
            )
        return node
    for folder in folders:
        path = folder / "ops" / f"{name}.yaml"
        if path.is_file():
            base = OmegaConf.load(path)
            merged = OmegaConf.merge(base.operators[name], config.operators.get(name, {}))
            assert isinstance(merged, DictConfig)
            return merged
    options = {path.stem for folder in folders for path in (folder / "ops").glob("*.yaml")}
    raise unknown("operator", name, options, remedy="(in model.layers)")


def refuse_idle_parameters(overrides: Sequence[str], used: Sequence[str]) -> None:
    """A parameter set for an operator that no layer uses is a mistake, not a detail."""
    for override in overrides:
        key = override.lstrip("+~").partition("=")[0]
        parts = key.split(".")
        if parts[0] == "operators" and len(parts) > 2 and parts[1] not in used:
            raise ConfigError(f"{override.lstrip('+')} has no effect: no layer uses {parts[1]}, only {', '.join(used)}")
