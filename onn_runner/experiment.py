"""From one resolved config to a cross-validated result: build the parts, train the folds, leave the run folder."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from hydra.errors import InstantiationException
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from onn_runner.errors import ConfigError, OnnRunnerError, out_of_memory, unknown

UNSTORED = ("resume", "dry_run")
"""Top-level keys that say how to run, not what: not part of the stored config."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """How a run was asked for; everything that the config itself does not say."""

    command: tuple[str, ...]
    """The command as typed, for the record: ("onn-run", "model=onn", ...)."""
    overrides: tuple[str, ...] = ()
    """Overrides in Hydra's grammar, without resume=: what a resumed run is composed from."""
    flags: tuple[str, ...] = ()
    """Flags that composing again needs (--config-dir ...)."""
    choices: Mapping[str, Any] = field(default_factory=dict)
    """Group -> chosen option (hydra.runtime.choices): {"model": "onn", "data": "denoise", ...}."""
    config_dirs: tuple[Path, ...] = ()
    """Folders that hold config groups, the product's own first, then --config-dir."""
    folder: Path | None = None
    """The run's folder where the caller fixes it (sweep job, hydra.run.dir); None: outputs/<name>/<time-stamp>."""
    resume: Path | None = None
    """The earlier run's folder to go on with."""


@dataclass(frozen=True)
class Outcome:
    """What a run came to: the process's exit code and, for sweepers, the monitored metric's mean over folds."""

    exit_code: int
    score: float | None
    folder: Path | None


def run(config: DictConfig, *, request: Request) -> Outcome:
    """Carry out one run, resumed run or dry run. Raises OnnRunnerError."""
    from onn_runner import crossvalidation, overview
    from onn_runner.resumption import refuse_changes

    plain = plain_config(config)
    experiment = build(config, plain, request)
    if plain.get("dry_run"):
        overview.describe_only(experiment)
        return Outcome(0, None, None)
    changed = partial(refuse_changes, new=experiment.config, folder=request.resume)
    return Outcome(
        *crossvalidation.carry_out(
            experiment,
            fixed_folder=request.folder,
            resume=request.resume,
            check_resumable=changed,
            origin={"command": request.command, "overrides": request.overrides, "flags": request.flags},
        )
    )


def plain_config(config: DictConfig) -> dict[str, Any]:
    """The resolved config as plain containers. Raises ConfigError naming a missing value or a broken reference."""
    try:
        plain = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as error:
        raise ConfigError(f"config: {str(error).splitlines()[0]} (key {error.full_key})") from error
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items()}


def build(config: DictConfig, plain: Mapping[str, Any], request: Request) -> Any:
    """The Experiment of a config. Every wrong value is found here, before anything is written."""
    from onn_runner.crossvalidation import Experiment

    seed = plain.get("seed")
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise ConfigError(f"seed (={seed!r}) must be a whole number from 0 on")
    if not isinstance(plain.get("dry_run"), bool):
        raise ConfigError(f"dry_run (={plain.get('dry_run')!r}) must be true or false")
    settings = make(config.trainer, "trainer")
    source = make(config.data, "data")
    partition = make(config.partition, "partition")
    operators, catalogue = build_operators(config, request)
    neurons = {
        "operators": operators,
        "catalogue": catalogue,
        "compute": plain["compute"]["name"],
        "initialisation": plain.get("initialisation", "calibrated"),
    }
    network = partial(
        build_network,
        config.network,
        in_channels=source.shape.input[0],
        out_channels=source.shape.target[0],
        input_size=tuple(source.shape.input[1:]),
        output_size=tuple(source.shape.target[1:]),
        data_range=tuple(source.data_range),
    )
    metrics = partial(build_metrics, config, span=source.data_range[1] - source.data_range[0])
    metrics()
    scheduler = config.get("scheduler")
    return Experiment(
        name=checked_name(plain.get("name"))
        or default_name(request.choices, list(plain.get("ops") or {}), uses_operators(config, "model")),
        config=stored_config(plain, with_operators=uses_operators(config)),
        seed=seed,
        source=source,
        partition=partition,
        task=make(config.task, "task", data_range=tuple(source.data_range)),
        build_network=partial(network, factory=make(config.model, "model", **neurons)),
        twin=build_twin(config, request, network, neurons),
        build_optimizer=build_optimizer(config.optimizer),
        schedule=None if scheduler is None else build_schedule(scheduler),
        build_metrics=metrics,
        settings=settings,
    )


def stored_config(plain: Mapping[str, Any], *, with_operators: bool) -> dict[str, Any]:
    """What a run records: what was computed, not how it was asked for; "-" where neurons have no operators."""
    kept = {key: value for key, value in plain.items() if key not in UNSTORED}
    if not with_operators:
        kept = {key: value for key, value in kept.items() if key not in ("operators", "initialisation")} | {"ops": "-"}
    return kept


def build_twin(config: DictConfig, request: Request, network: Callable[..., Any], neurons: Mapping[str, Any]) -> Any:
    """The same topology of the neurons that baseline=<model> chooses; None without a baseline.

    Raises ConfigError naming baseline.<key>, and where the twin would be the model itself.
    """
    from onn_runner.crossvalidation import Twin

    if "baseline" not in config:
        return None
    name = str(request.choices.get("baseline", "baseline"))
    if config.baseline == config.model:
        raise ConfigError(
            f"baseline={name} is the model itself, with the same settings: there is nothing to compare; choose another "
            "model or baseline, or set one of baseline.<key> apart"
        )
    factory = naming_baseline(partial(make, config.baseline, "baseline", **neurons))
    return Twin(name, partial(naming_baseline, partial(network, factory=factory)))


def naming_baseline(build: Callable[[], Any]) -> Any:
    """What `build` makes; its errors name baseline.<key> where those of the model name model.<key>."""
    try:
        return build()
    except ConfigError as error:
        raise ConfigError(re.sub(r"\bmodel(?=[.=])", "baseline", str(error))) from error


def build_network(node: DictConfig, **given: Any) -> Any:
    """A fresh network. Raises ConfigError where the machine's memory does not hold it."""
    try:
        return make(node, "network", **given)
    except (RuntimeError, MemoryError) as error:
        if isinstance(error, OnnRunnerError) or not out_of_memory(error):
            raise
        raise ConfigError(
            "network: too large for the memory here; lower network.channels or network.kernels"
        ) from error


def checked_name(name: Any) -> str | None:
    """`name`, a folder below outputs/. Raises ConfigError for what would lie elsewhere."""
    if name is None:
        return None
    text = str(name)
    if isinstance(name, bool | dict | list) or not text.strip() or Path(text).is_absolute() or ".." in Path(text).parts:
        raise ConfigError(f"name (={name!r}) must be a word for a folder below outputs/, without '..'; null makes one")
    return text


def default_name(choices: Mapping[str, Any], ops: Sequence[str], with_operators: bool) -> str:
    """`onn-sine+exp-denoise`; presets of `experiment` stand for the data that they choose."""
    words = [str(choices.get("model", "model"))]
    if with_operators:
        words.append("+".join(ops))
    presets = choices.get("experiment") or [choices.get("data", "data")]
    return "-".join([*words, *map(str, presets)])


def build_metrics(config: DictConfig, *, span: float = 1.0) -> dict[str, Any]:
    """Name -> ItemMetric, in written order; any torchmetrics metric of the user's is scored item by item.

    `span`: of the data's values, for metrics whose `data_range` is null.
    """
    from onn_runner.metric.adapt import adapt

    def node(given: Any) -> Any:
        unset = isinstance(given, DictConfig) and "data_range" in given and given.data_range is None
        return OmegaConf.merge(given, {"data_range": span}) if unset else given

    return {str(name): adapt(make(node(given), f"metrics.{name}")) for name, given in config.metrics.items()}


def uses_operators(config: DictConfig, *kinds: str) -> bool:
    """Whether the neurons of the model, or of the baseline, have operators at all (onn), so that `ops` means something.

    `kinds`: "model" to ask for the model only.
    """
    chosen = [kind for kind in kinds or ("model", "baseline") if kind in config]
    return any("operators" in signature_of(constructor(config[kind], kind)) for kind in chosen)


def build_operators(config: DictConfig, request: Request) -> tuple[dict[str, Any], dict[str, Any]]:
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
        node = operator_node(config, name, request.config_dirs)
        if "_target_" not in node:
            raise ConfigError(f"operators.{name} has no _target_: give the class or function that computes psi(w, x)")
        try:
            catalogue[name] = as_nodal(nodal_of(node, f"operators.{name}"))
        except TypeError as error:
            raise ConfigError(f"operators.{name}: {error}") from error
    refuse_idle_parameters(request.overrides, used)
    return {name: catalogue[name] for name in names}, catalogue


def nodal_of(node: DictConfig, key: str) -> Any:
    """The object of a class's node; for a plain function psi(w, x), the function with its parameters bound."""
    build = constructor(node, key)
    if "w" in signature_of(build) and "x" in signature_of(build):
        return build
    return make(node, key)


def layer_names(node: Mapping[Any, Any] | DictConfig) -> list[str]:
    """The operator names in model.layers, whatever else is wrong with it (the model says so)."""
    layers = node.get("layers")
    rows: Any = OmegaConf.to_container(layers) if OmegaConf.is_list(layers) else []
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


def constructor(node: DictConfig, key: str) -> Callable[..., Any]:
    """The target of a config node with its parameters bound. Raises ConfigError naming the key."""
    if not isinstance(node, DictConfig) or "_target_" not in node:
        raise ConfigError(f"{key} has no _target_: choose an option of the group ('onn list' shows them)")
    try:
        built = instantiate(node, _partial_=True, _convert_="all")
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


def signature_of(build: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    function = build.func if isinstance(build, partial) else build
    return inspect.signature(function).parameters


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
