"""A gateway without a cluster, whose connections a test feeds with bytes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.clock import SystemClock
from penstock.config import BrokerConfig
from penstock.errors import BrokerError, ErrorCode
from penstock.gateway.endpoint_context import EndpointContext
from penstock.gateway.gateway import RESOURCES
from penstock.gateway.http.application import GatewayApplication
from penstock.gateway.http.connection import HttpConnection
from penstock.gateway.http.plain_exchange import PlainHttpExchange
from penstock.gateway.http.server import HttpServer
from penstock.gateway.mailbox import MailboxMessage
from penstock.gateway.reply import Reply
from penstock.internal_client.errors import OutcomeUnknown
from penstock.observability.log_lines import json_line
from penstock.observability.logs import Logger
from penstock.observability.metrics import BrokerMetrics
from penstock.threads import ThreadPools

MAX_JSON_BYTES = 2_000


class Wire(asyncio.Transport):
    """A transport that keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = b""
        self.is_closed = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"peername": ("192.0.2.1", 1_000), "sockname": ("192.0.2.2", 80)}.get(name, default)

    def write(self, data: Any) -> None:
        assert not self.is_closed
        self.written += data

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_closed = True

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


class Topic:
    partitions = (0,)
    active_count = 1


class Cluster:
    """A backend, its topics, records and mailboxes: fails for names that ask for it."""

    def __init__(self, *, begins: bool) -> None:
        self.topics = self.records = self
        self.calls: list[Any] = []
        self.begins = begins
        self.gave_up = 0

    async def get(self, name: str, fresh: bool = False) -> Topic:
        self._note("get", name)
        return Topic()

    async def produce_many(self, topic: str, records: Sequence[Any]) -> Sequence[int]:
        self._note(topic, [(partition, record.key, record.value) for partition, record in records])
        return list(range(len(records)))

    async def send(
        self, from_user: str, to_user: str, message: str, key: str | None, delay: Sequence[Any] = ()
    ) -> str:
        self._note(to_user, from_user, message, key)
        await asyncio.sleep(0)
        return f"id of {message[:10]}"

    async def receive(self, user: str, last: str | None, limits: Any, wait_ms: int) -> list[MailboxMessage]:
        self._note(user, last, tuple(limits), wait_ms)
        return [MailboxMessage("1", "é", user, "\x00", 0)]

    def begin_send(
        self, from_user: str, to_user: str, message: str, key: str | None, reply: Reply[str]
    ) -> bool:
        if self.begins:
            self._begin(reply, f"id of {message[:10]}", to_user, from_user, message, key)
        return self.begins

    def begin_receive(
        self, user: str, last: str | None, limits: Any, wait_ms: int, reply: Reply[list[MailboxMessage]]
    ) -> Cluster | None:
        if not self.begins:
            return None
        self._begin(reply, [MailboxMessage("1", "é", user, "\x00", 0)], user, last, tuple(limits), wait_ms)
        return self

    def cancel(self) -> None:
        self.gave_up += 1

    def _begin(self, reply: Reply[Any], result: Any, name: str, *more: Any) -> None:
        try:
            self._note(name, *more)
        except (BrokerError, OutcomeUnknown, ZeroDivisionError) as error:
            reply.set_exception(error)
        else:
            asyncio.get_running_loop().call_soon(reply.set_result, result)

    def _note(self, name: str, *more: Any) -> None:
        self.calls.append((name, *more))
        if name == "missing":
            raise BrokerError(ErrorCode.unknown_topic_or_partition, "there is no such topic")
        if name == "unknown":
            raise OutcomeUnknown("the connection was lost")
        if name == "broken":
            raise ZeroDivisionError


class Side:
    """A gateway without a cluster, with plain requests or without."""

    def __init__(
        self, *, has_plain: bool, begins: bool = True, config: Mapping[str, str] | None = None
    ) -> None:
        self.cluster: Any = Cluster(begins=begins)
        self.metrics = BrokerMetrics({}, 1)
        log = Logger(SystemClock(), lambda line: None, json_line)
        settings = {"gateway.json.max.bytes": str(MAX_JSON_BYTES), **(config or {})}
        cluster: Any = self.cluster
        context = EndpointContext(
            cluster,
            BrokerConfig(settings),
            SystemClock(),
            ThreadPools(),
            log,
            cluster,
            cluster,
            lambda host, operation, kind, name: name != "secret",
        )
        self.application = GatewayApplication(context, RESOURCES, [], self.metrics, "test")
        plain_app = self.application if has_plain else None
        self.server = HttpServer(self.application, plain_app=plain_app)
        self.plain_requests = 0

    async def ask(self, pieces: Sequence[bytes]) -> tuple[bytes, bool]:
        connection = self.server._make_protocol()
        assert isinstance(connection, HttpConnection)
        wire = Wire()
        connection.connection_made(wire)
        for piece in pieces:
            connection.data_received(piece)
            self.plain_requests += isinstance(connection.cycle, PlainHttpExchange)
            for _ in range(4):
                await asyncio.sleep(0)
        while not connection.is_idle and connection.body_since is None:
            await asyncio.sleep(0.001)
        written = wire.written, wire.is_closed
        connection.connection_lost(None)
        while self.application._serving:
            await asyncio.sleep(0)
        return written

    def counted(self) -> Any:
        return (
            dict(self.metrics.http_answers.counts),
            {name: sum(each.counts) for name, each in self.metrics.http_requests.items()},
            self.application.limits.open_requests,
            self.application.limits.refusals,
            self.application.limits._bytes,
        )


def request(
    method: str = "POST",
    target: str = "/send",
    body: bytes = b'{"from_user":"a","to_user":"b","message":"c"}',
    version: str = "1.1",
    headers: Sequence[tuple[str, str]] = (("Host", "x"), ("Content-Type", "application/json")),
    length: int | None = None,
) -> bytes:
    lines = [f"{method} {target} HTTP/{version}", *(f"{name}: {value}" for name, value in headers)]
    if body or length is not None:
        lines.append(f"Content-Length: {len(body) if length is None else length}")
    return "\r\n".join([*lines, "", ""]).encode("utf-8", "surrogateescape") + body


HOST = ("Host", "x")
JSON_TYPE = ("Content-Type", "application/json")
