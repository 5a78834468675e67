"""The examples of property tests: the same in each run of `make test`, new ones without a profile."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("starts_processes")
TESTS = Path(__file__).parents[1]
CONFTEST = """
from support import hypothesis_profiles

def pytest_collection_modifyitems(config, items):
    hypothesis_profiles.apply(config, items)
"""
SUITE = """
import importlib
import os
from hypothesis import given, settings, strategies
from hypothesis.stateful import RuleBasedStateMachine, rule

if module := os.environ.get("LOADED_FIRST"):
    importlib.import_module(module)

def record(value):
    with open(os.environ["DRAWN"], "a") as file:
        print(value, file=file)

@settings(max_examples=60)
@given(strategies.lists(strategies.integers() | strategies.text()))
def test_values(values):
    record(values)

class Machine(RuleBasedStateMachine):
    @rule(value=strategies.integers())
    def step(self, value):
        record(value)

TestMachine = Machine.TestCase
TestMachine.settings = settings(max_examples=20, stateful_step_count=8)
"""


def drawn(directory: Path, profile: str, loaded_first: str = "") -> str:
    """Run two property tests and return their examples."""
    (directory / "conftest.py").write_text(CONFTEST)
    (directory / "test_suite.py").write_text(SUITE)
    examples = directory / "drawn"
    examples.unlink(missing_ok=True)
    options = [
        "-p",
        "_hypothesis_pytestplugin",
        "-c",
        os.devnull,
        "--rootdir=.",
        "--hypothesis-profile",
        profile,
    ]
    environment = os.environ | {
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTHONPATH": f"{TESTS}{os.pathsep}{TESTS.parent / 'src'}",
        "DRAWN": str(examples),
        "LOADED_FIRST": loaded_first,
    }
    command = [sys.executable, "-m", "pytest", "-q", *options, "test_suite.py"]
    subprocess.run(command, cwd=directory, env=environment, check=True)
    return examples.read_text()


def test_fixed_profile_draws_the_same_examples_whatever_is_loaded(tmp_path: Path) -> None:
    first = drawn(tmp_path, "fixed")
    assert drawn(tmp_path, "fixed", loaded_first="penstock.records.batch") == first
    assert len(drawn(tmp_path, "fast")) < len(first)


def test_default_profile_draws_new_examples(tmp_path: Path) -> None:
    assert drawn(tmp_path, "default") != drawn(tmp_path, "default")
