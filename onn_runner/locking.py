"""A file that one process holds at a time; the system lets go of it however the process ends, by kill -9 too."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from onn_runner import storage

try:
    import fcntl
except ImportError:
    fcntl = None  # type: ignore[assignment]

LOCKS: bool = fcntl is not None
"""Whether this system has such locks."""

PATIENCE = 0.5
"""Seconds after which a lock that another process holds is still not taken: a look at it by `held` is shorter."""
PAUSE = 0.05


class Busy(Exception):
    """Another process holds the file."""


@contextlib.contextmanager
def hold(path: Path, *, wait: Callable[[float], bool] = lambda seconds: seconds < PATIENCE) -> Iterator[None]:
    """Hold `path`, made where it is missing, until the end of the block.

    `wait`: told for how many seconds another process has kept it, says whether to go on waiting. Raises Busy where not,
    RunError where the file cannot be made. Where the system has no such locks (Windows) nobody is kept out.
    """
    began = time.monotonic()
    while True:
        try:
            handle = path.open("a")
        except OSError as error:
            raise storage.failure(path, error) from error
        with handle:
            if _taken(handle) and _same(handle, path):
                yield
                return
        if not wait(time.monotonic() - began):
            raise Busy(str(path))
        time.sleep(PAUSE)


def held(path: Path) -> bool:
    """Whether a process holds `path`, which is not made; without locks in this system: no."""
    if not LOCKS:
        return False
    try:
        with path.open("rb") as handle:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _taken(handle: IO[str]) -> bool:
    if not LOCKS:
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _same(handle: IO[str], path: Path) -> bool:
    """Whether the file still has its name: its folder may have been moved away while we waited."""
    try:
        mine, there = os.fstat(handle.fileno()), path.stat()
    except OSError:
        return False
    return (mine.st_ino, mine.st_dev) == (there.st_ino, there.st_dev)
