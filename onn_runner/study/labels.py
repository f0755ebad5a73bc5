"""Short labels of what was run, made of the keys in which runs differ: "onn sine+exp", "quadratic t4, lr 0.001"."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from onn_runner.study.records import Run

Flat = Mapping[str, Any]
"""Dotted key -> value; lists are values."""
HOW = (
    # What a preset varies (search.width_0) is part of the keys that refer to it.
    *("seed", "name", "sweep", "search", "resume", "dry_run", "metrics", "partition.only", "data.path"),
    *(f"trainer.{key}" for key in ("tensorboard", "pictures", "preview_items", "preview_every", "workers")),
    *(f"trainer.{key}" for key in ("save_minutes", "checks", "statistics", "score_training", "train_metrics")),
    *("trainer.keep_best", "trainer.threads"),
)
"""Keys, or what their keys begin with, that do not say what a method is. Data have their fingerprint."""
OF_MODEL = ("model", "ops", "operators", "initialisation", "start_from", "start_near")
"""What a twin does not share with the model, when it has no operators."""
OPERATIONAL = "onn_runner.model.operational.Operational"
NAMES = {OPERATIONAL: "onn"}
"""Targets whose option is not called like its module or class."""
LONGEST = 40


def flat(config: Mapping[str, Any], *, without: Sequence[str] = ()) -> dict[str, Any]:
    """The config's values by dotted key, without those of HOW and `without`."""
    found = {key: value for key, value in _leaves(config, "") if not _below(key, (*HOW, *without))}
    if isinstance(config.get("ops"), Mapping):
        # An operator of ops has its parameters there as well.
        found = {key: value for key, value in found.items() if key.replace("operators.", "ops.", 1) not in found
                 or not key.startswith("operators.")}  # fmt: skip
        found["ops"] = "+".join(map(str, config["ops"]))
    if "start_from" in found:
        # A folder of each seed's own; what matters is whether there is one.
        found["start_from"] = None if found["start_from"] is None else "a run"
    return found


def _leaves(node: Any, prefix: str) -> Iterable[tuple[str, Any]]:
    if isinstance(node, Mapping):
        for key, value in node.items():
            yield from _leaves(value, f"{prefix}.{key}" if prefix else str(key))
    else:
        yield prefix, node


def _below(key: str, places: Iterable[str]) -> bool:
    return any(key == place or key.startswith(f"{place}.") for place in places)


def differing(configs: Sequence[Flat]) -> tuple[str, ...]:
    """Keys in which these differ, in written order; inside a group only among those of the same `_target_` there."""
    keys = dict.fromkeys(key for config in configs for key in config)
    return tuple(key for key in keys if _differs(key, configs))


def _differs(key: str, configs: Sequence[Flat]) -> bool:
    group = key.partition(".")[0]
    seen: dict[Any, Any] = {}
    for config in configs:
        if key in config:
            kind = None if key == f"{group}._target_" else repr(config.get(f"{group}._target_"))
            if repr(config[key]) != seen.setdefault(kind, repr(config[key])):
                return True
    return False


def usual(configs: Sequence[Flat], keys: Sequence[str]) -> dict[str, Any]:
    """Of `keys` outside the model those that have one value in more than half of the different configs, with it."""
    found = {}
    different = list({repr([config.get(key) for key in keys]): config for config in configs}.values())
    for key in keys:
        values = [config[key] for config in different if key in config]
        most, count = Counter(map(repr, values)).most_common(1)[0]
        if 2 * count > len(different) and not _below(key, OF_MODEL):
            found[key] = next(value for value in values if repr(value) == most)
    return found


def label(run: Run, config: Flat, keys: Sequence[str], *, common: Flat, model: str | None = None) -> str:
    """`quadratic t4, lr 0.001`: the model, or `model` as it is, then what of `keys` is not as `common` says."""
    words = [option(run, config, "model")] if model is None else [model]
    if model is None and config.get("ops") not in (None, "-") and _with_operators(run, config):
        words.append(shown(config["ops"]))
    bare = [key for key in keys if key.startswith("model.") and isinstance(config.get(key), str)]
    words += [shown(config[key]) for key in bare if key != "model._target_"]
    short = _short_names(keys)
    parts = [" ".join(words)]
    for key in keys:
        if key not in config or key in bare or key in ("ops", "model._target_"):
            continue
        if key in common and repr(common[key]) == repr(config[key]):
            continue
        if key.endswith("._target_") and key.count(".") == 1:
            parts.append(option(run, config, key.partition(".")[0]))
        else:
            parts.append(f"{short[key]} {shown(config[key])}")
    return ", ".join(parts)


def option(run: Run, config: Flat, group: str) -> str:
    """The option of a group as it was typed; else as its target is called."""
    typed = [text.partition("=")[2] for text in run.overrides if text.startswith(f"{group}=")]
    if typed and typed[-1].replace("_", "").replace("-", "").isalnum():
        return typed[-1]
    target = str(config.get(f"{group}._target_", group))
    module, _, name = target.rpartition(".")
    last = module.rpartition(".")[2]
    return NAMES.get(target, last if last.replace("_", "") == name.lower() else name)


def described(common: Flat) -> str:
    """`lr 0.01, sigma 25`"""
    short = _short_names(list(common))
    return ", ".join(f"{short[key]} {shown(value)}" for key, value in common.items())


def _with_operators(run: Run, config: Flat) -> bool:
    """Whether the model's neurons have the operators of ops; a stored twin may be the one that has them."""
    target = config.get("model._target_")
    twin = run.config.get("baseline")
    return target == OPERATIONAL or not isinstance(twin, Mapping) or twin.get("_target_") != OPERATIONAL


def twin_operators(run: Run) -> bool:
    twin = run.config.get("baseline")
    return isinstance(twin, Mapping) and twin.get("_target_") == OPERATIONAL


def _short_names(keys: Sequence[str]) -> dict[str, str]:
    """The last word of each key, with the one before where that is another key's too."""
    last = {key: key.rpartition(".")[2] for key in keys}
    count = Counter(last.values())
    return {key: word if count[word] == 1 else ".".join(key.split(".")[-2:]) for key, word in last.items()}


def shown(value: Any) -> str:
    """A value as it is typed: true, none, [6, 12], 0.001; long ones cut."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return _cut(f"[{', '.join(map(shown, value))}]")
    return _cut(" ".join(f"{value:g}".split()) if isinstance(value, float) else " ".join(str(value).split()))


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


def distinct(labels: Sequence[str], marks: Sequence[Sequence[str]]) -> list[str]:
    """Labels made different by the first of their marks that tells those of the same label apart, else by number."""
    found = list(labels)
    for text, count in Counter(labels).items():
        if count < 2:
            continue
        places = [position for position, one in enumerate(labels) if one == text]
        for kind in range(len(marks[places[0]])):
            candidates = [marks[position][kind] for position in places]
            if len(set(candidates)) == count:
                break
        else:
            candidates = [f"no. {number}" for number in range(1, count + 1)]
        for position, mark in zip(places, candidates, strict=True):
            found[position] = f"{text} ({mark})" if mark else text
    return found
