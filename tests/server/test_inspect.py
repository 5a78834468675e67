"""Inspect: questions of gateways, the permissions they need, and malformed ones."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from penstock.errors import ErrorCode, ProtocolError
from penstock.net.response import PendingResponse
from penstock.server.inspection import QUESTIONS
from penstock.server.security import CLUSTER_NAME, Operation, ResourceType
from penstock.wire.framing import SIZE_PREFIX
from penstock.wire.inspect import (
    InspectRequest,
    InspectResponse,
    decode_inspect_request,
    decode_inspect_response,
    encode_inspect_request,
    encode_inspect_response,
)
from support.harness import Harness, content_of
from support.rights import REFUSALS
from support.whole_brokers import Brokers, run


async def ask(harness: Harness, question: str, arguments: bytes) -> InspectResponse:
    frame = encode_inspect_request(7, "test", InspectRequest(question, arguments))
    answer = harness._broker._dispatcher.dispatch(harness.session, memoryview(frame)[SIZE_PREFIX:])
    assert isinstance(answer, PendingResponse)
    done = asyncio.Event()
    answer.when_done(done.set)
    await done.wait()
    assert answer.parts is not None, answer.error
    return decode_inspect_response(memoryview(content_of(answer.parts))[SIZE_PREFIX:])


def pack(**arguments: Any) -> bytes:
    return msgspec.msgpack.encode(arguments)


def test_inspect_request_and_response_round_trip() -> None:
    frame = encode_inspect_request(1, "c", InspectRequest("activity", b"\x80"))
    header = len(frame) - len(b"\x00\x08activity\x00\x00\x00\x01\x80")
    assert decode_inspect_request(memoryview(frame), header) == InspectRequest("activity", b"\x80")
    response = InspectResponse(3, "why", b"x" * 1_000)
    assert decode_inspect_response(memoryview(encode_inspect_response(1, response))[SIZE_PREFIX:]) == response
    with pytest.raises(ProtocolError):
        decode_inspect_request(memoryview(frame)[:-1], header)


def test_every_inspect_question_needs_a_permission(tmp_path: Path) -> None:
    async def scenario(brokers: Brokers) -> None:
        harness = await brokers.start(1)
        harness.deny_all()
        for name, question in QUESTIONS.items():
            if question.about_each_of is not None:
                continue
            refused = await ask(harness, name, pack())
            assert refused.error_code in REFUSALS, name
        harness.deny((Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME))
        assert (await ask(harness, "connections", pack())).error_code == 0
        refused = await ask(harness, "close_connection", pack(number=1))
        assert refused.error_code == ErrorCode.cluster_authorization_failed

    run(tmp_path, scenario)


def test_own_settings_leave_out_topics_that_the_client_may_not_describe(tmp_path: Path) -> None:
    async def scenario(brokers: Brokers) -> None:
        harness = await brokers.start(1)
        await harness.create("a", retention_ms="5")
        await harness.create("b")
        harness.deny((Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, "b"))
        asked = pack(names=["a", "b", "absent"])
        answered = msgspec.msgpack.decode((await ask(harness, "topic_configs", asked)).answer)
        assert answered == {"a": {"retention.ms": "5"}}
        harness.deny_all()
        for question in ("topic_configs", "group_configs"):
            assert msgspec.msgpack.decode((await ask(harness, question, asked)).answer) == {}

    run(tmp_path, scenario)


@pytest.mark.parametrize(
    ("question", "arguments", "code"),
    [
        ("nonsense", pack(), ErrorCode.invalid_request),
        ("activity", b"\xc1", ErrorCode.invalid_request),
        ("activity", pack(epoch="x"), ErrorCode.invalid_request),
        ("activity", pack(epoch=[1]), ErrorCode.invalid_request),
        ("topic_configs", pack(names="a"), ErrorCode.invalid_request),
        ("partition_times", pack(topic=7), ErrorCode.unknown_topic_or_partition),
        ("close_connection", pack(number=99), ErrorCode.resource_not_found),
    ],
)
def test_wrong_inspect_question_gets_an_error(
    tmp_path: Path, question: str, arguments: bytes, code: ErrorCode
) -> None:
    async def scenario(brokers: Brokers) -> None:
        harness = await brokers.start(1)
        refused = await ask(harness, question, arguments)
        assert refused.error_code == code
        assert refused.error_message

    run(tmp_path, scenario)


def test_activity_has_only_what_changed(tmp_path: Path) -> None:
    async def scenario(brokers: Brokers) -> None:
        harness = await brokers.start(1)
        await harness.create("a")
        await harness.create("b")
        first = msgspec.msgpack.decode((await ask(harness, "activity", pack(topics=0, logs=0))).answer)
        assert [name for name, _ in first["topics"]["changes"]] == ["a", "b"]
        assert first["topics"]["complete"]
        assert "groups" not in first, "journals that the client does not ask for are left out"
        await harness.create("c")
        known = {"epoch": first["epoch"], "topics": first["topics"]["version"]}
        second = msgspec.msgpack.decode((await ask(harness, "activity", pack(**known))).answer)
        assert [name for name, _ in second["topics"]["changes"]] == ["c"]
        assert not second["topics"]["all"]
        other = msgspec.msgpack.decode((await ask(harness, "activity", pack(**{**known, "epoch": 1}))).answer)
        assert other["topics"]["all"], "versions of another journal mean nothing"
        assert len(other["topics"]["changes"]) == 3

    run(tmp_path, scenario)
