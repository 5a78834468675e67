"""Rights of every HTTP endpoint: a user without rights is refused and changes nothing, each right that the endpoint
declares is needed, and all of them together are enough, also for the brokers behind it.
"""

from __future__ import annotations

import json
import ssl
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from test_http_users import basic, secure

from penstock.gateway.gateway import RESOURCES
from penstock.gateway.http.endpoint import JSON, Endpoint
from penstock.gateway.http.page import example
from penstock.gateway.push.endpoints import push_endpoints
from penstock.gateway.push.socket_endpoints import SOCKET_ENDPOINTS
from penstock.security.acl import (
    AccessControlEntry,
    Operation,
    Permission,
    ResourcePattern,
    ResourceType,
)
from support.certificates import TestAuthority
from support.eventually import eventually_async
from support.harness import Harness
from support.http_rights import (
    BODIES,
    FURTHER,
    NAMES,
    OTHER_NAMES,
    PIPELINE,
    QUERIES,
    SHOWN_TO_ALL,
    STATUSES,
    WEBHOOK,
)
from support.secure_brokers import add_user, in_thread
from support.whole_brokers import Brokers, run

USER = "nobody"
Right = tuple[str, str, str]


@dataclass
class Stage:
    harness: Harness
    connection: HTTPSConnection
    ruled: set[ResourcePattern]

    def grant(self, rights: Iterable[Right]) -> None:
        """Give the user exactly these rights."""
        policy = self.harness.context.authorization.policy
        entries: dict[ResourcePattern, list[AccessControlEntry]] = {each: [] for each in self.ruled}
        for operation, kind, name in rights:
            entry = AccessControlEntry(f"User:{USER}", "*", Operation[operation], Permission.ALLOW)
            entries.setdefault(ResourcePattern(ResourceType[kind], name), []).append(entry)
        for resource, given in entries.items():
            policy.put(resource, given)
        self.ruled = set(entries)

    def state(self) -> Any:
        context = self.harness.context
        image = context.image
        ends = {replica.name: replica.log.log_end_offset for replica in context.replicas}
        return image.topics, image.acls, image.quotas, image.users, image.group_configs, ends

    async def ask(self, user: str, method: str, path: str, body: Any = None) -> tuple[int, str]:
        content = None if body is None else json.dumps(body)
        return await in_thread(partial(self._ask, user, method, path, content))

    def _ask(self, user: str, method: str, path: str, content: str | None) -> tuple[int, str]:
        headers = {"Authorization": basic(user, "secret")}
        if content is not None:
            headers["Content-Type"] = JSON
        self.connection.request(method, path, content, headers)
        answer = self.connection.getresponse()
        if answer.getheader("content-type", "").startswith("text/event-stream"):
            self.connection.close()  # a stream does not end; the next request connects again
            return answer.status, ""
        return answer.status, answer.read().decode()

    async def try_endpoint(self, user: str, declared: Endpoint) -> tuple[int, str]:
        path = declared.path.format_map(defaultdict(lambda: "unknown", names_for(declared)))
        path += QUERIES.get(declared.name, "")
        schema = declared.bodies.get(JSON)
        body = BODIES.get(declared.name, None if schema is None else example(schema))
        return await self.ask(user, declared.method, path, body)


def names_for(declared: Endpoint) -> dict[str, str]:
    return NAMES | OTHER_NAMES.get(declared.name, {})


def rights_of(declared: Endpoint) -> list[Right]:
    """Rights of the request in the table."""
    body = BODIES.get(declared.name, {})
    rights = []
    for need in declared.needs:
        name = need.name or names_for(declared).get(need.parameter) or body.get(need.field)
        assert name, f"the table has no request of {declared.name}"
        rights.append((need.operation, need.kind, name))
    return rights + list(FURTHER.get(declared.name, ()))


async def prepare(stage: Stage) -> None:
    """Create what a request with rights may have deleted, and delete what it has created."""
    image = stage.harness.context.image

    async def root(method: str, path: str, body: Any = None) -> None:
        async def is_served() -> bool:
            status, answer = await stage.ask("root", method, path, body)
            assert status < 300 or status == 503, (path, answer)
            return status != 503  # a closed connection is opened again

        await eventually_async(is_served)

    for kind, name in (("topics", "made"), ("views", "made-view"), ("queues", "made-queue")):
        if name in image.topics or name in image.views:
            await root("DELETE", f"/v1/{kind}/{name}")
    for user in {"made-user"} & image.users.keys():
        await root("DELETE", f"/v1/users/{user}")
    if "alice" not in image.users:
        await root("POST", "/v1/users", {"name": "alice", "password": "secret"})
    for name in {"orders", "later", "old"} - image.topics.keys():
        configs = {"delivery.delay": "true"} if name == "later" else {}
        await root("POST", "/v1/topics", {"name": name, "configs": configs})
    if "work-replies" not in image.topics:
        await root("POST", "/v1/topics", {"name": "work-replies", "configs": {"index.by.key": "true"}})
    if "big-orders" not in image.topics:
        await root("POST", "/v1/views", {"name": "big-orders", "of": "orders", "filter": "true"})
    if "work" not in image.topics:
        await root("POST", "/v1/queues", {"name": "work", "dead_letter": "work-dead"})
    await root("POST", "/v1/groups/billing/reset", {"topic": "orders", "to": "earliest"})
    new = {"name": "nightly", "cron": "@daily", "topic": "orders"}
    assert (await stage.ask("root", "POST", "/v1/schedules", new))[0] in (201, 409)
    assert (await stage.ask("root", "POST", "/v1/webhooks", {"name": "billing-hook", **WEBHOOK}))[0] in (
        201,
        409,
    )
    await root("PUT", "/v1/pipelines/orders-to-table", PIPELINE)
    for made in ("schedules/made-schedule", "webhooks/made-hook", "pipelines/made-pipeline"):
        assert (await stage.ask("root", "DELETE", f"/v1/{made}"))[0] in (204, 404)


async def changes_again(stage: Stage, declared: Endpoint) -> bool:
    """Whether each of five more requests changes the state, which is restored before each of them.

    The owner of a webhook and the coordinator of its queue write at times of their own, but not during every request.
    """
    for _ in range(5):
        await prepare(stage)
        before = stage.state()
        await stage.try_endpoint(USER, declared)
        if stage.state() == before:
            return False
    return True


@pytest.mark.slow
def test_every_endpoint_needs_exactly_its_rights(tmp_path: Path) -> None:
    authority = TestAuthority(tmp_path / "tls")
    wrong: list[Any] = []

    async def scenario(brokers: Brokers) -> None:
        harness = await brokers.start(1)
        for user in (USER, "root", "alice"):
            await add_user(harness, user, "secret")
        context = ssl.create_default_context(cafile=str(authority.file))
        connection = HTTPSConnection("127.0.0.1", brokers.running[1].http_port, timeout=60, context=context)
        stage = Stage(harness, connection, set())
        endpoints = (*RESOURCES, *push_endpoints(Mock()), *SOCKET_ENDPOINTS)
        for declared in endpoints:
            if declared.tag == "Sessions":
                continue
            await prepare(stage)
            await check(stage, declared)
        connection.close()

    async def check(stage: Stage, declared: Endpoint) -> None:
        rights = rights_of(declared)
        stage.grant(())
        before = stage.state()
        status, answer = await stage.try_endpoint(USER, declared)
        if declared.name in SHOWN_TO_ALL:
            if status != 200 or any(name in answer for name in NAMES.values()):
                wrong.append((declared.name, "shows", status, answer[:200]))
        elif status not in (403, 404):
            wrong.append((declared.name, "allowed", status, answer[:200]))
        if stage.state() != before and await changes_again(stage, declared):
            wrong.append((declared.name, "changed something"))
        for missing in rights if declared.name not in SHOWN_TO_ALL else ():
            stage.grant(each for each in rights if each != missing)
            status, answer = await stage.try_endpoint(USER, declared)
            if status not in (403, 404):
                wrong.append((declared.name, "without", missing, status, answer[:200]))
        await prepare(stage)
        stage.grant(rights)
        status, answer = await stage.try_endpoint(USER, declared)
        if status != STATUSES.get(declared.name, status if status < 300 else 200):
            wrong.append((declared.name, "with rights", rights, status, answer[:300]))

    settings = {
        **secure(authority),
        "authorization_mode": "enforce",
        "super_users": "User:root",
        "webhook_allow_private_addresses": "true",
    }
    run(tmp_path, scenario, **settings)
    assert not wrong, "\n".join(map(str, wrong))
