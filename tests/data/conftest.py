"""Makes array_files importable, which writes arrays into every kind of file."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
