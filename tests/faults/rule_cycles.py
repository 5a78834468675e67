"""Random changes of access rules under `kill -9` of brokers: `make rule-cycles CHANGES=1000`.

At the end of each block every broker must have exactly the acknowledged rules. A rule whose change has an unknown
outcome may be there or not, and must be the same at all brokers.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import tempfile
import time
from pathlib import Path

from penstock.errors import PenstockError
from penstock.internal_client.client import InternalClient
from penstock.security.acl import (
    AccessControlEntry,
    AclBinding,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from support.cluster_processes import ClusterProcesses
from support.raw import RawClient

CHANGES_A_BLOCK = 50
DESCRIBE_ACLS = 29
PATIENCE_S = 120.0
SETTINGS = ("authorization.mode=enforce", "super.users=User:ANONYMOUS")
RULES = [
    AclBinding(
        ResourcePattern(kind, name, pattern),
        AccessControlEntry(f"User:{user}", "*", operation, Permission.ALLOW),
    )
    for kind in (ResourceType.TOPIC, ResourceType.GROUP)
    for name in ("a", "b")
    for pattern in PatternType
    for user in ("alice", "bob")
    for operation in (Operation.READ, Operation.WRITE if kind is ResourceType.TOPIC else Operation.DELETE)
]
Shown = tuple[int, str, int, str, int]


def shown(rule: AclBinding) -> Shown:
    resource, entry = rule.resource, rule.entry
    return int(resource.kind), resource.name, int(resource.pattern), entry.principal, int(entry.operation)


def rules_at(port: int) -> set[Shown]:
    """Rules that one broker has."""
    with RawClient(port) as client:
        answer = client.call(
            DESCRIBE_ACLS,
            3,
            resource_type_filter=1,
            resource_name_filter=None,
            pattern_type_filter=1,
            principal_filter=None,
            host_filter=None,
            operation=1,
            permission_type=1,
        )
    assert answer.error_code == 0
    return {
        (
            int(each.resource_type),
            each.resource_name,
            int(each.pattern_type),
            acl.principal,
            int(acl.operation),
        )
        for each in answer.resources
        for acl in each.acls
    }


class Changes:
    def __init__(self, cluster: ClusterProcesses) -> None:
        self._cluster = cluster
        self.present: set[AclBinding] = set()
        self.unknown: set[AclBinding] = set()
        self.made = 0
        self.failed = 0

    async def run(self, count: int, kill_at: int) -> None:
        """Make changes one after the other, and kill a broker in the middle of one of them."""
        async with InternalClient.to(self._cluster.bootstrap, "rules", 0.0) as client:
            for number in range(count):
                work = asyncio.ensure_future(self._change(client))
                if number == kill_at:
                    await asyncio.sleep(random.uniform(0, 0.02))
                    await asyncio.to_thread(self._kill)
                await work

    async def _change(self, client: InternalClient) -> None:
        rule = random.choice(RULES)
        is_new = random.random() < 0.55
        self.made += 1
        try:
            if is_new:
                await client.acls.create([rule])
            else:
                await client.acls.delete([_exactly(rule)])
        except (PenstockError, OSError):
            self.failed += 1
            self.unknown.add(rule)
            return
        self.unknown.discard(rule)
        (self.present.add if is_new else self.present.discard)(rule)

    def _kill(self) -> None:
        self._cluster.kill_brokers([random.choice(self._cluster.running)])

    def check(self) -> float:
        """Wait until all brokers have the acknowledged rules; returns the seconds that it took."""
        started = time.monotonic()
        certain = {shown(rule) for rule in self.present - self.unknown}
        open_rules = {shown(rule) for rule in self.unknown}
        while True:
            found = [rules_at(broker.port) for broker in self._cluster.brokers.values()]
            if all(each == found[0] for each in found) and found[0] - open_rules == certain:
                break
            assert time.monotonic() - started < PATIENCE_S, (certain, open_rules, found)
            time.sleep(0.05)
        self.present = {rule for rule in RULES if shown(rule) in found[0]}
        self.unknown.clear()
        return time.monotonic() - started


def _exactly(rule: AclBinding) -> AclFilter:
    resource, entry = rule.resource, rule.entry
    return AclFilter(
        resource.kind, resource.name, resource.pattern, principal=entry.principal, operation=entry.operation
    )


def main(total: int, brokers: int) -> int:
    with tempfile.TemporaryDirectory(prefix="penstock-rules-") as directory:
        cluster = ClusterProcesses(Path(directory), brokers, SETTINGS)
        changes = Changes(cluster)
        try:
            cluster.start()
            while changes.made < total:
                count = min(CHANGES_A_BLOCK, total - changes.made)
                asyncio.run(changes.run(count, random.randrange(count)))
                cluster.start()
                seconds = changes.check()
                print(
                    f"{changes.made} changes, {changes.failed} with an unknown outcome, "
                    f"{len(changes.present)} rules, the same everywhere after {seconds:.2f} s",
                    flush=True,
                )
            cluster.stop()
        finally:
            cluster.close()
    return 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--changes", type=int, default=1_000)
    parser.add_argument("--brokers", type=int, default=3)
    given = parser.parse_args()
    sys.exit(main(given.changes, given.brokers))
