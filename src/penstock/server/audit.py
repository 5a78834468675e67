"""Audit log of changes and refused requests, as JSON lines.

Changes are always recorded. Events that clients can cause at any rate, such as refused requests, are sampled, and the
next line of the same kind has the number of events that were left out. Lines wait in a bounded queue and are written in
a thread pool, so a full disk or a slow reader delays no request; lost lines are counted. Loop thread only.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from penstock.clock import Clock
from penstock.errors import ErrorCode, PenstockError
from penstock.observability.logs import Logger
from penstock.threads import Threads

MAX_QUEUED = 10_000
MAX_NAMES = 20
MAX_NAME_CHARACTERS = 200
SAMPLED_PER_SECOND = 20
MAX_SAMPLES = 1_000
"""Maximum number of (event, sample) pairs that are counted separately in one second."""
NAMES = frozenset(
    {
        "name",
        "topic",
        "topic_name",
        "topic_names",
        "group_id",
        "groups_names",
        "resource_name",
        "resource_name_filter",
        "principal",
        "principal_filter",
        "entity_name",
        "broker_id",
        "feature",
    }
)
"""Fields of requests that name the changed resources."""
CHANGES = frozenset({19, 20, 21, 30, 31, 33, 37, 42, 43, 44, 45, 47, 49, 51, 57, 64, 91, 92})
"""APIs whose requests change topics, records, rules, configs, partitions, groups, leaders, reassignments, offsets,
quotas, users, features or brokers.
"""

Write = Callable[[bytes], None]
"""Function that appends lines to the destination. It may block, so it is called in a thread pool; it raises OSError."""
Send = Callable[[Sequence[bytes]], Awaitable[None]]
"""Function that sends lines to the destination from the event loop; it raises PenstockError or OSError."""
CLOSE_SECONDS = 5.0


class AuditLog:
    def __init__(self, write: Write | None, clock: Clock, threads: Threads, log: Logger) -> None:
        """Create a log. Without `write`, lines stay in the queue until `send_to` sets the destination."""
        self.written = 0
        self.lost = 0
        self._clock, self._threads, self._log = clock, threads, log
        self._send: Send | None = None if write is None else partial(self._send_in_pool, write)
        self._queue: deque[bytes] = deque()
        self._writing: asyncio.Task[None] | None = None
        self._second = 0
        self._sampled: dict[str, int] = {}
        self._left_out: dict[str, int] = {}

    @property
    def needs_destination(self) -> bool:
        return self._send is None

    def send_to(self, send: Send) -> None:
        """Set the destination, and send the queued lines to it."""
        self._send = send
        self._begin()

    async def _send_in_pool(self, write: Write, lines: Sequence[bytes]) -> None:
        await self._threads.run("background", partial(write, b"".join(lines)))

    def change(self, api: str, principal: str, host: str, message: object, answer: Mapping[str, Any]) -> None:
        """Record a request that changes something, with its outcome."""
        codes = sorted({code.name for code in codes_of(answer) if code is not ErrorCode.none})
        self._record(
            {
                "event": "change",
                "request": api,
                "principal": principal,
                "host": host,
                "names": list(names_of(message))[:MAX_NAMES],
                "outcome": "ok" if not codes else ",".join(codes),
            }
        )

    def client_event(
        self, event: str, *, sample: str = "", per_second: int = SAMPLED_PER_SECOND, **fields: object
    ) -> None:
        """Record an event that a client can cause at any rate: at most `per_second` events with the same `sample` in a
        second.
        """
        second = self._clock.now_ms() // 1000
        if second != self._second:
            self._second = second
            self._sampled.clear()
        key = f"{event} {sample}" if len(self._sampled) < MAX_SAMPLES else event
        count = self._sampled[key] = self._sampled.get(key, 0) + 1
        if count > per_second:
            self._left_out[event] = self._left_out.get(event, 0) + 1
            return
        left_out = self._left_out.pop(event, 0)
        self._record({"event": event, **fields, **({"left_out": left_out} if left_out else {})})

    async def close(self) -> None:
        """Wait until the queued lines are written, for at most `CLOSE_SECONDS`."""
        if self._writing is not None:
            writing = self._writing
            await asyncio.wait([writing], timeout=CLOSE_SECONDS)
            writing.cancel()

    def _record(self, fields: dict[str, object]) -> None:
        if len(self._queue) >= MAX_QUEUED:
            self.lost += 1
            return
        shortened = {
            name: value[:MAX_NAME_CHARACTERS] if isinstance(value, str) else value
            for name, value in fields.items()
        }
        self._queue.append(msgspec.json.encode({"time_ms": self._clock.now_ms(), **shortened}) + b"\n")
        self._begin()

    def _begin(self) -> None:
        if self._writing is None and self._queue and self._send is not None:
            self._writing = asyncio.get_running_loop().create_task(self._drain(self._send))

    async def _drain(self, send: Send) -> None:
        while self._queue:
            lines = list(self._queue)
            self._queue.clear()
            try:
                await send(lines)
                self.written += len(lines)
            except (OSError, PenstockError, TimeoutError) as error:
                self.lost += len(lines)
                self._log.error_rarely("audit lines lost", error, lines=len(lines))
        self._writing = None


def codes_of(answer: object) -> Iterator[ErrorCode]:
    """All error codes of a response."""
    if isinstance(answer, Mapping):
        for name, value in answer.items():
            if name.endswith("error_code"):
                yield ErrorCode(int(value))
            else:
                yield from codes_of(value)
    elif isinstance(answer, list | tuple):
        for each in answer:
            yield from codes_of(each)


def names_of(message: object) -> Iterator[str]:
    """Names of the resources that a request changes, in the order of its fields. Values are left out because they may
    be secrets.
    """
    seen = 0
    for name in getattr(message, "__dataclass_fields__", ()):
        value = getattr(message, name)
        for each in value if isinstance(value, tuple) else (value,):
            if seen >= MAX_NAMES:
                return
            if hasattr(each, "__dataclass_fields__"):
                for found in names_of(each):
                    seen += 1
                    yield found
            elif name in NAMES and each is not None:
                seen += 1
                yield str(each)[:MAX_NAME_CHARACTERS]
