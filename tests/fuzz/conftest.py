"""The fuzz targets share the random messages of the wire tests."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "wire"))
