"""Order of handshake steps, and the rest after many of them."""

from __future__ import annotations

import asyncio

import pytest

from penstock.net import handshake_turns
from penstock.net.handshake_turns import HandshakeTurns
from support.eventually import eventually_async


def test_begun_handshakes_continue_before_others_begin() -> None:
    async def scenario() -> None:
        turns = HandshakeTurns()
        order: list[str] = []

        def first(name: str) -> None:
            order.append(f"begin {name}")
            turns.proceed(lambda: order.append(f"end {name}"))

        for name in "abcdef":
            turns.begin(lambda name=name: first(name))  # type: ignore[misc]
        await eventually_async(lambda: len(order) == 12)
        assert not turns
        open_at_once = [
            sum(1 if each.startswith("begin") else -1 for each in order[:count]) for count in range(13)
        ]
        assert max(open_at_once) <= 2

    asyncio.run(scenario())


def test_one_step_runs_in_a_turn_of_the_loop() -> None:
    async def scenario() -> None:
        turns = HandshakeTurns()
        done: list[int] = []
        for number in range(10):
            turns.begin(lambda number=number: done.append(number))  # type: ignore[misc]
        await asyncio.sleep(0)
        assert done == [0]

    asyncio.run(scenario())


def test_rest_follows_many_handshakes_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshake_turns, "_REST_SECONDS", 0.01)

    async def scenario() -> None:
        rests: list[int] = []
        turns = HandshakeTurns(lambda: rests.append(1))
        for _ in range(99):
            turns.ended()
        await asyncio.sleep(0.05)
        assert not rests
        for _ in range(101):
            turns.ended()
        await eventually_async(lambda: rests == [1])
        await asyncio.sleep(0.05)
        assert rests == [1]

    asyncio.run(scenario())
