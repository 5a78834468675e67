"""What the command line reports instead of a traceback: what went wrong, and what to do about it."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    FAILED = 1
    """The command was understood and could not be carried out, or a check found problems."""
    USAGE = 2
    """The command or a setting is wrong."""


class Failure(Exception):
    """Ends the command; `hint` says what the user can do."""

    def __init__(self, message: str, hint: str = "", *, code: ExitCode = ExitCode.FAILED) -> None:
        super().__init__(message)
        self.hint = hint
        self.code = code
