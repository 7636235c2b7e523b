"""Tests of what is in `examples/`; the packages of an example are imported as its own scripts do."""

import sys
from pathlib import Path

PLATFORM = Path(__file__).resolve().parents[2] / "examples" / "platform_observability"
sys.path.insert(0, str(PLATFORM))
