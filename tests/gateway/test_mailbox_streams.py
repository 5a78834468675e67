"""A user's mailbox over a WebSocket: credit, messages of others and messages that the user sends."""

from __future__ import annotations

from pathlib import Path

import pytest
from push_stage import Stage, on_stage
from test_push_mailbox import send
from test_push_sockets import is_quiet, message, say
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosedError, InvalidStatus

from support.whole_brokers import Brokers


def stream(stage: Stage, query: str) -> connect:
    return connect(f"ws://127.0.0.1:{stage.port}/receive/stream?{query}")


def test_mailbox_stream_sends_as_many_messages_as_credit(tmp_path: Path) -> None:
    async def scenario(stage: Stage, brokers: Brokers) -> None:
        first, second, third = await send(stage, "bob", "one", "two", "three")
        await send(stage, "eve", "not for bob")
        async with stream(stage, "user_id=bob") as client:
            assert await is_quiet(client)
            await say(client, credit=2)
            got = [await message(client), await message(client)]
            assert [each["message_id"] for each in got] == [first, second]
            assert (got[0]["from_user"], got[0]["message"]) == ("ann", "one")
            assert await is_quiet(client)
        async with stream(stage, f"user_id=bob&last_message_id={second}") as client:
            await say(client, credit=5)
            assert (await message(client))["message_id"] == third

    on_stage(tmp_path, scenario)


def test_two_users_talk_over_their_sockets(tmp_path: Path) -> None:
    async def scenario(stage: Stage, brokers: Brokers) -> None:
        async with stream(stage, "user_id=ann") as ann, stream(stage, "user_id=bob") as bob:
            await say(ann, credit=10)
            await say(bob, credit=10)
            await say(ann, send={"id": "7", "to_user": "bob", "message": "hello"})
            sent = (await message(ann))["sent"]
            assert (sent["id"], sent["status"]) == ("7", "success")
            got = await message(bob)
            assert (got["message_id"], got["from_user"], got["message"]) == (
                sent["message_id"],
                "ann",
                "hello",
            )
            await say(bob, send={"from_user": "carl", "to_user": "ann", "message": "hi"})
            assert (await message(bob))["sent"]["id"] is None
            assert (await message(ann))["from_user"] == "carl"

    on_stage(tmp_path, scenario)


@pytest.mark.parametrize("said", ['{"send": {"message": "x"}}', '{"send": "x"}', '{"settlements": []}'])
def test_invalid_message_closes_the_mailbox_stream(tmp_path: Path, said: str) -> None:
    async def scenario(stage: Stage, brokers: Brokers) -> None:
        async with stream(stage, "user_id=bob") as client:
            await client.send(said)
            assert (await message(client))["error"]["status"] == 400
            with pytest.raises(ConnectionClosedError):
                await client.recv()
        with pytest.raises(InvalidStatus) as refused:
            async with stream(stage, ""):
                pass
        assert refused.value.response.status_code == 400

    on_stage(tmp_path, scenario)
