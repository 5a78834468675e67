"""Messages of a queue over a raw connection: confirmed one after the other, then consumed and acknowledged one by one.

Each protocol has one blocking connection. A consumer may hold `PREFETCH` messages; each message has an acknowledgement
of its own.
"""

from __future__ import annotations

import itertools
import json
import socket
import struct
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Protocol

from confluent_kafka.admin import AdminClient, NewTopic

from bench.driver import Figures, drive
from bench.drivers.shares import configure, find_topic_id
from bench.frames import produce_request, read_produce, record_batch
from bench.measure import percentile
from bench.payload import random_values
from bench.share_frames import heartbeat_request, read_heartbeat, read_share_fetch, share_fetch_request

PREFETCH = 100
IN_FLIGHT = 200


class Connection:
    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), 30)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = self.socket.makefile("rb", 1 << 18)

    def send(self, content: bytes) -> None:
        self.socket.sendall(content)

    def read(self, count: int) -> bytes:
        content = self._reader.read(count)
        if len(content) != count:
            raise RuntimeError("the server has closed the connection")
        return bytes(content)

    def line(self) -> bytes:
        return bytes(self._reader.readline().rstrip(b"\r\n"))


class QueueClient(Protocol):
    def publish(self, value: bytes) -> None:
        """Send a message, without waiting for its confirmation."""

    def confirm(self, count: int) -> None:
        """Wait for the confirmation of this many messages."""

    def consume(self) -> Iterator[int]:
        """Receive messages and acknowledge each; numbers of messages that were acknowledged."""


class RedisClient:
    def __init__(self, port: int) -> None:
        self._connection = Connection(port)
        self._command(b"XGROUP", b"CREATE", b"q", b"g", b"0", b"MKSTREAM")
        self._reply()

    def _command(self, *words: bytes) -> None:
        self._connection.send(_command(*words))

    def publish(self, value: bytes) -> None:
        self._command(b"XADD", b"q", b"*", b"v", value)

    def confirm(self, count: int) -> None:
        for _ in range(count):
            self._reply()

    def consume(self) -> Iterator[int]:
        read = b"XREADGROUP GROUP g c COUNT %d STREAMS q >" % PREFETCH
        acknowledged = 0
        acknowledgements = b""
        while True:
            self._connection.send(acknowledgements + _command(*read.split()))
            self.confirm(acknowledged)
            found = self._reply()
            yield acknowledged
            entries = found[0][1] if found else []
            acknowledgements = b"".join(_command(b"XACK", b"q", b"g", entry[0]) for entry in entries)
            acknowledged = len(entries)

    def _reply(self) -> Any:
        line = self._connection.line()
        kind, rest = line[:1], line[1:]
        if kind == b"*":
            return None if rest == b"-1" else [self._reply() for _ in range(int(rest))]
        if kind == b"$":
            return None if rest == b"-1" else self._connection.read(int(rest) + 2)[:-2]
        if kind == b"-":
            raise RuntimeError(line.decode())
        return rest


def _command(*words: bytes) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


class NatsClient:
    def __init__(self, port: int) -> None:
        self._connection = Connection(port)
        self._connection.line()
        self._connection.send(b'CONNECT {"verbose":false,"headers":true}\r\nSUB in.> 1\r\n')
        stream = {"name": "S", "subjects": ["q"], "storage": "file", "retention": "workqueue"}
        self._request(b"$JS.API.STREAM.CREATE.S", stream)
        config = {"durable_name": "C", "ack_policy": "explicit", "max_ack_pending": 10 * PREFETCH}
        self._request(b"$JS.API.CONSUMER.DURABLE.CREATE.S.C", {"stream_name": "S", "config": config})

    def _request(self, subject: bytes, content: object) -> None:
        self._publish(subject, json.dumps(content).encode())
        _, answer = self._message()
        if b'"error"' in answer:
            raise RuntimeError(answer.decode())

    def _publish(self, subject: bytes, content: bytes) -> None:
        self._connection.send(b"PUB %s in.a %d\r\n%s\r\n" % (subject, len(content), content))

    def publish(self, value: bytes) -> None:
        self._publish(b"q", value)

    def confirm(self, count: int) -> None:
        for _ in range(count):
            _, answer = self._message()
            if b'"error"' in answer:
                raise RuntimeError(answer.decode())

    def consume(self) -> Iterator[int]:
        ask = json.dumps({"batch": PREFETCH, "expires": 5_000_000_000}).encode()
        while True:
            self._publish(b"$JS.API.CONSUMER.MSG.NEXT.S.C", ask)
            places = [self._message()[0] for _ in range(PREFETCH)]
            self._connection.send(b"".join(b"PUB %s 4\r\n+ACK\r\n" % place for place in places))
            yield len(places)

    def _message(self) -> tuple[bytes, bytes]:
        """Reply subject and content of the next message."""
        while True:
            words = self._connection.line().split()
            if words[0] == b"PING":
                self._connection.send(b"PONG\r\n")
            elif words[0] in (b"MSG", b"HMSG"):
                content = self._connection.read(int(words[-1]) + 2)[:-2]
                place = 3 if words[0] == b"MSG" and len(words) == 5 else -1
                return (words[place] if place > 0 else b""), content
            elif words[0] == b"-ERR":
                raise RuntimeError(b" ".join(words).decode())


class AmqpClient:
    """AMQP 0-9-1 on one channel."""

    def __init__(self, port: int) -> None:
        self._connection = Connection(port)
        self._connection.send(b"AMQP\x00\x00\x09\x01")
        self._wait(10, 10)
        login = _long(b"\x00guest\x00guest")
        self._method(0, 10, 11, _long(b"") + _short(b"PLAIN") + login + _short(b"en_US"))
        self._wait(10, 30)
        self._method(0, 10, 31, struct.pack(">HIH", 1, 131_072, 0))
        self._method(0, 10, 40, _short(b"/") + b"\x00\x00")
        self._wait(10, 41)
        self._method(1, 20, 10, b"\x00")
        self._wait(20, 11)
        quorum = _long(_short(b"x-queue-type") + b"S" + _long(b"quorum"))
        self._method(1, 50, 10, b"\x00\x00" + _short(b"q") + b"\x02" + quorum)  # durable
        self._wait(50, 11)
        self._method(1, 85, 10, b"\x00")
        self._wait(85, 11)
        self._confirmed = self._published = 0

    def publish(self, value: bytes) -> None:
        self._published += 1
        method = struct.pack(">HHH", 60, 40, 0) + _short(b"") + _short(b"q") + b"\x00"
        header = struct.pack(">HHQHB", 60, 0, len(value), 0x1000, 2)  # persistent
        self._connection.send(_frame(1, 1, method) + _frame(2, 1, header) + _frame(3, 1, value))

    def confirm(self, count: int) -> None:
        wanted = min(self._published, self._confirmed + count)
        while self._confirmed < wanted:
            tag, is_multiple = struct.unpack(">QB", self._wait(60, 80))
            self._confirmed = max(self._confirmed, tag) if is_multiple else self._confirmed + 1

    def consume(self) -> Iterator[int]:
        self._method(1, 60, 10, struct.pack(">IHB", 0, PREFETCH, 0))
        self._wait(60, 11)
        self._method(1, 60, 20, b"\x00\x00" + _short(b"q") + _short(b"c") + b"\x00" + _long(b""))
        self._wait(60, 21)
        half = PREFETCH // 2
        while True:
            tags = [struct.unpack_from(">xxQ", self._wait(60, 60))[0] for _ in range(half)]
            sent = (struct.pack(">HHQB", 60, 80, tag, 0) for tag in tags)
            self._connection.send(b"".join(_frame(1, 1, method) for method in sent))
            yield half

    def _method(self, channel: int, number: int, method: int, arguments: bytes) -> None:
        self._connection.send(_frame(1, channel, struct.pack(">HH", number, method) + arguments))

    def _wait(self, number: int, method: int) -> bytes:
        """Arguments of the next method of this kind; other frames are the content of messages."""
        while True:
            kind, _, size = struct.unpack(">BHI", self._connection.read(7))
            content = self._connection.read(size + 1)[:-1]
            if kind != 1:
                continue
            found = struct.unpack_from(">HH", content)
            if found == (number, method):
                return content[4:]
            if found[1] in (40, 50) and found[0] in (10, 20):
                raise RuntimeError(f"closed: {content[4:]!r}")


def _short(text: bytes) -> bytes:
    return bytes((len(text),)) + text


def _long(text: bytes) -> bytes:
    return struct.pack(">I", len(text)) + text


def _frame(kind: int, channel: int, content: bytes) -> bytes:
    return struct.pack(">BHI", kind, channel, len(content)) + content + b"\xce"


class ShareGroupClient:
    """Kafka's protocol: Produce, and a member of a share group that names each offset by itself."""

    def __init__(self, port: int, *, is_batched: bool = False) -> None:
        self._is_batched = is_batched
        bootstrap = f"127.0.0.1:{port}"
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic("q", 1, 1)])["q"].result(30)
        configure(bootstrap, "g")
        self._topic_id = find_topic_id(bootstrap, "q")
        self._connection = Connection(port)
        self._values: list[bytes] = []
        deadline = time.monotonic() + 30
        while (
            read_heartbeat(self._ask(heartbeat_request(1, "g", "member", "q")))
            and time.monotonic() < deadline
        ):
            time.sleep(0.05)

    def publish(self, value: bytes) -> None:
        self._values.append(value)

    def confirm(self, count: int) -> None:
        """Send the messages in one batch, as a producer that lingers, or each in its own, and wait for all."""
        values, self._values = self._values, []
        batches = [values] if self._is_batched else [[value] for value in values]
        now_ms = int(time.time() * 1000)
        sent = (produce_request(1, "q", 0, record_batch(each, now_ms)) for each in batches)
        self._connection.send(b"".join(sent))
        for _ in batches:
            if code := read_produce(self._answer()).error_code:
                raise RuntimeError(f"error code {code}")

    def consume(self) -> Iterator[int]:
        named: dict[int, list[tuple[int, int]]] = {0: []}
        for epoch in itertools.count():
            place = "g", "member", epoch, self._topic_id, named
            answer = read_share_fetch(self._ask(share_fetch_request(1, *place, PREFETCH, 1_000)))
            if answer.error_code or answer.acknowledge_errors:
                raise RuntimeError(f"the member got {answer}")
            yield sum(map(len, named.values()))
            named = {}
            for partition, first, last in answer.acquired:
                offsets = ((offset, offset) for offset in range(first, last + 1))
                named.setdefault(partition, []).extend(offsets)

    def _ask(self, request: bytes) -> bytes:
        self._connection.send(request)
        return self._answer()

    def _answer(self) -> bytes:
        return self._connection.read(struct.unpack(">i", self._connection.read(4))[0])


CLIENTS: dict[str, Callable[[int], QueueClient]] = {
    "redis": RedisClient,
    "nats": NatsClient,
    "amqp": AmqpClient,
    "kafka": ShareGroupClient,
    "kafka-batches": partial(ShareGroupClient, is_batched=True),
}


def measure(protocol: str, port: int, count: int, synchronous: int, size: int) -> Figures:
    client = CLIENTS[protocol](port)
    values = random_values(size)
    times = []
    for number in range(synchronous):
        began = time.perf_counter()
        client.publish(values[number % len(values)])
        client.confirm(1)
        times.append(1_000_000 * (time.perf_counter() - began))
    for start in range(synchronous, count, IN_FLIGHT):
        for number in range(IN_FLIGHT):
            client.publish(values[(start + number) % len(values)])
        client.confirm(IN_FLIGHT)
    done, began = 0, time.perf_counter()
    for acknowledged in client.consume():
        done += acknowledged
        if done >= count:
            break
    return {"per_s": done / (time.perf_counter() - began), "publish_p50_us": percentile(times, 0.5)}


if __name__ == "__main__":
    drive(measure)
