"""What a run folder says that it was made of, as a command. Nothing in it chooses code, places, or how to run."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from onn_runner import targets
from onn_runner.cli import argv
from onn_runner.cli.interpolation import foreign
from onn_runner.errors import ConfigError
from onn_runner.plain import printable

CONFIGS = ("--config-dir=", "--config-path=", "--config-name=")
"""Flags that say where options are: data, which may be read again."""


def stored_command(
    record: Mapping[str, Any], path: Path, *, typed: Sequence[str] = (), configs: bool = True
) -> argv.Command:
    """The command of a run.json. `typed`: overrides that take the place of stored ones; `configs`: with its folders.

    Raises ConfigError for what is no run's, and where what only the command line may say was not typed again: modules
    of the user's own, Hydra's settings, references to the environment.
    """
    flags, overrides = _texts(record, "flags", path), _texts(record, "overrides", path)
    for text in flags:
        if not text.startswith((*CONFIGS, argv.MODULE)):
            raise ConfigError(f"{path}: run.json has the flag {printable(text)}, which no run has")
    _ask_for_modules([text.removeprefix(argv.MODULE) for text in flags if text.startswith(argv.MODULE)], path)
    again = {argv.key_of(argv.parse(text)) for text in typed}
    kept = [text for text in overrides if not _replaced(text, again, path)]
    return argv.read([*(text for text in flags if configs and text.startswith(CONFIGS)), *kept])


def _texts(record: Mapping[str, Any], key: str, path: Path) -> list[str]:
    found = record.get(key, [])
    if not isinstance(found, list) or not all(isinstance(text, str) for text in found):
        raise ConfigError(f"{path}: {key} in run.json must be a list of texts; the run cannot be opened")
    return found


def _ask_for_modules(modules: Sequence[str], path: Path) -> None:
    missing = [name for name in modules if name not in targets.allowed()]
    for name in missing:
        if targets.NAME.fullmatch(name) is None:
            raise ConfigError(f"{path}: run.json names a module {printable(name)!r}, which is no name")
    if missing:
        raise ConfigError(
            f"{path} was run with code of its own, which is only imported when you name it: if you trust it, add "
            f"{' '.join(f'--module {name}' for name in missing)}"
        )


def _replaced(text: str, again: set[str], path: Path) -> bool:
    """Whether a stored override is typed anew. Raises ConfigError for one that is not and may not be taken."""
    if text.startswith("-"):
        raise ConfigError(f"{path}: run.json has {printable(text)} among its overrides, which is a flag")
    override = argv.parse(text)
    key = argv.key_of(override)
    if key in again:
        return True
    if key.partition(".")[0] == "resume":
        raise ConfigError(f"{path}: run.json has resume= among its overrides, which no run has")
    if override.is_hydra_override() or foreign(text) is not None:
        what = "says how to run" if override.is_hydra_override() else "refers to more than the config"
        raise ConfigError(
            f"{path}: the stored {printable(text)} {what}, which only the command line may: "
            f"type it again if you mean it: {shlex.quote(printable(text))}"
        )
    return False
