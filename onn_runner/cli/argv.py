"""What was typed, read and given its meaning before Hydra sees it.

a run     ops=sine,exp       -> ops=[sine,exp]      one run, one operator set; a note says so
with -m   ops=sine,exp       -> untouched           Hydra's sweep: two runs
          ops=[sine,exp],[c] -> untouched           two sets
operators.exp.omega=3        -> ++operators...      so that an operator that only model.layers uses can be set
resume=a b(=1)               -> resume='a b(=1)'    paths, which Hydra's grammar cannot read
ops=sine -m seed=1,2         -> flags first         Hydra 1.3 refuses overrides on both sides of a flag
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NoReturn

from hydra._internal.utils import get_args_parser
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, QuotedString, ValueType
from hydra.errors import HydraException

from onn_runner import targets
from onn_runner.checks import path_of
from onn_runner.cli.catalogue import CONFIG_NAME, config_folder, user_folder
from onn_runner.errors import ConfigError, unknown

LIST_GROUPS = ("ops", "metric", "experiment")
"""Groups of which a run has a list; that of experiments may be empty."""
OPTIONAL_GROUPS = ("scheduler", "operators", "baseline")
"""Groups that a run can do without: scheduler=null, which Hydra only knows as ~scheduler."""
PATH_KEYS = ("resume", "start_from", *(f"data.{key}" for key in ("path", "target_path", "inputs", "targets", "groups")))
"""Keys whose values are paths, with or without quotes."""
MODULE = "--module="
SAFE_PATH = r"[A-Za-z0-9_./:-]+"
"""What Hydra's grammar reads as one word."""
INFO = ("all", "config", "defaults", "defaults-tree", "plugins", "searchpath")

Note = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Command:
    """A command line that has its meaning."""

    typed: tuple[str, ...]
    """As typed, without the program's name."""
    flags: argparse.Namespace
    overrides: tuple[str, ...] = ()
    """In Hydra's grammar, without resume=."""
    folders: tuple[Path, ...] = ()
    """Config folders: the product's, then the user's."""
    name: str = CONFIG_NAME
    resume: Path | None = None
    multirun: bool = False
    modules: tuple[str, ...] = ()
    """The user's own modules that may be imported: named with --module, and nowhere else."""
    composing_flags: tuple[str, ...] = ()
    """The flags without which the overrides would compose something else, absolute."""


def read(typed: Sequence[str], note: Note = lambda text: None) -> Command:
    """The command that `typed` means; `note` is told what was re-interpreted. Raises ConfigError."""
    flags = _flags_parser().parse_intermixed_args(_with_explicit_info(typed))
    command = _with_folders(Command(typed=tuple(typed), flags=flags))
    if flags.shell_completion:
        return replace(command, overrides=tuple(flags.overrides))
    overrides = [_quote_path(text, sweeping=bool(flags.multirun)) for text in flags.overrides]
    parsed = [parse(text) for text in overrides]
    command = replace(command, multirun=bool(flags.multirun) or any(map(_asks_for_multirun, parsed)))
    _refuse_combinations(command)
    meant = [normalise(override, command.multirun, note) for override in parsed if override.key_or_group != "resume"]
    return replace(command, overrides=tuple(meant), resume=_resumed(parsed, command))


def _refuse_combinations(command: Command) -> None:
    flags = command.flags
    for name, given in (("--cfg", flags.cfg), ("--info", flags.info)):
        if given is not None and command.multirun:
            raise ConfigError(f"{name} shows the config of one run: leave out -m and give single values")
    if flags.resolve and flags.cfg is None:
        raise ConfigError("--resolve goes with --cfg: onn-run --cfg job --resolve")
    if flags.experimental_rerun is not None:
        raise ConfigError("--experimental-rerun is not offered: resume=<run folder> goes on with a run")


def _with_folders(command: Command) -> Command:
    flags = command.flags
    folders = [config_folder()]
    composing = []
    if flags.config_path is not None:
        folders = [user_folder(flags.config_path, flag="--config-path")]
        composing.append(f"--config-path={folders[0]}")
    if flags.config_dir is not None:
        folders.append(user_folder(flags.config_dir))
        composing.append(f"--config-dir={folders[-1]}")
    if flags.config_name is not None:
        composing.append(f"--config-name={flags.config_name}")
    modules = targets.names(flags.module)
    composing += [f"{MODULE}{name}" for name in modules]
    name = flags.config_name or CONFIG_NAME
    return replace(command, folders=tuple(folders), name=name, modules=modules, composing_flags=tuple(composing))


def parse(text: str) -> Override:
    """One override by Hydra's own grammar. Raises ConfigError saying what is wrong with it."""
    key, equals, value = text.partition("=")
    if not equals and not key.startswith("~"):
        raise ConfigError(f"'{text}' is not key=value, such as seed=1 (flags begin with -, see onn-run --help)")
    if equals and not value:
        raise ConfigError(f"{text} has no value: write {key}=VALUE, or {key}=null for none")
    try:
        return OverridesParser.create().parse_override(text)
    except HydraException as error:
        raise ConfigError(
            f"cannot read '{text}': {_reason(str(error))}. Check its brackets and commas; a value with special "
            f"characters goes into two pairs of quotes: \"{key}='...'\""
        ) from error


def key_of(override: Override) -> str:
    """The key without + and ~, by which two overrides are the same."""
    return override.get_key_element().lstrip("+~")


def normalise(override: Override, multirun: bool, note: Note) -> str:
    """The text of one override with this product's meaning. Raises ConfigError for what a plain run cannot mean."""
    text = override.input_line or ""
    if override.key_or_group in LIST_GROUPS:
        text = _normalise_list(override, multirun, note)
    elif override.is_sweep_override() and not multirun and not override.is_hydra_override():
        raise _several(override)
    elif override.key_or_group in OPTIONAL_GROUPS and text.partition("=")[2] == "null":
        return f"~{override.key_or_group}"
    parts = override.key_or_group.split(".")
    if parts[0] in ("operators", "ops") and len(parts) > 2 and not override.is_delete():
        key = ".".join(["operators", *parts[1:]])
        return f"++{key}={text.partition('=')[2]}"
    return text


def quote(value: str) -> str:
    """`value` as a quoted string of Hydra's grammar that means exactly `value`, interpolation signs included."""
    escaped = re.sub(r"(\\*)'", lambda found: found[1] * 2 + r"\'", value)
    trailing = len(escaped) - len(escaped.rstrip("\\"))
    return f"'{escaped}{trailing * chr(92)}'".replace("${", r"\${")


def merge(stored: Sequence[str], new: Sequence[str]) -> tuple[str, ...]:
    """`stored` followed by `new`, without the stored ones that a new one replaces."""
    replaced = {key_of(parse(text)) for text in new}
    return (*(text for text in stored if key_of(parse(text)) not in replaced), *new)


def _normalise_list(override: Override, multirun: bool, note: Note) -> str:
    key, text = override.get_key_element(), override.input_line or ""
    if override.key_or_group == "experiment" and not override.is_sweep_override() and _holds_nothing(override):
        return "experiment=[]"
    if override.is_delete():
        raise _empty(override)
    if not multirun and override.value_type is ValueType.SIMPLE_CHOICE_SWEEP:
        values = list(override.sweep_iterator())
        if not all(isinstance(value, str | int | float | QuotedString) for value in values):
            raise _several(override)
        names = _distinct(override, values, note)
        note(f"{text}: one run with {key}=[{','.join(names)}]; add -m for one run each")
        return f"{key}=[{','.join(names)}]"
    if override.is_sweep_override():
        if not multirun:
            raise _several(override)
        if override.value_type is ValueType.SIMPLE_CHOICE_SWEEP:
            return f"{key}={','.join(_set_text(override, value, note) for value in override.sweep_iterator())}"
        return text
    value = override.value()
    if _holds_nothing(override):
        raise _empty(override)
    return f"{key}=[{','.join(_distinct(override, value, note))}]" if isinstance(value, list) else text


def _holds_nothing(override: Override) -> bool:
    return override.is_delete() or override.value() in (None, [], "", "null")


def _set_text(override: Override, value: object, note: Note) -> str:
    if value is None or value == []:
        raise _empty(override)
    return f"[{','.join(_distinct(override, value, note))}]" if isinstance(value, list) else _name(value)


def _distinct(override: Override, values: Sequence[object], note: Note) -> list[str]:
    names = [_name(value) for value in values]
    distinct = list(dict.fromkeys(names))
    if len(distinct) < len(names):
        repeated = sorted({name for name in names if names.count(name) > 1})
        note(f"{override.input_line}: {', '.join(repeated)} given more than once; counted once")
    return distinct


def _name(value: object) -> str:
    return value.text if isinstance(value, QuotedString) else str(value)


def _empty(override: Override) -> ConfigError:
    group = override.key_or_group
    examples = {"ops": ("operator", "ops=sine,exp"), "metric": ("metric", "metric=psnr,ssim")}
    what, example = examples.get(group, ("preset", "experiment=debug"))
    return ConfigError(f"{override.input_line}: name at least one {what}, such as {example} (see onn list {group})")


def _several(override: Override) -> ConfigError:
    text, key = override.input_line or "", override.get_key_element()
    as_list = ""
    if override.value_type is ValueType.SIMPLE_CHOICE_SWEEP and key not in LIST_GROUPS:
        as_list = f", or write {key}=[{text.partition('=')[2]}] for one list"
    return ConfigError(f"{text} asks for several runs: add -m to sweep over them{as_list}")


def _reason(message: str) -> str:
    """Hydra's message without the names of its grammar's tokens."""
    first = message.splitlines()[0].rstrip(".")
    first = re.sub(r" expecting \{.*\}$", "", first)
    return first.replace("no viable alternative at input", "it ends or breaks at").replace(
        "extraneous input", "unexpected"
    )


def _quote_path(text: str, *, sweeping: bool) -> str:
    key, equals, value = text.partition("=")
    if key.lstrip("+") not in PATH_KEYS or not equals:
        return text
    if value in ("", "null") or value[0] in "'\"" or "${" in value or re.fullmatch(SAFE_PATH, value):
        return text
    if sweeping and re.fullmatch(f"{SAFE_PATH}(,{SAFE_PATH})+", value) and not Path(value).exists():
        return text
    return f"{key}={quote(str(path_of(value)) if value.startswith('~') else value)}"


def _resumed(parsed: Sequence[Override], command: Command) -> Path | None:
    values = [override.value() for override in parsed if override.key_or_group == "resume"]
    if not values or values[-1] is None:
        return None
    if command.multirun:
        raise ConfigError("resume= goes on with one run: leave out -m (a job of a sweep is resumed by its own folder)")
    return path_of(str(values[-1]).replace(r"\${", "${")).resolve()


def _asks_for_multirun(override: Override) -> bool:
    return override.key_or_group == "hydra.mode" and str(override.value()).upper().endswith("MULTIRUN")


def _with_explicit_info(typed: Sequence[str]) -> list[str]:
    """`--info ops=sine` as `--info=all ops=sine`: argparse would take the override for the flag's value."""
    words = list(typed)
    for index, word in enumerate(words):
        if word in ("--info", "-i") and (index + 1 == len(words) or words[index + 1] not in INFO):
            words[index] = "--info=all"
    return words


def _flags_parser() -> argparse.ArgumentParser:
    parser = get_args_parser()
    parser.add_argument("--module", action="append", metavar="NAME[,NAME]")

    def refuse(message: str) -> NoReturn:
        flag = re.match(r"unrecognized arguments: ([^ =]+)", message)
        if flag is None:
            raise ConfigError(f"{message} (see onn-run --help)")
        options = [name for name in parser._option_string_actions if name.startswith("--")]
        raise unknown("flag", flag[1], options)

    parser.error = refuse  # type: ignore[method-assign]
    return parser
