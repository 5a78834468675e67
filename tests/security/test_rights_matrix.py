"""Rights of every API in every version (`support/rights.py`): a client without rights is refused and changes nothing,
each right that the table names is needed, and all of them together are enough.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from penstock.errors import ErrorCode
from penstock.security.acl import (
    AccessControlEntry,
    Permission,
    Principal,
    ResourcePattern,
)
from penstock.server.dispatch import Api
from penstock.server.handlers import all_apis
from penstock.wire.schema import known_versions
from support.eventually import eventually_async
from support.harness import Harness, serve
from support.raw import FIND_COORDINATOR, OFFSET_COMMIT
from support.rights import (
    GROUP,
    NEEDS,
    NEW_TOPIC,
    PRIVATE,
    REFUSALS,
    SHARE_GROUP,
    SHARE_MEMBER,
    TOPIC,
    TRANSACTION,
    Right,
    codes_in,
    request_fields,
)
from support.share_wire import SHARE_ACKNOWLEDGE, SHARE_FETCH, SHARE_GROUP_HEARTBEAT

JOINS, LEAVES = 0, -1
USER = Principal("User", "nobody")
ROOT = Principal("User", "root")
SETTINGS = {
    "authorization.mode": "enforce",
    "super.users": str(ROOT),
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
}


def test_every_api_has_a_declared_right() -> None:
    assert {api.key for api in all_apis()} == NEEDS.keys() | PRIVATE.keys()


class Matrix:
    def __init__(self, harness: Harness, api: Api) -> None:
        self._harness = harness
        self._api = api
        self._ruled: set[ResourcePattern] = set()

    async def prepare(self) -> None:
        """Create what a request with rights may have deleted."""
        self._harness.session.principal = ROOT
        image = self._harness.context.image
        if NEW_TOPIC in image.topics:
            await self._harness.ask(20, 5, {"topic_names": [NEW_TOPIC], "timeout": 5_000})
        if TOPIC not in image.topics:
            await self._harness.create(TOPIC)
        await eventually_async(lambda: TOPIC in self._harness.context.image.topics)
        topic_id = self._harness.context.image.topics[TOPIC].id
        for kind, key in enumerate((GROUP, TRANSACTION, f"{GROUP}:{topic_id}:0")):
            await eventually_async(partial(self._finds_coordinator, kind, key))
        await self._as_root(OFFSET_COMMIT, 7)
        for epoch in (JOINS, LEAVES):
            member = {"group_id": SHARE_GROUP, "member_id": SHARE_MEMBER, "member_epoch": epoch}
            await self._as_root(SHARE_GROUP_HEARTBEAT, 1, member)
        self._harness.session.principal = USER

    async def _finds_coordinator(self, kind: int, key: str) -> bool:
        answer = await self._harness.ask(FIND_COORDINATOR, 6, {"key_type": kind, "coordinator_keys": [key]})
        return bool(answer.coordinators[0].error_code == 0)

    def grant(self, rights: Iterable[Right]) -> None:
        """Give the user exactly these rights."""
        policy = self._harness.context.authorization.policy
        entries: dict[ResourcePattern, list[AccessControlEntry]] = {each: [] for each in self._ruled}
        for operation, kind, name in rights:
            entry = AccessControlEntry(str(USER), "*", operation, Permission.ALLOW)
            entries.setdefault(ResourcePattern(kind, name), []).append(entry)
        for resource, given in entries.items():
            policy.put(resource, given)
        self._ruled = set(entries)

    async def ask(self, version: int) -> Any:
        if self._api.key == SHARE_ACKNOWLEDGE:
            await self._as_root(SHARE_FETCH, 1)  # opens the session
        return await self._harness.ask(self._api.key, version, self._fields(self._api.key, version))

    async def _as_root(self, api_key: int, version: int, values: Mapping[str, Any] | None = None) -> Any:
        self._harness.session.principal = ROOT
        answer = await self._harness.ask(api_key, version, self._fields(api_key, version, values))
        assert not set(codes_in(answer)) & REFUSALS, answer
        self._harness.session.principal = USER
        return answer

    def _fields(self, api_key: int, version: int, values: Mapping[str, Any] | None = None) -> dict[str, Any]:
        topic_id = self._harness.context.image.topics[TOPIC].id
        return request_fields(api_key, version, topic_id, values)

    async def refusals(self, version: int) -> set[ErrorCode]:
        return set(codes_in(await self.ask(version))) & REFUSALS

    def state(self) -> Any:
        """Everything that a request can change: metadata, and the length of every log."""
        context = self._harness.context
        image = context.image
        ends = {replica.name: replica.log.log_end_offset for replica in context.replicas}
        return (image.topics, image.acls, image.quotas, image.users, ends)


@pytest.mark.parametrize("api", [each for each in all_apis() if each.key in NEEDS], ids=lambda each: each.key)
def test_api_needs_exactly_its_rights(tmp_path: Path, api: Api) -> None:
    need = NEEDS[api.key]

    async def scenario(harness: Harness) -> None:
        matrix = Matrix(harness, api)
        for version in sorted(
            each for each in known_versions(api.key) if api.min_version <= each <= api.max_version
        ):
            await matrix.prepare()
            rights = need.rights_in(version)
            matrix.grant(())
            before = matrix.state()
            answer = await matrix.ask(version)
            refused = need.refused_in(version)
            assert set(codes_in(answer)) & REFUSALS == ({refused} - {None}), (version, answer)
            assert matrix.state() == before, version
            for missing in rights:
                matrix.grant(each for each in rights if each != missing)
                if refused is not None:
                    answer = await matrix.ask(version)
                    assert set(codes_in(answer)) & REFUSALS, (version, "without", missing, answer)
            matrix.grant(rights)
            found = await matrix.refusals(version)
            assert bool(found) == need.is_for_brokers_in(version), (version, found)

    serve(tmp_path, scenario, SETTINGS)
