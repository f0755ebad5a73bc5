"""The experiment of what could be typed for onn-run, or of a run folder, composed and built, but not run."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from omegaconf import DictConfig, OmegaConf

from onn_runner import targets
from onn_runner.checks import path_of
from onn_runner.cli import argv
from onn_runner.cli.check import Checker, catalogue_of, useful
from onn_runner.cli.compose import hydra_of
from onn_runner.cli.job import choices_of, config_dirs
from onn_runner.cli.stored import stored_command
from onn_runner.errors import ConfigError
from onn_runner.report.folder import RunFolder

if TYPE_CHECKING:
    from onn_runner.crossvalidation import Experiment


@dataclass(frozen=True)
class Composed:
    experiment: Experiment
    model: str
    """The option of the group."""
    words: tuple[str, ...]
    """Flags and overrides that compose it."""


def words_of(typed: Sequence[str], *, config_dir: str | None = None, modules: Sequence[str] = ()) -> tuple[str, ...]:
    """What to compose: the overrides as typed, or those that a run folder was made with, and further ones behind it.

    `modules`: the user's own that may be imported, from now on.

    Raises ConfigError where a word is neither an override nor a run folder.
    """
    flags = [f"{argv.MODULE}{name}" for name in modules]
    flags += [] if config_dir is None else [f"--config-dir={config_dir}"]
    targets.allow(argv.read(flags).modules)
    if not typed or "=" in typed[0] or typed[0].startswith("~"):
        return (*flags, *typed)
    folder = path_of(typed[0])
    if not (folder / "run.json").is_file():
        raise ConfigError(f"{typed[0]} is neither a run folder (with a run.json) nor key=value, such as model=onn")
    further = argv.read([*flags, *typed[1:]])
    stored = stored_command(
        RunFolder(folder).read_record(), folder, typed=further.overrides, configs=config_dir is None
    )
    return (*stored.composing_flags, *flags, *argv.merge(stored.overrides, further.overrides))


def composed(words: Sequence[str]) -> Composed:
    """Raises ConfigError as a run would; nothing is trained or written."""
    command = argv.read(words, lambda text: print(f"onn: {text}", file=sys.stderr))
    if command.multirun or command.resume is not None:
        raise ConfigError("give what one run would be made of: no sweep and no resume=")
    from onn_runner import experiment

    with hydra_of(command) as hydra:
        whole = Checker(hydra, command, catalogue_of(command)).run()
        request = experiment.Request(
            command=(),
            overrides=tuple(useful(whole, command.overrides)),
            flags=command.composing_flags,
            choices=choices_of(whole.hydra),
            config_dirs=config_dirs(whole.hydra),
            folder=Path(),
        )
        config = OmegaConf.masked_copy(whole, [str(key) for key in whole if key != "hydra"])
        assert isinstance(config, DictConfig)
        experiment.drop_idle_keys(config, request)
        built: Experiment = experiment.build(config, experiment.plain_config(config), request)
    return Composed(built, str(request.choices.get("model", "model")), tuple(words))
