"""The contents of the wheel, with packages found as the build finds them."""

from __future__ import annotations

import tomllib
from pathlib import Path

from setuptools import find_packages

ROOT = Path(__file__).parents[2]


def test_wheel_has_every_package_but_the_simulation() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]["find"]
    [where] = settings["where"]
    everything = find_packages(str(ROOT / where))
    shipped = find_packages(str(ROOT / where), exclude=settings["exclude"])
    left_out = set(everything) - set(shipped)
    assert left_out == {name for name in everything if name.startswith("penstock.simulation")}
    assert "penstock.simulation" in left_out
    assert "penstock.server" in shipped
