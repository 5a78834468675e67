"""Skip of tests that patch compiled code, or give it an object of a test's own class in the place of a compiled one.

Compiled modules call each other's functions and methods directly, so a patch has no effect there or is refused, and
an object of another class is refused with a TypeError. Such tests, and planted bugs, run on the pure build. No test
is listed by name: `monkeypatch` and `unittest.mock` are both watched, and so are the errors of failed tests.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import pytest

from penstock.build import current_build

REASON = "patches compiled code; runs on the pure build"
DOUBLE_REASON = "has a double of a compiled class; runs on the pure build"
_TESTS = Path(__file__).resolve().parents[1]
_WRONG_CLASS = re.compile(r"penstock\.[\w.]+ object expected; got ([\w.]+)\.\w+")


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


def is_refused_double(error: BaseException | None) -> bool:
    """Whether compiled code has refused an object because its class is one of the tests' own."""
    while error is not None:
        found = _WRONG_CLASS.fullmatch(str(error)) if isinstance(error, TypeError) else None
        if found is not None:
            module = sys.modules.get(found.group(1))
            return module is not None and _TESTS in Path(str(getattr(module, "__file__", ""))).parents
        error = error.__cause__ or error.__context__
    return False


def skip_doubles(report: pytest.TestReport, error: BaseException | None) -> None:
    """Turn the failure of a test with a double of a compiled class into a skip; no effect on the pure build."""
    if report.failed and current_build() == "compiled" and is_refused_double(error):
        path, line, _ = report.location
        report.outcome = "skipped"
        report.longrepr = (path, line or 0, DOUBLE_REASON)
