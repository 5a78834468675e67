"""Heartbeats with the bytes of the last one get the same response as on a connection that knows none."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from penstock.errors import ProtocolError
from penstock.net.response import PendingResponse
from penstock.server.dispatch import Session
from penstock.server.security import ANONYMOUS, Operation, ResourceType
from penstock.wire.framing import SIZE_PREFIX
from penstock.wire.messages import encode_request_frame
from penstock.wire.offset_template import MAX_TEMPLATE_BYTES
from support.group_wire import SETTINGS, joined
from support.harness import Harness, serve

HEARTBEAT = 12
GROUP = "group"


def response(broker: Harness, session: Session, frame: memoryview) -> bytes:
    given = broker._broker._dispatcher.dispatch(session, frame)
    assert given is not None
    assert not isinstance(given, PendingResponse)
    [part] = given
    assert isinstance(part, bytes)
    return part


def test_repeated_heartbeat_bytes_are_checked_again(tmp_path: Path) -> None:
    random = Random(1)

    async def scenario(broker: Harness) -> None:
        me = await joined(broker, GROUP)
        seen = set()
        for _ in range(200):
            version = random.randrange(5)
            fields = {
                "group_id": random.choice([GROUP, GROUP, "", "other"]),
                "generation_id": me.generation + random.choice([0, 0, 0, 1]),
                "member_id": random.choice([me.member_id, me.member_id, "stranger", ""]),
                "group_instance_id": random.choice([None, None, "here"]),
            }
            request = encode_request_frame(HEARTBEAT, version, 7, "test", fields)
            for _ in range(3):
                broker.deny(*random.choice([[], [(Operation.READ, ResourceType.GROUP, GROUP)]]))
                frame = memoryview(request)[SIZE_PREFIX:]
                known = response(broker, broker.session, frame)
                assert known == response(broker, Session("test:2", "test", ANONYMOUS), frame)
                seen.add(known)
        assert len(seen) > 10

    serve(tmp_path, scenario, SETTINGS)


def test_truncated_bytes_of_a_known_heartbeat_are_refused(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        fields = {"group_id": GROUP, "generation_id": 1, "member_id": "x" * 2 * MAX_TEMPLATE_BYTES}
        frame = memoryview(encode_request_frame(HEARTBEAT, 0, 7, "", fields))[SIZE_PREFIX:]
        response(broker, broker.session, frame)
        for size in range(8, len(frame)):
            with pytest.raises(ProtocolError):
                response(broker, broker.session, frame[:size])

    serve(tmp_path, scenario, SETTINGS)
