"""Agent of a webhook: receives messages of its queue, sends each to the receiver, and settles it by the response.

A message is accepted only after a response with status 2xx. Every message is locked for this owner from its receipt to
its settlement, and its call begins only if the lock lasts longer than the call may take, so two owners never send the
same message at the same time. An owner commits a record that begins its term before it receives anything: a broker that
another owner has replaced cannot commit this record. Loop thread only.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from penstock.clock import Clock
from penstock.errors import BrokerError, ErrorCode, PenstockError
from penstock.internal_client.queue_messages import ReceivedMessage, Settlement
from penstock.internal_client.receipts import parse_receipt
from penstock.net.acting import own_context
from penstock.objects.kind import Handle
from penstock.observability.logs import Logger
from penstock.webhooks import webhook as states
from penstock.webhooks.call_counts import CallCounts, WebhookFigures
from penstock.webhooks.http_caller import WebhookCaller
from penstock.webhooks.http_connection import Answer, CallFailed
from penstock.webhooks.outcome import (
    QUEUE_BACK_OFF,
    Action,
    Attempt,
    Decision,
    decide,
    failed,
    hold_after,
    read_retry_after,
)
from penstock.webhooks.receiver_url import parse_url
from penstock.webhooks.request import USER_AGENT, MessageSource, WebhookRequest, make_request
from penstock.webhooks.signing import key_of, signature_headers
from penstock.webhooks.webhook import Webhook, WebhookDefinition
from penstock.wire.queue_settle import GROUP_DELAY, RETURN

WAIT_MS: Final = 5_000
"""Duration of one long poll of the queue, in milliseconds."""
LOCK_MARGIN_MS: Final = 15_000
"""Duration for which a message is locked beyond the timeouts of two calls: the call that it waits for, and its own."""
SETTLE_MARGIN_MS: Final = 5_000
"""Duration for which the lock of a message must outlast the timeout of its call, for its settlement."""
MIN_PAUSE_SECONDS: Final = 0.1
MAX_PAUSE_SECONDS: Final = 5.0
SETTLE_TRIES: Final = 5
_ACCEPT, _RELEASE = 1, 2
MAX_REASON: Final = 500


class Batch(NamedTuple):
    """Messages of one receive from a queue."""

    topic: str
    has_back_off: bool
    """True if the queue is configured with a back-off."""
    messages: list[ReceivedMessage]


class Queues(Protocol):
    """Access of webhooks to queues: receive and settle."""

    async def receive(
        self, queue: str, max_messages: int, wait_ms: int, lock_ms: int, interrupt: asyncio.Event
    ) -> Batch:
        """Take messages; waits for the first one until `interrupt` is set."""
        ...

    async def settle(self, queue: str, settlement: Settlement) -> None: ...


@dataclass(frozen=True, slots=True)
class WebhookAgentContext:
    node_id: int
    queues: Queues
    caller: WebhookCaller
    clock: Clock
    logger: Logger
    random: Callable[[], float]
    """Source of random numbers between 0 and 1."""
    unseal: Callable[[str, bytes], str]
    """Decrypts a sealed secret; the arguments are the name of the webhook and the sealed secret."""
    counts: CallCounts
    background: Callable[[Coroutine[Any, Any, None]], None]
    """Runs a coroutine that an agent leaves when it is closed: the settlement of its messages."""


class WebhookAgent:
    def __init__(self, handle: Handle[Webhook], context: WebhookAgentContext) -> None:
        self.figures = WebhookFigures()
        self._handle = handle
        self._context = context
        self._definition = handle.state.definition
        """Definition that new calls use. A changed definition replaces it before the next messages are received."""
        self._task: asyncio.Task[None] | None = None
        self._waiting: deque[tuple[ReceivedMessage, Batch, float]] = deque()
        """Received messages whose call has not begun, each with its batch and the end of its lock."""
        self._calls: dict[asyncio.Task[None], ReceivedMessage] = {}
        self._changed = asyncio.Event()
        """Set when the state has changed."""
        self._has_news = asyncio.Event()
        """Set when the state has changed, or a call has ended."""
        self._failures = 0
        self._held_until = 0.0

    # --- Agent

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run(), context=own_context())

    def on_change(self) -> None:
        self._changed.set()
        self._has_news.set()

    def close(self) -> None:
        """End all work, and return the received messages to the queue in the background.

        If this broker stops before that, the messages return when their locks expire.
        """
        if self._task is not None:
            self._task.cancel()
        called, waiting = list(self._calls.values()), self._take_waiting()
        for task in tuple(self._calls):
            task.cancel()
        if called or waiting:
            self._context.background(self._give_up(called, waiting))

    @property
    def in_flight(self) -> int:
        return len(self._calls)

    # --- receiving

    async def _run(self) -> None:
        pause = MIN_PAUSE_SECONDS
        while True:
            try:
                await self._handle.update(partial(states.take_over, owner=self._context.node_id))
                while True:
                    await self._step()
                    pause = MIN_PAUSE_SECONDS
                    self.figures.problem = ""
            except (PenstockError, OSError) as error:
                self._note_problem(error)
            except Exception as error:  # noqa: BLE001 - a webhook that dies would never call again
                self._note_problem(error)
                self._context.logger.error("webhook failed", error, webhook=self._handle.name)
            await asyncio.sleep(pause)
            pause = min(2 * pause, MAX_PAUSE_SECONDS)

    def _note_problem(self, error: Exception) -> None:
        if not self.figures.problem:
            self._context.logger.warning(
                "webhook failed; retrying", webhook=self._handle.name, error=str(error)
            )
        self.figures.problem = str(error) or type(error).__name__

    async def _step(self) -> None:
        """Receive messages and begin their calls, or wait until that is possible."""
        self._changed.clear()
        self._has_news.clear()
        await self._handle.committed()
        await self._adopt(self._handle.state.definition)
        if self._is_stopped():
            await self._stand_still()
            return
        self._begin_calls()
        concurrency = self._definition.concurrency
        room = 2 * concurrency - len(self._calls) - len(self._waiting)
        if 2 * room < concurrency:
            await self._has_news.wait()
            return
        queue, lock_ms = self._definition.queue, self._lock_ms
        asked_at = self._context.clock.monotonic()
        batch = await self._context.queues.receive(queue, room, WAIT_MS, lock_ms, self._changed)
        self._waiting.extend((message, batch, asked_at + lock_ms / 1000) for message in batch.messages)

    @property
    def _lock_ms(self) -> int:
        return 2 * self._definition.timeout_ms + LOCK_MARGIN_MS

    async def _adopt(self, definition: WebhookDefinition) -> None:
        """Use this definition for all calls that begin from now on."""
        before, self._definition = self._definition, definition
        if definition.url != before.url:
            self._failures, self._held_until = 0, 0.0
        if definition.timeout_ms > before.timeout_ms:
            # The locks of the received messages are too short for calls with the longer timeout.
            await self._return(self._take_waiting())

    def _is_stopped(self) -> bool:
        return self._handle.state.is_paused or self._held_until > self._context.clock.monotonic()

    async def _stand_still(self) -> None:
        """Return messages whose call has not begun, so that other consumers can receive them, and wait."""
        await self._return(self._take_waiting())
        left = self._held_until - self._context.clock.monotonic()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._has_news.wait(), left if left > 0 else None)

    def _take_waiting(self) -> list[ReceivedMessage]:
        messages = [message for message, *_ in self._waiting]
        self._waiting.clear()
        return messages

    async def _return(self, messages: Sequence[ReceivedMessage]) -> None:
        """Return messages to the queue without counting a delivery attempt."""
        with suppress(PenstockError, OSError):
            await asyncio.gather(*(self._settle(each, RETURN, 0) for each in messages))

    async def _give_up(self, called: Sequence[ReceivedMessage], waiting: Sequence[ReceivedMessage]) -> None:
        await self._return(waiting)
        with suppress(PenstockError, OSError):
            await asyncio.gather(*(self._settle(each, _RELEASE, 0) for each in called))

    async def _settle(self, message: ReceivedMessage, action: int, delay_ms: int, reason: str = "") -> None:
        settlement = Settlement(parse_receipt(message.receipt), action, delay_ms, reason)
        await self._context.queues.settle(self._definition.queue, settlement)

    # --- calls

    def _begin_calls(self) -> None:
        while self._waiting and len(self._calls) < self._definition.concurrency and not self._is_stopped():
            message, batch, locked_until = self._waiting.popleft()
            if not self._is_locked_for_call(locked_until):
                # The calls before it took long: they began when the webhook had another timeout or more concurrency.
                self._context.background(self._return([message]))
                continue
            task = asyncio.get_running_loop().create_task(self._deliver(message, batch, self._definition))
            self._calls[task] = message
            task.add_done_callback(self._on_delivered)

    def _is_locked_for_call(self, locked_until: float) -> bool:
        call_ms = self._definition.timeout_ms + SETTLE_MARGIN_MS
        return self._context.clock.monotonic() + call_ms / 1000 <= locked_until

    def _on_delivered(self, task: asyncio.Task[None]) -> None:
        del self._calls[task]
        self._has_news.set()
        if task.cancelled():
            return
        if (error := task.exception()) is not None:
            self._context.logger.warning(
                "message of a webhook could not be settled", webhook=self._handle.name, error=str(error)
            )
        with suppress(BrokerError):  # another broker owns the webhook now
            self._begin_calls()

    async def _deliver(self, message: ReceivedMessage, batch: Batch, definition: WebhookDefinition) -> None:
        source = MessageSource(batch.topic, parse_receipt(message.receipt).topic_id, message.partition)
        request = make_request(source, message.record, message.attempt, definition.format)
        attempt = Attempt(message.attempt, batch.has_back_off, self._context.random())
        decision = await self._call(request, attempt, definition)
        if decision.action is Action.ACCEPT:
            await self._settle_surely(message, _ACCEPT, 0)
            return
        if decision.action is Action.PAUSE:
            await self._handle.update(partial(states.pause, reason=decision.reason))
            # RETURN keeps the message in the queue, even after its last attempt.
            await self._settle_surely(message, RETURN, 0)
            return
        delay_ms = GROUP_DELAY if decision.delay_ms == QUEUE_BACK_OFF else decision.delay_ms
        await self._settle_surely(message, _RELEASE, delay_ms, decision.reason)

    async def _call(
        self, request: WebhookRequest, attempt: Attempt, definition: WebhookDefinition
    ) -> Decision:
        clock = self._context.clock
        started = clock.monotonic()
        status = 0
        try:
            answer = await self._send(request, definition)
            status = answer.status
            retry_after_ms = read_retry_after(answer.retry_after, clock.now_ms())
            decision = decide(status, retry_after_ms, attempt)
        except CallFailed as error:
            decision = failed(str(error), attempt)
        seconds = clock.monotonic() - started
        is_success = decision.action is Action.ACCEPT
        self._context.counts.observe(seconds, is_success=is_success)
        self.figures.observe(status, seconds, decision.reason, clock.now_ms())
        self._failures = 0 if is_success else self._failures + 1
        hold_ms = max(decision.hold_ms, hold_after(self._failures))
        if hold_ms:
            self._held_until = max(self._held_until, clock.monotonic() + hold_ms / 1000)
        return decision

    async def _send(self, request: WebhookRequest, definition: WebhookDefinition) -> Answer:
        clock, context = self._context.clock, self._context
        now_ms = clock.now_ms()
        try:
            secrets = states.secrets_in_force(self._handle.state, now_ms)
            keys = [key_of(context.unseal(self._handle.name, each)) for each in secrets]
        except ValueError as error:
            raise CallFailed(str(error)) from None
        signed = signature_headers(keys, request.message_id, now_ms // 1000, request.body)
        receiver, timeout_s = parse_url(definition.url), definition.timeout_ms / 1000
        return await context.caller.call(receiver, [*request.headers, *signed], request.body, timeout_s)

    async def test(self, identity: str) -> dict[str, object]:
        """Send a test message to the receiver, and return the result. Messages of the queue are not involved."""
        body = msgspec.json.encode({"type": "penstock.test", "webhook": self._handle.name})
        headers = [("user-agent", USER_AGENT), ("content-type", "application/json")]
        started = self._context.clock.monotonic()
        status, problem = 0, ""
        try:
            request = WebhookRequest(f"test_{identity}", headers, body)
            status = (await self._send(request, self._handle.state.definition)).status
        except CallFailed as error:
            problem = str(error)
        millis = round((self._context.clock.monotonic() - started) * 1000, 1)
        return {"status": status or None, "ok": 200 <= status < 300, "latency_ms": millis, "error": problem}

    async def _settle_surely(
        self, message: ReceivedMessage, action: int, delay_ms: int, reason: str = ""
    ) -> None:
        """Settle a message, with up to `SETTLE_TRIES` attempts. If all fail, the message is delivered again after its
        lock has expired.
        """
        for attempt in range(SETTLE_TRIES):
            try:
                await self._settle(message, action, delay_ms, reason[:MAX_REASON])
                return
            except (BrokerError, OSError) as error:
                is_final = isinstance(error, BrokerError) and error.code is ErrorCode.invalid_record_state
                if is_final or attempt == SETTLE_TRIES - 1:
                    raise
                await asyncio.sleep(MIN_PAUSE_SECONDS * 2**attempt)
