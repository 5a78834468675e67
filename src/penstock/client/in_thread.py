"""Derivation of a coroutine method from a blocking method, with the types of its parameters and its result."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")
Subject = TypeVar("Subject", covariant=True)


class HasSubject(Protocol[Subject]):
    """Async class with a synchronous `subject`; `run_in_thread` calls a method of the subject in a thread."""

    async def run_in_thread(self, call: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any: ...

    @property
    def subject(self) -> Subject: ...


def in_thread(
    method: Callable[Concatenate[S, P], T],
) -> Callable[Concatenate[HasSubject[S], P], Coroutine[Any, Any, T]]:
    async def call(self: HasSubject[S], /, *args: P.args, **kwargs: P.kwargs) -> T:
        result: T = await self.run_in_thread(method, self.subject, *args, **kwargs)
        return result

    call.__doc__ = method.__doc__
    return call
