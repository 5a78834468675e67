"""The fuzz targets share the random messages of the wire tests, the random records of the group tests, and a broker."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1] / name) for name in ("wire", "groups", "server")]
