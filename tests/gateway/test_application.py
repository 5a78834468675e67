"""The gateway application without a server or a cluster: permissions, large bodies, internal errors,
disconnects.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest
from starlette.responses import Response

from penstock.clock import SystemClock
from penstock.config import BrokerConfig
from penstock.gateway.endpoint_context import EndpointContext
from penstock.gateway.gateway import RESOURCES
from penstock.gateway.http.application import GatewayApplication
from penstock.gateway.http.endpoint import JSON, SYSTEM, Call, DeclaredResponse, Endpoint
from penstock.gateway.http.page import example
from penstock.observability.log_lines import json_line
from penstock.observability.logs import Logger
from penstock.observability.metrics import BrokerMetrics
from penstock.threads import ThreadPools

SECRET = "the password is in /etc/secret.py"
LISTS = {"listTopics", "listGroups", "listTransactions", "listQueues"}
OWN = {"ownRights"}
"""Endpoints that answer every client about itself."""
LOOKS_UP = {"sendToQueue", "requestFromQueue"}
"""Endpoints that ask for rights on a topic which they look up first."""
OWNED = {"Schedules", "Webhooks"}
"""Tags of endpoints whose rights are those on the topic or queue of an object, which the broker that owns it checks."""
SESSIONS = "Sessions"


class Stage:
    """An application whose backend must not be used, unless a test gives it one."""

    def __init__(
        self, endpoints: Any = RESOURCES, allowed: Callable[..., bool] = lambda *_: True, backend: Any = None
    ) -> None:
        self.lines: list[str] = []
        self.metrics = BrokerMetrics({}, 1)
        log = Logger(SystemClock(), self.lines.append, json_line)
        gateway = EndpointContext(
            backend, BrokerConfig({}), SystemClock(), ThreadPools(), log, backend, backend, allowed
        )
        self.application = GatewayApplication(gateway, endpoints, [], self.metrics, "test")
        transport = httpx.ASGITransport(self.application, raise_app_exceptions=False)
        self.http = httpx.AsyncClient(transport=transport, base_url="http://gateway")


def endpoint(handler: Callable[[Call], Awaitable[Response]], **more: Any) -> Endpoint:
    return Endpoint("POST", "/x", "x", "", "", handler, {200: DeclaredResponse("")}, **more)


@pytest.mark.parametrize("declared", RESOURCES, ids=lambda each: each.name)
async def test_unauthorized_request_never_reaches_the_cluster(declared: Endpoint) -> None:
    if declared.name in LISTS | LOOKS_UP | OWN or declared.tag == SESSIONS:
        return  # a session is that of the client itself
    if declared.tag in OWNED and not declared.needs:
        return  # security/test_http_matrix.py tries them
    assert declared.needs, "what a client must be allowed is declared"
    asked: list[tuple[str, ...]] = []

    def deny(*question: str) -> bool:
        asked.append(question)
        return False

    path = declared.path.replace("{broker}", "1").replace("{topic}", "t").replace("{group}", "t")
    path = path.replace("{transactional_id}", "t").replace("{connection}", "1-1").replace("{member}", "m")
    path = re.sub(r"\{[a-z_]+\}", "t", path.replace("{id}", "0-1"))
    asks = {
        each.name: each.schema.get("enum", ["text"])[0]
        for each in declared.parameters
        if each.place == "query" and each.required
    }
    schema = declared.bodies.get(JSON)
    body = None if schema is None else json.dumps(example(schema))
    headers = {} if body is None else {"content-type": JSON}
    answer = await Stage(allowed=deny).http.request(
        declared.method, path, params=asks, content=body, headers=headers
    )
    assert answer.status_code == 403, answer.text
    assert answer.json()["error"].endswith("_AUTHORIZATION_FAILED")
    [(_, _, _, name)] = asked
    assert name in ("t", "text", "mailbox", "kafka-cluster", "__pipelines")


async def test_lists_show_only_what_the_client_may_describe() -> None:
    from uuid import UUID

    from penstock.internal_client.topic_routes import PartitionRoute, TopicRoute
    from penstock.model import BrokerId, TopicId

    class Topics:
        async def all(self) -> list[TopicRoute]:
            partition = PartitionRoute(BrokerId(1), 0, (BrokerId(1),), (BrokerId(1),))
            return [
                TopicRoute(name, TopicId(UUID(int=1)), False, (partition,)) for name in ("mine", "theirs")
            ]

    class NoView:
        """The view of a cluster whose brokers tell the gateway no figures."""

        has_topics = False

        async def refresh(self) -> None:
            """Do nothing."""

    class Backend:
        topics = Topics()
        view = NoView()

    stage = Stage(allowed=lambda host, operation, kind, name: name == "mine", backend=Backend())
    listed = (await stage.http.get("/v1/topics")).json()["topics"]
    assert [each["name"] for each in listed] == ["mine"]


async def test_internal_error_shows_request_id_and_is_logged() -> None:
    async def fail(call: Call) -> Response:
        raise RuntimeError(SECRET)

    stage = Stage([endpoint(fail)])
    answer = await stage.http.post("/x")
    assert answer.status_code == 500
    assert SECRET not in answer.text + str(answer.headers)
    [line] = stage.lines
    assert answer.json()["request_id"] in line
    assert SECRET in line
    assert stage.metrics.http_answers.counts == {"500": 1}


async def test_large_body_is_parsed_off_the_loop() -> None:
    async def count(call: Call) -> Response:
        return Response(str(len(call.body)))

    stage = Stage([endpoint(count, bodies={JSON: None})])
    body = b"[" + b"{}," * 300_000 + b"{}]"
    asking = asyncio.create_task(stage.http.post("/x", content=body, headers={"content-type": JSON}))
    turns = 0
    while not asking.done():
        await asyncio.sleep(0)
        turns += 1
    assert (await asking).text == "300001"
    assert turns > 20


async def test_call_of_disconnected_client_is_cleaned_up() -> None:
    started = asyncio.Event()

    async def wait(call: Call) -> Response:
        started.set()
        await asyncio.Event().wait()
        raise AssertionError

    stage = Stage([endpoint(wait, is_stream=True)])
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    task = asyncio.create_task(stage.application(_scope(length=b"0"), asyncio.Event().wait, send))  # type: ignore[arg-type]
    await started.wait()
    assert stage.application.limits.open_requests == 1
    task.cancel()
    await asyncio.wait([task])
    assert stage.application.limits.open_requests == 0
    assert not sent
    assert stage.metrics.http_answers.counts == {"499": 1}


async def test_stop_ends_waits_and_serves_only_health() -> None:
    started = asyncio.Event()

    async def wait(call: Call) -> Response:
        started.set()
        await asyncio.Event().wait()
        raise AssertionError

    async def healthy(call: Call) -> Response:
        return Response()

    system = Endpoint("GET", "/health", "health", SYSTEM, "", healthy, {200: DeclaredResponse("")})
    stage = Stage([endpoint(wait, is_stream=True), system])
    waiting = asyncio.create_task(stage.http.post("/x"))
    await started.wait()
    stage.application.stop()
    answer = await waiting
    assert (answer.status_code, answer.json()["retriable"]) == (503, True)
    assert (await stage.http.post("/x")).status_code == 503
    assert (await stage.http.get("/health")).status_code == 200


def _scope(length: bytes = b"10") -> dict[str, Any]:
    return {
        "type": "http",
        "method": "POST",
        "path": "/x",
        "raw_path": b"/x",
        "query_string": b"",
        "headers": [(b"host", b"x"), (b"content-type", b"application/json"), (b"content-length", length)],
        "client": ("127.0.0.1", 1),
    }
