"""Replies: results that are passed on by calls instead of tasks, which costs less for frequent requests.

A reply is called in the loop turn in which the result becomes known. Loop thread only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, Protocol, TypeVar

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)


class Reply(Protocol[T_contra]):
    """Receiver of one result: a future, or an object that handles the result at once and never raises."""

    def done(self) -> bool:
        """True if the reply has a result, or no longer needs one."""
        ...

    def set_result(self, result: T_contra, /) -> None: ...

    def set_exception(self, error: BaseException, /) -> None: ...


class Converted(Generic[T]):
    """Reply that converts its result and gives it to another reply. A failed conversion is passed on as an error."""

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
