"""`penstock acl` against a broker in the test's process."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from penstock.cli.main import run as run_command
from penstock.security.acl import Principal
from support.harness import Harness
from support.secure_brokers import in_thread
from support.whole_brokers import Brokers, run

Cli = Callable[..., Awaitable[str]]
RIGHTS = {"authorization_mode": "enforce", "super_users": "User:ANONYMOUS"}


def with_cli(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    scenario: Callable[[Brokers, Cli], Awaitable[None]],
) -> None:
    """Run a scenario with a broker that enforces rights, and with commands of a super user."""

    async def body(brokers: Brokers) -> None:
        await brokers.start(1)
        monkeypatch.setenv("PENSTOCK_BOOTSTRAP", f"127.0.0.1:{brokers.running[1].port}")

        async def cli(*arguments: str, code: int = 0) -> str:
            capfd.readouterr()
            assert await in_thread(lambda: run_command(arguments)) == code, capfd.readouterr()
            shown = capfd.readouterr()
            return shown.out + shown.err

        await scenario(brokers, cli)

    run(tmp_path, body, **RIGHTS)


def test_rules_are_created_listed_tested_and_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    async def scenario(brokers: Brokers, cli: Cli) -> None:
        assert "There are no rules" in await cli("acl", "list")
        await cli("acl", "allow", "alice", "producer", "topic:orders")
        await cli("acl", "allow", "bob", "consumer", "topic:team-", "group:team-", "--prefix")
        await cli("acl", "deny", "*", "delete", "topic:*", "--host", "10.0.0.7")
        rules = json.loads(await cli("acl", "list", "--json"))
        assert {(each["principal"], each["operation"], each["name"], each["pattern"]) for each in rules} == {
            ("User:alice", "WRITE", "orders", "LITERAL"),
            ("User:alice", "CREATE", "orders", "LITERAL"),
            ("User:alice", "DESCRIBE", "orders", "LITERAL"),
            ("User:bob", "READ", "team-", "PREFIXED"),
            ("User:bob", "DESCRIBE", "team-", "PREFIXED"),
            ("User:*", "DELETE", "*", "LITERAL"),
        }
        assert "orders" not in await cli("acl", "list", "--user", "bob")
        assert "team-*" in await cli("acl", "list", "--resource", "topic:team-1")
        assert "ALLOW User:bob READ on topic:team-*" in await cli(
            "acl", "test", "bob", "read", "topic:team-1"
        )
        refused = await cli("acl", "test", "bob", "delete", "topic:orders", "--host", "10.0.0.7", code=1)
        assert "DENY User:* DELETE from host 10.0.0.7" in refused
        assert "no rule matches" in await cli("acl", "test", "carol", "read", "topic:orders", code=1)
        assert "is a super user" in await cli("acl", "test", "ANONYMOUS", "alter", "cluster")
        assert "removed: ALLOW User:alice WRITE" in await cli(
            "acl", "remove", "alice", "write", "topic:orders"
        )
        assert "nothing was removed" in await cli("acl", "remove", "alice", "write", "topic:orders")
        assert "remove all rules" in await cli("acl", "remove", code=2)
        await cli("acl", "remove", "--force")
        assert "There are no rules" in await cli("acl", "list")

    with_cli(tmp_path, monkeypatch, capfd, scenario)


def test_suggested_rules_permit_what_the_report_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    async def scenario(brokers: Brokers, cli: Cli) -> None:
        assert "No requests were refused" in await cli("acl", "report")
        broker = Harness(brokers.running[1])
        broker.session.principal = Principal("User", "alice")
        topic = {
            "topic": "orders",
            "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1}],
        }
        fetch = {"replica_id": -1, "max_wait": 0, "min_bytes": 0, "max_bytes": 1, "topics": [topic]}
        assert (await broker.ask(1, 4, fetch)).responses[0].partitions[0].error_code == 29
        await broker.ask(3, 4, {"topics": [{"name": "orders"}], "allow_auto_topic_creation": False})
        rows = json.loads(await cli("acl", "report", "--json"))["refusals"]
        assert {(each["principal"], each["operation"]) for each in rows} == {
            ("User:alice", "READ"),
            ("User:alice", "DESCRIBE"),
        }
        assert ["alice", "READ", "topic:orders"] in [
            line.split()[:3] for line in (await cli("acl", "report")).splitlines()
        ]
        suggested = (await cli("acl", "suggest")).strip()
        assert suggested == "penstock acl allow alice read topic:orders"
        await cli(*suggested.split()[1:])
        response = await broker.ask(1, 4, fetch)
        assert response.responses[0].partitions[0].error_code == 3

    with_cli(tmp_path, monkeypatch, capfd, scenario)


def test_quotas_are_set_shown_and_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    async def scenario(brokers: Brokers, cli: Cli) -> None:
        assert "There are no quotas" in await cli("quota", "list")
        await cli("quota", "set", "producer_byte_rate=1000", "request_percentage=25", "--user-default")
        await cli("quota", "set", "alice", "producer_byte_rate=5000", "--client-id", "app")
        await cli("quota", "set", "connection_creation_rate=5", "--ip", "10.0.0.7")
        quotas = json.loads(await cli("quota", "list", "--json"))
        assert {json.dumps(each["entity"], sort_keys=True) for each in quotas} == {
            '{"user": "<default>"}',
            '{"client_id": "app", "user": "alice"}',
            '{"ip": "10.0.0.7"}',
        }
        shown = json.loads(await cli("quota", "show", "alice", "--client-id", "app", "--json"))
        assert shown == {"producer_byte_rate": 5000.0, "request_percentage": 25.0}
        assert "greater than 0" in await cli("quota", "set", "producer_byte_rate=-1", "--user", "a", code=1)
        assert "no entity" in await cli("quota", "set", "producer_byte_rate=1", code=2)
        assert "no quota is given for user alice" in await cli("quota", "set", "alice", code=2)
        assert "not an IP address" in await cli(
            "quota", "set", "connection_creation_rate=5", "--ip", "broker1", code=1
        )
        assert "nothing was removed" in await cli("quota", "remove", "nobody")
        assert await cli("quota", "remove", "--user-default") == (
            "removed producer_byte_rate, request_percentage for user <default>\n"
        )
        await cli("quota", "remove", "alice", "--client-id", "app")
        await cli("quota", "remove", "--ip", "10.0.0.7")
        assert "There are no quotas" in await cli("quota", "list")

    with_cli(tmp_path, monkeypatch, capfd, scenario)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("alice", "fly", "topic:t"), "'fly' is not an operation of a topic"),
        (("alice", "read", "t"), "'t' is not a resource"),
        (("alice", "read", "topic:"), "has no name"),
        (("alice", "consumer", "cluster"), "has no operations for a cluster"),
        (("alice", "create", "group:g"), "is not an operation of a group"),
        (("alice", "read", "topic:*", "--prefix"), "stands for all names and cannot be a prefix"),
        (("alice", "read", "topic:t", "--host", "broker1.example.com"), "is not an IP address"),
        (("alice", "read", "topic:t", "--host", "0:0:0:0:0:0:0:1"), "write the address as ::1"),
    ],
)
def test_invalid_rules_are_refused_with_the_reason(
    arguments: tuple[str, ...], reason: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert run_command(("acl", "allow", *arguments)) == 2
    assert reason in capfd.readouterr().err
