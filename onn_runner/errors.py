"""The exception tree: what went wrong, and the exit code that says whose turn it is.

OnnRunnerError            anything this package raises on purpose
+-- ConfigError      2    the request cannot be carried out as it stands; nothing was run
+-- RunError         1    the request was fine, and carrying it out failed
    +-- Interrupted  130  stopped by the user or the system; resumable
    +-- Pruned       0    a search found the run not worth its remaining folds
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class OnnRunnerError(Exception):
    """One clear sentence or two: what, where, what to do."""

    exit_code = 1


class ConfigError(OnnRunnerError, ValueError):
    """The request cannot be carried out as it stands: a wrong name, type, size or combination."""

    exit_code = 2


class RunError(OnnRunnerError, RuntimeError):
    """The request was fine, and carrying it out failed: a full disk, a diverged fold, a lost device."""

    exit_code = 1


class Interrupted(RunError):
    """Stopped by Ctrl-C or SIGTERM after the state was saved; 128 + SIGINT, as shells expect."""

    exit_code = 130


class Pruned(RunError):
    """Ended by the search that it is a trial of, after some folds: no failure, and nothing to go on with."""

    exit_code = 0


def out_of_memory(error: Exception) -> bool:
    """Whether torch failed for want of memory, on the CPU or on a GPU."""
    text = str(error).lower()
    return isinstance(error, MemoryError) or "allocate memory" in text or "out of memory" in text


def unknown(kind: str, name: str, options: Iterable[str], *, remedy: str = "") -> ConfigError:
    """The error for a misspelt name: the closest matches first, then all options."""
    choices = sorted(options)
    close = difflib.get_close_matches(name, choices, n=3, cutoff=0.5)
    hint = f" Did you mean {' or '.join(close)}?" if close else ""
    listing = f" Options: {', '.join(choices)}." if choices else ""
    return ConfigError(f"unknown {kind} '{name}'.{hint}{listing}{' ' + remedy if remedy else ''}")
