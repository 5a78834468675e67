"""POST /send at fixed rates, independent of the gateway's speed, and long polls of /receive for some of the
users.

Every message starts with the time it was due, so that delays in the client count, and with its number, so that
a lost one is noticed. Users with a long poll get `watched` of the messages; the others go to users drawn evenly
from `user_ids`. Several drivers with different names share a load.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter, deque
from collections.abc import Sequence
from functools import partial

import msgspec
import uvloop

from bench.driver import Figures, drive
from bench.http_client import HttpAnswer, HttpConnection, connect_http, http_request
from bench.latencies import Latencies
from bench.raw_client import prepare_process

TICK_S = 0.002
SENDERS = 256
POLL_SECONDS = 20
DRAIN_S = 10.0
_STAMP = "{:020d}{:012d}"
_STAMP_DIGITS, _STAMP_LENGTH = 20, 32
_JSON = {"content-type": "application/json"}

Phases = Sequence[tuple[float, float]]
"""Seconds and messages per second, one phase after the other."""


class _Message(msgspec.Struct):
    message_id: str
    message: str


class _Received(msgspec.Struct):
    messages: list[_Message]


_RECEIVED = msgspec.json.Decoder(_Received)


class Mailboxes:
    def __init__(self, users: Users, size: int) -> None:
        self.acknowledgements, self.arrivals = Latencies(), Latencies()
        self.acknowledged_in: Counter[int] = Counter()
        """Acknowledged messages by the second since the start."""
        self.watched: set[int] = set()
        """Numbers of the acknowledged messages to users with a long poll."""
        self.arrived: set[int] = set()
        self.errors = 0
        self.unsent = 0
        self._users = users
        self._filler = "x" * (size - _STAMP_LENGTH)
        self._began = 0.0
        self._number = 0
        self._free: deque[HttpConnection] = deque()
        self._queue: deque[tuple[int, str]] = deque()
        self._under_way: dict[HttpConnection, int] = {}

    async def poll(self, connection: HttpConnection, user: str) -> None:
        last = ""
        while True:
            target = f"/receive?user_id={user}&wait={POLL_SECONDS}" + (
                f"&last_message_id={last}" if last else ""
            )
            answer = await connection.ask(http_request("GET", target))
            now_ns = time.perf_counter_ns()
            if answer.status != 200:
                self.errors += 1
                await asyncio.sleep(0.1)
                continue
            for message in _RECEIVED.decode(answer.body).messages:
                last = message.message_id
                self.arrivals.arrived([int(message.message[:_STAMP_DIGITS])], now_ns)
                self.arrived.add(int(message.message[_STAMP_DIGITS:_STAMP_LENGTH]))

    async def send(self, connections: list[HttpConnection], phases: Phases, source: random.Random) -> None:
        self._free.extend(connections)
        began = self._began = time.perf_counter()
        for seconds, rate in phases:
            sent = 0
            for tick in range(round(seconds / TICK_S)):
                due = began + tick * TICK_S
                await asyncio.sleep(max(0.0, due - time.perf_counter()))
                count = round((tick + 1) * TICK_S * rate) - sent
                sent += count
                self._queue.extend((int(due * 1e9), self._users.draw(source)) for _ in range(count))
                self._send_waiting()
            began += seconds
        deadline = time.perf_counter() + DRAIN_S
        while (self._queue or self._under_way) and time.perf_counter() < deadline:
            await asyncio.sleep(0.01)
        # Requests without a response took at least this long.
        late = [due for due, _ in self._queue] + list(self._under_way.values())
        self._queue.clear()
        self.unsent = len(late)
        self.acknowledgements.arrived(late, time.perf_counter_ns())

    async def wait_for_arrivals(self) -> None:
        """Wait until all acknowledged messages to users with a long poll have arrived, but not for ever."""
        deadline = time.perf_counter() + DRAIN_S
        while not self.watched <= self.arrived and time.perf_counter() < deadline:
            await asyncio.sleep(0.1)

    def _send_waiting(self) -> None:
        while self._queue and self._free:
            due, user = self._queue.popleft()
            connection = self._free.popleft()
            self._under_way[connection] = due
            self._number += 1
            text = _STAMP.format(due, self._number) + self._filler
            body = f'{{"from_user":"bench","to_user":"{user}","message":"{text}"}}'.encode()
            answer = connection.ask(http_request("POST", "/send", body, _JSON))
            number = self._number if user in self._users.polled else 0
            answer.add_done_callback(partial(self._sent, due, number, connection))

    def _sent(
        self, due: int, number: int, connection: HttpConnection, done: asyncio.Future[HttpAnswer]
    ) -> None:
        del self._under_way[connection]
        if done.exception() is not None or done.result().status != 200:
            self.errors += 1
        else:
            now = time.perf_counter()
            self.acknowledgements.arrived([due], int(now * 1e9))
            self.acknowledged_in[int(now - self._began)] += 1
            if number:
                self.watched.add(number)
        self._free.append(connection)
        self._send_waiting()


class Users:
    def __init__(self, name: str, polls: int, user_ids: int, watched: float) -> None:
        self.polled = {f"{name}-{number}": number for number in range(polls)}
        self._choices = list(self.polled)
        self._user_ids = user_ids
        self._watched = watched

    def draw(self, source: random.Random) -> str:
        if source.random() < self._watched:
            return source.choice(self._choices)
        return f"user-{source.randrange(self._user_ids)}"


async def drive_mailboxes(
    port: int,
    phases: Phases,
    windows: dict[str, tuple[int, int]],
    polls: int,
    user_ids: int,
    watched: float,
    size: int,
    limit_ms: float = 100.0,
    users_name: str = "polled",
) -> Figures:
    """Figures of each of the `windows`, in seconds since the start."""
    users = Users(users_name, polls, user_ids, watched)
    senders = await connect_http(port, SENDERS)
    pollers = await connect_http(port, polls)
    mailboxes = Mailboxes(users, size)
    waiting = [
        asyncio.create_task(mailboxes.poll(connection, user))
        for connection, user in zip(pollers, users.polled, strict=True)
    ]
    began = time.perf_counter()
    await mailboxes.send(senders, phases, random.Random(users_name))
    await mailboxes.wait_for_arrivals()
    for task in waiting:
        if task.done():
            task.result()
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    for connection in (*senders, *pollers):
        connection.close()
    figures: Figures = {
        "began": began,
        "errors": mailboxes.errors,
        "unsent": mailboxes.unsent,
        "lost": len(mailboxes.watched - mailboxes.arrived),
    }
    for window, (from_s, to_s) in windows.items():
        figures |= _figures_of(mailboxes, window, from_s, to_s, limit_ms)
    return figures


def _figures_of(mailboxes: Mailboxes, window: str, from_s: int, to_s: int, limit_ms: float) -> Figures:
    acknowledged = sum(mailboxes.acknowledged_in[second] for second in range(from_s, to_s))
    figures: Figures = {
        f"{window}_messages_per_s": acknowledged / (to_s - from_s),
        f"{window}_settled_s": mailboxes.acknowledgements.settled_s(from_s, to_s, limit_ms),
    }
    for kind, latencies in (("ack", mailboxes.acknowledgements), ("arrival", mailboxes.arrivals)):
        figures[f"{window}_{kind}_p50_ms"] = latencies.percentile_ms(0.5, from_s, to_s)
        figures[f"{window}_{kind}_p99_ms"] = latencies.percentile_ms(0.99, from_s, to_s)
    return figures


def mailboxes(**parameters: float) -> Figures:
    prepare_process()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(drive_mailboxes(**parameters))  # type: ignore[arg-type]


if __name__ == "__main__":
    drive(mailboxes)
