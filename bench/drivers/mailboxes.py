"""POST /send at a fixed rate, independent of the gateway's speed, and long polls of /receive for some of the
users.

Every message starts with the time it was due, so that delays in the client count. Users with a long poll get
`watched` of the messages; the others go to users drawn evenly from `user_ids`.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from functools import partial

import msgspec
import uvloop

from bench.driver import Figures, drive
from bench.http_client import HttpAnswer, HttpConnection, connect_http, http_request
from bench.measure import percentile
from bench.raw_client import prepare_process

TICK_S = 0.002
SENDERS = 256
POLL_SECONDS = 20
DRAIN_S = 10.0
_STAMP = "{:020d}"
_STAMP_LENGTH = 20
_JSON = {"content-type": "application/json"}


class _Message(msgspec.Struct):
    message_id: str
    message: str


class _Received(msgspec.Struct):
    messages: list[_Message]


_RECEIVED = msgspec.json.Decoder(_Received)


class Mailboxes:
    def __init__(self, warm_up_s: float, size: int) -> None:
        self.acknowledged_ms: list[float] = []
        self.arrived_ms: list[float] = []
        self.acknowledged = 0
        self.errors = 0
        self.unsent = 0
        self._filler = "x" * (size - _STAMP_LENGTH)
        self._measured_from = time.perf_counter() + warm_up_s
        self._free: deque[HttpConnection] = deque()
        self._queue: deque[tuple[float, str]] = deque()
        self._under_way: dict[HttpConnection, float] = {}

    async def poll(self, connection: HttpConnection, user: str) -> None:
        last = ""
        while True:
            target = f"/receive?user_id={user}&wait={POLL_SECONDS}" + (
                f"&last_message_id={last}" if last else ""
            )
            answer = await connection.ask(http_request("GET", target))
            now = time.perf_counter()
            if answer.status != 200:
                self.errors += 1
                await asyncio.sleep(0.1)
                continue
            for message in _RECEIVED.decode(answer.body).messages:
                last = message.message_id
                due = int(message.message[:_STAMP_LENGTH]) / 1e9
                if due >= self._measured_from:
                    self.arrived_ms.append((now - due) * 1_000)

    async def send(
        self,
        connections: list[HttpConnection],
        rate: float,
        seconds: float,
        draw_user: random.Random,
        users: Users,
    ) -> None:
        self._free.extend(connections)
        began = time.perf_counter()
        sent = 0
        for tick in range(round(seconds / TICK_S)):
            due = began + tick * TICK_S
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            count = round((tick + 1) * TICK_S * rate) - sent
            sent += count
            self._queue.extend((due, users.draw(draw_user)) for _ in range(count))
            self._send_waiting()
        deadline = time.perf_counter() + DRAIN_S
        while (self._queue or self._under_way) and time.perf_counter() < deadline:
            await asyncio.sleep(0.01)
        # Requests without a response took at least this long.
        late = [due for due, _ in self._queue] + list(self._under_way.values())
        self._queue.clear()
        self.unsent = len(late)
        for due in late:
            self._note(due, self.acknowledged_ms)

    def _note(self, due: float, times_ms: list[float]) -> None:
        if due >= self._measured_from:
            times_ms.append((time.perf_counter() - due) * 1_000)

    def _send_waiting(self) -> None:
        while self._queue and self._free:
            due, user = self._queue.popleft()
            connection = self._free.popleft()
            self._under_way[connection] = due
            text = _STAMP.format(int(due * 1e9)) + self._filler
            body = f'{{"from_user":"bench","to_user":"{user}","message":"{text}"}}'.encode()
            answer = connection.ask(http_request("POST", "/send", body, _JSON))
            answer.add_done_callback(partial(self._sent, due=due, connection=connection))

    def _sent(self, done: asyncio.Future[HttpAnswer], due: float, connection: HttpConnection) -> None:
        del self._under_way[connection]
        if done.exception() is not None or done.result().status != 200:
            self.errors += 1
        else:
            self.acknowledged += time.perf_counter() >= self._measured_from
            self._note(due, self.acknowledged_ms)
        self._free.append(connection)
        self._send_waiting()


class Users:
    def __init__(self, polls: int, user_ids: int, watched: float) -> None:
        self.polled = [f"polled-{number}" for number in range(polls)]
        self._user_ids = user_ids
        self._watched = watched

    def draw(self, source: random.Random) -> str:
        if source.random() < self._watched:
            return source.choice(self.polled)
        return f"user-{source.randrange(self._user_ids)}"


async def drive_mailboxes(
    port: int,
    rate: float,
    seconds: float,
    polls: int,
    user_ids: int,
    watched: float,
    size: int,
    warm_up_s: float,
) -> Figures:
    users = Users(polls, user_ids, watched)
    senders = await connect_http(port, SENDERS)
    pollers = await connect_http(port, polls)
    mailboxes = Mailboxes(warm_up_s, size)
    waiting = [
        asyncio.create_task(mailboxes.poll(connection, user))
        for connection, user in zip(pollers, users.polled, strict=True)
    ]
    began = time.perf_counter()
    await mailboxes.send(senders, rate, warm_up_s + seconds, random.Random(1), users)
    measured_s = time.perf_counter() - began - warm_up_s
    await asyncio.sleep(1.0)
    for task in waiting:
        if task.done():
            task.result()
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    for connection in (*senders, *pollers):
        connection.close()
    arrived = mailboxes.arrived_ms or [measured_s * 1_000]
    return {
        "messages_per_s": mailboxes.acknowledged / measured_s,
        "errors": mailboxes.errors,
        "unsent": mailboxes.unsent,
        "ack_p50_ms": percentile(mailboxes.acknowledged_ms, 0.5),
        "ack_p99_ms": percentile(mailboxes.acknowledged_ms, 0.99),
        "arrivals": len(mailboxes.arrived_ms),
        "arrival_p50_ms": percentile(arrived, 0.5),
        "arrival_p99_ms": percentile(arrived, 0.99),
    }


def mailboxes(**parameters: float) -> Figures:
    prepare_process()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(drive_mailboxes(**parameters))  # type: ignore[arg-type]


if __name__ == "__main__":
    drive(mailboxes)
