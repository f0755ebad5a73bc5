"""A process of a pool ends with the process that made it: joblib's workers would wait for work for ever."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import threading
import time
from collections.abc import Iterator

PAUSE = 1.0
"""Seconds between two looks."""
GRACE = 60.0
"""Seconds in which a training may save its state."""


_idle = threading.Event()
_idle.set()


@contextlib.contextmanager
def ends_with_parent() -> Iterator[None]:
    """What is done in this block is stopped as by Ctrl-C when the parent is gone; the process ends after it."""
    _start()
    _idle.clear()
    try:
        yield
    finally:
        _idle.set()


@functools.cache
def _start() -> None:
    """Once a process."""
    threading.Thread(target=_watch, args=(os.getppid(),), daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(PAUSE)
    if not _idle.is_set():
        os.kill(os.getpid(), signal.SIGTERM)
        _idle.wait(GRACE)
    os._exit(1)
