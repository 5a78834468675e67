"""The contents of the wheel, with packages found as the build finds them."""

from __future__ import annotations

import tomllib
from pathlib import Path

from setuptools import find_packages

ROOT = Path(__file__).parents[2]


def test_wheel_has_no_simulation() -> None:
    [where] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]["find"][
        "where"
    ]
    shipped = find_packages(str(ROOT / where))
    assert "penstock.server" in shipped
    assert not [name for name in shipped if "simulation" in name]
    assert (ROOT / "simulation").is_dir()
