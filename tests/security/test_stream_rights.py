"""Rights of WebSockets: a stream of a queue needs them at the handshake, and ends when they are gone."""

from __future__ import annotations

import json
import ssl
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from test_http_users import HttpsClient, basic, secure
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosedError, InvalidStatus

from support.certificates import TestAuthority
from support.secure_brokers import add_user, in_thread
from support.whole_brokers import Brokers, run


@pytest.mark.slow
def test_queue_stream_needs_rights_and_ends_without_them(tmp_path: Path) -> None:
    authority = TestAuthority(tmp_path / "tls")

    async def scenario(brokers: Brokers) -> None:
        harness = await brokers.start(1)
        for user in ("root", "alice"):
            await add_user(harness, user, "secret")
        port = brokers.running[1].http_port
        client = HttpsClient(port, authority)
        context = ssl.create_default_context(cafile=str(authority.file))

        async def ask(method: str, path: str, body: Any = None) -> Any:
            content = None if body is None else json.dumps(body)
            status, _, answer = await in_thread(
                partial(client.ask, method, path, basic("root", "secret"), content)
            )
            assert status in (200, 201), answer
            return json.loads(answer)

        def stream() -> connect:
            return connect(
                f"wss://127.0.0.1:{port}/v1/queues/orders/stream",
                ssl=context,
                additional_headers={"Authorization": basic("alice", "secret")},
            )

        async def allow(kind: str) -> None:
            rule = {
                "principal": "User:alice",
                "operation": "READ",
                "resource_type": kind,
                "name": "orders",
            }
            await ask("POST", "/v1/acls", {"rules": [rule]})

        await ask("POST", "/v1/queues", {"name": "orders", "partitions": 1})
        await ask("POST", "/v1/queues/orders/messages", {"messages": [{"value": "a"}, {"value": "b"}]})
        for kind in ("GROUP", "TOPIC"):
            with pytest.raises(InvalidStatus) as refused:
                async with stream():
                    pass
            assert refused.value.response.status_code in (403, 404)
            await allow(kind)
        async with stream() as socket:
            await socket.send(json.dumps({"credit": 1}))
            given = json.loads(await socket.recv())
            accept = {"settlements": [{"receipt": given["receipt"], "action": "accept"}]}
            await socket.send(json.dumps(accept))
            answers = [json.loads(await socket.recv()) for _ in range(2)]
            assert [each["results"][0]["status"] for each in answers if "results" in each] == ["ok"]
            await ask("DELETE", "/v1/acls?principal=User:alice")
            with pytest.raises(ConnectionClosedError) as closed:
                await socket.recv()
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 1008

    settings = {**secure(authority), "authorization_mode": "enforce", "super_users": "User:root"}
    run(tmp_path, scenario, **settings)
