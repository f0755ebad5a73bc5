"""One thread per test process and the same random examples each time: a failure can be repeated."""

import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path

# Before torch is imported, which reads it once; `make test` runs one process per core.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
from hypothesis import HealthCheck, settings

# No deadline: a first call pays for imports and compiled kernels, and two processes share two cores.
settings.register_profile(
    "repeatable", deadline=None, derandomize=True, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("repeatable")

# Makes cifar_layout importable, which writes small folders in the layouts of published data sets.
sys.path.append(str(Path(__file__).parent))


def known_loggers() -> list[logging.Logger]:
    made = [logger for logger in logging.root.manager.loggerDict.values() if isinstance(logger, logging.Logger)]
    return [logging.root, *made]


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    """A sweep in this process sets logging up for its jobs, with the output of that test; the next one has its own."""
    before = {
        logger: (logger.level, logger.disabled, logger.propagate, list(logger.handlers)) for logger in known_loggers()
    }
    yield
    for logger in known_loggers():
        level, disabled, propagate, handlers = before.get(logger, (logging.NOTSET, False, True, []))
        logger.disabled, logger.propagate, logger.handlers[:] = disabled, propagate, handlers
        logger.setLevel(level)
