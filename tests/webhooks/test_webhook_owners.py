"""Owners of a webhook in virtual time: owners die or are replaced late, receivers fail or are slow, and the webhook is
altered. What must be true is checked at every call and settlement, and planted bugs are noticed.
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
from penstock.wire.queue_settle import RETURN
from simulation.machine.loop import new_loop

MESSAGES = 120
SEEDS = 50
CHAOS_SECONDS = 600.0
SECONDS = 200_000.0
MIXED = ("ok", "ok", "slow", "error", "hang", "gone")
SLOW = ("slow",) * 9 + ("hang",)
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
    answered: set[int] = field(default_factory=set)
    """Attempts that the receiver has answered with 2xx."""


class Cluster:
    """A queue, the state of one webhook with its leader, and the receiver."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.messages = [Message() for _ in range(MESSAGES)]
        self.state = states.new_webhook(
            WebhookDefinition("orders", "http://receiver.example/", concurrency=8, timeout_ms=30_000),
            b"sealed",
            0,
            "",
        )
        self._outcomes = self.random.choice((MIXED, SLOW))
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
            self._require(message.attempt in message.answered, "accepted without an answer 2xx")
            message.is_accepted = True
        elif settlement.action == RETURN:
            message.attempt -= 1
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
        lasts_s = message.lock_until - asyncio.get_running_loop().time()
        self._require(lasts_s > timeout_s, "a call that outlasts the lock of its message")
        self._require(not message.is_accepted, "a call for a message that was accepted")
        message.calls.add(number)
        try:
            outcome = self.random.choice(self._outcomes)
            shortest, longest = {"slow": (0.5, 1.0), "hang": (1.0, 1.0)}.get(outcome, (0.0, 0.5))
            await asyncio.sleep(timeout_s * self.random.uniform(shortest, longest))
            if outcome == "hang":
                raise CallFailed("no answer")
            status = {"error": 500, "gone": 410}.get(outcome, 200)
            if status == 200:
                message.answered.add(int(given["penstock-attempt"]))
            return Answer(status)
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


class Owner:
    """A broker that leads the shard of the webhook in one epoch, until it hears of another leader or dies."""

    def __init__(self, cluster: Cluster, broker: int) -> None:
        self._handle = ClusterHandle(cluster, broker, cluster.epoch)
        self._work: set[asyncio.Task[None]] = set()
        self._is_dead = False
        clock = LoopClock()
        context = WebhookAgentContext(
            broker,
            cluster,
            cluster,
            clock,
            Logger(clock, lambda line: None, lambda now, level, text, fields: text),
            cluster.random.random,
            lambda name, sealed: "secret",
            CallCounts(),
            self._run_in_background,
        )
        self._agent = WebhookAgent(self._handle, context)

    def start(self) -> None:
        self._agent.start()

    def _run_in_background(self, work: Coroutine[Any, Any, None]) -> None:
        if self._is_dead:
            work.close()
            return
        task = asyncio.get_running_loop().create_task(work)
        self._work.add(task)
        task.add_done_callback(self._work.discard)

    def on_change(self) -> None:
        self._agent.on_change()

    def resign(self) -> None:
        self._handle.is_closed = True
        self._agent.close()

    def die(self) -> None:
        """End at once: nothing that is held returns to the queue."""
        self._is_dead = True
        for task in tuple(self._work):
            task.cancel()
        self.resign()


class Play:
    """Brokers that become leader, and resign or die, sometimes later than others notice."""

    def __init__(self, seed: int) -> None:
        self._cluster = Cluster(seed)
        self._random = Random(seed + 1)
        self._owner = Owner(self._cluster, 1)
        self._pauses = self._random.choice(((1, 8), (10, 60)))
        """Seconds between two disturbances."""
        self._deposed: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        loop, cluster = asyncio.get_running_loop(), self._cluster
        self._owner.start()
        end = loop.time() + SECONDS
        while not (
            loop.time() > end or cluster.violations or all(each.is_accepted for each in cluster.messages)
        ):
            is_calm = loop.time() > CHAOS_SECONDS
            await asyncio.sleep(60 if is_calm else self._random.uniform(*self._pauses))
            if not is_calm:
                await self._disturb()
            if cluster.state.is_paused:
                self._change(states.resume(cluster.state))
        self._owner.resign()
        assert not cluster.violations, cluster.violations
        left = [number for number, each in enumerate(cluster.messages) if not each.is_accepted]
        assert not left, f"messages without an accepted call: {left}"
        epochs = list(cluster.begun.values())
        assert epochs == sorted(epochs), "an earlier owner has begun a term after a later one"

    async def _disturb(self) -> None:
        kind = self._random.choice(("none", "death", "election", "alter"))
        if kind == "alter":
            changes = {
                "concurrency": self._random.choice((1, 8)),
                "timeout_ms": self._random.choice((200, 2_000, 30_000)),
            }
            altered = self._random.sample(sorted(changes), self._random.randint(1, 2))
            self._change(states.alter(self._cluster.state, {name: changes[name] for name in altered}))
        elif kind == "death":
            self._owner.die()
            await asyncio.sleep(self._random.uniform(0, 10))  # until its session is over
            self._elect()
        elif kind == "election":
            deposed = asyncio.create_task(self._depose(self._owner, self._random.choice((0, 2, 40))))
            self._deposed.add(deposed)
            deposed.add_done_callback(self._deposed.discard)
            self._elect()

    def _change(self, state: Webhook) -> None:
        self._cluster.state = state
        self._owner.on_change()

    def _elect(self) -> None:
        self._cluster.epoch += 1
        self._cluster.leader = 3 - self._cluster.leader
        self._owner = Owner(self._cluster, self._cluster.leader)
        self._owner.start()

    @staticmethod
    async def _depose(owner: Owner, seconds: float) -> None:
        """Let an owner hear of its successor after this time."""
        await asyncio.sleep(seconds)
        owner.resign()


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
    patch.setattr(WebhookAgent, "_lock_ms", 100)
    calls_begin_after_their_locks(patch)


def accepted_without_2xx(patch: Patch) -> None:
    patch.setattr(agents, "decide", lambda status, retry_after_ms, attempt: Decision(Action.ACCEPT))


def accepted_after_no_answer(patch: Patch) -> None:
    patch.setattr(agents, "failed", lambda reason, attempt: Decision(Action.ACCEPT))


def accepted_before_the_answer(patch: Patch) -> None:
    deliver = WebhookAgent._deliver

    async def accept_first(self: WebhookAgent, message: ReceivedMessage, *arguments: Any) -> None:
        await self._settle_surely(message, 1, 0)
        await deliver(self, message, *arguments)

    patch.setattr(WebhookAgent, "_deliver", accept_first)


def calls_begin_after_their_locks(patch: Patch) -> None:
    """Another owner calls for a message that has waited for longer than its lock."""
    patch.setattr(WebhookAgent, "_is_locked_for_call", lambda self, locked_until: True)


def closed_agent_goes_on(patch: Patch) -> None:
    def close(self: WebhookAgent) -> None:
        self._context.background(self._give_up([*self._calls.values()], []))

    patch.setattr(WebhookAgent, "close", close)


@pytest.mark.parametrize(
    ("plant", "violation"),
    [
        (two_owners_share_a_message, "two calls for one message|a call that outlasts the lock"),
        (calls_begin_after_their_locks, "a call that outlasts the lock of its message"),
        (closed_agent_goes_on, "two calls for one message|a call for a message that was accepted"),
        (accepted_without_2xx, "accepted without an answer 2xx"),
        (accepted_after_no_answer, "accepted without an answer 2xx"),
        (accepted_before_the_answer, "accepted without an answer 2xx"),
    ],
)
def test_planted_bug_is_noticed(plant: Planted, violation: str, monkeypatch: Patch) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError, match=violation):
        play_all()


def play_all() -> None:
    for seed in range(SEEDS):
        play(seed)
