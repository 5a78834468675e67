"""Inspect: answers questions of gateways and other brokers about this broker (`server/inspection`). A private API,
which ApiVersions does not list.
"""

from __future__ import annotations

import asyncio

import msgspec

from penstock.errors import BrokerError, ErrorCode
from penstock.net.response import Answer, PendingResponse
from penstock.server.dispatch import Api, Request
from penstock.server.inspection import QUESTIONS
from penstock.server.inspection.question import text, texts
from penstock.server.security import CLUSTER_NAME, ResourceType
from penstock.wire.apis import INSPECT
from penstock.wire.inspect import (
    InspectRequest,
    InspectResponse,
    decode_inspect_request,
    encode_inspect_response,
)

MAX_MESSAGE_CHARACTERS = 500
_ENCODER = msgspec.msgpack.Encoder()


def handle(request: Request, frame: memoryview, position: int) -> Answer:
    asked = decode_inspect_request(frame, position)
    later = PendingResponse()
    working = asyncio.ensure_future(_respond(request, asked, later))
    later.when_abandoned(lambda: _cancel(working))
    return later


API = Api(INSPECT, 0, 0, handle_raw=handle)


def _cancel(working: asyncio.Task[None]) -> None:
    working.cancel()


async def _respond(request: Request, asked: InspectRequest, later: PendingResponse) -> None:
    try:
        response = InspectResponse(answer=await _answer(request, asked))
    except BrokerError as error:
        response = InspectResponse(error.code, str(error)[:MAX_MESSAGE_CHARACTERS])
    except Exception as error:  # noqa: BLE001 - whatever it is, it must not leave the connection waiting for ever
        later.fail(error)
        return
    later.resolve([encode_inspect_response(request.header.correlation_id, response)])


async def _answer(request: Request, asked: InspectRequest) -> bytes:
    question = QUESTIONS.get(asked.question)
    if question is None:
        raise BrokerError(ErrorCode.invalid_request, f"unknown question {asked.question[:80]!r}")
    if question.is_for_gateways:
        _check_gateway(request)
    elif not question.is_about_topic and question.about_each_of is None:
        request.require(question.operation, ResourceType.CLUSTER, CLUSTER_NAME)
    try:
        arguments = msgspec.msgpack.decode(asked.arguments, type=dict[str, int | str | list[str]])
    except msgspec.DecodeError as error:
        raise BrokerError(ErrorCode.invalid_request, f"malformed arguments: {error}") from None
    if question.is_about_topic:
        request.require(question.operation, ResourceType.TOPIC, text(arguments, "topic"))
    if question.about_each_of is not None:
        arguments["names"] = [
            name
            for name in texts(arguments, "names")
            if request.allowed(question.operation, question.about_each_of, name)
        ]
    return _ENCODER.encode(await question.answer(request.context, arguments))


def _check_gateway(request: Request) -> None:
    if not request.session.is_gateway:
        raise BrokerError(
            ErrorCode.cluster_authorization_failed,
            f"{request.session.principal} is not a gateway: add it to gateway.users of the brokers",
        )
