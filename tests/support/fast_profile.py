"""The hypothesis profile `fast`, for `make test-fast`: few examples, also where a test asks for many.

Hypothesis lets the settings of a test win over those of a profile; `shorten` lowers them. A test with its own loop over
examples calls `limit`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import settings

NAME = "fast"
EXAMPLES = 10
STEPS = 15
_ATTRIBUTE = "_hypothesis_internal_use_settings"


# An example takes seconds where other processes use the machine: a deadline would fail at random.
settings.register_profile("default", deadline=None)
settings.load_profile("default")
settings.register_profile(NAME, max_examples=EXAMPLES, stateful_step_count=STEPS, deadline=None)


_is_loaded = False


def limit(examples: int) -> int:
    """The number of examples to run in place of this many."""
    return min(examples, EXAMPLES) if _is_loaded else examples


def shorten(config: pytest.Config, items: Iterable[pytest.Item]) -> None:
    """Lower the settings of property tests and of state machines, if the run has this profile."""
    if config.getoption("--hypothesis-profile", None) != NAME:
        return
    global _is_loaded
    _is_loaded = True
    for item in items:
        function: Any = getattr(item, "obj", None)
        if hasattr(function, _ATTRIBUTE):
            setattr(function, _ATTRIBUTE, _lowered(getattr(function, _ATTRIBUTE)))
        machine: Any = getattr(item, "cls", None)
        if isinstance(getattr(machine, "settings", None), settings):
            machine.settings = _lowered(machine.settings)


def _lowered(given: settings) -> settings:
    return settings(
        given,
        max_examples=limit(given.max_examples),
        stateful_step_count=min(given.stateful_step_count, STEPS),
    )
