"""Programs of benchmarks/ are imported as the modules that they are."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
