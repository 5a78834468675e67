"""Results that are passed on by calls instead of tasks, for requests that are served often.

A reply is called in the loop turn in which its result is known. Loop thread only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)


class Reply(Protocol[T_contra]):
    """The receiver of one result: a future, or an object that handles the result at once and never raises."""

    def done(self) -> bool:
        """Whether a result has come or is not wanted any more."""
        ...

    def set_result(self, result: T_contra, /) -> None: ...

    def set_exception(self, error: BaseException, /) -> None: ...


class Converted(Generic[T]):
    """Reply that converts a result for another reply, which also gets the failures of the conversion."""

    __slots__ = ("_convert", "_reply")

    def __init__(self, reply: Reply[Any], convert: Callable[[T], Any]) -> None:
        self._reply = reply
        self._convert = convert

    def done(self) -> bool:
        return self._reply.done()

    def set_result(self, result: T, /) -> None:
        try:
            converted = self._convert(result)
        except Exception as error:  # noqa: BLE001 - the reply reports every failure
            self._reply.set_exception(error)
        else:
            self._reply.set_result(converted)

    def set_exception(self, error: BaseException, /) -> None:
        self._reply.set_exception(error)
