"""Endpoints for messages of any topic: produce one or many, read by offset, by time and by key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import count
from typing import Any

from starlette.responses import Response

from penstock.config import GATEWAY_MAX_WAIT_MS, INDEX_BY_KEY
from penstock.config.resources import ConfigResourceType
from penstock.errors import BrokerError, ErrorCode
from penstock.gateway.authorization import on_topic
from penstock.gateway.backend import Backend
from penstock.gateway.delays import has_delay, require_delays
from penstock.gateway.http.endpoint import JSON, OCTETS, Call, DeclaredResponse, Endpoint, header, path, query
from penstock.gateway.http.problems import Problem, problem_of
from penstock.gateway.http.responses import json_response
from penstock.gateway.http.shared_schemas import (
    IDEMPOTENCY_KEY,
    INTEGER,
    LONG_MAX,
    OFFSET,
    PARTITION,
    TOPIC_NAME,
    an_array,
    an_object,
)
from penstock.gateway.key_reading import parse_positions, read_key
from penstock.gateway.message_forms import (
    MAX_MESSAGES,
    MESSAGE,
    NEW_MESSAGE,
    read_framed,
    read_message,
    show_record,
)
from penstock.gateway.newest_reading import MAX_NEWEST, read_newest
from penstock.gateway.placing import produce_placed
from penstock.gateway.records import Limits
from penstock.gateway.topic_reading import check_partition_count, read_all
from penstock.internal_client.partitioner import partition_for
from penstock.internal_client.records import EARLIEST
from penstock.net.acting import own_requests
from penstock.records.building import NewRecord
from penstock.records.iteration import Record

TAG = "Messages"
FRAMED = "application/vnd.penstock.messages"
IDEMPOTENCY_HEADER = "penstock-idempotency-key"
MAX_PAGE_BYTES = 1024 * 1024
_TOPIC = path("topic", TOPIC_NAME, "The topic.")
_KEY = {"type": "string", "maxLength": 10_000}
_POSITIONS = {"type": "string", "minLength": 1, "maxLength": 7_000}
_turns = count()
"""Counter that selects the partition of messages without a key: each request takes the next partition."""


async def produce(call: Call) -> Response:
    name = call.parameters["topic"]
    records, chosen = _read(call)
    partitions = (await call.context.backend.topics.get(name)).active_count
    if any(partition is not None and partition >= partitions for partition in chosen):
        # The known metadata may be older than an increase of the partitions.
        partitions = (await call.context.backend.topics.get(name, fresh=True)).active_count
    turn = next(_turns)
    places = [
        _place(record, partitions, turn=turn) if partition is None else partition
        for record, partition in zip(records, chosen, strict=True)
    ]
    for place, partition in enumerate(places):
        if partition >= partitions:
            raise Problem(
                404,
                f"{name} has {partitions} partitions, from 0 to {partitions - 1}",
                error="UNKNOWN_TOPIC_OR_PARTITION",
                pointer=f"/messages/{place}/partition",
            )
    backend, key = call.context.backend, call.parameters.get("Idempotency-Key")
    if has_delay(record.headers for record in records):
        with own_requests():  # a client with WRITE may lack the right to read configs
            await require_delays(backend, name)
    if key is not None:
        record = await _with_idempotency_key(backend, name, records, key)
        return answer_stored(places, [await backend.records.produce(name, places[0], record, is_alone=True)])
    if any(partition is not None for partition in chosen):
        outcomes = await backend.records.produce_many(name, list(zip(places, records, strict=True)))
    else:
        places, outcomes = await produce_placed(backend, name, records, partial(_place, turn=turn))
    return answer_stored(places, outcomes)


def _place(record: NewRecord, partitions: int, *, turn: int) -> int:
    return turn % partitions if record.key is None else partition_for(record.key, partitions)


def _read(call: Call) -> tuple[list[NewRecord], list[int | None]]:
    """Return the records of a request, and for each the partition in the request, or None."""
    now_ms = call.context.clock.now_ms()
    asked = call.parameters.get("partition")
    key = call.parameters.get("key")
    if call.content_type == OCTETS:
        record = NewRecord(None if key is None else key.encode(), call.body, now_ms)
        return [record], [asked]
    if key is not None:
        raise Problem(400, f"the query parameter key needs a body of type {OCTETS}", error="INVALID_REQUEST")
    if call.content_type == FRAMED:
        records = read_framed(call.body, now_ms)
        return records, [asked] * len(records)
    messages = call.body["messages"]
    records = [read_message(message, place, now_ms) for place, message in enumerate(messages)]
    return records, [message.get("partition", asked) for message in messages]


async def _with_idempotency_key(
    backend: Backend, topic: str, records: Sequence[NewRecord], key: str
) -> NewRecord:
    if len(records) != 1 or records[0].key is None:
        raise Problem(
            400, "an Idempotency-Key needs exactly one message, with a key", error="INVALID_REQUEST"
        )
    with own_requests():  # a client with WRITE may lack the right to read configs
        entries = await backend.configs.get(ConfigResourceType.TOPIC, topic)
    if not any(entry.name == INDEX_BY_KEY.name and entry.value == "true" for entry in entries):
        raise Problem(
            400,
            f"an Idempotency-Key needs a topic with {INDEX_BY_KEY.name}=true",
            error="INVALID_REQUEST",
        )
    [record] = records
    headers = (*record.headers, (IDEMPOTENCY_HEADER, key.encode()))
    return NewRecord(record.key, record.value, record.timestamp, headers)


def answer_stored(places: Sequence[int], outcomes: Sequence[int | Exception]) -> Response:
    """Return the response with the partition and offset of each message; raises Problem if some were not stored."""
    failures = [each for each in outcomes if isinstance(each, Exception)]
    if not failures:
        stored = [
            {"partition": partition, "offset": offset}
            for partition, offset in zip(places, outcomes, strict=True)
        ]
        return json_response({"messages": stored})
    problem = problem_of(failures[0])
    if problem is None:
        raise failures[0]
    if len(outcomes) > 1:
        problem.extra["messages"] = [
            _outcome(partition, outcome) for partition, outcome in zip(places, outcomes, strict=True)
        ]
        problem.detail = f"{len(failures)} of {len(outcomes)} messages were not stored: {problem.detail}"
    raise problem


def _outcome(partition: int, outcome: int | Exception) -> dict[str, Any]:
    if isinstance(outcome, int):
        return {"partition": partition, "offset": outcome}
    problem = problem_of(outcome)
    if problem is None:
        raise outcome
    return {"partition": partition, "error": problem.error, **problem.extra}


async def read(call: Call) -> Response:
    asked = call.parameters
    name, backend = asked["topic"], call.context.backend
    limits = Limits(asked["limit"], MAX_PAGE_BYTES)
    wait_ms = min(round(asked["wait"] * 1000), call.context.config[GATEWAY_MAX_WAIT_MS])
    beginnings = asked.keys() & {"offset", "time_ms", "positions", "newest"}
    if len(beginnings) > 1:
        raise Problem(400, f"give only one of {' and '.join(sorted(beginnings))}", error="INVALID_REQUEST")
    if "newest" in asked:
        return await _read_newest(call)
    key = asked["key"].encode() if "key" in asked else None
    partition = asked.get("partition")
    try:
        if partition is None:
            return await _read_partitions(call, key, limits, wait_ms)
        if "positions" in asked:
            raise Problem(
                400,
                "positions cover all partitions: give either positions or partition",
                error="INVALID_REQUEST",
            )
        offset = asked["offset"] if "offset" in asked else (await _starts(call, [partition]))[partition]
        if key is None:
            page = await backend.records.read(name, partition, offset, limits, wait_ms)
            more = {"log_start_offset": page.log_start_offset, "high_watermark": page.high_watermark}
            return _page(page.records, partition, page.next_offset, **more)
        found = await backend.records.read_key(name, partition, key, offset, limits, wait_ms)
        return _page(found.records, partition, found.next_offset)
    except BrokerError as error:
        if key is None or error.code is not ErrorCode.invalid_request:
            raise
        raise Problem(
            400,
            f"reading by key needs a topic with {INDEX_BY_KEY.name}=true; PATCH /v1/topics/{name}/configs sets it",
            error="INVALID_REQUEST",
        ) from None


async def _read_newest(call: Call) -> Response:
    asked, backend = call.parameters, call.context.backend
    if "key" in asked:
        raise Problem(400, "give either newest or key", error="INVALID_REQUEST")
    partitions = range(len((await backend.topics.get(asked["topic"], fresh=True)).partitions))
    if "partition" in asked:
        partitions = range(asked["partition"], asked["partition"] + 1)
    check_partition_count(len(partitions))
    found = await read_newest(backend.records, asked["topic"], partitions, asked["newest"])
    messages = [show_record(record, partition) for partition, record in found.found]
    return json_response({"messages": messages, "positions": found.positions})


async def _read_partitions(call: Call, key: bytes | None, limits: Limits, wait_ms: int) -> Response:
    """Read all partitions of the topic, for one key or for all."""
    asked, backend = call.parameters, call.context.backend
    if "offset" in asked:
        raise Problem(
            400, "an offset needs a partition: give partition too, or positions", error="INVALID_REQUEST"
        )
    partitions = range(len((await backend.topics.get(asked["topic"], fresh=True)).partitions))
    known = parse_positions(asked.get("positions", ""))
    if key is not None:
        starts = dict.fromkeys(partitions, 0)
        if "time_ms" in asked:
            starts = dict(await _starts(call, partitions))
        starts |= {partition: offset for partition, offset in known.items() if partition in starts}
        found = await read_key(backend.records, asked["topic"], starts, key, limits, wait_ms)
    else:
        check_partition_count(len(partitions))
        unknown = await _starts(call, [each for each in partitions if each not in known])
        starts = {each: known[each] if each in known else unknown[each] for each in partitions}
        found = await read_all(backend.records, call.context.clock, asked["topic"], starts, limits, wait_ms)
    messages = [show_record(record, partition) for partition, record in found.found]
    return json_response({"messages": messages, "positions": found.positions})


async def _starts(call: Call, partitions: Sequence[int]) -> Mapping[int, int]:
    time_ms = call.parameters.get("time_ms", EARLIEST)
    return await call.context.backend.records.offsets(call.parameters["topic"], partitions, time_ms)


def _page(records: Sequence[Record], partition: int, next_offset: int, **more: int) -> Response:
    messages = [show_record(record, partition) for record in records]
    return json_response({"messages": messages, "partition": partition, "next_offset": next_offset, **more})


_STORED = an_object({"messages": an_array(an_object({"partition": INTEGER, "offset": INTEGER}))})
_PAGE = an_object(
    {
        "messages": an_array(MESSAGE),
        "partition": INTEGER,
        "next_offset": {"type": "integer", "description": "The offset to read on from."},
        "log_start_offset": INTEGER,
        "high_watermark": INTEGER,
        "positions": {
            "type": "string",
            "description": "Without a partition: send it as `positions` to read on.",
        },
    },
    required=("messages",),
)

ENDPOINTS = (
    Endpoint(
        "POST",
        "/v1/topics/{topic}/messages",
        "produce",
        TAG,
        "Write messages; the answer comes when all are stored durably. A binary body is the value of one message, or "
        f"many, each with lengths before key and value ({FRAMED}).",
        produce,
        {200: DeclaredResponse("Partitions and offsets, in the order of the messages.", _STORED)},
        parameters=(
            _TOPIC,
            query(
                "partition",
                PARTITION,
                "Partition of messages without one of their own; chosen by the key unless given.",
            ),
            query("key", _KEY, "Key of a message whose value is the body."),
            header(
                "Idempotency-Key",
                IDEMPOTENCY_KEY,
                "For one message: it is stored once, however often it is sent.",
            ),
        ),
        bodies={
            JSON: an_object({"messages": an_array(NEW_MESSAGE, minItems=1, maxItems=MAX_MESSAGES)}),
            OCTETS: None,
            FRAMED: None,
        },
        is_plain=True,
        needs=(on_topic("WRITE"),),
    ),
    Endpoint(
        "GET",
        "/v1/topics/{topic}/messages",
        "read",
        TAG,
        "Read messages: of all partitions, of one, or of one key; from the oldest, from a time or an offset on.",
        read,
        {200: DeclaredResponse("Messages, in order.", _PAGE)},
        parameters=(
            _TOPIC,
            query("partition", PARTITION, "Only messages of this partition; all partitions unless given."),
            query("offset", OFFSET, "The first offset to read; the oldest message unless given."),
            query(
                "time_ms",
                {"type": "integer", "minimum": 0, "maximum": LONG_MAX},
                "Begin with the first message at or after this time.",
            ),
            query("key", _KEY, "Only messages with this key; the topic needs index.by.key."),
            query(
                "positions",
                _POSITIONS,
                "Without a partition: the `positions` of the last response, to read on from there.",
            ),
            query(
                "newest",
                {"type": "integer", "minimum": 1, "maximum": MAX_NEWEST},
                "The newest messages, this many, the newest first; `positions` continue behind them.",
            ),
            query(
                "limit",
                {"type": "integer", "minimum": 1, "maximum": 1_000, "default": 100},
                "The maximum number of messages in the response.",
            ),
            query(
                "wait",
                {"type": "number", "minimum": 0, "maximum": 3_600, "default": 0},
                "Seconds to wait for a message where there is none.",
            ),
        ),
        is_stream=True,
        needs=(on_topic("READ"),),
    ),
)
