"""Owners of a webhook in virtual time: leadership moves, receivers fail, calls hang. What must be true is checked at
every call and settlement, and planted bugs are noticed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any
from uuid import UUID

import pytest

from penstock.clock import Clock
from penstock.errors import BrokerError, ErrorCode
from penstock.internal_client.queue_messages import ReceivedMessage, Settlement
from penstock.internal_client.receipts import Receipt
from penstock.observability.logs import Logger
from penstock.records.iteration import Record
from penstock.webhooks import agent as agents
from penstock.webhooks import webhook as states
from penstock.webhooks.agent import Batch, WebhookAgent, WebhookAgentContext
from penstock.webhooks.call_counts import CallCounts
from penstock.webhooks.http_connection import Answer, CallFailed
from penstock.webhooks.outcome import Action, Decision
from penstock.webhooks.receiver_url import Receiver
from penstock.webhooks.webhook import Webhook, WebhookDefinition
from simulation.machine.loop import new_loop

MESSAGES = 60
SEEDS = 6
CHAOS_SECONDS = 200.0
SECONDS = 200_000.0
TOPIC = UUID(int=1)
Patch = pytest.MonkeyPatch
Planted = Callable[[Patch], None]


class LoopClock(Clock):
    def now_ms(self) -> int:
        return 1_700_000_000_000 + round(self.monotonic() * 1000)

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()


@dataclass
class Message:
    lock_until: float = 0.0
    token: bytes = b""
    attempt: int = 0
    delayed_until: float = 0.0
    is_accepted: bool = False
    calls: set[int] = field(default_factory=set)
    """Calls under way."""
    was_answered: bool = False


class Cluster:
    """A queue, the state of one webhook with its leader, and the receiver."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.messages = [Message() for _ in range(MESSAGES)]
        self.state = states.new_webhook(
            WebhookDefinition("orders", "http://receiver.example/", concurrency=4, timeout_ms=2_000),
            b"sealed",
            0,
            "",
        )
        self.leader = 1
        self.epoch = 1
        self.begun: dict[int, int] = {}
        """Owner by the term that it has recorded."""
        self._tokens = 0
        self._calls = 0
        self.violations: list[str] = []

    def _require(self, is_true: bool, what: str) -> None:
        """Note a violation: an agent would treat an exception like other errors of its work."""
        if not is_true:
            self.violations.append(what)

    # --- Queues

    async def receive(
        self, queue: str, max_messages: int, wait_ms: int, lock_ms: int, interrupt: asyncio.Event
    ) -> Batch:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(self.random.uniform(0, 0.05))
        self._tokens += 1
        token = self._tokens.to_bytes(16, "big")
        found: list[ReceivedMessage] = []
        for offset, message in enumerate(self.messages):
            now = loop.time()
            if len(found) == max_messages or message.is_accepted:
                continue
            if max(message.lock_until, message.delayed_until) > now:
                continue
            message.lock_until, message.token = now + lock_ms / 1000, token
            message.attempt += 1
            receipt = Receipt(TOPIC, 0, offset, token)
            record = Record(offset, 0, None, str(offset).encode(), ())
            found.append(ReceivedMessage(record, 0, message.attempt, receipt, lock_ms, 1))
        if not found:
            with suppress(TimeoutError):
                await asyncio.wait_for(interrupt.wait(), wait_ms / 1000)
        return Batch("orders", False, found)

    async def settle(self, queue: str, settlement: Settlement) -> None:
        await asyncio.sleep(self.random.uniform(0, 0.05))
        loop = asyncio.get_running_loop()
        message = self.messages[settlement.receipt.offset]
        if (
            message.token != settlement.receipt.token
            or message.lock_until <= loop.time()
            or message.is_accepted
        ):
            raise BrokerError(ErrorCode.invalid_record_state)
        if self.random.random() < 0.1:
            raise ConnectionError("lost")
        message.lock_until = 0.0
        if settlement.action == 1:
            self._require(message.was_answered, "accepted without an answer 2xx")
            message.is_accepted = True
        else:
            message.delayed_until = loop.time() + settlement.delay_ms / 1000

    # --- Caller

    async def call(
        self, receiver: Receiver, headers: Sequence[tuple[str, str]], body: bytes, timeout_s: float
    ) -> Answer:
        given = dict(headers)
        message = self.messages[int(given["penstock-offset"])]
        self._calls += 1
        number = self._calls
        self._require(not message.calls, "two calls for one message at the same time")
        self._require(not message.is_accepted, "a call for a message that was accepted")
        message.calls.add(number)
        try:
            outcome = self.random.choice(("ok", "ok", "error", "hang", "gone"))
            await asyncio.sleep(timeout_s if outcome == "hang" else self.random.uniform(0, 1.0))
            if outcome == "hang":
                raise CallFailed("no answer")
            if outcome == "ok":
                message.was_answered = True
            return Answer({"ok": 200, "error": 500, "gone": 410}[outcome])
        finally:
            message.calls.discard(number)

    async def check(self, receiver: Receiver) -> None:
        """Allow every receiver."""

    def close(self) -> None:
        """Do nothing."""


class ClusterHandle:
    """Access of an agent to the state: changes of a deposed leader fail, as those of a shard do."""

    name = "hook"

    def __init__(self, cluster: Cluster, broker: int, epoch: int) -> None:
        self._cluster, self._broker, self._epoch = cluster, broker, epoch
        self.is_closed = False

    @property
    def state(self) -> Webhook:
        if self.is_closed:
            raise BrokerError(ErrorCode.not_coordinator)
        return self._cluster.state

    async def update(self, decide: Callable[[Webhook], Webhook]) -> None:
        await asyncio.sleep(self._cluster.random.uniform(0, 0.05))
        if self.is_closed or self._epoch != self._cluster.epoch:
            raise BrokerError(ErrorCode.not_coordinator)
        before = self._cluster.state
        self._cluster.state = decide(before)
        if self._cluster.state.term != before.term:
            assert self._cluster.state.owner == self._broker
            self._cluster.begun[self._cluster.state.term] = self._epoch

    async def committed(self) -> None:
        if self.is_closed:
            raise BrokerError(ErrorCode.not_coordinator)


class Play:
    """Brokers that become leader and resign, sometimes later than others notice."""

    def __init__(self, seed: int) -> None:
        self._cluster = Cluster(seed)
        self._random = Random(seed + 1)
        self._open: list[tuple[WebhookAgent, ClusterHandle]] = []
        self._background: set[asyncio.Task[None]] = set()

    def _start(self, broker: int) -> None:
        cluster = self._cluster
        handle = ClusterHandle(cluster, broker, cluster.epoch)
        context = WebhookAgentContext(
            broker,
            cluster,
            cluster,
            LoopClock(),
            Logger(LoopClock(), lambda line: None, lambda now, level, text, fields: text),
            self._random.random,
            lambda name, sealed: "secret",
            CallCounts(),
            self._run_in_background,
        )
        made = WebhookAgent(handle, context)
        made.start()
        self._open.append((made, handle))

    def _run_in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def run(self) -> None:
        loop, cluster = asyncio.get_running_loop(), self._cluster
        self._start(1)
        end = loop.time() + SECONDS
        while loop.time() < end and not all(each.is_accepted for each in cluster.messages):
            is_calm = loop.time() > CHAOS_SECONDS
            await asyncio.sleep(60 if is_calm else self._random.uniform(1, 8))
            if not is_calm and self._random.random() < 0.5:
                cluster.epoch += 1
                cluster.leader = 3 - cluster.leader
                deposed = self._open.pop()
                self._start(cluster.leader)
                await asyncio.sleep(self._random.choice((0.0, 0.0, 2.0)))
                deposed[1].is_closed = True
                deposed[0].close()
            if cluster.state.is_paused:
                cluster.state = states.resume(cluster.state)
                self._open[-1][0].on_change()
        for made, handle in self._open:
            handle.is_closed = True
            made.close()
        left = [number for number, each in enumerate(cluster.messages) if not each.is_accepted]
        assert not left, f"messages without an accepted call: {left}"
        assert not cluster.violations, cluster.violations
        epochs = list(cluster.begun.values())
        assert epochs == sorted(epochs), "an earlier owner has begun a term after a later one"


def play(seed: int) -> None:
    loop = new_loop()
    try:
        loop.run_until_complete(Play(seed).run())
    finally:
        loop.close()


@pytest.mark.parametrize("seed", range(SEEDS))
def test_one_call_for_a_message_at_a_time_and_accepted_after_2xx(seed: int) -> None:
    play(seed)


def two_owners_share_a_message(patch: Patch) -> None:
    """A lock that is shorter than the call lets another owner call for the same message."""
    patch.setattr(agents, "LOCK_MARGIN_MS", -3_500)


def accepted_without_2xx(patch: Patch) -> None:
    patch.setattr(agents, "decide", lambda status, retry_after_ms, attempt: Decision(Action.ACCEPT))


def accepted_after_no_answer(patch: Patch) -> None:
    patch.setattr(agents, "failed", lambda reason, attempt: Decision(Action.ACCEPT))


def closed_agent_goes_on(patch: Patch) -> None:
    def close(self: WebhookAgent) -> None:
        self._context.background(self._give_up([*self._calls.values()], []))

    patch.setattr(WebhookAgent, "close", close)


@pytest.mark.parametrize(
    "plant",
    [two_owners_share_a_message, accepted_without_2xx, accepted_after_no_answer, closed_agent_goes_on],
)
def test_planted_bug_is_noticed(plant: Planted, monkeypatch: Patch) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        play_all()


def play_all() -> None:
    for seed in range(SEEDS):
        play(seed)
