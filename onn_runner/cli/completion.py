"""Tab completion: Hydra's, which also completes flags and the names in ops=sine,e<TAB>."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

from hydra._internal.hydra import Hydra

from onn_runner.cli import argv
from onn_runner.cli.argv import Command
from onn_runner.cli.catalogue import Catalogue, user_folder
from onn_runner.cli.compose import translated
from onn_runner.cli.help import config_dir_in
from onn_runner.errors import ConfigError

FLAGS = (
    "--cfg",
    "--config-dir",
    "--help",
    "--hydra-help",
    "--info",
    "--module",
    "--multirun",
    "--package",
    "--resolve",
    "--version",
)


def complete(hydra: Hydra, command: Command) -> None:
    """Carry out `-sc install=bash`, `uninstall=`, or the `query=` that the shell makes at each TAB."""
    if not any(text.startswith("query=") for text in command.overrides):
        with translated():
            hydra.shell_completion(config_name=command.name, overrides=list(command.overrides))
        return
    words, current = split_line(os.environ.get("COMP_LINE", ""))
    candidates = own_candidates(words, current, command)
    if candidates is not None:
        print("\n".join(candidates) if "query=fish" in command.overrides else " ".join(candidates))
        return
    program = "onn-run"
    os.environ["COMP_LINE"] = " ".join([program, *composable(words), current])
    # A TAB on a line that does not compose yet completes nothing, instead of printing an error into the prompt.
    with contextlib.suppress(ConfigError), translated():
        hydra.shell_completion(config_name=command.name, overrides=list(command.overrides))


def split_line(line: str) -> tuple[list[str], str]:
    """(finished words after the program's name, the word at the cursor)."""
    point = os.environ.get("COMP_POINT", "")
    if point.isdigit():
        line = line[: int(point)]
    words = line.split()[1:]
    if not words or line[-1:].isspace():
        return words, ""
    return words[:-1], words[-1]


def own_candidates(words: list[str], current: str, command: Command) -> list[str] | None:
    """Flags, folders of --config-dir excepted, and list-valued groups; None for what Hydra completes."""
    if current.startswith("-"):
        return [flag for flag in FLAGS if flag.startswith(current)]
    key, equals, value = current.partition("=")
    if not equals or key not in argv.LIST_GROUPS:
        return None
    head, _, last = value.rpartition(",") if "," in value else ("", "", value)
    opened = re.match(r"\[?", head or last)
    before = f"{key}={head}," if head else f"{key}={opened[0] if opened else ''}"
    given = set(re.split(r"[\[\],]", head))
    folder = config_dir_in(words)
    extra: list[Path] = []
    with contextlib.suppress(ConfigError):
        extra = [user_folder(folder)] if folder is not None else []
    names = Catalogue((*command.folders, *extra)).options(key)
    return [f"{before}{name}" for name in names if name.startswith(last.lstrip("[")) and name not in given]


def composable(words: list[str]) -> list[str]:
    """The finished overrides in the form that Hydra composes; what cannot be read is left out."""
    kept: list[str] = []
    for word in words:
        with contextlib.suppress(ConfigError):
            kept.extend(argv.read([word]).overrides)
    return kept
