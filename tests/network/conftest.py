"""Makes small_networks importable for the test files beside it."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
