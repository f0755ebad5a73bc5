"""One thread per test process and the same random examples each time: a failure can be repeated."""

import logging
import os
import sys
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


@pytest.fixture(autouse=True)
def logging_as_at_the_start() -> None:
    """Runs and sweeps in this process, also those of fixtures of whole modules, set logging up for themselves."""
    for handler in [handler for handler in logging.root.handlers if type(handler) is logging.StreamHandler]:
        logging.root.removeHandler(handler)
    logging.root.setLevel(logging.WARNING)
    for logger in list(logging.root.manager.loggerDict.values()):
        if isinstance(logger, logging.Logger):
            logger.disabled = False
            if logger.name.startswith("hydra"):
                logger.propagate = True
                logger.handlers.clear()
                logger.setLevel(logging.NOTSET)
