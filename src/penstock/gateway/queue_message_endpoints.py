"""Endpoints for the messages of queues: send, receive, settle and peek."""

from __future__ import annotations

from base64 import b64encode
from itertools import count
from typing import Any, Final

from starlette.responses import Response

from penstock.config import GATEWAY_MAX_WAIT_MS
from penstock.config.resources import ConfigResourceType
from penstock.config.retry_backoff import MAX_DELAY_MS
from penstock.errors import BrokerError, ErrorCode
from penstock.gateway.http.endpoint import JSON, Call, DeclaredResponse, Endpoint, query
from penstock.gateway.http.problems import Problem, problem_of
from penstock.gateway.http.responses import json_response
from penstock.gateway.http.shared_schemas import INTEGER, NUMBER, STRING, an_array, an_object
from penstock.gateway.message_endpoints import answer_stored
from penstock.gateway.message_forms import show_bytes
from penstock.gateway.placing import produce_placed
from penstock.gateway.queue_endpoints import LOCK, QUEUE, TAG, on_queue
from penstock.internal_client.partitioner import partition_for
from penstock.internal_client.queue_contents import decode_content, encode_content, option_headers
from penstock.internal_client.queue_messages import ReceivedMessage, Settlement
from penstock.internal_client.receipts import parse_receipt
from penstock.records.building import NewRecord
from penstock.wire.queue_receive import GROUP_LOCK
from penstock.wire.queue_settle import GROUP_DELAY

MAX_MESSAGES: Final = 1_000
ACTIONS: Final = {"accept": 1, "release": 2, "reject": 3, "extend": 4}
_DELAY_CONFIG: Final = "delivery.delay"
_DELAY = {"type": "integer", "minimum": 0, "maximum": MAX_DELAY_MS}
_turns = count()
"""Counter that selects the partition of messages without a key: each message takes the next partition."""


async def send(call: Call) -> Response:
    queue = call.parameters["queue"]
    topic = (await call.context.backend.queues.get_known(queue)).sent_to
    await call.require("WRITE", "TOPIC", topic)
    messages, now_ms = call.body["messages"], call.context.clock.now_ms()
    if any("delay_ms" in message for message in messages):
        await _require_delay(call, topic)
    records = [new_record(message, f"/messages/{place}", now_ms) for place, message in enumerate(messages)]
    places, outcomes = await produce_placed(call.context.backend, topic, records, choose_partition)
    return answer_stored(places, [_with_status(each) for each in outcomes])


def _with_status(outcome: int | Exception) -> int | Exception:
    """Return the outcome of a send; the error of a full queue is replaced by a Problem with status 429."""
    if isinstance(outcome, BrokerError) and outcome.code is ErrorCode.policy_violation:
        error = outcome.code.name.upper()
        return Problem(429, str(outcome), error=error, retriable=True, headers={"retry-after": "1"})
    return outcome


async def _require_delay(call: Call, topic: str) -> None:
    entries = await call.context.backend.configs.get(ConfigResourceType.TOPIC, topic)
    if not any(entry.name == _DELAY_CONFIG and entry.value == "true" for entry in entries):
        raise Problem(
            400,
            f"delay_ms needs a topic that was created with {_DELAY_CONFIG}=true; {topic} was not",
            error="INVALID_REQUEST",
        )


def choose_partition(record: NewRecord, partitions: int) -> int:
    return next(_turns) % partitions if record.key is None else partition_for(record.key, partitions)


def new_record(message: dict[str, Any], pointer: str, now_ms: int) -> NewRecord:
    """Return the record for a message in JSON form; raises Problem with a JSON pointer if the message is invalid."""
    try:
        value, content_type = encode_content(message.get("value"))
    except (TypeError, ValueError) as error:
        raise Problem(
            400,
            f"{pointer}/value: {error}",
            error="INVALID_RECORD",
            pointer=f"{pointer}/value",
        ) from None
    key = message.get("key")
    own = tuple((name, text.encode()) for name, text in message.get("headers", {}).items())
    headers = (*content_type, *option_headers(message), *own)
    return NewRecord(None if key is None else key.encode(), value, now_ms, headers)


async def receive(call: Call) -> Response:
    body = call.body or {}
    queue = call.parameters["queue"]
    topic = await _topic_for_reading(call, queue)
    wait_ms = min(round(body.get("wait", 0) * 1000), call.context.config[GATEWAY_MAX_WAIT_MS])
    lock_ms = max(1, round(body["lock_s"] * 1000)) if "lock_s" in body else GROUP_LOCK
    found = await call.context.backend.queue_messages.receive(
        queue, topic, body.get("max", 1), wait_ms, lock_ms
    )
    return json_response({"messages": [show_received(each) for each in found]})


async def settle(call: Call) -> Response:
    queue = call.parameters["queue"]
    topic = await _topic_for_reading(call, queue)
    asked = call.body["settlements"]
    errors: list[BrokerError | Problem | None] = [None] * len(asked)
    chosen: list[tuple[int, Settlement]] = []
    for place, each in enumerate(asked):
        try:
            chosen.append((place, read_settlement(each)))
        except ValueError as error:
            errors[place] = Problem(400, str(error), error="INVALID_RECORD_STATE")
    results = await call.context.backend.queue_messages.settle(queue, topic, [each for _, each in chosen])
    for (place, _), result in zip(chosen, results, strict=True):
        errors[place] = result
    return json_response(
        {"results": [show_result(each["receipt"], error) for each, error in zip(asked, errors, strict=True)]}
    )


def read_settlement(asked: dict[str, Any]) -> Settlement:
    """Parse a settlement that matches the schema `SETTLEMENT`; raises ValueError if its receipt is malformed."""
    action = ACTIONS[asked["action"]]
    delay_ms = asked.get("delay_ms", GROUP_DELAY)
    if "lock_s" in asked and asked["action"] == "extend":
        delay_ms = max(1, round(asked["lock_s"] * 1000))
    return Settlement(parse_receipt(asked["receipt"]), action, delay_ms, asked.get("reason", ""))


def show_result(receipt: str, error: BrokerError | Problem | None) -> dict[str, Any]:
    if error is None:
        return {"receipt": receipt, "status": "ok"}
    problem = problem_of(error)
    assert problem is not None
    return {
        "receipt": receipt,
        "status": "error",
        "error": problem.error,
        "detail": problem.detail,
        "retriable": problem.retriable,
    }


async def peek(call: Call) -> Response:
    queue = call.parameters["queue"]
    topic = await _topic_for_reading(call, queue)
    found = await call.context.backend.queue_messages.peek(queue, topic, call.parameters["max"])
    return json_response({"messages": [show_message(each) for each in found]})


async def _topic_for_reading(call: Call, queue: str) -> str:
    topic = (await call.context.backend.queues.get_known(queue)).topic
    await call.require("READ", "TOPIC", topic)
    return topic


def show_message(message: ReceivedMessage) -> dict[str, Any]:
    record = message.record
    value = decode_content(record.value, record.headers)
    shown = show_bytes("value", value) if isinstance(value, bytes) else {"value": value}
    return {
        **shown,
        **show_bytes("key", record.key),
        "attempt": message.attempt,
        "partition": message.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp,
        "headers": {name: _text(content) for name, content in record.headers},
    }


def show_received(message: ReceivedMessage) -> dict[str, Any]:
    return {**show_message(message), "receipt": message.receipt, "lock_s": message.lock_ms / 1000}


def _text(content: bytes | None) -> str | None:
    if content is None:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return b64encode(content).decode()


_NEW_MESSAGE = an_object(
    {
        "value": {"description": "Any JSON; text is stored as it is."},
        "key": {"type": ["string", "null"]},
        "headers": {"type": "object", "maxProperties": 100, "additionalProperties": STRING},
        "priority": {"type": "integer", "minimum": 0, "maximum": 9},
        "delay_ms": {**_DELAY, "description": "Time before the message can be received."},
        "ttl_ms": {
            **_DELAY,
            "minimum": 1,
            "description": "Time after which the message is not delivered any more.",
        },
    },
    required=("value",),
)
_MESSAGE_FIELDS: Final = {
    "value": {"description": "The value as it was sent; text for bytes that are UTF-8."},
    "value_base64": STRING,
    "key": {"type": ["string", "null"]},
    "key_base64": STRING,
    "attempt": {"type": "integer", "description": "Number of deliveries, this one included."},
    "partition": INTEGER,
    "offset": INTEGER,
    "timestamp_ms": INTEGER,
    "headers": {"type": "object", "additionalProperties": {"type": ["string", "null"]}},
}
_PLAIN_FIELDS: Final = ("attempt", "partition", "offset", "timestamp_ms", "headers")
_MESSAGE = an_object(dict(_MESSAGE_FIELDS), required=_PLAIN_FIELDS)
RECEIVED = an_object(
    {**_MESSAGE_FIELDS, "receipt": STRING, "lock_s": NUMBER}, required=(*_PLAIN_FIELDS, "receipt", "lock_s")
)
RESULT = an_object(
    {
        "receipt": STRING,
        "status": {"type": "string", "enum": ["ok", "error"]},
        "error": STRING,
        "detail": STRING,
        "retriable": {"type": "boolean"},
    },
    required=("receipt", "status"),
)
SETTLEMENTS: Final = an_array(
    an_object(
        {
            "receipt": {"type": "string", "maxLength": 200},
            "action": {"type": "string", "enum": list(ACTIONS)},
            "delay_ms": {
                **_DELAY,
                "description": "Delay of a release; that of the queue's back-off unless given.",
            },
            "lock_s": {**LOCK, "description": "New lock time of an extension."},
            "reason": {"type": "string", "maxLength": 1_000},
        },
        required=("receipt", "action"),
    ),
    minItems=1,
    maxItems=MAX_MESSAGES,
)
_MAX = {"type": "integer", "minimum": 1, "maximum": MAX_MESSAGES}

ENDPOINTS = (
    Endpoint(
        "POST",
        "/v1/queues/{queue}/messages",
        "sendToQueue",
        TAG,
        "Send messages to a queue; the answer comes when all are stored durably.",
        send,
        {
            200: DeclaredResponse(
                "Partitions and offsets, in the order of the messages.",
                an_object({"messages": an_array(an_object({"partition": INTEGER, "offset": INTEGER}))}),
            )
        },
        parameters=(QUEUE,),
        bodies={JSON: an_object({"messages": an_array(_NEW_MESSAGE, minItems=1, maxItems=10_000)})},
        assumes_json=True,
    ),
    Endpoint(
        "POST",
        "/v1/queues/{queue}/receive",
        "receiveFromQueue",
        TAG,
        "Receive messages; each is locked for this receiver until it is settled or its lock ends.",
        receive,
        {
            200: DeclaredResponse(
                "The messages; none after the wait.", an_object({"messages": an_array(RECEIVED)})
            )
        },
        parameters=(QUEUE,),
        bodies={
            JSON: an_object(
                {
                    "max": {**_MAX, "default": 1},
                    "wait": {
                        "type": "number",
                        "minimum": 0,
                        "maximum": 3_600,
                        "description": "Seconds to wait for the first message.",
                    },
                    "lock_s": {
                        **LOCK,
                        "description": "Lock time in seconds; that of the queue unless given.",
                    },
                },
                required=(),
            )
        },
        is_body_required=False,
        assumes_json=True,
        is_stream=True,
        needs=(on_queue("READ"),),
    ),
    Endpoint(
        "POST",
        "/v1/queues/{queue}/settlements",
        "settle",
        TAG,
        "Accept, release, reject or extend received messages. Each settlement has a result of its own.",
        settle,
        {200: DeclaredResponse("The results, in order.", an_object({"results": an_array(RESULT)}))},
        parameters=(QUEUE,),
        bodies={JSON: an_object({"settlements": SETTLEMENTS})},
        assumes_json=True,
        needs=(on_queue("READ"),),
    ),
    Endpoint(
        "GET",
        "/v1/queues/{queue}/peek",
        "peekQueue",
        TAG,
        "The oldest messages that are not settled, without receiving them; messages in flight are among them.",
        peek,
        {200: DeclaredResponse("The oldest first.", an_object({"messages": an_array(_MESSAGE)}))},
        parameters=(QUEUE, query("max", {**_MAX, "default": 10}, "The maximum number of messages.")),
        needs=(on_queue("READ"),),
    ),
)
