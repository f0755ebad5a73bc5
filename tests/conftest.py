"""One thread per test process and the same random examples each time: a failure can be repeated."""

import os
import sys
from pathlib import Path

# Before torch is imported, which reads it once; `make test` runs one process per core.
os.environ.setdefault("OMP_NUM_THREADS", "1")

from hypothesis import HealthCheck, settings

# No deadline: a first call pays for imports and compiled kernels, and two processes share two cores.
settings.register_profile(
    "repeatable", deadline=None, derandomize=True, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("repeatable")

# Makes cifar_layout importable, which writes small folders in the layouts of published data sets.
sys.path.append(str(Path(__file__).parent))
