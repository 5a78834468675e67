"""Hypothesis profiles: `default` draws anew in each run, `fixed` and `fast` draw the same examples in each run.

`make test` has the profile `fixed`: a rare example must not fail a change that has nothing to do with it. `make
test-all` and `make fuzz` look for such examples. `make test-fast` has the profile `fast`: few examples, also where a
test asks for many. Hypothesis lets the settings of a test win over those of a profile; `shorten` lowers them. A test
with its own loop over examples calls `limit`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants

FIXED = "fixed"
FAST = "fast"
EXAMPLES = 10
STEPS = 15
_SETTINGS = "_hypothesis_internal_use_settings"
_LOCAL_CONSTANTS = "_get_local_constants"


# An example takes seconds where other processes use the machine: a deadline would fail at random. Where the environment
# says that this is CI, hypothesis itself draws the same examples in each run: `default` must not.
settings.register_profile("default", derandomize=False, deadline=None)
settings.load_profile("default")
settings.register_profile(FIXED, derandomize=True, deadline=None)
settings.register_profile(
    FAST, derandomize=True, max_examples=EXAMPLES, stateful_step_count=STEPS, deadline=None
)


_is_fast = False


def limit(examples: int) -> int:
    """The number of examples to run in place of this many."""
    return min(examples, EXAMPLES) if _is_fast else examples


def apply(config: pytest.Config, items: Iterable[pytest.Item]) -> None:
    """Complete the profile of this run: hypothesis itself applies a part of it."""
    name = config.getoption("--hypothesis-profile", None)
    if name in (FIXED, FAST):
        draw_without_source_constants()
    if name == FAST:
        shorten(items)


def draw_without_source_constants() -> None:
    """Keep hypothesis from drawing the constants in the modules that earlier tests of this process happened to load."""
    assert hasattr(providers, _LOCAL_CONSTANTS), "hypothesis has another name for it: fixed draws would vary"
    nothing = Constants()
    setattr(providers, _LOCAL_CONSTANTS, lambda: nothing)


def shorten(items: Iterable[pytest.Item]) -> None:
    """Lower the settings of property tests and of state machines."""
    global _is_fast
    _is_fast = True
    for item in items:
        function: Any = getattr(item, "obj", None)
        if hasattr(function, _SETTINGS):
            setattr(function, _SETTINGS, _lowered(getattr(function, _SETTINGS)))
        machine: Any = getattr(item, "cls", None)
        if isinstance(getattr(machine, "settings", None), settings):
            machine.settings = _lowered(machine.settings)


def _lowered(given: settings) -> settings:
    return settings(
        given,
        max_examples=limit(given.max_examples),
        stateful_step_count=min(given.stateful_step_count, STEPS),
    )
