"""`onn-run`: what was typed becomes one run, a sweep, or an answer about the config."""

from __future__ import annotations

import io
import os
import re
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from onn_runner.errors import Interrupted, OnnRunnerError
from onn_runner.plain import printable

if TYPE_CHECKING:
    from hydra._internal.hydra import Hydra
    from omegaconf import DictConfig

    from onn_runner.cli.argv import Command

HOW = ("hydra", "sweep")
"""First parts of overrides that say how and where, not what: a resumed run has its own place."""
BROKEN_PIPE = 141
"""128 + SIGPIPE: the reader of our output went away, as in `onn-run --help | head -1`."""


def main(argv: Sequence[str] | None = None) -> int:
    """The exit code: 0 done, 1 a run failed, 2 refused, 130 interrupted."""
    typed = list(sys.argv[1:] if argv is None else argv)
    threading.excepthook = in_background
    # Closed by the caller (`>&-`): there is nobody to tell, which is no reason to fail.
    sys.stdout = sys.stdout or io.StringIO()
    sys.stderr = sys.stderr or io.StringIO()
    try:
        code = answer(typed)
        sys.stdout.flush()
    except OnnRunnerError as error:
        note(str(error))
        return error.exit_code
    except KeyboardInterrupt:
        note("interrupted")
        return Interrupted.exit_code
    except BrokenPipeError:
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return BROKEN_PIPE
    except OSError as error:
        note(f"{error.filename or 'output'}: {error.strerror or error}")
        return 1
    return code


def in_background(failed: threading.ExceptHookArgs) -> None:
    """A thread that writes events on a full disk gets one line; the run itself tells the rest."""
    if issubclass(failed.exc_type, OSError):
        note(f"a background writer stopped: {failed.exc_value}")
    else:
        threading.__excepthook__(failed)


def note(text: str) -> None:
    print(f"onn-run: {printable(text)}", file=sys.stderr)


def answer(typed: list[str]) -> int:
    """Help and version need no Hydra; everything else needs no torch until a run starts."""
    if "--version" in typed:
        from onn_runner import __version__

        print(f"onn-run {__version__}")
        return 0
    if "--help" in typed or "-h" in typed:
        from onn_runner.cli import help

        print(help.text(typed))
        return 0
    from onn_runner import targets
    from onn_runner.cli import argv, resume
    from onn_runner.cli.compose import hydra_of

    command = argv.read(typed, note)
    targets.allow(command.modules)
    command = resume.with_stored(command)
    with hydra_of(command) as hydra:
        return execute(hydra, command)


def execute(hydra: Hydra, command: Command) -> int:
    """Carry out a readable command. Raises ConfigError for what the config folders do not hold."""
    flags = command.flags
    if flags.shell_completion:
        from onn_runner.cli import completion

        completion.complete(hydra, command)
        return 0
    if flags.hydra_help:
        from hydra._internal.utils import get_args_parser

        hydra.hydra_help(config_name=command.name, args_parser=get_args_parser(), args=flags)
        return 0
    from onn_runner.cli.check import Checker, catalogue_of

    config = Checker(hydra, command, catalogue_of(command)).run()
    if flags.cfg is not None or flags.info is not None:
        show(hydra, command, config)
        return 0
    if command.multirun:
        from onn_runner.cli.sweep import sweep

        return sweep(hydra, command)
    return run_once(hydra, command, config)


def show(hydra: Hydra, command: Command, config: DictConfig) -> None:
    """--cfg and --info: Hydra's own views of a checked config."""
    from omegaconf import OmegaConf

    from onn_runner.cli.compose import translated
    from onn_runner.errors import ConfigError

    flags, overrides = command.flags, list(command.overrides)
    if flags.package not in (None, "_global_") and OmegaConf.select(config, flags.package) is None:
        raise ConfigError(f"--package {flags.package}: the config has no such key; onn-run --cfg job shows all")
    with translated():
        if flags.info is not None:
            hydra.show_info(flags.info, config_name=command.name, overrides=overrides)
            return
        hydra.show_cfg(
            config_name=command.name,
            overrides=overrides,
            cfg_type=flags.cfg,
            package=flags.package,
            resolve=flags.resolve,
        )


def says_how(text: str) -> bool:
    """Whether an override is no part of what a run is; folders of options are."""
    key = text.lstrip("+~").partition("=")[0]
    return key != "hydra.searchpath" and re.split("[./]", key)[0] in HOW


def run_once(hydra: Hydra, command: Command, config: DictConfig) -> int:
    """One run through Hydra (callbacks, hydra.job.env_set), which makes no folder; `experiment` makes the run's own."""
    from onn_runner import experiment
    from onn_runner.cli.job import choices_of, config_dirs
    from onn_runner.cli.reopening import initial_of

    where = str(config.hydra.run.dir)
    request = experiment.Request(
        command=("onn-run", *command.typed),
        overrides=tuple(text for text in command.overrides if not says_how(text)),
        flags=command.composing_flags,
        choices=choices_of(config.hydra),
        config_dirs=config_dirs(config.hydra),
        folder=None if where == "." else Path(where).resolve(),
        resume=command.resume,
    )
    done: list[experiment.Outcome | OnnRunnerError] = []

    def task(job: DictConfig) -> float | None:
        try:
            outcome = experiment.run(job, request=replace(request, initial=initial_of(job)))
        except OnnRunnerError as error:
            done.append(error)
            return None
        done.append(outcome)
        return outcome.score

    overrides = [*command.overrides, "hydra.run.dir=.", "hydra.mode=RUN"]
    hydra.run(config_name=command.name, task_function=task, overrides=overrides)
    if isinstance(done[0], OnnRunnerError):
        raise done[0]
    return done[0].exit_code
