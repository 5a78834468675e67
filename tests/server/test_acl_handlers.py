"""DescribeAcls, CreateAcls and DeleteAcls: rules are stored, filtered and applied on every broker."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from penstock.cluster.acls import MAX_ACLS_PER_REQUEST
from penstock.cluster.memory import MemoryEnsemble
from penstock.errors import ErrorCode
from penstock.security.acl import Operation, PatternType, Permission, Principal, ResourceType
from support.eventually import eventually_async
from support.harness import Harness, serve
from support.whole_brokers import Brokers, run

DESCRIBE, CREATE, DELETE = 29, 30, 31
ENFORCE = {"authorization.mode": "enforce", "super.users": "User:root"}
ANY, MATCH = 1, 2
ALICE = Principal("User", "alice")


def rule(
    name: str = "orders",
    user: str = "User:alice",
    operation: int = Operation.READ,
    *,
    kind: int = ResourceType.TOPIC,
    pattern: int = PatternType.LITERAL,
    permission: int = Permission.ALLOW,
    host: str = "*",
) -> dict[str, Any]:
    return {
        "resource_type": kind,
        "resource_name": name,
        "resource_pattern_type": pattern,
        "principal": user,
        "host": host,
        "operation": operation,
        "permission_type": permission,
    }


def wanted(
    name: str | None = None,
    user: str | None = None,
    kind: int = ANY,
    pattern: int = ANY,
    operation: int = ANY,
) -> dict[str, Any]:
    return {
        "resource_type_filter": kind,
        "resource_name_filter": name,
        "pattern_type_filter": pattern,
        "principal_filter": user,
        "host_filter": None,
        "operation": operation,
        "permission_type": ANY,
    }


async def create(broker: Harness, *rules: dict[str, Any], version: int = 3) -> list[ErrorCode]:
    response = await broker.ask(CREATE, version, {"creations": rules})
    return [each.error_code for each in response.results]


async def describe(broker: Harness, asked: dict[str, Any], version: int = 3) -> set[tuple[Any, ...]]:
    response = await broker.ask(DESCRIBE, version, asked)
    assert response.error_code == 0, response.error_message
    return {
        (each.resource_name, int(each.pattern_type), acl.principal, int(acl.operation))
        for each in response.resources
        for acl in each.acls
    }


def as_root(broker: Harness) -> None:
    broker.session.principal = Principal("User", "root")


@pytest.mark.parametrize("version", [1, 2, 3])
def test_rules_are_created_described_and_deleted_in_every_version(tmp_path: Path, version: int) -> None:
    async def scenario(broker: Harness) -> None:
        as_root(broker)
        prefixed = rule("ord", pattern=PatternType.PREFIXED, operation=Operation.WRITE)
        everything = rule("*", user="User:*", operation=Operation.DESCRIBE)
        codes = await create(broker, rule(), rule(), prefixed, everything, rule("other"), version=version)
        assert codes == [ErrorCode.none] * 5
        matching = wanted("orders", kind=ResourceType.TOPIC, pattern=MATCH)
        assert await describe(broker, matching, version) == {
            ("orders", 3, "User:alice", 3),
            ("ord", 4, "User:alice", 4),
            ("*", 3, "User:*", 8),
        }
        assert await describe(broker, wanted("orders"), version) == {("orders", 3, "User:alice", 3)}
        filters = [wanted(user="User:alice", pattern=3), wanted("missing")]
        response = await broker.ask(DELETE, version, {"filters": filters})
        found = [sorted(acl.resource_name for acl in each.matching_acls) for each in response.filter_results]
        assert found == [["orders", "other"], []]
        assert await describe(broker, wanted(), version) == {
            ("ord", 4, "User:alice", 4),
            ("*", 3, "User:*", 8),
        }

    serve(tmp_path, scenario, ENFORCE)


def test_invalid_rules_are_refused_one_by_one(tmp_path: Path) -> None:
    cases = [
        rule(kind=ANY),
        rule(kind=0),
        rule(kind=6),
        rule(pattern=ANY),
        rule(pattern=MATCH),
        rule(pattern=0),
        rule(operation=ANY),
        rule(operation=0),
        rule(operation=99),
        rule(permission=ANY),
        rule(permission=0),
        rule(""),
        rule("", pattern=PatternType.PREFIXED),
        rule("a\nb"),
        rule("x" * 1_001),
        rule(user="alice"),
        rule(user=":alice"),
        rule(user="User:"),
        rule(user="User:a\x1b[31m"),
        rule(host=""),
        rule("other-cluster", kind=ResourceType.CLUSTER),
    ]

    async def scenario(broker: Harness) -> None:
        as_root(broker)
        codes = await create(broker, *cases, rule())
        assert codes == [ErrorCode.invalid_request] * len(cases) + [ErrorCode.none]
        assert await describe(broker, wanted()) == {("orders", 3, "User:alice", 3)}
        for field in ("resource_type_filter", "pattern_type_filter", "operation", "permission_type"):
            response = await broker.ask(DESCRIBE, 3, wanted() | {field: 0})
            assert response.error_code == ErrorCode.invalid_request, field
            response = await broker.ask(DELETE, 3, {"filters": [wanted() | {field: 0}]})
            assert response.filter_results[0].error_code == ErrorCode.invalid_request, field
        assert await describe(broker, wanted()) == {("orders", 3, "User:alice", 3)}

    serve(tmp_path, scenario, ENFORCE)


def test_too_many_rules_in_one_request_are_refused(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        as_root(broker)
        codes = await create(broker, *(rule(f"t{number}") for number in range(MAX_ACLS_PER_REQUEST + 1)))
        assert set(codes) == {ErrorCode.policy_violation}
        assert await describe(broker, wanted()) == set()

    serve(tmp_path, scenario, ENFORCE)


def test_acl_apis_are_disabled_while_authorization_is_off(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        response = await broker.ask(DESCRIBE, 3, wanted())
        assert (response.error_code, response.resources) == (ErrorCode.security_disabled, ())
        assert await create(broker, rule()) == [ErrorCode.security_disabled]
        response = await broker.ask(DELETE, 3, {"filters": [wanted()]})
        assert response.filter_results[0].error_code == ErrorCode.security_disabled

    serve(tmp_path, scenario)


async def fetch_code(broker: Harness, user: Principal = ALICE) -> ErrorCode:
    """Code of ListOffsets, which needs DESCRIBE on the topic."""
    broker.session.principal = user
    partition = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}
    fields = {
        "replica_id": -1,
        "isolation_level": 0,
        "topics": [{"name": "orders", "partitions": [partition]}],
    }
    response = await broker.ask(2, 5, fields)
    return ErrorCode(response.topics[0].partitions[0].error_code)


def test_a_changed_rule_is_applied_at_once_although_decisions_are_remembered(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        as_root(broker)
        await broker.create("orders")
        assert await fetch_code(broker) == ErrorCode.topic_authorization_failed
        as_root(broker)
        await create(broker, rule())
        assert await fetch_code(broker) == ErrorCode.none
        as_root(broker)
        await create(broker, rule(permission=Permission.DENY, operation=Operation.DESCRIBE, host="test"))
        assert await fetch_code(broker) == ErrorCode.topic_authorization_failed
        as_root(broker)
        await broker.ask(DELETE, 3, {"filters": [wanted(user="User:alice")]})
        assert await fetch_code(broker) == ErrorCode.topic_authorization_failed

    serve(tmp_path, scenario, ENFORCE)


def test_rules_survive_a_restart(tmp_path: Path) -> None:
    ensemble = MemoryEnsemble()

    async def first(broker: Harness) -> None:
        as_root(broker)
        await broker.create("orders")
        await create(broker, rule(), rule("ü/.%"), rule(kind=ResourceType.GROUP))

    async def second(broker: Harness) -> None:
        assert await fetch_code(broker) == ErrorCode.none
        as_root(broker)
        assert {name for name, *_ in await describe(broker, wanted())} == {"orders", "ü/.%"}

    serve(tmp_path, first, ENFORCE, ensemble)
    serve(tmp_path, second, ENFORCE, ensemble)


def test_report_mode_serves_everything_and_records_what_would_be_refused(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        await broker.create("orders")
        assert await fetch_code(broker) == ErrorCode.none
        found = {
            (each.principal, each.operation, each.name)
            for each in broker.context.authorization.refusals.newest(9)
        }
        assert found == {
            ("User:ANONYMOUS", Operation.CREATE, "orders"),
            ("User:alice", Operation.DESCRIBE, "orders"),
        }

    serve(tmp_path, scenario, {"authorization.mode": "report"})


def test_everything_is_allowed_on_resources_without_rules_if_so_configured(tmp_path: Path) -> None:
    async def scenario(broker: Harness) -> None:
        as_root(broker)
        await broker.create("orders")
        assert await fetch_code(broker) == ErrorCode.none
        as_root(broker)
        await create(broker, rule(user="User:bob"))
        assert await fetch_code(broker) == ErrorCode.topic_authorization_failed

    serve(tmp_path, scenario, {**ENFORCE, "allow.everyone.if.no.acl.found": "true"})


def test_random_changes_at_three_brokers_leave_the_same_rules_everywhere(tmp_path: Path) -> None:
    """Removing one of several rules of a resource keeps the others (CVE-2024-27309), whichever broker changes it."""
    random = Random(7)

    async def scenario(brokers: Brokers) -> None:
        harnesses = [await brokers.start(number) for number in (1, 2, 3)]
        for broker in harnesses:
            as_root(broker)
        expected: set[tuple[Any, ...]] = set()
        for _ in range(150):
            broker = random.choice(harnesses)
            name, user = random.choice("ab"), f"User:{random.choice('xyz')}"
            if random.random() < 0.6:
                assert await create(broker, rule(name, user)) == [ErrorCode.none]
                expected.add((name, 3, user, 3))
            else:
                filters = [wanted(name, user, kind=ResourceType.TOPIC, pattern=3)]
                response = await broker.ask(DELETE, 3, {"filters": filters})
                assert response.filter_results[0].error_code == 0
                expected.discard((name, 3, user, 3))
        for broker in harnesses:

            def has_all(broker: Harness = broker) -> bool:
                acls = broker.context.image.acls
                return expected == {
                    (resource.name, int(resource.pattern), entry.principal, int(entry.operation))
                    for resource, stored in acls.items()
                    for entry in stored.entries
                }

            await eventually_async(has_all)

    run(tmp_path, scenario, authorization_mode="enforce", super_users="User:root")
