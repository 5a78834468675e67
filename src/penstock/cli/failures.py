"""Errors that the command line reports without a traceback: a message and a hint."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    FAILED = 1
    """Exit code: the broker refused the command, the command could not be completed, or a check found problems."""
    USAGE = 2
    """Exit code: the command line or a setting is invalid."""


class Failure(Exception):
    """Error that ends the command with a message; `hint` tells the user how to continue."""

    def __init__(self, message: str, hint: str = "", *, code: ExitCode = ExitCode.FAILED) -> None:
        super().__init__(message)
        self.hint = hint
        self.code = code
