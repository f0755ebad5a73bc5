"""resume=<run folder>: the stored command, with what was typed now on top."""

from __future__ import annotations

from dataclasses import replace

from onn_runner.cli import argv
from onn_runner.cli.stored import stored_command
from onn_runner.errors import ConfigError
from onn_runner.report.folder import RunFolder


def with_stored(command: argv.Command) -> argv.Command:
    """`command` itself where it resumes nothing. Raises ConfigError where the folder is not a run's."""
    if command.resume is None:
        return command
    if not command.resume.is_dir():
        raise ConfigError(
            f"resume={command.resume}: there is no such folder; give a run's, such as outputs/<name>/<time-stamp>"
        )
    folder = RunFolder(command.resume)
    folder.refuse_links()
    flags = command.flags
    anew = any(given is not None for given in (flags.config_dir, flags.config_path, flags.config_name))
    stored = stored_command(folder.read_record(), command.resume, typed=command.overrides, configs=not anew)
    known = command if anew else stored
    return replace(
        command,
        overrides=argv.merge(stored.overrides, command.overrides),
        folders=known.folders,
        name=known.name,
        composing_flags=tuple(dict.fromkeys([*known.composing_flags, *command.composing_flags])),
    )
