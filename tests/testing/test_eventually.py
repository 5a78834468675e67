"""The wait helper of the tests."""

from __future__ import annotations

import asyncio

import pytest

from penstock.errors import BrokerError, ErrorCode
from support.eventually import eventually, eventually_async


def test_returns_the_first_true_value() -> None:
    values = iter([0, None, "", "found", "later"])
    assert eventually(lambda: next(values), poll_s=0) == "found"


def test_failure_names_the_wait_its_bound_and_the_last_value() -> None:
    with pytest.raises(
        AssertionError, match=r"not within 0 s: there is a leader \(last: None\)\nbroker 1: gone"
    ):
        eventually(lambda: None, "there is a leader", within_s=0, details=lambda: "broker 1: gone")


def test_only_the_named_errors_count_as_false() -> None:
    with pytest.raises(AssertionError, match="KeyError"):
        eventually({}.popitem, within_s=0, ignoring=KeyError)
    with pytest.raises(KeyError):
        eventually({}.popitem, within_s=0)


async def test_async_form_takes_functions_and_coroutine_functions() -> None:
    done = asyncio.Event()
    asyncio.get_running_loop().call_later(0.01, done.set)

    async def is_done() -> bool:
        return done.is_set()

    assert await eventually_async(is_done)
    assert await eventually_async(done.is_set)


async def test_async_form_treats_an_unknown_topic_as_not_yet() -> None:
    errors = iter([BrokerError(ErrorCode.unknown_topic_or_partition)])

    def leader() -> int:
        for error in errors:
            raise error
        return 1

    assert await eventually_async(leader) == 1
