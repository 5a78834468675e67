"""Rules of access control lists in a definitions document. A rule is created or deleted, never changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from penstock.internal_client.acl_documents import read_rule, show_rule
from penstock.internal_client.definitions.reading import ClusterCalls, DefinitionReading
from penstock.internal_client.definitions.section import (
    CLUSTER_RESOURCE,
    ApplyStep,
    DefinitionSection,
    Entry,
    Outcomes,
    Right,
)
from penstock.security.acl import SUPPORTED_OPERATIONS, AclFilter, Operation


class AclSection(DefinitionSection):
    name = "acls"
    noun = "rule"
    created_together = deleted_together = 500

    async def read(self, reading: DefinitionReading) -> list[Entry]:
        return [show_rule(each) for each in await reading.cluster.acls.describe(AclFilter())]

    def identity(self, entry: Entry) -> str:
        rule = read_rule(entry)
        access, host = rule.entry, "" if rule.entry.host == "*" else f" from {rule.entry.host}"
        verb = access.permission.name.lower()
        return f"{verb} {access.principal} {access.operation.name} on {rule.resource}{host}"

    def normal(self, entry: Entry) -> Entry:
        return show_rule(read_rule(entry))

    def problem(self, entry: Entry) -> str:
        rule = read_rule(entry)
        if rule.entry.operation not in (Operation.ALL, *SUPPORTED_OPERATIONS[rule.resource.kind]):
            return f"{rule.entry.operation.name} is not an operation of {rule.resource.kind.name}"
        return "" if ":" in entry["principal"] else "principal: give a principal such as User:ann"

    async def create(self, cluster: ClusterCalls, entry: Entry) -> None:
        await cluster.acls.create([read_rule(entry)])

    async def create_each(self, cluster: ClusterCalls, entries: Sequence[Entry]) -> Outcomes:
        return await cluster.acls.create_each([read_rule(entry) for entry in entries])

    async def delete(self, cluster: ClusterCalls, entry: Entry) -> None:
        await cluster.acls.delete([_exactly(entry)])

    async def delete_each(self, cluster: ClusterCalls, entries: Sequence[Entry]) -> Outcomes:
        await cluster.acls.delete([_exactly(entry) for entry in entries])
        return [None] * len(entries)

    def rights(self, step: ApplyStep) -> Iterator[Right]:
        yield "ALTER", *CLUSTER_RESOURCE


def _exactly(entry: Entry) -> AclFilter:
    """Filter that matches exactly one rule."""
    rule = read_rule(entry)
    resource, access = rule.resource, rule.entry
    return AclFilter(
        resource.kind,
        resource.name,
        resource.pattern,
        principal=access.principal,
        host=access.host,
        operation=access.operation,
        permission=access.permission,
    )
