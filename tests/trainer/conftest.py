"""Makes tiny_fold importable, which is also the script that the interruption tests kill."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
