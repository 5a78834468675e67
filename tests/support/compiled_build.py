"""Skip of tests that patch compiled code.

Compiled modules call each other's functions and methods directly, so a patch has no effect there or is refused.
Tests with such a patch, and planted bugs, run on the pure build. `monkeypatch` and `unittest.mock` are both watched.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any
from unittest import mock

import pytest

from penstock.build import current_build

REASON = "patches compiled code; runs on the pure build"


def watch() -> None:
    """Skip tests from now on when they patch code that is compiled; no effect on the pure build."""
    if current_build() == "compiled":
        _watch_monkeypatch()
        _watch_mock()


def is_compiled(target: object) -> bool:
    """Whether a module is compiled, or the module of a class, a function or an instance."""
    if isinstance(target, ModuleType):
        return not str(getattr(target, "__file__", None) or ".py").endswith(".py")
    name = getattr(target, "__module__", "")
    is_ours = isinstance(name, str) and name.startswith("penstock.")
    return is_ours and name in sys.modules and is_compiled(sys.modules[name])


def _skip_if_compiled(target: object) -> None:
    if is_compiled(target):
        pytest.skip(REASON)


def _watch_monkeypatch() -> None:
    original = pytest.MonkeyPatch.setattr

    def setattr_of_pure(self: pytest.MonkeyPatch, target: Any, *rest: Any, **options: Any) -> None:
        if isinstance(target, str):
            owner = target.rpartition(".")[0]
            _skip_if_compiled(sys.modules.get(owner, sys.modules.get(owner.rpartition(".")[0])))
        else:
            _skip_if_compiled(target)
        original(self, target, *rest, **options)

    pytest.MonkeyPatch.setattr = setattr_of_pure  # type: ignore[method-assign]


def _watch_mock() -> None:
    patch: Any = mock._patch
    original = patch.__enter__

    def enter_if_pure(self: Any) -> Any:
        _skip_if_compiled(self.getter())
        return original(self)

    patch.__enter__ = enter_if_pure
