"""ObjectCall: clients describe and change named objects at their owner (`objects/kind.py`). A private API, which
ApiVersions does not list.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import msgspec

from penstock.errors import BrokerError, ErrorCode
from penstock.net.response import Answer, PendingResponse
from penstock.server.dispatch import Api, Request
from penstock.server.objects.served import ServedKind
from penstock.wire.apis import OBJECT_CALL
from penstock.wire.object_call import (
    LIST,
    ObjectCallRequest,
    ObjectCallResponse,
    decode_object_call_request,
    encode_object_call_response,
)

MAX_MESSAGE_CHARACTERS = 500
MAX_NAME_CHARACTERS = 249
OBJECTS_PER_TURN = 500
_ENCODER = msgspec.msgpack.Encoder()


@dataclass(frozen=True, slots=True)
class _Audited:
    """Stand-in for the request message in the audit log: only the name of the object."""

    name: str


def handle(request: Request, frame: memoryview, position: int) -> Answer:
    asked = decode_object_call_request(frame, position)
    later = PendingResponse()
    working = asyncio.ensure_future(_respond(request, asked, later))
    later.when_abandoned(lambda: _cancel(working))
    return later


API = Api(OBJECT_CALL, 0, 0, handle_raw=handle)


def _cancel(working: asyncio.Task[None]) -> None:
    working.cancel()


async def _respond(request: Request, asked: ObjectCallRequest, later: PendingResponse) -> None:
    try:
        response = ObjectCallResponse(answer=_ENCODER.encode(await _answer(request, asked)))
    except BrokerError as error:
        response = ObjectCallResponse(error.code, str(error)[:MAX_MESSAGE_CHARACTERS])
    except Exception as error:  # noqa: BLE001 - whatever it is, it must not leave the connection waiting for ever
        later.fail(error)
        return
    _audit(request, asked, response)
    later.resolve([encode_object_call_response(request.header.correlation_id, response)])


async def _answer(request: Request, asked: ObjectCallRequest) -> Any:
    objects = request.context.objects
    if asked.kind not in objects:
        raise BrokerError(ErrorCode.invalid_request, f"unknown kind of objects {asked.kind}")
    kind = objects[asked.kind]
    if asked.verb == LIST:
        return await _list(request, kind)
    call = kind.calls.get(asked.verb)
    if call is None:
        raise BrokerError(ErrorCode.invalid_request, f"unknown verb {asked.verb[:80]!r}")
    if not 0 < len(asked.name) <= MAX_NAME_CHARACTERS:
        raise BrokerError(
            ErrorCode.invalid_request,
            f"a name has 1 to {MAX_NAME_CHARACTERS} characters, not {len(asked.name)}",
        )
    try:
        arguments = msgspec.msgpack.decode(asked.arguments, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise BrokerError(ErrorCode.invalid_request, f"malformed arguments: {error}") from None
    return await call(request, asked.name, arguments)


async def _list(request: Request, kind: ServedKind) -> dict[str, Any]:
    """The objects that this broker owns and the client may see, and the shards in which they were searched."""
    entries = []
    shards = []
    for shard in kind.coordinator.shards:
        await shard.committed()
        shards.append(shard.partition)
        for number, (name, state) in enumerate(tuple(shard.states.items())):
            entry = kind.entry(request, name, state)
            if entry is not None:
                entries.append(entry)
            if number % OBJECTS_PER_TURN == OBJECTS_PER_TURN - 1:
                await asyncio.sleep(0)
    topic = request.context.image.topic(kind.coordinator.kind.topic)
    return {"partitions": 0 if topic is None else len(topic.partitions), "shards": shards, "objects": entries}


def _audit(request: Request, asked: ObjectCallRequest, response: ObjectCallResponse) -> None:
    audit, objects = request.context.authorization.audit, request.context.objects
    if audit is None or asked.kind not in objects or asked.verb not in objects[asked.kind].changes:
        return
    caller = request.caller
    what = f"{objects[asked.kind].coordinator.kind.name} {asked.verb}"
    outcome = {"error_code": response.error_code}
    audit.change(what, str(caller.principal), caller.host, _Audited(asked.name), outcome)
