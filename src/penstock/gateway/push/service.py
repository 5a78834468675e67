"""Push: topics as server-sent events and over WebSockets, for single readers and for members of consumer
groups; queues and mailboxes over WebSockets.

A gateway has one `PushService`, which adds endpoints and sockets to those of the gateway. It opens streams and
keeps track of them. The other modules of this package read, send and acknowledge events.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from itertools import count
from typing import Any

from starlette.responses import Response
from starlette.routing import BaseRoute, WebSocketRoute
from starlette.types import Send

from penstock.filters.shared_names import shared_view_name
from penstock.gateway.endpoint_context import EndpointContext
from penstock.gateway.http.endpoint import Call, Endpoint
from penstock.gateway.http.problems import Problem
from penstock.gateway.http.responses import json_response
from penstock.gateway.push.endpoints import (
    CLIENT_MESSAGE,
    MAX_WINDOW,
    SOCKET_ENDPOINT,
    STARTS,
    push_endpoints,
)
from penstock.gateway.push.feed import Feeds
from penstock.gateway.push.group_stream import GroupStream
from penstock.gateway.push.handshake import Handshake, SocketEndpoint, SocketSession
from penstock.gateway.push.json_message import render_mail, render_message
from penstock.gateway.push.mailbox_push import open_mailbox
from penstock.gateway.push.open_streams import OpenStreams
from penstock.gateway.push.position import ForeignPosition, Positions, decode_positions
from penstock.gateway.push.queue_push import QueuePush
from penstock.gateway.push.remote_acknowledgement import acknowledge_elsewhere
from penstock.gateway.push.socket_endpoints import MAILBOX_SOCKET, QUEUE_SOCKET, SOCKET_ENDPOINTS
from penstock.gateway.push.socket_messages import invalid
from penstock.gateway.push.sources import GroupSource, MailboxSource, SingleSource
from penstock.gateway.push.sse import EventSource, EventStream
from penstock.gateway.push.stream import PushStream
from penstock.gateway.push.websocket import SocketStream
from penstock.gateway.records import Limits
from penstock.internal_client.group_membership import GroupMembership
from penstock.internal_client.records import EARLIEST, LATEST
from penstock.internal_client.topic_routes import TopicRoute
from penstock.net.acting import own_requests

COMMIT_SECONDS = 10.0
MAX_PARTITIONS = 1_000
"""Maximum number of partitions of a stream without a group, because the id of each event contains all of them."""


class PushService:
    def __init__(self, context: EndpointContext, id_prefix: str) -> None:
        """Create the service. Ids of group members begin with `id_prefix`, which is unique among gateways."""
        self._context = context
        self._mailbox = context.mailbox
        self._id_prefix = id_prefix
        self._numbers = count(1)
        self._feeds = Feeds(context.backend.records, render_message)
        self._coordinator = GroupMembership(context.backend.routes)
        self._streams = OpenStreams(context.backend.topics)
        self._groups: dict[tuple[str, str], set[GroupStream]] = {}
        self.queues = QueuePush(context)

    @property
    def open_streams(self) -> int:
        return len(self._streams)

    @property
    def events_sent(self) -> int:
        return self._feeds.events_taken

    async def close(self) -> None:
        await self.queues.close()
        self._streams.close()
        self._feeds.close()

    def endpoints(self) -> Sequence[Endpoint]:
        return (*push_endpoints(self), *SOCKET_ENDPOINTS)

    def sockets(self) -> Sequence[BaseRoute]:
        opened: tuple[tuple[Endpoint, Callable[[Handshake], Awaitable[SocketSession]]], ...] = (
            (SOCKET_ENDPOINT, self._open_socket),
            (QUEUE_SOCKET, self.queues.open),
            (MAILBOX_SOCKET, open_mailbox),
        )
        return [
            WebSocketRoute(
                endpoint.path, SocketEndpoint(endpoint, self._context, self._next_id, open_session)
            )
            for endpoint, open_session in opened
        ]

    def _next_id(self) -> str:
        return f"{self._id_prefix}-s{next(self._numbers):x}"

    # --- endpoints

    async def events(self, call: Call) -> Response:
        source, _ = await self._open(call.parameters, call.request_id)
        return EventStream(source, call.request_id)

    async def mailbox_events(self, call: Call) -> Response:
        user_id = call.parameters["user_id"]
        last = call.parameters.get("Last-Event-ID") or call.parameters.get("last_message_id")
        # One message is read first, so that errors are reported before the stream begins.
        with own_requests():
            await self._mailbox.receive(user_id, last, Limits(1, 1), 0)
        return EventStream(MailboxSource(self._mailbox, user_id, last, render_mail), call.request_id)

    async def acknowledge(self, call: Call) -> Response:
        group, name = call.parameters["group"], call.parameters["topic"]
        if "filter" in call.parameters:
            name = shared_view_name(name, call.parameters["filter"])
        topic = await self._context.backend.topics.get(name)
        positions = _read_positions(topic, call.body["id"])
        return json_response({"partitions": sorted(await self._acknowledge(group, topic, positions))})

    async def _open_socket(self, handshake: Handshake) -> SocketStream:
        parameters = {**handshake.parameters, "window": MAX_WINDOW}
        source, group_stream = await self._open(parameters, handshake.request_id)

        async def acknowledge(asked: dict[str, Any], send: Send) -> None:
            if "ack" not in asked:
                return
            if group_stream is None:
                raise invalid("only streams of a group can be acknowledged")
            group_stream.acknowledge(_read_positions(group_stream.stream.topic, asked["ack"]))

        return SocketStream(source, CLIENT_MESSAGE, acknowledge, handshake.request_id)

    async def _acknowledge(self, group: str, topic: TopicRoute, positions: Positions) -> set[int]:
        """Acknowledge positions of a group. Returns the partitions of streams at this gateway, and those whose
        committed offset is at the position or beyond it.
        """
        taken: set[int] = set()
        async with asyncio.timeout(COMMIT_SECONDS):
            for stream in tuple(self._groups.get((group, topic.name), ())):
                taken.update(stream.acknowledge(positions))
                await stream.until_committed()
            left = {partition: positions[partition] for partition in positions.keys() - taken}
            if left:
                ends = await self._context.backend.records.offsets(topic.name, sorted(left), LATEST)
                if any(offset > ends[partition] for partition, offset in left.items()):
                    raise invalid("the id is not that of a stored message")
                taken |= await acknowledge_elsewhere(self._coordinator, group, topic, left)
        return taken

    # --- opening streams

    async def _open(
        self, parameters: Mapping[str, Any], request_id: str
    ) -> tuple[EventSource, GroupStream | None]:
        topic = await self._context.backend.topics.get(await self._topic_name(parameters))
        last = parameters.get("Last-Event-ID") or parameters.get("last_event_id")
        seen = _read_positions(topic, last) if last else {}
        if "group" in parameters:
            return await self._open_group(topic, parameters, seen, request_id)
        stream = PushStream(self._feeds, topic, reads_all="partition" not in parameters)
        stream.read_from(await self._begin(topic, parameters, seen))
        self._streams.add(stream)
        return SingleSource(stream, partial(self._streams.discard, stream)), None

    async def _topic_name(self, parameters: Mapping[str, Any]) -> str:
        """Return the name of the topic to read: with a filter, it is the shared view of the topic."""
        name: str = parameters["topic"]
        if "filter" not in parameters:
            return name
        return await self._context.backend.views.share(name, parameters["filter"])

    async def _open_group(
        self, topic: TopicRoute, parameters: Mapping[str, Any], seen: Positions, request_id: str
    ) -> tuple[EventSource, GroupStream]:
        if "partition" in parameters or "offset" in parameters:
            raise invalid(
                "partition and offset cannot be given with a group, which assigns partitions and keeps offsets"
            )
        backend, group = self._context.backend, parameters["group"]
        start = STARTS[parameters.get("from", "earliest")]
        if seen:
            await self._acknowledge(group, topic, seen)
        joined = GroupStream(self._feeds, topic, backend.routes, group, request_id, start)
        try:
            await joined.join()
        except BaseException:
            # Leave the group: it may have added the member, and a rebalance would wait for it.
            await joined.close()
            raise
        self._streams.add(joined.stream)
        others = self._groups.setdefault((group, topic.name), set())
        for other in others:
            other.heartbeat_soon()
        others.add(joined)
        return GroupSource(joined, parameters["window"], partial(self._forget, joined)), joined

    def _forget(self, stream: GroupStream) -> None:
        self._streams.discard(stream.stream)
        key = stream.group, stream.stream.topic.name
        self._groups[key].discard(stream)
        if not self._groups[key]:
            del self._groups[key]

    async def _begin(
        self, topic: TopicRoute, parameters: Mapping[str, Any], seen: Positions
    ) -> Mapping[int, int]:
        partitions = range(len(topic.partitions))
        if "partition" in parameters:
            partition = parameters["partition"]
            if partition not in partitions:
                raise Problem(
                    404,
                    f"there is no partition {partition} of {topic.name}; it has {len(partitions)} partitions",
                    error="UNKNOWN_TOPIC_OR_PARTITION",
                )
            partitions = range(partition, partition + 1)
        elif "offset" in parameters:
            raise invalid("an offset needs a partition")
        if len(partitions) > MAX_PARTITIONS:
            raise invalid(f"more than {MAX_PARTITIONS} partitions: read them one by one, or as a group")
        if "offset" in parameters and not seen:
            return {parameters["partition"]: parameters["offset"]}
        # A partition missing in the event's id was added later than the event, and is read from its start.
        start = EARLIEST if seen else STARTS[parameters.get("from", "latest")]
        begin = {**(self._feeds.known_ends(topic, partitions) if start == LATEST else {}), **seen}
        unknown = [partition for partition in partitions if partition not in begin]
        begin |= await self._context.backend.records.offsets(topic.name, unknown, start)
        return {partition: begin[partition] for partition in partitions}


def _read_positions(topic: TopicRoute, text: str) -> Positions:
    try:
        return decode_positions(topic.id, text)
    except ForeignPosition:
        raise invalid("this is not the id of an event of this topic; leave it out to start over") from None
