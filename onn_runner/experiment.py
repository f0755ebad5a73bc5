"""From one resolved config to a cross-validated result: build the parts, train the folds, leave the run folder."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from onn_runner import checks, targets
from onn_runner.code_version import code_version
from onn_runner.construct import build_metrics, build_network, build_optimizer, build_schedule, build_task, make
from onn_runner.errors import ConfigError
from onn_runner.operator_sets import build_operators, uses_operators
from onn_runner.plain import printable

NODES = ("network", "model", "data", "partition", "optimizer", "task", "trainer", "metrics", "compute")
"""Keys that hold keys, in every experiment."""
UNSTORED = ("resume", "dry_run", "sweep")
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
    after_fold: Callable[[int, int, float], None] | None = None
    """Told, while folds are left, how many are done, the last one's index and its monitored value; may raise Pruned."""
    initial: Any = None
    """(fold, the data's fingerprint) -> the network that training begins with, for start_from; see crossvalidation."""


@dataclass(frozen=True)
class Outcome:
    """What a run came to: the process's exit code and, for sweepers, the monitored metric's mean over folds."""

    exit_code: int
    score: float | None
    folder: Path | None
    objectives: Mapping[str, Any] = field(default_factory=dict)
    """score, macs, parameters, seconds: what a search can weigh; empty of a dry run."""


def run(config: DictConfig, *, request: Request) -> Outcome:
    """Carry out one run, resumed run or dry run. Raises OnnRunnerError."""
    from onn_runner import crossvalidation, overview
    from onn_runner.resumption import refuse_changes

    for key in drop_idle_keys(config, request):
        print(f"onn-run: the preset's {key} has no place in what was chosen instead; left out", file=sys.stderr)
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
            origin={
                "command": request.command,
                "overrides": request.overrides,
                "flags": request.flags,
                "code": code_version(experiment.config),
            },
            after_fold=request.after_fold,
        )
    )


def drop_idle_keys(config: DictConfig, request: Request) -> list[str]:
    """Remove, and name, what a preset of `experiment` set for an option that another one has replaced.

    `experiment=onn_denoise partition=hold_out`: the preset's partition.folds is k-fold's and means nothing any more.
    What was typed stays, to be refused where it is wrong.
    """
    typed = {override.lstrip("+~").partition("=")[0] for override in request.overrides}
    dropped = []
    for group in typed & set(request.choices) if request.choices.get("experiment") else ():
        node, option = config.get(group), request.choices[group]
        files = [folder / group / f"{option}.yaml" for folder in request.config_dirs]
        own = next((OmegaConf.load(file) for file in files if file.is_file()), None)
        if not isinstance(node, DictConfig) or not isinstance(own, DictConfig) or "_target_" not in own:
            continue
        idle = [str(key) for key in node if key not in own and f"{group}.{key!s}" not in typed]
        dropped += [f"{group}.{key}" for key in idle]
        # The same name, but a number for each layer in the one option and a single number in the other.
        other = [
            str(key) for key in own
            if key in node and f"{group}.{key!s}" not in typed
            and OmegaConf.is_list(node._get_node(key)) != OmegaConf.is_list(own._get_node(key))
        ]  # fmt: skip
        dropped += [f"{group}.{key}" for key in other]
        with open_dict(node):
            for key in idle:
                del node[key]
            for key in other:
                node[key] = own[key]
    return sorted(dropped)


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
    from onn_runner.crossvalidation import Experiment, Settings
    from onn_runner.network import match as network_match
    from onn_runner.trainer.monitor import check_names

    seed = plain.get("seed")
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise ConfigError(f"seed (={seed!r}) must be a whole number from 0 on")
    if not isinstance(plain.get("dry_run"), bool):
        raise ConfigError(f"dry_run (={plain.get('dry_run')!r}) must be true or false")
    check_nodes(plain)
    check_targets(plain)
    plain = with_monitor(plain)
    settings = make(config.trainer, "trainer", monitor=plain["trainer"].get("monitor", Settings.monitor))
    # What is wrong whatever the data is told before minutes go into reading it.
    check_names(settings, list(plain.get("metrics") or ()))
    if str(config.network.get("_target_")).startswith("onn_runner."):
        network_match.check(config.network.get("match"))
    partition = make(config.partition, "partition")
    if settings.limit_folds is not None and getattr(partition, "only", None) is not None:
        raise ConfigError("partition.only and trainer.limit_folds both choose folds: leave one of them out")
    optimizer = build_optimizer(config.optimizer)
    scheduler = config.get("scheduler")
    schedule = None if scheduler is None else build_schedule(scheduler)
    source = make(config.data, "data")
    classes = getattr(source, "classes", None)
    operators, catalogue = build_operators(config, folders=request.config_dirs, overrides=request.overrides)
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
    span = source.data_range[1] - source.data_range[0]
    metrics = partial(build_metrics, config, span=span, classes=None if classes is None else len(classes))
    metrics()
    return Experiment(
        name=checked_name(plain.get("name"))
        or default_name(request.choices, list(plain.get("ops") or {}), uses_operators(config, "model")),
        config=stored_config(plain, with_operators=uses_operators(config)),
        seed=seed,
        source=source,
        partition=partition,
        task=build_task(config.task, source),
        build_network=partial(network, factory=make(config.model, "model", **neurons)),
        twin=build_twin(config, request, network, neurons),
        build_optimizer=optimizer,
        schedule=schedule,
        build_metrics=metrics,
        settings=settings,
        initial=request.initial,
        near=start_near(plain),
    )


def check_nodes(plain: Mapping[str, Any]) -> None:
    """Raises ConfigError where a part of the experiment is missing, or is no mapping: in a config written by hand."""
    for key in NODES:
        if not isinstance(plain.get(key), Mapping):
            raise ConfigError(f"{key} (={str(plain.get(key))[:80]}) must be the keys of an option, and is not")
    if not isinstance(plain["compute"].get("name"), str):
        raise ConfigError("compute has no name: choose an option of the group ('onn list computations' shows them)")


def check_targets(plain: Mapping[str, Any]) -> None:
    """Raises ConfigError for a `_target_` that may not be called, before any other is."""
    nodes = {key: plain.get(key) for key in targets.KINDS if key not in ("metrics", "operators")}
    nodes |= {f"metrics.{name}": node for name, node in plain["metrics"].items()}
    ops = plain.get("ops")
    nodes |= {f"operators.{name}": node for name, node in ops.items()} if isinstance(ops, Mapping) else {}
    for key, node in nodes.items():
        targets.check(node, key)


def start_near(plain: Mapping[str, Any]) -> bool:
    """Raises ConfigError where it has nothing to act on."""
    near = checks.flag("start_near", plain.get("start_near", False))
    if near and plain.get("start_from") is None:
        raise ConfigError("start_near=true says how start_from=<run folder> begins: give that as well, or leave it out")
    return near


def with_monitor(plain: Mapping[str, Any]) -> Mapping[str, Any]:
    """trainer.monitor=null is the first of metric=[...] on the validation part."""
    trainer = plain["trainer"]
    if trainer.get("monitor", "") is not None:
        return plain
    first = next(iter(plain.get("metrics") or ()), "loss")
    return {**plain, "trainer": {**trainer, "monitor": f"val/{first}"}}


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


def checked_name(name: Any) -> str | None:
    """`name`, a folder below outputs/. Raises ConfigError for what would lie elsewhere."""
    if name is None:
        return None
    text = str(name)
    odd = isinstance(name, bool | dict | list) or not text.strip() or text != printable(text) or "\n" in text
    if odd or Path(text).is_absolute() or ".." in Path(text).parts:
        raise ConfigError(f"name (={name!r}) must be a word for a folder below outputs/, without '..'; null makes one")
    return text


def default_name(choices: Mapping[str, Any], ops: Sequence[str], with_operators: bool) -> str:
    """`onn-sine+exp-denoise`; presets of `experiment` stand for the data that they choose."""
    words = [str(choices.get("model", "model"))]
    if with_operators:
        words.append("+".join(ops))
    presets = choices.get("experiment") or [choices.get("data", "data")]
    return "-".join([*words, *map(str, presets)])
