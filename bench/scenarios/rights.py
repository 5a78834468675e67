"""Costs of access control lists and quotas, beside the same broker without them, which takes Kafka's place.

- 10,000 rules and 1,000 users: one-record requests, produce and consume by a client that logs in with SCRAM.
- 1,000 quotas of other users, which the client does not use.
- A decision that is not remembered, with 100,000 rules, in this process.
- A producer that offers ten times its quota, and other producers beside it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any

from bench.client_security import using
from bench.clusters import PenstockCluster
from bench.comparison import KAFKA, Bar, Row
from bench.context import Context
from bench.driver import finish_driver, run_driver, start_driver
from bench.measure import Spread
from bench.ports import free_ports
from bench.scenarios import consume, produce
from bench.servers import Penstock
from bench.target import Target
from bench.topics import create_topic
from penstock.internal_client.client import InternalClient
from penstock.internal_client.users import new_credentials
from penstock.security.acl import (
    CLUSTER_NAME,
    AccessControlEntry,
    AclBinding,
    Operation,
    PatternType,
    Permission,
    Principal,
    ResourcePattern,
    ResourceType,
)
from penstock.security.acl_index import AclIndex
from penstock.security.acl_policy import AclPolicy
from penstock.security.quota import QuotaEntity, QuotaKey

USERS, RULES, MANY_RULES, QUOTAS = 1_000, 10_000, 100_000, 1_000
USER, PASSWORD = "user-0", "secret"
DECISIONS = 20_000
QUOTA_BYTES_PER_S = 1_000_000
TIMES_QUOTA = 10
NOISY = "noisy"
VICTIMS = {"partitions": 6, "writers": 6, "messages_per_s": 200}
PARTITIONS = 6
BARS = {
    ("one-record requests", "server CPU"): Bar("ratio", "at most", 1.05),
    ("produce 1 KB", "rate"): Bar("ratio", "at least", 0.97),
    ("consume 1 KB", "rate"): Bar("ratio", "at least", 0.97),
}
"""Targets by scenario and label of a row; other rows have none."""
QUOTA_BAR = Bar("ratio", "at most", 1.03)


class LoginPenstock(Penstock):
    """Broker whose measured clients log in; a second listener is for its preparation."""

    mode = "off"

    def __init__(self) -> None:
        plain, self.login_port = free_ports(2)
        listeners = f"PLAINTEXT://127.0.0.1:{plain},SASL_PLAINTEXT://127.0.0.1:{self.login_port}"
        settings = (f"listeners={listeners}", f"authorization.mode={self.mode}", "super.users=User:ANONYMOUS")
        super().__init__(settings=settings)
        self.port = plain

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.login_port}"

    async def prepare(self, client: InternalClient) -> None:
        """Create the users, whose keys are the same."""
        described = new_credentials(USER, PASSWORD)
        for start in range(0, USERS, 100):
            names = (f"user-{number}" for number in range(start, start + 100))
            await client.users.put_credentials(
                [{**each, "name": name} for name in names for each in described]
            )

    def start(self) -> None:
        super().start()
        asyncio.run(self._prepare())

    async def _prepare(self) -> None:
        async with InternalClient.to(f"127.0.0.1:{self.port}", "bench", 30.0) as client:
            await self.prepare(client)


class BesideOther(LoginPenstock):
    """Broker without rules and quotas, in Kafka's place in ratios."""

    name = KAFKA


class RuledPenstock(LoginPenstock):
    mode = "enforce"

    async def prepare(self, client: InternalClient) -> None:
        await super().prepare(client)
        own = [
            _rule(USER, Operation.ALL, ResourceType.TOPIC, "bench-", PatternType.PREFIXED),
            _rule(USER, Operation.ALL, ResourceType.GROUP, "bench", PatternType.LITERAL),
            _rule(USER, Operation.ALL, ResourceType.CLUSTER, CLUSTER_NAME, PatternType.LITERAL),
        ]
        await client.acls.create([*own, *random_rules(RULES - len(own))])


class QuotaPenstock(LoginPenstock):
    async def prepare(self, client: InternalClient) -> None:
        await super().prepare(client)
        for number in range(QUOTAS):
            entity = QuotaEntity(f"absent-{number}")
            await client.quotas.alter(
                entity, {QuotaKey.PRODUCER_BYTE_RATE: 1e6, QuotaKey.CONSUMER_BYTE_RATE: 1e6}
            )


def random_rules(count: int) -> list[AclBinding]:
    """Rules of many users on topics, in equal parts for names and for prefixes."""
    patterns = (PatternType.LITERAL, PatternType.PREFIXED)
    return [
        _rule(
            f"user-{number % USERS}",
            Operation.READ,
            ResourceType.TOPIC,
            f"orders-{number}",
            patterns[number % 2],
        )
        for number in range(count)
    ]


def _rule(user: str, operation: Operation, kind: ResourceType, name: str, pattern: PatternType) -> AclBinding:
    entry = AccessControlEntry(f"User:{user}", "*", operation, Permission.ALLOW)
    return AclBinding(ResourcePattern(kind, name, pattern), entry)


def rules(context: Context) -> list[Row]:
    with _pair(RuledPenstock, context) as servers:
        rows = [
            *produce.one_record_requests(context, servers),
            *produce.one_kilobyte(context, servers),
            *consume.with_client(context, servers),
        ]
    rows = [replace(row, bar=BARS.get((row.scenario, row.label))) for row in rows]
    return [replace(row, scenario=f"{row.scenario}, {RULES} rules") for row in rows] + [_decision(context)]


def unused_quotas(context: Context) -> list[Row]:
    with _pair(QuotaPenstock, context) as servers:
        rows = produce.one_record_requests(context, servers)
    bars = {"server CPU": QUOTA_BAR}
    return [replace(row, scenario=f"{row.scenario}, unused quotas", bar=bars.get(row.label)) for row in rows]


@contextmanager
def _pair(make: type[LoginPenstock], context: Context) -> Iterator[Sequence[Target]]:
    login = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": USER,
        "sasl.password": PASSWORD,
    }
    with ExitStack() as stack:
        context.say("rights: creating users, rules and quotas")
        servers = [stack.enter_context(each()) for each in (make, BesideOther)]
        stack.enter_context(using(login))
        yield servers


def _decision(context: Context) -> Row:
    """CPU time of a decision about a principal and a topic that no decision was made about before."""
    index = AclIndex()
    for rule in random_rules(MANY_RULES):
        index.put(rule.resource, [rule.entry])
    policy = AclPolicy(index, (), allows_unruled=False)
    found = []
    for number in range(context.rounds):
        asked = [
            (Principal("User", f"user-{each % USERS}"), f"orders-{each}-{number}")
            for each in range(DECISIONS)
        ]
        began = time.thread_time()
        for principal, name in asked:
            policy.permitted(principal, "10.0.0.1", ResourceType.TOPIC, name)
        found.append((time.thread_time() - began) / DECISIONS * 1e6)
    bar = Bar("value", "at most", 50.0)
    return Row("decision, 100000 rules", "CPU", "us", Spread.of(found), bar=bar)


def one_broker(context: Context) -> list[Row]:
    with Penstock() as server:
        return _neighbours(context, server, "producer over its quota")


def three_brokers(context: Context) -> list[Row]:
    with PenstockCluster() as cluster:
        return _neighbours(context, cluster, "producer over its quota, three brokers")


def _neighbours(context: Context, server: Target, name: str) -> list[Row]:
    seconds = float(context.scaled(30, 10))
    first = server.bootstrap.partition(",")[0]
    for topic in ("victim", NOISY):
        create_topic(server, topic, PARTITIONS)
    asyncio.run(_limit(first))
    quota = QUOTA_BYTES_PER_S * len(server.pids)
    quiet, beside, held = [], [], []
    for number in range(context.scaled(3, 1)):
        context.say(f"{name}: round {number + 1}")
        quiet.append(run_driver("quota_victims", bootstrap=first, topic="victim", seconds=seconds, **VICTIMS))
        load: dict[str, Any] = {"client_id": NOISY, "seconds": seconds, "bytes_per_s": quota * TIMES_QUOTA}
        noise = start_driver("quota_produce", bootstrap=server.bootstrap, topic=NOISY, **load)
        beside.append(
            run_driver("quota_victims", bootstrap=first, topic="victim", seconds=seconds, **VICTIMS)
        )
        held.append(finish_driver("quota_produce", noise)["bytes_per_s"] / quota)
    times = [noisy["p99_ms"] / alone["p99_ms"] for noisy, alone in zip(beside, quiet, strict=True)]
    errors = [abs(each - 1.0) * 100 for each in held]
    return [
        Row(name, "distance from the quota", "%", Spread.of(errors), bar=Bar("value", "at most", 5.0)),
        Row(name, "rate, times the quota", "x", Spread.of(held)),
        Row(name, "victims alone: p99", "ms", Spread.of([each["p99_ms"] for each in quiet])),
        Row(name, "victims beside it: p99", "ms", Spread.of([each["p99_ms"] for each in beside])),
        Row(name, "p99, times that without", "x", Spread.of(times), bar=Bar("value", "at most", 2.0)),
    ]


async def _limit(bootstrap: str) -> None:
    async with InternalClient.to(bootstrap, "bench", 30.0) as client:
        await client.quotas.alter(
            QuotaEntity(client_id=NOISY), {QuotaKey.PRODUCER_BYTE_RATE: QUOTA_BYTES_PER_S}
        )
